"""Messages that are created one by one from the rows of a block: pure-Python versions of the types in ``_message.c``.

The compiled types have the same results, and errors of the same types. They create the fields of a message when they
are read, and use the object of a message that the application did not keep for a later message.

See docs/decisions/35-messages-created-when-read.rst.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, Self, SupportsIndex, TypeVar

_T = TypeVar("_T")

#: Function that decodes a key or a value, which is not null.
Decoder = Callable[[bytes], _T]

#: Decoders of keys and of values; None for bytes.
MessageDecoders = tuple[Decoder[Any] | None, Decoder[Any] | None]
NO_DECODERS: MessageDecoders = (None, None)

#: Fields of a message, in their order.
FIELDS = ("topic", "partition", "offset", "key", "value", "timestamp", "timestamp_type", "headers")
_Message = TypeVar("_Message", bound="MessageFields")

#: Attributes of a class that differ if its instances have more fields than those of its base class.
_SIZES = ("__basicsize__", "__dictoffset__", "__weakrefoffset__")

_KEY, _VALUE = FIELDS.index("key"), FIELDS.index("value")


class MessageFields:
    """The fields of a message. As a sequence, it has their values; it compares and hashes like a tuple of them."""

    __slots__ = ("_decoders", "_items")

    def __new__(
        cls,
        topic: str,
        partition: int,
        offset: int,
        key: Any,
        value: Any,
        timestamp: int,
        timestamp_type: int,
        headers: tuple[tuple[str, bytes | None], ...],
    ) -> Self:
        """Create a message with a decoded key and value."""
        self = object.__new__(cls)
        self._set([topic, partition, offset, key, value, timestamp, timestamp_type, headers], {})
        return self

    def _set(self, fields: list[Any], decoders: dict[int, Decoder[Any]]) -> None:
        self._items = fields
        #: Decoders of fields that still contain encoded data.
        self._decoders = {field: decoder for field, decoder in decoders.items() if fields[field] is not None}

    def _get(self, field: int) -> Any:
        if (decoder := self._decoders.get(field)) is not None:
            decoded = decoder(self._items[field])
            if self._decoders.pop(field, None) is not None:  # unless the decoder itself has read the field
                self._items[field] = decoded
        return self._items[field]

    def _values(self) -> tuple[Any, ...]:
        return tuple(map(self._get, range(len(FIELDS))))

    def __len__(self) -> int:
        return len(FIELDS)

    def __getitem__(self, index: SupportsIndex | slice) -> Any:
        if isinstance(index, slice):
            return self._values()[index]
        number = operator.index(index)
        if not -len(FIELDS) <= number < len(FIELDS):
            raise IndexError("message index out of range")
        return self._get(number % len(FIELDS))

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values())

    def __eq__(self, other: object) -> Any:
        return self._compare(operator.eq, other)

    def __ne__(self, other: object) -> Any:
        return self._compare(operator.ne, other)

    def __lt__(self, other: object) -> Any:
        return self._compare(operator.lt, other)

    def __le__(self, other: object) -> Any:
        return self._compare(operator.le, other)

    def __gt__(self, other: object) -> Any:
        return self._compare(operator.gt, other)

    def __ge__(self, other: object) -> Any:
        return self._compare(operator.ge, other)

    def _compare(self, compare: Callable[[Any, Any], Any], other: object) -> Any:
        if isinstance(other, MessageFields):
            return compare(self._values(), other._values())
        return compare(self._values(), other) if isinstance(other, tuple) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._values())


for _name in FIELDS:
    setattr(MessageFields, _name, property(partial(MessageFields._get, field=FIELDS.index(_name))))


class _Column:
    """A column of binary values in Arrow's layout."""

    def __init__(self, offsets: Any, validity: Any, data: Any) -> None:
        self._offsets = memoryview(offsets).cast("B").cast("i")
        self._validity = memoryview(validity).cast("B")
        self._data = memoryview(data).cast("B")
        self.capacity = min(max(len(self._offsets) - 1, 0), 8 * len(self._validity))

    def get(self, row: int) -> bytes | None:
        if not self._validity[row >> 3] >> (row & 7) & 1:
            return None
        start, end = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= end <= len(self._data):
            raise ValueError("column offsets are outside the data")
        return bytes(self._data[start:end])


class _Headers:
    """The header lists of the rows."""

    def __init__(self, ends: Any, validity: Any, *columns: Any) -> None:
        self._offsets = memoryview(ends).cast("B").cast("i")
        self._key, self._value = _Column(*columns[:3]), _Column(*columns[3:])
        self._count = min(self._key.capacity, self._value.capacity)
        self.capacity = min(max(len(self._offsets) - 1, 0), 8 * len(memoryview(validity).cast("B")))

    def get(self, row: int) -> tuple[tuple[str, bytes | None], ...]:
        start, end = self._offsets[row], self._offsets[row + 1]
        if not 0 <= start <= end <= self._count:
            raise ValueError("header list offsets are outside the header columns")
        keys = ((self._key.get(at) or b"").decode("utf-8", "surrogateescape") for at in range(start, end))
        return tuple(zip(keys, map(self._value.get, range(start, end)), strict=True))


class MessageRows(Generic[_Message]):
    """The messages of a block that were not taken yet. Each message is created when it is taken.

    One thread can take messages from the front while others discard messages from the end, because the methods are
    atomic.

    Args:
        cls: class of the messages, a subclass of ``MessageFields`` with empty ``__slots__``.
        partition: topic and partition number.
        rows: number of rows.
        columns: column buffers, filled with ``timestamp_scale`` 1; see ``column_writer``.
        headers: header buffers, or None if there are no headers. Invalid UTF-8 in header keys is escaped as surrogates.
        decoders: decoders of keys and values. They are not called for a null key or value.

    Raises:
        TypeError: ``cls`` is not such a class.
        IndexError: the buffers are smaller than ``rows``.
    """

    def __init__(
        self,
        cls: type[_Message],
        partition: tuple[str, int],
        rows: int,
        columns: tuple[Any, ...],
        headers: tuple[Any, ...] | None,
        decoders: MessageDecoders = NO_DECODERS,
        /,
    ) -> None:
        if not (isinstance(cls, type) and issubclass(cls, MessageFields)):
            raise TypeError(f"cls must be a subclass of MessageFields, got {cls!r}")
        if any(getattr(cls, size) != getattr(MessageFields, size) for size in _SIZES):
            raise TypeError(f"cls must have __slots__ = (), got {cls!r}")
        self._cls, self._partition = cls, partition
        numbered = zip((_KEY, _VALUE), decoders, strict=True)
        self._decoders = {field: decoder for field, decoder in numbered if decoder is not None}
        self._offset = memoryview(columns[0]).cast("B").cast("q")
        self._timestamp = memoryview(columns[1]).cast("B").cast("q")
        self._timestamp_type = memoryview(columns[2]).cast("B").cast("i")
        self._key, self._value = _Column(*columns[3:6]), _Column(*columns[6:9])
        self._headers = None if headers is None else _Headers(*headers)
        numbers = self._offset, self._timestamp, self._timestamp_type
        capacities = [*map(len, numbers), self._key.capacity, self._value.capacity]
        if self._headers is not None:
            capacities.append(self._headers.capacity)
        if not 0 <= rows <= min(capacities):
            raise IndexError("the number of rows exceeds the column capacity")
        self._size = rows
        #: Rows that were not taken; a deque, whose methods are atomic.
        self._left = deque(range(rows))
        self._front: tuple[int, _Message] | None = None

    def __len__(self) -> int:
        return len(self._left)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _Message:
        try:
            return self.popleft()
        except IndexError:
            raise StopIteration from None

    def peek(self) -> _Message:
        """Return the first message without taking it; the next ``popleft`` returns the same object.

        Raises:
            IndexError: there is no message.
        """
        row = self._remove(lambda left: left[0])
        if self._front is None or self._front[0] != row:
            self._front = row, self._create(row)
        return self._front[1]

    def popleft(self) -> _Message:
        """Take the first message.

        Raises:
            IndexError: there is no message.
        """
        row = self._remove(deque.popleft)
        front, self._front = self._front, None
        if front is not None and front[0] == row:
            return front[1]
        try:
            return self._create(row)
        except BaseException:
            self._left.appendleft(row)
            raise

    def pop(self) -> None:
        """Discard the last message.

        Raises:
            IndexError: there is no message.
        """
        self._remove(deque.pop)

    def clear(self) -> None:
        """Discard all messages."""
        self._left.clear()

    def offset_at(self, row: int) -> int:
        """Return the record offset in a row of the block.

        Raises:
            IndexError: there is no such row.
        """
        if not 0 <= row < self._size:
            raise IndexError("there is no such row")
        return self._offset[row]

    def _remove(self, remove: Callable[[deque[int]], int]) -> int:
        try:
            return remove(self._left)
        except IndexError:
            raise IndexError("there are no more messages") from None

    def _create(self, row: int) -> _Message:
        message = object.__new__(self._cls)
        headers = () if self._headers is None else self._headers.get(row)
        kind = max(-1, min(1, self._timestamp_type[row]))
        data = self._key.get(row), self._value.get(row)
        message._set([*self._partition, self._offset[row], *data, self._timestamp[row], kind, headers], self._decoders)
        return message


class MessageIterator:
    """Iterator over the messages of one block after the other.

    A subclass defines ``_next_message``, which is called when there is no message left in ``_rows``.
    """

    #: Messages to return; None if there are none.
    _rows: MessageRows[Any] | None = None

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        try:
            if self._rows is not None:
                return self._rows.popleft()
        except IndexError:
            pass  # all messages were taken, or the partition was released
        return self._next_message()

    def _next_message(self) -> Any:
        raise NotImplementedError

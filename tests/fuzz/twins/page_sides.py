"""The maps of one implementation, and a page store that can fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zkconsumer.errors import StreamsError
from zkconsumer.topology.stores.pages import MemoryPages
from zkconsumer.topology.stores.serde_map import Conversions


class FaultyPages(MemoryPages):
    """Pages whose calls can fail.

    Attributes:
        fault: error to raise, or ``short`` or ``type`` for a wrong result; None for no fault.
        delay: number of calls before the fault.
        probe: called during each call.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fault: BaseException | str | None = None
        self.delay = 0
        self.probe: Callable[[], None] | None = None

    def read(self, page_ids: Sequence[int]) -> list[bytes | None]:
        fault = self._next_fault()
        found: list[Any] = super().read(page_ids)
        if fault == "type":
            found[0] = bytearray(1)
        return found[1:] if fault == "short" else found

    def write(self, changes: Mapping[int, bytes | None]) -> None:
        self._next_fault()

    def finish_commit(self, changes: Mapping[int, bytes | None]) -> None:
        self._next_fault()
        super().finish_commit(changes)

    def _next_fault(self) -> str | None:
        if self.probe is not None:
            self.probe()
        self.delay -= 1
        if self.fault is None or self.delay >= 0:
            return None
        fault, self.fault = self.fault, None
        if isinstance(fault, BaseException):
            raise fault
        return fault


class MapSide:
    """The maps of one implementation.

    Args:
        module: the implementation.
        arguments: the arguments of the map but the pages.
        is_stored: whether the map has pages.
        conversions: conversions of the objects.
        deserialize_key: returns the object of a serialized key.
        second_bytes: see ``TimeMap``.
    """

    def __init__(
        self,
        module: Any,
        arguments: tuple[Any, ...],
        is_stored: bool,
        conversions: Conversions,
        deserialize_key: Callable[[bytes], Any],
        second_bytes: int,
    ) -> None:
        self.module, self.arguments, self.conversions = module, arguments, conversions
        self.deserialize_key, self.second_bytes = deserialize_key, second_bytes
        self.pages = FaultyPages() if is_stored else None
        self.callback: Callable[[Any], object] | None = None
        self.open()

    def open(self) -> None:
        """Create the maps for the same pages."""
        if self.pages is not None:
            self.pages.probe = None
        self.map = self.module.PagedMap(self.pages, *self.arguments)
        serialize_key, serialize_value, deserialize, codecs = self.conversions
        functions = [self._with_callback(function) for function in (serialize_key, serialize_value, deserialize)]
        self.objects = self.module.SerdeMap(self.map, (*functions, codecs))
        deserialize_key = self._with_callback(self.deserialize_key)
        conversions = Conversions(functions[0], functions[1], functions[2], codecs)
        self.times = self.module.TimeMap(self.map, conversions, deserialize_key, self.second_bytes)

    def _with_callback(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def convert(value: Any) -> Any:
            callback, self.callback = self.callback, None
            if callback is not None:
                callback(self.map)
            return function(value)

        return convert

    def commit(self) -> list[tuple[int, bytes | None]]:
        """Commit the changes, and return the pages in their order."""
        changes = self.map.collect_changes()
        self.map.write(changes)
        self.map.finish_commit(changes)
        return list(changes.items())

    def outcome(self, call: Callable[[MapSide], object]) -> Any:
        """Return the result or error of a call, and what the map says about itself."""
        try:
            result: Any = call(self)
        except BaseException as error:
            if isinstance(error, AssertionError | MemoryError | SystemError):
                raise
            causes = [error, error.__cause__]
            result = [(type(cause), str(cause)) for cause in causes]
        if self.pages is not None:
            self.pages.fault = None
        self.callback = None
        return type(result), repr(result), self.map.memory_bytes, len(self.map)

    def assert_probe_is_rejected(self) -> None:
        """Use the map from its page store."""
        for method, arguments in (("get", (b"",)), ("put", (b"", b"")), ("scan", ()), ("close", ())):
            try:
                getattr(self.map, method)(*arguments)
            except StreamsError as error:
                assert "was used by its page store" in str(error)
            else:
                raise AssertionError("a page store could use the map that had called it")

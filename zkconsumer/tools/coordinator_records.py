"""Formatters for the records of the topics ``__consumer_offsets`` and ``__transaction_state``.

Source: Kafka 1.1 GroupMetadataManager.OffsetsMessageFormatter and GroupMetadataMessageFormatter,
TransactionLog.TransactionLogMessageFormatter; Kafka 3.9 org.apache.kafka.tools.consumer, which prints JSON.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any

from zkconsumer.message import MessageAndMetadata
from zkconsumer.tools.common import ToolError

#: Package of the formatters of Kafka 3.9, which print JSON.
_JSON_PACKAGE = "org.apache.kafka.tools.consumer."

#: Text for a record of an unknown version.
_UNKNOWN = "UNKNOWN"

_TRANSACTION_STATES = (
    *("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "Dead"),
    "PrepareEpochFence",
)

#: Field types: ``i8`` to ``i64``, ``string``, ``bytes``, or the fields of an array element. Strings, bytes and arrays
#: may be null.
Fields = dict[str, Any]

_OFFSET_KEY: Fields = {"group": "string", "topic": "string", "partition": "i32"}
_GROUP_KEY: Fields = {"group": "string"}
_TRANSACTION_KEY: Fields = {"transactionalId": "string"}

_OFFSET_VALUE_3: Fields = {"offset": "i64", "leaderEpoch": "i32", "metadata": "string", "commitTimestamp": "i64"}
_OFFSET_VALUES: Mapping[int, Fields] = {
    0: {"offset": "i64", "metadata": "string", "commitTimestamp": "i64"},
    1: {"offset": "i64", "metadata": "string", "commitTimestamp": "i64", "expireTimestamp": "i64"},
    2: {"offset": "i64", "metadata": "string", "commitTimestamp": "i64"},
    3: _OFFSET_VALUE_3,
    4: _OFFSET_VALUE_3,
}


def _group_value(version: int) -> Fields:
    member: Fields = {"memberId": "string"}
    member |= {"groupInstanceId": "string"} if version >= 3 else {}
    member |= {"clientId": "string", "clientHost": "string"}
    member |= {"rebalanceTimeout": "i32"} if version >= 1 else {}
    member |= {"sessionTimeout": "i32", "subscription": "bytes", "assignment": "bytes"}
    group: Fields = {"protocolType": "string", "generation": "i32", "protocol": "string", "leader": "string"}
    group |= {"currentStateTimestamp": "i64"} if version >= 2 else {}
    return group | {"members": member}


_TRANSACTION_VALUE: Fields = {
    "producerId": "i64",
    "producerEpoch": "i16",
    "transactionTimeoutMs": "i32",
    "transactionStatus": "i8",
    "transactionPartitions": {"topic": "string", "partitionIds": "i32[]"},
    "transactionLastUpdateTimestampMs": "i64",
    "transactionStartTimestampMs": "i64",
}


class _Kind:
    """A kind of record.

    Attributes:
        keys: fields of the key by version.
        values: fields of the value by version.
        first_flexible: first version of the value that uses compact lengths and tagged fields.
        to_text: function that returns the texts of the key and, unless it is None, of the value.
    """

    def __init__(
        self,
        keys: Mapping[int, Fields],
        values: Mapping[int, Fields],
        first_flexible: int,
        to_text: Callable[[Mapping[str, Any], Mapping[str, Any] | None], tuple[str, str]],
    ) -> None:
        self.keys = keys
        self.values = values
        self.first_flexible = first_flexible
        self.to_text = to_text


def _describe_offset(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> tuple[str, str]:
    name = f"[{key['group']},{key['topic']},{key['partition']}]"
    if value is None:
        return name, ""
    metadata = value["metadata"] or "NO_METADATA"
    times = f"CommitTime {value['commitTimestamp']},ExpirationTime {value.get('expireTimestamp', -1)}"
    return name, f"[OffsetMetadata[{value['offset']},{metadata}],{times}]"


def _describe_group(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> tuple[str, str]:
    name = key["group"]
    if value is None:
        return name, ""
    members = ", ".join(
        f"{one['memberId']} -> MemberMetadata(memberId={one['memberId']}, clientId={one['clientId']}, "
        f"clientHost={one['clientHost']}, sessionTimeoutMs={one['sessionTimeout']}, "
        f"rebalanceTimeoutMs={one.get('rebalanceTimeout', one['sessionTimeout'])}, "
        f"supportedProtocols=List({_or_null(value['protocol'])}), )"
        for one in value["members"] or ()
    )
    state = "Stable" if value["members"] else "Empty"
    return name, (
        f"GroupMetadata(groupId={name}, generation={value['generation']}, protocolType={value['protocolType']}, "
        f"currentState={state}, members=Map({members}))"
    )


def _describe_transaction(key: Mapping[str, Any], value: Mapping[str, Any] | None) -> tuple[str, str]:
    name = key["transactionalId"]
    if value is None:
        return name, ""
    status = value["transactionStatus"]
    state = _TRANSACTION_STATES[status] if 0 <= status < len(_TRANSACTION_STATES) else f"{_UNKNOWN}({status})"
    partitions = [
        f"{one['topic']}-{number}"
        for one in value["transactionPartitions"] or ()
        for number in one["partitionIds"] or ()
    ]
    return name, (
        f"TransactionMetadata(transactionalId={name}, producerId={value['producerId']}, "
        f"producerEpoch={value['producerEpoch']}, txnTimeoutMs={value['transactionTimeoutMs']}, state={state}, "
        f"pendingState=None, topicPartitions=Set({', '.join(partitions)}), "
        f"txnStartTimestamp={value['transactionStartTimestampMs']}, "
        f"txnLastUpdateTimestamp={value['transactionLastUpdateTimestampMs']})"
    )


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


_KINDS = {
    "OffsetsMessageFormatter": _Kind({0: _OFFSET_KEY, 1: _OFFSET_KEY}, _OFFSET_VALUES, 4, _describe_offset),
    "GroupMetadataMessageFormatter": _Kind(
        {2: _GROUP_KEY}, {version: _group_value(version) for version in range(5)}, 4, _describe_group
    ),
    "TransactionLogMessageFormatter": _Kind(
        {0: _TRANSACTION_KEY}, {0: _TRANSACTION_VALUE, 1: _TRANSACTION_VALUE}, 1, _describe_transaction
    ),
}

#: Names of the formatters, without the package and the outer class.
NAMES = tuple(_KINDS)


def make_formatter(name: str, class_name: str) -> Callable[[MessageAndMetadata], bytes]:
    """Return a formatter. A record of another kind is formatted as an empty text.

    Args:
        name: one of ``NAMES``.
        class_name: full class name, which selects between text and JSON.
    """
    kind, is_json = _KINDS[name], class_name.startswith(_JSON_PACKAGE)

    def format_message(message: MessageAndMetadata) -> bytes:
        try:
            line = _format(kind, message.key, message.value, is_json=is_json)
        except (struct.error, IndexError, ValueError) as error:
            raise ToolError(
                f"the record at offset {message.offset} of {message.topic}-{message.partition} cannot be formatted by "
                f"{name}: {error}"
            ) from error
        return line.encode(errors="replace") + b"\n" if line else b""

    return format_message


def _format(kind: _Kind, key: bytes | None, value: bytes | None, *, is_json: bool) -> str:
    if key is None:
        return ""
    key_version, reader = _start(key)
    if key_version not in kind.keys:
        return ""
    keys = reader.read(kind.keys[key_version])
    version, data = -1, None
    if value is not None:
        version, reader = _start(value)
        if version in kind.values:
            reader.is_flexible = version >= kind.first_flexible
            data = reader.read(kind.values[version])
    is_unknown = value is not None and data is None
    if is_json:
        shown = None if value is None else {"version": version, "data": _UNKNOWN.lower() if is_unknown else data}
        return json.dumps({"key": {"version": key_version, "data": keys}, "value": shown}, separators=(",", ":"))
    name, text = kind.to_text(keys, data)
    return f"{name}::{'NULL' if value is None else _UNKNOWN if is_unknown else text}"


def _start(content: bytes) -> tuple[int, _Reader]:
    """Return the version at the start of a key or value, and a reader for the rest."""
    [version] = struct.unpack_from(">h", content)
    return version, _Reader(content, 2)


class _Reader:
    """Reads fields in Kafka's binary format.

    Attributes:
        is_flexible: whether lengths are compact, and structures end with tagged fields, which are ignored.
    """

    _INTEGERS = {"i8": ">b", "i16": ">h", "i32": ">i", "i64": ">q"}

    def __init__(self, content: bytes, position: int) -> None:
        self.is_flexible = False
        self._content = content
        self._position = position

    def read(self, fields: Fields) -> dict[str, Any]:
        """Return the values of the fields by name."""
        values = {name: self._read_value(kind) for name, kind in fields.items()}
        if self.is_flexible:
            for _ in range(self._read_varint()):
                self._read_varint()
                self._take(self._read_varint())
        return values

    def _read_value(self, kind: Any) -> Any:
        if kind in ("string", "bytes"):
            if (length := self._read_length(">h" if kind == "string" else ">i")) < 0:
                return None
            data = self._take(length)
            return data.decode(errors="replace") if kind == "string" else base64.b64encode(data).decode()
        if isinstance(kind, dict) or kind.endswith("[]"):
            length = self._read_length(">i")
            if length > len(self._content):
                raise ValueError(f"the number of elements must be at most {len(self._content)}, got {length}")
            read = (lambda: self.read(kind)) if isinstance(kind, dict) else (lambda: self._read_value(kind[:-2]))
            return None if length < 0 else [read() for _ in range(length)]
        return self._unpack(self._INTEGERS[kind])

    def _read_length(self, layout: str) -> int:
        return self._read_varint() - 1 if self.is_flexible else self._unpack(layout)

    def _read_varint(self) -> int:
        result = shift = 0
        while True:
            [byte] = self._take(1)
            result |= (byte & 0x7F) << shift
            if byte < 0x80:
                return result
            shift += 7

    def _unpack(self, layout: str) -> int:
        return int(struct.unpack(layout, self._take(struct.calcsize(layout)))[0])

    def _take(self, length: int) -> bytes:
        data = self._content[self._position : self._position + length]
        if len(data) < length:
            raise ValueError("it is truncated")
        self._position += length
        return data

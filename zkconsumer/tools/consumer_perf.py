"""The tool ``consumer-perf``: measures the throughput of a single consumer.

Source: Kafka 1.1 kafka.tools.ConsumerPerformance with ``--zookeeper``. The columns are the same. Deliberate
differences: a topic that does not exist is an error, the znodes of a generated group are deleted, and the measured time
does not include the final wait for further messages.
"""

from __future__ import annotations

import argparse
import random
import re
import time
from collections.abc import Iterator
from concurrent import futures
from datetime import UTC, datetime
from typing import Any

from zkconsumer.config.consumer_config import ConsumerConfig
from zkconsumer.consumer.connector import create_consumer
from zkconsumer.consumer.stream import KafkaStream
from zkconsumer.errors import ConsumerTimeoutError
from zkconsumer.tools import common, output, terminal
from zkconsumer.tools.arguments import ToolParser

_MB = 1024 * 1024

#: Seconds between two updates of the progress bar.
_REFRESH_S = 0.5

#: Maps pattern letters of Java's SimpleDateFormat to ``strftime`` directives.
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DETAILED = ("time", "threadId", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec")
_SUMMARY = ("start.time", "end.time", *_DETAILED[2:])
_IN_JSON = {
    "start.time": "startTime",
    "end.time": "endTime",
    "data.consumed.in.MB": "megabytes",
    "MB.sec": "megabytesPerSecond",
    "data.consumed.in.nMsg": "messages",
    "nMsg.sec": "messagesPerSecond",
}


def add_options(parser: ToolParser) -> None:
    """Add the description, the options and the function that runs the tool."""
    parser.set_defaults(run=run)
    default = "(default: %(default)s)"

    def add_number(name: str, value: int, text: str, metavar: str = "N") -> None:
        parser.add_argument(name, type=common.positive, default=value, metavar=metavar, help=f"{text} {default}")

    common.add_zookeeper(parser, is_required=True)
    parser.add_argument("--topic", required=True, help="topic to consume")
    parser.add_argument("--group", help="consumer group (default: a generated group that is deleted on exit)")
    parser.add_argument(
        "--messages", type=common.positive, required=True, metavar="N", help="number of messages to consume per thread"
    )
    add_number("--fetch-size", _MB, "maximum size of a partition's records in a fetch response", "BYTES")
    parser.add_argument(
        "--from-latest", action="store_true", help="start with the latest message if the group has no committed offset"
    )
    add_number("--socket-buffer-size", 2 * _MB, "size of the TCP receive buffer", "BYTES")
    add_number("--threads", 10, "number of streams")
    add_number("--num-fetch-threads", 1, "number of fetcher threads per broker")
    add_number("--reporting-interval", 5000, "interval between two rows of --show-detailed-stats", "MS")
    parser.add_argument(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="timestamp format, as a Java SimpleDateFormat pattern"
    )
    parser.add_argument("--show-detailed-stats", action="store_true", help="print one row per thread and interval")
    parser.add_argument("--hide-header", action="store_true", help="do not print the header")
    common.add_consumer_config(parser)
    parser.add_argument("--arrow", action="store_true", help="consume Arrow batches instead of messages")
    common.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Consume the topic, print the statistics and return the exit code."""
    properties = _properties(options)
    is_generated_group = "group.id" not in properties
    properties.setdefault("group.id", f"perf-consumer-{random.randrange(100_000)}")
    config = ConsumerConfig.from_dict(properties)
    with common.access(config) as access:
        common.check_topics(access.cluster, [options.topic])
    try:
        _measure(options, config)
    finally:
        if is_generated_group:
            common.delete_group(config)
    return 0


def _measure(options: argparse.Namespace, config: ConsumerConfig) -> None:
    if not options.hide_header and not options.json:
        output.echo(", ".join(_DETAILED if options.show_detailed_stats else _SUMMARY))
    # The consumer is closed before the pool; this wakes up readers that wait for messages.
    with (
        futures.ThreadPoolExecutor(options.threads, thread_name_prefix="consumer-perf") as pool,
        create_consumer(config) as consumer,
    ):
        streams = consumer.create_message_streams({options.topic: options.threads})[options.topic]
        start, started_at = time.time(), time.monotonic()
        readers = [_StreamReader(options, stream, number, started_at) for number, stream in enumerate(streams)]
        running = [pool.submit(reader.run) for reader in readers]
        try:
            _wait(options, running, readers)
        finally:
            consumer.stop()
    if not options.show_detailed_stats:
        duration_s = max(max(reader.last_read_at for reader in readers) - started_at, 1e-9)
        messages, megabytes = sum(r.messages for r in readers), sum(r.size for r in readers) / _MB
        first, last = (_date(at, options.date_format) for at in (start, start + duration_s))
        _print(options, _SUMMARY, first, last, megabytes, megabytes / duration_s, messages, messages / duration_s)


def _wait(options: argparse.Namespace, running: list[futures.Future[None]], readers: list[_StreamReader]) -> None:
    """Wait until all readers have finished, and raise their first error; on a terminal, show the number of messages."""
    waiting = set(running)
    with terminal.show_progress("messages", options.messages * options.threads) as update:
        while waiting:  # wakes up regularly, also to run signal handlers
            finished, waiting = futures.wait(waiting, _REFRESH_S, futures.FIRST_EXCEPTION)
            update(sum(reader.messages for reader in readers))
            for future in finished:
                future.result()


def _properties(options: argparse.Namespace) -> dict[str, object]:
    return {
        "consumer.timeout.ms": 1000,
        "auto.offset.reset": "largest" if options.from_latest else "smallest",
        "fetch.message.max.bytes": options.fetch_size,
        "socket.receive.buffer.bytes": options.socket_buffer_size,
        "num.consumer.fetchers": options.num_fetch_threads,
        **common.read_consumer_properties(options.consumer_config),
        "zookeeper.connect": options.zookeeper,
        **({"group.id": options.group} if options.group else {}),
    }


class _StreamReader:
    """Consumes one stream in a separate thread.

    Attributes:
        messages: number of messages consumed.
        size: total size of the message values, in bytes; with ``--arrow``, of the Arrow buffers that contain them.
        last_read_at: ``time.monotonic()`` when the latest message was read; initially, the start time.
    """

    def __init__(self, options: argparse.Namespace, stream: KafkaStream, number: int, started_at: float) -> None:
        self.messages = 0
        self.size = 0
        self.last_read_at = started_at
        self._options = options
        self._stream = stream
        self._number = number
        self._interval_s = options.reporting_interval / 1000
        self._reported = (0, 0)  # messages and bytes at the previous report

    def run(self) -> None:
        """Consume until ``--messages`` is reached, no further message arrives, or the consumer is stopped."""
        options = self._options
        report_at = time.monotonic() + self._interval_s
        try:
            items: Iterator[Any] = self._stream.batches() if options.arrow else self._stream
            for item in items:
                if options.arrow:
                    self.messages += item.num_rows
                    self.size += item.column("value").nbytes
                else:
                    self.messages += 1
                    self.size += len(item.value or b"")
                now = self.last_read_at = time.monotonic()
                if options.show_detailed_stats and now >= report_at:
                    self._report()
                    report_at = now + self._interval_s
                if self.messages >= options.messages:
                    return
        except ConsumerTimeoutError:
            pass  # no message arrived within consumer.timeout.ms

    def _report(self) -> None:
        messages, size = self.messages - self._reported[0], self.size - self._reported[1]
        self._reported = (self.messages, self.size)
        _print(
            self._options,
            _DETAILED,
            _date(time.time(), self._options.date_format),
            self._number,
            self.size / _MB,
            size / _MB / self._interval_s,
            self.messages,
            messages / self._interval_s,
        )


def _print(options: argparse.Namespace, columns: tuple[str, ...], *row: str | float) -> None:
    content = dict(zip((_IN_JSON.get(name, name) for name in columns), row, strict=True))
    line = ", ".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row)
    output.report(options, content, [line])


def _date(at: float, pattern: str) -> str:
    moment = datetime.fromtimestamp(at, tz=UTC).astimezone()
    letters = {**_LETTERS, "SSS": f"{moment.microsecond // 1000:03d}"}
    return moment.strftime(re.sub("|".join(letters), lambda found: letters[found[0]], pattern))

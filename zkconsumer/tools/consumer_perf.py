"""The tool ``consumer-perf``: measure the throughput of a single consumer.

Source: Kafka 1.1 kafka.tools.ConsumerPerformance with ``--zookeeper``, with the same columns. Deliberate differences:
the znodes of the group are not deleted, and the final wait for further messages is not part of the time.
"""

from __future__ import annotations

import argparse
import random
import re
import threading
import time
from concurrent import futures
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from zkconsumer.config import ConsumerConfig, read_properties
from zkconsumer.consumer import create_consumer
from zkconsumer.errors import ConsumerTimeoutError
from zkconsumer.stream import KafkaStream
from zkconsumer.tools import common

_MB = 1024 * 1024
#: Pattern letters of Java's SimpleDateFormat, and Python's directives.
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DETAILED = ("time", "threadId", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec")
_SUMMARY = ("start.time", "end.time", *_DETAILED[2:])


def add_to(tools: Any) -> None:
    """Add the subcommand."""
    parser = common.add_tool(tools, "consumer-perf", run, "Measure the throughput of a consumer that reads one topic.")
    default = "(default: %(default)s)"

    def add_number(name: str, value: int, text: str, metavar: str = "N") -> None:
        parser.add_argument(name, type=common.positive, default=value, metavar=metavar, help=f"{text} {default}")

    parser.add_argument("--zookeeper", required=True, metavar="HOSTS", help="ZooKeeper servers")
    parser.add_argument("--topic", required=True, help="topic to consume")
    parser.add_argument("--group", help="consumer group (default: perf-consumer- and a random number)")
    parser.add_argument(
        "--messages", type=common.positive, required=True, metavar="N", help="number of messages per thread to consume"
    )
    add_number("--fetch-size", _MB, "maximum bytes per partition in one fetch response", "BYTES")
    parser.add_argument(
        "--from-latest", action="store_true", help="start with the latest message if there is no committed offset"
    )
    add_number("--socket-buffer-size", 2 * _MB, "size of the TCP receive buffer", "BYTES")
    add_number("--threads", 10, "number of streams")
    add_number("--num-fetch-threads", 1, "number of fetcher threads per broker")
    add_number("--reporting-interval", 5000, "interval between two rows of --show-detailed-stats", "MS")
    parser.add_argument(
        "--date-format", default="yyyy-MM-dd HH:mm:ss:SSS", help="format of times, as in Java's SimpleDateFormat"
    )
    parser.add_argument("--show-detailed-stats", action="store_true", help="print a row per thread and interval")
    parser.add_argument("--hide-header", action="store_true", help="do not print the header")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="consumer properties file")
    parser.add_argument("--arrow", action="store_true", help="consume Arrow batches instead of messages")
    common.add_json(parser)


@dataclass(slots=True)
class _Count:
    messages: int = 0
    size: int = 0


def run(options: argparse.Namespace) -> int:
    """Consume the topic, print the statistics and return the exit code."""
    config = _config(options)
    if not options.hide_header and not options.json:
        print(", ".join(_DETAILED if options.show_detailed_stats else _SUMMARY))
    counts = [_Count() for _ in range(options.threads)]
    interrupted = threading.Event()
    # The consumer is closed before the pool, which wakes readers that wait for messages.
    with (
        futures.ThreadPoolExecutor(options.threads, thread_name_prefix="consumer-perf") as pool,
        create_consumer(config) as consumer,
    ):
        streams = consumer.create_message_streams({options.topic: options.threads})[options.topic]
        start, started_at = time.time(), time.monotonic()
        last = [started_at] * options.threads
        readers = [
            pool.submit(_read, options, streams, index, counts, last, interrupted) for index in range(options.threads)
        ]
        try:
            finished, _ = futures.wait(readers, return_when=futures.FIRST_EXCEPTION)
        finally:
            interrupted.set()
        for reader in finished:
            reader.result()
    duration_s = max(max(last) - started_at, 1e-9)
    if not options.show_detailed_stats:
        messages, megabytes = sum(c.messages for c in counts), sum(c.size for c in counts) / _MB
        first, last_date = (_date(at, options.date_format) for at in (start, start + duration_s))
        _print(options, _SUMMARY, first, last_date, megabytes, megabytes / duration_s, messages, messages / duration_s)
    return 0


def _config(options: argparse.Namespace) -> ConsumerConfig:
    properties = read_properties(options.consumer_config) if options.consumer_config else {}
    group = options.group or properties.get("group.id") or f"perf-consumer-{random.randrange(100_000)}"
    return ConsumerConfig.from_dict(
        {
            "consumer.timeout.ms": 1000,
            "auto.offset.reset": "largest" if options.from_latest else "smallest",
            "fetch.message.max.bytes": options.fetch_size,
            "socket.receive.buffer.bytes": options.socket_buffer_size,
            "num.consumer.fetchers": options.num_fetch_threads,
            **properties,
            "zookeeper.connect": options.zookeeper,
            "group.id": group,
        }
    )


def _read(
    options: argparse.Namespace,
    streams: list[KafkaStream],
    index: int,
    counts: list[_Count],
    last: list[float],
    interrupted: threading.Event,
) -> None:
    count, stream = counts[index], streams[index]
    report_at, reported = time.monotonic() + options.reporting_interval / 1000, _Count()
    items = stream.batches() if options.arrow else stream
    try:
        for item in items:
            if options.arrow:
                count.messages += item.num_rows
                count.size += item.column("value").nbytes
            else:
                count.messages += 1
                count.size += len(item.value or b"")
            now = last[index] = time.monotonic()
            if options.show_detailed_stats and now >= report_at:
                _report(options, index, count, reported, options.reporting_interval / 1000)
                report_at, reported = now + options.reporting_interval / 1000, _Count(count.messages, count.size)
            if count.messages >= options.messages or interrupted.is_set():
                return
    except ConsumerTimeoutError:
        pass  # the end of the topic


def _report(options: argparse.Namespace, index: int, count: _Count, reported: _Count, seconds: float) -> None:
    megabytes = count.size / _MB
    rate, messages = (count.size - reported.size) / _MB / seconds, (count.messages - reported.messages) / seconds
    when = _date(time.time(), options.date_format)
    _print(options, _DETAILED, when, index, megabytes, rate, count.messages, messages)


def _print(options: argparse.Namespace, columns: tuple[str, ...], *row: str | float) -> None:
    if options.json:
        common.print_json_line(dict(zip(columns, row, strict=True)))
    else:
        print(", ".join(f"{cell:.4f}" if isinstance(cell, float) else str(cell) for cell in row), flush=True)


def _date(at: float, pattern: str) -> str:
    moment = datetime.fromtimestamp(at, tz=UTC).astimezone()
    letters = {**_LETTERS, "SSS": f"{moment.microsecond // 1000:03d}"}
    return moment.strftime(re.sub("|".join(letters), lambda found: letters[found[0]], pattern))

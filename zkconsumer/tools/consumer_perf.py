"""``zkconsumer consumer-perf``: how fast a group of one reads a topic.

Source: Kafka 1.1 kafka.tools.ConsumerPerformance with ``--zookeeper``; the columns are that tool's. Different on
purpose: the group's znodes are left alone, and waiting for what does not come is not counted.
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
#: Java's letters of ``--date-format`` and Python's.
_LETTERS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "mm": "%M", "ss": "%S"}
_DETAILED = ("time", "threadId", "data.consumed.in.MB", "MB.sec", "data.consumed.in.nMsg", "nMsg.sec")
_SUMMARY = ("start.time", "end.time", *_DETAILED[2:])


def add_to(tools: Any) -> None:
    """Add the sub-command."""
    assert __doc__
    parser = common.add_tool(tools, "consumer-perf", run, __doc__)
    parser.add_argument("--zookeeper", required=True, metavar="HOSTS")
    parser.add_argument("--topic", required=True)
    parser.add_argument("--group", default=None, help="default: perf-consumer- and a random number")
    parser.add_argument("--messages", type=common.positive, required=True, help="a thread stops after so many")
    parser.add_argument("--fetch-size", type=common.positive, default=_MB)
    parser.add_argument("--from-latest", action="store_true", help="where no offset is stored, start at the end")
    parser.add_argument("--socket-buffer-size", type=common.positive, default=2 * _MB)
    parser.add_argument("--threads", type=common.positive, default=10, help="streams; default: %(default)s")
    parser.add_argument("--num-fetch-threads", type=common.positive, default=1)
    parser.add_argument("--reporting-interval", type=common.positive, default=5000, metavar="MS")
    parser.add_argument("--date-format", default="yyyy-MM-dd HH:mm:ss:SSS")
    parser.add_argument("--show-detailed-stats", action="store_true", help="a row per thread and interval")
    parser.add_argument("--hide-header", action="store_true")
    parser.add_argument("--consumer.config", dest="consumer_config", metavar="FILE", help="further properties")
    parser.add_argument("--arrow", action="store_true", help="read Arrow batches instead of messages")
    common.add_json(parser)


@dataclass(slots=True)
class _Count:
    messages: int = 0
    size: int = 0


def run(options: argparse.Namespace) -> int:
    """Read, and print the row; returns the exit code."""
    config = _config(options)
    if not options.hide_header and not options.json:
        print(", ".join(_DETAILED if options.show_detailed_stats else _SUMMARY))
    counts = [_Count() for _ in range(options.threads)]
    interrupted = threading.Event()
    # The consumer ends first, which wakes readers that wait in their streams.
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
            ended, _ = futures.wait(readers, return_when=futures.FIRST_EXCEPTION)
        finally:
            interrupted.set()
        for reader in ended:
            reader.result()
    took = max(max(last) - started_at, 1e-9)
    if not options.show_detailed_stats:
        messages, megabytes = sum(c.messages for c in counts), sum(c.size for c in counts) / _MB
        begin, end = (_date(at, options.date_format) for at in (start, start + took))
        _print(options, _SUMMARY, begin, end, megabytes, megabytes / took, messages, messages / took)
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
        pass  # no more is there


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

"""Consumers as child processes that end with the test: JVM consumers, zkconsumer, and a Spark query."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.process import ServerProcess
from zkconsumer.devcluster.servers import java_command, kafka_jars, write_properties

#: The last release with the old consumer.
LAST = "1.1.1"
#: Size of the values of the load, in bytes.
WIDTH = 16

# exec keeps the process id, so signals are sent to the consumer and not to the shell.
_INTO_FILE = 'out=$1; shift; exec "$@" >"$out"'
_FAILURES = (
    "can't rebalance after",
    "failed to rebalance after",
    "Can't parse json",
    "error constructing TopicCount",
    "Traceback",
    "Error processing message",
    " ERROR ",
    " FATAL ",
)
# Errors of Spark's workers on a busy machine are not failures, because the workers are restarted.
_SPARK_FAILURES = ("failed to rebalance after", " ERROR zkconsumer")


class ChildConsumer(ServerProcess):
    """A consumer that writes each value that it reads to a line of a file. Only JVM consumers have a ``log``."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, *, failures: Sequence[str] = _FAILURES) -> None:
        self._failures = failures
        self.output = folder / f"{name}.values"
        self.output.touch()
        self._read = 0
        super().__init__(name, ["/bin/sh", "-c", _INTO_FILE, "sh", str(self.output), *command], folder, lambda: True)

    @property
    def values(self) -> list[bytes]:
        """Return the lines written so far."""
        return self.output.read_bytes().split(b"\n")[:-1]

    def new_numbers(self) -> list[int]:
        """Return the numbers of the load that were written since the last call.

        The end of the last line may be missing: the JVM writes it separately, and may be killed before that.
        """
        with self.output.open("rb") as file:
            file.seek(self._read)
            lines = file.read().split(b"\n")
        end = lines.pop()
        self._read += sum(len(line) + 1 for line in lines)
        if len(end) == WIDTH:
            self._read += len(end)
            lines.append(end)
        return [int(line) for line in lines if line]

    @property
    def messages(self) -> str:
        """Return the output to standard error."""
        return self.log.with_suffix(".out").read_text()

    @property
    def failures(self) -> list[str]:
        """Return the lines that report a failed rebalance or an unexpected error."""
        text = self.messages + (self.log.read_text(errors="replace") if self.log.exists() else "")
        return [f"{self.name}: {line}" for line in text.splitlines() if any(word in line for word in self._failures)]


#: Creates a consumer, without starting it, from a name, a folder, properties and a topic.
Maker = Callable[[str, Path, Mapping[str, object], str], ChildConsumer]


def jvm_consumer(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """Return a JVM console consumer. It registers a topic filter, also for a single topic."""
    return _jvm("kafka.tools.ConsoleConsumer", name, folder, _console_arguments(name, folder, properties, topic))


def jvm_filter(option: str, expression: str, release: str = LAST) -> Maker:
    """Return a maker of JVM console consumers with ``--whitelist`` or ``--blacklist`` and a regular expression."""

    def make(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
        _, at, _, _, *others = _console_arguments(name, folder, properties, topic)
        arguments = ["--zookeeper", at, option, expression, *others]
        return _jvm("kafka.tools.ConsoleConsumer", name, folder, arguments, release)

    return make


def our_filter(option: str, expression: str) -> Maker:
    """Return a maker of zkconsumer's console consumers with the same options."""

    def make(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
        _, at, _, _, *others = _console_arguments(name, folder, properties, topic)
        command = [sys.executable, "-m", "zkconsumer", "console-consumer"]
        return ChildConsumer(name, [*command, "--zookeeper", at, option, expression, *others], folder)

    return make


def jvm_performance(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """Return a JVM ConsumerPerformance with two threads and a static subscription; it ends if there is no load."""
    path = write_properties(folder / f"{name}.properties", properties)
    arguments = ["--zookeeper", str(properties["zookeeper.connect"]), "--topic", topic, "--consumer.config", str(path)]
    arguments += ["--group", str(properties["group.id"]), "--threads", "2", "--messages", "1000000000"]
    return _jvm("kafka.tools.ConsumerPerformance", name, folder, arguments)


def our_consumer(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """Return zkconsumer's console consumer, which has the same arguments as the JVM's."""
    command = [sys.executable, "-m", "zkconsumer", "console-consumer"]
    return ChildConsumer(name, [*command, *_console_arguments(name, folder, properties, topic)], folder)


def spark_query(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """Return a streaming query with one thread id in a separate Spark session; SIGTERM stops it."""
    options = {key: value for key, value in properties.items() if not key.startswith(("auto.commit", "consumer.id"))}
    path = write_properties(folder / f"{name}.properties", options)
    script = Path(__file__).with_name("spark_query.py")
    environment = ["env", f"JAVA_HOME={java_home()}", f"PYSPARK_PYTHON={sys.executable}", f"SPARK_LOCAL_DIRS={folder}"]
    command = [*environment, sys.executable, str(script), str(path), topic, str(folder)]
    return ChildConsumer(name, command, folder, failures=_SPARK_FAILURES)


def _jvm(main: str, name: str, folder: Path, arguments: Sequence[str], release: str = LAST) -> ChildConsumer:
    command = java_command("128m", kafka_jars(release), main, *arguments, log=folder / f"{name}.log")
    return ChildConsumer(name, command, folder)


def _console_arguments(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> list[str]:
    path = write_properties(folder / f"{name}.properties", properties)
    return ["--zookeeper", str(properties["zookeeper.connect"]), "--topic", topic, "--consumer.config", str(path)]

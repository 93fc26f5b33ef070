"""Consumers as child processes that die with the test: the JVM's old ones, ours, and a Spark query."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from zkconsumer.devcluster.java import java_home
from zkconsumer.devcluster.process import ServerProcess
from zkconsumer.devcluster.servers import java_command, kafka_jars, write_properties

#: The last release that had the old consumer.
LAST = "1.1.1"
#: Bytes of a value of the load.
WIDTH = 16

# exec keeps the process id, so that signals meet the consumer itself.
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
# Spark's own workers complain on a busy machine, and are started again.
_SPARK_FAILURES = ("failed to rebalance after", " ERROR zkconsumer")


class ChildConsumer(ServerProcess):
    """A consumer that writes the values it reads into a file, a line each; its ``log`` is the JVM's, ours has none."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, *, failures: Sequence[str] = _FAILURES) -> None:
        self._failures = failures
        self.output = folder / f"{name}.values"
        self.output.touch()
        self._read = 0
        super().__init__(name, ["/bin/sh", "-c", _INTO_FILE, "sh", str(self.output), *command], folder, lambda: True)

    @property
    def values(self) -> list[bytes]:
        """The lines written so far."""
        return self.output.read_bytes().split(b"\n")[:-1]

    def new_numbers(self) -> list[int]:
        """Return the numbers of the load that were written since the last call.

        The last one may lack the end of its line: the JVM writes that by itself, and may be killed before.
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
        """What was written to standard error."""
        return self.log.with_suffix(".out").read_text()

    @property
    def failures(self) -> list[str]:
        """The lines that tell of a rebalance given up, or of an error that nobody has expected."""
        text = self.messages + (self.log.read_text(errors="replace") if self.log.exists() else "")
        return [f"{self.name}: {line}" for line in text.splitlines() if any(word in line for word in self._failures)]


#: Makes a consumer, not started, from a name, a folder, properties and a topic.
Maker = Callable[[str, Path, Mapping[str, object], str], ChildConsumer]


def jvm_consumer(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """The JVM's console consumer. It registers a filter, also for a single topic."""
    return _jvm("kafka.tools.ConsoleConsumer", name, folder, _console_arguments(name, folder, properties, topic))


def jvm_filter(option: str, expression: str, release: str = LAST) -> Maker:
    """Return a maker of JVM console consumers with ``--whitelist`` or ``--blacklist`` and a regular expression."""

    def make(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
        _, at, _, _, *others = _console_arguments(name, folder, properties, topic)
        arguments = ["--zookeeper", at, option, expression, *others]
        return _jvm("kafka.tools.ConsoleConsumer", name, folder, arguments, release)

    return make


def our_filter(option: str, expression: str) -> Maker:
    """Return a maker of our console consumers with the same."""

    def make(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
        _, at, _, _, *others = _console_arguments(name, folder, properties, topic)
        command = [sys.executable, "-m", "zkconsumer", "console-consumer"]
        return ChildConsumer(name, [*command, "--zookeeper", at, option, expression, *others], folder)

    return make


def jvm_performance(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """The JVM's ConsumerPerformance with two threads, which registers the topic itself; ends where there is no load."""
    path = write_properties(folder / f"{name}.properties", properties)
    arguments = ["--zookeeper", str(properties["zookeeper.connect"]), "--topic", topic, "--consumer.config", str(path)]
    arguments += ["--group", str(properties["group.id"]), "--threads", "2", "--messages", "1000000000"]
    return _jvm("kafka.tools.ConsumerPerformance", name, folder, arguments)


def our_consumer(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """Our console consumer, with the same arguments: that is the point."""
    command = [sys.executable, "-m", "zkconsumer", "console-consumer"]
    return ChildConsumer(name, [*command, *_console_arguments(name, folder, properties, topic)], folder)


def spark_query(name: str, folder: Path, properties: Mapping[str, object], topic: str) -> ChildConsumer:
    """A streaming query of one thread id in a Spark of its own, which ends at SIGTERM."""
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

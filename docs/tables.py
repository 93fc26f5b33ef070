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


#: Titles of the groups of properties, each with its first one.
PROPERTY_GROUPS = {
    "group.id": "Group and servers",
    "zookeeper.session.timeout.ms": "Connections",
    "fetch.message.max.bytes": "Fetching and queues",
    "auto.offset.reset": "Reading",
    "security.protocol": "Security of broker connections",
    "zookeeper.ssl.client.enable": "Security of ZooKeeper connections",
    "rebalance.max.retries": "Rebalancing",
    "auto.commit.enable": "Committing offsets",
    "kafka.metrics.reporters": "Properties without effect",
}

#: Titles of the groups of Spark options, each with its first one.
OPTION_GROUPS = {
    "subscribe": "Topics and group",
    "startingOffsets": "Start and end",
    "resumeFrom": "Restarts and commits",
    "maxOffsetsPerTrigger": "Batch size",
    "minPartitions": "Tasks",
    "maxAlignmentLag": "Event time",
    "includeHeaders": "Columns and decoders",
    "revokeTimeout": "Timeouts",
}


def label(kind: str, name: str) -> str:
    """Return the section label of a property or an option."""
    return f"{kind}-{name.replace('.', '-').replace('*', 'any').lower()}"


def settings_sections(kind: str, rows: Iterable[Row], groups: Mapping[str, str], counterpart: str) -> str:
    """Render a section for each property or option, with a label.

    Args:
        kind: ``property`` or ``option``.
        rows: the properties or options.
        groups: titles of their groups, by the name of the first one.
        counterpart: title of the last field.
    """
    parts = []
    for row in rows:
        if row.name in groups:
            parts += [groups[row.name], "-" * len(groups[row.name]), ""]
        name = f"``{row.name}``"
        # The index entry is the first search result for the name.
        parts += [
            f".. index:: ! {row.name}",
            "",
            f".. _{label(kind, row.name)}:",
            "",
            name,
            "~" * len(name),
            "",
            row.meaning,
            "",
        ]
        fields = {"Type": row.type, "Default": row.default, "Valid values": row.valid, counterpart: row.counterpart}
        parts += [*(f":{field}: {text}" for field, text in fields.items() if text), ""]
    return "\n".join(parts) + "\n"


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
    "properties.rst": lambda: settings_sections("property", property_table(), PROPERTY_GROUPS, "Old consumer"),
    "query-metrics.rst": lambda: metrics_table("zkconsumer.spark"),
    "spark-options.rst": lambda: settings_sections(
        "option", (option.row() for option in OPTIONS), OPTION_GROUPS, "Counterpart"
    ),
}


def write() -> None:
    """Write all tables."""
    DIRECTORY.mkdir(exist_ok=True)
    for name, render in TABLES.items():
        (DIRECTORY / name).write_text(render())

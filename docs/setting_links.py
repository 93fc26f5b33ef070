"""Links from the name of a property or an option, wherever it is an inline literal, to its section in the reference."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from sphinx.transforms.post_transforms import SphinxPostTransform
from tables import label

from zkconsumer.config.properties import property_table
from zkconsumer.spark.options.table import OPTIONS

_PROPERTIES = {row.name: label("property", row.name) for row in property_table()}
_OPTIONS = {option.name: label("option", option.name) for option in OPTIONS if "*" not in option.name}

#: Beginnings of the names of pages on which options take precedence over properties of the same name.
_SPARK_PAGES = ("spark", "migration")


class SettingLinks(SphinxPostTransform):
    """Replaces inline literals such as ``fetch.max.bytes`` or ``fetch.max.bytes=1`` by links."""

    default_priority = 20

    def run(self, **_: Any) -> None:
        """Replace the literals of one page."""
        page: str = self.env.docname
        targets = {**_PROPERTIES, **_OPTIONS}
        if not page.startswith(_SPARK_PAGES):
            targets |= _PROPERTIES
        for literal in list(self.document.findall(nodes.literal)):
            target = targets.get(literal.astext().partition("=")[0])
            if target is not None and not _is_linked(literal, target):
                self._link(page, literal, target)

    def _link(self, page: str, literal: nodes.literal, target: str) -> None:
        target_page, anchor, _ = self.env.domains["std"].labels[target]
        uri = self.app.builder.get_relative_uri(page, target_page)
        reference = nodes.reference(internal=True, refuri=f"{uri}#{anchor}")
        reference["classes"].append("setting")
        literal.replace_self(reference)
        reference += literal


def _is_linked(literal: nodes.Node, target: str) -> bool:
    """Return whether a literal is part of a title or a link, or of the section that it would refer to."""
    parent = literal.parent
    while parent is not None:
        if isinstance(parent, nodes.title | nodes.reference) or target in parent.get("ids", ()):
            return True
        parent = parent.parent
    return False

"""Sphinx configuration: ``make docs`` builds the site into ``docs/_build/html``."""

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import setting_links
import tables

import zkconsumer

project = "zkconsumer"
author = "the zkconsumer authors"
copyright = "the zkconsumer authors"
version = release = zkconsumer.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinxarg.ext",
]
exclude_patterns = ["_build", "_tables"]

html_theme = "furo"
html_title = f"zkconsumer {release}"
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["zkconsumer.css"]

copybutton_prompt_text = r"\$ "
copybutton_prompt_is_regexp = True
copybutton_only_copy_prompt_lines = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are documented once, as members or in the class docstring


def link_pages(_app, _relative_path, _parent, content):
    """Replace links of a file outside of this directory by links to pages."""
    content[0] = re.sub(r"`([^`<]+?) <docs/([\w-]+)\.rst>`__", r":doc:`\1 <\2>`", content[0])


def setup(app):
    """Write the tables that pages include, and link properties, options and pages."""
    app.connect("include-read", link_pages)
    app.connect("builder-inited", lambda _app: tables.write())
    app.add_post_transform(setting_links.SettingLinks)

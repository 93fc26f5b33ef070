"""Sphinx configuration: ``make docs`` builds the site into ``docs/_build/html``."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import tables

import zkconsumer

project = "zkconsumer"
author = "the zkconsumer authors"
copyright = "the zkconsumer authors"
version = release = zkconsumer.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxarg.ext"]
exclude_patterns = ["_build", "_tables"]

html_theme = "furo"
html_title = f"zkconsumer {release}"
html_show_sourcelink = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are documented once, as members or in the class docstring


def setup(app):
    """Write the tables that pages include."""
    app.connect("builder-inited", lambda _app: tables.write())

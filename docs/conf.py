"""Sphinx configuration: ``make docs`` builds the site into ``docs/_build/html``."""

import zkconsumer

project = "zkconsumer"
author = "the zkconsumer authors"
copyright = "the zkconsumer authors"
version = release = zkconsumer.__version__

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinxarg.ext"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"zkconsumer {release}"
html_show_sourcelink = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are documented once, as members or in the class docstring

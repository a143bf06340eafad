"""How the documentation is built: ``make docs``. Warnings are errors."""

from __future__ import annotations

import embedkit

project = "embedkit"
author = "The embedkit founders"
project_copyright = "2026, The embedkit founders"
release = embedkit.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = "embedkit"
html_static_path = ["_static"]
html_css_files = ["embedkit.css"]
html_show_sphinx = False

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
# What is true if Cancelled comes out of an async function: each says so.
napoleon_custom_sections = ["Cancellation"]

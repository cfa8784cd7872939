"""Settings of the documentation site: `make docs` builds it offline and treats warnings as errors."""

import re
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

import matplotlib as mpl
from sphinx.application import Sphinx
from sphinx.ext.autodoc.mock import mock
from sphinx.util import inspect

import invaug

HERE = Path(__file__).parent
ROOT = HERE.parent
GENERATED = HERE / "generated"  # pages that the build writes: the gallery and the notebook
NOTEBOOK = "which_symmetries.ipynb"

project = "invaug"
author = "the invaug developers"
copyright = f"2026, {author}"
version = release = invaug.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]

myst_heading_anchors = 3
nb_execution_mode = "off"  # `make notebook` executes it and fails on any error
nb_merge_streams = True

MODULES = [path.stem for path in (HERE / "api" / "integrations").glob("*.md")]
exclude_patterns = ["generated/gallery/*.ipynb", "generated/gallery/*.py", "images", "reproduce", "compare"]

autodoc_mock_imports = [
    "lightning",
    "pytorch_lightning",
    "transformers",
    "datasets",
    "timm",
    "accelerate",
    "torchvision",
]
for module in sorted(MODULES):  # the frameworks are mocked, so they have no version
    with mock(autodoc_mock_imports), patch("invaug.integrations.common.check_version"):
        import_module(f"invaug.integrations.{module}")
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_default_options = {"members": True}
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
python_maximum_signature_line_length = 80
python_use_unqualified_type_names = True

# inventories of other projects cannot be read offline, so only names of this project are checked
nitpicky = True
nitpick_ignore_regex = [(r"py:.*", r"(torch|Tensor|numpy|nn|collections|typing|pathlib|os|invaug\.lab\.train)\b.*")]

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples" / "gallery"),
    "gallery_dirs": "generated/gallery",
    "filename_pattern": r"/plot_",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "thumbnail_size": (480, 320),
    "min_reported_time": 0,
    "write_computation_times": False,
    "download_all_examples": False,
    "show_signature": False,
}

html_theme = "furo"
html_title = "invaug"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

default_role = "code"  # `name` in a docstring is code, as in Markdown

mpl.use("agg")
GENERATED.mkdir(exist_ok=True)
cells = (ROOT / "examples" / NOTEBOOK).read_text(encoding="utf-8")
(GENERATED / NOTEBOOK).write_text(cells.replace("../docs/", "../"), encoding="utf-8")


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Make links that leave `docs` work on the site."""
    text = source[0].replace(f"](../examples/{NOTEBOOK})", f"](generated/{NOTEBOOK})")
    source[0] = text if "/" in page else text.replace("](../", "](path:../")  # other files can be downloaded


def keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Keep napoleon from reading the words before a colon as the type of an attribute."""
    if what in ("attribute", "property", "data") and lines:
        lines[0] = f": {lines[0]}"


def sign_by_init(app: Sphinx, what: str, name: str, obj: Any, options: object, given: str, returns: str) -> Any:
    """Return the signature of a class whose mocked base would hide it."""
    if what != "class" or given != "(*args: Any, **kwargs: Any)":
        return None
    signature = inspect.signature(obj.__init__, bound_method=True)
    words = inspect.stringify_signature(signature, show_return_annotation=False)
    return re.sub(r"<function (\w+)[^>]*>", r"\1", words), returns


def setup(app: Sphinx) -> None:
    """Connect the functions above; Sphinx calls this."""
    app.connect("autodoc-process-signature", sign_by_init)
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", keep_colons, priority=400)

"""How the pages are built: `make docs`. By Sphinx, whose pages and search work from a folder, offline."""

from __future__ import annotations

import gc
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

HERE = Path(__file__).parent
gc.disable()  # looking for garbage takes a sixth of the time, and the process is short
sys.path.insert(0, str(HERE.parent / "src"))

import querysmasher as qs  # noqa: E402 - found by the line above

project = "QuerySmasher"
release = version = qs.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["benchmarks/*"]  # the pieces of benchmarks.md
suppress_warnings = ["toc.empty_glob"]
myst_heading_anchors = 3
highlight_language = "text"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_type_aliases = {name: name for name in ("Array", "ArrayLike", "FamilyLike", "Label")}
python_use_unqualified_type_names = True
default_role = "literal"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_title = "QuerySmasher"
html_static_path = ["style"]
html_css_files = ["docs.css"]
html_show_sourcelink = False
html_show_search_summary = False  # which a page in a folder cannot fetch
html_show_copyright = False
html_theme_options = {"footer_icons": [], "top_of_page_buttons": []}
pygments_style, pygments_dark_style = "tango", "github-dark"

NOT_BUILT_BY_HAND = {"Plan", "Release", "Answers", "Comparison", "Workload", "Budget"}
"""Classes whose constructor is nobody's business."""


class DrawnInPage(SphinxPostTransform):
    """Puts our drawings into the page itself, where they follow its light and dark."""

    default_priority = 5  # before images are collected
    formats = ("html",)

    def run(self, **_: Any) -> None:
        """Replace every picture in images/ called concept-*.svg by its text."""
        for image in list(self.document.findall(nodes.image)):
            path = HERE / image["uri"]
            if path.name.startswith("concept-"):
                image.replace_self(nodes.raw("", f"<figure>{path.read_text()}</figure>", format="html"))


def link_names(_app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]) -> None:
    """Turn the backticks of docstrings into links where they hold a public name, and into code elsewhere."""

    def shown(match: re.Match[str]) -> str:
        text = match[1]
        return f":py:obj:`~querysmasher.{text}`" if text in qs.__all__ else f"``{text}``"

    lines[:] = [re.sub(r"(?<!`)(?<!:)`([^`]+)`(?!`)", shown, line) for line in lines]


def plain_signature(
    _app: Sphinx, what: str, name: str, _obj: Any, _options: Any, signature: str | None, returns: str | None
) -> tuple[str, str | None] | None:
    """Leave out constructors that users do not call, and show aliases of types by their names."""
    if what == "class" and name.rpartition(".")[2] in NOT_BUILT_BY_HAND:
        return "", None
    if not signature:
        return None
    own, back = (
        re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", words or "") for words in (signature, returns)
    )
    return own, back or None


def setup(app: Sphinx) -> None:
    """Tell Sphinx what is ours."""
    app.add_lexer("csv", TextLexer)
    app.add_post_transform(DrawnInPage)
    app.connect("autodoc-process-docstring", link_names)
    app.connect("autodoc-process-signature", plain_signature)

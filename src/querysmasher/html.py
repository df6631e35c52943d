"""HTML that is safe by construction: everything that is not `Html` is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from typing import Any

NOTEBOOK_STYLE = (
    ".querysmasher{font-size:13px;line-height:1.5}.querysmasher table{border-collapse:collapse;margin:.4em 0}"
    ".querysmasher th,.querysmasher td{padding:.2em 1.2em .2em 0;text-align:left;border:0;"
    "border-bottom:1px solid rgba(128,128,128,.3);background:none}.querysmasher .n{text-align:right;"
    "font-variant-numeric:tabular-nums}.querysmasher p{margin:.2em 0;max-width:62em}"
)


class Html(str):
    """A string that is HTML, with all foreign text escaped."""

    __slots__ = ()


def element(name: str, /, *children: object, **attributes: object) -> Html:
    """Return an element; children and attributes that are not `Html` are escaped.

    A trailing underscore of an attribute's name is dropped, and others become dashes. An attribute with value
    None is omitted.

    >>> element("td", "<b>", class_="n", data_value=3)
    '<td class="n" data-value="3">&lt;b&gt;</td>'
    """
    given = ((k.rstrip("_").replace("_", "-"), value) for k, value in attributes.items() if value is not None)
    words = [name, *(f'{key}="{html.escape(str(value))}"' for key, value in given)]
    return Html(f"<{' '.join(words)}>{join(children)}</{name}>")


def join(children: Iterable[object]) -> Html:
    """Concatenate children, escaping those that are not `Html` and omitting None."""
    return Html("".join(c if isinstance(c, Html) else html.escape(str(c)) for c in children if c is not None))


def table(
    header: Sequence[str], rows: Iterable[Sequence[object]], numbers: Iterable[int] = (), **attributes: object
) -> Html:
    """Return a table; the columns in `numbers` are right-aligned."""
    right = set(numbers)

    def line(cell: str, values: Sequence[object]) -> Html:
        cells = (element(cell, v, class_="n" if i in right else None) for i, v in enumerate(values))
        return element("tr", *cells)

    head = element("thead", line("th", header))
    return element("table", head, element("tbody", *(line("td", row) for row in rows)), **attributes)


def notebook(title: object, *parts: object) -> str:
    """Return a small block for a notebook: a title in bold, then the parts."""
    return element(
        "div",
        element("style", Html(NOTEBOOK_STYLE)),
        element("p", element("strong", title)),
        *parts,
        class_="querysmasher",
    )


def script_data(data: Any, name: str) -> Html:
    """Return data for the page's scripts. No string in it can end its element."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return element("script", Html(text), type="application/json", id=name)


def scrolling(content: Html) -> Html:
    """Return content that scrolls sideways where it is too wide."""
    return element("div", content, class_="scroll")

"""The data dictionary of a file of answers: the type, meaning, unit and labels of every column."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pyarrow as pa

from querysmasher.formatting import one_line
from querysmasher.release.columns import FROM, LABEL, TO, AttributeColumns
from querysmasher.release.tidy import Tidy

COLUMNS = {
    "table": "The attributes of the query; 'total' for all records.",
    "kind": "The family of queries on each attribute: identity (equal to the value), prefix (up to it), …",
    "query": "The query as a predicate.",
    "value": "Unbiased estimate of the number of records{counted}, not rounded; it may be negative.",
    "std": "Standard error of the noise.",
    "low": "Lower end of the {level}confidence interval for the noise.",
    "high": "Upper end of the {level}confidence interval for the noise.",
    "cv": "Coefficient of variation: std divided by the absolute value; missing if the value is 0.",
    "flag": "Range of the coefficient of variation{suppressed}.",
}
"""What the columns mean that are not attributes; braces stand for what the user chose."""

SINGLE = "The value that is counted, or the last of all values up to it (see kind); missing: all values."
SEVERAL = (
    "What is counted: a value, a range first..last, the name of a group, a list of values, or (query) if "
    "that depends on other attributes; missing: all values."
)
ENDS = "Missing if no range of values is counted. A range whose first value is after its last goes round."
"""What the columns of an attribute mean."""

BIASED = "so the numbers are missing; small counts that remain are too large on average"


def fields_of(
    tidy: Tidy, about: Mapping[str, Any], only: Collection[str] | None = None, *, nan: bool = False
) -> list[dict[str, Any]]:
    """Return what every column is, or those named; `about` states level and suppression.

    With `nan`, readers may see missing numbers as NaN.
    """
    given = {
        name: (own, role) for own in tidy.columns for role, name in zip(own.roles, own.names, strict=True)
    }
    meanings = {**COLUMNS, **tidy.meanings}
    words = _words(about)
    fields = []
    for field in tidy.schema:
        if only is not None and field.name not in only:
            continue
        kind = _type(field.type)
        described: dict[str, Any] = {"name": one_line(field.name), "type": kind}
        if field.name in given:
            described |= _attribute(*given[field.name], kind)
        else:
            described["description"] = meanings[field.name].format(**words)
        if nan and kind in ("integer", "number"):
            described["missingValues"] = ["", "nan"]
        fields.append(described)
    return fields


def _words(about: Mapping[str, Any]) -> dict[str, str]:
    level, above = about.get("level"), about.get("suppress")
    return {
        "level": "" if level is None else f"{100 * level:.6g}% ",
        "counted": " that are counted, not of all records in the table" if "counted" in about else "",
        "suppressed": "" if above is None else f"; suppressed: above {100 * above:.6g}%, {BIASED}",
    }


def _attribute(columns: AttributeColumns, role: str, kind: str) -> dict[str, Any]:
    """Return the words about a column of an attribute, and the labels of its values."""
    attribute = columns.attribute
    title = attribute.name if attribute.title is None else attribute.title
    unit = {} if attribute.unit is None else {"unit": attribute.unit}
    if role in (FROM, TO):
        what = {FROM: "First value counted.", TO: "Last value counted."}[role]
        if attribute.edges is not None:
            what = {FROM: "Left edge of the first bin.", TO: "Right edge of the last bin."}[role]
        return {"title": f"{title}, {role}", "description": f"{what} {ENDS}", **unit}
    if role == LABEL:
        return {"title": f"{title}, label", "description": "The value as readers see it."}
    said = SINGLE if columns.single else SEVERAL
    words = {
        "title": attribute.title,
        "description": f"{_sentence(attribute.description)}{said}",
        **unit,
    }
    given = {key: word for key, word in words.items() if word is not None}
    if attribute.value_labels is None:
        return given
    labels = [
        {"value": value if isinstance(value, str | int | float) else str(value), "label": label}
        for value, label in zip(attribute.values, attribute.shown, strict=True)
    ]
    # the standard has categories only for columns that hold nothing else
    is_list = columns.single and kind in ("string", "integer")
    return given | {"categories" if is_list else "labels": labels}


def _sentence(words: str | None) -> str:
    """Return words so that a sentence may follow.

    >>> _sentence("Age at the interview"), _sentence("As registered."), _sentence(None)
    ('Age at the interview. ', 'As registered. ', '')
    """
    said = (words or "").strip()
    return f"{said}{'' if said.endswith(('.', '!', '?', '…')) else '.'} " if said else ""


def _type(kind: Any) -> str:
    names = {pa.int64(): "integer", pa.float64(): "number", pa.bool_(): "boolean", pa.date32(): "date"}
    return names.get(kind, "string")

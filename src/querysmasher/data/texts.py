"""Values from strings, of a CSV file above all. What a string means depends on its attribute alone.

A number is written as ``12``, ``-1.5``, ``+3e4`` or ``.5``, with the file's decimal separator, and may be
surrounded by spaces; ``nan`` is a missing number and ``inf`` a number outside every domain. A boolean is one
of `BOOLEANS`, in any case. An empty field is missing, unless the domain has the empty string. The labels of
an attribute with labels of several kinds are matched as strings.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from querysmasher.attributes import Attribute
from querysmasher.data.values import NUMBER, Places
from querysmasher.errors import DataError


@dataclass(frozen=True, repr=False)
class Texts:
    """A column of a CSV file: an Arrow array of strings without nulls, and the file's decimal separator."""

    column: Any
    decimal: str = "."

    def codes(self, places: Places) -> Any:
        """Return the code of each string; see `Places`."""
        attribute = places.attribute
        if attribute.edges is not None:
            return self._numbers(places)
        if places.reads_texts:
            return self._distinct(places, lambda text: places.read(text, self.decimal))
        labels = text_labels(attribute)
        return self._distinct(places, lambda text: labels.get(text, places.unknown), labels.get("", None))

    def _distinct(self, places: Places, place: Any, empty: int | None = None) -> Any:
        """Compute the codes of the distinct strings."""
        encoded = pc.dictionary_encode(self.column)
        lookup = [
            (places.missing if empty is None else empty) if text == "" else place(text)
            for text in _strings(encoded.dictionary)
        ]
        return np.array([*lookup, places.missing], dtype=places.dtype).take(np.asarray(encoded.indices))

    def _numbers(self, places: Places) -> Any:
        """Return the bin of each number: column-wise, because most binned numbers are distinct."""
        try:
            values = None if self.decimal != "." else self.column.cast(pa.float64())
        except pa.ArrowInvalid:  # which quotes the string
            values = None
        if values is not None and not np.isnan(np.asarray(values)).any():  # Arrow also reads "nan(x)"
            return bins(places, np.asarray(values))
        texts = pc.ascii_trim(self.column, characters=" ")
        pattern = f"^{NUMBER.format(sign=re.escape(self.decimal))}$"
        formed = pc.match_substring_regex(texts, pattern=pattern)
        plain = pc.replace_substring(texts, pattern=self.decimal, replacement=".")
        values = pc.if_else(formed, plain, "nan").cast(pa.float64())
        codes = bins(places, np.asarray(values))
        codes[~np.asarray(formed) & np.asarray(pc.not_equal(self.column, ""))] = places.malformed
        return codes


def _strings(column: Any) -> list[str]:
    """Return an Arrow array as strings; what is not UTF-8 in them is replaced, and so matches nothing."""
    return [text.decode(errors="replace") for text in column.cast(pa.large_binary()).to_pylist()]


def bins(places: Places, values: Any) -> Any:
    """Return the bin of each number of an array."""
    edges = np.array(places.attribute.edges, dtype=np.float64)
    values = values.astype(np.float64, copy=False)
    found = np.searchsorted(edges, values, side="right") - 1
    found[values == edges[-1]] = places.attribute.size - 1
    found[found < 0] = places.unknown
    found[np.isnan(values)] = places.missing
    return found.astype(places.dtype)


def text_labels(attribute: Attribute) -> dict[str, int]:
    """Return the labels of an attribute as in a CSV file, with their indexes."""
    labels = {label: place for place, label in enumerate(attribute.labels)}
    if len(labels) < attribute.size:
        raise DataError(f"attribute {attribute.name!r}: two of its values are the same string in a CSV file")
    return labels

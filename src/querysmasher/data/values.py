"""The rule that matches a value of a column with a value of an attribute, one at a time.

A value matches the label that it equals. Text matches text, booleans match booleans, and numbers match
numbers of any width: 3 and 3.0 are the same. A date matches dates and timestamps (see `dates`) and its ISO
string. Where all labels are numbers, or all are booleans, a string is read as in a CSV file (`Places.read`).
A number is never read as a string. A missing value matches nothing, unless the attribute declares the value
that missing ones count as.

The rule looks at one value and the schema, never at the other records. So it gives the same index when
a library stores the same values in a wider type because of one record: integers as floats (one is missing),
narrow floats as wide ones, anything as Python objects, or numbers as strings (one cannot be read). Floats
cannot distinguish all integers of 2^53 and more: an attribute with such labels refuses every column of
floats, and every column that pandas would turn to floats because of one missing value.
"""

from __future__ import annotations

import decimal
import math
import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from typing import Any

import numpy as np

from querysmasher.attributes import Attribute
from querysmasher.data.dates import midnight

EXACT_FLOATS = 2**53
"""From here on, different integers are the same float."""

EXACT = {"halffloat": 2**11, "float": 2**24, "double": EXACT_FLOATS}
"""From here on, a column of such floats cannot distinguish integers."""

INT64 = range(-(2**63), 2**63)

BOOLEANS = dict.fromkeys(("true", "t", "yes", "y", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "0"), False
)
INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
NUMBER = r"[+-]?(?:(?:[0-9]+(?:{sign}[0-9]*)?|{sign}[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))"

MISSING_TYPES = ("NAType", "NaTType")
"""Names of the types by which pandas represents a missing value, without importing pandas."""


@dataclass(frozen=True)
class Places:
    """The indexes of values in an attribute's domain, and three codes for values that have none."""

    attribute: Attribute

    @property
    def unknown(self) -> int:
        """The code of a value outside the domain, and the smallest code that is not an index."""
        return self.attribute.size

    @property
    def missing(self) -> int:
        """The code of a missing value: null, or a float that is not a number."""
        return self.attribute.size + 1

    @property
    def malformed(self) -> int:
        """The code of a value of the wrong kind: a string among numbers, for example."""
        return self.attribute.size + 2

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger[Any]]:
        """The smallest type that holds every code."""
        return np.min_scalar_type(self.malformed)

    @cached_property
    def by_kind(self) -> dict[type, dict[Any, int]]:
        """The labels with their indexes, by kind: `str`, `bool`, `date`, and `float` for any number."""
        groups: dict[type, dict[Any, int]] = {}
        if self.attribute.edges is not None:
            return groups
        labels = self.attribute.values
        kinds = {
            own: next((k for k in (str, bool, date) if issubclass(own, k)), float)
            for own in dict.fromkeys(map(type, labels))
        }
        if len(kinds) == 1:  # a million labels of one type take no loop
            return {kind: dict(zip(labels, range(len(labels)), strict=True)) for kind in kinds.values()}
        for place, label in enumerate(labels):
            groups.setdefault(kinds[type(label)], {})[label] = place
        return groups

    @property
    def kinds(self) -> tuple[type, ...]:
        """The kinds of values that the attribute has."""
        return tuple(self.by_kind) or (float,)

    @cached_property
    def texts(self) -> dict[str, int]:
        """The labels that a string can match, with their indexes: strings, and dates by their ISO strings."""
        days = {str(day): place for day, place in self.by_kind.get(date, {}).items()}
        return days | self.by_kind.get(str, {})

    @property
    def stand_in(self) -> int | None:
        """The index of the value that missing ones count as, if the attribute declares one."""
        missing = self.attribute.missing
        return None if missing is None else self.attribute.position(missing)

    @cached_property
    def integers(self) -> dict[int, int]:
        """The labels that are integers, as `int` or as small `float`, with their indexes."""
        labels = self.by_kind.get(float, {})
        if self._only_integers:
            return labels
        return {
            int(label): place
            for label, place in labels.items()
            if isinstance(label, int) or (abs(label) < EXACT_FLOATS and label.is_integer())
        }

    @cached_property
    def floats(self) -> dict[float, int]:
        """The labels as floats, with their indexes; also as 32-bit floats if that is unambiguous.

        0.1 in a column of 32-bit floats matches the label 0.1, even after the column is widened.
        """
        labels = self.by_kind.get(float, {})
        places = {
            float(label): place
            for label, place in labels.items()
            if isinstance(label, float) or abs(label) < EXACT_FLOATS
        }
        narrow: dict[float, list[int]] = {}
        for label, place in places.items():
            with np.errstate(over="ignore"):
                rounded = float(np.float32(label))
            # An integer would match as a float, among missing values, what it does not match as itself.
            if rounded not in places and math.isfinite(rounded) and not rounded.is_integer():
                narrow.setdefault(rounded, []).append(place)
        return places | {value: found[0] for value, found in narrow.items() if len(found) == 1}

    @cached_property
    def largest_integer(self) -> int:
        """The largest absolute value of an integer label, or 0."""
        return max((abs(v) for v in self.by_kind.get(float, {}) if isinstance(v, int)), default=0)

    @cached_property
    def has_large_floats(self) -> bool:
        """Whether a label is a finite float so large that several integers equal it."""
        labels = self.by_kind.get(float, {})
        if self._only_integers:
            return False
        return any(isinstance(v, float) and EXACT_FLOATS <= abs(v) < math.inf for v in labels)

    @cached_property
    def _only_integers(self) -> bool:
        """Whether all labels that are numbers are integers."""
        return set(map(type, self.by_kind.get(float, {}))) == {int}

    @property
    def reads_texts(self) -> bool:
        """Whether a string stands for a number or a boolean: the attribute has nothing else."""
        return self.kinds in ((float,), (bool,))

    def read(self, text: str, decimal: str = ".") -> int:
        """Return the code of a string that stands for a number or a boolean; an empty one is missing.

        Args:
            text: the string.
            decimal: the decimal separator of numbers.
        """
        if not text:
            return self.missing
        text = text.strip(" ")
        if self.kinds == (bool,):
            found = BOOLEANS.get(text.lower())
            return self.malformed if found is None else self.place(found)
        if INTEGER.fullmatch(text):
            return self.place(int(text))
        formed = re.fullmatch(NUMBER.format(sign=re.escape(decimal)), text)
        return self.place(float(text.replace(decimal, "."))) if formed else self.malformed

    def place(self, value: Any) -> int:
        """Return the index of one Python value, or the code for why it has none."""
        if isinstance(value, np.generic):
            value = value.item()
        if isinstance(value, complex) and not value.imag:  # one complex number makes pandas store all as such
            value = value.real
        if value is None or type(value).__name__ in MISSING_TYPES:
            return self.missing
        if isinstance(value, str):
            if self.reads_texts:
                return self.read(value)
            return self.texts.get(value, self.unknown) if self.texts else self.malformed
        if isinstance(value, bool | date):
            labels = self.by_kind.get(bool if isinstance(value, bool) else date)
            return self.malformed if labels is None else labels.get(midnight(value), self.unknown)
        if isinstance(value, decimal.Decimal):
            value = plain_number(value)
        if isinstance(value, float) and math.isnan(value):
            return self.missing
        if not isinstance(value, int | float) or float not in self.kinds:
            return self.malformed
        edges = self.attribute.edges
        return self._number(value) if edges is None else self._bin(value, edges)

    def _number(self, value: float) -> int:
        if isinstance(value, int):
            place = self.integers.get(value)
            if place is not None or abs(value) < EXACT_FLOATS:
                return self.unknown if place is None else place
            value = _as_float(value)
        return self.floats.get(value, self.unknown)

    def _bin(self, value: float, given: Sequence[float]) -> int:
        edges = [float(edge) for edge in given]
        value = _as_float(value)
        if value == edges[-1]:
            return self.attribute.size - 1
        place = bisect_right(edges, value) - 1
        return place if 0 <= place < self.attribute.size else self.unknown


def plain_number(value: decimal.Decimal) -> int | float:
    """Return a decimal as an integer if it is one of moderate size, else as the nearest float."""
    if value.is_finite() and value.adjusted() < 40 and value == value.to_integral_value():
        return int(value)
    return math.nan if value.is_nan() else float(value)


def _as_float(value: float) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf

"""Means and totals of an attribute with numbers as values, by group."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.statistics.figures import Figures
from querysmasher.statistics.groups import ROWS, described, grouped, schema_of
from querysmasher.statistics.numeric import MIDPOINTS, numbers, with_unit
from querysmasher.statistics.ratios import Parts, Ratios, ratios_of
from querysmasher.statistics.selection import groups_by, rows_on
from querysmasher.statistics.source import Source

By = str | Sequence[str] | None
"""No grouping attribute, one, or several."""


def mean(source: Source, attribute: str, by: By = None, where: str | None = None) -> Ratios:
    """Return the mean of an attribute in every group.

    The attribute is centred at the middle of its range and scaled, so that numerator and denominator are
    of one size; the mean and Fieller's interval follow the change of scale.
    """
    schema = schema_of(source)
    own = schema[attribute]
    found = numbers(own)
    names = groups_by(schema, by, besides=[attribute])
    shift = float(found.max() + found.min()) / 2
    scale = float(found.max() - found.min()) / 2 or 1.0
    above, ones = (found - shift) / scale, np.ones(own.size)
    factor = rows_on(schema, attribute, ROWS, np.array([above, ones, above + ones]))
    answers = grouped(source, factor, names, where)
    parts = paired(answers.values, answers.variances, scale)
    basic = grouped(source, rows_on(schema, attribute, ROWS, np.array([above, ones])), names, where)
    title = described(f"Mean of {with_unit(own)}", names, where)
    return ratios_of(title, answers.columns(), parts, basic.pair, shift=shift, note=_note(own))


def total_of(source: Source, attribute: str, by: By = None, where: str | None = None) -> Figures:
    """Return the sum of an attribute over the records of every group."""
    schema = schema_of(source)
    own = schema[attribute]
    found = numbers(own)
    names = groups_by(schema, by, besides=[attribute])
    scale = float(np.abs(found).max()) or 1.0
    answers = grouped(source, rows_on(schema, attribute, ROWS, found[None] / scale), names, where)
    std = scale * np.sqrt(answers.variances[0])
    title = described(f"Total of {with_unit(own)}", names, where)
    values = scale * answers.values[0]
    return Figures(title, answers.columns(), values, std, _note(own), linear=lambda: answers.errors(0, scale))


def paired(values: Array, variances: Array, scale: float = 1.0) -> Parts:
    """Return the parts of ratios from answers to N, D and N + D."""
    covariance = (variances[2] - variances[0] - variances[1]) / 2
    return Parts(values[0], values[1], variances[0], variances[1], covariance, scale)


def _note(attribute: Attribute) -> str:
    return MIDPOINTS if attribute.edges is not None else ""

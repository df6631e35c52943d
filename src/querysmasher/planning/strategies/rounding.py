"""Round rows to integers inside a residual space.

Along every attribute i integer rows satisfy Σ_j k_j b_j = 0, with k the attribute's centre in integers. The
rounded strategy spans the same space as the strategy, or a larger one. So rounding costs a little optimality,
but causes no bias.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np

from querysmasher.arrays import CHUNK, Array
from querysmasher.errors import PlanError
from querysmasher.planning.lattice import Integers, project
from querysmasher.planning.limits import limits
from querysmasher.privacy.factors import WORD, Matrix

FAINT = 2.0**-5
"""Weight of rows that are added only to keep rounding inside the measured space."""

LATTICE_BITS = 6
"""Extra bits for the coefficients of lattice rows, which can be nearly dependent."""


def round_rows(rows: Array, centres: Sequence[Integers], bits: int, scale: float = 1.0) -> Integers:
    """Round rows over some axes to integers in the residual space around centres, which need much room.

    On one axis, rows b with Σ_j centre[j]·b[j] = 0 are nearer: entries are rounded to the nearest integer,
    then as few single units as possible repair the sum, each where it costs least. The centre's entries must
    have no common divisor.
    """
    centre, sizes = centres[0], np.abs(centres[0])
    if len(centres) > 1 or sizes.max() > limits().largest_centre:
        return reduced(project(scaled(rows, bits), [len(k) for k in centres], centres), bits)
    target = scale * enlarged(rows, bits)
    rounded = np.round(target).astype(np.int64)
    members = {size: np.flatnonzero(sizes == size) for size in np.unique(sizes[sizes > 0]).tolist()}
    steps = _repairs(tuple(members))
    for row, ideal in zip(rounded, target, strict=True):
        left = int(row @ centre)
        while left:  # one unit at an entry k of the centre moves the sum by k
            step = steps.get(left) or int(math.copysign(max(members), left))
            entries = members[abs(step)]
            signs = np.sign(centre[entries]) * (1 if step > 0 else -1)
            best = int(np.argmin(signs * (ideal[entries] - row[entries])))
            row[entries[best]] -= signs[best]
            left -= step
    return reduced(rounded, bits)


@cache
def _repairs(sizes: tuple[int, ...]) -> dict[int, int]:
    """Return, for sums up to twice the largest size, the first of the fewest steps that lead to zero."""
    first, frontier = {0: 0}, [0]
    while frontier:  # breadth first, back from zero
        reached = {value + step: step for value in frontier for size in sizes for step in (size, -size)}
        new = {value: reached[value] for value in reached if abs(value) <= 2 * sizes[-1]}
        frontier = [value for value in new if value not in first]
        first = new | first
    return first


def scaled(rows: Array, bits: int) -> Integers:
    """Scale the rows so that their largest entry fits into `bits` bits, and round them."""
    return np.round(enlarged(rows, bits)).astype(np.int64)


def enlarged(rows: Array, bits: int) -> Array:
    """Scale the rows so that their largest entry just fits into `bits` bits."""
    with np.errstate(all="ignore"):
        enlarged = rows * ((2**bits - 1) / np.abs(rows).max())
    if not np.isfinite(enlarged).all():
        raise PlanError("plan: a strategy holds numbers that cannot be rounded")
    return enlarged


def reduced(rows: Integers, bits: int) -> Integers:
    """Divide by the greatest common divisor, then double rows that became small while they fit into `bits`.

    Noise is an integer, which costs nothing next to large answers.
    """
    divisor = int(np.gcd.reduce(rows, axis=None))
    rows = rows // divisor if divisor > 1 else rows
    missing = bits - max(int(rows.max()), -int(rows.min())).bit_length()
    return rows << missing if missing > 0 else rows


def round_on_lattice(coefficients: Array, lattice: Integers, bits: int) -> Integers:
    """Return combinations of a lattice's rows, with rounded coefficients that keep the products in a word."""
    bound = int(np.abs(lattice).sum(axis=0).max())
    room = WORD.bit_length() - 1 - bound.bit_length()
    rounded = Matrix(scaled(coefficients, min(bits + LATTICE_BITS, room)))
    result = np.empty_like(lattice)
    step = max(1, CHUNK // len(lattice))
    for start in range(0, lattice.shape[1], step):
        result[:, start : start + step] = rounded.exact_answers(lattice[:, start : start + step], bound)
    return reduced(result, bits)


def completed(rows: Array, bases: Sequence[Array] = ()) -> Array:
    """Add faint rows for the rest of a space, so that rounding stays inside what is measured.

    The space is the Kronecker product of the spans of orthonormal `bases`, or else that of all columns.
    """
    cells = rows.shape[1]
    if cells > limits().dense_cells:
        raise PlanError(
            f"queries with fractional coefficients on {cells:,} cells cannot be measured exactly; give them "
            "in integers (times a common factor), or on fewer values"
        )
    inside: Array = np.ones((1, 1))
    for basis in bases:
        inside = np.asarray(np.kron(inside, basis), dtype=float)
    turned, _ = np.linalg.qr(inside @ rows.T if bases else rows.T, mode="complete")
    rest = turned[:, len(rows) :].T
    length = math.sqrt(float((rows**2).sum(axis=0).max()))
    return np.concatenate([rows, FAINT * length * (rest @ inside if bases else rest)])

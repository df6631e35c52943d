"""The centre of each attribute: a vector that sums to one, around which queries are split.

With wᵢ the centre of attribute i and Cᵢ = I − wᵢ1ᵀ, every row q on the attributes S splits into
parts q⇒A = q · ⊗(Cᵢ for i ∈ A, wᵢ for i ∈ S∖A), and the parts' answers add up to the answer of q.
The uniform centre is the paper's: its parts lie in mutually orthogonal residual spaces.
"""

from __future__ import annotations

import numpy as np

from querysmasher.arrays import Array
from querysmasher.schema import Schema

Centres = tuple[Array, ...]


def uniform(schema: Schema) -> Centres:
    """Return the uniform centre of every attribute; attributes of equal size share one array."""
    shared = {n: np.full(n, 1.0 / n) for n in set(schema.sizes)}
    for centre in shared.values():
        centre.flags.writeable = False
    return tuple(shared[n] for n in schema.sizes)


def split_axis(rows: Array, centre: Array, axis: int, *, keep: bool) -> Array:
    """Multiply `rows` along `axis` by C (`keep`, the axis stays) or by the centre (the axis goes)."""
    # the plain mean is exact for counts, so that alike attributes get bitwise alike parts
    flat = bool(np.all(centre == centre[0]))
    mean: Array = rows.mean(axis=axis) if flat else np.tensordot(rows, centre, axes=(axis, 0))
    return np.asarray(rows - np.expand_dims(mean, axis)) if keep else mean


def split_gram(gram: Array, centre: Array) -> tuple[float, Array | None]:
    """Return what a Gram matrix on one attribute leaves on no attribute, and on it (None for one value)."""
    on_centre = gram @ centre
    square = float(on_centre @ centre)
    if len(gram) == 1:
        return square, None
    return square, gram - on_centre[:, None] - on_centre[None, :] + square


def complement(centre: Array) -> Array:
    """Return an orthonormal basis (n-1 rows) of the rows b with b · centre = 0."""
    basis, _ = np.linalg.qr(centre[:, None], mode="complete")
    return np.ascontiguousarray(basis[:, 1:].T)

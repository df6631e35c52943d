"""From residuals to tables: a marginal is the sum of what its subsets leave on it.

With r_A the residual on a set A, which sums to zero along each of its axes, the marginal on S is
Σ_{A⊆S} r_A ⊗ (⊗_{i∈S∖A} w_i), where w_i is the centre of attribute i, which may depend on A.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from querysmasher.arrays import Array
from querysmasher.planning.centre import Centre


def subsets(attributes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Iterate over all subsets, in the same order for equally many attributes."""
    for bits in range(2 ** len(attributes)):
        yield tuple(attribute for i, attribute in enumerate(attributes) if bits >> i & 1)


def lifted(
    residual: Callable[[tuple[int, ...]], Array | None],
    attributes: tuple[int, ...],
    sizes: Sequence[int],
    centre: Callable[[int, tuple[int, ...]], Array],
    lines: Collection[int],
    lead: tuple[int, ...] = (),
) -> Array:
    """Return tables over `attributes`, in any order, after the axes `lead`.

    `residual` returns the residuals of a set (increasing indexes) with the axes `lead` first, or None;
    `centre` the centre of an attribute that the set does not keep: if it is one of `lines`, it depends on
    what the set keeps of other attributes and of earlier lines. So these are lifted first, later ones before
    earlier ones, and sets that differ in them alone are added up before they become larger.
    """
    ordered, axes = sorted(attributes), len(lead) + len(attributes)

    def table(kept: tuple[int, ...], left: Sequence[int]) -> Array | None:
        """Return the sum over the sets of `kept` and some of those `left`, lifted to all of these."""
        if not left:
            values = residual(tuple(sorted(kept)))
            shape = (*lead, *(sizes[a] if a in kept else 1 for a in ordered))
            return None if values is None else np.array(values, dtype=float).reshape(shape)
        attribute, *later = left
        result, without = table((*kept, attribute), later), table(kept, later)
        if without is None:
            return result
        axis = len(lead) + ordered.index(attribute)
        without = without * along(centre(attribute, kept), axis, axes)
        return without if result is None else np.add(result, without, out=result)

    result = table((), sorted(attributes, key=lambda a: (a in lines, a)))
    if result is None:
        result = np.zeros((*lead, *(sizes[a] for a in ordered)))
    return result.transpose([*range(len(lead)), *(len(lead) + ordered.index(a) for a in attributes)])


def centred(residual: Array, centres: Sequence[Centre], *, first: int = 0) -> Array:
    """Return C r: what sums to zero along every axis from `first` on, each with its centre."""
    for axis, centre in enumerate(centres, start=first):
        residual = residual - residual.sum(axis=axis, keepdims=True) * along(
            centre.weights, axis, residual.ndim
        )
    return residual


def along(weights: Array, axis: int, axes: int) -> Array:
    """Return weights along one of many axes."""
    return weights.reshape([-1 if i == axis else 1 for i in range(axes)])

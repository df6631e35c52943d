"""A lower bound on the error of every matrix mechanism where the exact limit's matrix would be too large.

The Gram matrix of a workload over the cells of its attributes is a sum of Kronecker products, one per group
whose families each ask about one attribute, and of a few rows. Its trace root at weights that are a product
over the attributes is bounded by matrices over one attribute (`solvers.trace_root`).
"""

from __future__ import annotations

import math

import numpy as np

from querysmasher.arrays import Array, one_core
from querysmasher.planning.limits import limits
from querysmasher.planning.solvers.bounds import axis_weights
from querysmasher.planning.solvers.trace_root import ProductSum, trace_root_bound
from querysmasher.planning.split import PlacedFamily
from querysmasher.workload.groups import Group
from querysmasher.workload.workload import Workload


def product_bound(workload: Workload) -> float | None:
    """Return a lower bound on √(loss) at privacy cost 1, or None if the workload is too large for it."""
    gram = _product_sum(workload)
    if gram is None:
        return None
    with one_core():
        return trace_root_bound(gram, axis_weights(gram))


def _product_sum(workload: Workload) -> ProductSum | None:
    schema = workload.schema
    asked = sorted({place for group in workload for place in schema.positions(group.attributes)})
    shape = tuple(schema.sizes[place] for place in asked)
    products = [group for group in workload if all(len(f.shape) == 1 for f in group.families)]
    joint = [group for group in workload if any(len(f.shape) > 1 for f in group.families)]
    cells, count = math.prod(shape), sum(group.rows for group in joint)
    most = limits()
    if not asked or cells > most.product_cells or max(shape) > most.limit_dimension:
        return None
    if cells * count**2 > most.product_work or count * cells > most.merged_entries:
        return None
    if len(products) > most.product_terms:
        return None
    terms: dict[tuple[object, ...], tuple[float, tuple[Array, ...]]] = {}
    for group in products:
        families = dict(zip(schema.positions(group.attributes), group.families, strict=True))
        key = tuple(families[place].key if place in families else None for place in asked)
        grams = (
            terms[key][1]
            if key in terms
            else tuple(
                families[place].gram() if place in families else np.ones((n, n))
                for place, n in zip(asked, shape, strict=True)
            )
        )
        terms[key] = (terms.get(key, (0.0, grams))[0] + group.weight, grams)
    rows = [_rows(workload, group, asked, shape) for group in joint]
    return ProductSum(tuple(terms.values()), np.concatenate([np.zeros((0, cells)), *rows]), shape)


def _rows(workload: Workload, group: Group, asked: list[int], shape: tuple[int, ...]) -> Array:
    """Return a group's queries over all cells, times the roots of their weights."""
    tensor = np.full((1,), math.sqrt(group.weight))
    order: list[int] = []
    for names, family in group.parts():
        own = PlacedFamily.own(family).weighted
        tensor = np.multiply.outer(tensor, own)
        tensor = np.moveaxis(tensor, 1 + len(order), 1)
        tensor = tensor.reshape(-1, *tensor.shape[2:])
        order += workload.schema.positions(names)
    tensor = tensor.transpose(0, *(1 + np.argsort(order)))
    spread = [n if place in order else 1 for place, n in zip(asked, shape, strict=True)]
    every = np.broadcast_to(tensor.reshape(-1, *spread), (len(tensor), *shape))
    return every.reshape(len(tensor), -1)

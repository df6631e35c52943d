"""Hypothesis strategies: small random schemas, and workloads that mix everything that can be asked."""

import math
import operator
from dataclasses import replace
from functools import reduce

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.extra import numpy as array_strategies

import querysmasher as qs
from querysmasher.planning.centre import Centre
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.hierarchy import Hierarchy
from querysmasher.workload.joint import AbsDifference, Affine, Rows
from querysmasher.workload.sum import Sum
from querysmasher.workload.workload import Group, Target

NAMES = ("b", "d", "a", "c")
"""Not in alphabetical order, so that sorting by name instead of by place shows."""

weights = st.sampled_from([1.0, 1.0, 0.25, 3.0, 40.0])
seeds = st.integers(0, 10**6)
"""Only for what takes a seed itself: a generator hides from Hypothesis what it draws, and nothing shrinks."""

DRAWN_ENTRIES = 64


def integer_arrays(shape, low=-2, high=3):
    """Arrays of integers, each entry drawn; those of many entries repeat one, with exceptions."""
    entries = st.integers(low, high)
    fill = st.nothing() if math.prod(shape) <= DRAWN_ENTRIES else entries
    return array_strategies.arrays(np.int64, shape, elements=entries, fill=fill)


@st.composite
def matrices(draw, rows, cells):
    """Rows of small integers, the first of which is not nothing; large ones may have full rank."""
    array = draw(integer_arrays((rows, cells))).astype(float)
    if array.size > DRAWN_ENTRIES and draw(st.booleans()):
        array += np.eye(rows, cells)
    array[0, 0] += not array[0].any()
    return array


@st.composite
def full_rank_matrices(draw, rows, cells):
    """Independent rows, or independent columns, of small integers."""
    array = draw(integer_arrays((rows, cells))) + 4 * np.eye(rows, cells)
    assume(np.linalg.matrix_rank(array) == min(rows, cells))
    return array


def matrix(rows, cells, seed, low=-2, high=3):
    """Small integers for a fixed example: rows that are contrasts or constant come up, and cancel exactly."""
    array = np.random.default_rng(seed).integers(low, high + 1, (rows, cells)).astype(float)
    array[0, 0] += not array[0].any()  # at least one query that is not nothing
    return array


@st.composite
def attributes(draw, name, max_size=5):
    """An attribute of any kind, also with a single value, or with one beside the others."""
    kind = draw(st.sampled_from([qs.Categorical, qs.Ordinal, qs.Number, qs.Cyclic, qs.Binned]))
    size = draw(st.integers(1, max_size))
    missing = draw(st.sampled_from([None, None, None, "missing"])) if size > 1 else None
    size -= missing is not None
    if kind is qs.Binned:
        step = draw(st.sampled_from([None, 1, 10]))
        return qs.Binned(name, edges=[10 * i for i in range(size + 1)], step=step, missing=missing)
    if kind is qs.Categorical:
        return qs.Categorical(name, [f"v{i}" for i in range(size)], missing=missing)
    if kind is qs.Number and size > 1:
        return qs.Number(name, 0, size - 1, missing=missing)
    kind = qs.Ordinal if kind is qs.Number else kind
    return kind(name, range(size), missing=missing)


@st.composite
def schemas(draw, min_attributes=1, max_attributes=4, max_size=5, max_cells=150):
    """A schema whose whole domain is small enough to write out."""
    count = draw(st.integers(min_attributes, max_attributes))
    chosen, cells = [], 1
    for name in NAMES[:count]:
        attribute = draw(attributes(name, max(1, min(max_size, max_cells // cells))))
        cells *= attribute.size
        chosen.append(attribute)
    return qs.Schema(chosen)


@st.composite
def centres(draw, schema):
    """One centre per attribute that sums to one, uniform or not, with negative entries too."""
    result = []
    for size in schema.sizes:
        steps = np.array(draw(st.lists(st.integers(-2, 5), min_size=size, max_size=size)))
        total = steps.sum()
        result.append(Centre.ratio(steps * np.sign(total)) if total else Centre.uniform(size))
    return tuple(result)


@st.composite
def families(draw, attribute):
    """A family for one attribute: named, given by rows, or a hierarchy."""
    more = ["sum"] * (attribute.natural_family == "prefix" and attribute.listed > 1)
    kind = draw(
        st.sampled_from([*ONE_ATTRIBUTE, *more, *ONE_ATTRIBUTE, "rows", "weighted rows", "hierarchy"])
    )
    if kind == "sum":
        return Sum.on(attribute, draw(st.sampled_from([0, 0.5, -3])))
    if kind in ONE_ATTRIBUTE:
        return ONE_ATTRIBUTE[kind].on(attribute)
    if kind == "hierarchy":
        groups = [i // 2 for i in range(attribute.size)]
        return qs.hierarchy(qs.Schema([attribute]), attribute.name, groups, leaves=draw(st.booleans()))
    rows = draw(matrices(draw(st.integers(1, 4)), attribute.size))
    own = None
    if kind == "weighted rows":
        own = np.array(draw(st.lists(weights, min_size=len(rows), max_size=len(rows))))
    return Rows((attribute.size,), rows, own)


@st.composite
def joint_families(draw, shape):
    """A family on several attributes that is no product."""
    kinds = ["random", "rows", "tall rows"] + ["affine", "abs"] * (len(shape) == 2)
    kind = draw(st.sampled_from(kinds))
    cells = math.prod(shape)
    if kind == "affine":
        return Affine(shape)
    if kind == "abs":
        return AbsDifference(shape)
    if kind == "random":
        family = qs.random_queries(
            qs.Schema.of({f"x{i}": n for i, n in enumerate(shape)}),
            [f"x{i}" for i in range(len(shape))],
            draw(st.integers(1, 4)),
            p=0.5,
            seed=draw(seeds),
        )
        return family.groups[0].families[0]
    count = cells + 2 if kind == "tall rows" else draw(st.integers(1, 3))
    rows = draw(matrices(count, cells))
    own = np.linspace(0.5, 2.0, count) if draw(st.booleans()) else None
    return Rows(tuple(shape), rows, own)


@st.composite
def groups(draw, schema, max_ways=3):
    """A product of families on a few attributes in any order, some of which are taken jointly."""
    names = draw(st.permutations(schema.names))
    names = names[: draw(st.integers(0, min(max_ways, len(names))))]
    chosen, start = [], 0
    while start < len(names):
        together = draw(st.sampled_from([1, 1, 2, 3]))
        part = [schema[n] for n in names[start : start + together]]
        if len(part) == 1:
            chosen.append(draw(families(part[0])))
        else:
            chosen.append(draw(joint_families(tuple(a.size for a in part))))
        start += len(part)
    group = Group(tuple(names), tuple(chosen), draw(weights))
    if group.rows > 700:  # keep the dense reference small
        group = Group(tuple(names[:1]), (draw(families(schema[names[0]])),), group.weight)
    return group


@st.composite
def workloads(draw, schema=None, max_groups=4, max_ways=3):
    """Several groups on one schema, which is given, drawn from what is given, or any."""
    if not isinstance(schema, qs.Schema):
        schema = draw(schemas() if schema is None else schema)
    drawn = draw(st.lists(groups(schema, max_ways), min_size=1, max_size=max_groups))
    return reduce(operator.add, [qs.Workload(schema, (group,)) for group in drawn])


@st.composite
def aimed(draw, some, amounts=(1.0, 1.0, 2.0, 0.3, 7.0)):
    """A workload of which some groups have targets."""
    workload = draw(some)
    chosen = [draw(st.none() | st.sampled_from(amounts).map(Target)) for _ in workload]
    groups = (replace(g, target=t) for g, t in zip(workload, chosen, strict=True))
    return qs.Workload(workload.schema, tuple(groups))


def by_appearance(groups):
    found = {}
    return np.array([found.setdefault(group, len(found)) for group in groups])


@st.composite
def trees(draw, most=9, leaves=None, least=1):
    """A family of nested levels over shuffled values, coarse and fine in any order."""
    n = draw(st.integers(least, most))
    fine = np.array(draw(st.permutations(range(n))))
    levels = []
    for _ in range(draw(st.integers(0, 3))):
        size = int(fine.max()) + 1
        merged = np.array(draw(st.lists(st.integers(0, max(0, size // 2)), min_size=size, max_size=size)))
        fine = by_appearance(merged[fine])
        levels.append(fine)
    levels = draw(st.permutations(levels))
    own = draw(st.booleans()) if leaves is None else leaves
    own = own or not levels
    names = tuple(tuple(range(int(level.max()) + 1)) for level in levels)
    level_weights = tuple(draw(st.lists(weights, min_size=len(levels) + own, max_size=len(levels) + own)))
    return Hierarchy((n,), tuple(map(by_appearance, levels)), names, own, level_weights)


budgets = st.sampled_from(
    [
        qs.PrivacyCost(1.0),
        qs.PrivacyCost(0.37),
        qs.zCDP(0.3),
        qs.GaussianDP(2.5),
        qs.ApproxDP(1.0, 1e-6),
        qs.PrivacyCost(2.0, records_per_person=3),
        qs.PrivacyCost(1.3, neighbours="replace_one"),
        qs.zCDP(0.1, neighbours="replace_one", records_per_person=2),
    ]
)

"""Factors of every kind, drawn: small and large integers, shapes and trees."""

import math

import numpy as np
from hypothesis import strategies as st

from querysmasher.privacy.factors import Coarse, Crossed, Filter, Matrix, Merged, Mirrored, Reflection, Tree
from querysmasher.privacy.factors.reflection import NAMES
from tests.privacy.factors.toy_factor import Differences


def integers(most=2**20):
    return st.one_of(st.integers(-3, 3), st.integers(-most, most))


def arrays(draw, shape, most=2**20):
    count = math.prod(shape)
    drawn = draw(st.lists(integers(most), min_size=count, max_size=count))
    return np.array(drawn, dtype=np.int64).reshape(shape)


@st.composite
def matrices(draw):
    shape = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    return Matrix(arrays(draw, shape))


@st.composite
def filters(draw):
    return Filter(arrays(draw, tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))))


def every_number(draw, count, among=None):
    """Numbers 0 .. k - 1, each used, in any order; k is drawn."""
    k = draw(st.integers(1, count)) if among is None else among
    rest = draw(st.lists(st.integers(0, k - 1), min_size=count - k, max_size=count - k))
    return np.array(draw(st.permutations([*range(k), *rest])), dtype=np.int64)


@st.composite
def merged(draw):
    maps = tuple(every_number(draw, n) for n in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    shape = tuple(int(one.max()) + 1 for one in maps)
    labels = every_number(draw, math.prod(shape)).reshape(shape)
    matrix = arrays(draw, (draw(st.integers(1, 4)), int(labels.max()) + 1))
    return Merged(maps, labels, matrix)


@st.composite
def forests(draw, most=7):
    """The parents of nodes in order of depth."""
    parents = [-1] * draw(st.integers(1, 2))
    while len(parents) < most and draw(st.booleans()):
        parents.append(draw(st.integers(max(0, parents[-1]), len(parents) - 1)))
    return np.array(parents, dtype=np.int64)


@st.composite
def trees(draw):
    parents = draw(forests())
    leaves = np.setdiff1d(np.arange(len(parents)), parents)
    leaf_of = every_number(draw, draw(st.integers(len(leaves), len(leaves) + 2)), len(leaves))
    multipliers = np.abs(arrays(draw, parents.shape))
    multipliers[leaves] += 1
    shift = np.where(multipliers > 0, arrays(draw, parents.shape), 0)
    return Tree(leaf_of, parents, multipliers, shift)


@st.composite
def crossed(draw):
    leaves = draw(st.integers(1, 5))
    groups = np.stack([every_number(draw, leaves) for _ in range(draw(st.integers(1, 3)))])
    inner = int((groups.max(axis=1) + 1).sum())
    multipliers = np.abs(arrays(draw, (inner + leaves,)))
    multipliers[inner:] += 1
    shift = np.where(multipliers > 0, arrays(draw, multipliers.shape), 0)
    return Crossed(every_number(draw, leaves + draw(st.integers(0, 2)), leaves), groups, multipliers, shift)


@st.composite
def toys(draw):
    return Differences(draw(st.integers(2, 6)), draw(integers()))


@st.composite
def mirrored(draw):
    name, n = draw(st.sampled_from(NAMES)), draw(st.integers(1, 7))
    reflection = Reflection(name, n)
    kernel = arrays(draw, (reflection.free,), 2**5)
    kernel[0] = 4 * np.abs(kernel).sum() + 1  # so that it has an inverse
    diagonal = 1 + np.abs(arrays(draw, (n,), 2**5))
    extra = arrays(draw, (draw(st.integers(0, 2)), n), 2**9)
    return Mirrored(name, kernel, diagonal, extra, arrays(draw, (n + len(extra),), 2**12))


@st.composite
def coarse(draw):
    inner = draw(st.one_of(matrices(), mirrored()))
    classes = every_number(draw, inner.cells + draw(st.integers(0, 3)), inner.cells)
    return Coarse(classes, inner)

"""Integer plans that no planner would make, drawn piece by piece, and spoilt or not."""

import itertools
import math
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.privacy.factors import Filter, Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy

MAX_CELLS = 8


def entries(draw, shape):
    """An array of integers, most of them small, a few of them near the ends of what is accounted."""
    number = st.one_of(st.integers(-3, 3), st.sampled_from([0, 1, -1000, 2**20, 2**26 - 1, -(2**26)]))
    count = math.prod(shape)
    return np.array(draw(st.lists(number, min_size=count, max_size=count)), dtype=np.int64).reshape(shape)


def parted(draw, items):
    """A partition of the items into parts, the parts and the items within them in any order."""
    items = list(draw(st.permutations(items)))
    parts = []
    while items:
        size = draw(st.integers(1, len(items)))
        parts.append(tuple(items[:size]))
        items = items[size:]
    return parts


@st.composite
def factors(draw, shape, axes):
    """A factor over some axes of a block: a matrix, or a filter if it can be one."""
    own = tuple(shape[a] for a in axes)
    if draw(st.sampled_from(["matrix", "matrix", "filter"])) == "filter":
        return Filter(entries(draw, own))
    return Matrix(entries(draw, (draw(st.integers(1, 3)), math.prod(own))))


@st.composite
def parts_of_strategies(draw, shape):
    """The three arguments of a strategy, filters standing where they may not."""
    own = [(axes, draw(factors(shape, axes))) for axes in parted(draw, range(len(shape)))]
    multipliers = None
    if draw(st.booleans()):
        rows = tuple(f.rows for _, f in own)
        count = math.prod(rows)
        number = st.one_of(st.integers(1, 9), st.sampled_from([1024, 2**20 + 7, 2**50]))
        multipliers = np.array(draw(st.lists(number, min_size=count, max_size=count))).reshape(rows)
    return [tuple(shape), tuple(own), multipliers]


class OddInt(int):
    """An integer that is what it is asked to be."""

    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


class OddArray(np.ndarray):
    """An array whose squares are zero."""

    def __pow__(self, other):
        return np.zeros_like(self)


class OddFilter(Filter):
    """A filter that claims to cost nothing."""

    def squared_column(self):
        return 0


class OddFraction(Fraction):
    """A variance that is huge when divided by."""

    def __rtruediv__(self, other):
        return Fraction(0)


class OddMatrix(Matrix):
    """A matrix that claims to cost nothing."""

    def squared_column(self):
        return 0


class OddBudget(qs.PrivacyCost):
    """A budget under which nothing changes anything."""

    def sensitivity(self, total):
        return 0


def without_axes(draw, parts):
    """Put in a factor that stands on no axis."""
    shape, own, multipliers = parts
    place = draw(st.integers(0, len(own)))
    extra = ((), Matrix(entries(draw, (draw(st.integers(1, 2)), 1))))
    if multipliers is not None:
        multipliers = np.stack([multipliers] * extra[1].rows, axis=place)
    return [shape, (*own[:place], extra, *own[place:]), multipliers]


def twice(draw, parts):
    """Let a factor stand twice, or an axis in two factors."""
    shape, own, multipliers = parts
    return [shape, (*own, draw(st.sampled_from(own))) if own else own, multipliers]


def left_out(draw, parts):
    """Leave a factor out."""
    shape, own, multipliers = parts
    return [shape, own[:-1], multipliers]


def other_sizes(draw, parts):
    """Change the sizes: none, negative, larger, or of a type of their own."""
    shape, own, multipliers = parts
    change = draw(st.sampled_from([lambda n: 0, lambda n: -n, lambda n: n + 1, OddInt, float, np.int64]))
    return [tuple(change(n) for n in shape), own, multipliers]


def other_axes(draw, parts):
    """Number the axes otherwise."""
    shape, own, multipliers = parts
    change = draw(st.sampled_from([lambda a: -a, lambda a: a + 1, OddInt, bool, float, lambda a: 0]))
    return [shape, tuple((tuple(change(a) for a in axes), f) for axes, f in own), multipliers]


def other_types(draw, parts):
    """Put other containers, arrays or filters in the place of those that are meant."""
    shape, own, multipliers = parts
    to = draw(
        st.sampled_from(
            [
                lambda m: m,
                lambda m: Matrix(m.view(OddArray)),
                lambda m: Matrix(np.ma.array(m, mask=True)),
                lambda m: Matrix(m.astype(float)),
                lambda m: Matrix(m.astype(np.int32)),
                lambda m: Matrix(m.astype(object)),
                lambda m: Matrix(m.ravel()),
                lambda m: Matrix(m[:0]),
                lambda m: Matrix(m.tolist()),
                lambda m: Matrix(np.full_like(m, -(2**63))),
                lambda m: Matrix(np.asfortranarray(m)),
                lambda m: OddFilter(m.ravel()),
                OddMatrix,
            ]
        )
    )

    def changed():
        return tuple((a, OddFilter(f.kernel) if isinstance(f, Filter) else to(f.entries)) for a, f in own)

    return [shape, draw(st.sampled_from([changed, list(own), (*own, None)])), multipliers]


def other_multipliers(draw, parts):
    """Noise multipliers that are none."""
    shape, own, multipliers = parts
    if multipliers is None:
        rows = tuple(f.rows for _, f in own)
        multipliers = np.ones(rows, dtype=np.int64)
    to = draw(
        st.sampled_from(
            [
                lambda m: m - m,
                lambda m: -m,
                lambda m: m.astype(float) * 0.5,
                lambda m: m[None],
                lambda m: m[..., None],
                lambda m: m.view(OddArray),
                lambda m: m.tolist(),
                lambda m: 0 * m + 2**61,
            ]
        )
    )
    return [shape, own, to(multipliers)]


SPOILT = (
    without_axes,
    twice,
    left_out,
    other_sizes,
    other_axes,
    other_types,
    other_multipliers,
)


@st.composite
def hostile_plans(draw):
    """A function that builds a plan, and the ways in which it was spoilt."""
    sizes = draw(
        st.lists(st.integers(1, 3), min_size=1, max_size=3).filter(lambda s: math.prod(s) <= MAX_CELLS)
    )
    schema = qs.Schema.of({f"x{i}": n for i, n in enumerate(sizes)})
    budget = qs.PrivacyCost(
        1e90,
        neighbours=draw(st.sampled_from(["add_remove", "replace_one"])),
        records_per_person=draw(st.integers(1, 2)),
    )
    subsets = [s for k in range(len(sizes) + 1) for s in itertools.combinations(range(len(sizes)), k)]
    chosen = draw(st.lists(st.sampled_from(subsets), min_size=1, max_size=3, unique=True))
    strategies, measured, ways = [], [], []
    for attributes in chosen:
        blocks = []
        for axes in parted(draw, range(len(attributes))):
            parts = draw(parts_of_strategies([sizes[attributes[a]] for a in axes]))
            if draw(st.integers(0, 5)) == 0:
                way = draw(st.sampled_from(SPOILT))
                parts, ways = way(draw, parts), [*ways, way.__name__]
            blocks.append((axes, len(strategies)))
            strategies.append(parts)
        if not attributes and draw(st.booleans()):
            blocks.append(((), len(strategies)))
            strategies.append([(), (((), Matrix(entries(draw, (1, 1)))),), None])
        variance = Fraction(draw(st.integers(1, 50)), draw(st.sampled_from([1, 1, 7, 1024])))
        if draw(st.integers(0, 15)) == 0:
            way = draw(st.sampled_from(["block", "variance", "number"]))
            ways = [*ways, way]
            if way == "block":  # one on no axes, beside the others or alone
                blocks.insert(draw(st.integers(0, len(blocks))), ((), len(strategies)))
                strategies.append([(), (((), Matrix(entries(draw, (1, 1)))),), None])
            elif way == "variance":
                odd = [0, -1, 0.5, math.inf, math.nan, True, OddFraction(1), np.float64(3), Fraction(-1, 9)]
                variance = draw(st.sampled_from(odd))
            else:
                odd = [OddInt(0), True, -1, 0.0, 99]
                blocks = [(axes, draw(st.sampled_from(odd))) for axes, _ in blocks]
        measured.append((attributes, tuple(blocks), variance))
    records = 1000
    if draw(st.integers(0, 30)) == 0:
        way = draw(st.sampled_from(["records", "budget"]))
        ways = [*ways, way]
        if way == "records":
            records = draw(st.sampled_from([math.nan, 0, -5, 2**62, 1e3, True, OddInt(7), None]))
        else:
            budget = draw(st.sampled_from([OddBudget(1.0), None]))

    def build():
        return IntegerPlan(
            schema,
            budget,
            tuple(IntegerStrategy(shape, own() if callable(own) else own, m) for shape, own, m in strategies),
            tuple(IntegerMeasured(*m) for m in measured),
            records,
        )

    return build, ways

"""The accountant against brute force over all neighbours, for integer plans that no planner would make.

A plan is drawn piece by piece: blocks, factors, filters, noise multipliers and the order of every axis. Then
it is spoilt, or not. It must be refused, or cost what is said: what each record changes is asked of the
measuring code, and every change of a table that the unit of privacy allows is tried, in exact fractions.
"""

import itertools
import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.profiles import fewer
from tests.release.tables import TableCounter, Telltale, marginal, released, squared_change, units

import querysmasher as qs
from querysmasher.errors import PrivacyError
from querysmasher.privacy import accounting
from querysmasher.privacy.accounting import privacy_cost, squared_sensitivity
from querysmasher.privacy.factors import Filter, Matrix
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.measurement import exact_answers, measure_table

MAX_CELLS = 8
SLACK = Fraction(1, 2**29)
"""What the accountant may add where multipliers are summed in floating point."""


# --- drawing plans ---------------------------------------------------------------------------------


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


# --- brute force -----------------------------------------------------------------------------------


def variances(plan):
    """The noise variances of the numbers of each set, as measuring asks for them."""
    counter = TableCounter(plan.schema, next(units(plan.schema)))
    quiet, telling = Telltale(0), Telltale(1)
    exact, marked = (dict(measure_table(plan, counter, noise)) for noise in (quiet, telling))
    return [
        [telling.variances[place] for place in (marked[number] - exact[number]).ravel().tolist()]
        for number in range(len(plan.measured))
    ]


def weighted_grams(plan):
    """BᵀΣ⁻¹B over the cells of the whole domain for every set, in exact fractions, and their scale."""
    noise = variances(plan)
    scale = math.lcm(*(v.numerator for own in noise for v in own))
    grams = []
    for m, own in zip(plan.measured, noise, strict=True):
        columns = [
            exact_answers(plan, m, marginal(plan.schema, unit, plan.names(m))).ravel().tolist()
            for unit in units(plan.schema)
        ]
        values = np.array(columns, dtype=object)
        grams.append((values * np.array([int(scale / v) for v in own], dtype=object)) @ values.T)
    return grams, scale


def changes(cells, budget):
    """All changes of a table by which neighbours differ, a sign apart."""
    each = np.eye(cells, dtype=object)
    several = [
        sum(chosen[1:], chosen[0])
        for r in range(1, budget.records_per_person + 1)
        for chosen in itertools.combinations_with_replacement(each, r)
    ]
    if budget.neighbours == "add_remove":
        return np.array(several)
    return np.array([a - b for a in several for b in several if sum(a) == sum(b)])


def largest(gram, every):
    """The largest change over all neighbours."""
    return int(((every @ gram) * every).sum(axis=1).max())


def check(build):
    """Say whether a plan was refused; if not, its accounted cost is an upper bound, tight where stated."""
    try:
        plan = build()
        said = privacy_cost(plan)
        grams, scale = weighted_grams(plan)
    except PrivacyError:
        return True
    every = changes(len(grams[0]), plan.budget)
    assert said >= Fraction(largest(sum(grams), every), scale)
    if plan.budget.neighbours == "add_remove":  # set by set no more than needed: some records cost this
        for m, gram in zip(plan.measured, grams, strict=True):
            one = IntegerPlan(plan.schema, plan.budget, plan.strategies, (m,), plan.max_records)
            exact = Fraction(largest(gram, every), scale)
            with_multipliers = any(plan.strategies[n].multipliers is not None for _, n in m.blocks)
            slack = len(m.blocks) * SLACK if with_multipliers else 0
            assert exact <= privacy_cost(one) <= exact * (1 + slack) + Fraction(1, accounting.GRAIN)
    return False


@pytest.mark.slow
def test_a_plan_is_refused_or_costs_what_is_said():
    tried = Counter()

    @settings(max_examples=400)
    @given(hostile_plans())
    def run(case):
        build, ways = case
        tried["spoilt" if ways else "as meant", "refused" if check(build) else "accepted"] += 1

    run()
    # enough of both sorts, or the above is of little worth
    assert tried["as meant", "accepted"] >= 100
    assert tried["spoilt", "refused"] >= 100


@fewer(60)
@given(hostile_plans(), st.data())
def test_what_a_change_does_follows_from_what_each_record_does(case, data):
    """Two neighbouring tables, measured as they stand: the brute force above adds records up."""
    build, _ = case
    try:
        plan = build()
        grams, scale = weighted_grams(plan)
    except PrivacyError:
        return
    cells = len(grams[0])
    change = np.array(data.draw(st.sampled_from(changes(cells, plan.budget).tolist())), dtype=np.int64)
    table = np.array(data.draw(st.lists(st.integers(2, 9), min_size=cells, max_size=cells)))
    one, two = (released(plan, t.reshape(plan.schema.sizes)) for t in (table, table + change))
    wide = change.astype(object)
    assert squared_change(one, two) == Fraction(int(wide @ sum(grams) @ wide), scale)


# --- what is refused, one by one -------------------------------------------------------------------

KERNEL = Filter(np.array([10**6, -(10**6), 0]))
ROW = Matrix(np.array([[1, -1, 0]]))
ONE = Matrix(np.array([[1]]))


@pytest.mark.parametrize(
    "own",
    [
        (((), ONE), ((0,), KERNEL)),
        (((0,), KERNEL), ((), ONE)),
        (((), ONE), ((0,), ROW)),
        (((), KERNEL), ((0,), ROW)),
        (((0,), ROW), ((), ONE), ((), ONE)),
    ],
    ids=["before a filter", "after a filter", "before a matrix", "a filter on none", "two of them"],
)
def test_a_factor_without_axes_stands_beside_no_other(own, refuses):
    """It hid the filter from the accountant: a cost of 1 was accounted, and the true one was 2·10¹²."""
    with refuses(PrivacyError, ValueError, "without axes"):
        IntegerStrategy((3,), own)


def test_the_number_of_records_is_one_factor(refuses):
    total = IntegerStrategy((), (((), Matrix(np.array([[1024]]))),))
    assert squared_sensitivity(total) == 1024**2
    for own in ((), (((), ONE), ((), ONE))):
        with refuses(PrivacyError, ValueError, "one factor"):
            IntegerStrategy((), own)
    with refuses(PrivacyError, ValueError, "without multipliers"):
        IntegerStrategy((), (((), ONE),), np.array([2]))
    with refuses(PrivacyError, ValueError, "the cells of its axes"):
        IntegerStrategy((), (((), Filter(np.array(5))),))


@pytest.mark.parametrize(
    ("shape", "own", "words"),
    [
        ((0,), (((0,), ONE),), "positive"),
        ((-3, -1), (((0, 1), ROW),), "positive"),
        ((2**62,), (((0,), ROW),), "positive"),
        ([3], (((0,), ROW),), "tuple of integers"),
        ((3.0,), (((0,), ROW),), "tuple of integers"),
        ((np.int64(3),), (((0,), ROW),), "tuple of integers"),
        ((True,), (((0,), ONE),), "tuple of integers"),
        ((OddInt(9),), (((0,), ROW),), "tuple of integers"),
        ((1,) * 33, (((0,), ONE),), "at most 32"),
        ((3,), [((0,), ROW)], "pairs"),
        ((3,), (((0,), ROW, 1),), "pairs"),
        ((3,), (((0,),),), "pairs"),
        ((3,), (([0], ROW),), "tuple of integers"),
        ((3,), (((False,), ROW),), "tuple of integers"),
        ((3,), (((OddInt(4),), ROW),), "tuple of integers"),
        ((3, 3), (((0,), ROW), ((0,), ROW)), "once"),
        ((3, 3), (((0, 0), Matrix(np.ones((1, 9), dtype=np.int64))),), "once"),
        ((3, 3), (((0,), ROW), ((-1,), ROW)), "once"),
        ((3, 3), (((0,), KERNEL), ((1,), KERNEL)), "the only factor"),
        ((3,), (((0,), OddFilter(KERNEL.kernel)),), "integer matrix"),
        ((3,), (((0,), OddMatrix(ROW.entries)),), "integer matrix"),
        ((3,), (((0,), ROW.entries),), "integer matrix"),
        ((3,), (((0,), None),), "integer matrix"),
    ],
)
def test_odd_strategies_are_refused(shape, own, words, refuses):
    with refuses(PrivacyError, ValueError, words):
        IntegerStrategy(shape, own)


TOTAL = IntegerStrategy((), (((), ONE),))
THREE = IntegerStrategy((3,), (((0,), ROW),))


def plan_of(one=((0,), (((0,), 1),), Fraction(1)), **changes):
    given = {
        "schema": qs.Schema.of(a=3),
        "budget": qs.PrivacyCost(1.0),
        "strategies": (TOTAL, THREE),
        "measured": (IntegerMeasured(*one),),
        "max_records": 10,
    }
    return IntegerPlan(**(given | changes))


@pytest.mark.parametrize(
    ("measured", "words"),
    [
        (((0,), (((0,), 1), ((), 0)), Fraction(1)), "without attributes"),
        (((), (((), 0), ((), 0)), Fraction(1)), "without attributes"),
        (((0,), (((0,), 1),), 1), "Fraction"),
        (((0,), (((0,), 1),), 0.5), "Fraction"),
        (((0,), (((0,), 1),), math.inf), "Fraction"),
        (((0,), (((0,), 1),), OddFraction(1)), "Fraction"),
        (((0,), (((0,), True),), Fraction(1)), "integer"),
        (((0,), (((0,), 1.0),), Fraction(1)), "integer"),
        (((0,), [((0,), 1)], Fraction(1)), "pairs"),
        (((0,), (((0,), 1, 2),), Fraction(1)), "pairs"),
        (((False,), (((0,), 1),), Fraction(1)), "tuple of integers"),
        (([0], (((0,), 1),), Fraction(1)), "tuple of integers"),
        (((0,), (((False,), 1),), Fraction(1)), "tuple of integers"),
    ],
)
def test_odd_measurements_are_refused(measured, words, refuses):
    plan_of()
    with refuses(PrivacyError, ValueError, words):
        plan_of(measured)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_records": 0},
        {"max_records": -1},
        {"max_records": 2**62},
        {"max_records": math.nan},
        {"max_records": 10.0},
        {"max_records": True},
        {"max_records": None},
        {"budget": OddBudget(1.0)},
        {"budget": None},
        {"schema": None},
        {"strategies": [TOTAL, THREE]},
        {"strategies": (TOTAL, None)},
        {"measured": []},
        {"measured": (None,)},
    ],
    ids=repr,
)
def test_odd_plans_are_refused(changes, refuses):
    with refuses(PrivacyError, ValueError):
        plan_of(**changes)


def test_a_product_of_many_large_factors_is_exact_without_multipliers_and_refused_with(refuses):
    big = Matrix(np.array([[2**25]]))
    own = tuple(((a,), big) for a in range(32))
    assert squared_sensitivity(IntegerStrategy((1,) * 32, own)) == 2 ** (50 * 32)
    with refuses(PrivacyError, ValueError, "too large"):
        squared_sensitivity(IntegerStrategy((1,) * 24, own[:24], np.ones((1,) * 24, dtype=np.int64)))

"""Measuring: answers are exact to the last unit, and nothing is handed out that should not be.

Answers are compared with Python's own integers, at the ends of what the docstrings claim: all records in
one cell, entries and caps whose product is just below a power of two at which doubles or words give up.
"""

import dataclasses
import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import WORD, Matrix
from querysmasher.privacy.factors.matrix import EXACT
from querysmasher.privacy.integer_plan import IntegerMeasured, IntegerPlan, IntegerStrategy
from querysmasher.privacy.measurement import exact_answers, measure_table
from querysmasher.privacy.phases import Phases
from tests.builders import UNIFORM
from tests.release.tables import TableCounter, Telltale, random_counts, units, whole
from tests.strategies import integer_arrays

LOOSE = qs.PrivacyCost(1e30)


def planned(schema, blocks, max_records, variance=10**6, budget=LOOSE):
    """A plan of one set, on all attributes, of (axes, strategy) blocks."""
    numbered = tuple((axes, i) for i, (axes, _) in enumerate(blocks))
    measured = IntegerMeasured(tuple(range(len(schema))), numbered, Fraction(variance))
    return IntegerPlan(schema, budget, tuple(s for _, s in blocks), (measured,), max_records)


def reference(plan, counts):
    """B·x in Python's integers, one axis per factor."""
    (measured,) = plan.measured
    result = np.array(counts.tolist(), dtype=object)
    factors = [
        (tuple(axes[a] for a in own), np.array(factor.entries.tolist(), dtype=object))
        for axes, number in measured.blocks
        for own, factor in plan.strategies[number].factors
    ]
    rows = [range(len(matrix)) for _, matrix in factors]
    out = np.zeros([len(r) for r in rows], dtype=object)
    full = [
        (cell, value) for cell, value in zip(np.ndindex(*counts.shape), result.ravel(), strict=True) if value
    ]
    for row in itertools.product(*rows):
        for cell, value in full:
            term = value
            for (axes, matrix), k in zip(factors, row, strict=True):
                place = int(np.ravel_multi_index([cell[a] for a in axes], [counts.shape[a] for a in axes]))
                term = term * matrix[k, place]
            out[row] += term
    return out


def check_exact(plan, counts):
    found = exact_answers(plan, plan.measured[0], counts)
    assert found.dtype == np.int64
    expected = reference(plan, counts)
    assert found.shape == expected.shape
    assert found.tolist() == expected.tolist()


# --- exactness -------------------------------------------------------------------------------------


@st.composite
def measurements(draw):
    """A plan and a table: one to four blocks, some of them joint, some diagonal, up to the word's end."""
    count = draw(st.integers(1, 4))
    schema = qs.Schema.of({f"x{i}": draw(st.integers(1, 3)) for i in range(count)})
    order = draw(st.permutations(range(count)))
    cap_bits = draw(st.integers(1, 51))
    max_records = 2**cap_bits - draw(st.integers(0, 1))
    room = 61 - max_records.bit_length()
    blocks, start = [], 0
    while start < count:
        axes = tuple(order[start : start + draw(st.integers(1, 2))])
        start += len(axes)
        shape = tuple(schema.sizes[a] for a in axes)
        together = len(axes) == 1 or draw(st.booleans())
        own = [tuple(range(len(axes)))] if together else [(a,) for a in range(len(axes))]
        factors = []
        for part in own:
            bits = draw(st.integers(0, max(0, room)))
            room -= bits
            largest = 2**bits - 1
            rows, cells = draw(st.integers(1, 3)), math.prod(shape[a] for a in part)
            matrix = draw(integer_arrays((rows, cells), -largest, largest))
            matrix.flat[0] = draw(st.sampled_from([largest, -largest]))
            factors.append((part, Matrix(matrix)))
        multipliers = None
        if draw(st.booleans()):
            multipliers = draw(integer_arrays(tuple(f.rows for _, f in factors), 1, 8))
        blocks.append((axes, IntegerStrategy(shape, tuple(factors), multipliers)))
    counts = np.zeros(schema.sizes, dtype=np.int64)
    if draw(st.booleans()):
        counts.flat[draw(st.integers(0, counts.size - 1))] = max_records
    else:
        shares = np.sort(draw(integer_arrays((counts.size - 1,), 0, max_records)))
        counts.flat[:] = np.diff(np.concatenate([[0], shares, [max_records]]))
    return planned(schema, blocks, max_records), counts


@given(measurements())
def test_answers_are_exact(case):
    check_exact(*case)


def one_factor(matrix, max_records):
    matrix = np.asarray(matrix, dtype=np.int64)
    schema = qs.Schema.of(a=matrix.shape[1])
    return planned(
        schema, [((0,), IntegerStrategy((matrix.shape[1],), (((0,), Matrix(matrix)),)))], max_records
    )


@pytest.mark.parametrize("largest", [1, 3, 2**11 - 1, 2**11, 2**20 - 1, 2**20, 2**20 + 1, 2**26 + 1])
@pytest.mark.parametrize("off", [-1, 0, 1])
def test_at_the_end_of_what_doubles_hold(largest, off):
    """All records in one cell, where cap × largest entry crosses 2^53: odd, so that a double must lose it."""
    cap = EXACT // largest + off
    if cap.bit_length() + largest.bit_length() > 62:
        cap //= 4
    counts = np.array([0, cap, 0])
    check_exact(
        one_factor([[1, largest, -1], [-largest, -largest, largest], [0, largest - 1, 1]], cap), counts
    )
    spread = np.array([cap // 3, cap - 2 * (cap // 3), cap // 3])
    check_exact(one_factor([[largest, largest, largest], [largest, -largest, largest]], cap), spread)


@pytest.mark.parametrize("cap_bits", range(38, 52))
@pytest.mark.parametrize("bits", [1, 2, 5, 10])
def test_digits_of_every_width(cap_bits, bits):
    """From one digit to many, and the slow path where not even a digit fits, with entries at digits' ends."""
    cap = 2**cap_bits - 1
    ends = [2**bits - 1, -(2**bits - 1), 2 ** (bits - 1), -(2 ** (bits - 1)), 1, -1, 0]
    for place in (0, 1, 6):
        counts = np.zeros(7, dtype=np.int64)
        counts[place] = cap
        check_exact(one_factor([ends, ends[::-1]], cap), counts)
    check_exact(one_factor([ends, ends[::-1]], cap), np.full(7, cap // 7))


@given(st.integers(0, 10**9), st.integers(1, 52), st.integers(1, 40))
def test_one_product_by_itself(seed, bound_bits, bits):
    """Any columns whose sizes sum to the bound, of either sign, against Python's integers."""
    bits = min(bits, 62 - bound_bits)
    generator = np.random.default_rng(seed)
    bound = 2**bound_bits - 1
    shares = np.sort(generator.integers(0, bound, (3, 5), endpoint=True), axis=0)
    flat = np.diff(np.concatenate([np.zeros((1, 5), np.int64), shares]), axis=0)
    flat *= generator.choice([-1, 1], flat.shape)
    matrix = generator.integers(-(2**bits) + 1, 2**bits, (4, 3))
    expected = np.array(matrix.tolist(), dtype=object) @ np.array(flat.tolist(), dtype=object)
    for given_as in (flat, flat.astype(float)):
        found = Matrix(matrix).exact_answers(given_as, bound)
        assert [[int(x) for x in row] for row in found] == expected.tolist()


def test_answers_beyond_a_word_are_refused(refuses):
    plan = one_factor([[2**31, 1]], 2**31)
    with refuses(PrivacyError, ValueError, "exceed 64 bits"):
        exact_answers(plan, plan.measured[0], np.array([1, 0]))
    plan = one_factor([[2**31 - 1, 1]], 2**31)
    check_exact(plan, np.array([2**31, 0]))


def test_rows_that_are_zero_measure_nothing():
    check_exact(one_factor([[0, 0, 0]], 2**50), np.array([2**50, 0, 0]))


def test_every_class_of_strategy_is_linear_and_exact():
    schema = qs.Schema.of(a=4, b=3, c=2)
    workload = (
        qs.all_kway(schema, [1, 2, 3], "prefix") + qs.marginals(schema, 3) + qs.affine(schema, "a", "b")
    )
    for solver, cap in itertools.product(["optimal", "structured"], [10**8, 2**33]):
        plan = whole(qs.plan(workload, qs.PrivacyCost(1.0), solver=solver, **UNIFORM), max_records=cap)
        concentrated = np.zeros(schema.sizes, dtype=np.int64)
        concentrated[3, 1, 0] = cap - 7
        concentrated[0, 2, 1] = 7
        for m in plan.measured:
            names = plan.names(m)
            (counts,) = TableCounter(schema, concentrated).marginals([names])
            check_exact(dataclasses.replace(plan, measured=(m,)), counts)


# --- who gets which noise ---------------------------------------------------------------------------


def test_every_row_gets_its_own_multiple_of_the_noise():
    generator = np.random.default_rng(1)
    schema = qs.Schema.of(a=3, b=2, c=2)
    first = IntegerStrategy(
        (3, 2),
        (
            ((1,), Matrix(np.array([[1, -1], [1, 1]]))),
            ((0,), Matrix(np.array([[1, -1, 0], [0, 1, -1], [1, 1, 1]]))),
        ),
        generator.integers(1, 50, (2, 3)),
    )
    second = IntegerStrategy((2,), (((0,), Matrix(np.array([[1, -1], [2, -2]]))),), np.array([3, 7]))
    plan = planned(schema, [((2,), second), ((0, 1), first)], 100, variance=Fraction(7, 3))
    noise = Telltale(1)
    ((_, marks),) = measure_table(plan, TableCounter(schema, np.zeros(schema.sizes)), noise)
    assert marks.shape == (2, 2, 3)
    for i, j, k in np.ndindex(2, 2, 3):
        expected = Fraction(7, 3) * int(second.multipliers[i]) * int(first.multipliers[j, k])
        assert noise.variances[marks[i, j, k]] == expected


def test_every_number_has_noise_of_its_own():
    """No draw is used twice: the draws are numbered, and every released number shows another."""

    class Numbering:
        distribution, description, drawn = DISTRIBUTIONS["rounded"], "", 0

        def draw(self, variance, size):
            self.drawn += size
            return np.arange(self.drawn - size, self.drawn)

    schema = qs.Schema.of(a=4, b=3, c=2)
    workload = qs.all_kway(schema, [1, 2, 3], "prefix") + qs.marginals(schema, 3)
    for solver in ("optimal", "structured"):
        plan = whole(qs.plan(workload, qs.PrivacyCost(1.0), solver=solver, **UNIFORM))
        noise = Numbering()
        answers = dict(measure_table(plan, TableCounter(schema, np.zeros(schema.sizes)), noise))
        shown = np.concatenate([a.ravel() for a in answers.values()])
        assert sorted(shown.tolist()) == list(range(noise.drawn))


def test_noise_too_large_for_a_word_is_refused(refuses):
    class Wild:
        distribution = DISTRIBUTIONS["rounded"]
        description = ""

        def __init__(self, drawn):
            self.drawn = drawn

        def draw(self, variance, size):
            return np.full(size, self.drawn)

    plan = one_factor([[2**20, 1]], 2**20)
    counter = TableCounter(plan.schema, np.array([2**20, 0]))
    for sign in (1, -1):
        with refuses(PrivacyError, ValueError, "exceeds 64 bits"):
            list(measure_table(plan, counter, Wild(sign * WORD)))
        ((_, answers),) = measure_table(plan, counter, Wild(sign * (WORD - 1)))
        assert answers.tolist() == [2**40 + sign * (WORD - 1)]


# --- which tables are measured, and what is counted ----------------------------------------------


# --- what is refused --------------------------------------------------------------------------------


class Watched(TableCounter):
    """A counter that says what was asked of it."""

    def __init__(self, schema, counts):
        super().__init__(schema, counts)
        self.asked = []

    def records(self):
        self.asked.append("records")
        return super().records()

    def marginals(self, sets):
        self.asked.append("marginals")
        yield from super().marginals(sets)


@pytest.fixture
def prefixes():
    schema = qs.Schema.of(a=3, b=2)
    return qs.plan(qs.all_kway(schema, [1, 2], "prefix"), qs.PrivacyCost(1.0), **UNIFORM)


def test_nothing_is_counted_before_the_budget_is_checked(prefixes, refuses):
    plan = whole(prefixes)
    greedy = tuple(dataclasses.replace(m, variance=m.variance / 2) for m in plan.measured)
    counter = Watched(plan.schema, np.ones(plan.schema.sizes))
    with refuses(PrivacyError, ValueError, "more than"):
        next(measure_table(dataclasses.replace(plan, measured=greedy), counter, Telltale(0)))
    assert not counter.asked


def test_a_table_above_the_cap_is_refused_without_showing_its_size(prefixes, refuses):
    plan = whole(prefixes, max_records=41)
    counts = np.full((3, 2), 7)
    counter = Watched(plan.schema, counts)
    with pytest.raises(DataError) as caught:
        list(measure_table(plan, counter, Telltale(0)))
    assert "max_records = 41" in str(caught.value)
    assert "42" not in str(caught.value)
    assert counter.asked == ["records"]
    counts[0, 0] -= 1  # just at the cap
    assert len(list(measure_table(plan, TableCounter(plan.schema, counts), Telltale(0)))) == 4


@pytest.mark.parametrize(
    "change",
    [
        lambda t: t * 2,  # rows came in while the table was read
        lambda t: t // 2,
        lambda t: t.astype(float),
        lambda t: t.astype(np.int32),
        lambda t: t.astype(np.uint64),
        lambda t: t.T,
        lambda t: t.reshape(-1),
        lambda t: t - np.eye(3, 2, dtype=np.int64) * 50 + np.eye(3, 2, k=1, dtype=np.int64) * 50,
        np.ma.array,
    ],
    ids=["more", "fewer", "floats", "narrow", "unsigned", "turned", "flat", "negative", "masked"],
)
def test_counts_that_do_not_add_up_are_refused(prefixes, change, refuses):
    plan = whole(prefixes)

    class Changing(TableCounter):
        def marginals(self, sets):
            for table in super().marginals(sets):
                yield change(table)

    counter = Changing(plan.schema, np.arange(6).reshape(3, 2) + 1)
    with refuses(DataError, ValueError, "inconsistent"):
        list(measure_table(plan, counter, Telltale(0)))


def test_every_set_is_measured_once_and_only_maximal_ones_are_counted():
    schema = qs.Schema.of(a=3, b=2, c=2)
    plan = whole(qs.plan(qs.marginals(schema, [0, 1, 2]), qs.PrivacyCost(1.0)))
    asked = []

    class Asked(TableCounter):
        def marginals(self, sets):
            asked.extend(sets)
            return super().marginals(sets)

    numbers = [n for n, _ in measure_table(plan, Asked(schema, np.ones(schema.sizes)), Telltale(0))]
    assert sorted(numbers) == list(range(len(plan.measured)))
    assert sorted(asked) == [("a", "b"), ("a", "c"), ("b", "c")]


@pytest.mark.parametrize("records", [0, 1])
def test_empty_tables_attributes_of_one_value_and_totals(records):
    schema = qs.Schema.of(a=1, b=3)
    counts = np.zeros((1, 3), dtype=np.int64)
    counts[0, 0] = records
    for workload in (
        qs.marginals(schema, [0, 1, 2]),
        qs.marginals(schema, 0),
        qs.queries(schema, a="prefix"),
    ):
        plan = whole(qs.plan(workload, qs.PrivacyCost(1.0)))
        answers = dict(measure_table(plan, TableCounter(schema, counts), Telltale(0)))
        for number, m in enumerate(plan.measured):
            assert 0 not in m.attributes, "an attribute of one value has nothing of its own to tell"
            if not m.attributes:
                ((_, multiple),) = plan.strategies[m.blocks[0][1]].factors
                assert answers[number].tolist() == [records * int(multiple.entries[0, 0])]


def test_the_total_is_handed_out_only_where_it_is_public(prefixes):
    counter = Watched(prefixes.workload.schema, np.ones((3, 2)))
    for neighbours, expected in (("add_remove", None), ("replace_one", 6)):
        assert not counter.asked
        budget = qs.PrivacyCost(1.0, neighbours=neighbours)
        phases = Phases(prefixes.workload.schema, budget, counter, Telltale(0), 100)
        assert phases.public_total() == expected


def test_noise_does_not_depend_on_the_table(prefixes):
    """The same draws are asked for, in the same order, whatever the table holds."""

    class Logged(Telltale):
        def __init__(self):
            super().__init__(0)
            self.log = []

        def draw(self, variance, size):
            self.log.append((variance, size))
            return super().draw(variance, size)

    plan = whole(prefixes)
    logs = []
    for counts in (*units(plan.schema), random_counts(plan.schema, 3), np.zeros((3, 2))):
        noise = Logged()
        order = [n for n, _ in measure_table(plan, TableCounter(plan.schema, counts), noise)]
        logs.append((order, noise.log))
    assert all(log == logs[0] for log in logs)

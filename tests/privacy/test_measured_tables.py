"""Which tables are measured, and what is counted: the budget is checked first, and counts must add up."""

import dataclasses

import numpy as np
import pytest
from tests.builders import UNIFORM
from tests.release.tables import TableCounter, Telltale, random_counts, units, whole

import querysmasher as qs
from querysmasher.errors import DataError, PrivacyError
from querysmasher.privacy.measurement import measure_table
from querysmasher.privacy.phases import Phases

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

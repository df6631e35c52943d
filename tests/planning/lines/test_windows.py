"""Ranges of given lengths on a line: bounds against plans with matrices, and how close plans come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.planning.lines.filters import length_spectrum, window_bound
from querysmasher.privacy.factors import Reflection
from tests.builders import COST
from tests.profiles import fewer


def moving(schema, lengths, weights=None):
    """All ranges of some lengths."""
    size = schema["a"].size
    first = np.concatenate([np.arange(size - length + 1) for length in lengths])
    last = first + np.repeat(lengths, [size - length + 1 for length in lengths]) - 1
    return qs.queries(schema, a=qs.ranges(schema, "a", first, last, weights=weights))


@fewer(40)
@given(st.data())
def test_the_bound_is_below_every_plan(data):
    size = data.draw(st.integers(2, 30))
    schema = qs.Schema.of(a=size)
    lengths = data.draw(st.lists(st.integers(1, size // 2), min_size=1, max_size=3, unique=True))
    count = sum(size - length + 1 for length in lengths)
    weights = np.array(data.draw(st.lists(st.floats(0.5, 2), min_size=count, max_size=count)))
    even = data.draw(st.sampled_from([0.0, 0.3]))
    workload = moving(schema, lengths, weights)
    asked = [(group.families[0], group.weight) for group in workload]
    bound = window_bound(size, asked, even)
    if even:
        workload = workload + even * qs.queries(schema, a="identity")
    assert 0 < bound <= qs.plan(workload, COST, centering="uniform").weighted_loss * (1 + 1e-6)


@given(st.integers(2, 20), st.integers(1, 20))
def test_ranges_reflected_at_the_ends_are_a_filter(size, length):
    """Every position once: those inside, and those past an end, of which the outermost may count half."""
    length = min(length, size)
    rows, weights = [], []
    for centre in np.arange(0, size + 0.5) if length % 2 == 0 else np.arange(0.5, size):
        row = np.zeros(size)
        for cell in np.arange(centre - length / 2, centre + length / 2).astype(int).tolist():
            row[-1 - cell if cell < 0 else 2 * size - 1 - cell if cell >= size else cell] += 1
        rows.append(row)
        weights.append(0.5 if centre in {0, size} else 1.0)
    gram = (np.array(rows).T * weights) @ np.array(rows)
    schema = qs.Schema.of(a=size)
    ranges = moving(schema, [length], np.full(size - length + 1, size / (size - length + 1)))
    spectrum = length_spectrum(size, [(ranges.groups[0].families[0], 1.0)])
    reflection = Reflection("cosine", size)
    np.testing.assert_allclose(
        reflection.apply(reflection.kernel(spectrum), np.eye(reflection.size)), gram, atol=1e-9 * length**2
    )


@pytest.mark.slow
@pytest.mark.parametrize(("size", "lengths", "most"), [(2_048, [32], 2.41), (20_000, [7, 30], 2.25)])
def test_moving_sums_are_nearly_optimal(size, lengths, most):
    plan = qs.plan(moving(qs.Schema.of(a=size), lengths), COST)
    assert plan.rmse <= most
    assert plan.gap <= 0.01

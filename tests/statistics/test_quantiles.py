"""Quantiles against a search over a fine grid of the band of the distribution function."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.statistics.quantiles import OPEN
from querysmasher.statistics.ratios import INTERPOLATED, MIDPOINTS
from tests.statistics.dense import Dense, exact
from tests.strategies import integer_arrays

EDGES = np.array([0.0, 1, 3, 4, 8])
SCHEMA = qs.Schema([qs.Categorical("g", ["x", "y"]), qs.Binned("b", edges=EDGES.tolist())])
VALUES = [-3, 0, 2.5, 10]
STEPS = qs.Schema([qs.Categorical("g", ["x", "y"]), qs.Ordinal("b", VALUES)])


@st.composite
def noisy(draw, schema):
    """Counts that may be far below their noise, even negative."""
    counts = draw(integer_arrays((8,), -4, 30))
    root = draw(integer_arrays((8, 2), -2, 2))
    return Dense(schema, counts, 4 * np.eye(8) + root @ root.T)


def band(release, group, points, p, reach):
    """g and reach × its standard error at any points, by rows over all cells."""
    inside = np.clip((points[:, None] - EDGES[:-1]) / np.diff(EDGES), 0, 1) - p
    rows = np.zeros((len(points), 2, 4))
    rows[:, group] = inside
    rows = rows.reshape(len(points), 8)
    variance = np.einsum("ij,jk,ik->i", rows, release.cell_covariance, rows)
    return rows @ release.cells, reach * np.sqrt(variance)


@given(noisy(SCHEMA), st.sampled_from([0.1, 0.5, 0.9]), st.sampled_from([0.5, 0.95]))
def test_intervals_within_bins(release, p, level):
    """The interval is the hull of all x that the data do not reject."""
    found = release.quantile("b", p, by="g", assume="midpoint")
    low, high = found.interval(level)
    grid = np.linspace(0, 8, 801)
    for group in range(2):
        g, s = band(release, group, grid, p, found.reach(level))
        above, below = np.flatnonzero(g + s >= 0), np.flatnonzero(g - s < 0)
        first = grid[above[0]] if above.size else 8.0
        last = grid[below[-1]] if below.size else 0.0
        assert abs(low[group] - first) <= 0.0101
        assert abs(high[group] - last) <= 0.0101
        if release.cells.reshape(2, 4)[group].sum() > 0:
            assert low[group] - 1e-9 <= found.values[group] <= high[group] + 1e-9


@given(noisy(STEPS), st.sampled_from([0.1, 0.5, 0.9]))
def test_intervals_of_separate_values(release, p):
    found = release.quantile("b", p, by="g")
    low, high = found.interval(0.9)
    for group in range(2):
        rows = np.zeros((4, 2, 4))
        rows[:, group] = np.tri(4) - p
        rows = rows.reshape(4, 8)
        g = rows @ release.cells
        s = found.reach(0.9) * np.sqrt(np.diagonal(rows @ release.cell_covariance @ rows.T))
        # a value is possible if F up to it may reach p D, and F before it may not
        possible = [k for k in range(4) if g[k] + s[k] >= 0 and (k == 0 or g[k - 1] - s[k - 1] < 0)]
        if possible:
            assert low[group] <= VALUES[possible[0]]
            assert high[group] >= VALUES[possible[-1]]
        assert {low[group], high[group]} <= {*VALUES}


@given(integer_arrays((8,), 0, 9).filter(lambda c: c[:4].any() and c[4:].any()))
def test_quantiles_of_exact_counts(counts):
    """Without noise: the usual quantiles, inverse of the distribution function."""
    found = exact(STEPS, counts).quantile("b", [0.2, 0.5, 0.77], by="g")
    for group in range(2):
        people = np.repeat(VALUES, counts.reshape(2, 4)[group])
        expected = np.quantile(people, [0.2, 0.5, 0.77], method="inverted_cdf")
        np.testing.assert_array_equal(found.values.reshape(2, 3)[group], expected)
    assert (found.std == 0).all()
    bins = exact(SCHEMA, counts).quantile("b", [0.2, 0.5, 0.77], by="g")
    for group in range(2):
        F = np.concatenate([[0], counts.reshape(2, 4)[group].cumsum()])
        for p, x in zip([0.2, 0.5, 0.77], bins.values.reshape(2, 3)[group], strict=True):
            assert np.interp(x, EDGES, F) == pytest.approx(p * F[-1], abs=1e-9)


INTEGERS = qs.Schema([qs.Binned("b", edges=[0, 1, 4, 10, 12], step=1), qs.Categorical("g", ["x", "y"])])
IN_BINS = [[0], [1, 2, 3], [4, 5, 6, 7, 8, 9], [10, 11, 12]]


@given(integer_arrays((8,), 0, 9).filter(lambda c: c[::2].any() and c[1::2].any()))
def test_integers_in_bins_have_no_bias(counts):
    """Where records are spread evenly over the integers of each bin, all figures are those of the records."""
    even = 6 * counts.reshape(4, 2)  # a multiple of all sizes of bins
    release = exact(INTEGERS, even.ravel())
    probabilities = [0.01, 0.2, 0.5, 0.77, 0.99]
    quantiles = release.quantile("b", probabilities, by="g", assume="midpoint").values.reshape(2, 5)
    means, totals = (ask("b", by="g", assume="midpoint").values for ask in (release.mean, release.total))
    for group in range(2):
        numbers = np.concatenate(
            [np.repeat(own, n // len(own)) for own, n in zip(IN_BINS, even[:, group], strict=True)]
        )
        expected = np.quantile(numbers, probabilities, method="inverted_cdf")
        np.testing.assert_array_equal(quantiles[group], expected)
        assert means[group] == pytest.approx(numbers.mean())
        assert totals[group] == pytest.approx(numbers.sum())


@given(noisy(SCHEMA), st.sampled_from([None, 1.0]), st.sampled_from([0.1, 0.5, 0.9]))
def test_open_ended_bins_are_bins_without_an_end(release, step, p):
    """Their intervals are those with far ends, of any length; the quantiles of other bins are the same."""
    made = []
    for far in (np.inf, 1e4):
        edges = [-far, 1, 3, 4, far]
        schema = qs.Schema([SCHEMA["g"], qs.Binned("b", edges=edges, step=step)])
        dense = Dense(schema, release.cells, release.cell_covariance)
        made.append(dense.quantile("b", p, by="g"))
        made.append(dense.difference(made[-1], dense.quantile("b", 0.5)))
    found, difference, expected, other = made
    assert OPEN in found.note
    assert OPEN not in expected.note
    for figures, reference in ((found, expected), (difference, other)):
        low, high = reference.interval(0.9)
        low, high = np.where(low < -5000, -np.inf, low), np.where(high > 5000, np.inf, high)
        ends = np.array(figures.interval(0.9))
        bounded = np.isfinite(ends).all(axis=0) | (figures is found)
        np.testing.assert_array_equal(ends[:, bounded], np.array([low, high])[:, bounded])
        assert np.all(ends[0] <= low)  # also where the difference of two quantiles in open bins is unbounded
        assert np.all(high <= ends[1])
    inner = (found.values > 1) & (found.values < 4)
    np.testing.assert_allclose(found.values[inner], expected.values[inner], rtol=1e-9)
    known = np.isfinite(found.values)
    assert np.all((found.values[known] >= 1 - (step or 0)) & (found.values[known] <= 4))
    assert not np.any(found.reliable & ((expected.low < -5000) | (expected.high > 5000)))


@given(st.data())
def test_intervals_cover_wherever_integers_lie_in_bins(data):
    """Without noise, intervals reach from all at the lowest integers of bins to all at the highest."""
    counts = data.draw(integer_arrays((8,), 0, 4).filter(lambda c: c[::2].any() and c[1::2].any()))
    release = exact(INTEGERS, counts)
    numbers = [
        sorted(data.draw(st.lists(st.sampled_from(own), min_size=n, max_size=n)))
        for own, n in zip(IN_BINS, counts.reshape(4, 2)[:, 0].tolist(), strict=True)
    ]
    records = np.concatenate(numbers)
    for found, truth in (
        (release.mean("b", where="g == 'x'"), records.mean()),
        (release.total("b", where="g == 'x'"), records.sum()),
        (release.quantile("b", 0.5, where="g == 'x'"), np.quantile(records, 0.5, method="inverted_cdf")),
    ):
        low, high = found.interval(0.5)
        assert low - 1e-9 <= truth <= high + 1e-9
        assert found.low - 1e-9 <= found.values <= found.high + 1e-9
    lowest = np.repeat([0, 1, 4, 10], counts.reshape(4, 2)[:, 0])
    highest = np.repeat([0, 3, 9, 12], counts.reshape(4, 2)[:, 0])
    mean = release.mean("b", where="g == 'x'")
    np.testing.assert_allclose([mean.low[0], mean.high[0]], [lowest.mean(), highest.mean()])
    assert "In 'b', numbers are rounded to multiples of 1 from 0." in mean.note


@given(
    integer_arrays((8,), 20, 60), integer_arrays((8, 2), -2, 2), st.sampled_from(["b < 4", "g == 'y'", None])
)
def test_joint_errors_of_quantiles(counts, root, where):
    """Correlations are those of the derivatives of the quantiles by the cells."""
    release = Dense(SCHEMA, counts, np.eye(8) + root @ root.T)
    by = None if where == "g == 'y'" else "g"

    def quantiles(cells):
        kept = cells.reshape(2, 4) * ([1, 1, 1, where != "b < 4"])
        F = np.concatenate([np.zeros((2, 1)), kept.cumsum(axis=1)], axis=1)
        found = [np.interp(np.array([0.2, 0.5, 0.9]) * f[-1], f, EDGES) for f in (F if by else F[1:])]
        return np.concatenate(found)

    step = 1e-6
    J = np.array(
        [(quantiles(counts + step * e) - quantiles(counts - step * e)) / (2 * step) for e in np.eye(8)]
    ).T
    expected = J @ release.cell_covariance @ J.T
    found = release.quantile("b", [0.2, 0.5, 0.9], by=by, where=where)
    joint = found.covariance()
    np.testing.assert_allclose(np.sqrt(np.diagonal(joint)), found.std, rtol=1e-9)
    scale, own = np.sqrt(np.diagonal(expected)), found.std
    np.testing.assert_allclose(joint / np.outer(own, own), expected / np.outer(scale, scale), atol=1e-3)


def test_columns_and_words():
    release = Dense(SCHEMA, np.full(8, 50), np.eye(8))
    found = release.quantile("b", [0.1, 0.9], by="g")
    frame = found.to_frame("pandas")
    assert frame["g"].tolist() == ["x", "x", "y", "y"]
    assert frame["probability"].tolist() == [0.1, 0.9, 0.1, 0.9]
    assert INTERPOLATED in repr(found)
    middle = release.quantile("b", 0.5, bins="midpoints")
    assert MIDPOINTS in repr(middle)
    assert middle.value in (0.5, 2, 3.5, 6)
    assert found[1].about == {"g": "x", "probability": 0.9}

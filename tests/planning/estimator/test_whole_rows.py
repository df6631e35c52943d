"""Whole measurements on several attribute sets: the variances and answers of dense least squares."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import OutsideMeasuredSpaceError
from querysmasher.planning.centre import uniform
from querysmasher.planning.estimator.estimator import Estimator
from querysmasher.planning.estimator.whole import CombinedEstimator
from querysmasher.planning.solution import Measured
from tests.planning.estimator.test_combination import over_cells, whole, whole_rows, wholes
from tests.profiles import fewer
from tests.reference import marginal_map, query_rows
from tests.strategies import schemas, workloads

KNOWN = 1e-9
"""A noise variance that stands for none."""


def estimator_of(schema, own, total, public_total):
    measured = {} if total is None else {(): (Measured((), (), total, 1.0),)}
    return CombinedEstimator(Estimator(schema, uniform(schema), [], measured, public_total), own)


@st.composite
def several(draw, schema):
    """Some whole measurements, and the total: unknown, measured or public."""
    own = draw(st.lists(wholes(schema), min_size=1, max_size=3))
    total, public = draw(st.sampled_from([(None, False), (0.7, False), (None, True)]))
    cells = math.prod(schema.sizes)
    rows = [whole_rows(schema, one) for one in own]
    noise = [np.full(len(one.rows), one.variance) for one in own]
    if total is not None or public:
        rows.append(np.ones((1, cells)))
        noise.append(np.array([KNOWN if public else total]))
    return estimator_of(schema, own, total, public), own, np.concatenate(rows), np.concatenate(noise)


def total_of(estimator, answers):
    """The estimated residuals: nothing but the total, the last answer, if that is known."""
    known = estimator.public_total or () in estimator.measured
    return lambda attributes: np.array(answers[-1]) if known and not attributes else None


def best_coefficients(queries, rows, noise):
    """Those of the best linear unbiased estimates, or None where a query is not in the span."""
    scaled = rows / np.sqrt(noise)[:, None]
    found = queries @ np.linalg.pinv(scaled, rcond=1e-10) / np.sqrt(noise)
    return None if np.abs(found @ rows - queries).max() > 1e-6 * np.abs(queries).max() else found


@fewer(40)
@given(st.data())
def test_answers_are_those_of_dense_generalised_least_squares(data):
    schema = data.draw(schemas(max_attributes=3, max_size=4, max_cells=36))
    estimator, own, rows, noise = data.draw(several(schema))
    one = data.draw(st.sampled_from(own))
    names = [schema.names[a] for a in one.attributes]
    later = qs.linear(schema, names, over_cells(one).reshape(len(one.rows), -1))
    other = data.draw(workloads(st.just(schema), max_groups=1))
    answers, whole_count = np.arange(1.0, len(rows) + 1), sum(len(one.rows) for one in own)
    for group in itertools.chain(later, other):
        asked = qs.Workload(schema, (group,))
        queries = query_rows(asked)[0]
        assume(queries.any())
        best = best_coefficients(queries, rows, noise)
        if best is None:
            with pytest.raises(OutsideMeasuredSpaceError, match="cannot be answered"):
                estimator.variances(group)
            continue
        expected = (best**2) @ np.where(noise == KNOWN, 0.0, noise)
        found = estimator.variances(group).ravel()
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6 * noise.max())
        places = tuple(sorted(schema.positions(group.attributes)))
        table = estimator.table(places, total_of(estimator, answers), lambda: answers[:whole_count])
        marginal = np.linalg.lstsq(marginal_map(schema, places).T, queries.T, rcond=None)[0].T
        scale = np.abs(best) @ answers + 1
        assert np.abs(marginal @ table.ravel() - best @ answers).max() <= 1e-5 * scale.max()


def test_rare_combinations_are_seen_beside_the_total():
    """One cell of 10^12 is a query of its own, and not the total's."""
    schema = qs.Schema.of(a=1_000, b=1_000, c=1_000, d=1_000)
    maps = (np.arange(1_000) == 3).astype(int)
    rows = np.full((1, 2, 2, 2, 2), -0.5)
    rows[0, 1, 1, 1, 1] = 0.5
    one = whole((0, 1, 2, 3), (maps, maps, maps, maps), rows, 1.0)
    estimator = estimator_of(schema, [one], 4.0, False)
    (asked,) = qs.where(schema, "a == 3 and b == 3 and c == 3 and d == 3")
    assert estimator.variances(asked).item() == pytest.approx(1 + 4 / 4)
    for words in ("a == 3 and b == 3 and c == 3 and d == 4", "a == 3 and b == 3 and c == 3"):
        with pytest.raises(OutsideMeasuredSpaceError):
            estimator.variances(qs.where(schema, words).groups[0])

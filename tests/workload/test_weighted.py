"""Families with other weights: the same queries, and the Gram matrix of the definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.workload.families import Circular, by_length
from tests.strategies import attributes, families


@given(st.data())
def test_the_weighted_gram_matrix_is_that_of_the_weighted_rows(data):
    attribute = data.draw(attributes("a", 7))
    family = data.draw(families(attribute))
    own = st.lists(st.floats(1e-3, 1e3), min_size=family.rows, max_size=family.rows)
    u = np.array(data.draw(own))
    again = family.reweighted(u)
    W = family.matrix()
    np.testing.assert_allclose(again.gram(), W.T @ (u[:, None] * W), rtol=1e-9, atol=1e-12 * u.sum())
    np.testing.assert_array_equal(again.matrix(), W)
    assert again.labels([attribute]) == family.labels([attribute])
    assert (again.rows, again.closed_form, str(again)) == (family.rows, family.closed_form, str(family))


@given(st.integers(1, 7).flatmap(lambda n: st.lists(st.floats(1e-3, 1e3), min_size=n, max_size=n)))
def test_circular_ranges_weighed_by_length_look_the_same_from_every_value(lengths):
    family = Circular((len(lengths),))
    u = np.tile(lengths, len(lengths))
    again = family.reweighted(u)
    W = family.matrix()
    assert again.looks_alike
    np.testing.assert_allclose(again.gram(), W.T @ (u[:, None] * W), rtol=1e-9)
    np.testing.assert_allclose(by_length(u), u, rtol=1e-12)
    uneven = u.copy()
    uneven[0] *= 2
    assert family.reweighted(uneven).looks_alike == (len(lengths) == 1)


def test_weights_distinguish_families():
    (family,) = qs.queries(qs.Schema.of(a=3), a="prefix").groups[0].families
    one, two = (
        family.reweighted(np.array([1.0, 2, 3])),
        family.reweighted(np.array([1.0, 2, 4])),
    )
    assert one == family.reweighted(np.array([1.0, 2, 3]))
    assert len({one, two, family}) == 3
    assert one.key != family.key
    with pytest.raises(NotImplementedError):
        one.to_json()

"""Forests with further nodes, and passes over them, against groups of values written out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from querysmasher.planning.lines.trees import WeightedTree, graduated, nested
from tests.profiles import fewer
from tests.strategies import trees


def values_of(groups):
    """The values below every node, as rows of zeros and ones."""
    return groups.nodes.sums(np.eye(groups.nodes.leaves.size))[:, groups.leaf_of]


@given(trees(), st.sampled_from([0.0, 2.0]))
def test_added_nodes_are_siblings_up_to_a_size(tree, total):
    plain = nested([tree], [1.0], total)
    rows, parents = values_of(plain), plain.nodes.parents
    expected = {tuple(row): weight for row, weight in zip(rows, plain.weights, strict=True)}
    for node in range(len(rows)):
        children = rows[parents == node]
        for size in children.sum(axis=1):
            together = tuple(children[children.sum(axis=1) <= size].sum(axis=0))
            expected.setdefault(together, 0.0)
    found = graduated(plain)
    each = [tuple(row) for row in values_of(found)]
    assert len(set(each)) == len(each)
    assert dict(zip(each, found.weights, strict=True)) == expected
    for node, above in enumerate(found.nodes.parents):
        assert above < 0 or np.all(values_of(found)[node] <= values_of(found)[above])


@fewer(50)
@given(trees(), st.data())
def test_passes_over_several_strategies_are_those_over_each(tree, data):
    groups = nested([tree], [1.0], 1.0)
    counts = np.ones(len(groups.nodes))
    own = WeightedTree(groups.nodes, counts, groups.weights)
    positive = st.lists(st.floats(0.1, 10), min_size=counts.size, max_size=counts.size)
    several = np.transpose([data.draw(positive) for _ in range(3)])
    losses, slopes = own.slopes(several)
    for column in range(3):
        alone = own.slopes(several[:, column])
        np.testing.assert_allclose(losses[column], alone[0], rtol=1e-12)
        np.testing.assert_allclose(slopes[:, column], alone[1], rtol=1e-12)

"""The noisy measurements as plain arrays: each is its matrix times a marginal, plus noise of its variance."""

import numpy as np
import pytest

import querysmasher as qs
from tests.estimate.tables import counted, frame, people


@pytest.mark.parametrize(
    "asked",
    [
        lambda s: qs.marginals(s, [1, 2]),
        lambda s: qs.all_kway(s, 2, "prefix"),
        lambda s: qs.queries(s, b="circular") + qs.affine(s, "a", "b"),
        lambda s: qs.where(s, "a < 3 and d > 1") + qs.marginals(s, 1),
    ],
)
def test_answers_are_the_matrices_times_the_marginals_plus_noise(asked):
    schema, records = people()
    release = qs.measure(qs.plan(asked(schema), qs.zCDP(0.5)), frame(schema, records), seed=3)
    scaled = []
    for one in release.to_arrays():
        exact = counted(schema, records, schema.positions(one.attributes)).ravel()
        assert one.matrix().shape == (one.answers.size, exact.size)
        noise = one.answers.ravel() - one.matrix() @ exact
        scaled.append(noise / np.sqrt(one.variances.ravel()))
    together = np.concatenate(scaled)
    assert len(together) == release.measurements
    # a chi-squared sum is outside these bounds with a probability below 1e-7
    spread = 6 * np.sqrt(2 / len(together))
    assert abs((together**2).mean() - 1) < spread
    assert abs(together.mean()) < 6 / np.sqrt(len(together))

"""The contract of integer factors: drawn ones, and those to which strategies are rounded.

Every kind has a definition, its rows in Python's integers, with which all that a factor offers is compared.
"""

from copy import deepcopy

import numpy as np

from querysmasher.privacy.factors import Reflection


def matrix_integers(factor):
    """The entries themselves."""
    return factor.entries.astype(object)


def filter_integers(factor):
    """Shifts of the kernel."""
    return shifts(factor.kernel.astype(object))


def shifts(kernel):
    """The matrix of which column c is the kernel shifted by c."""
    axes = tuple(range(kernel.ndim))
    return np.array([np.roll(kernel, cell, axes).ravel() for cell in np.ndindex(kernel.shape)]).T


def merged_integers(factor):
    """The column of every cell."""
    cells = np.ndindex(*map(len, factor.maps))
    labels = [factor.labels[tuple(m[v] for m, v in zip(factor.maps, cell, strict=True))] for cell in cells]
    return factor.matrix.astype(object)[:, labels]


def tree_integers(factor):
    """The multiplier of a node at the values below it, less its shift, for all nodes that are measured."""
    leaves = np.setdiff1d(np.arange(len(factor.parents)), factor.parents)
    rows = np.zeros((len(factor.parents), len(factor.classes)), dtype=object)
    for value, leaf in enumerate(factor.classes):
        node = leaves[leaf]
        while node >= 0:
            rows[node, value] = int(factor.multipliers[node])
            node = factor.parents[node]
    return (rows - factor.shift.astype(object)[:, None])[factor.multipliers > 0]


def crossed_integers(factor):
    """The multiplier of a group at the values in it, less its shift, for all that are measured."""
    leaves = np.arange(factor.groups.shape[1])
    rows = []
    for level in (*factor.groups, leaves):
        rows += [[int(level[leaf] == group) for leaf in factor.classes] for group in range(level.max() + 1)]
    rows = np.array(rows, dtype=object) * factor.multipliers.astype(object)[:, None]
    return (rows - factor.shift.astype(object)[:, None])[factor.multipliers > 0]


def mirrored_integers(factor):
    """Lags of the kernel, those beyond an end reflected there; more rows; a scale of every value; a shift."""
    values = range(len(factor.diagonal))
    lags = [int(t) for t in Reflection(factor.ends, len(factor.diagonal)).lags(factor.kernel)]
    rows = [[lags[abs(i - j)] for j in values] for i in values]
    if factor.ends != "circular":
        sign, step = (-1, 2) if factor.ends == "range" else (1, 1)
        rows = [[rows[i][j] + sign * lags[i + j + step] for j in values] for i in values]
    rows = np.array([*rows, *factor.extra.tolist()], dtype=object)
    return rows * factor.diagonal.astype(object) - factor.shift.astype(object)[:, None]


def coarse_integers(factor):
    """The inner column of every value's class."""
    return integer_rows(factor.inner)[:, factor.classes]


def difference_integers(factor):
    """Each value less the next, times the step."""
    return -factor.step * np.diff(np.eye(factor.size, dtype=int).astype(object), axis=0)


INTEGERS = {
    "matrix": matrix_integers,
    "few": matrix_integers,
    "filter": filter_integers,
    "merged": merged_integers,
    "tree": tree_integers,
    "crossed": crossed_integers,
    "mirrored": mirrored_integers,
    "coarse": coarse_integers,
    "differences": difference_integers,
}
"""The definition of every kind of factor."""


def integer_rows(factor):
    """The rows of a factor by the definition of its kind."""
    return INTEGERS[factor.kind](factor)


def check_proof(factor, records, cell):
    """What the privacy proof rests on is exact: for all records in one cell, and spread over all."""
    dense = integer_rows(factor)
    assert (factor.rows, factor.cells) == dense.shape
    largest = max(abs(int(b)) for b in dense.ravel())
    assert factor.largest == largest or (
        factor.kind in ("mirrored", "tree", "crossed", "coarse") and factor.largest > largest
    )
    assert factor.squared_column() == max(sum(int(b) ** 2 for b in column) for column in dense.T)
    tables = np.zeros((factor.cells, 2), dtype=np.int64)
    tables[cell, 0] = records
    tables[:, 1] = records // factor.cells
    for given_as in (tables, tables.astype(float)):
        answers = factor.exact_answers(given_as, records)
        expected = (dense @ tables.astype(object)).tolist()
        assert [[int(x) for x in row] for row in answers] == expected


def check_after_noise(factor):
    """What turns noisy answers into estimates, and predicts their errors."""
    real = integer_rows(factor).astype(float)
    scale = max(1.0, np.abs(real).max())
    np.testing.assert_allclose(factor.written_out(), real, atol=1e-9 * scale)
    answers = np.arange(1.0, 2 * factor.rows + 1).reshape(factor.rows, 2)
    np.testing.assert_allclose(factor.transposed(answers), real.T @ answers, atol=1e-6 * scale)
    weights = np.linspace(0.5, 2, factor.rows)
    if not factor.stands_alone:
        squares = factor.weighted_squares(weights)
        np.testing.assert_allclose(squares, weights @ real**2, rtol=1e-14)


def check_storage(factor):
    """It comes back from data, which are copied: or what was accounted might not be what is measured."""
    given = deepcopy(factor.to_data())
    again = type(factor).from_data(given)
    for array in arrays_in(given):
        array[...] = 1000 - array
    np.testing.assert_array_equal(again.written_out(), factor.written_out())
    assert again.squared_column() == factor.squared_column()
    assert not any(kept.flags.writeable for kept in arrays_in(again.to_data()) if kept.size)
    assert not factor.fits((factor.cells + 1,))
    assert not factor.fits((factor.cells, 2))


def arrays_in(data):
    """The arrays of a factor's data, also those in lists and of factors inside."""
    for value in data.values():
        if isinstance(value, dict):
            yield from arrays_in(value)
        yield from (one for one in (value if isinstance(value, list) else [value]) if hasattr(one, "dtype"))

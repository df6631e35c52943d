"""The paper's algorithm, dense and obvious: everything written out on the whole domain.

Nothing here is fast, and nothing here uses the planner's short cuts: queries are rows over the full
data vector, projections are explicit Kronecker products, a plan is one stacked matrix of measured rows.
"""

import itertools
import math
from functools import reduce

import numpy as np
import pytest
import scipy.linalg

from querysmasher.planning.centre import Centre
from tests.semidefinite import Program


def kron(matrices):
    """The Kronecker product of any number of matrices."""
    return reduce(np.kron, matrices, np.ones((1, 1)))


def subsets(places):
    """All subsets, as increasing tuples."""
    places = sorted(places)
    return [s for k in range(len(places) + 1) for s in itertools.combinations(places, k)]


# --- queries on the whole domain ---------------------------------------------------------------


def group_rows(group, schema):
    """The queries of a group as rows over the whole domain, and their weights."""
    rows = kron([family.matrix() for family in group.families])
    weights = np.full(1, group.weight)
    for family in group.families:
        weights = np.kron(weights, np.ones(family.rows) if family.weights is None else family.weights)
    places = [schema.position(name) for name in group.attributes]
    tensor = rows.reshape(len(rows), *(schema.sizes[p] for p in places))
    tensor = tensor.transpose(0, *(1 + np.argsort(places)))
    spread = [n if p in places else 1 for p, n in enumerate(schema.sizes)]
    full = np.broadcast_to(tensor.reshape(len(rows), *spread), (len(rows), *schema.sizes))
    return full.reshape(len(rows), -1), weights


def query_rows(workload):
    """All queries of a workload as rows over the whole domain, and their weights."""
    each = [group_rows(group, workload.schema) for group in workload]
    return np.concatenate([rows for rows, _ in each]), np.concatenate([weights for _, weights in each])


def marginal_map(schema, kept):
    """The matrix that takes the data vector to the marginal on `kept`."""
    return kron([np.eye(n) if p in kept else np.ones((1, n)) for p, n in enumerate(schema.sizes)])


def split_map(schema, centres, kept):
    """The matrix that takes a row over the whole domain to its part over the marginal on `kept`."""
    return kron(
        [
            np.eye(n) - np.outer(centres[p].weights, np.ones(n)) if p in kept else centres[p].weights[:, None]
            for p, n in enumerate(schema.sizes)
        ]
    )


def subworkload_grams(workload, centres):
    """The Gram matrix WᵀDW of every attribute set's share, over the set's marginal."""
    rows, weights = query_rows(workload)
    scale = np.abs(rows).max()
    result = {}
    for kept in subsets(range(len(workload.schema))):
        part = rows @ split_map(workload.schema, centres, kept)
        if np.abs(part).max() > 1e-10 * scale:
            result[kept] = (part.T * weights) @ part
    return result


# --- sums of Kronecker products ----------------------------------------------------------------


def on_axes(shape, pieces):
    """The Kronecker product of square matrices that stand on given axes, in the order of the axes."""
    result, order = np.ones(()), []
    for axes, gram in pieces:
        sizes = [shape[a] for a in axes]
        result = np.multiply.outer(result, gram.reshape(*sizes, *sizes))
        order += [(0, a) for a in axes] + [(1, a) for a in axes]
    cells = math.prod(shape)
    places = [order.index((side, axis)) for side in (0, 1) for axis in range(len(shape))]
    return result.transpose(places).reshape(cells, cells)


def part_gram(part):
    """The Gram matrix of a part, thin or not."""
    return part.content.T @ part.content if part.thin else part.content


def terms_gram(shape, terms):
    """The Gram matrix of a sum of terms."""
    return sum(
        term.coefficient * on_axes(shape, [(piece.axes, part_gram(piece.part)) for piece in term.pieces])
        for term in terms
    )


# --- strategies --------------------------------------------------------------------------------


def strategy_rows(strategy):
    """The rows a strategy measures, over the cells of its block."""
    return strategy.written_out()


def loss(gram, rows):
    """tr(G V†) for V = BᵀB: the sum of the variances at σ² = 1."""
    inverse = np.linalg.pinv(rows, rcond=1e-10)
    return float(np.trace(inverse.T @ gram @ inverse))


def complement(centre):
    """Orthonormal rows b with b · centre = 0: a null space by its definition."""
    _, _, vectors = np.linalg.svd(np.asarray(getattr(centre, "weights", centre))[None, :])
    return vectors[1:]


def optimal_loss(gram, residual):
    """The optimum of the paper's semidefinite program.

    min tr(G V⁻¹) over V = FᵀXF, diag V <= 1, where the rows F span the residual space.
    """
    K = residual @ gram @ residual.T
    scale = np.trace(K)
    values, vectors = np.linalg.eigh(K / scale)
    root = vectors * np.sqrt(np.maximum(values, 0))
    program = Program()
    X, T = program.symmetric(len(K)), program.symmetric(len(K))
    program.require(X.ravel(), -_squares(residual), 1.0)
    program.require_semidefinite(X, root, T)  # T >= rootᵀX⁻¹root
    return program.minimum(np.diagonal(T)) * scale


def _squares(rows):
    """The coefficients of X in bᵀXb, for each column b."""
    return np.einsum("ic,jc->cij", rows, rows).reshape(rows.shape[1], -1)


# --- a plan on the whole domain ----------------------------------------------------------------


def measured_rows(plan, measured):
    """The rows that a plan measures on one attribute set, over the set's marginal, without noise scale."""
    shape = [plan.workload.schema.sizes[a] for a in measured.attributes]
    tensor, order = np.ones(()), []
    for axes, number in measured.blocks:
        rows = strategy_rows(plan.solutions[number].strategy)
        tensor = np.multiply.outer(tensor, rows.reshape(len(rows), *(shape[a] for a in axes)))
        order += [-1, *axes]
    lead = [i for i, a in enumerate(order) if a < 0]
    tensor = tensor.transpose(lead + [order.index(a) for a in range(len(shape))])
    return tensor.reshape(-1, math.prod(shape))


def mechanism(plan):
    """All measured rows over the whole domain, each divided by the standard deviation of its noise."""
    schema = plan.workload.schema
    return np.concatenate(
        [
            measured_rows(plan, m) @ marginal_map(schema, m.attributes) / math.sqrt(m.variance)
            for m in plan.measured
        ]
    )


def privacy_cost(plan):
    """The largest ‖BΣ^(-½)(x − x')‖² over neighbours, by trying them all.

    For one record added or removed that is the definition: the largest diagonal entry of BᵀΣ⁻¹B.
    """
    columns = mechanism(plan)
    if plan.budget.neighbours == "replace_one":
        cells = columns.shape[1]
        columns = np.concatenate([columns - columns[:, [j]] for j in range(cells)], axis=1)
    return float((columns**2).sum(axis=0).max()) * plan.budget.records_per_person**2


PUBLIC = 1e-9
"""A noise variance that stands for none."""


def known_rows(plan):
    """The measured rows of noise variance one, and last the total if it is public: almost without noise."""
    rows = mechanism(plan)
    if plan.budget.unit.total_is_public:
        rows = np.concatenate([rows, np.full((1, rows.shape[1]), 1 / math.sqrt(PUBLIC))])
    return rows


def estimates(queries, rows):
    """The coefficients of the best linear unbiased estimates from rows of noise variance one, or None."""
    image = queries @ np.linalg.pinv(rows, rcond=1e-11)
    return None if np.abs(image @ rows - queries).max() > 1e-6 * np.abs(queries).max() else image


def variances(plan, workload):
    """The variances of the best linear unbiased estimates from all that is measured, by pseudo-inverse."""
    rows, _ = query_rows(workload)
    stacked = mechanism(plan)
    if plan.budget.neighbours == "replace_one":  # the total is public: known without noise
        total = np.ones((1, rows.shape[1]))
        rows = rows - rows.mean(axis=1, keepdims=True) * total
        stacked = stacked - stacked.mean(axis=1, keepdims=True) * total
    image = rows @ np.linalg.pinv(stacked, rcond=1e-10)
    outside = rows - image @ stacked
    assert np.abs(outside).max() < 1e-6 * max(1, np.abs(rows).max()), "a query outside what is measured"
    return (image**2).sum(axis=1)


def split_variances(plan, workload):
    """The variances of the sums of the parts' estimates: for any centres, and the best for uniform ones."""
    rows, _ = query_rows(workload)
    total = np.zeros(len(rows))
    measured = {m.attributes: m for m in plan.measured}
    for kept in subsets(range(len(workload.schema))):
        part = rows @ split_map(workload.schema, plan.centres, kept)
        if kept in measured:
            strategy = measured_rows(plan, measured[kept])
            image = part @ np.linalg.pinv(strategy, rcond=1e-10)
            assert np.abs(image @ strategy - part).max() < 1e-6 * max(1, np.abs(rows).max()), "not spanned"
            total += measured[kept].variance * (image**2).sum(axis=1)
        elif kept not in plan.budget.unit.known(workload.schema):
            assert np.abs(part).max() < 1e-8 * np.abs(rows).max(), "not measured"
    return total


def planned_variances(plan, workload):
    """The variances that a plan promises: of split estimates, or of the best ones if queries are whole."""
    whole = any(solution.strategy.whole for solution in plan.solutions)
    return (variances if whole else split_variances)(plan, workload)


def paper_loss(workload, cost):
    """The weighted sum of variances that the paper's algorithm reaches with an optimal solver.

    Project the queries onto every residual space, solve a semidefinite program on each, share the
    budget by the paper's formula.
    """
    sizes = workload.schema.sizes
    uniform = [Centre.uniform(n) for n in sizes]
    roots = []
    for kept, gram in subworkload_grams(workload, uniform).items():
        residual = kron([complement(uniform[p].weights) for p in kept])
        roots.append(math.sqrt(optimal_loss(gram, residual) if kept else float(gram[0, 0])))
    variances = [sum(roots) / root / cost for root in roots]
    assert math.isclose(sum(1 / v for v in variances), cost)
    return sum(v * root**2 for v, root in zip(variances, roots, strict=True))


def optimal_worst(workload, centres, unit, caps=None):
    """The least largest variance relative to targets² at cost 1, over all strategies.

    Queries are split around the centres; without any, strategies ask about the whole domain.
    With `caps`, pairs of a row's index and its largest variance at cost 1, it is the least weighted sum of
    variances instead, of queries that stay within their caps.
    """
    schema, program = workload.schema, Program()
    rows, weights = query_rows(workload)
    squares = np.concatenate(
        [np.full(g.rows, 1.0 if g.target is None else g.target.std**2) for g in workload]
    )
    variances = [[] for _ in rows]
    costs, changes, moved = [], [], []
    for kept in [range(len(schema))] if centres is None else subsets(range(len(schema))):
        parts = rows if centres is None else rows @ split_map(schema, centres, kept)
        change = unit.change(kept)
        public = unit.total_is_public
        if public and centres is None:
            parts = parts - parts.mean(axis=1, keepdims=True)
        if np.abs(parts).max() < 1e-9 or not change:
            continue
        _, values, basis = np.linalg.svd(parts, full_matrices=False)
        basis = basis[values > 1e-9 * values[0]]
        X = program.symmetric(len(basis))
        if public:  # the same pair of cells for all sets
            columns = basis @ marginal_map(schema, kept)
            first, second = np.triu_indices(columns.shape[1], 1)
            moved.append((X.ravel(), _squares(columns[:, first] - columns[:, second])))
        else:
            cost = program.variables(1)
            program.require(np.append(X.ravel(), cost), np.c_[-_squares(basis), np.ones(basis.shape[1])])
            costs.append(cost)
            changes.append(change)
        known = {}
        for number, part in enumerate(parts):
            y = basis @ part
            if np.abs(y).max() > 1e-9:
                key = tuple(np.round(np.abs(y), 10)) if len(y) == 1 else tuple(np.round(y, 10))
                if key not in known:
                    known[key] = program.variables(1, 1)
                    program.require_semidefinite(X, y[:, None], known[key])
                variances[number].append(known[key].item())
    if moved:
        squares_of_pairs = unit.records_per_person**2 * np.concatenate([s for _, s in moved], axis=1)
        program.require(np.concatenate([places for places, _ in moved]), -squares_of_pairs, 1.0)
    else:
        program.require(np.concatenate(costs), -np.array(changes), 1.0)
    if caps is not None:
        for number, cap in caps:
            if variances[number]:
                program.require(variances[number], -1.0, cap)
        own = [len(one) for one in variances]
        return program.minimum(np.concatenate(variances).astype(int), np.repeat(weights, own))
    largest = program.variables(1)
    for own, square in zip(variances, squares, strict=True):
        program.require([*own, largest.item()], [*(-1.0 for _ in own), square])
    return program.minimum(largest)


def check_variances(plan, workload):
    """Against the best estimates from all measured rows, over all cells of the schema."""
    expected = variances(plan, workload)
    np.testing.assert_allclose(plan.variances(workload), expected, rtol=1e-6)
    if workload is plan.workload:
        assert query_rows(workload)[1] @ expected == pytest.approx(plan.weighted_loss, rel=1e-6)
        assert np.sqrt(expected.mean()) == pytest.approx(plan.rmse, rel=1e-6)


def largest_ratio(plan):
    """The largest ratio of standard error to target, from the measured rows themselves."""
    stds = np.split(np.sqrt(variances(plan, plan.workload)), np.cumsum([g.rows for g in plan.workload])[:-1])
    return max(
        s.max() / g.target.std for s, g in zip(stds, plan.workload, strict=True) if g.target is not None
    )


def is_measured(workload, budget):
    """Whether something is left to measure of a workload."""
    rows, _ = query_rows(workload)
    return (np.ptp(rows, axis=1) if budget.unit.total_is_public else np.abs(rows)).max() > 1e-9


def root_bounds(rows, steps=400, close=1e-5):
    """Lower and upper bounds of the least √(loss) at unit cost for rows of weight 1, by plain iteration."""
    rows = rows[np.abs(rows).max(axis=1) > 0]
    lengths = np.linalg.norm(rows, axis=1)
    faint = lengths < 1e-7 * lengths.max(initial=0.0)
    extra = float(np.abs(rows[faint]).max(axis=1, initial=0.0).sum())  # each measured by itself
    rows = rows[~faint]
    _, values, turn = np.linalg.svd(rows, full_matrices=False)
    root = (values[:, None] * turn)[values > 1e-9 * values[0]]
    extra += float(np.abs(rows - rows @ np.linalg.pinv(root) @ root).max(axis=1).sum())
    p = np.full(rows.shape[1], 1 / rows.shape[1])
    low, high = 0.0, math.inf
    for _ in range(steps):
        left, s, _ = np.linalg.svd(root * np.sqrt(p), full_matrices=False)
        image = left.T @ root
        leverages = (image**2 / s[:, None]).sum(axis=0)
        low, high = max(low, s.sum()), min(high, math.sqrt(s.sum() * leverages.max()))
        if high < low * (1 + close):
            break
        p = np.maximum(p * (leverages / s.sum()) ** 2, 1e-30)
        p /= p.sum()
    return low, high + extra


def pair_bounds(parts, steps=400, close=1e-4, classes=None):
    """Lower and upper bounds of the least √(loss) if replacing a record costs at most one: plain iteration.

    `parts` are rows of weight 1 over the whole domain; each is measured by itself, for pairs of cells: all
    pairs, or those in the same class, if the number of records of every class is known.
    """
    roots = []
    classes = np.zeros(parts[0].shape[1], dtype=int) if classes is None else classes
    means = (classes[:, None] == classes) / np.bincount(classes)[classes]
    for rows in parts:
        _, values, turn = np.linalg.svd(rows - rows @ means, full_matrices=False)
        roots.append((values[:, None] * turn)[values > 1e-9 * values[0]])
    first, second = np.triu_indices(roots[0].shape[1], 1)
    same = classes[first] == classes[second]
    first, second = first[same], second[same]
    p = np.full(len(first), 1 / len(first))
    low, high = 0.0, math.inf
    for _ in range(steps):
        leverages, value = np.zeros(len(first)), 0.0
        for root in roots:
            differences = root[:, first] - root[:, second]
            triangle = np.linalg.qr((differences * np.sqrt(p)).T, mode="r")
            # of as many columns as pairs it is slower; the usual method sometimes does not converge
            _, s, turn = scipy.linalg.svd(triangle, lapack_driver="gesvd")
            sure = s > 1e-12 * s[0]
            leverages += ((turn[sure] @ differences) ** 2 / s[sure, None]).sum(axis=0)
            value += s.sum()
        low, high = max(low, value), min(high, math.sqrt(value * leverages.max()))
        if high < low * (1 + close):
            break
        p = np.maximum(p * (leverages / value) ** 2, 1e-30)
        p /= p.sum()
    return low, high

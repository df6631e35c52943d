"""A new kind of strategy, mechanism, objective or family needs one line in one registry."""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.errors import PlanError
from querysmasher.planning.lines import splitting
from querysmasher.planning.lines.filters import LineSolution, solve_line
from querysmasher.planning.mechanisms import MECHANISMS, Mechanism, solve_separately
from querysmasher.planning.objectives.objective import OBJECTIVES
from querysmasher.planning.solution import Solution
from querysmasher.planning.solvers import solve
from querysmasher.planning.strategies import KINDS
from querysmasher.report.words import family_words, group_words
from querysmasher.spec.workloads import read_family
from querysmasher.workload.families import ONE_ATTRIBUTE
from querysmasher.workload.family import Family, Structure
from querysmasher.workload.registry import FAMILIES, workload_from_data, workload_to_data
from tests.builders import COST, as_lines, has_lines, plan_split, python
from tests.planning.objectives.toy_objective import FAIR
from tests.planning.strategies.toy_strategy import CountAxis, StepStrategy
from tests.reference import check_variances, query_rows


def test_a_new_kind_and_a_new_mechanism_need_one_line_in_one_registry(monkeypatch, tmp_path):
    """Plan, save, measure, release and answer with a kind and a mechanism from outside the package."""
    monkeypatch.setitem(KINDS, StepStrategy.kind, StepStrategy)

    def solve_by_steps(block, tolerance):
        found = solve(block, tolerance)
        if len(block.shape) > 1:
            return found
        own = StepStrategy(*block.shape)
        rows = block.terms[0].pieces[0].part.root
        reached = math.sqrt(block.terms[0].coefficient * own.variances([((0,), rows)]).sum())
        return Solution(own, reached, found.bound, "steps")

    toy = Mechanism("steps", "Steps", "", "", "", solve_separately(lambda _: solve_by_steps))
    monkeypatch.setitem(MECHANISMS, "steps", toy)
    schema = qs.Schema.of(a=5, b=3)
    workload = qs.all_kway(schema, [1, 2], "prefix")
    plan = qs.plan(workload, COST, mechanism="steps")
    assert "steps" in {s.strategy.kind for s in plan.solutions}
    check_through_files(plan, tmp_path)


def test_a_new_objective_needs_one_line_in_one_registry(monkeypatch, tmp_path):
    """Planned, saved, measured, compared and on its page like the others."""
    monkeypatch.setitem(OBJECTIVES, FAIR.name, FAIR)
    schema = qs.Schema.of(a=5, b=3)
    tables = 9.0 * qs.queries(schema, a="prefix"), qs.queries(schema, a="identity", b="identity")
    workload, alone = sum(tables), [qs.plan(part, COST).worst_std for part in tables]

    def loss(plan):
        return max(extreme.std / least for extreme, least in zip(plan.extremes, alone, strict=True))

    plan = qs.plan(workload, COST, objective="fair")
    others = [qs.plan(workload, COST, objective=name) for name in ("mean", "worst")]
    assert plan.objective == "fair"
    assert loss(plan) < 0.99 * min(map(loss, others))
    assert loss(plan) ** 2 == pytest.approx(plan.certificate.value, rel=1e-3)
    assert plan.gap < 0.01
    assert ", within" in next(line for line in str(plan).splitlines() if "largest error" in line)
    page = plan.report(tmp_path / "plan.html").read_text("utf-8")
    assert "The largest loss of a table of this plan is certified" in page
    check_through_files(plan, tmp_path)
    compared = qs.compare(workload, COST, ["querysmasher", "residual"], objective="fair")
    assert compared.head[1] == "largest error"
    with pytest.raises(PlanError, match="mean, worst, fair"):
        qs.plan(workload, COST, objective="fear")


@pytest.mark.slow
def test_a_spec_offers_what_the_registries_hold():
    lines = [
        "from querysmasher.planning.mechanisms import MECHANISMS",
        "from querysmasher.planning.objectives.objective import OBJECTIVES",
        "from tests.planning.objectives.toy_objective import FAIR",
        "OBJECTIVES[FAIR.name] = FAIR",
        "MECHANISMS['steps'] = MECHANISMS['residual']",
        "from querysmasher.spec.sections import PlanSection",
        "chosen = PlanSection(objective='fair', mechanism='steps')",
        "print(chosen.objective, chosen.mechanism)",
    ]
    assert python("-c", "\n".join(lines), check=True).stdout.split() == ["fair", "steps"]


def check_through_files(plan, folder):
    """Save a plan, measure, save the release, and compare its answers with what was planned."""
    plan.save(folder / "x.plan")
    plan, workload = qs.Plan.load(folder / "x.plan"), plan.workload
    data = {a.name: np.arange(500) % a.size for a in workload.schema}
    release = qs.measure(plan, pa.table(data), seed=1)
    release.save(folder / "x.release")
    answers = qs.Release.load(folder / "x.release").answer(workload)
    # the noise is an integer, which adds a little to the planned variance
    assert np.all(answers.std >= np.sqrt(plan.variances(workload)) * 0.99)
    assert np.all(answers.std <= np.sqrt(plan.variances(workload)) * 1.05)
    counts = np.zeros(workload.schema.sizes)
    np.add.at(counts, tuple(data[name] for name in workload.schema.names), 1)
    truth = query_rows(workload)[0] @ counts.ravel()
    assert np.all(np.abs(answers.values - truth) < 6 * answers.std)


def test_a_new_kind_with_a_centre_of_its_own_needs_one_line_too(monkeypatch, tmp_path):
    """Its variances, its centre beside other attributes, its file and its release need no other line."""
    monkeypatch.setitem(KINDS, CountAxis.kind, CountAxis)

    def solve_by_counts(gram, **_):
        own = CountAxis(gram.size)
        return LineSolution(own, own.whole_loss(gram), solve_line(gram).bound)

    monkeypatch.setattr(splitting, "solve_line", solve_by_counts)
    schema = qs.Schema.of(a=7, b=2)
    workload = qs.queries(schema, a="prefix") + qs.queries(schema, a="range", b="identity")
    with as_lines():
        plan = plan_split(workload)
    assert "counts" in {s.strategy.kind for s in plan.solutions}
    check_variances(plan, workload)
    check_through_files(plan, tmp_path)


@dataclass(frozen=True)
class Evens(Family):
    """A toy: all values up to every second one."""

    name: ClassVar[str] = "evens"
    counts: ClassVar[str] = "the records up to every second value"
    pattern: ClassVar[str] = "{a} ≤ 2{x}"
    axes: ClassVar[int | None] = 1
    structure: ClassVar[Structure] = Structure.LINE

    @property
    def rows(self):
        return (self.cells + 1) // 2

    def _matrix(self):
        return np.tri(self.cells)[::2]

    def spans(self):
        return np.zeros(self.rows, dtype=np.int64), np.arange(0, self.cells, 2)

    def labels(self, attributes):
        return [attributes[0].up_to(attributes[0].name, place) for place in range(0, self.cells, 2)]


@pytest.mark.parametrize("large", [False, True])
def test_a_new_family_needs_one_line(monkeypatch, tmp_path, large):
    """Plans with matrices and without, files and releases ask it, and test no kinds."""
    monkeypatch.setitem(FAMILIES, Evens.name, Evens)
    schema = qs.Schema.of(a=7, b=2)
    workload = qs.queries(schema, a=Evens((7,))) + qs.queries(schema, a="identity", b="identity")
    with as_lines(5 if large else 50):
        plan = plan_split(workload)
    assert has_lines(plan) == large
    check_through_files(plan, tmp_path)


def test_a_new_family_is_asked_by_its_name(monkeypatch, tmp_path):
    """In Python, in a spec and in files; its class has its words."""
    monkeypatch.setitem(ONE_ATTRIBUTE, Evens.name, Evens)
    workload = qs.queries(qs.Schema.of(a=7), a="evens")
    assert family_words(workload) == {"evens": "the records up to every second value"}
    assert group_words(workload.groups[0]) == "a ≤ 2x"
    assert [*workload.labels()] == ["a <= 0", "a <= 2", "a <= 4", "a <= 6"]
    assert workload_from_data(workload_to_data(workload)) == workload
    assert read_family(workload.schema["a"], "evens", tmp_path) == Evens((7,))

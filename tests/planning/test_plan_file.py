"""Plans on disk: the same plan, bit for bit, or no plan."""

import io
import json
import pickle
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings

import querysmasher as qs
from querysmasher import files
from querysmasher.errors import FileError, PlanError
from querysmasher.files import write_archive
from querysmasher.planning.plan_file import check_plan, plan_to_data
from tests.builders import COST, Trap, plan_uniform
from tests.reference import is_measured
from tests.strategies import budgets, workloads


def same(one, two):
    """Check that two plans are equal to the last bit, in their fields and in their predictions."""
    assert two.workload == one.workload
    assert two.budget == one.budget
    assert two.measured == one.measured
    for name in ("weighted_loss", "gap", "solver", "centering", "tolerance", "rmse", "privacy_cost"):
        assert getattr(two, name) == getattr(one, name)
    for mine, theirs in zip(one.centres, two.centres, strict=True):
        assert mine.weights.tobytes() == theirs.weights.tobytes()
        assert mine.exact.tobytes() == theirs.exact.tobytes()
    for mine, theirs in zip(one.solutions, two.solutions, strict=True):
        assert (mine.reached, mine.bound, mine.method) == (theirs.reached, theirs.bound, theirs.method)
        assert type(mine.strategy) is type(theirs.strategy)
        assert mine.strategy.shape == theirs.strategy.shape
    assert one.variances(one.workload).tobytes() == two.variances(one.workload).tobytes()


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(workloads(), budgets)
def test_a_plan_comes_back_bit_for_bit(tmp_path, workload, budget):
    assume(is_measured(workload, budget))
    plan = plan_uniform(workload, budget)
    plan.save(tmp_path / "x.plan")
    same(plan, qs.Plan.load(tmp_path / "x.plan"))


@pytest.mark.parametrize("row", [1e70, 1e-70])
@pytest.mark.parametrize("weight", [1.0, 1e5, 1e-5])
def test_a_plan_of_any_scale_that_is_planned_comes_back(tmp_path, row, weight):
    """Losses beyond 1e60 or below its inverse were planned and saved, and could not be loaded."""
    plan = qs.plan(weight * qs.linear(qs.Schema.of(a=3, b=2), ["a"], [[row, 0, 0]]), COST)
    plan.save(tmp_path / "x.plan")
    same(plan, qs.Plan.load(tmp_path / "x.plan"))


def rich_plan():
    """A plan with every kind of strategy and family in it."""
    schema = qs.Schema(
        [
            qs.Categorical("sex", ["F", "M"]),
            qs.Ordinal("age", range(12)),
            qs.Binned("income", edges=[0, 1.5, 2, 10, 20, 30, 40]),
            qs.Cyclic("hour", range(6)),
        ]
    )
    workload = (
        qs.all_kway(schema, [0, 1, 2])
        + 2.5 * qs.marginals(schema, 2)
        + qs.affine(schema, "age", "hour")
        + qs.abs_difference(schema, "age", "hour")
        + qs.random_queries(schema, ("sex", "age", "hour"), 4, seed=3)
        + qs.linear(
            schema, ("hour", "sex"), np.eye(12), weights=np.linspace(0.1, 1, 12), labels=list("abcdefghijkl")
        )
        + qs.queries(schema, age=qs.hierarchy(schema, "age", [i // 4 for i in range(12)]), sex="identity")
        + qs.where(schema, "age >= 5 and income < 2 and sex == 'F'")
    )
    return plan_uniform(workload, qs.ApproxDP(1.0, 1e-6, records_per_person=2), solver="structured")


@pytest.fixture(scope="module")
def rich():
    return rich_plan()


@pytest.fixture
def saved(rich, tmp_path):
    path = tmp_path / "rich.plan"
    rich.save(path)
    return path


@pytest.mark.slow
def test_a_plan_with_everything_in_it_comes_back_bit_for_bit(rich, saved):
    again = qs.Plan.load(saved)
    assert {s.method for s in rich.solutions} == {"circulant", "dense", "structured"}
    same(rich, again)
    assert list(again.workload.labels()) == list(rich.workload.labels())
    with pytest.warns(qs.QuerySmasherWarning, match="'sex'"):
        later = qs.all_kway(rich.workload.schema, 2, "range")
    assert again.variances(later).tobytes() == rich.variances(later).tobytes()


def test_saving_again_saves_the_same_members(saved, tmp_path):
    qs.Plan.load(saved).save(tmp_path / "again.plan")
    with zipfile.ZipFile(saved) as one, zipfile.ZipFile(tmp_path / "again.plan") as two:
        assert {n: one.read(n) for n in one.namelist()} == {n: two.read(n) for n in two.namelist()}


def test_a_loaded_plan_shares_what_the_plan_shared(rich, saved):
    again = qs.Plan.load(saved)
    assert len({id(c) for c in again.centres}) == len(set(rich.centres)) < len(rich.centres)
    assert again.centres == rich.centres
    assert all(not c.weights.flags.writeable for c in again.centres)


@pytest.mark.slow
def test_damage_anywhere_is_noticed(saved, refuses):
    whole = saved.read_bytes()
    places = {*range(120), *range(len(whole) - 200, len(whole)), *range(0, len(whole), 97)}
    for place in sorted(places):
        damaged = bytearray(whole)
        damaged[place] ^= 0xFF if place % 2 else 1 << place % 8
        saved.write_bytes(damaged)
        with refuses(FileError, ValueError, "rich.plan"):
            qs.Plan.load(saved)
    for length in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        saved.write_bytes(whole[:length])
        with refuses(FileError, ValueError, "rich.plan"):
            qs.Plan.load(saved)


def test_other_files_are_no_plans(tmp_path, monkeypatch, refuses):
    path = tmp_path / "x"
    with refuses(FileError, ValueError, "no file"):
        qs.Plan.load(path)
    write_archive(path, "release", {"a": 1})
    with refuses(FileError, ValueError, "'querysmasher release'"):
        qs.Plan.load(path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", "<w/>")
    with refuses(FileError, ValueError, "not a querysmasher file"):
        qs.Plan.load(path)
    path.write_bytes(pickle.dumps({"weighted_loss": 1}))
    with refuses(FileError, ValueError, "not a querysmasher file"):
        qs.Plan.load(path)
    with monkeypatch.context() as patch:
        patch.setattr(files, "FORMAT", 99)
        plan_uniform(qs.marginals(qs.Schema.of(a=2), 1), COST).save(path)
    with refuses(FileError, ValueError, "format 99"):
        qs.Plan.load(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.clear(),
        lambda d: d.pop("measured"),
        lambda d: d.pop("budget"),
        lambda d: d["budget"].update(kind="Nothing"),
        lambda d: d["budget"].update(epsilon=-1),
        lambda d: d["workload"].pop("schema"),
        lambda d: d["workload"]["schema"][0].update(kind="fuzzy"),
        lambda d: d["workload"]["schema"][0].update(values=[]),
        lambda d: d["workload"]["schema"][0].update(colour="red"),
        lambda d: d["workload"]["families"][0].update(family="eval"),
        lambda d: d["workload"]["families"][0].update(shape=[99]),
        lambda d: d["workload"].update(group_weights=-d["workload"]["group_weights"]),
        lambda d: d.update(workload=None),
        lambda d: d.update(pattern_of=d["pattern_of"] + 10**6),
        lambda d: d.update(variances=d["variances"][:-1]),
        lambda d: d.update(centre_of=[99, 0, 0, 0]),
        lambda d: d.update(centres=[1, 2]),
        lambda d: d.update(solutions=[{}]),
    ],
)
def test_a_whole_file_without_a_whole_plan_is_refused(rich, tmp_path, change, refuses):
    data = json.loads(json.dumps({}))
    data.update(plan_to_data(rich))
    data["budget"] = dict(data["budget"])
    change(data)
    write_archive(tmp_path / "x.plan", "plan", data)
    with refuses(FileError, ValueError, "x.plan"):
        qs.Plan.load(tmp_path / "x.plan")


def test_loading_never_unpickles(saved, refuses):
    stream = io.BytesIO()
    np.save(stream, np.array([Trap()], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(saved) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    arrays = [name for name in members if name.endswith(".npy")]
    assert len(arrays) > 5
    for name in arrays[:3]:
        with saved.open("w+b") as forged:
            files.write_members(forged, {**members, name: stream.getvalue()})
        with refuses(FileError, ValueError, "rich.plan"):
            qs.Plan.load(saved)
    assert not Trap.sprung


def test_a_failed_save_leaves_nothing_behind(rich, tmp_path, monkeypatch, refuses):
    with refuses(FileError, ValueError, "no such folder"):
        rich.save(tmp_path / "no such folder" / "x.plan")

    def fail(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        rich.save(tmp_path / "x.plan")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", [str, complex, bool, np.float16])
def test_a_spectrum_of_anything_but_floats_is_refused(tmp_path, kind):
    schema = qs.Schema.of(a=5, b=4)
    plan = qs.plan(qs.all_kway(schema, 2, "prefix"), qs.zCDP(0.5), solver="fourier")
    data = plan_to_data(plan)
    data["solutions"][0]["weights"] = data["solutions"][0]["weights"].astype(kind)
    write_archive(tmp_path / "plan", "plan", data)
    with pytest.raises(FileError, match="does not contain a complete plan"):
        qs.Plan.load(tmp_path / "plan")


def with_lattice():
    schema = qs.Schema.of(a=5, b=4)
    rows = qs.linear(schema, ("a", "b"), np.eye(20)[[3, 8]] + np.eye(20)[[7, 9]])
    return plan_uniform(rows + qs.queries(schema, a="prefix"), COST)


@pytest.mark.parametrize(
    ("key", "change", "why"),
    [
        ("centres", lambda c: [2 * x / x.sum() for x in c], "does not sum to one"),
        ("centres", lambda c: [x * 1e300 for x in c], "does not sum to one"),
        (
            "centres",
            lambda c: [np.append(x[:-2] * 0.0, [1e6, 1 - 1e6]) for x in c],
            "sum to one",
        ),
        ("centres", lambda c: [np.roll(np.append(x[1:] * 0, 1.0), 1) for x in c], "residual space"),
        ("centres", lambda c: [x[:-1] for x in c], "does not fit its attribute"),
        ("centres", lambda c: [x * 0 for x in c], "positive sum"),
        ("centres", lambda c: [x * 2**62 for x in c], "at most 256"),
        ("variances", lambda v: v * 0, "noise variance"),
        ("variances", lambda v: -v, "noise variance"),
        ("root_losses", lambda v: v * 0, "noise variance"),
        ("root_losses", lambda v: v * 1.1, "losses"),
        ("certificate", lambda one: [one[0], 0.0], "its error, gap or tolerance is invalid"),
    ],
)
def test_a_plan_whose_parts_do_not_fit_is_refused(tmp_path, refuses, key, change, why):
    data = plan_to_data(with_lattice())
    data[key] = change(data[key])
    write_archive(tmp_path / "x.plan", "plan", data)
    with refuses(FileError, ValueError, "x.plan", why):
        qs.Plan.load(tmp_path / "x.plan")


@pytest.mark.parametrize(
    "change",
    [
        lambda one: [[1, 2], [3]],
        lambda one: "lattice",
        lambda one: 3,
        lambda one: one.astype(float),
        lambda one: one[0],
        lambda one: one[:, :-1],
        lambda one: one * 0,
        lambda one: one + 1,
        lambda one: one[::-1] * 2**60,
        lambda one: np.full_like(one, -(2**63)),
        lambda one: np.roll(one, 1, axis=1),
        lambda one: np.repeat(one[:1], len(one), axis=0),
    ],
)
def test_a_malformed_lattice_is_refused(tmp_path, refuses, change):
    data = plan_to_data(with_lattice())
    has = [s for s in data["solutions"] if s.get("lattice") is not None and len(s["lattice"]) > 1]
    has[0]["lattice"] = change(has[0]["lattice"])
    write_archive(tmp_path / "x.plan", "plan", data)
    with refuses(FileError, ValueError, "x.plan"):
        qs.Plan.load(tmp_path / "x.plan")


def test_a_plan_of_an_earlier_version_is_refused_by_name(tmp_path, refuses):
    data = plan_to_data(with_lattice())
    del data["certificate"]
    write_archive(tmp_path / "x.plan", "plan", data)
    with refuses(FileError, ValueError, "x.plan", "an earlier version", "plan again"):
        qs.Plan.load(tmp_path / "x.plan")


def test_the_error_of_a_loaded_plan_is_that_of_its_parts(tmp_path):
    plan = with_lattice()
    data = plan_to_data(plan) | {"weighted_loss": 1e-9, "variances": 4 * plan_to_data(plan)["variances"]}
    write_archive(tmp_path / "x.plan", "plan", data)
    again = qs.Plan.load(tmp_path / "x.plan")
    assert again.rmse == pytest.approx(2 * plan.rmse)


def test_a_line_with_other_centres_on_another_set_is_refused():
    """Both sets drop or keep the same line beside the same attributes, so they must split it alike."""
    schema = qs.Schema.of(a=2_000, b=1_900)
    plan = qs.plan(
        qs.queries(schema, a="prefix", b="prefix") + qs.queries(schema, a="prefix"), qs.PrivacyCost(1.0)
    )
    check_plan(plan)
    ((axes, number),) = next(m.blocks for m in plan.measured if m.attributes == (0,))
    other = replace(plan.solutions[number], strategy=plan.solutions[number].strategy.scaled(1.0))
    measured = tuple(
        replace(m, blocks=((axes, len(plan.solutions)),)) if m.attributes == (0,) else m
        for m in plan.measured
    )
    with pytest.raises(PlanError, match="several centres"):
        check_plan(replace(plan, solutions=(*plan.solutions, other), measured=measured))

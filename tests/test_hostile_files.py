"""Whole files with wrong contents: every field of a plan and of a release is changed, and checksummed again.

Such a file is refused with a `FileError`, or it is a plan or a release that keeps all promises: predictions
that are numbers, answers that are the same as before the change. It never raises anything else.

`python -m tests.test_hostile_files 10000` forges that many plans, releases and estimates, and prints how many
were refused.
"""

import copy
import itertools
import math
import random
import signal
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.errors import FileError, QuerySmasherError
from querysmasher.files import Lazy, read_archive, write_archive
from querysmasher.planning.integer import integer_plan
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.distributions import distribution_of
from tests.privacy.brute_force import changes as neighbours
from tests.privacy.brute_force import largest, weighted_grams
from tests.release.tables import frame, random_counts, simulate

SCHEMA = qs.Schema(
    [qs.Categorical("s", ["x", "y"]), qs.Ordinal("a", range(4)), qs.Binned("b", edges=[0, 1, 2, 5])]
)
MIXED = (
    qs.all_kway(SCHEMA, [0, 1])
    + 2.0 * qs.queries(SCHEMA, a="prefix", b="prefix")
    + qs.queries(SCHEMA, a="range", b="identity")
    + qs.linear(SCHEMA, ("s", "a"), [[1, 0, 0, 1, 0, 0, 0, 0]], weights=[2.0], labels=["one"])
    + qs.random_queries(SCHEMA, ("a", "s"), 2, seed=1)
)
PLANS = {
    "dense": lambda: qs.plan(MIXED, qs.zCDP(0.5)),
    "structured": lambda: qs.plan(
        qs.queries(SCHEMA, a="prefix", b="prefix") + qs.queries(SCHEMA, a="identity", b="range"),
        qs.ApproxDP(1.0, 1e-6, neighbours="replace_one"),
        solver="structured",
        centering="uniform",
    ),
    "fourier": lambda: qs.plan(
        qs.all_kway(SCHEMA, [1, 2], {"a": "circular", "b": "circular"}),
        qs.PrivacyCost(1.0),
        solver="fourier",
    ),
}
CLAIMS = {"answers", "public_total", "strategies", "blocks"}
"""What was measured, and which numbers came out: whoever writes a release may claim any."""
COUNTS = random_counts(SCHEMA, 3, 500)


@cache
def planned(name):
    return PLANS[name]()


def places(data, here=()):
    """The way to every value in nested data."""
    yield here
    inner = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inner:
        yield from places(value, (*here, key))


def at(data, place):
    for key in place:
        data = data[key]
    return data


PLAIN = (
    None,
    True,
    -1,
    0,
    1,
    3,
    10**30,
    0.5,
    -1.5,
    1e300,
    math.nan,
    math.inf,
    "",
    "x\x1b[2J",
    "1e99999999",
    "1/0",
    [],
    [0],
    {},
    {"family": "rows"},
    np.zeros(0),
    np.zeros(3),
)


def changes(value):
    """Other values in the place of this one."""
    yield from PLAIN
    if isinstance(value, Lazy):
        yield from (np.zeros(2), value.fetch(), Lazy(lambda: np.zeros(2)), Lazy(lambda: value.fetch() * 0.5))
        yield from (Lazy(lambda: value.fetch()[:-1]), Lazy(lambda: value.fetch().astype(np.int32)))
        yield from (Lazy(lambda: value.fetch() * math.nan), Lazy(lambda: value.fetch().reshape(1, -1)))
    if isinstance(value, np.ndarray):
        for kind in (np.int64, np.float64, np.int32, bool, complex, "U5"):
            yield value.astype(kind)
        yield from (-value, value * 0, value * 2, value * 1.001, value[..., None], value.ravel(), value.T)
        yield from (
            value[:0],
            value[:-1],
            np.concatenate([value, value]),
            value.repeat(2, axis=-1),
            value[::-1],
        )
        if value.dtype == float:
            yield from (value * math.nan, value * 1e300, value + 1, value + 1e-3, value * 1e-300, value**2)
            for place in range(0, value.size, max(1, value.size // 3)):
                for entry in (math.nan, 1e301, -1.0, 0.0):
                    other = value.copy()
                    other.flat[place] = entry
                    yield other
        else:
            yield from (value + 1, value - 1, value + 10**6, value * 2**60, np.full_like(value, -(2**63)))
    if isinstance(value, list) and value:
        yield from (
            value[:-1],
            value[1:],
            [*value, value[0]],
            value[::-1],
            [value],
            dict.fromkeys("ab", value),
        )
    if isinstance(value, dict):
        for key in value:
            yield {k: v for k, v in value.items() if k != key}
        yield value | {"more": 1}
    if type(value) in (int, float):
        yield from (value + 1, -value, value * 2, value / 2, float(value), value + 1e-3)
    if isinstance(value, str):
        yield from (value + "x", value.upper(), value[:-1], "prefix", "uniform", "zCDP", "2/3", "7")


def changed(data):
    """All data that differ from these in one place, with the place."""
    for place in places(data):
        value = at(data, place)
        for number, other in enumerate(changes(value)):
            if other is not value:
                yield place, number, other


def put(data, place, other):
    """The data with another value in one place; arrays and what is late are shared."""
    if not place:
        return other
    result = copy.copy(data)
    result[place[0]] = put(data[place[0]], place[1:], other)
    return result


def loaded(path, kind, data, load):
    """What is loaded from a file with these data, or None if it is refused as it should be."""
    if not isinstance(data, dict):
        return None
    try:
        write_archive(path, kind, data)
    except (TypeError, ValueError, OverflowError):
        return None  # no such file can be written
    try:
        return load(path)
    except FileError as error:
        told = str(error)
    assert len(told) < 1000
    assert "\x1b" not in told
    return None


def use_plan(plan):
    """Ask a plan for all that it knows."""
    text = repr(plan)
    assert "\x1b" not in text
    for figure in (plan.rmse, plan.weighted_rmse, plan.privacy_cost, plan.worst_std):
        assert figure is None or 0 < figure < math.inf, figure
    variances = plan.variances(plan.workload)
    assert np.all(np.isfinite(variances))
    assert np.all(variances >= 0)
    plan._repr_html_()
    return variances


def use_release(release):
    text = repr(release)
    assert "\x1b" not in text
    answers = release.answer()
    assert np.all(np.isfinite(answers.values))
    assert np.all(np.isfinite(answers.std))
    return answers


def check_plan(plan, name):
    """A plan that was loaded predicts numbers, and what it measures is right within its own errors."""
    try:
        use_plan(plan)
        release = simulate(plan, COUNTS, 5) if plan.workload.schema == SCHEMA else None
        answers = release and release.answer(planned(name).workload)
    except QuerySmasherError:
        return  # refused when it is used, by a name of ours
    if release is not None:
        truth = simulate(planned(name), COUNTS, 5).answer(planned(name).workload)
        off = np.abs(answers.values - truth.values)
        assert np.all(off <= 9 * np.hypot(answers.std, truth.std) + 1e-6), (off / answers.std).max()


def check_release(release, before, place):
    """A release that was loaded has the answers that it had, unless it says that others were measured."""
    try:
        after = use_release(release)
        if release.plan.schema == SCHEMA and not set(place[:1]) & CLAIMS:
            same = release.answer(before.workload)
            np.testing.assert_allclose(same.values, before.values, rtol=1e-6, atol=1e-6)
    except QuerySmasherError:
        return
    assert len(after) == release.workload.query_count


STEP = 40
"""Of some 28,000 changes, every 40th is tried; with 1 they all are, in a few minutes."""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of numbers that cannot be cast, while the changes are made
@pytest.mark.parametrize("name", PLANS)
def test_every_changed_plan_is_refused_or_sound(name, tmp_path):
    planned(name).save(tmp_path / "plan")
    data = read_archive(tmp_path / "plan", "plan")
    tried = kept = 0
    for place, _, other in itertools.islice(changed(data), 0, None, STEP):
        tried += 1
        plan = loaded(tmp_path / "x", "plan", put(data, place, other), qs.Plan.load)
        if plan is not None:
            kept += 1
            check_plan(plan, name)
    assert tried > 80
    assert 0 < kept < tried / 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLANS)
def test_every_changed_release_is_refused_or_sound(name, tmp_path):
    release = simulate(planned(name), COUNTS, 5)
    release.save(tmp_path / "release")
    before = release.answer()
    data = read_archive(tmp_path / "release", "release")
    tried = kept = 0
    for place, _, other in itertools.islice(changed(data), 0, None, STEP):
        tried += 1
        after = loaded(tmp_path / "x", "release", put(data, place, other), qs.Release.load)
        if after is not None:
            kept += 1
            check_release(after, before, place)
    assert tried > 80
    assert 0 < kept < tried / 2


# --- several fields at once ------------------------------------------------------------------------------

FORGED = {
    "plan": (qs.Plan, lambda: planned("dense")),
    "release": (qs.Release, lambda: simulate(planned("dense"), COUNTS, 5)),
    "estimate": (qs.Estimate, lambda: simulate(marginals_planned(), COUNTS, 5).estimate()),
}
RECORDS = frame(SCHEMA, COUNTS)


@cache
def marginals_planned():
    return qs.plan(qs.marginals(SCHEMA, [1, 2]), qs.zCDP(0.5))


@cache
def genuine(kind):
    """The content of a genuine file."""
    with tempfile.TemporaryDirectory() as folder:
        FORGED[kind][1]().save(Path(folder) / "x")
        found = read_archive(Path(folder) / "x", kind)
        return _fetched(found)


def _fetched(data):
    """The data with what is late in memory."""
    if isinstance(data, Lazy):
        array = data.fetch()
        return Lazy(lambda: array)
    if isinstance(data, dict):
        return {key: _fetched(value) for key, value in data.items()}
    return [_fetched(value) for value in data] if isinstance(data, list) else data


def possible(values):
    """Yield values until one cannot be made, as a negative of an array of booleans."""
    with suppress(TypeError, ValueError, OverflowError):
        yield from values


def forge(data, chance):
    """Return the data with one to four changes: values, or whole parts copied, swapped or repeated."""
    for _ in range(chance.choice([1, 1, 1, 2, 3, 4])):
        every = list(places(data))
        place, other = chance.choice(every), chance.choice(every)
        way = chance.random()
        if way < 0.75:
            value = chance.choice(list(possible(changes(at(data, place)))))
        elif way < 0.9 and other[: len(place)] != place:
            value = at(data, other)
        else:
            own = at(data, place)
            value = [*own, *own] if isinstance(own, list) else [own] * chance.choice([2, 50])
        data = put(data, place, value)
    return data


def check_cost(plan):
    """Whatever a forged plan says, measuring refuses it, or it spends no more than its budget."""
    try:
        release = qs.measure(plan, RECORDS, seed=3, unknown="drop")
        allowed = distribution_of("rounded").allowed_cost(plan.budget)
        whole = integer_plan(plan, allowed, 100_000_000)
        said = privacy_cost(whole)
    except QuerySmasherError:
        return False
    assert said <= allowed
    grams, scale = weighted_grams(whole)
    if plan.budget.records_per_person <= 2:
        assert said >= Fraction(largest(sum(grams), neighbours(len(grams[0]), plan.budget)), scale)
    answers = release.answer()
    assert np.all(np.isfinite(answers.values))
    return True


def check_forged(kind, path, data):
    """Return what becomes of a forged file: "refused" when loaded or used, or "sound"."""
    found = loaded(path, kind, data, FORGED[kind][0].load)
    if found is None:
        return "refused"
    try:
        if kind == "plan":
            use_plan(found)
        elif kind == "release":
            use_release(found)
        else:
            assert np.all(np.isfinite(found.answer().values))
            assert "\x1b" not in repr(found)
    except QuerySmasherError:
        return "refused when used"
    if kind == "plan" and math.prod(found.workload.schema.sizes) <= 100:
        return "sound" if check_cost(found) else "refused when measured"
    return "sound"


def forge_many(kind, path, count, seconds=0):
    """Forge files, each in a time that is limited, and count what becomes of them."""
    ends = Counter()
    for number in range(count):
        data = forge(genuine(kind), random.Random(number))  # noqa: S311 - no secret
        if seconds:
            signal.alarm(seconds)
        try:
            ends[check_forged(kind, path, data)] += 1
        except BaseException:
            sys.stderr.write(f"{kind} {number}\n")
            raise
    return ends


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", FORGED)
def test_forged_files_are_refused_or_sound(kind, tmp_path):
    ends = forge_many(kind, tmp_path / "x", 80)
    assert ends["refused"] > 20
    assert ends["sound"] > 0


if __name__ == "__main__":
    import warnings

    warnings.simplefilter("ignore")
    for forged_kind in sys.argv[2:] or FORGED:
        with tempfile.TemporaryDirectory() as place_to_write:
            told = forge_many(forged_kind, Path(place_to_write) / "x", int(sys.argv[1]), seconds=60)
        sys.stdout.write(f"{forged_kind}: {dict(told)}\n")

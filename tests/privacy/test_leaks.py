"""Nothing exact gets out: planted counts are looked for wherever a count could hide.

The table holds 104,729 records, 7,919 of them in one cell, and other counts that nothing else here has.
Noise is seeded, so that none of these numbers comes up by chance.
"""

import dataclasses
import gc
import importlib
import io
import itertools
import logging
import os
import tempfile
import types
import warnings
import zipfile

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import querysmasher as qs
from querysmasher.data import counting
from querysmasher.data.counting import Codes, Tally
from querysmasher.data.rows import ScanCounter
from querysmasher.errors import QuerySmasherError
from querysmasher.privacy import measurement
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.noise import noise_source
from querysmasher.release import reconstruction as store_module
from tests.builders import UNIFORM
from tests.privacy.search import held, shown
from tests.release.tables import frame, marginal, whole

MEASURE = importlib.import_module("querysmasher.measuring")

SCHEMA = qs.Schema([qs.Ordinal("a", range(4)), qs.Ordinal("b", ["x", "y", "z"]), qs.Ordinal("c", range(2))])
TOTAL, CELL = 104_729, 7_919
COUNTS = np.array(
    [
        [[1009, 2003], [3001, 4001], [5003, 6007]],
        [[1103, 2111], [3119, CELL], [5107, 6101]],
        [[1201, 2203], [3203, 4201], [5209, 6203]],
        [[1301, 2309], [3301, 4327], [5303, 0]],
    ]
)
COUNTS[3, 2, 1] = TOTAL - COUNTS.sum()
WORKLOAD = (
    qs.all_kway(SCHEMA, [1, 2, 3], "prefix")
    + qs.marginals(SCHEMA, [0, 1, 2])
    + qs.affine(SCHEMA, "a", "c")
    + qs.where(SCHEMA, "a >= 2 and b == 'y'")
)
BUDGET = qs.PrivacyCost(1e-4)
SEED = 12  # for which no end of an interval equals the count of another cell by chance

assert COUNTS.min() > 1000
assert COUNTS.sum() == TOTAL


@pytest.fixture(scope="module")
def table():
    return frame(SCHEMA, COUNTS)


@pytest.fixture(scope="module")
def plan():
    return qs.plan(WORKLOAD, BUDGET, **UNIFORM)


@pytest.fixture(scope="module")
def release(plan, table):
    return qs.measure(plan, table, seed=SEED)


def exact_arrays(integers):
    """Every exact array there is: the marginals, their prefix sums, and the answers of the strategies."""
    names = SCHEMA.names
    for k in range(len(names) + 1):
        for chosen in itertools.combinations(names, k):
            one = marginal(SCHEMA, COUNTS, chosen)
            yield one
            for axis in range(one.ndim):
                yield one.cumsum(axis=axis)
    for m in integers.measured:
        yield measurement.exact_answers(integers, m, np.array(marginal(SCHEMA, COUNTS, integers.names(m))))


@pytest.fixture(scope="module")
def secrets(plan):
    """Every number that must not be seen, as whole numbers of four digits or more."""
    found = {int(abs(x)) for array in exact_arrays(whole(plan)) for x in np.ravel(array)}
    found |= {len(c) for c in np.array_split(np.arange(TOTAL), 1)}
    return {x for x in found if x >= 1000}


def test_the_search_finds_what_is_there(secrets):
    assert {TOTAL, CELL} <= secrets
    assert shown(secrets, f"so: {CELL:,} of {TOTAL}") == {CELL, TOTAL}
    assert shown(secrets, f"[{CELL}.0, 1] {TOTAL}.") == {CELL, TOTAL}
    assert not shown(secrets, f"{CELL}{TOTAL} 12{CELL} 0.{CELL} {CELL}.5 a{CELL}")
    assert held(secrets, np.array([[CELL, 5.0]])) == {CELL}
    assert held(secrets, np.array([TOTAL, 1])) == {TOTAL}


# --- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("noise", ["rounded", "discrete", "gaussian"])
def test_no_file_holds_an_exact_count(plan, table, secrets, noise, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)  # the answers go to a file, too
    release = qs.measure(plan, table, seed=SEED, noise=noise)
    plan.save(tmp_path / "x.plan")
    release.save(tmp_path / "x.release")
    release.write(WORKLOAD, tmp_path / "x.parquet")
    found = sorted(p.name for p in tmp_path.iterdir())
    assert found == ["datapackage.json", "x.parquet", "x.plan", "x.release"]
    assert not shown(secrets, (tmp_path / "datapackage.json").read_text())
    for name in ("x.plan", "x.release"):
        with zipfile.ZipFile(tmp_path / name) as archive:
            for member in archive.namelist():
                content = archive.read(member)
                if member.endswith(".npy"):
                    assert not held(secrets, np.load(io.BytesIO(content))), (name, member)
                else:
                    assert not shown(secrets, content.decode()), (name, member)
    written = pa.parquet.read_table(tmp_path / "x.parquet")
    for name in ("value", "std", "low", "high", "cv"):
        assert not held(secrets, written[name].to_numpy())
    assert not shown(secrets, str(pa.parquet.read_metadata(tmp_path / "x.parquet").row_group(0).column(1)))
    release.store._stream.seek(0)
    kept = np.frombuffer(release.store._stream.read(), dtype=float if noise == "gaussian" else np.int64)
    assert len(kept) == plan.measurements
    assert not held(secrets, kept)


# --- words -------------------------------------------------------------------------------------------


def test_no_object_says_an_exact_count(plan, table, release, secrets):
    counter = MEASURE.open_table(SCHEMA, table, SCHEMA.names)
    counter.records()
    tally = Tally(SCHEMA, [("a", "b")])
    for codes in counter._chunks():
        tally.add(codes)
        assert not shown(secrets, repr(codes) + str(codes))
    integers = whole(plan)
    answers = release.answer()
    objects = [
        plan,
        integers,
        release,
        release.noise,
        release.guarantee,
        release.reconstruction,
        release.estimator,
        answers,
        counter,
        tally,
        WORKLOAD,
        SCHEMA,
        release.store,
        *integers.strategies,
        *integers.measured,
        *plan.summary(),
    ]
    for one in objects:
        assert not shown(secrets, repr(one) + str(one)), type(one)


@pytest.mark.parametrize("progress", [None, True, False])
def test_nothing_is_logged_warned_or_printed(plan, table, secrets, progress, caplog, capfd, tmp_path):
    with warnings.catch_warnings(record=True) as warned, caplog.at_level(logging.DEBUG):
        warnings.simplefilter("always")
        release = qs.measure(plan, table, seed=SEED, progress=progress)
        release.answer().to_frame("pandas")
        release.marginal("b", "a")
        release.covariance(qs.marginals(SCHEMA, 1))
        release.save(tmp_path / "x")
        release.write(WORKLOAD, tmp_path / "y.csv", progress=progress)
        qs.Release.load(tmp_path / "x").answer()
    logged = " ".join(record.getMessage() + repr(record.__dict__) for record in caplog.records)
    said = " ".join(str(w.message) for w in warned)
    out, err = capfd.readouterr()
    assert not shown(secrets, logged)
    assert not shown(secrets, said)
    assert not shown(secrets, out + err)
    assert not out


# --- what a release holds ------------------------------------------------------------------------------


def reachable(start):
    """All that can be reached from an object, short of modules, classes and the globals of functions."""
    seen, queue = {}, [start]
    while queue:
        one = queue.pop()
        if id(one) in seen or isinstance(one, type | types.ModuleType | str | bytes):
            continue
        seen[id(one)] = one
        if isinstance(one, types.FunctionType):
            queue += [*(one.__closure__ or ()), one.__defaults__, one.__kwdefaults__]
        elif isinstance(one, np.ndarray):
            queue += [one.base, *(one.ravel() if one.dtype == object else ())]
        else:
            queue += gc.get_referents(one)
            if isinstance(one, types.GeneratorType | types.FrameType):
                pytest.fail(f"a release holds on to {one!r}")
    return seen.values()


@pytest.mark.parametrize("kind", ["memory", "file", "loaded"])
def test_a_release_reaches_no_exact_count_and_no_record(plan, table, kind, tmp_path, monkeypatch):
    if kind == "file":
        monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    release = qs.measure(plan, table, seed=SEED)
    release.save(tmp_path / "x")
    if kind == "loaded":
        release = qs.Release.load(tmp_path / "x")
    release.answer()
    release.marginal("a", "b", "c")
    secret = {(a.size, tuple(np.ravel(a).tolist())) for a in exact_arrays(release.plan) if a.size > 1}
    scalars = {TOTAL, CELL}
    for one in reachable(release):
        assert not isinstance(one, pd.DataFrame | pa.Table | ScanCounter | Codes | Tally), type(one)
        if isinstance(one, np.ndarray) and one.dtype.kind in "iuf" and one.size:
            flat = one.ravel().tolist()
            assert (one.size, tuple(flat)) not in secret
            assert not scalars & set(flat)
        elif isinstance(one, int | float | np.number):
            assert one not in scalars
    assert len(list(reachable(release))) > 100


def test_the_search_would_find_a_count_that_is_held(release):
    held_on = types.SimpleNamespace(release=release, late=lambda kept=COUNTS: kept)
    assert any(one is COUNTS for one in reachable(held_on))


def test_under_public_totals_only_the_total_is_exact(table):
    plan = qs.plan(WORKLOAD, qs.PrivacyCost(1e-4, neighbours="replace_one"), **UNIFORM)
    release = qs.measure(plan, table, seed=SEED)
    assert release.public_total == TOTAL
    assert CELL not in [x for x in reachable(release) if isinstance(x, int)]


# --- failures ------------------------------------------------------------------------------------------


class Broken:
    """Noise that fails after some draws, having seen nothing but sizes."""

    description = ""

    def __init__(self, after, error, name="rounded"):
        self.left, self.error, self.distribution = after, error, DISTRIBUTIONS[name]
        self.source = noise_source("rounded", 1)

    def draw(self, variance, size):
        self.left -= 1
        if self.left < 0:
            raise self.error
        return self.source.draw(variance, size)


def chain(error):
    """An error and all that hangs on it."""
    seen, queue = [], [error]
    while queue:
        one = queue.pop()
        if one is None or any(one is s for s in seen):
            continue
        seen.append(one)
        queue += [one.__cause__, one.__context__, *getattr(one, "exceptions", ())]
    return seen


def check_error(error, secrets, *words):
    """No secret in messages, arguments or notes of the chain, nor in the frames that it went through."""
    integers = {a.tobytes() for a in EXACT}
    for one in chain(error):
        text = f"{one} {one!r} {one.args!r} {vars(one)!r} {getattr(one, '__notes__', ())!r}"
        assert not shown(secrets, text), text
        for word in words:
            assert word not in text
        step = one.__traceback__
        while step is not None:
            if "querysmasher" in step.tb_frame.f_code.co_filename:
                for name, value in step.tb_frame.f_locals.items():
                    if isinstance(value, np.ndarray) and value.size > 1:
                        assert np.ascontiguousarray(value).tobytes() not in integers, (step.tb_frame, name)
            step = step.tb_next


EXACT = [
    np.ascontiguousarray(marginal(SCHEMA, COUNTS, c))
    for k in (1, 2, 3)
    for c in itertools.combinations("abc", k)
]


def changed(table, column, place, value):
    other = table.copy()
    other[column] = other[column].astype(object)
    other.loc[place, column] = value
    return other


STRANGER = "Zebra 77123"


@pytest.mark.parametrize("after", [0, 1, 3, 6])
@pytest.mark.parametrize(
    "error", [RuntimeError("no entropy"), KeyboardInterrupt(), OSError(5, "x")], ids=repr
)
@pytest.mark.parametrize("memory", [0, 2**29])
def test_noise_that_fails_midway_leaves_nothing(
    plan, table, secrets, after, error, memory, monkeypatch, tmp_path, capfd
):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(store_module, "MEMORY_BYTES", memory)
    monkeypatch.setattr(MEASURE, "noise_source", lambda *_: Broken(after, error))
    with pytest.raises(type(error)) as caught:
        qs.measure(plan, table, seed=1)
    check_error(caught.value, secrets)
    assert not list(tmp_path.iterdir())
    out, err = capfd.readouterr()
    assert not shown(secrets, out + err)


def unfit(table):
    """Tables in which one record does not fit, and tables in which none does."""
    one = {
        "outside": changed(table, "a", 5, CELL),
        "text": changed(table, "a", 5, STRANGER),
        "other text": changed(table, "b", 5, STRANGER),
        "missing": changed(table, "c", 5, None),
    }
    every = {
        "numbers": table.assign(b=np.full(len(table), CELL)),
        "texts": table.assign(a=[STRANGER] * len(table)),
        "dates": table.assign(a=pd.Timestamp("2020-01-01")),
        "objects": table.assign(a=[{STRANGER: CELL}] * len(table)),
    }
    return one, every


def test_values_that_do_not_fit_are_refused_and_not_shown(plan, table, secrets, tmp_path):
    one, every = unfit(table)
    path = tmp_path / "x.csv"
    one["text"].to_csv(path, index=False)
    for data in (*one.values(), *every.values(), path):
        with pytest.raises(QuerySmasherError) as caught:
            qs.measure(plan, data, seed=SEED)
        check_error(caught.value, secrets, STRANGER, "Zebra", "77123")


def test_values_that_do_not_fit_are_dropped(plan, table):
    """A record that is dropped leaves the release of the others, with the same noise, and no other trace."""
    one, every = unfit(table)
    for rest, tables in ((table.drop(5), one), (table.iloc[:0], every)):
        others = qs.measure(plan, rest, seed=SEED).answer(WORKLOAD).values
        for name, data in tables.items():
            release = qs.measure(plan, data, seed=SEED, unknown="drop")
            np.testing.assert_array_equal(release.answer(WORKLOAD).values, others, err_msg=name)


def test_a_table_above_the_cap_is_refused_silently(plan, table, secrets):
    for cap in (1, 1000, TOTAL - 1):
        with pytest.raises(QuerySmasherError) as caught:
            qs.measure(plan, table, seed=SEED, max_records=cap)
        check_error(caught.value, secrets)
    qs.measure(plan, table, seed=SEED, max_records=TOTAL)


def test_broken_files_are_not_quoted(plan, table, secrets, tmp_path):
    text = table.head(200).to_csv(index=False)
    cases = {
        "odd.csv": text + f'\n"{STRANGER},7919,\n\n"x"y,,,,{CELL}',
        "binary.csv": text.encode("utf-16"),
        "no.parquet": f"{STRANGER} {CELL}",
        "cut.parquet": None,
    }
    table.to_parquet(tmp_path / "whole.parquet")
    cases["cut.parquet"] = (tmp_path / "whole.parquet").read_bytes()[:-100]
    for name, content in cases.items():
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with pytest.raises(QuerySmasherError) as caught:
            qs.measure(plan, path, seed=SEED)
        check_error(caught.value, secrets - {200}, STRANGER, "Zebra", "77123")


def test_too_little_memory_does_not_tell_how_many_records_there_are(plan, table, secrets, monkeypatch):
    def hungry(*_, **__):
        msg = f"Unable to allocate 818. KiB for an array with shape ({TOTAL},) and data type int64"
        raise MemoryError(msg)

    for module, name in ((counting.Tally, "add"), (measurement, "exact_answers")):
        with monkeypatch.context() as patch:
            patch.setattr(module, name, hungry)
            with pytest.raises(MemoryError) as caught:
                qs.measure(plan, table, seed=SEED)
        check_error(caught.value, secrets)
        assert caught.value.__context__ is None


def test_a_full_disk(plan, table, secrets, monkeypatch, tmp_path):
    monkeypatch.setattr(store_module, "MEMORY_BYTES", 0)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    class Full(io.BytesIO):
        def write(self, data):
            if self.tell() + len(bytes(data)) > 100:
                raise OSError(28, os.strerror(28))
            return super().write(data)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full())
    with pytest.raises(OSError, match="No space") as caught:
        qs.measure(plan, table, seed=SEED)
    check_error(caught.value, secrets)
    assert not list(tmp_path.iterdir())


def test_a_table_that_changes_between_passes(plan, table, secrets, monkeypatch):
    original = ScanCounter.marginals

    def growing(self, sets):
        for counts in original(self, sets):
            yield counts + 1

    monkeypatch.setattr(ScanCounter, "marginals", growing)
    with pytest.raises(QuerySmasherError, match="inconsistent") as caught:
        qs.measure(plan, table, seed=SEED)
    check_error(caught.value, secrets)


def test_wild_noise(plan, table, secrets, monkeypatch):
    class Wild(Broken):
        def draw(self, variance, size):
            return np.full(size, 2**62)

    monkeypatch.setattr(MEASURE, "noise_source", lambda *_: Wild(0, None))
    with pytest.raises(QuerySmasherError, match="exceeds 64 bits") as caught:
        qs.measure(plan, table, seed=1)
    check_error(caught.value, secrets)


def test_a_refused_plan_tells_nothing_of_the_table(plan, table, secrets):
    greedy = dataclasses.replace(
        plan, measured=tuple(dataclasses.replace(m, variance=m.variance / 2) for m in plan.measured)
    )
    for given, options in (
        (greedy, {}),
        (plan, {"noise": "none"}),
        (plan, {"max_records": 0}),
        (plan, {"unknown": "keep"}),
        (plan, {"seed": -1}),
        (None, {}),
    ):
        with pytest.raises(QuerySmasherError) as caught:
            qs.measure(given, table, **options)
        check_error(caught.value, secrets)


def test_what_a_release_refuses(release, secrets, tmp_path):
    other = qs.Schema.of(a=2)
    refused = [
        lambda: release.answer(qs.marginals(other, 1)),
        lambda: release.answer("a"),
        lambda: release.marginal("z"),
        lambda: release.save(tmp_path / "none" / "x"),
        lambda: release.write(WORKLOAD, tmp_path),
        lambda: release.answer().interval(2),
        lambda: release.answer().to_frame("nothing"),
    ]
    for refuse in refused:
        with pytest.raises(QuerySmasherError) as caught:
            refuse()
        check_error(caught.value, secrets)

"""`verify`: plan, errors of estimates, page and summary follow from the release."""

import io
import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.release.comparing import sha256
from querysmasher.release.verify import (
    FAILED,
    OK,
    OPEN,
    check_page,
    check_plan,
    exploration_summary,
    summary_of,
)
from querysmasher.release.writing import document
from querysmasher.report import charts
from tests.builders import UNIFORM
from tests.release.folders import (
    SCHEMA,
    TABLE,
    archive_again,
    published,
    statuses,
    summarised,
    text,
    with_digests,
)

WORKLOAD = qs.marginals(SCHEMA, [1, 2])


@pytest.fixture(scope="module")
def plan():
    return qs.plan(WORKLOAD, qs.zCDP(0.5), **UNIFORM)


@pytest.fixture
def folder(plan, tmp_path):
    """A folder as `release` writes it."""
    return published(tmp_path / "out", qs.measure(plan, TABLE).described(title="T"), "answers.csv", plan=plan)


def test_a_correct_folder(plan, tmp_path):
    verdict = qs.verify(published(tmp_path / "out", qs.measure(plan, TABLE), plan=plan, errors=True))
    assert verdict.ok
    found = statuses(verdict)
    assert [found[name] for name in ("plan.qs", "errors.csv", "summary.json")] == [OK] * 3
    assert "it costs 1 of 1 allowed" in text(verdict, "plan.qs")


def test_another_plan_is_found(folder, plan):
    """Even if the digests are those of the other plan; the release itself names its plan."""
    other = qs.plan(WORKLOAD + 2 * qs.marginals(SCHEMA, 1), qs.zCDP(0.5), **UNIFORM)
    other.save(folder / "plan.qs")
    assert "names a plan with another digest" in text(with_digests(folder), "plan.qs")


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: qs.plan(2 * WORKLOAD, qs.zCDP(0.5), **UNIFORM), "another workload"),
        (lambda: qs.plan(WORKLOAD, qs.zCDP(0.4), **UNIFORM), "another budget"),
        (lambda: qs.plan(WORKLOAD, qs.zCDP(0.5), solver="structured", **UNIFORM), ""),
    ],
)
def test_the_plan_of_another_release_is_found(plan, tmp_path, made, words):
    """Also if the release names it: anybody can write a release."""
    other = made()
    other.save(tmp_path / "plan.qs")
    release = qs.measure(plan, TABLE).described(plan_digest=sha256(tmp_path / "plan.qs"))
    found, finding = check_plan(release, tmp_path / "plan.qs")
    assert (found is None, finding.status) == ((True, FAILED) if words else (False, OK))
    assert words in finding.text


def test_other_noise_in_a_plan_is_found(plan, tmp_path):
    """The budget shared otherwise: another integer plan, at the same cost."""
    first, second, *rest = plan.measured
    factor = 1.02
    left = 1 / first.variance + 1 / second.variance - 1 / (factor * first.variance)
    shared = (replace(first, variance=factor * first.variance), replace(second, variance=1 / left), *rest)
    replace(plan, measured=shared).save(tmp_path / "plan.qs")
    _, finding = check_plan(qs.measure(plan, TABLE), tmp_path / "plan.qs")
    assert finding.status == FAILED
    assert "rounds to other integers" in finding.text


@pytest.mark.parametrize("member", ["objective", "tolerance", "array"])
def test_any_change_of_a_plan_is_found(folder, member):
    def change(pairs):
        members = dict(pairs)
        payload = json.loads(members["payload.json"])
        if member == "array":
            name = payload["variances"]["$array"]
            stream = io.BytesIO()
            np.save(stream, np.load(io.BytesIO(members[name])) * 1.5)
            members[name] = stream.getvalue()
        else:
            payload[member] = 0.5
        return members | {"payload.json": json.dumps(payload).encode()}

    archive_again(folder / "plan.qs", change)
    assert statuses(with_digests(folder))["plan.qs"] == FAILED


@pytest.mark.parametrize(("key", "value"), [("expected_error", 1.0), ("gap", 0.5)])
def test_what_a_summary_says_about_the_plan_is_compared(folder, key, value):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    path.write_bytes(document({**summary, key: summary[key] * (1 + 1e-12)}))  # rounding
    assert qs.verify(folder).ok
    path.write_bytes(document({**summary, key: value}))
    assert text(qs.verify(folder), "summary.json") == f"says something else about {key}"


def test_small_numbers_of_a_summary_are_compared_exactly(folder, plan):
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({**summary, "budget": {**summary["budget"], "rho": 0.5 + 1e-9}}))
    assert text(qs.verify(folder), "summary.json") == "says something else about budget"


def test_an_exploration_is_verified_with_the_errors_of_its_estimates(tmp_path):
    release = qs.explore(WORKLOAD, TABLE, qs.zCDP(0.5))
    made = published(tmp_path / "out", release, errors=True)
    verdict = qs.verify(made)
    assert verdict.ok
    assert statuses(verdict)["errors.csv"] == OK
    summary = {**summary_of(release), **exploration_summary(release)}
    for key, value in (("phases", []), ("estimate", {**summary["estimate"], "records": 0.5})):
        summarised(made, {**summary, key: value})
        assert text(qs.verify(made), "summary.json") == f"says something else about {key}"
    summarised(made, summary)
    path = made / "errors.csv"
    original = path.read_bytes()
    for column in ("error", "share", "table", "kind"):
        rows = pd.read_csv(io.BytesIO(original))
        rows[column] = (rows[column] * 1.001).replace(0, 0.001) if column in ("error", "share") else "x"
        rows.to_csv(path, index=False)
        assert repr(column) in text(with_digests(made), "errors.csv")
    rows.iloc[:-1].to_csv(path, index=False)
    assert "other columns or rows" in text(with_digests(made), "errors.csv")
    path.write_bytes(b"\xff")
    assert statuses(with_digests(made))["errors.csv"] == FAILED
    number = next(word for word in original.split(b",") if b"." in word)
    for same in (original.replace(b"\n", b"\r\n"), original.replace(number, number + b"0", 1)):
        path.write_bytes(same)
        assert statuses(with_digests(made))["errors.csv"] == OPEN
    path.write_bytes(original.replace(number, repr(float(number) * (1 + 1e-12)).encode(), 1))  # rounding
    assert path.read_bytes() != original
    assert with_digests(made).ok


def test_noise_that_is_described_otherwise_is_found(plan, tmp_path):
    release = qs.measure(plan, TABLE)
    made = tmp_path / "x.qs"
    replace(release, noise=replace(release.noise, description="Very much noise.")).save(made)
    assert "described otherwise" in text(qs.verify(made), "noise")


@pytest.mark.slow
def test_a_page_is_written_again_and_compared(folder):
    release = qs.Release.load(folder / "release.qs")
    path = release.report(folder / "report.html")
    assert statuses(qs.verify(folder))["report.html"] == OK
    page = path.read_text()
    start = page.index('id="data">')
    script = "</script><script>"
    for old, new in (
        ("Noisy counts", "Exact counts"),
        ("<dd>ρ = 0.5", "<dd>ρ = 0.1"),
        ('"reach":1.9', '"reach":2.9'),
        ('"reach":1.9', '"reach":1.9,"reach":1.9'),
        (script, f"{script}document.body.textContent='epsilon = 0.001';"),  # before the chart libraries
        ("vegaEmbed", "vegaembed"),
        ("</body>", "<p>epsilon = 0.001</p></body>"),
        ("</html>", "</html>\n<script>alert()</script>"),
        ("\n", "\r\n"),
        ("<!DOCTYPE html>", "\ufeff<!DOCTYPE html>"),
        ("querysmasher", "Querysmasher"),
    ):
        at = page.index(old, start if old[0] in '"<' and old != "<dd>ρ = 0.5" and "!" not in old else 0)
        path.write_bytes((page[:at] + new + page[at + len(old) :]).encode())
        assert check_page(release, path).status == FAILED, new
    assert not qs.verify(folder).ok
    path.write_text("<p>")
    assert statuses(qs.verify(folder))["report.html"] == FAILED


@pytest.mark.slow
def test_the_page_of_another_version_is_not_verified(folder, monkeypatch):
    """Whatever it shows, also if the summary says that another version wrote the folder."""
    release = qs.Release.load(folder / "release.qs")
    path = release.report(folder / "report.html")
    page = path.read_text()
    assert f'content="querysmasher {qs.__version__}, altair ' in page
    for old, new in (("querysmasher 0", "querysmasher 9.0"), ("vl-convert ", "vl-convert 9.")):
        path.write_text(page.replace(old, new, 1))
        verdict = qs.verify(folder)
        assert verdict.outcome == OPEN
        assert "Make it again, or verify it with the former" in text(verdict, "report.html")
    path.write_text(page.replace("Noisy counts", "Exact counts"))
    summary = json.loads((folder / "summary.json").read_text())
    summarised(folder, {**summary, "querysmasher": "0.0.1"})
    assert statuses(qs.verify(folder))["report.html"] == FAILED
    path.write_text(page)
    monkeypatch.setattr(charts, "find_spec", lambda name: None)
    finding = check_page(release, path)
    assert finding.status == OPEN
    assert "pip install" in finding.text


@pytest.mark.slow
def test_a_page_with_estimates_and_a_heading_of_its_own(folder):
    release = qs.Release.load(folder / "release.qs")
    path = release.report(folder / "report.html", estimates=True)
    assert check_page(release, path).status == OK
    release.report(path, title="A & B", estimates=True)
    finding = check_page(release, path)
    assert finding.status == OPEN
    assert "the release does not state the heading 'A & B'" in finding.text
    path.write_text(path.read_text().replace("Noisy counts", "Exact counts"))
    assert check_page(release, path).status == FAILED


@pytest.mark.slow
def test_numbers_of_a_page_may_be_rounded_otherwise(folder):
    release = qs.Release.load(folder / "release.qs")
    path = release.report(folder / "report.html")
    page = path.read_text()
    for number, status in (
        (repr(math.nextafter(1.959964, 2)), OK),
        ("1.95996400", FAILED),
        ("1.95997", FAILED),
    ):
        path.write_text(page.replace('"reach":1.959964', f'"reach":{number}'))
        assert check_page(release, path).status == status, number


def leaves(data, path=()):
    if isinstance(data, dict | list):
        for key, value in data.items() if isinstance(data, dict) else enumerate(data):
            yield from leaves(value, (*path, key))
    else:
        yield path, data


def changed(value):
    """Another value of the same type."""
    if isinstance(value, bool):
        return not value
    return value + "x" if isinstance(value, str) else 1 if value is None else value * 1.001 + 1e-7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["summary.json", "datapackage.json"])
def test_every_number_and_word_is_checked(folder, name):
    """One by one, with the digests computed again; of another version of the software nothing is verified."""
    path = folder / name
    assert with_digests(folder).ok
    text_before = path.read_text()
    for place, value in leaves(json.loads(text_before)):
        data = json.loads(text_before)
        inner = data
        for key in place[:-1]:
            inner = inner[key]
        inner[place[-1]] = changed(value)
        path.write_bytes(document(data))
        verdict = qs.verify(folder) if name == "summary.json" else with_digests(folder)
        assert not verdict.ok, place

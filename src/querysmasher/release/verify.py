"""Checks of a published release, without data and without a planner.

A release folder states what was measured, with how much noise, and what follows from it. All of this can be
recomputed from the folder alone: its files have the digests that the summary states; the integer plan costs
at most its budget, exactly; and a ledger has the entry that the release names. Every other file follows from
the release: it is written again, and must have the same bytes, but for rounding on another machine. If a file
cannot be written again here, neither the file nor the folder is verified. `BEYOND` states what no check of a
folder can show.

A plan is that of the release if it rounds to its integer plan; what its planner claims beyond that (how close
to the optimum it is) can only be checked by planning again.
"""

from __future__ import annotations

import html
import math
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from querysmasher.endings import starting
from querysmasher.errors import FileError, MissingExtraError, QuerySmasherError, as_given
from querysmasher.formats.tabular import read_csv
from querysmasher.formatting import count, read_json, shown
from querysmasher.html import script_data
from querysmasher.planning.estimating import joined, residual_plan, size_share, sized_costs
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import privacy_cost, rest
from querysmasher.privacy.entries import plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.privacy.ledger import Ledger
from querysmasher.release.comparing import (
    CLOSE,
    FAILED,
    NOT_CHECKED,
    OK,
    OPEN,
    UNREADABLE,
    Finding,
    check_tables,
    close,
    same_bytes,
    sha256,
)
from querysmasher.release.outputs import (
    DESCRIPTION,
    ERRORS,
    PAGE,
    PLAN,
    RELEASE,
    SUMMARY,
    beside,
    records,
    tables,
)
from querysmasher.release.provenance import spent
from querysmasher.release.release import Release
from querysmasher.release.writing import document, software
from querysmasher.report.page import generator
from querysmasher.report.release_report import TITLE, release_page

VERSION = "querysmasher"
"""The key of the version that wrote a summary; the content of all other keys follows from the release."""

OTHERWISE = (
    "can be read and is consistent, but its bytes are not those that this version writes: it may contain more"
)

ALIKE = 1e-3
"""Maximum relative difference of variances under two plans that differ by rounding on another machine."""

HEADING = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MAKER = re.compile(r'<meta name="generator" content="(querysmasher [^"<>]{1,100})">')
ESTIMATES_SECTION = '<section id="estimates">'
DATA, END = '<script type="application/json" id="data">', "</script>"

BEYOND = (
    "No folder can show that the noise was drawn at random, that the counts come from the table that is "
    "named, or that nothing else about the same people was released: ask the custodian."
)


@dataclass(frozen=True)
class Verdict:
    """All checks of a release folder."""

    folder: str
    findings: tuple[Finding, ...]
    guarantee: str
    digest: str
    """SHA-256 of the file with the noisy numbers."""

    @property
    def ok(self) -> bool:
        """Whether every check passed."""
        return self.outcome == OK

    @property
    def outcome(self) -> str:
        """`FAILED` if a check failed, else "not verified" if one could not be made, else "passed"."""
        statuses = {finding.status for finding in self.findings}
        return next((status for status in (FAILED, OPEN) if status in statuses), OK)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "folder": self.folder,
            "verified": self.ok,
            "outcome": self.outcome,
            "digest": self.digest,
            "guarantee": self.guarantee,
            "checks": [{"check": f.name, "status": f.status, "text": f.text} for f in self.findings],
            "note": BEYOND,
        }

    def __str__(self) -> str:
        """Return the verdict as a text to paste."""
        width = max(len(finding.name) for finding in self.findings)
        verdict = {OK: "VERIFIED", FAILED: "FAILED", OPEN: "NOT VERIFIED"}[self.outcome]
        lines = [f"{verdict}: {self.folder}"]
        lines += [f"  {f.status:<12}  {f.name:<{width}}  {f.text}" for f in self.findings]
        lines += [f"SHA-256 of the release: {self.digest}"] if self.digest else []
        lines += [f"Guarantee: {self.guarantee}"] if self.guarantee else []
        counts = [f"{count(sum(f.status == OK for f in self.findings), 'check')} passed"]
        for status, word in ((FAILED, "failed"), (OPEN, "could not be made")):
            names = [f.name for f in self.findings if f.status == status]
            counts += [f"{len(names)} {word} ({', '.join(names)})"] if names else []
        return shown("\n".join([*lines, BEYOND, f"{verdict}: {', '.join(counts)}"]))


def verify(folder: str | os.PathLike[str], ledger: Ledger | str | os.PathLike[str] | None = None) -> Verdict:
    """Check a published release, without data and without planning again.

    Args:
        folder: a folder that `querysmasher release` wrote, or a file that `Release.save` wrote.
        ledger: the ledger in which the cost should be recorded, or its path. Without it, the entry that the
            release names is not checked.
    """
    if not isinstance(folder, str | os.PathLike):
        raise FileError(
            f"folder: expected the path of a release folder or of a release, got {as_given(folder)}"
        )
    if ledger is not None and not isinstance(ledger, Ledger):
        ledger = Ledger(ledger)
    path = Path(folder)
    file = path / RELEASE if path.is_dir() else path
    if not file.is_file():
        raise FileError(f"folder: no file {str(file)!r}{starting(file)}")
    digest = sha256(file)
    try:
        release = Release.load(file)
    except FileError as error:
        return Verdict(str(path), (Finding(file.name, FAILED, str(error)),), "", digest)
    whole = "complete; its parts fit together, and its checksum is right"
    findings = [check_archive(release, file, whole), _noise(release)]
    allowed = Fraction(release.noise.distribution.allowed_cost(release.plan.budget))
    cost = spent(release.plan, release.exploration, release.counted.dropped)  # of all phases, exactly
    words = f"{float(cost):.9g} of {float(allowed):.9g} allowed (rho = {float(cost) / 2:.6g}); exactly {cost}"
    findings.append(Finding("privacy cost", OK if cost <= allowed else FAILED, words))
    try:
        findings.extend(_folder(release, path) if path.is_dir() else ())
    except QuerySmasherError as error:  # nothing follows from this release
        findings.append(Finding("other files", FAILED, str(error)))
    findings.append(_recorded(release, ledger))
    return Verdict(str(path), tuple(findings), release.guarantee, digest)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a release folder but the summary, which states them."""
    return {name: sha256(folder / name) for name in _files(folder) if name != SUMMARY}


def _files(folder: Path) -> list[str]:
    """Return the names of all files, without links and folders."""
    return sorted(p.name for p in folder.iterdir() if p.is_file() and not p.is_symlink())


def _folder(release: Release, folder: Path) -> Iterator[Finding]:
    """Check everything that is in a folder."""
    there = _files(folder)
    stated: dict[str, str] = {}
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        stated = dict(read_json((folder / SUMMARY).read_bytes())["digests"].items())
    plan, planned = check_plan(release, folder / PLAN) if PLAN in there else (None, None)
    yield _digests(folder, stated)
    yield check_summary(release, plan, folder / SUMMARY)
    yield from check_tables(release, folder, there)
    if planned is not None:
        yield planned
    checks = {ERRORS: check_errors, PAGE: check_page}
    checks |= dict.fromkeys(records(), check_records)
    yield from (check(release, folder / name) for name, check in checks.items() if name in there)
    yield from _others(release, folder, there, stated)


def summary_of(release: Release) -> dict[str, Any]:
    """Return where a release comes from, its guarantee, its cost in a ledger, and its schema."""
    return {
        VERSION: import_module("querysmasher").__version__,
        **release.provenance.to_json(),
        "guarantee": release.guarantee,
        "private": release.noise.is_private,
        "budget": release.plan.budget.to_json(),
        "noise": release.noise.description,
        "person": release.person,
        "counted": release.counted.to_json(),
        "record": release.record,
        "ledger": None if release.entry is None else release.entry.to_data(),
        "integer_plan_digest": plan_digest(release.plan),
        "queries": release.workload.query_count,
        **({"statistics": [s.to_json() for s in release.statistics]} if release.statistics else {}),
        "schema": release.schema.to_json(),
    }


def planned_summary(plan: Plan, release: Release) -> dict[str, Any]:
    """Return what a plan promises about a release: the error to expect, and how close to the optimum it is.

    A plan that learns the number of records first promises neither.
    """
    if plan.sizes_first:
        return {}
    factor = math.sqrt(plan.budget.privacy_cost / _cost_left(release))
    return {"expected_error": plan.rmse * factor, "gap": plan.gap}


def exploration_summary(release: Release) -> dict[str, Any]:
    """Return the error of the estimates of an exploration, and what its phases cost."""
    if release.exploration is None:
        return {}
    estimate, plan = release.estimate(), release.plan
    error = estimate.error()
    return {
        "estimate": {
            "note": estimate.note,
            "queries": estimate.workload.query_count,
            "error": str(error),
            "kind": error.kind,
            "records": error.value,
            "interval": None if error.std is None else list(error.interval()),
        },
        "phases": [
            {"name": phase.name, "cost": float(phase.cost(plan))} for phase in release.exploration.phases
        ],
    }


def _noise(release: Release) -> Finding:
    if not release.noise.is_private:
        return Finding("noise", FAILED, f"this protects nobody: {release.noise.description}")
    try:
        for number in range(len(release.plan.measured)):
            release.store[number]  # reading them checks their type and number
    except FileError as error:
        return Finding("noise", FAILED, str(error))
    if release.noise.description != release.noise.distribution.description:
        return Finding("noise", FAILED, f"is described otherwise than noise {release.noise.name!r} is")
    unit = release.plan.budget.unit
    exact = f" Published without noise: counts {unit.exact_words}." if unit.exact else ""
    return Finding(
        "noise", OK, f"{release.measurements:,} noisy integers. {release.noise.description}{exact}"
    )


def check_plan(release: Release, file: Path) -> tuple[Plan | None, Finding]:
    """Compare a published plan with what was measured; return it if it is the plan of the release."""
    try:
        plan = Plan.load(file)
        wrong = _other_plan(release, plan, file)
    except QuerySmasherError as error:
        return None, Finding(file.name, FAILED, str(error))
    if wrong:
        return None, Finding(file.name, FAILED, wrong)
    words = f"rounds to the integer plan of {release.measurements:,} noisy integers; it costs"
    cost, budget = plan.privacy_cost, plan.budget.privacy_cost
    return plan, check_archive(plan, file, f"{words} {cost:.9g} of {budget:.9g} allowed")


def _other_plan(release: Release, plan: Plan, file: Path) -> str:
    """Return how a plan differs from that of a release; nothing if it does not."""
    stated = release.provenance.plan_digest
    if stated is not None and stated != sha256(file):
        return f"the release names a plan with another digest: {stated}"
    same = {
        "workload": plan.asked == release.asked and (plan.sizes_first or plan.workload == release.workload),
        "budget": plan.budget == release.plan.budget,
        "centres": plan.centres == release.centres,
    }
    wrong = [what for what, is_same in same.items() if not is_same]
    if wrong:
        return f"has another {' and another '.join(wrong)} than the release"
    if plan.privacy_cost > plan.budget.privacy_cost * (1 + CLOSE):
        return "costs more than its budget"
    rounded = _planned_again(release, plan)
    if plan_digest(rounded) == plan_digest(release.plan):
        return ""
    fresh = replace(release, plan=rounded, entry=None)
    if [m.attributes for m in rounded.measured] == [m.attributes for m in release.plan.measured] and all(
        math.isclose(fresh.estimator.total(group), release.estimator.total(group), rel_tol=ALIKE)
        for group in release.workload
    ):
        return ""
    return "is not the plan that was measured: it rounds to other integers"


def _planned_again(release: Release, plan: Plan) -> IntegerPlan:
    """Return the integer plan that follows from a plan, and from the noisy size if that is measured first."""
    budget, most = plan.budget, release.plan.max_records
    cost = left = _cost_left(release)
    if not plan.sizes_first or plan.asked is None:
        return integer_plan(plan, cost, most)
    schema, parts = plan.asked.schema, []
    if release.public_total is not None:
        size = float(release.public_total)
    else:
        first = replace(release.plan, measured=release.plan.measured[:1])
        size = replace(release, plan=first, exploration=None, entry=None).estimate().total
        left -= float(privacy_cost(first))
        parts = [residual_plan(schema, budget, {(): size_share(budget) * cost}, most)]
    costs = sized_costs(plan.asked, budget, size, left)
    return joined([*parts, residual_plan(schema, budget, costs, most)], budget)


def _cost_left(release: Release) -> float:
    """Return the cost that is left for planned measurements, after errors and counts of dropped records."""
    explored, allowed = release.exploration, release.noise.distribution.allowed_cost(release.plan.budget)
    taken = 0.0 if explored is None else explored.options.get("error_share", 0.0)
    return rest(allowed, release.counted.dropped) * (1 - taken)


def check_archive(value: Release | Plan, file: Path, words: str) -> Finding:
    """Write what was read from a file again: the file must contain nothing else."""
    with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
        try:
            value.save(Path(made) / file.name)
        except FileError as error:
            return Finding(file.name, FAILED, str(error))
        same = same_bytes(file, Path(made) / file.name)
    return Finding(file.name, OK, words) if same else Finding(file.name, OPEN, OTHERWISE)


def check_errors(release: Release, file: Path) -> Finding:
    """Compute the errors of the estimates again, write them and compare."""
    expected = release.estimate().errors().to_frame()
    try:
        columns, _ = read_csv(file)
        if list(columns) != expected.column_names or any(
            len(column) != len(expected) for column in columns.values()
        ):
            return Finding(file.name, FAILED, "it has other columns or rows")
        given = pa.table(columns).cast(expected.schema)
    except UNREADABLE as error:
        return Finding(file.name, FAILED, f"it cannot be read ({type(error).__name__})")
    for name in expected.column_names:
        if not all(map(close, given[name].to_pylist(), expected[name].to_pylist())):
            return Finding(file.name, FAILED, f"does not follow from the noisy numbers: column {name!r}")
    words = f"errors of the estimates of {count(len(given), 'table')} follow from the noisy numbers"
    stream = pa.BufferOutputStream()
    csv.write_csv(given, stream)
    if stream.getvalue().to_pybytes() != file.read_bytes():
        how = f"its bytes are not those that {software('pyarrow')} writes here"
        return Finding(file.name, OPEN, f"{words}, but {how}")
    return Finding(file.name, OK, words)


def check_records(release: Release, file: Path) -> Finding:
    """Draw synthetic records again, from the seed that their description states, and compare."""
    described = file.with_name(beside(file.name))
    try:
        stated = read_json(described.read_bytes())["querysmasher"]
        weights = stated.get("weights", False)
        drawn = release.estimate().microdata(stated["records"], seed=stated["seed"], weights=weights)
        with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
            fresh = Path(made) / file.name
            drawn.write(fresh, False)
            same = same_bytes(file, fresh) and same_bytes(described, fresh.with_name(described.name))
    except QuerySmasherError as error:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {error}")
    except UNREADABLE as error:
        return Finding(file.name, FAILED, f"{described.name} cannot be read ({type(error).__name__})")
    if not same:
        how = f"{software('numpy', 'scipy', 'pyarrow')} draws or writes other records from its seed here"
        return Finding(file.name, OPEN, f"it cannot be compared: {how}")
    words = count(drawn.count, "synthetic record")
    return Finding(file.name, OK, f"{words} follow from the noisy numbers and the seed that is stated")


def check_summary(release: Release, plan: Plan | None, file: Path) -> Finding:
    """Write the summary again, with the digests that it states, and compare."""
    try:
        text = file.read_bytes()
        stated = dict(read_json(text).items())
    except (OSError, ValueError, AttributeError) as error:
        why = "repeats a key" if "repeats" in str(error) else "missing, or not valid JSON"
        return Finding(file.name, FAILED, why)
    promised = {} if plan is None else planned_summary(plan, release)
    computed = exploration_summary(release) | promised  # on another machine the same but for rounding
    expected = read_json(document({**summary_of(release), **computed}))
    expected |= {key: stated[key] for key in computed if close(stated.get(key), expected[key])}
    if isinstance(stated.get("digests"), dict):
        expected["digests"] = dict(sorted(stated["digests"].items()))
    if document(expected) == text:
        digest = expected["integer_plan_digest"]
        return Finding(file.name, OK, f"states the guarantee; the integer plan has digest {digest}")
    wrong = [key for key in expected if key in stated and stated[key] != expected[key] and key != VERSION]
    if wrong:
        return Finding(file.name, FAILED, f"says something else about {', '.join(wrong)}")
    more, silent = sorted({*stated} - {*expected}), [key for key in expected if key not in stated]
    words = [f"it also states {', '.join(more)}"] if more else []
    words += [f"it does not state {', '.join(silent)}"] if silent else []
    if stated.get(VERSION, expected[VERSION]) != expected[VERSION]:  # another version may state other things
        by = f"version {stated[VERSION]} wrote it, and this is {expected[VERSION]}"
        return Finding(file.name, OPEN, "; ".join(["nothing in it is wrong", by, *words]))
    ours = f"it is not the text that version {expected[VERSION]} writes"
    return Finding(file.name, FAILED, "; ".join(words) or ours)


def check_page(release: Release, file: Path) -> Finding:
    """Make the page again, and compare; other versions of the software make other pages."""
    heading = release.provenance.title or TITLE
    try:
        given = file.read_bytes().decode()
        estimate = release.estimate() if ESTIMATES_SECTION in given else None
        fresh = release_page(release, heading, estimate)
        if _same_page(given, fresh):
            return Finding(file.name, OK, "the page follows from the noisy numbers, byte for byte")
        maker = MAKER.search(given)
        if maker is not None and html.unescape(maker[1]) != generator():
            by = f"{html.unescape(maker[1])} made it; {generator()} makes other pages"
            return Finding(file.name, OPEN, f"{by}. Make it again, or verify it with the former")
        shown = HEADING.search(given)
        title = heading if shown is None else html.unescape(shown[1])
        if title != heading and _same_page(given, release_page(release, title, estimate)):
            words = f"the release does not state the heading {title!r}; all else follows from it"
            return Finding(file.name, OPEN, words)
    except MissingExtraError as error:
        return Finding(file.name, OPEN, f"it cannot be made again to compare it: {error}")
    except (QuerySmasherError, OSError, ValueError) as error:
        return Finding(file.name, FAILED, f"it cannot be read ({type(error).__name__})")
    pairs = zip_longest(given.split("\n"), fresh.split("\n"))
    line = next(number for number, (left, right) in enumerate(pairs, 1) if left != right)
    words = "is not the page that follows from the noisy numbers"
    return Finding(file.name, FAILED, f"{words}: it differs from line {line:,} on")


def _same_page(given: str, fresh: str) -> bool:
    """Return whether two pages are the same, but for rounding of the numbers for their scripts."""
    if given == fresh:
        return True
    (start, _, rest_given), (fresh_start, _, rest_fresh) = (page.partition(DATA) for page in (given, fresh))
    (data, _, end), (fresh_data, _, fresh_end) = (part.partition(END) for part in (rest_given, rest_fresh))
    if (start, end) != (fresh_start, fresh_end):
        return False
    numbers = read_json(data)
    return close(numbers, read_json(fresh_data)) and script_data(numbers, "data") == DATA + data + END


def _digests(folder: Path, stated: Mapping[str, str]) -> Finding:
    """Compare every file with the digest that the summary states."""
    there = digests(folder)
    if not stated:
        return Finding("files", OPEN, f"{SUMMARY} states no digests")
    wrong = sorted(name for name in stated if name in there and there[name] != stated[name])
    missing = sorted(set(stated) - set(there))
    if wrong or missing:
        words = (("changed", wrong), ("missing", missing))
        return Finding("files", FAILED, "; ".join(f"{', '.join(n)} {what}" for what, n in words if n))
    return Finding("files", OK, f"{', '.join(sorted(stated))} have the digests that {SUMMARY} states")


def _others(
    release: Release, folder: Path, there: Sequence[str], stated: Mapping[str, str]
) -> Iterator[Finding]:
    """Name everything that no check looks at, and files that the summary does not name."""
    of_figures = tables(statistic.name for statistic in release.statistics)
    made_later = {
        PAGE,
        SUMMARY,
        *(name for file in records() if file in there for name in (file, beside(file))),
    }
    known = {RELEASE, PLAN, ERRORS, *made_later, *of_figures}
    if any(name in of_figures for name in there):
        known.add(DESCRIPTION)  # else it describes nothing
    kinds = {Path.is_symlink: " (a link)", Path.is_dir: " (a folder)", Path.is_file: ""}
    strangers = [
        p.name + next((words for is_kind, words in kinds.items() if is_kind(p)), " (not a file)")
        for p in sorted(folder.iterdir())
        if p.name not in known or p.name not in there
    ]
    unnamed = [name for name in there if name in known - made_later - {*stated}]
    words = [f"these do not follow from the release: {', '.join(strangers)}"] if strangers else []
    words += [f"{SUMMARY} states no digest of {', '.join(unnamed)}"] if unnamed else []
    if words:
        yield Finding("other files", OPEN, "; ".join(words))


def _recorded(release: Release, ledger: Ledger | None) -> Finding:
    """Look up the entry of the release."""
    entry = release.entry
    if entry is None:
        return Finding("ledger", NOT_CHECKED if ledger is None else FAILED, release.record)
    if ledger is None:
        return Finding("ledger", NOT_CHECKED, f"{release.record} No ledger was given to look it up.")
    try:
        chain = ledger.verify()
    except QuerySmasherError as error:
        return Finding("ledger", FAILED, str(error))
    if entry not in chain.entries:
        return Finding("ledger", FAILED, f"{str(ledger.path)!r} does not have the entry. {release.record}")
    entries = count(len(chain.entries), "entry", "entries")
    return Finding("ledger", OK, f"{release.record} The chain of {entries} is unbroken.")

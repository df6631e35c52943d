"""What a release folder states, and checks of its files.

Every file beside the noisy numbers follows from the release: answers, estimates and their errors, the
summary, the page. Each is written again as it was asked for, and compared. A plan is that of the release if
it rounds to its integer plan; what its planner claims beyond that (how close to the optimum it is) can only
be checked by planning again.
"""

from __future__ import annotations

import html
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import csv

from querysmasher.errors import FileError, MissingExtraError, QuerySmasherError
from querysmasher.estimate.answers import write_estimates
from querysmasher.estimate.estimate import Estimate
from querysmasher.formatting import count, read_json
from querysmasher.html import script_data
from querysmasher.planning.estimating import joined, residual_plan, size_share, sized_costs
from querysmasher.planning.integer import integer_plan
from querysmasher.planning.plan import Plan
from querysmasher.privacy.accounting import privacy_cost, rest
from querysmasher.privacy.entries import plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan
from querysmasher.release.comparing import (
    CLOSE,
    UNREADABLE,
    WRITER,
    Adopted,
    close,
    difference,
    same_bytes,
    sha256,
)
from querysmasher.release.formats import read_csv
from querysmasher.release.outputs import ANSWERS, DESCRIPTION, tables
from querysmasher.release.release import Release
from querysmasher.release.writing import document, software, write_answers
from querysmasher.report.expectations import noise_factor
from querysmasher.report.page import generator
from querysmasher.report.release_report import TITLE, release_page
from querysmasher.statistics.reliability import Rules

OK, FAILED, OPEN, NOT_ASKED = "passed", "FAILED", "not verified", "not asked"

VERSION = "querysmasher"
"""The key of the version that wrote a summary; all others follow from the release."""

OTHERWISE = (
    "can be read and is consistent, but its bytes are not those that this version writes: it may contain more"
)

ALIKE = 1e-3
"""Maximum relative difference of variances under two plans that differ by rounding on another machine."""

HEADING = re.compile(r"<h1>(.*?)</h1>", re.DOTALL)
MAKER = re.compile(r'<meta name="generator" content="(querysmasher [^"<>]{1,100})">')
ESTIMATES_SECTION = '<section id="estimates">'
DATA, END = '<script type="application/json" id="data">', "</script>"


@dataclass(frozen=True)
class Finding:
    """The result of one check."""

    name: str
    status: str
    """`OK`; `FAILED`: it is wrong; `OPEN`: nobody can say so here; `NOT_ASKED`: the user did not ask."""
    text: str


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
        "schema": release.plan.schema.to_json(),
    }


def planned_summary(plan: Plan, release: Release) -> dict[str, Any]:
    """Return what a plan promises about a release: the error to expect, and how close to the optimum it is.

    A plan that learns the number of records first promises neither.
    """
    if plan.sizes_first:
        return {}
    noise = release.noise.distribution
    left = _cost_left(release) / noise.allowed_cost(plan.budget)
    factor = noise_factor(plan, noise) / math.sqrt(left)
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
    return plan, check_archive(plan, file, f"{words} {cost:.9g}, of {budget:.9g} allowed")


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
    """Return the cost that errors of estimates and records left out leave to the measurements planned."""
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


def check_summary(release: Release, plan: Plan | None, file: Path) -> Finding:
    """Write the summary again, with the digests that it states, and compare."""
    try:
        text = file.read_bytes()
        stated = dict(read_json(text).items())
    except (OSError, ValueError, AttributeError) as error:
        words = "repeats a key" if "repeats" in str(error) else "missing, or not valid JSON"
        return Finding(file.name, FAILED, words)
    computed = exploration_summary(release)  # on another machine the same but for rounding
    if plan is not None:
        computed |= planned_summary(plan, release)
    expected = read_json(document({**summary_of(release), **computed}))
    for key in computed:
        if key in stated and close(stated[key], expected[key]):
            expected[key] = stated[key]
    digests = stated.get("digests")
    if isinstance(digests, dict):
        expected["digests"] = dict(sorted(digests.items()))
    if document(expected) == text:
        digest = expected["integer_plan_digest"]
        return Finding(file.name, OK, f"states the guarantee; the integer plan has digest {digest}")
    return _other_summary(stated, expected, file.name)


def _other_summary(stated: Mapping[str, Any], expected: Mapping[str, Any], name: str) -> Finding:
    """Return how a summary differs from the one expected; another version may state other things."""
    wrong = [key for key, value in expected.items() if key in stated and stated[key] != value]
    more, silent = sorted({*stated} - {*expected}), [key for key in expected if key not in stated]
    if wrong not in ([], [VERSION]):
        false = ", ".join(key for key in wrong if key != VERSION)
        return Finding(name, FAILED, f"says something else about {false}")
    words = [f"it also states {', '.join(more)}"] if more else []
    words += [f"it does not state {', '.join(silent)}"] if silent else []
    if wrong:
        by = f"version {stated[VERSION]} wrote it, and this is {expected[VERSION]}"
        return Finding(name, OPEN, "; ".join(["nothing in it is wrong", by, *words]))
    ours = f"it is not the text that version {expected[VERSION]} writes"
    return Finding(name, FAILED, "; ".join(words) or ours)


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


def check_tables(release: Release, folder: Path, there: Sequence[str]) -> Iterator[Finding]:
    """Write the files of answers and estimates again, and their description; compare them with those there.

    Level, thresholds and suppression are those that the description states.
    """
    files = [folder / name for name in tables() if name in there]
    described = DESCRIPTION in there and bool(files)
    stated, wrong = _package(folder / DESCRIPTION) if described else ({}, "")
    with tempfile.TemporaryDirectory(prefix="querysmasher-") as made:
        for file in files:
            source = release if file.name.startswith(ANSWERS) else release.estimate()
            yield _checked(source, file, stated, Path(made))
        if wrong:
            yield Finding(DESCRIPTION, FAILED, wrong)
        elif described and not all((Path(made) / file.name).is_file() for file in files):
            yield Finding(DESCRIPTION, OPEN, "not every file that it describes could be written again")
        elif described:
            yield _description(stated, folder, Path(made))


def _checked(source: Release | Estimate, file: Path, package: Mapping[str, Any], made: Path) -> Finding:
    """Write one file again: if its bytes differ, with its own numbers where these differ by rounding only."""
    what = "answers and standard errors" if isinstance(source, Release) else "estimates"
    words = f"{source.workload.query_count:,} {what} follow from the noisy numbers"
    fresh, workload = made / file.name, source.workload
    described = [part for part in package.get("resources", []) if part.get("path") == file.name]
    stated = described[0].get("querysmasher") if described else {}

    def write(adopted: Adopted | None = None) -> None:
        if isinstance(source, Release):
            rules = Rules(**{key: stated[key] for key in ("thresholds", "suppress") if key in stated})
            write_answers(source, workload, fresh, False, level, rules, adopted)
        else:
            about = {**source.about, "note": source.note}
            write_estimates(source.answers, about, workload, fresh, False, adopted)

    try:
        if not isinstance(stated, dict):
            raise FileError(f"{DESCRIPTION} does not say how {file.name!r} was written")
        level = stated.get("level", 0.95)
        write()
        if not same_bytes(file, fresh):
            write(Adopted(file, level))
    except MissingExtraError as error:
        return Finding(file.name, OPEN, f"it cannot be written again to compare it: {error}")
    except QuerySmasherError as error:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {error}")
    if same_bytes(file, fresh):
        return Finding(file.name, OK, words)
    wrong = difference(file, fresh, level)
    if wrong:
        return Finding(file.name, FAILED, f"does not follow from the noisy numbers: {wrong}")
    how = f"its bytes are not those that {software('pyarrow')} writes here"
    return Finding(file.name, OPEN, f"{words}, but {how}: another program may read something else from it")


def _package(path: Path) -> tuple[dict[str, Any], str]:
    """Return a description, or an empty one and what is wrong with it."""
    try:
        stated = read_json(path.read_bytes())
        parts = stated["resources"]
        if isinstance(parts, list) and all(isinstance(part, dict) for part in parts):
            return stated, ""
    except (OSError, ValueError, LookupError, TypeError) as error:
        if "repeats" in str(error):
            return {}, "it repeats a key"
    return {}, "it is not valid"


def _description(stated: Mapping[str, Any], folder: Path, made: Path) -> Finding:
    """Compare a description with the one that follows from the release, for files of these sizes."""
    expected = _package(made / DESCRIPTION)[0]
    for part in expected["resources"]:
        if "bytes" in part:
            part["bytes"] = (folder / part["path"]).stat().st_size
    if document(expected) == (folder / DESCRIPTION).read_bytes():
        return Finding(DESCRIPTION, OK, "columns, labels, units, guarantee and sizes of these files")
    wrong = _otherwise(stated, expected)
    if wrong:
        return Finding(DESCRIPTION, FAILED, wrong)
    writers = {str(part["querysmasher"].get(WRITER)) for part in (stated, *stated["resources"])}
    if writers != {software()}:
        by = " and ".join(sorted(writers))
        return Finding(DESCRIPTION, OPEN, f"nothing in it is wrong; {by} wrote it, and this is {software()}")
    return Finding(DESCRIPTION, FAILED, f"it is not the text that {software()} writes")


def _otherwise(stated: Mapping[str, Any], expected: Mapping[str, Any]) -> str:
    """Return what a description says otherwise than expected, but for the software that wrote it."""
    given, wanted = stated["resources"], expected["resources"]
    there = [part["path"] for part in wanted]
    foreign = [part.get("path") for part in given if part.get("path") not in there]
    if foreign:
        return f"it describes {foreign[0]!r}, which is not there"
    wrong = _differing({**stated, "resources": None}, {**expected, "resources": None})
    if wrong:
        return f"it says something else about {', '.join(wrong)}"
    for part, expected_part in zip_longest(given, wanted):
        if part is None or expected_part is None:
            return f"it describes {len(given)} tables, and there are {len(wanted)}"
        wrong = _differing(part, expected_part)
        if wrong:
            return f"it says something else about {', '.join(wrong)} of {expected_part['path']}"
    return ""


def _differing(given: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {*given, *wanted} if _without(given.get(key)) != _without(wanted.get(key)))


def _without(value: Any) -> Any:
    """Return a part of a description without the software that wrote it."""
    return {k: v for k, v in value.items() if k != WRITER} if isinstance(value, dict) else value

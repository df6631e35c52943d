"""`querysmasher release` and `explore`: measure a table and write a folder that may be published."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyarrow import csv

from querysmasher.cli.command import SPEC, AnswerFormat
from querysmasher.cli.folder import Draft, check_writable, drafting, load_plan, load_release, resuming
from querysmasher.cli.output import note, print_json, print_pairs, say
from querysmasher.cli.querying import example_for
from querysmasher.cli.specs import measuring_cost, opened
from querysmasher.errors import PlanError, PrivacyError, SpecError
from querysmasher.formats import format_of
from querysmasher.formatting import count
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import readable
from querysmasher.privacy.distributions import distribution_of
from querysmasher.release.comparing import sha256
from querysmasher.release.outputs import (
    ANSWERS,
    DESCRIPTION,
    ERRORS,
    ESTIMATES,
    PLAN,
    RELEASE,
    STATISTIC,
    SUMMARY,
)
from querysmasher.release.release import Release
from querysmasher.release.verify import digests, exploration_summary, planned_summary, summary_of
from querysmasher.release.writing import document, write_statistic
from querysmasher.spec import Spec
from querysmasher.spec.discoveries import known
from querysmasher.spec.spec import Source
from querysmasher.statistics.reliability import Rules
from querysmasher.workload.sum import units_of

SPENT = (
    "Every measurement spends the budget again. Privacy loss adds up across releases about the same people, "
    "even if they are replaced or discarded. Answers from this release have no further privacy cost."
)


def _run(
    name: str,
    *,
    spec: Path,
    data: Path | None,
    out: Path | None,
    answers: AnswerFormat | None,
    resume: Path | None,
    error_share: float | None,
    seed: int | None,
    force: bool,
    as_json: bool,
    plan: Path | None = None,
) -> None:
    """Measure a table, as planned or by exploring it, and write the folder."""
    explores = name == "explore"
    read = opened(spec).buying(error_share)
    if explores and read.statistics:
        raise SpecError(
            f"{read.path.name}: statistics: expected none to explore, got {len(read.statistics)}; what "
            "is measured is not known in advance: `querysmasher answer` shows statistics afterwards"
        )
    if explores and read.least:
        raise SpecError(f"{read.path.name}: budget: expected an amount to explore a table, got least = true")
    folder, form = out or read.folder, read.output.answers if answers is None else answers
    if form != "none":
        format_of(f"{ANSWERS}.{form}").check()
    command = shlex.join(
        ["querysmasher", name, *([] if spec == SPEC else [str(spec)]), *(["--out", str(out)] if out else [])]
    )
    planned: Plan | None = None
    if read.discoveries and plan is not None:
        raise SpecError("--plan: expected no plan, because values are discovered before it can be made")
    if resume is not None:
        left = load_release(resume)
        if read.discoveries:
            found = known(left.schema, read.discoveries)
            read = read.with_values(found, left.plan.budget, left.provenance.discovered)
        planned, measured = _left_over(resume, read, explores)
        with resuming(folder, resume, force, command) as draft, draft.spent():
            summary, names = _finish(draft, read, planned, measured, form)
    else:
        source = read.table(data)
        _check_ledger(read, seed)
        check_writable(folder, force, command)
        source.check()
        if read.discoveries:
            if not explores:
                read.supposed().plan()  # errors appear before anything is spent
            read = _with_values(read, source, seed)
        if not explores:
            planned = read.plan() if plan is None else _stored(plan, read)
            measuring_cost(planned)
        with drafting(folder, force, command, 8 * planned.measurements if planned else 0) as draft:
            if planned is None:
                measured = read.explore(source.open(), seed=seed)
            else:
                planned.save(draft.folder / PLAN)
                measured = read.measure(planned, source.open(), seed=seed)
            with draft.spent():
                words = {"date": datetime.now(UTC).date(), **read.about.model_dump(exclude_none=True)}
                digest = {} if planned is None else {"plan_digest": sha256(draft.folder / PLAN)}
                measured = measured.described(**words, spec_digest=sha256(read.path), **digest)
                draft.keep(measured)
                summary, names = _finish(draft, read, planned, measured, form)
    if as_json:
        print_json({"folder": str(folder), "files": names, **summary, "note": SPENT})
    else:
        _show(folder, names, summary, measured, explores)


release, explore = partial(_run, "release"), partial(_run, "explore")


def _with_values(read: Spec, source: Source, seed: int | None) -> Spec:
    """Discover values, and show them: they are not lost if what follows fails."""
    made = read.discover(source.open(), seed=seed)
    for name, values in known(made.schema, read.discoveries).items():
        listed = json.dumps([str(v) if isinstance(v, date) else v for v in values], ensure_ascii=False)
        note(
            f"Discovered {count(len(values), 'value')} of {name!r}. They carry noise and may be published. "
            f"To plan with them again at no further cost, write values = {listed}"
        )
    return made


def _check_ledger(read: Spec, seed: int | None) -> None:
    """Check the ledger before planning, which may take long; refuse a simulation."""
    if read.ledger is None:
        return
    if seed is not None:
        raise PrivacyError(
            "--seed: a simulation protects nobody, so the ledger cannot record its cost; remove [budget] "
            "ledger from the spec"
        )
    read.ledger.open().check_unit(read.budget)
    if read.least:
        return  # planning finds the cost
    left, cost = read.ledger.left(), distribution_of(read.measuring.noise).allowed_cost(read.budget)
    if left is not None and left[0] < cost:
        note(
            f"The ledger leaves {left[1]}; the budget is rho = {readable(cost / 2):.6g}. The measurement "
            "will probably be refused."
        )


def _stored(path: Path, read: Spec) -> Plan:
    """Return a plan saved by `plan --save`; refuse one for another spec."""
    stored = load_plan(path)
    same = (stored.asked or stored.workload) == read.workload and stored.purpose == read.planning.purpose
    if not same or not read.fits(stored.budget):
        what = "budget" if same else "workload"
        raise PlanError(f"--plan: {str(path)!r} has a different {what} than {read.path.name}; plan again")
    return read.checked(stored)


def _left_over(path: Path, read: Spec, explores: bool) -> tuple[Plan | None, Release]:
    """Return the plan, if any, and the release that a run left behind; refuse those of another spec."""
    measured = load_release(path)
    was_explored = measured.exploration is not None and measured.exploration.was_explored
    same = {
        "workload": was_explored == explores and (measured.asked or measured.workload) == read.workload,
        "budget": read.fits(measured.plan.budget),
        "list of [[statistics]]": measured.statistics == read.statistics,
        "noise": measured.noise.name == read.measuring.noise,
        "person": measured.person == read.measuring.person,
        "policy for unknown values": measured.counted.unknown in (None, read.measuring.unknown),
        "report_dropped": (measured.left_out is not None) == read.measuring.report_dropped,
    }
    for what, is_same in same.items():
        if not is_same:
            msg = f"--resume: {str(path)!r} was measured with a different {what} than {read.path.name}"
            raise PlanError(msg)
    if read.ledger is not None and measured.entry not in read.ledger.open().entries:
        raise PrivacyError(
            f"--resume: {str(path)!r} is not recorded in the ledger {str(read.ledger.path)!r}; completing it "
            "would publish a cost that no ledger has recorded"
        )
    stored = (path if path.is_dir() else path.parent) / PLAN
    if explores:
        return None, measured
    return load_plan(stored) if stored.is_file() else read.plan(), measured


def _finish(
    draft: Draft, read: Spec, planned: Plan | None, measured: Release, form: str
) -> tuple[dict[str, Any], list[str]]:
    """Write the other files of the release folder and publish it; return its summary and its files."""
    summary = {**summary_of(measured), **exploration_summary(measured)}
    names = [RELEASE, SUMMARY]
    if planned is not None:
        summary |= planned_summary(planned, measured)
        names.insert(1, PLAN)
        if not (draft.folder / PLAN).is_file():
            planned.save(draft.folder / PLAN)
    if form != "none":
        name = f"{ANSWERS}.{form}"
        measured.write(measured.workload, draft.folder / name, **read.output.reliability)
        names += [name, DESCRIPTION]
    if read.estimate is not None or measured.asked is not None:
        estimate, stated = measured.estimate(), None if read.estimate is None else read.estimate.answers
        if (stated or form) != "none":
            names.append(f"{ESTIMATES}.{stated or form}")
            estimate.write(estimate.workload, draft.folder / names[-1])
        csv.write_csv(estimate.errors().to_frame(), draft.folder / ERRORS)
        names.append(ERRORS)
    rules = Rules(read.output.thresholds, read.output.suppress)
    for statistic in measured.statistics:
        names.append(f"{STATISTIC}{statistic.name}.{'csv' if form == 'none' else form}")
        write_statistic(measured, statistic, draft.folder / names[-1], read.output.level, rules)
    if DESCRIPTION not in names and (draft.folder / DESCRIPTION).is_file():
        names.append(DESCRIPTION)
    summary["digests"] = digests(draft.folder)
    (draft.folder / SUMMARY).write_bytes(document(summary))
    draft.publish()
    return summary, names


def _show(folder: Path, names: list[str], summary: dict[str, Any], measured: Release, explored: bool) -> None:
    """Print what was measured and written, and the command to run next."""
    achieved, then = [], f"report {folder}"
    if not explored:
        error = f", expected error ± {summary['expected_error']:.3g}" if "expected_error" in summary else ""
        units = units_of(measured.workload) if error else ""
        achieved = [("Answers", f"{count(summary['queries'], 'query', 'queries')}{error}{units}")]
        example = example_for(measured)
        then = f"answer {folder}" + (f' "{example}"' if example else "")
    print_pairs(
        [
            ("Guarantee", measured.guarantee),
            *([] if measured.left_out is None else [("Left out", measured.left_out.words())]),
            ("Ledger", measured.record),
            *achieved,
            *([("Estimates", summary["estimate"]["error"])] if summary.get("estimate") else []),
            ("Written", ", ".join(str(folder / name) for name in names)),
            ("Remember", SPENT),
        ]
    )
    say(f"Next: `querysmasher {then}`")

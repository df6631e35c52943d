"""Checks of a published release, without data and without a planner.

A release folder states what was measured, with how much noise, and what follows from it. All of this can be
recomputed from the folder alone: its files have the digests that the summary states; the integer plan costs
at most its budget, exactly; the answers follow from the noisy numbers; and a ledger has the entry that the
release names. What no check of a folder can show is in `BEYOND`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from querysmasher.errors import FileError, QuerySmasherError, as_given
from querysmasher.formatting import count
from querysmasher.planning.plan import Plan
from querysmasher.privacy.ledger import Ledger
from querysmasher.release.comparing import sha256
from querysmasher.release.description import NAME as DESCRIPTION
from querysmasher.release.exploration import spent
from querysmasher.release.finding import FAILED, OK, OPEN, Finding
from querysmasher.release.published import check_errors, check_page, check_plan, close
from querysmasher.release.redone import redone
from querysmasher.release.release import Release
from querysmasher.release.summary import VERSION, exploration_summary, planned_summary, summary_of
from querysmasher.text import shown

RELEASE, SUMMARY = "release.qs", "summary.json"
PLAN, ERRORS, PAGE = "plan.qs", "errors.csv", "report.html"

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
        """Whether no check failed."""
        return all(finding.status != FAILED for finding in self.findings)

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "folder": self.folder,
            "verified": self.ok,
            "digest": self.digest,
            "guarantee": self.guarantee,
            "checks": [{"check": f.name, "status": f.status, "text": f.text} for f in self.findings],
            "note": BEYOND,
        }

    def __str__(self) -> str:
        """Return the verdict as a text to paste."""
        width = max(len(finding.name) for finding in self.findings)
        lines = [f"{'VERIFIED' if self.ok else 'NOT VERIFIED'}: {self.folder}"]
        lines += [f"  {f.status:<11}  {f.name:<{width}}  {f.text}" for f in self.findings]
        lines += [f"{RELEASE}: sha256 {self.digest}"] if self.digest else []
        lines += [f"Guarantee: {self.guarantee}"] if self.guarantee else []
        return shown("\n".join([*lines, BEYOND]))


def verify(folder: str | os.PathLike[str], ledger: Ledger | str | os.PathLike[str] | None = None) -> Verdict:
    """Check a published release; read neither data nor a plan.

    Args:
        folder: a folder that `querysmasher release` wrote, or a file that `Release.save` wrote.
        ledger: where the cost should be recorded, or its path. Without it, the entry that the release names
            is not looked up.
    """
    if not isinstance(folder, str | os.PathLike):
        msg = f"folder: expected the path of a release folder or of a release, got {as_given(folder)}"
        raise FileError(msg)
    if ledger is not None and not isinstance(ledger, Ledger):
        ledger = Ledger(ledger)
    path = Path(folder)
    file = path / RELEASE if path.is_dir() else path
    if not file.is_file():
        msg = f"folder: no file {str(file)!r}"
        raise FileError(msg)
    digest = sha256(file)
    try:
        release = Release.load(file)
    except FileError as error:
        return Verdict(str(path), (Finding(file.name, FAILED, str(error)),), "", digest)
    findings = [Finding(file.name, OK, "complete; its parts fit together, and its checksum is right")]
    findings += [_noise(release), _cost(release)]
    if path.is_dir():
        summary = _summary(path)
        plan, beside = _beside(release, path, summary)
        findings += _files(path, summary)
        findings += [*_stated(release, plan, summary), *_answers(release, path), *beside]
    findings.append(_recorded(release, ledger))
    return Verdict(str(path), tuple(findings), release.guarantee, digest)


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every file of a release folder but the summary, which states them."""
    return {p.name: sha256(p) for p in sorted(folder.iterdir()) if p.is_file() and p.name != SUMMARY}


def _noise(release: Release) -> Finding:
    if not release.noise.is_private:
        return Finding("noise", FAILED, f"this protects nobody: {release.noise.description}")
    try:
        for number in range(len(release.plan.measured)):
            release.store[number]  # which checks their type and their number
    except FileError as error:
        return Finding("noise", FAILED, str(error))
    if release.noise.description != release.noise.distribution.description:
        return Finding("noise", FAILED, f"is described otherwise than noise {release.noise.name!r} is")
    return Finding("noise", OK, f"{release.measurements:,} noisy integers. {release.noise.description}")


def _cost(release: Release) -> Finding:
    """Recompute the exact cost of the integer plan, and of the phases between which it was planned."""
    budget = release.plan.budget
    cost = spent(release.plan, release.exploration, release.counted.dropped)
    allowed = Fraction(release.noise.distribution.allowed_cost(budget))
    words = f"{cost} = {float(cost):.9g}, of {float(allowed):.9g} allowed (rho = {float(cost) / 2:.6g})"
    return Finding("privacy cost", OK if cost <= allowed else FAILED, words)


def _summary(folder: Path) -> Mapping[str, Any] | None:
    """Return what the summary states, or None if it cannot be read."""
    try:
        found = json.loads((folder / SUMMARY).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _files(folder: Path, summary: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Compare every file with the digest that the summary states."""
    stated = summary.get("digests") if summary else None
    if not isinstance(stated, dict) or not stated:
        yield Finding("files", OPEN, f"{SUMMARY} states no digests")
        return
    there = digests(folder)
    wrong = sorted(name for name in stated if name in there and there[name] != stated[name])
    missing = sorted(set(stated) - set(there))
    if wrong or missing:
        words = (("changed", wrong), ("missing", missing))
        yield Finding("files", FAILED, "; ".join(f"{', '.join(n)} {what}" for what, n in words if n))
    else:
        yield Finding("files", OK, f"{', '.join(sorted(stated))} have the digests that {SUMMARY} states")
    others = sorted(set(there) - {*stated, PAGE})  # which is written again
    if others:
        yield Finding("other files", OPEN, ", ".join(others))


def _beside(
    release: Release, folder: Path, summary: Mapping[str, Any] | None
) -> tuple[Plan | None, list[Finding]]:
    """Check the plan, the errors of estimates and the page, as far as they are there; return the plan."""
    plan, findings = None, []
    if (folder / PLAN).is_file():
        plan, finding = check_plan(release, folder / PLAN)
        findings.append(finding)
    if (folder / ERRORS).is_file():
        findings.append(check_errors(release, folder / ERRORS))
    if (folder / PAGE).is_file():
        same_version = (summary or {}).get(VERSION) == summary_of(release)[VERSION]
        findings.append(check_page(release, folder / PAGE, same_version))
    return plan, findings


def _stated(release: Release, plan: Plan | None, summary: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Compare what the summary says about the release with what follows from it."""
    if summary is None:
        yield Finding(SUMMARY, FAILED, "missing, or not valid JSON")
        return
    exact = {key: value for key, value in summary_of(release).items() if key != VERSION}
    computed = exploration_summary(release)  # on another machine the same but for rounding
    if plan is not None:
        computed |= planned_summary(plan, release)
    expected = json.loads(json.dumps(exact | computed))
    wrong = [
        key
        for key, value in expected.items()
        if key in summary and not (summary[key] == value or (key in computed and close(summary[key], value)))
    ]
    silent = [key for key in expected if key not in summary]
    if wrong:
        yield Finding(SUMMARY, FAILED, f"says something else about {', '.join(wrong)}")
    elif silent:
        yield Finding(SUMMARY, OPEN, f"right, as far as it goes; it does not state {', '.join(silent)}")
    else:
        digest = expected["integer_plan_digest"]
        yield Finding(SUMMARY, OK, f"states the guarantee; the integer plan has digest {digest}")
    others = sorted(set(summary) - {*expected, VERSION, "digests"})
    if others:
        yield Finding("other statements", OPEN, f"{SUMMARY}: {', '.join(others)}")


def _answers(release: Release, folder: Path) -> Iterator[Finding]:
    """Answer the planned workload again, and compare with the published answers and estimates."""
    given = sorted(p for p in folder.iterdir() if p.name.startswith(("answers.", "estimates.")))
    if not any(file.name.startswith("answers.") for file in given):
        yield Finding("answers", OPEN, "none are published")
    for file in filter(Path.is_file, given):
        source = release if file.name.startswith("answers.") else release.estimate()
        found, description = redone(source, file)
        if found is None:
            yield Finding(file.name, OPEN, "this format is not compared")
        elif found:
            yield Finding(file.name, FAILED, f"does not follow from the noisy numbers: {found}")
        else:
            what = "answers and standard errors" if source is release else "estimates"
            yield Finding(
                file.name, OK, f"{source.workload.query_count:,} {what} follow from the noisy numbers"
            )
        if description:
            yield Finding(DESCRIPTION, FAILED, description)


def _recorded(release: Release, ledger: Ledger | None) -> Finding:
    """Look up the entry of the release."""
    entry = release.entry
    if entry is None:
        return Finding("ledger", OPEN if ledger is None else FAILED, release.record)
    if ledger is None:
        return Finding("ledger", OPEN, f"{release.record} No ledger was given to look it up.")
    try:
        chain = ledger.verify()
    except QuerySmasherError as error:
        return Finding("ledger", FAILED, str(error))
    if entry not in chain.entries:
        return Finding("ledger", FAILED, f"{str(ledger.path)!r} does not have the entry. {release.record}")
    entries = count(len(chain.entries), "entry", "entries")
    return Finding("ledger", OK, f"{release.record} The chain of {entries} is unbroken.")

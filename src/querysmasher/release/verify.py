"""Checks of a published release, without data and without a planner.

A release folder states what was measured, with how much noise, and what follows from it. All of this can be
recomputed from the folder alone: its files have the digests that the summary states; the integer plan costs
at most its budget, exactly; and a ledger has the entry that the release names. Every other file follows from
the release: it is written again, and must have the same bytes, but for rounding on another machine. What
cannot be written again here is not verified, and neither is the folder. What no check of a folder can show is
in `BEYOND`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from querysmasher.errors import FileError, QuerySmasherError, as_given
from querysmasher.formatting import count, read_json, shown
from querysmasher.privacy.ledger import Ledger
from querysmasher.release.comparing import sha256
from querysmasher.release.exploration import spent
from querysmasher.release.outputs import DESCRIPTION, ERRORS, PAGE, PLAN, RELEASE, SUMMARY, tables
from querysmasher.release.published import (
    FAILED,
    NOT_ASKED,
    OK,
    OPEN,
    Finding,
    check_archive,
    check_errors,
    check_page,
    check_plan,
    check_summary,
    check_tables,
)
from querysmasher.release.release import Release

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
        lines += [f"{RELEASE}: sha256 {self.digest}"] if self.digest else []
        lines += [f"Guarantee: {self.guarantee}"] if self.guarantee else []
        return shown("\n".join([*lines, BEYOND, f"{verdict}: {self._conclusion()}"]))

    def _conclusion(self) -> str:
        """Return how many checks had which result, and which of them are to be looked at."""
        names = {s: [f.name for f in self.findings if f.status == s] for s in (OK, FAILED, OPEN)}
        passed, failed, left = (names[status] for status in (OK, FAILED, OPEN))
        words = [f"{count(len(passed), 'check')} passed"]
        words += [f"{len(failed)} failed ({', '.join(failed)})"] if failed else []
        words += [f"{len(left)} could not be made ({', '.join(left)})"] if left else []
        return ", ".join(words)


def verify(folder: str | os.PathLike[str], ledger: Ledger | str | os.PathLike[str] | None = None) -> Verdict:
    """Check a published release; read neither data nor a plan.

    Args:
        folder: a folder that `querysmasher release` wrote, or a file that `Release.save` wrote.
        ledger: where the cost should be recorded, or its path. Without it, the entry that the release names
            is not looked up.
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
        raise FileError(f"folder: no file {str(file)!r}")
    digest = sha256(file)
    try:
        release = Release.load(file)
    except FileError as error:
        return Verdict(str(path), (Finding(file.name, FAILED, str(error)),), "", digest)
    whole = "complete; its parts fit together, and its checksum is right"
    findings = [check_archive(release, file, whole), _noise(release), _cost(release)]
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
    plan, planned = check_plan(release, folder / PLAN) if PLAN in there else (None, None)
    yield _digests(folder)
    yield check_summary(release, plan, folder / SUMMARY)
    yield from check_tables(release, folder, there)
    if planned is not None:
        yield planned
    if ERRORS in there:
        yield check_errors(release, folder / ERRORS)
    if PAGE in there:
        yield check_page(release, folder / PAGE)
    yield from _others(folder)


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


def _stated(folder: Path) -> Mapping[str, Any]:
    """Return the digests that the summary states."""
    try:
        stated = read_json((folder / SUMMARY).read_bytes())["digests"]
    except (OSError, ValueError, LookupError, TypeError):
        return {}
    return stated if isinstance(stated, dict) else {}


def _digests(folder: Path) -> Finding:
    """Compare every file with the digest that the summary states."""
    stated, there = _stated(folder), digests(folder)
    if not stated:
        return Finding("files", OPEN, f"{SUMMARY} states no digests")
    wrong = sorted(name for name in stated if name in there and there[name] != stated[name])
    missing = sorted(set(stated) - set(there))
    if wrong or missing:
        words = (("changed", wrong), ("missing", missing))
        return Finding("files", FAILED, "; ".join(f"{', '.join(n)} {what}" for what, n in words if n))
    return Finding("files", OK, f"{', '.join(sorted(stated))} have the digests that {SUMMARY} states")


def _others(folder: Path) -> Iterator[Finding]:
    """Name everything that no check looks at, and files that the summary does not name."""
    there = _files(folder)
    known = {RELEASE, PLAN, ERRORS, PAGE, SUMMARY, *tables()}
    if any(name in tables() for name in there):
        known.add(DESCRIPTION)  # else it describes nothing
    strangers = [_named(p) for p in sorted(folder.iterdir()) if p.name not in known or p.name not in there]
    unnamed = [name for name in there if name in known - {PAGE, SUMMARY, *_stated(folder)}]
    words = [f"these do not follow from the release: {', '.join(strangers)}"] if strangers else []
    words += [f"{SUMMARY} states no digest of {', '.join(unnamed)}"] if unnamed else []
    if words:
        yield Finding("other files", OPEN, "; ".join(words))


def _named(path: Path) -> str:
    """Return the name of what is in a folder, and what it is unless it is a file."""
    kinds = ((path.is_symlink(), " (a link)"), (path.is_dir(), " (a folder)"), (path.is_file(), ""))
    return path.name + next((kind for is_kind, kind in kinds if is_kind), " (not a file)")


def _recorded(release: Release, ledger: Ledger | None) -> Finding:
    """Look up the entry of the release."""
    entry = release.entry
    if entry is None:
        return Finding("ledger", NOT_ASKED if ledger is None else FAILED, release.record)
    if ledger is None:
        return Finding("ledger", NOT_ASKED, f"{release.record} No ledger was given to look it up.")
    try:
        chain = ledger.verify()
    except QuerySmasherError as error:
        return Finding("ledger", FAILED, str(error))
    if entry not in chain.entries:
        return Finding("ledger", FAILED, f"{str(ledger.path)!r} does not have the entry. {release.record}")
    entries = count(len(chain.entries), "entry", "entries")
    return Finding("ledger", OK, f"{release.record} The chain of {entries} is unbroken.")

"""What the commands that measure share: the words of the spec, the summary, and what a stopped run left."""

from __future__ import annotations

import enum
import shlex
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querysmasher.cli.output import note, print_json, print_pairs
from querysmasher.cli.words import SPEC
from querysmasher.errors import PlanError, PrivacyError, SpecError
from querysmasher.extras import check_excel

if TYPE_CHECKING:
    from querysmasher.cli.draft import Draft
    from querysmasher.release.release import Release
    from querysmasher.spec import Spec
    from querysmasher.spec.spec import Source


SPENT = (
    "Every measurement spends the budget again: releases about the same people add up, including those that "
    "are replaced or discarded. Query this release instead, which has no privacy cost."
)


class AnswerFormat(enum.StrEnum):
    """File format of the answers to all queries."""

    parquet = "parquet"
    csv = "csv"
    gzip = "csv.gz"
    arrow = "arrow"
    feather = "feather"
    json = "json"
    xlsx = "xlsx"
    none = "none"


def form_of(read: Spec, answers: AnswerFormat | None) -> str:
    """Return the format of the answers; refuse Excel files if they cannot be written."""
    form = read.output.answers if answers is None else answers.value
    if form == "xlsx":
        check_excel()
    return form


def checked(
    read: Spec, data: Path | None, seed: int | None, folder: Path, *, force: bool, command: str
) -> tuple[Spec, Source]:
    """Return the spec with its table, and the table; check ledger, folder and table before any work."""
    from querysmasher.cli.place import check_place

    read = _with_data(read, data)
    _check_ledger(read, seed)
    check_place(folder, force, command)
    source = read.source
    assert source is not None  # noqa: S101 - _with_data has raised
    source.check()
    return read, source


def _with_data(read: Spec, data: Path | None) -> Spec:
    """Return the spec with the table from the command line, if given."""
    from querysmasher.spec.spec import Source

    if data is not None:
        return replace(read, source=Source(data, style=read.source.style if read.source else {}))
    if read.source is None:
        msg = f"{read.path.name}: data: missing; name the table under [data] or with --data"
        raise SpecError(msg)
    return read


def _check_ledger(read: Spec, seed: int | None) -> None:
    """Open the ledger before planning, which may take long, and refuse a simulation."""
    from querysmasher.privacy.distributions import distribution_of
    from querysmasher.privacy.rates import readable

    if read.ledger is None:
        return
    if seed is not None:
        msg = (
            "--seed: a simulation protects nobody, so the ledger cannot record its cost; remove [budget] "
            "ledger from the spec"
        )
        raise PrivacyError(msg)
    read.ledger.open().check_unit(read.budget)
    if read.least:
        return  # planning finds what it costs
    left, cost = read.ledger.left(), distribution_of(read.measuring.noise).allowed_cost(read.budget)
    if left is not None and left < cost:
        note(
            f"The ledger has left {read.ledger.left_words()}; the budget is rho = {readable(cost / 2):.6g}. "
            "The measurement will probably be refused."
        )


def described(measured: Release, read: Spec, plan: Path | None = None) -> Release:
    """Return the release with the words of the spec, today's date if it has none, and digests."""
    from querysmasher.release.comparing import sha256

    return measured.described(
        **{"date": datetime.now(UTC).date(), **read.about.model_dump(exclude_none=True)},
        spec_digest=sha256(read.path),
        **({} if plan is None else {"plan_digest": sha256(plan)}),
    )


def write_answers(draft: Draft, read: Spec, measured: Release, form: str) -> list[str]:
    """Write the answers as the spec asks for them, if at all; return the names of the files."""
    from querysmasher.cli.folder import ANSWERS, DESCRIPTION

    if form == "none":
        return []
    name = f"{ANSWERS}.{form}"
    measured.write(measured.workload, draft.folder / name, **read.output.reliability)
    return [name, DESCRIPTION]


def publish(draft: Draft, summary: dict[str, Any]) -> None:
    """Add the digests of all files to the summary, write it and publish the folder."""
    from querysmasher.cli.folder import SUMMARY
    from querysmasher.release.verify import digests
    from querysmasher.release.writing import document

    summary["digests"] = digests(draft.folder)
    (draft.folder / SUMMARY).write_bytes(document(summary))
    draft.publish()


def check_left_over(path: Path, measured: Release, read: Spec, *, workload: bool, budget: bool) -> None:
    """Refuse a release that a run left behind if it is of another spec; the caller compares two parts."""
    same = {
        "workload": workload,
        "budget": budget,
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
        msg = (
            f"--resume: {str(path)!r} is not recorded in the ledger {str(read.ledger.path)!r}; completing it "
            "would publish what nobody has counted"
        )
        raise PrivacyError(msg)


def command_line(name: str, spec: Path, out: Path | None) -> str:
    """Return the command line with which to continue a run."""
    words = ["querysmasher", name, *([] if spec == SPEC else [str(spec)])]
    return shlex.join(words + ([] if out is None else ["--out", str(out)]))


def print_release(
    folder: Path,
    names: list[str],
    summary: dict[str, Any],
    measured: Release,
    achieved: list[tuple[str, str]],
    *,
    as_json: bool,
) -> None:
    """Print what was measured and written."""
    if as_json:
        print_json({"folder": str(folder), "files": names, **summary, "note": SPENT})
        return
    print_pairs(
        [
            ("Guarantee", measured.guarantee),
            *([] if measured.left_out is None else [("Left out", measured.left_out.words())]),
            ("Ledger", measured.record),
            *achieved,
            ("Written", ", ".join(str(folder / name) for name in names)),
            ("Remember", SPENT),
        ]
    )

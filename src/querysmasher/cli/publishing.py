"""What the commands that measure share: the words of the spec, the summary, and what a stopped run left."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from querysmasher.cli.words import SPEC
from querysmasher.errors import PlanError, PrivacyError
from querysmasher.text import escaped

if TYPE_CHECKING:
    from querysmasher.cli.draft import Draft
    from querysmasher.release.release import Release
    from querysmasher.spec import Spec


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

    summary["digests"] = digests(draft.folder)
    text = escaped(json.dumps(summary, indent=2, ensure_ascii=False)) + "\n"
    (draft.folder / SUMMARY).write_text(text, encoding="utf-8")
    draft.publish()


def check_left_over(path: Path, measured: Release, read: Spec, *, workload: bool, budget: bool) -> None:
    """Refuse a release that a run left behind if it is of another spec; the caller compares two parts."""
    same = {
        "workload": workload,
        "budget": budget,
        "noise": measured.noise.name == read.measuring.noise,
        "person": measured.person == read.measuring.person,
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

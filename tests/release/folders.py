"""Folders as the command publishes them, for `verify` to check."""

import json
import zipfile
from functools import cache

import pandas as pd
from pyarrow import csv

import querysmasher as qs
from querysmasher.files import write_members
from querysmasher.release.comparing import sha256
from querysmasher.release.verify import digests, exploration_summary, planned_summary, summary_of
from querysmasher.release.writing import document
from tests.builders import UNIFORM

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(6))])
TABLE = pd.DataFrame({"sex": ["F", "M"] * 40, "age": [i % 6 for i in range(80)]})


@cache
def planned():
    return qs.plan(qs.all_kway(SCHEMA, [1, 2]), qs.zCDP(0.5), **UNIFORM)


def published(folder, release, answers="answers.parquet", options=None, plan=None, errors=False, **changes):
    """Write a folder as the command does, or with a summary that says something else."""
    folder.mkdir()
    if plan is not None:
        plan.save(folder / "plan.qs")
        release = release.described(plan_digest=sha256(folder / "plan.qs"))
    release.save(folder / "release.qs")
    release.write(release.workload, folder / answers, **(options or {}))
    if errors:
        csv.write_csv(release.estimate().errors().to_frame(), folder / "errors.csv")
    promised = {} if plan is None else planned_summary(plan, release)
    summarised(folder, summary_of(release) | exploration_summary(release) | promised | changes)
    return folder


def summarised(folder, summary):
    """Write a summary as the command does, with the digests of all files."""
    (folder / "summary.json").write_bytes(document(summary | {"digests": digests(folder)}))


def archive_again(path, change):
    """Write an archive again with other members and the right checksum, in the order given."""
    with zipfile.ZipFile(path) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    with path.open("w+b") as stream:
        write_members(stream, dict(change(members)))


def statuses(verdict):
    return {finding.name: finding.status for finding in verdict.findings}


def text(verdict, name):
    return next(finding.text for finding in verdict.findings if finding.name == name)


def with_digests(folder):
    """Verify a folder after its digests were brought up to date."""
    summary = json.loads((folder / "summary.json").read_text())
    summarised(folder, summary)
    return qs.verify(folder)

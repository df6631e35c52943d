"""`querysmasher init` and `plan`: a first spec file, and the errors to expect, without data."""

from __future__ import annotations

import csv
import math
import time
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Any

import numpy as np

from querysmasher.cli.command import SPEC
from querysmasher.cli.output import check_free, note, print_json, print_pairs, print_table, say, tell
from querysmasher.endings import check_ending
from querysmasher.errors import SpecError
from querysmasher.files import check_archive_name, replacing
from querysmasher.formatting import count
from querysmasher.guarantees import delta_of
from querysmasher.planning.limits import limits
from querysmasher.planning.plan import Plan
from querysmasher.privacy.budget import Budget, readable
from querysmasher.privacy.distributions import distribution_of
from querysmasher.privacy.factors.matrix import FEW_ROWS
from querysmasher.progress import Bar
from querysmasher.release.reconstruction import MEMORY_BYTES
from querysmasher.report.expectations import (
    QUERY,
    Expectation,
    expected_table,
    facts,
    together,
)
from querysmasher.report.words import family_words
from querysmasher.spec import Spec, read_codebook, read_spec, template
from querysmasher.spec.discoveries import SUPPOSING
from querysmasher.workload.workload import Group

KEYS = {
    'weighing("tables")': '[[workload]] weighting = "tables"',
    'objective="worst"': '[plan] objective = "worst"',
}
"""Python's arguments, and the keys of a spec that mean the same."""

PEOPLE = 5_000
"""Number of fictitious people."""

MOST_ROWS = 40
"""Maximum number of groups with a row each; more groups get a row per [[workload]] table."""

NOISE_SECONDS = 4e-7
"""Seconds to measure one number on one core of an ordinary machine."""

BASE_BYTES = 200_000_000
"""Bytes for Python and the libraries."""

LONG, LARGE = 20.0, 2e9
"""Seconds and bytes of measuring above which a note is printed in advance."""


def opened(path: Path) -> Spec:
    """Read a spec file, and print its remarks on standard error."""
    read = read_spec(path)
    for remark in read.remarks:
        note(f"Remark: {remark}.")
    return read


def init(spec: Path, codebook: Path | None, example: bool, force: bool, as_json: bool) -> None:
    """Write a first spec file and, with `example`, a table that fits it."""
    if codebook is not None and example:
        msg = "--example: its fictitious people do not fit your codebook; use only one of the two options"
        raise SpecError(msg)
    check_ending(spec, (".toml",))
    people = spec.parent / "people.csv"
    for path in [spec, people] if example else [spec]:
        check_free(path, force)
    name = None
    if codebook is not None:
        read_codebook(codebook)
        path, folder = codebook.resolve(), spec.parent.resolve()
        name = (path.relative_to(folder) if path.is_relative_to(folder) else path).as_posix()
    with replacing(spec) as temporary:
        temporary.write_text(template(name), encoding="utf-8")
    written = [str(spec)]
    if example:
        write_people(people)
        written.append(str(people))
    if as_json:
        print_json({"written": written})
        return
    say(f"Written: {', '.join(written)}")
    where = "" if spec == SPEC else f" {spec}"
    say(f"Next: edit {spec}, then run `querysmasher plan{where}`. It needs no data.")


def write_people(path: Path) -> None:
    """Write a CSV table of fictitious people that fit the template, the same each time."""
    draw = np.random.default_rng(2026)
    age = np.minimum(99, draw.gamma(4.0, 10.0, PEOPLE)).astype(int)
    income = draw.lognormal(9.9, 0.6, PEOPLE) * (0.4 + np.exp(-(((age - 48) / 25) ** 2)))
    hour = draw.normal(8.5, 3.0, PEOPLE).round().astype(int) % 24
    sex = np.where(draw.random(PEOPLE) < 0.51, "F", "M")
    income = np.minimum(100_000, income * np.where(sex == "F", 0.7, 1.2)).round(2)  # a finding for the page
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sex", "age", "income", "hour"])
        writer.writerows(zip(*(column.tolist() for column in (sex, age, income, hour)), strict=True))


def plan(spec: Path, every: bool, save: Path | None, force: bool, as_json: bool) -> None:
    """Plan without data, and show what to expect."""
    read = opened(spec)
    if save is not None:
        check_archive_name(save)
        check_free(save, force)
    if read.discoveries:
        if save is not None:
            raise SpecError("--save: expected none, because values are discovered before the plan is made")
        columns = ", ".join(repr(one.column) for one in read.discoveries)
        note(f"Supposed: the values of {columns} are discovered by `querysmasher release`; {SUPPOSING}.")
    read = read.supposed()
    start = time.perf_counter()
    planned = read.plan()
    cost = {"planning_seconds": round(time.perf_counter() - start, 1), **measuring_cost(planned)}
    if save is not None:
        planned.save(save)
    expected = Expectations(planned, read)
    if as_json:
        print_json({**expected.to_json(every), "estimate": cost})
        return
    show(expected, every)
    if save is not None:
        say(f"Written: {save}")


def show(expected: Expectations, every: bool) -> None:
    """Print what is planned."""
    workload, source = expected.plan.workload, expected.spec.source
    data = str(source.path) if source else "none named in the spec; pass `release --data`"
    print_pairs([*expected.facts(), ("Data", data)])
    rows = expected.rows(every)
    header, *cells = expected_table(rows, workload.schema)
    print_table(header, cells, text=[QUERY])
    tell(
        "The expected error is the root mean square of the standard errors of the queries. The budget share "
        "is the fraction of the budget spent on exactly the attributes of a row. Rows on the same attributes "
        "show the same share, unless their queries are measured whole. Answers also use the measurements on "
        "subsets of these attributes."
    )
    for family, words in family_words(workload).items():
        tell(f"{family + ':':10}{words}")


@dataclass(frozen=True)
class Expectations:
    """What to expect of a plan, made for a spec, with its noise scaled to the budget of the spec."""

    plan: Plan
    spec: Spec

    @property
    def budget(self) -> Budget:
        """The budget of the spec, or the least one that was found."""
        return self.plan.budget if self.spec.least else self.spec.budget

    def facts(self) -> list[tuple[str, str]]:
        """Return what holds for the plan as a whole, as names and strings."""
        planned = self.plan
        every = [
            ("Queries", (planned.asked or planned.workload).size_in_words),
            *(
                (name.capitalize(), reduce(lambda said, key: said.replace(*key), KEYS.items(), text))
                for name, text in facts(planned, self.factor, self.spec.promise(self.budget))
            ),
            ("In other words", self.equivalents()),
            *([("Ledger", said)] if (said := self.ledger()) else []),
            *([("Note", said)] if (said := self.sparse()) else []),
        ]
        if self.spec.discovered is None:
            return every
        rest = [fact for fact in every if fact[0] not in ("Guarantee", "In other words", "Ledger")]
        return [
            ("Guarantee", self.spec.discovered),
            ("Supposed", SUPPOSING),
            *rest,
        ]  # the plan has a part only

    @property
    def factor(self) -> float:
        """Ratio of the errors under the spec's budget, noise and expenses to those of the plan.

        The expenses are for the errors of estimates and for the number of records left out.
        """
        allowed = distribution_of(self.spec.measuring.noise).allowed_cost(self.budget)
        return math.sqrt(self.plan.budget.privacy_cost / (allowed * self.spec.answer_share))

    @cached_property
    def groups(self) -> list[Expectation]:
        """A row per group."""
        rows, factor = [], self.factor
        with Bar("Predicting", len(self.plan.workload.groups)) as bar:
            for row in self.plan.summary():
                rows.append(row.scaled(factor))
                bar.advance()
        return rows

    def rows(self, every: bool) -> list[Expectation]:
        """Return a row per group; if there are many, a row per entry, unless `every` group is wanted."""
        rows = self.groups
        if every or len(rows) <= MOST_ROWS:
            return rows
        entries = [(entry.kind, len(entry.workload.groups)) for entry in self.spec.entries]
        if self.plan.asked is not None:  # the measured groups are not those of the spec
            entries = [("measured", len(rows))]
        numbers = (number for number, (_, groups) in enumerate(entries) for _ in range(groups))
        alike: dict[tuple[int, int], list[Expectation]] = {}
        for number, row in zip(numbers, rows, strict=True):
            alike.setdefault((number, len(row.attributes)), []).append(row)
        return [
            together(f"{entries[n][0]}: {count(ways, 'attribute')} at a time", some)
            for (n, ways), some in alike.items()
        ]

    def sparse(self) -> str | None:
        """Recommend estimates if most queries are cells of tables that are sparse in a usual data set.

        A table of C cells with expected error s has an average count below s if there are fewer than C s
        records. The number of records is unknown here, so the remark states the number below which it holds.
        """
        if self.plan.asked is not None or self.spec.estimate is not None:
            return None
        tables = [
            (row.queries * row.rmse, row.queries) for row in self.groups if row.rmse and row.group.is_marginal
        ]
        covered = 0
        for records, queries in sorted(tables, reverse=True):
            covered += queries
            if records <= limits().usual_records:  # sparse only in unusually small data sets
                break
            if 2 * covered > self.plan.workload.query_count:
                explored = all(group.is_marginal for group in self.spec.workload) and not self.spec.least
                return (
                    f"with fewer than {readable(records, up=False, digits=2):,.0f} records, most of these "
                    "counts are cells of tables whose average count is below its expected error. Estimates "
                    "are usually closer to the truth there: "
                    f"{'`querysmasher explore`' if explored else 'add [estimate] to the spec'}"
                )
        return None

    def equivalents(self) -> str:
        """Return the budget in other definitions of privacy, at its own δ if it has one."""
        budget, noise = self.budget, distribution_of(self.spec.measuring.noise)
        cost, delta = noise.allowed_cost(budget), delta_of(budget)
        epsilon = budget.epsilon_at(delta, discrete=not noise.is_gaussian)
        gaussian = f", Gaussian DP with mu = {_up(math.sqrt(cost))}" if noise.is_gaussian else ""
        return (
            f"zCDP with rho = {_up(cost / 2)}{gaussian}, (epsilon, delta) = ({_up(epsilon)}, {delta!r}); "
            f"privacy cost {_up(cost)}"
        )

    def ledger(self) -> str | None:
        """Return what the ledger of the spec has left; None without an existing ledger."""
        ledger = self.spec.ledger
        left = None if ledger is None else ledger.left()
        if ledger is None or left is None:
            return None
        cost = distribution_of(self.spec.measuring.noise).allowed_cost(self.budget)
        spends = f"this spends up to rho = {readable(cost / 2):.6g}{', which is more' * (cost > left[0])}"
        return f"{str(ledger.path)!r} leaves {left[1]}; {spends}"

    def to_json(self, every: bool) -> dict[str, Any]:
        """Return plain data."""
        plan = self.plan
        return {
            "queries": plan.workload.query_count,
            "expected_error": plan.rmse * self.factor,
            "objective": plan.objective,
            "largest_error": None if plan.worst_std is None else plan.worst_std * self.factor,
            "gap": plan.gap,
            "least_cost": plan.least_cost,
            "guarantee": self.spec.discovered or self.spec.promise(self.budget),
            **({"supposed": SUPPOSING} if self.spec.discovered else {}),
            "equivalents": self.equivalents(),
            "privacy_cost": plan.privacy_cost,
            "budget": plan.budget.to_json(),
            "ledger": self.ledger(),
            "sparse": self.sparse(),
            "noise": self.spec.measuring.noise,
            "measurements": plan.measurements,
            "groups": [
                {
                    "group": row.label,
                    "queries": row.queries,
                    "expected_error": row.rmse,
                    "largest_error": row.largest,
                    "largest_error_of": None
                    if row.extreme is None
                    else row.extreme.query(plan.workload.schema),
                    "budget_share": row.budget_share,
                }
                for row in self.rows(every)
            ],
        }


def _up(amount: float) -> str:
    """Return an amount in four digits, rounded up, so that a copied budget suffices."""
    return f"{readable(amount, digits=4):.4g}"


def _counted_cells(group: Group) -> int:
    """Return how many counts a group needs: sums of many values are added up without their table."""
    parts = ((family.rows, family.cells) for _, family in group.parts())
    return math.prod(rows if rows <= FEW_ROWS * cells else cells for rows, cells in parts)


def measuring_cost(planned: Plan) -> dict[str, float]:
    """Return the seconds and bytes of measuring, without reading the table; print a note if large."""
    cells = max(map(_counted_cells, planned.workload))
    seconds = planned.measurements * NOISE_SECONDS
    memory = BASE_BYTES + min(8 * planned.measurements, MEMORY_BYTES) + 40 * cells
    if seconds > LONG or memory > LARGE:
        units = ((1, 90, "seconds"), (60, 5400, "minutes"), (3600, math.inf, "hours"))
        size, _, unit = next(unit for unit in units if seconds < unit[1])
        long = f"about {seconds / size:.3g} {unit}" if seconds >= 1 else "less than a second"
        note(
            f"This is a large task: measuring may take {long} in addition to reading the table, with about "
            f"{memory / 1e9:.1f} GB of memory."
        )
    return {"measuring_seconds": round(seconds, 1), "memory_bytes": memory}

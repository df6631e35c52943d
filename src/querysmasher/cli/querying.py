"""`querysmasher answer`: query a release."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import typer

from querysmasher.arrays import Array
from querysmasher.attributes import Attribute
from querysmasher.cli.command import exit_code
from querysmasher.cli.folder import load_release
from querysmasher.cli.output import (
    check_file,
    complain,
    note,
    print_json,
    print_pairs,
    print_table,
    say,
    tell,
)
from querysmasher.errors import PredicateError, QuerySmasherError, WorkloadError
from querysmasher.estimate.estimate import Estimate
from querysmasher.estimate.microdata import USES, WEIGHTED
from querysmasher.formats import format_of
from querysmasher.formats.tabular import plain_rows
from querysmasher.formatting import decimal, written_name
from querysmasher.planning.estimator.whole import summed
from querysmasher.release.answers import Answers
from querysmasher.release.outputs import MICRODATA
from querysmasher.release.release import Release
from querysmasher.release.tidy import NUMBERS
from querysmasher.statistics.contrasts import Statistical
from querysmasher.statistics.reliability import checked_level
from querysmasher.statistics.statistic import Statistic
from querysmasher.workload.builders import as_workload
from querysmasher.workload.workload import Group, Workload

MOST_SETS = 40
"""Maximum number of attribute sets listed."""

MOST_ROWS = 400
"""Maximum number of figures of a statistic that are printed."""

QUARTILES = [0.25, 0.5, 0.75]
"""The probabilities of `--quantile` without `--probability`."""

BIASED = "These are estimates: non-negative and shrunk, so they are biased and have no standard errors."


def answer(
    release: Path,
    predicates: list[str] | None,
    level: float,
    estimate: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Estimate how many records satisfy each predicate; without one, print which queries are possible."""
    checked_level(level)
    statistics = _statistics(predicates or [], **asked)
    stored = load_release(release)
    if statistics:
        _show(stored, statistics, level, estimate, as_json)
        return
    if not predicates:
        _describe(stored, as_json)
        return
    source = stored.estimate() if estimate else stored
    answers: list[dict[str, Any]] = []
    codes = []
    for text in predicates:
        try:
            answered = source.answer(text)
        except QuerySmasherError as error:
            if len(predicates) == 1:
                raise
            said = error.for_spec() if isinstance(error, PredicateError) else f"{text!r}: {error.for_spec()}"
            codes.append(exit_code(error))
            answers.append({"query": text, "error": {"code": int(codes[-1]), "message": said}})
        else:
            numbers = [answered.values]
            if isinstance(answered, Answers):
                numbers += [answered.std, *answered.interval(level)]
            named = zip(("value", "std", "low", "high"), numbers, strict=False)
            answers.append({"query": text, **{name: float(array[0]) for name, array in named}})
    _warn(stored)
    if as_json:
        print_json(_about(stored, level, estimate) | {"answers": answers})
    elif len(codes) < len(answers):
        header = ("query", "value", "standard error", f"{100 * level:.10g}% interval")
        print_table(
            header[:2] if estimate else header,
            (
                (
                    a["query"],
                    decimal(a["value"], 1),
                    *([] if estimate else [f"± {decimal(a['std'], 1)}"]),
                    *([] if estimate else [f"{decimal(a['low'], 1)} to {decimal(a['high'], 1)}"]),
                )
                for a in answers
                if "error" not in a
            ),
        )
        if estimate:
            tell(BIASED)
    for failure in (a["error"] for a in answers if "error" in a):
        complain(failure["message"])
    if codes:
        raise typer.Exit(int(codes[0]))


def microdata(
    release: Path,
    records: int | None,
    out: Path | None,
    seed: int | None,
    weights: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Write synthetic records that follow the estimates of a release."""
    if out is None:
        out = (release if release.is_dir() else Path()) / f"{MICRODATA}.parquet"
    format_of(out, of_records=True).check()
    check_file(out, force)
    stored = load_release(release)
    drawn = stored.estimate().microdata(records, seed=seed, weights=weights)
    drawn.write(out)
    error = str(drawn.error()) if drawn.followed else ""
    _warn(stored)
    if as_json:
        print_json({"written": str(out), "records": drawn.count, "seed": drawn.seed, "error": error})
        return
    named = [("Records", f"{drawn.count:,}, seed {drawn.seed}"), ("Error", error), ("Written", str(out))]
    named += [("Weights", WEIGHTED)] if weights else []
    print_pairs([(name, text) for name, text in [*named, ("Remember", USES)] if text])


def _warn(stored: Release) -> None:
    """Print on standard error what every reader of a figure must know."""
    if not stored.noise.is_private:
        note(f"Guarantee: {stored.guarantee}")
    elif not stored.counted.is_whole:
        note(stored.counted.words())


def _about(stored: Release, level: float, estimate: bool) -> dict[str, Any]:
    """Return what JSON states beside the figures: the level of intervals, or that there are none."""
    return {**({"note": BIASED} if estimate else {"level": level}), "guarantee": stored.guarantee}


def _statistics(
    predicates: list[str],
    by: list[str] | None,
    where: str | None,
    probability: list[float] | None,
    share: list[str] | None,
    of: str | None,
    difference: bool,
    ratio: bool,
    assume: str | None,
    **numbers: list[str] | None,
) -> list[Statistic]:
    """Return the statistics that the options ask for; refuse options that belong to others."""
    asked: list[dict[str, Any]] = []
    for kind, attributes in numbers.items():
        among = {"kind": kind, "by": by, "where": where, "assume": assume}
        asked += [{**among, "attribute": attribute} for attribute in attributes or ()]
    for table in asked:
        if table["kind"] == "median":
            table |= {"kind": "quantile", "probabilities": [0.5]}
        elif table["kind"] == "quantile":
            table["probabilities"] = probability or QUARTILES
    asked += [{"kind": "share", "predicate": predicate, "of": of, "by": by} for predicate in share or ()]
    pair = [kind for kind, wanted in (("difference", difference), ("ratio", ratio)) if wanted]
    if pair and len(predicates) != 2:
        raise WorkloadError(f"--{pair[0]}: expected two predicates to compare, got {len(predicates):,}")
    asked += [{"kind": kind, "a": predicates[0], "b": predicates[1], "by": by} for kind in pair]
    if predicates and len(asked) > len(pair):
        raise WorkloadError(
            f"PREDICATES: allowed without statistics, got {predicates[0]!r} beside --{asked[0]['kind']}; "
            "--where states the records of a statistic"
        )
    of_numbers = [table for table in asked if "attribute" in table]
    homes = {
        "by": (by, asked, "a statistic, such as --mean"),
        "where": (where, of_numbers, "--mean, --total, --median or --quantile; --of belongs to --share"),
        "assume": (assume, of_numbers, "--mean, --total, --median or --quantile"),
        "probability": (probability, numbers["quantile"], "--quantile"),
        "of": (of, share, "--share"),
    }
    for name, (given, home, words) in homes.items():
        if given and not home:
            raise WorkloadError(f"--{name}: allowed only with {words}")
    stated = [{key: value for key, value in table.items() if value is not None} for table in asked]
    return [Statistic.read(table) for table in stated]


@dataclass(frozen=True, eq=False)
class Estimated(Statistical):
    """Sums of cells of estimated tables, as if they had no errors: these are not known.

    So shares are between 0 and 1. Sums of numbers come from the measured sums: cells may not have been
    measured.
    """

    estimate: Estimate

    @property
    def workload(self) -> Workload:  # type: ignore[override]
        """What is estimated."""
        return self.estimate.workload

    def answer(self, workload: Workload | str | Sequence[str] | None = None) -> Answers:
        """Answer a workload."""
        wanted = as_workload(self.schema, self.workload if workload is None else workload)

        def answers(group: Group) -> tuple[Array, Array]:
            families = (f for f in group.families if not f.closed_form)
            is_count = all(np.isin(f.matrix(), (0, 1)).all() for f in families)
            values = None if is_count else self.estimate.sums.answers(group)
            if values is None:
                values = summed(group, np.asarray(self.estimate.marginal(*group.attributes), dtype=float))
            return values.ravel(), np.zeros(values.size)

        return Answers.of(wanted, answers)

    def covariance(self, workload: Workload, other: Workload | None = None) -> Array:
        """Return zeros."""
        return np.zeros((len(workload), len(workload if other is None else other)))


def _show(stored: Release, statistics: list[Statistic], level: float, estimate: bool, as_json: bool) -> None:
    """Print the figures of statistics; those of an estimate have no errors."""
    source = Estimated(stored.estimate()) if estimate else stored
    made = [statistic.of(source) for statistic in statistics]
    _warn(stored)
    if as_json:
        told = []
        for figures in made:
            cells = list(plain_rows(figures.to_frame("pyarrow", level)))
            if estimate:
                cells = [{key: row[key] for key in row if key not in NUMBERS[1:]} for row in cells]
            told.append({"title": figures.title, "note": figures.note, "figures": cells})
        print_json(_about(stored, level, estimate) | {"statistics": told})
        return
    for figures in made:
        header, rows, notes = figures.shown(MOST_ROWS, level, "--json prints all")
        about = len(figures.columns)
        say(figures.title)
        print_table(
            header[: about + 1] if estimate else header,
            [row[: about + 1] for row in rows] if estimate else rows,
            text=[*header[:about], "cv"],
        )
        for text in [*notes, BIASED] if estimate else notes:
            tell(text)


def _describe(stored: Release, as_json: bool) -> None:
    """Print which queries the release can answer."""
    schema = stored.schema
    sets = list(dict.fromkeys(" × ".join(g.attributes) or "total" for g in stored.workload.groups))
    if as_json:
        print_json({"guarantee": stored.guarantee, "schema": schema.to_json(), "attribute_sets": sets})
        return
    more = f" and {len(sets) - MOST_SETS:,} more" if len(sets) > MOST_SETS else ""
    print_pairs([("Guarantee", stored.guarantee), ("Attribute sets", "; ".join(sets[:MOST_SETS]) + more)])
    print_table(
        ("attribute", "kind", "values"), ((a.name, a.kind, _values(a)) for a in schema), numbers=False
    )
    example = example_for(stored)
    such = "" if example is None else f', such as "{example}"'
    tell(
        f"Write predicates on these attribute sets{such}. A query that does not follow from the measured "
        'ones is refused. Names with spaces or special characters need brackets: "[hours-per-week] >= 40".'
    )


def example_for(stored: Release) -> str | None:
    """Return a query that the release can answer, a predicate if one is easily found; None if none is."""
    groups, schema = stored.workload.groups[:MOST_SETS], stored.schema
    first = dict.fromkeys(name for group in groups for name in group.attributes[:1])
    values = (schema[name].exactly(written_name(name), 0) for name in first)
    for query in chain(values, (next(group.labels(schema)) for group in groups)):
        with suppress(QuerySmasherError):
            stored.answer(query)
            return query
    return None


def _values(attribute: Attribute) -> str:
    strings = list(attribute.literals if attribute.edges is None else attribute.labels)
    if attribute.value_labels is not None:
        strings = [f"{text} ({label})" for text, label in zip(strings, attribute.shown, strict=True)]
    return ", ".join(strings if len(strings) <= 8 else [*strings[:4], "…", strings[-1]])

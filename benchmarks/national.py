"""Synthetic records of NIST's table national2019, beside the published score of a peer.

The environment variable QUERYSMASHER_NATIONAL names the file national2019.csv of NIST's Diverse Communities
Data Excerpts, with its original values.
"""

import os
import time
from itertools import combinations

import numpy as np

from benchmarks.report import Table, console

FILE, DELTA, BINS = "QUERYSMASHER_NATIONAL", 1e-9, 20

AGES = (0, 3, 5, 15, 16, 20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85, 100)
"""Edges of ages, with those of the edit rules."""

RULES = (
    *(
        f"AGEP < 15 and {name} != 'N'"
        for name in ("DVET", "MSP", "PINCP", "PINCP_DECILE", "INDP", "INDP_CAT")
    ),
    "AGEP < 15 and EDU == '12'",
    *(f"AGEP >= 16 and {name} == 'N'" for name in ("MSP", "PINCP", "PINCP_DECILE", "EDU", "DPHY", "DREM")),
    *(f"AGEP < 5 and {name} != 'N'" for name in ("DPHY", "DREM")),
    "AGEP < 5 and EDU not in ['1', '2', '3', '4', 'N']",
    "AGEP < 3 and EDU != 'N'",
    "INDP == 'N' and INDP_CAT != 'N'",
    "INDP != 'N' and INDP_CAT == 'N'",
    *(f"HOUSING_TYPE != '1' and {name} != 'N'" for name in ("NOC", "NPF")),
    "HOUSING_TYPE != '1' and OWN_RENT != '0'",
    "HOUSING_TYPE == '1' and OWN_RENT == '0'",
    "HOUSING_TYPE == '1' and NOC == 'N'",
)
"""NIST's edit rules: what a record that violates them satisfies. The number of children is added below."""

RUNS = (
    ("all", "plan", 1.0, False),
    ("PUMA", "explore", 1.0, False),
    ("all", "explore", 1.0, False),
    ("all", "explore", 1.0, True),
    ("all", "plan", 10.0, False),
    ("PUMA", "explore", 10.0, False),
)
"""Tables asked for, how they are measured, ε, and whether the rules are stated."""


def scores(quick):
    """Score synthetic records of NIST's table."""
    path = os.environ.get(FILE)
    if not path:
        console.log(f"{FILE} does not name national2019.csv: its figures are not computed again")
        return None
    import querysmasher as qs  # noqa: PLC0415 - the parent of cells stays small

    frame, schema, rules = _loaded(qs, path)
    table = Table(
        "Synthetic records of NIST's national2019",
        f"{len(frame):,} records of {len(schema)} columns, numbers in up to {BINS} bins of about as many "
        "records each, δ = 1e-9, one seed. The score is 1000·(1 − ½‖p − q‖₁), the mean over all tables of "
        "PUMA and two other columns, p the fractions of true records and q those of the estimate, or of as "
        "many synthetic records. *asked* are all tables of three columns, or those with PUMA. *measured* is "
        'a plan with `purpose="estimate"`, or `qs.explore`. *edit rules* is the number of violations of '
        "NIST's published rules, stated by `schema.impossible`, or not. *time* is the processor time of the "
        "records. Published by NIST, with other bins: MWEM-PGM at ε = 1 847; AIM at ε = 10 710; a sample of "
        "40% of the true records 925. With these bins, such a sample has "
        f"{_score(frame, frame.sample(frac=0.4, random_state=0), schema):.0f}.",
        ("asked", "measured", "ε", "rules stated", "estimate", "records", "edit rules", "time"),
        "records score at least 99.5% of what the estimate does; none violates a stated rule",
    )
    for asked, way, epsilon, stated in RUNS[:1] if quick else RUNS:
        chosen = schema.impossible(*rules) if stated else schema
        groups = [g for g in qs.marginals(chosen, 3) if asked == "all" or "PUMA" in g.attributes]
        workload, budget = qs.Workload(chosen, tuple(groups)), qs.ApproxDP(epsilon, DELTA)
        if way == "explore":
            release = qs.explore(workload, frame, budget, seed=0)
        else:
            plan = qs.plan(workload, budget, purpose="estimate", records=len(frame))
            release = qs.measure(plan, frame, seed=0)
        estimate = release.estimate()
        ours = _score(frame, estimate, schema)
        start = time.process_time()
        records = estimate.microdata(len(frame), seed=0).to_frame("pandas")
        seconds = time.process_time() - start
        found = _score(frame, records, schema)
        wrong = sum(records.eval(rule).sum() for rule in rules)
        row = (asked, way, f"{epsilon:g}", "yes" if stated else "no", f"{ours:.1f}", f"{found:.1f}")
        table.add(*row, f"{wrong:,}", f"{seconds:.0f} s")
        console.log(*row, wrong, f"{seconds:.0f} s", highlight=False)
        table.check(found >= 0.995 * ours, f"{asked}, {way}, {epsilon}: {found:.1f}, not {ours:.1f}")
        table.check(not stated or not wrong, f"{asked}, {way}, {epsilon}: {wrong} violations")
    return table


def _loaded(qs, path):
    """Return the table, its schema, and the rules."""
    import pandas as pd  # noqa: PLC0415

    raw = pd.read_csv(path, dtype=str, keep_default_na=False)
    columns, attributes = {}, []
    for name, column in raw.items():
        numbers = pd.to_numeric(column, errors="coerce")
        if name == "AGEP":
            columns[name] = numbers.astype(int)
            attributes.append(qs.Binned(name, edges=AGES, step=1))
            continue
        coded = column
        if name != "PUMA" and numbers.nunique() > BINS:
            rest = column[numbers.isna()]
            edges = np.unique(np.quantile(numbers.dropna(), np.linspace(0, 1, BINS + 1 - rest.nunique())))
            index = np.searchsorted(edges, numbers.fillna(edges[0]), side="right") - 1
            bins = pd.Series(np.clip(index, 0, len(edges) - 2).astype(str), index=raw.index)
            coded = bins.where(numbers.notna(), column)
        columns[name] = coded
        attributes.append(qs.Categorical(name, sorted(coded.unique())))
    sizes = [value for value in raw["NPF"].unique() if value != "N"]
    children = [
        f"NOC == '{n}' and NPF in {few}"
        for n in raw["NOC"].unique()
        if n != "N" and (few := [size for size in sizes if float(size) <= float(n)])
    ]
    return pd.DataFrame(columns), qs.Schema(attributes), (*RULES, *children)


def _codes(frame, schema):
    """Return the index of the value of each attribute."""
    places = {name: {value: i for i, value in enumerate(schema[name].values)} for name in frame}
    ages = np.searchsorted(AGES[1:-1], frame["AGEP"].to_numpy(), side="right")
    return {n: ages if n == "AGEP" else frame[n].map(places[n]).to_numpy() for n in frame}


def _score(frame, other, schema):
    """Return the score of records, or of an estimate."""
    truth, distances = _codes(frame, schema), []
    estimated = hasattr(other, "marginal")
    drawn = truth if estimated else _codes(other, schema)
    for pair in combinations([name for name in schema.names if name != "PUMA"], 2):
        names = ("PUMA", *pair)
        shape = schema.shape(names)
        p, q = (
            np.bincount(np.ravel_multi_index([codes[n] for n in names], shape), minlength=np.prod(shape))
            for codes in (truth, drawn)
        )
        q = np.asarray(other.marginal(*names)).ravel() / other.total if estimated else q / len(other)
        distances.append(np.abs(p / len(frame) - q).sum())
    return 1000 * (1 - np.mean(distances) / 2)

"""`answer` with statistics: the figures of the library, in words and as JSON, and options that do not fit."""

import dataclasses

import numpy as np
import pytest

import querysmasher as qs
from querysmasher.cli.app import app
from querysmasher.cli.querying import BIASED, QUARTILES
from tests.cli.conftest import PEOPLE, SPEC, Ran

OPTIONS = {
    "mean": (["--mean", "income"], lambda r: r.mean("income")),
    "mean by groups": (
        ["--mean", "age", "--by", "sex", "--by", "hour"],
        lambda r: r.mean("age", by=["sex", "hour"]),
    ),
    "mean among": (
        ["--mean", "age", "--where", "sex == 'F'", "--assume", "midpoint"],
        lambda r: r.mean("age", where="sex == 'F'", assume="midpoint"),
    ),
    "total": (
        ["--total", "income", "--by", "sex", "--assume", "midpoint"],
        lambda r: r.total("income", by="sex", assume="midpoint"),
    ),
    "median": (["--median", "age", "--by", "sex"], lambda r: r.quantile("age", 0.5, by="sex")),
    "quartiles": (["--quantile", "age"], lambda r: r.quantile("age", QUARTILES)),
    "quantiles": (
        ["--quantile", "income", "--probability", 0.1, "--probability", 0.9],
        lambda r: r.quantile("income", [0.1, 0.9]),
    ),
    "share": (
        ["--share", "age >= 5", "--of", "sex == 'F'"],
        lambda r: r.share("age >= 5", of="sex == 'F'"),
    ),
    "difference": (
        ["sex == 'F'", "age < 4", "--difference"],
        lambda r: r.difference("sex == 'F'", "age < 4"),
    ),
    "ratio": (
        ["age >= 4", "age < 4", "--ratio", "--by", "sex"],
        lambda r: r.ratio("age >= 4", "age < 4", by="sex"),
    ),
}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """A release folder, simulated, of a workload with triples."""
    from typer.testing import CliRunner

    folder = tmp_path_factory.mktemp("answering")
    (folder / "release.toml").write_text(
        SPEC.replace("k = [1, 2]", "k = [1, 2]\n[[workload]]\nkind = 'marginals'\nk = 3")
    )
    (folder / "people.csv").write_text(PEOPLE)
    ran = Ran(CliRunner().invoke(app, ["release", str(folder / "release.toml"), "--seed", "5"]))
    assert ran.code == 0, ran.err
    return folder / "out"


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("level", [0.95, 0.5])
def test_the_figures_are_those_of_the_library(run, out, name, level):
    options, ask = OPTIONS[name]
    figures = ask(qs.Release.load(out / "release.qs"))
    ran = run("answer", out, *options, "--level", level, "--json")
    assert "NONE: this is a simulation" in ran.err
    (told,) = ran.json["statistics"]
    assert (told["title"], told["note"], ran.json["level"]) == (figures.title, figures.note, level)
    expected = figures.to_frame("pyarrow", level).to_pylist()
    unbounded = [{k: None if v in (np.inf, -np.inf) else v for k, v in row.items()} for row in expected]
    assert told["figures"] == unbounded
    words = run("answer", out, *options, "--level", level).words
    header, rows, notes = figures.shown(level=level)
    assert figures.title in words
    assert header[-2] == f"{100 * level:g}% interval"
    assert all(" ".join(row) in words for row in rows)
    assert all(note in words for note in notes)


def test_several_statistics_at_once(run, out):
    told = run(
        "answer", out, "--mean", "age", "--total", "age", "--median", "age", "--by", "sex", "--json"
    ).json
    titles = [part["title"] for part in told["statistics"]]
    assert titles == ["Mean of age by sex", "Total of age by sex", "Quantiles of age by sex"]
    assert [len(part["figures"]) for part in told["statistics"]] == [2, 2, 2]
    told = run(
        "answer", out, *("--median", "age", "--median", "income"), *("--share", "age >= 5") * 2, "--json"
    ).json
    titles = [part["title"] for part in told["statistics"]]
    assert titles == ["Quantiles of age", "Quantiles of income", *["Share of age >= 5"] * 2]


def test_estimates_have_values_and_no_errors(run, out):
    estimate = qs.Release.load(out / "release.qs").estimate()
    asked = ["age >= 5", "sex == 'F' and hour == 0"]
    told = run("answer", out, *asked, "--estimate", "--json").json
    expected = [float(estimate.answer(text).values[0]) for text in asked]
    assert told["answers"] == [{"query": q, "value": v} for q, v in zip(asked, expected, strict=True)]
    assert (told["note"], "level" in told) == (BIASED, False)
    words = run("answer", out, *asked, "--estimate").words
    assert BIASED in words
    assert "±" not in words
    told = run("answer", out, "--mean", "age", "--by", "sex", "--estimate", "--json").json
    (figures,) = told["statistics"]
    unbiased = qs.Release.load(out / "release.qs").mean("age", by="sex")
    assert [list(row) for row in figures["figures"]] == [["sex", "value"]] * 2
    values = [row["value"] for row in figures["figures"]]
    assert (abs(values - unbiased.values) < unbiased.std).all()
    words = run("answer", out, "--share", "age >= 5", "--by", "sex", "--estimate").words
    assert BIASED in words
    assert "interval" not in words


def test_estimated_means_use_measured_sums(run, folder):
    """Single values were not measured: every mean of the estimated table is the middle of the range."""
    means = 'kind = "means"\nattribute = "age"\nby = ["sex"]'
    (folder / "release.toml").write_text(SPEC.replace('kind = "all_kway"\nk = [1, 2]', means))
    run("release", "--seed", 1)
    values = [
        [
            row["value"]
            for row in run("answer", "out", "--mean", "age", "--by", "sex", *more, "--json").json[
                "statistics"
            ][0]["figures"]
        ]
        for more in ([], ["--estimate"])
    ]
    np.testing.assert_allclose(values[1], values[0], atol=0.1)
    assert abs(np.array(values) - [4, 5]).max() < 0.3


REFUSED = {
    "--where: allowed only with --mean, --total, --median or --quantile; --of belongs to --share": [
        *("--share", "age > 5", "--where", "sex == 'F'")
    ],
    "--of: allowed only with --share": ["--mean", "age", "--of", "sex == 'F'"],
    "--probability: allowed only with --quantile": ["--median", "age", "--probability", 0.9],
    "--by: allowed only with a statistic, such as --mean": ["age > 5", "--by", "sex"],
    "--assume: allowed only with --mean, --total, --median or --quantile": [
        *("a", "b", "--ratio", "--assume", "midpoint")
    ],
    "--ratio: expected two predicates to compare, got 1": ["age > 5", "--ratio"],
    "PREDICATES: allowed without statistics, got 'age > 5' beside --mean; --where states the records of a "
    "statistic": ["age > 5", "--mean", "age"],
    "assume: expected 'midpoint' or None, got 'middle'": ["--mean", "income", "--assume", "middle"],
    "probabilities: expected numbers between 0 and 1 such as [0.1, 0.5, 0.9], got 90.0; write 0.9 for 90%": [
        *("--quantile", "age", "--probability", 90)
    ],
    "unknown attribute 'agee'; did you mean 'age'? (the schema has 'sex', 'age', 'hour', 'income')": [
        *("--median", "agee")
    ],
    "attribute: expected a number, a binned attribute, or an ordinal one with numbers as values; 'sex' is "
    "categorical with values that are not numbers; ask for its counts": ["--total", "sex"],
    "level: expected a number between 0 and 1, got 95.0; write 0.95 for 95%": [
        "--mean",
        "age",
        "--level",
        95,
    ],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_is_refused(run, out, message):
    run("answer", out, *REFUSED[message], code=2).fails(2, message)


def test_a_statistic_that_was_not_planned(run, out):
    ran = run("answer", out, "--mean", "age", "--by", "sex", "--by", "income", "--by", "hour", code=2)
    assert "the queries on (age, sex, income, hour) cannot be answered" in ran.err
    assert "Traceback" not in ran.err


def test_whoever_leaves_records_out_says_so(run, out, monkeypatch):
    from querysmasher.cli import querying
    from querysmasher.guarantees import Counted

    noise = dataclasses.replace(qs.Release.load(out / "release.qs").noise, seeded=False)
    stored = dataclasses.replace(
        qs.Release.load(out / "release.qs"), noise=noise, counted=Counted(None, 1, "drop")
    )
    monkeypatch.setattr(querying, "load_release", lambda path: stored)
    assert stored.counted.words() in run("answer", out, "--mean", "age").err

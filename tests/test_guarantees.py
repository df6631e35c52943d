"""Which records are counted, and remarks on large budgets, wherever a guarantee is stated."""

import html
import json
import re
from fractions import Fraction
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.guarantees import ALL, COUNTED, Counted, LeftOut, promise, remarks
from querysmasher.privacy.accounting import Dropped
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.unit import Unit
from querysmasher.release.release_file import release_from_data, release_to_data
from querysmasher.release.verify import planned_summary, summary_of
from querysmasher.report.page import guarantee
from tests.builders import UNIFORM

SCHEMA = qs.Schema([qs.Categorical("sex", ["F", "M"]), qs.Ordinal("age", range(4))])
TABLE = pd.DataFrame(
    {"id": np.arange(120) // 12, "sex": ["F", "M"] * 60, "age": np.arange(120) % 4, "more": ["?"] * 120}
)
WORDS = {
    "person": "all but 3 of each person (a value of 'id') who has more, chosen at random",
    "drop": "those with a missing value, or one outside the schema, in a measured attribute",
    "nameless": "those without a value of 'id'",
    "not disclosed": "How many are left out is not disclosed.",
    "measured": "How many are left out is measured as part of the budget",
}
NEVER = ("left out", "that are counted", "that were counted", "not disclosed")
"""Words that are not said where every record is counted."""

COMBINATIONS = [
    pytest.param(person, unknown, report, id=f"{person}-{unknown}-{report}")
    for person in (None, "id")
    for unknown in ("refuse", "drop")
    for report in (False, True)
    if not report or (person, unknown) != (None, "refuse")
]


@cache
def plan():
    return qs.plan(qs.all_kway(SCHEMA, [1, 2]), qs.zCDP(0.5, records_per_person=3), **UNIFORM)


@cache
def released(person, unknown, report):
    return qs.measure(plan(), TABLE, person=person, unknown=unknown, report_dropped=report)


def expected(person, unknown, report):
    """What is to be said, and what is not."""
    said = {COUNTED} if person or unknown == "drop" else set()
    said |= {WORDS["person"]} if person else set()
    said |= {WORDS["drop"]} if unknown == "drop" else set()
    said |= {WORDS["nameless"]} if person and unknown == "drop" else set()
    said |= {WORDS["measured"] if report else WORDS["not disclosed"]} if said else set()
    return said, {*WORDS.values(), COUNTED} - said


def check(text, person, unknown, report):
    yes, no = expected(person, unknown, report)
    assert [words for words in yes if words not in text] == []
    assert [words for words in no if words in text] == []
    if not yes:
        assert [words for words in NEVER if words in text] == []


def test_the_sentences():
    assert ALL.words() == Counted(most=7).words() == ""
    assert Counted("id", 3, "drop").words() == (
        "Records are left out: those with a missing value, or one outside the schema, in a measured "
        "attribute; those without a value of 'id'; all but 3 of each person (a value of 'id') who has more, "
        "chosen at random. Every count, its error and its interval are about the records that are counted, "
        "not about all records in the table. How many are left out is not disclosed."
    )
    said = Counted("id", 3, "drop").words(measured=True)
    assert said.endswith("measured as part of the budget, except for those without a value of 'id'.")
    assert Counted(None, 3, "drop").words(measured=True).endswith("measured as part of the budget.")


@pytest.mark.parametrize(("person", "unknown", "report"), COMBINATIONS)
def test_guarantee_print_and_summary(person, unknown, report, tmp_path):
    release = released(person, unknown, report)
    for text in (release.guarantee, repr(release), html.unescape(release._repr_html_())):
        check(text, person, unknown, report)
        assert ("About " in text) == (report and text != release.guarantee)
    summary = json.loads(json.dumps(summary_of(release)))
    check(summary["guarantee"], person, unknown, report)
    stated = summary["counted"]
    assert (stated["person"], stated["unknown"], stated["records_per_person"]) == (person, unknown, 3)
    assert ("left_out" in stated) == report
    assert release.person == person
    release.save(tmp_path / "x.qs")
    loaded = qs.Release.load(tmp_path / "x.qs")
    assert repr(loaded) == repr(release)
    assert loaded.counted.unknown == unknown
    simulated = qs.measure(plan(), TABLE, person=person, unknown=unknown, report_dropped=report, seed=1)
    assert simulated.guarantee.startswith("NONE: this is a simulation.")
    check(simulated.guarantee, person, unknown, report)


@pytest.mark.slow
@pytest.mark.parametrize(("person", "unknown", "report"), COMBINATIONS)
def test_the_page(person, unknown, report, tmp_path):
    release = released(person, unknown, report)
    release.report(tmp_path / "x.html")
    page = (tmp_path / "x.html").read_text().split("<script", 1)[0]
    text = html.unescape(re.sub("<[^>]+>", "", page.split("<main", 1)[1]))
    lead = html.unescape(re.sub("<[^>]+>", "", page.split("<main", 1)[0].split("</style>", 1)[1]))
    for part in (lead, text):
        check(part, person, unknown, report)
    whole = person is None and unknown == "refuse"
    assert ("consistent with each other and unbiased. " in lead) == whole
    assert ("unbiased for the records that were counted. " in lead) != whole
    assert ("Records counted" in lead) != whole
    assert ("each covers the count in the table 95 times out of 100" in text) == whole
    partial = (
        "each covers the count of the records that were counted, not of all records in the table, 95 times"
    )
    assert (partial in text) != whole
    assert ('id="left-out"' in page) == report
    if report:
        assert release.left_out.words() in text
        assert ("1 to 3" in text) == ("more than 189" in text) == (person is not None)


@pytest.mark.parametrize(("person", "unknown", "report"), COMBINATIONS)
def test_descriptions_of_files(person, unknown, report, tmp_path):
    release = released(person, unknown, report)
    whole = person is None and unknown == "refuse"
    for source, name in ((release, "answers.csv"), (release.estimate(), "estimates.csv")):
        source.write(release.workload, tmp_path / name)
        package = json.loads((tmp_path / "datapackage.json").read_text())
        check(package["description"], person, unknown, report)
        assert ("counted" in package["querysmasher"]) != whole
        value = next(f for f in package["resources"][-1]["schema"]["fields"] if f["name"] == "value")
        said = "number of records that are counted, not of all records in the table"
        assert (said in value["description"]) != whole
        assert "{" not in value["description"]


@pytest.mark.slow
@pytest.mark.parametrize(("person", "unknown", "report"), COMBINATIONS)
def test_estimates(person, unknown, report, tmp_path):
    estimate = released(person, unknown, report).estimate()
    check(repr(estimate), person, unknown, report)
    check(html.unescape(estimate._repr_html_()), person, unknown, report)
    estimate.save(tmp_path / "x.estimate")
    assert qs.Estimate.load(tmp_path / "x.estimate").guarantee == estimate.guarantee
    estimate.report(tmp_path / "x.html")
    page = html.unescape((tmp_path / "x.html").read_text().split("<main", 1)[0].split("</style>", 1)[1])
    check(page, person, unknown, report)


def test_a_file_of_an_earlier_version_says_what_it_does_not_say():
    release = released("id", "drop", False)
    data = release_to_data(release)
    del data["counted"]
    loaded = release_from_data(data)
    assert (loaded.person, loaded.counted.unknown) == ("id", None)
    said = (
        "The file does not say whether records with a missing value, or one outside the schema, are left out."
    )
    assert loaded.guarantee.endswith(said)
    assert WORDS["person"] in loaded.guarantee
    assert WORDS["drop"] not in loaded.guarantee
    public = qs.plan(qs.marginals(SCHEMA, 1), qs.zCDP(0.5, neighbours="replace_one"), **UNIFORM)
    data = release_to_data(qs.measure(public, TABLE))
    del data["counted"]  # with these neighbours nothing can be left out
    loaded = release_from_data(data)
    assert loaded.counted == ALL


@pytest.mark.parametrize(
    "wrong",
    [
        {"unknown": "keep", "left_out": None},
        {"unknown": "drop"},
        {"unknown": "drop", "left_out": None, "more": 1},
        {"unknown": "drop", "left_out": {"variance": "0", "values": np.zeros(7, np.int64)}},
        {"unknown": "drop", "left_out": {"variance": "9" * 50, "values": np.zeros(7, np.int64)}},
        {"unknown": "drop", "left_out": {"variance": "900", "values": np.zeros(1, np.int64)}},
        {"unknown": "drop", "left_out": {"variance": "900", "values": np.zeros(7)}},
        {"unknown": None, "left_out": {"variance": "900", "values": np.zeros(7, np.int64)}},
    ],
)
def test_a_file_with_an_odd_statement_is_refused(wrong):
    release = released("id", "drop", False)
    data = {**release_to_data(release), "counted": wrong}
    with pytest.raises((ValueError, KeyError)):
        release_from_data(data)


def test_the_expected_error_is_that_of_the_rest_of_the_budget():
    quiet, told = (planned_summary(plan(), released("id", "refuse", report)) for report in (False, True))
    assert told["expected_error"] == pytest.approx(quiet["expected_error"] / np.sqrt(0.99), rel=1e-3)
    ratio = released("id", "refuse", True).answer().std / released("id", "refuse", False).answer().std
    assert ratio == pytest.approx(1 / np.sqrt(0.99), rel=0.02)


def left(values, most=10, variance=100, persons=True):
    asked = Dropped(Unit(records_per_person=most), persons, Fraction(variance))
    return LeftOut(asked, np.array(values), DISTRIBUTIONS["rounded"])


def test_how_many_in_words():
    assert left([50], persons=False).words() == "About 50 records were left out (95% interval 30 to 70)."
    assert left([-5], persons=False).words() == "About 0 records were left out (95% interval 0 to 15)."
    out = left([1000, 500, 200, 100, 0, 0, 0])
    assert out.bins[0] == (1, 10)
    assert out.bins[-1] == (631, None)
    assert out.rows()[0] == ("1 to 10", "1,000")
    assert out.rows()[-1] == ("more than 630", "0")
    assert left([0] * 7, most=1).rows()[0] == ("1", "0")
    low, high = out.records
    assert low < 1000 * 1 + 500 * 11 + 200 * 31 + 100 * 71
    assert high > 1000 * 10 + 500 * 30 + 200 * 70 + 100 * 150
    assert out.words() == (
        "About 1,800 persons have records left out (95% interval 1,748 to 1,852). With 95% confidence, these "
        f"are at least {low:,} records in all; at most {high:,} if nobody lacks more than 630."
    )
    assert left([945, 900, 634, 462, -50, -69, 8], most=25, variance=1785).records[0] > 90_000
    open_ended = left([0, 0, 0, 0, 0, 0, 30])
    assert open_ended.records[1] is None
    assert open_ended.words().endswith("no upper bound is known: about 30 lack more than 630 each.")


def test_plans_say_what_a_bound_costs(tmp_path):
    said = "for one record per person, all errors could be 3 times smaller at the same budget"
    assert said in repr(plan())
    assert "at most 3 records of each are counted, and the others are left out" in repr(plan())
    one, three = (qs.plan(plan().workload, qs.zCDP(0.5, records_per_person=k), **UNIFORM) for k in (1, 3))
    assert three.rmse == pytest.approx(3 * one.rmse)
    assert "per person" not in repr(one).replace("records_per_person", "")
    public = qs.plan(plan().workload, qs.zCDP(0.5, records_per_person=3, neighbours="replace_one"), **UNIFORM)
    assert said in repr(public)
    assert "left out" not in repr(public)  # these neighbours allow no column of persons


@pytest.mark.slow
def test_the_page_of_a_plan_says_so_too(tmp_path):
    plan().report(tmp_path / "x.html")
    assert "all errors could be 3 times smaller at the same budget" in (tmp_path / "x.html").read_text()


def test_a_promise_before_measuring():
    budget = qs.zCDP(0.5, records_per_person=3)
    assert promise(budget) == budget.describe()
    assert promise(budget, Counted("id", 3)).startswith(budget.describe("id"))
    check(promise(budget, Counted("id", 3)), "id", "refuse", False)
    check(promise(budget, Counted("id", 3, "drop"), measured=True), "id", "drop", True)


ROOT = Path(qs.__file__).parent
SMALL = qs.Schema.of(a=2, b=3)
LARGE = [
    qs.ApproxDP(epsilon=10.5, delta=1e-6),
    qs.ApproxDP(epsilon=1.0, delta=2e-4),
    qs.zCDP(20),
    qs.PrivacyCost(1e12),
]
USUAL = [qs.ApproxDP(epsilon=10.0, delta=1e-4), qs.zCDP(0.5), qs.GaussianDP(1.0), qs.PrivacyCost(1.0)]


def shown(budget):
    plan = qs.plan(qs.marginals(SMALL, 1), budget)
    release = qs.measure(plan, pd.DataFrame({"a": [0, 1], "b": [2, 0]}))
    comparison = qs.compare(plan.workload, budget, ["residual"], progress=False)
    texts = [repr(plan), repr(release), release.guarantee, repr(comparison)]
    texts.append(guarantee(budget))  # which both pages show
    return [*texts, *(value._repr_html_() for value in (plan, release, comparison))]


@pytest.mark.parametrize("budget", LARGE)
def test_large_budgets(budget):
    (said,) = remarks(budget)
    assert promise(budget) == f"{budget.describe()} {said}"
    assert re.fullmatch(r"Remark: [^.].*\.", said)
    for text in shown(budget):
        assert "Remark: " in text


@pytest.mark.parametrize("budget", USUAL)
def test_usual_budgets(budget):
    assert remarks(budget) == []
    for text in shown(budget):
        assert "Remark" not in text


def test_both_are_remarked():
    assert len(remarks(qs.ApproxDP(epsilon=11, delta=0.01))) == 2


def test_the_guarantee_is_stated_nowhere_without_its_remarks():
    stating = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.rglob("*.py")
        if "budget.describe()" in path.read_text() and "remarks(" not in path.read_text()
    }
    assert stating == set()

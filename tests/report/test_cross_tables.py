"""Cross-tables, percentages, third attributes, links and downloads of a release's page, in a real browser."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs
from querysmasher.report import release_data
from querysmasher.report.release_data import deep_tables, not_shown, percentage_errors, planned_sets, tables
from tests.report.conftest import data_of, released, table

pytestmark = pytest.mark.slow

SCHEMA = qs.Schema(
    [
        qs.Categorical("region", ["north", "south", "=east()"]),
        qs.Ordinal("age", range(30), unit="years"),
        qs.Categorical("sex", [1, 2], title="Sex", value_labels={1: "Male", 2: "Female"}),
        qs.Categorical("home", ["own", "rent"]),
    ]
)
WORKLOAD = (
    qs.all_kway(SCHEMA, [1, 2], "identity")
    + qs.queries(SCHEMA, region="identity", sex="identity", home="identity")
    + 0.1 * qs.queries(SCHEMA, dict.fromkeys(SCHEMA.names, "identity"))
)


@pytest.fixture(scope="module")
def release():
    return released(WORKLOAD, table(SCHEMA, records=5000))


@pytest.fixture(scope="module")
def page(release, tmp_path_factory):
    return release.report(tmp_path_factory.mktemp("cross") / "page.html")


@pytest.fixture
def opened(browser, page):
    browser.open(page)
    return browser


@pytest.fixture
def still_open(browser, page):
    """The page, as the last test left it: for tests that choose all that they look at."""
    if browser.run("location.href.split('#')[0]") != page.as_uri():
        browser.open(page)
    return browser


def choose(browser, **chosen):
    for name, value in chosen.items():
        browser.set(f"#{name}", value, "change")


def cross(browser):
    """The numbers of the cross-table, without their errors."""
    rows = browser.run(
        "[...document.querySelectorAll('#cross tbody tr')].map((row) => [...row.querySelectorAll('td')]"
        ".map((cell) => cell.firstChild.textContent))"
    )
    return [[float(c.replace(",", "").replace("−", "-").rstrip("%")) for c in row] for row in rows]


def errors(browser):
    rows = browser.run(
        "[...document.querySelectorAll('#cross tbody tr')].map((row) => [...row.querySelectorAll('small')]"
        ".map((cell) => cell.textContent))"
    )
    return [[float(c.replace("±", "").replace(",", "") or 0) for c in row] for row in rows]


def test_two_attributes_are_a_cross_table_with_totals(opened, release):
    choose(opened, first="0", second="")
    assert opened.run("document.querySelector('#crossing').hidden")
    choose(opened, second="2")
    expected = release.table("region", "sex")
    np.testing.assert_allclose(cross(opened), expected.values, atol=0.51)
    np.testing.assert_allclose(errors(opened), expected.std, rtol=0.05, atol=0.51)
    assert opened.texts("#cross thead th") == ["region \\ Sex", "Male", "Female", "Total"]
    assert opened.texts("#cross tbody th") == ["north", "south", "=east()", "Total"]
    choose(opened, first="2", second="0")
    np.testing.assert_allclose(cross(opened), release.table("sex", "region").values, atol=0.51)
    choose(opened, first="0", second="1")  # 30 columns are too many
    assert opened.run("document.querySelector('#crossing').hidden")
    assert opened.complaints() == []


@pytest.mark.parametrize("percent", ["row", "column", "total"])
@pytest.mark.parametrize("order", [("region", "sex"), ("sex", "region")])
def test_percentages_have_errors(still_open, release, percent, order):
    places = [str(SCHEMA.position(name)) for name in order]
    choose(still_open, first=places[0], second=places[1], within="", percent=percent)
    expected = release.table(*order, percent=percent)
    np.testing.assert_allclose(cross(still_open), expected.values, atol=0.06)
    np.testing.assert_allclose(errors(still_open), expected.std, rtol=0.05, atol=1e-9)


def test_the_page_opens_as_its_data_say(opened, page):
    down, *across = data_of(page.read_text(encoding="utf-8"))["opening"]
    assert opened.run("[byId('first').value, byId('second').value]") == [str(down), *map(str, across or [""])]
    assert opened.texts("#cells thead th")[0] == SCHEMA.attributes[down].heading


def test_a_third_attribute_leaves_no_table_out(opened, release):
    choose(opened, first="0", second="3")
    choose(opened, within="2,1")
    truth = release.marginal("region", "home", "sex")[:, :, 1]
    shown = np.array(cross(opened))
    np.testing.assert_allclose(shown[:-1, :-1], truth, atol=0.51)
    np.testing.assert_allclose(shown[-1, -1], release.marginal("sex")[1], atol=0.51)
    assert "within Sex = Female" in opened.texts("#caption")[0]
    assert opened.complaints() == []


@pytest.mark.parametrize("percent", ["row", "column", "total"])
@pytest.mark.parametrize("order", [("region", "home"), ("home", "region")])
def test_percentages_within_a_third_attribute_have_errors(still_open, release, percent, order):
    """As the ratios of the same counts among women, by their covariance."""
    places = [str(SCHEMA.position(name)) for name in order]
    choose(still_open, first=places[0], second=places[1], within="2,1", percent=percent)
    shown, uncertain = cross(still_open), errors(still_open)
    sizes = SCHEMA.shape(order)

    def count(i, j):
        given = [(name, k) for name, k in zip(order, (i, j), strict=True) if k < SCHEMA[name].size]
        conditions = [f"{name} == {SCHEMA[name].literals[k]}" for name, k in given]
        return " and ".join([*conditions, "sex == 2"])

    for i in range(sizes[0] + 1):
        for j in range(sizes[1] + 1):
            below = {"row": (i, sizes[1]), "column": (sizes[0], j), "total": sizes}[percent]
            expected = release.ratio(count(i, j), count(*below))
            assert shown[i][j] == pytest.approx(100 * expected.value, abs=0.06)
            assert uncertain[i][j] == pytest.approx(100 * expected.std[0], rel=0.05, abs=1e-3)
    assert "±" in still_open.texts("#cross-note")[0]
    assert still_open.complaints() == []


def test_what_is_not_shown_is_said(release, page, monkeypatch):
    text = page.read_text(encoding="utf-8")
    assert "Planned, but not shown here: region × age × sex × home." in text
    found = tables(release)[0]
    assert planned_sets(release)[-2:] == [(0, 2, 3), (0, 1, 2, 3)]
    assert [t.attributes for t in deep_tables(release)] == [(0, 2, 3)]
    assert not_shown(release, found).count(";") == 1
    monkeypatch.setattr(release_data, "DEEP_CELLS", 3)
    assert deep_tables(release) == []
    simple = released(qs.marginals(SCHEMA, 1))
    assert not_shown(simple, tables(simple)[0]) is None


def test_only_small_tables_have_percentages(release, page):
    apart = percentage_errors(release, [*tables(release)[0], *deep_tables(release)])
    assert apart == data_of(page.read_text(encoding="utf-8"))["apart"]
    pairs = {key for key in apart if key.startswith(("0,2|", "0,3|", "2,3|"))}
    assert pairs == {f"{a},{b}|{c}" for a, b in ((0, 2), (0, 3), (2, 3)) for c in (a, b, "")}
    triples = {f"0,2,3|{under}" for under in ("0", "2", "3", "0,2", "0,3", "2,3")}
    assert triples == {key for key in apart if key.startswith("0,2,3|")}
    assert not any("1" in key for key in apart), "age has too many values"


def test_a_link_opens_the_same_table(opened, page, release):
    choose(opened, first="0", second="3", within="2,1", percent="column")
    link = opened.run("location.hash")
    assert link.startswith("#tables?")
    shown = cross(opened)
    opened.open(page)
    assert opened.run("document.querySelector('#within').value") == ""
    opened.run(f"location.hash = {link!r}")
    opened.reload()
    assert opened.run("document.querySelector('#second').value") == "3"
    assert opened.run("document.querySelector('#within').value") == "2,1"
    assert cross(opened) == shown


def test_tables_and_charts_can_be_saved(opened, release):
    choose(opened, first="0", second="2")
    rows = list(csv.reader(io.StringIO(opened.run("tableAsCsv()"))))
    assert rows[0] == ["region", "Sex", "value", "std", "low", "high", "cv"]
    assert rows[1][:2] == ["north", "Male"]
    assert rows[-1][0] == "'=east()", "no cell is a formula"
    np.testing.assert_allclose(
        [float(row[2]) for row in rows[1:]], release.marginal("region", "sex").ravel(), atol=0.1
    )
    assert max(len(number) for row in rows[1:] for number in row[2:]) <= 8, "no digits beyond the error"
    low, high = (np.array([float(row[column]) for row in rows[1:]]) for column in (4, 5))
    values, std = (np.array([float(row[column]) for row in rows[1:]]) for column in (2, 3))
    np.testing.assert_allclose(low, values - 1.959964 * std, atol=0.02 * std.min())
    np.testing.assert_allclose(high, values + 1.959964 * std, atol=0.02 * std.min())
    drawn = opened.run("picture('chart').then((blob) => blob.text())")
    assert drawn.startswith("<svg")
    assert "var(--" not in drawn, "the picture stands alone"
    kind, size = opened.run("picture('chart').then(painted).then((blob) => [blob.type, blob.size])")
    assert kind == "image/png"
    assert size > 1000
    assert opened.complaints() == []


def test_files_have_the_name_of_the_table(opened):
    opened.run("window.saves = []; save = async (blob, name) => window.saves.push(name)")
    choose(opened, first="0", second="")
    opened.run("document.querySelector('#save-csv').click()")
    choose(opened, first="0", second="3", within="2,1")
    opened.run("for (const kind of ['csv', 'svg', 'png']) document.querySelector(`#save-${kind}`).click()")
    choose(opened, first="1", second="2", view="only 0")
    opened.run("document.querySelector('#save-csv').click()")
    opened.until("window.saves.length === 5")
    name = "region-by-home-within-sex-female"
    assert sorted(opened.run("window.saves")) == [
        "age-years-by-sex-only-sex-male.csv",
        *(f"{name}.{ending}" for ending in ("csv", "png", "svg")),
        "region.csv",
    ]
    assert opened.run("[fileName('</b> A/b: <é>'), fileName('…'), [...fileName('𝒳'.repeat(99))].length]") == [
        *("b-a-b-é", "table"),
        80,
    ]
    assert opened.complaints() == []


def percents(browser):
    """Whether percentages can be chosen, and what is said about that."""
    return browser.run("[!byId('percent').disabled, byId('percent-off').textContent, byId('percent').value]")


def test_percentages_say_why_they_are_off(opened, browser, tmp_path):
    choose(opened, first="0", second="2", percent="row")
    assert percents(opened) == [True, "", "row"]
    choose(opened, second="")
    assert percents(opened) == [False, "Percentages need two attributes: choose the second under “by”.", ""]
    choose(opened, second="1")
    assert percents(opened) == [
        *(False, "Cross-tables and percentages are for up to 12 values: age (years) has 30.", "")
    ]
    assert "%" not in "".join(opened.texts("#cells td"))
    assert opened.complaints() == []
    singles = released(qs.marginals(qs.Schema.of(a=3, b=2), 1))
    browser.open(singles.report(tmp_path / "singles.html"), width=400)
    choose(browser, first="0")
    assert percents(browser)[1] == "Percentages need two attributes: this page has no table of a by another."
    assert browser.run("document.documentElement.scrollWidth") <= 400
    browser.run("data.total = null; tables.delete('')")
    assert browser.run("percentsOff(0, 1, null)").startswith("Percentages need the totals")


def test_heat_maps_have_a_key_titles_and_even_labels(opened):
    choose(opened, first="1", second="0", view="heat")
    opened.until("document.querySelectorAll('#chart .role-legend-label text').length > 2")
    assert opened.texts("#chart .role-axis-title text") == ["region", "age (years)"]
    choose(opened, first="0", second="1", view="heat")
    opened.until("document.querySelector('#chart .role-axis-title')?.textContent === 'age (years)'")
    labels = [int(t) for t in opened.texts("#chart .role-axis-label text") if t.isdigit()]
    assert len(labels) >= 3
    assert len(set(np.diff(labels).tolist())) == 1, "even steps"
    choose(opened, first="1", second="2", view="compare")
    opened.until("document.querySelectorAll('#chart .mark-area path').length === 2")
    assert opened.texts("#legend b") == ["Sex"]


def test_one_huge_cell_does_not_hide_the_others(browser, tmp_path):
    schema = qs.Schema([qs.Categorical("a", range(15)), qs.Categorical("b", range(15))])
    frame = table(schema, records=3000)
    frame.loc[frame.index < 1, :] = 0
    repeated = frame.index.repeat(np.where(frame.index == 0, 30_000, 1))
    huge = released(qs.marginals(schema, 2), frame.loc[repeated], qs.zCDP(1))
    browser.open(huge.report(tmp_path / "huge.html"))
    choose(browser, first="0", second="1", view="heat")
    browser.until("document.querySelectorAll('#chart .mark-rect path').length === 225")
    opacities = browser.run(
        "[...document.querySelectorAll('#chart .mark-rect path')]"
        ".map((path) => Number(path.getAttribute('opacity')))"
    )
    assert max(opacities) > 0.95
    assert np.median(opacities) > 0.03


def test_long_words_do_not_widen_a_phone(browser, tmp_path):
    """Digests and long names wrap."""
    ledger = qs.Ledger(tmp_path / "people.ledger", limit=qs.zCDP(1))
    recorded = released(qs.marginals(SCHEMA, 1), ledger=ledger)
    long = recorded.described(title="A" * 70, plan_digest="0f" * 32, organisation="x" * 90)
    browser.open(long.report(tmp_path / "long.html"), width=360)
    assert browser.run("document.documentElement.scrollWidth") <= 360
    browser.resize(1100, 900)


def test_long_labels_are_all_shown(browser, tmp_path):
    """Ten bins with long names: every tick has its label, slanted."""
    schema = qs.Schema([qs.Binned("b", edges=range(0, 1_100_000, 100_000)), qs.Categorical("c", range(3))])
    frame = pd.DataFrame({"b": np.arange(1000) * 1000, "c": np.arange(1000) % 3})
    browser.open(released(qs.marginals(schema, [1, 2]), frame).report(tmp_path / "bins.html"))
    choose(browser, first="1", second="0", view="heat")
    browser.until("document.querySelector('#chart .role-axis-title')?.textContent === 'b'")
    shown = [t for t in browser.texts("#chart .role-axis-label text") if t.startswith("[")]
    assert shown == list(schema["b"].labels)


def test_rows_without_an_order_are_all_named(browser, tmp_path):
    """Of fifty states no label follows from its neighbours; of ordered values it does."""
    values = [f"s{i}" for i in range(50)]
    schema = qs.Schema(
        [qs.Categorical("c", values), qs.Ordinal("o", range(50)), qs.Categorical("x", [*"ab"])]
    )
    frame = pd.DataFrame({"c": values * 9, "o": [*range(50)] * 9, "x": [*"ab"] * 225})
    browser.open(released(qs.marginals(schema, 2), frame).report(tmp_path / "states.html"))
    choose(browser, first="0", second="2", view="heat")
    browser.until("document.querySelectorAll('#chart .mark-rect path').length === 100")
    assert [t for t in browser.texts("#chart .role-axis-label text") if t.startswith("s")] == values
    choose(browser, first="1", second="2", view="heat")
    browser.until("document.querySelectorAll('#chart .role-axis-title')[1]?.textContent === 'o'")
    assert len([t for t in browser.texts("#chart .role-axis-label text") if t.isdigit()]) == 25


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_cross_table_on_a_phone(browser, page, scheme):
    browser.open(page, width=360, dark=scheme == "dark")
    choose(browser, first="0", second="2", percent="column")
    assert browser.run("document.documentElement.scrollWidth") <= 360
    colours = browser.run(
        "['td', 'small', 'th'].map((name) => document.querySelector(`#cross ${name}`))"
        ".map((cell) => getComputedStyle(cell).color)"
    )
    assert len(set(colours)) >= 2
    assert browser.complaints() == []
    browser.scheme("light")


def printed(browser, what):
    """Choose what to print in the dialog, and print."""
    browser.run("window.print = () => window.dispatchEvent(new Event('beforeprint'))")
    browser.run("document.querySelector('#print').click()")
    assert browser.run("document.querySelector('#printing').open")
    browser.run(f"document.querySelector('#print-{what}').click()")
    browser.run("document.querySelector('#print-now').click()")
    assert not browser.run("document.querySelector('#printing').open")


def sections(browser):
    """The sections that paper shows."""
    return browser.run(
        "[...document.querySelectorAll('section')].filter((one) => getComputedStyle(one).display !== 'none')"
        ".map((one) => one.id)"
    )


def test_printing_asks_which_tables(opened, tmp_path):
    """Unasked, and unless all are chosen, paper has the chosen table and the guarantee."""
    choose(opened, first="0", second="2")
    opened.paper(tmp_path / "shown.pdf")
    assert opened.texts("#paper .note") == [
        "The page has 11 tables; its button “Print …” offers to print all."
    ]
    opened.scheme("light", "print")
    assert sections(opened) == ["tables", "guarantee", "released"]
    assert not any(opened.run("[...document.querySelectorAll('#released table')].map((t) => t.offsetHeight)"))
    opened.scheme("light")
    opened.run("document.querySelector('#print').click()")
    assert opened.run("document.querySelector('#print-shown').checked"), "the default"
    assert opened.texts("#printing span") == [
        "The chosen table, region by Sex, and the guarantee",
        "Everything on this page, with 11 tables",
    ]
    opened.run("document.querySelector('#print-not').click()")
    assert not opened.run("document.querySelector('#printing').open")
    printed(opened, "shown")
    assert opened.texts("#paper h3") == []
    printed(opened, "all")
    assert len(opened.texts("#paper h3")) == 11
    opened.paper(tmp_path / "all.pdf")
    shown, everything = (
        len(re.findall(rb"/Type\s*/Page\b", (tmp_path / name).read_bytes()))
        for name in ("shown.pdf", "all.pdf")
    )
    assert 1 <= shown < everything
    opened.run(
        "window.dispatchEvent(new Event('afterprint')); window.dispatchEvent(new Event('beforeprint'))"
    )
    assert opened.texts("#paper h3") == [], "the next print is of the chosen table again"
    assert opened.complaints() == []


def test_paper_shows_every_table(opened, tmp_path):
    printed(opened, "all")
    assert opened.texts("#paper h3") == [
        *("Sex", "home", "region", "age (years)"),
        *("Sex × home", "region × Sex", "region × home"),
        *("age (years) × Sex", "age (years) × home", "region × age (years)"),
        "region × Sex × home",
    ]
    assert opened.texts("#paper h4") == ["home = own", "home = rent"]
    assert opened.run("document.querySelectorAll('#paper table').length") == 12
    assert opened.run("getComputedStyle(document.querySelector('#paper')).display") == "none"
    opened.scheme("light", "print")
    assert opened.run("getComputedStyle(document.querySelector('#paper')).display") == "block"
    opened.scheme("light")
    opened.paper(tmp_path / "x.pdf")
    assert opened.complaints() == []


def test_paper_says_which_tables_are_too_large(browser, tmp_path):
    large = released(qs.marginals(qs.Schema.of(a=40, b=30, c=2), [1, 2]))
    browser.open(large.report(tmp_path / "large.html"))
    printed(browser, "all")
    assert browser.texts("#printing span")[1] == (
        "Everything on this page, with 5 tables; 1 larger one is too large to print"
    )
    assert "Too large to print: a × b (1,200 cells)." in browser.texts("#paper .note")[0]
    assert len(browser.texts("#paper h3")) == 5
    choose(browser, first="0", second="1")
    printed(browser, "shown")
    assert len(browser.texts("#cells tbody tr")) == 600
    assert browser.texts("#found") == ["600 of 1,200 rows"]


def test_no_table_is_wider_than_paper(browser, tmp_path):
    """A table of many columns is printed as several, each with the first column."""
    schema = qs.Schema(
        [
            qs.Categorical("municipality", [f"a rather long name {i}" for i in range(12)]),
            qs.Ordinal("b", range(12)),
            qs.Categorical("c", ["x", "y"]),
        ]
    )
    wide = released(qs.marginals(schema, [1, 2, 3]))
    browser.open(wide.report(tmp_path / "wide.html"), width=660)
    choose(browser, first="1", second="0", percent="row")
    printed(browser, "all")
    browser.scheme("light", "print")
    ends = "[...document.querySelectorAll('main table')].map((t) => t.getBoundingClientRect().right)"
    assert max(browser.run(ends)) <= 660
    heads = browser.run(
        "[...document.querySelectorAll('.printed thead tr')]"
        ".map((row) => [...row.cells].map((c) => c.textContent))"
    )
    assert len(heads) > 1
    assert {head[0] for head in heads} == {"b \\ municipality"}
    assert [name for head in heads for name in head[1:]] == [*schema["municipality"].labels, "Total"]
    assert all("%" in text for text in browser.texts(".printed td"))
    browser.scheme("light")
    assert browser.run("getComputedStyle(document.querySelector('.printed')).display") == "none"
    assert browser.complaints() == []


def test_paper_shows_all_rows(opened):
    choose(opened, first="1", second="0")
    assert len(opened.texts("#cells tbody tr")) == 60
    opened.run("window.dispatchEvent(new Event('beforeprint'))")
    assert len(opened.texts("#cells tbody tr")) == 90

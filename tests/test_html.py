"""HTML that is safe by construction."""

import json

import pytest

import querysmasher as qs
from querysmasher.formatting import number, preview
from querysmasher.html import Html, element, join, notebook, script_data, table
from tests.report.conftest import HOSTILE


def test_texts_are_escaped_and_html_is_not():
    inner = element("b", HOSTILE)
    assert "<script" not in inner
    assert "<img" not in inner
    outer = element("p", inner, "&", title=HOSTILE, data_x='"')
    assert outer.startswith("<p title=")
    assert inner in outer
    assert "&amp;" in outer
    assert 'data-x="&quot;"' in outer


def test_attributes_may_be_left_out():
    assert element("td", id="x", class_=None) == '<td id="x"></td>'
    assert join(["a", None, Html("<b>")]) == "a<b>"


def test_data_cannot_end_their_element():
    data = {HOSTILE: [HOSTILE, "<!--", "\u2028", 1.5, None]}
    text = script_data(data, "data")
    inside = text.removeprefix('<script type="application/json" id="data">').removesuffix("</script>")
    assert not set("<>&\u2028") & set(inside)
    assert json.loads(inside) == data


def test_data_that_are_no_json_are_refused():
    with pytest.raises(ValueError, match="JSON"):
        script_data([float("nan")], "data")


@pytest.mark.parametrize(
    ("value", "said"),
    [(0, "0"), (1, "1.00"), (0.99999, "1.00"), (31.94, "31.9"), (123456, "123,000"), (float("inf"), "—")],
)
def test_numbers(value, said):
    assert number(value) == said


def test_numbers_far_out():
    assert number(1e-9) == "1.00e-09"
    assert number(1e30) == "1.00e+30"


def test_previews_are_short():
    assert preview(["x" * 1000]) == "x" * 39 + "…"


def test_tables_and_notebooks():
    text = notebook(HOSTILE, table([HOSTILE], [[HOSTILE]], numbers=[0]))
    assert "<img" not in text
    assert '<td class="n">' in text


def test_a_long_workload_is_cut():
    workload = qs.marginals(qs.Schema.of({f"a{i}": 2 for i in range(20)}), 1)
    assert "… 8 more groups" in workload._repr_html_()

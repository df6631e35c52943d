"""Texts from elsewhere do nothing to a terminal, and nothing in a spreadsheet."""

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher import errors
from querysmasher.formatting import cell, escaped, one_line, shown
from tests.builders import acts
from tests.profiles import fewer
from tests.release.tables import random_counts, simulate

HOSTILE = "s\x1b]0;title\x07\x9b2J\u202e\ud800\r\x7f"


@pytest.mark.slow
def test_every_sign_that_acts_is_replaced_and_no_other():
    signs = [chr(code) for code in range(sys.maxunicode + 1)]
    acting = [sign for sign in signs if acts(sign)]
    for sign in acting:
        assert one_line(sign) != sign, hex(ord(sign))
        assert (shown(sign) != sign) == (sign != "\n"), hex(ord(sign))
    others = "".join(sign for sign in signs if not acts(sign))
    assert one_line(others) == others
    assert shown(others) == others


@fewer(50)
@given(st.recursive(st.text() | st.just(HOSTILE), lambda s: st.lists(s) | st.dictionaries(st.text(), s)))
def test_escaped_json_is_the_same_json_without_control_signs(data):
    text = escaped(json.dumps(data, ensure_ascii=False, indent=2))
    assert json.loads(text) == data
    assert not any(acts(sign) for sign in text.replace("\n", ""))
    text.encode()


@given(st.text())
def test_a_cell_is_a_text_or_the_same_text_with_a_quote_before(text):
    assert cell(text) in (text, f"'{text}")
    assert cell(text).lstrip()[:1] not in set("=+-@") or not cell(text).strip()


@pytest.mark.parametrize(
    "kind", [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, Exception)], ids=repr
)
def test_no_error_prints_control_signs(kind):
    error = kind(HOSTILE, [HOSTILE]) if kind is errors.UnknownAttributeError else kind(f"a {HOSTILE}\nb")
    assert not any(acts(sign) for sign in str(error).replace("\n", ""))
    assert "title" in str(error)


def test_no_object_prints_control_signs():
    schema = qs.Schema([qs.Ordinal(HOSTILE, range(4)), qs.Categorical("b", [HOSTILE, "other"])])
    labels = [HOSTILE, f"{HOSTILE}\nsecond line"]
    workload = qs.all_kway(schema, [1, 2]) + qs.linear(schema, ["b"], [[1, 0], [1, 1]], labels=labels)
    plan = qs.plan(workload, qs.PrivacyCost(1.0), centering="uniform")
    release = simulate(plan, random_counts(schema, 1), 1)
    objects = [schema, workload, plan, release, release.answer(), *workload.groups, *schema]
    texts = [str(o) for o in objects] + [repr(o) for o in objects] + [g.describe() for g in workload]
    texts += list(workload.labels()) + release.answer().to_frame()["query"].to_pylist()
    for text in texts:
        assert not any(acts(sign) for sign in text.replace("\n", "")), text
    for ask in (lambda: release.marginal("no"), lambda: plan.variances(qs.marginals(qs.Schema.of(a=2), 1))):
        with pytest.raises(errors.QuerySmasherError) as caught:
            ask()
        assert not any(acts(sign) for sign in str(caught.value).replace("\n", ""))

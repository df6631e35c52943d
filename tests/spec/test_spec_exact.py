"""Exact counts and public totals in a spec file."""

import pytest

import querysmasher as qs
from querysmasher.errors import SpecError
from tests.spec import files
from tests.spec.files import AGE, SEX

TEXT = f"""{SEX}{AGE}
[[workload]]
kind = "marginals"
k = [1, 2]

[budget]
rho = 0.05

[plan]
exact = ["sex"]
"""


def read(tmp_path, text=TEXT):
    return files.read(tmp_path, text)


def test_exact_counts_are_read_and_planned(tmp_path):
    spec = read(tmp_path)
    assert spec.budget == qs.zCDP(0.05, neighbours="replace_one", exact=(("sex",),))
    plan = spec.plan()
    assert spec.fits(plan.budget)
    assert plan.variances(qs.marginals(spec.schema, ["sex"])).max() == 0


def test_combinations_are_lists(tmp_path):
    spec = read(tmp_path, TEXT.replace('["sex"]', '[["sex", "age"], "sex"]'))
    assert spec.budget.exact == (("age", "sex"),)


def test_groups_of_values_are_predicates_or_levels(tmp_path):
    spec = read(tmp_path, TEXT.replace('["sex"]', '[["age >= 5", "sex"]]'))
    plan = spec.plan()
    assert plan.variances(qs.where(spec.schema, "age < 5")).max() == 0
    assert "the same group of age (not (age >= 5) / age >= 5) and sex" in spec.budget.describe()
    level = """
[[workload]]
kind = "queries"
families = {age = {hierarchy = {half = PARTS}}}

[budget]""".replace("PARTS", str([f"{age // 5}" for age in range(spec.schema["age"].size)]))
    text = TEXT.replace('["sex"]', '[["half", "sex"]]').replace("\n[budget]", level)
    made = read(tmp_path, text)
    assert "the same half of age and sex, and so have the same exact counts by half of age" in (
        made.budget.describe()
    )
    with pytest.raises(SpecError, match=r"plan.exact: .*the values of 'age', or their groups"):
        read(tmp_path, text.replace('[["half", "sex"]]', '["half", "age"]'))


def test_the_least_budget_knows_exact_counts(tmp_path):
    text = TEXT.replace("rho = 0.05", "least = true").replace("k = [1, 2]", "k = [1, 2]\ntarget = 20")
    plan = read(tmp_path, text).plan()
    assert plan.budget.exact == (("sex",),)
    assert plan.worst <= 1 + 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (('["sex"]', '["sexx"]'), "plan.exact: unknown attribute 'sexx'"),
        (('["sex"]', '"sex"'), "plan.exact: expected a list of names of attributes and lists of names"),
        (('exact = ["sex"]', '[measure]\npublic = "t.csv"'), "measure.public: allowed only with"),
    ],
)
def test_what_is_refused(tmp_path, change, message):
    with pytest.raises(SpecError, match=message):
        read(tmp_path, TEXT.replace(*change))

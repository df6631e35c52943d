"""What a type checker makes of the public names; `make check` reads this file, and nothing runs it."""

from typing import assert_type

import querysmasher as qs


def names_are_resolved(data: str) -> None:
    workload = qs.all_kway(qs.Schema.of(age=9, sex=2), 1)
    assert_type(workload, qs.Workload)
    assert_type(qs.zCDP(0.1), qs.zCDP)
    plan = qs.plan(workload, qs.zCDP(0.1))
    assert_type(plan, qs.Plan)
    assert_type(qs.Plan.load("plan.qs"), qs.Plan)
    release = qs.measure(plan, data)
    assert_type(release, qs.Release)
    assert_type(qs.Release.load("release.qs"), qs.Release)
    assert_type(release.answer(workload), qs.Answers)
    assert_type(qs.__version__, str)


def a_misspelt_name_is_an_error() -> None:
    _ = qs.nonsense  # type: ignore[attr-defined]  # mypy reports an ignore that nothing needs

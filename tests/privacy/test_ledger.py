"""A ledger: exact sums, refusals, an edited past is found, every odd file is refused with nothing lost."""

import json
import pickle
import re
import tempfile
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.errors import BudgetError, FileError, PrivacyError
from querysmasher.privacy.accounting import privacy_cost
from querysmasher.privacy.budget import KINDS, epsilon, zcdp_epsilon
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import Entry, Total, plan_digest
from querysmasher.privacy.integer_plan import IntegerPlan
from tests.ledgers import DISCRETE, ROUNDED, TENTH, costing, rows


def test_the_exact_sum_may_reach_the_limit_and_not_pass_it(ledger):
    for number in range(1, 9):
        entry = ledger.charge(costing(TENTH), ROUNDED)
        assert (entry.number, entry.cost) == (number, TENTH)
    assert ledger.total.cost == 1
    assert ledger.left == 0
    with pytest.raises(PrivacyError, match=r"leaves rho = 0 of 0.5; this measurement needs rho = 3.5"):
        ledger.charge(costing(Fraction(1, 2**140)), ROUNDED)
    assert len(ledger.entries) == 8


def test_amounts_are_exact_fractions(ledger):
    cost = privacy_cost(costing(Fraction(1, 3)))
    entries = [ledger.charge(costing(Fraction(1, 3)), ROUNDED) for _ in range(2)]
    assert [e.cost for e in entries] == [cost, cost]
    assert ledger.total.cost == 2 * cost
    stored = json.loads(rows(ledger.path)[1][1])
    assert Fraction(stored["cost"]) == cost
    with pytest.raises(PrivacyError):  # costs are rounded up, so the third third passes the limit by 2^-160
        ledger.charge(costing(Fraction(1, 3)), ROUNDED)


@settings(max_examples=6)
@given(st.lists(st.tuples(st.fractions(Fraction(1, 1000), Fraction(1, 4)), st.booleans()), max_size=6))
def test_every_measurement_that_fits_is_charged_and_no_other(spent):
    """Against the obvious rule: add up, and compare with what the noises used so far allow."""
    limit = qs.ApproxDP(2.0, 1e-3)
    total, gaussian, expected = Fraction(0), True, []
    for cost, discrete in spent:
        plan = costing(cost)
        allowed = limit.privacy_cost if gaussian and not discrete else limit.discrete_privacy_cost
        expected.append(total + privacy_cost(plan) <= Fraction(allowed))
        if expected[-1]:
            total, gaussian = total + privacy_cost(plan), gaussian and not discrete
    with tempfile.TemporaryDirectory() as folder:
        ledger = qs.Ledger(f"{folder}/x", limit=limit)
        found = []
        for cost, discrete in spent:
            try:
                ledger.charge(costing(cost), DISCRETE if discrete else ROUNDED)
            except PrivacyError:
                found.append(False)
            else:
                found.append(True)
        assert (found, ledger.total.cost) == (expected, total)


def test_the_entry_tells_the_plan_the_unit_and_the_data(path):
    ledger = qs.Ledger(path, limit=qs.zCDP(10, records_per_person=3), label="survey 2024")
    plan = costing(1, records_per_person=3)
    entry = ledger.charge(plan, DISCRETE)
    assert entry.plan == plan_digest(plan)
    assert (entry.unit.neighbours, entry.unit.records_per_person) == ("add_remove", 3)
    assert (entry.label, entry.noise) == ("survey 2024", "discrete")
    assert qs.Ledger(path).entries == (entry,)
    assert Entry.from_json(entry.to_json(), entry.previous) == entry


@pytest.mark.parametrize("unit", [{"neighbours": "replace_one"}, {"records_per_person": 2}], ids=str)
def test_units_are_never_mixed(ledger, unit, path):
    with pytest.raises(PrivacyError, match="cannot be added"):
        ledger.charge(costing(TENTH, **unit), ROUNDED)
    with pytest.raises(BudgetError, match="limit"):
        qs.Ledger(path, limit=qs.PrivacyCost(1.0, **unit))
    assert ledger.entries == ()


def test_another_limit_or_label_is_refused(path, ledger):
    for limit in (qs.PrivacyCost(2.0), qs.zCDP(0.5)):  # the second allows as much, and says it differently
        with pytest.raises(BudgetError, match="has the limit"):
            qs.Ledger(path, limit=limit)
    with pytest.raises(BudgetError, match="is about 'people'"):
        qs.Ledger(path, label="others")
    again = qs.Ledger(path, limit=qs.PrivacyCost(1.0), label="people")
    assert again == ledger


def test_the_table_stays_closed_if_the_plan_costs_more_than_its_budget(ledger):
    plan = costing(TENTH, qs.PrivacyCost(float(TENTH) / 2))
    with pytest.raises(PrivacyError, match="more than"):
        ledger.charge(plan, ROUNDED)
    assert ledger.entries == ()


def test_a_measurement_that_costs_nothing_is_an_entry_too(path):
    """The number of records under replace-one neighbours, which is public."""
    ledger = qs.Ledger(path, limit=qs.zCDP(1, neighbours="replace_one"))
    schema = qs.Schema.of(a=2)
    plan = IntegerPlan(schema, qs.zCDP(1, neighbours="replace_one"), (), (), 1000)
    assert ledger.charge(plan, ROUNDED).cost == 0
    assert len(ledger.entries) == 1


def test_what_could_not_be_read_again_is_not_written(ledger):
    for person in ("x" * 1001, "", 3):
        with pytest.raises(FileError):
            ledger.charge(costing(TENTH), ROUNDED, person)
    assert ledger.entries == ()
    ledger.charge(costing(TENTH), ROUNDED, "line\nbreak \ud800 é")
    assert ledger.entries[0].person == "line\nbreak \ud800 é"


def test_noise_that_protects_nobody_is_refused(ledger):
    with pytest.raises(PrivacyError, match="protects nobody"):
        ledger.charge(costing(TENTH), DISTRIBUTIONS["gaussian"])


def test_totals_are_those_of_one_gaussian_mechanism():
    total = Total()
    for _ in range(5):
        total = total.plus(Fraction(1, 10), ROUNDED)
    assert total.rho == Fraction(1, 4)
    assert total.mu == pytest.approx(0.5**0.5)
    assert Fraction(total.mu) ** 2 >= total.cost
    assert total.epsilon_at(1e-6) == epsilon(0.5, 1e-6)
    mixed = total.plus(Fraction(1, 2), DISCRETE)
    assert (mixed.cost, mixed.mu) == (1, None)
    assert mixed.epsilon_at(1e-6) == zcdp_epsilon(0.5, 1e-6) > Total(Fraction(1)).epsilon_at(1e-6)
    assert Total().epsilon_at(1e-6) == 0


@pytest.mark.parametrize(
    "limit", [qs.zCDP(0.5), qs.PrivacyCost(1.0), qs.ApproxDP(1.0, 1e-6), qs.GaussianDP(1)]
)
def test_one_discrete_noise_makes_the_limit_that_of_zcdp(limit, path):
    """With Gaussian noises alone, the limit is spent by the Gaussian formulas; with another, through zCDP."""
    assert Total().allowed(limit) == Fraction(limit.privacy_cost)
    mixed = Total(Fraction(0), is_gaussian=False)
    if isinstance(limit, qs.GaussianDP):
        ledger = qs.Ledger(path, limit=limit)
        with pytest.raises(BudgetError, match="discrete"):
            ledger.charge(costing(TENTH), DISCRETE)
    else:
        assert mixed.allowed(limit) == Fraction(limit.discrete_privacy_cost) <= Fraction(limit.privacy_cost)


def test_a_late_discrete_noise_is_refused_if_the_zcdp_limit_is_passed_by_then(path):
    limit = qs.ApproxDP(1.0, 1e-6)
    gaussian, discrete = Fraction(limit.privacy_cost), Fraction(limit.discrete_privacy_cost)
    ledger = qs.Ledger(path, limit=limit)
    ledger.charge(costing((gaussian + discrete) / 2), ROUNDED)
    with pytest.raises(PrivacyError, match=r"leaves rho = 0 of 0\.0243"):
        ledger.charge(costing(Fraction(1, 10**9)), DISCRETE)
    ledger.charge(costing((gaussian - discrete) / 4), ROUNDED)


def test_the_words(ledger):
    ledger.charge(costing(TENTH), ROUNDED)
    text = repr(ledger)
    assert "1 entry in" in text
    assert "spent  rho = 0.0625, mu = 0.353554, epsilon = 1.54364 at delta = 1e-06" in text
    assert 1.54363 < epsilon(0.125, 1e-6) < 1.54364
    assert "left   rho = 0.4375 of 0.5: one more release may have epsilon = 4.529 at delta = 1e-06" in text


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from([qs.zCDP(0.3), qs.ApproxDP(1.5, 1e-6), qs.ApproxDP(0.7, 1e-9), qs.PrivacyCost(1e-3)]),
    st.lists(st.tuples(st.fractions(Fraction(1, 1000), Fraction(1, 3)), st.booleans()), max_size=3),
)
def test_what_is_said_to_be_left_may_be_spent_and_not_much_more(limit, spent):
    """Shares of the limit are spent with either noise; then the budgets that are printed are tried."""
    total = Total()
    for share, discrete in spent:
        noise = DISCRETE if discrete else ROUNDED
        after = total.plus(share * Fraction(limit.discrete_privacy_cost), noise)
        total = after if after.cost <= after.allowed(limit) else total
    words = total.left_words(limit)
    amounts = dict(re.findall(r"(rho|epsilon|delta) = ([\de.+-]+[\d])", words))
    noise = ROUNDED if total.is_gaussian else DISCRETE
    assert ("default noise" in words) == total.is_gaussian
    assert float(amounts["delta"]) == (limit.stated_delta or 1e-6)
    rho, largest, delta = (float(amounts[name]) for name in ("rho", "epsilon", "delta"))
    for budget, more in (
        (qs.zCDP(rho), qs.zCDP(rho * 1.0001)),
        (qs.ApproxDP(largest, delta), qs.ApproxDP(largest * 1.002, delta)),
    ):
        for tried, fits in ((budget, True), (more, False)):
            after = total.plus(Fraction(noise.allowed_cost(tried)), noise)
            assert (after.cost <= after.allowed(limit)) == fits


def test_a_limit_that_is_not_touched_is_left_as_it_was_stated():
    for limit in (qs.ApproxDP(1.5, 1e-6), qs.ApproxDP(0.1, 1e-9)):
        said = f"one more release may have epsilon = {limit.epsilon} at delta = {limit.delta} (default noise)"
        assert said in Total().left_words(limit)
    assert Total().left_words(qs.zCDP(0.1)).startswith("rho = 0.1 of 0.1: ")


def test_two_releases_together_have_less_epsilon_than_their_sum(path):
    """Costs add, and epsilon grows about as the root of the cost: two times 1 fit below 1.5, three do not."""
    ledger = qs.Ledger(path, limit=qs.ApproxDP(1.5, 1e-6))
    budget = qs.ApproxDP(1.0, 1e-6)
    for after in (1.0, 1.455):
        ledger.charge(costing(budget.privacy_cost, budget), ROUNDED)
        assert ledger.total.epsilon_at(1e-6) == pytest.approx(after, abs=1e-3)
    words = (
        "leaves rho = 0.00325803 of 0.0592869: one more release may have epsilon = 0.3156 at delta = 1e-06"
    )
    with pytest.raises(
        PrivacyError, match=re.escape(f"{words} (default noise); this measurement needs rho = 0.0280")
    ):
        ledger.charge(costing(budget.privacy_cost, budget), ROUNDED)


def test_it_can_be_sent_to_another_process(ledger):
    again = pickle.loads(pickle.dumps(ledger))  # noqa: S301 - our own
    again.charge(costing(TENTH), ROUNDED)
    assert len(ledger.entries) == 1


def test_frozen(ledger):
    with pytest.raises(AttributeError):
        ledger.limit = qs.zCDP(2)


def test_every_budget_is_a_limit(tmp_path):
    amounts = {"epsilon": 1.0, "delta": 1e-9}
    for name, kind in KINDS.items():
        values = [amounts.get(a, 0.3) for a in kind._amounts]
        limit = kind(*values, neighbours="replace_one", records_per_person=2)
        assert qs.Ledger(tmp_path / name, limit=limit).limit == limit
        assert qs.Ledger(tmp_path / name).limit == limit


def test_a_whole_budget_is_charged_before_phases_are_planned(ledger):
    """The cost is all that the budget allows; the entry names the digest of what is asked for."""
    request = "ab" * 32
    entry = ledger.charge_budget(qs.PrivacyCost(0.75), request, ROUNDED)
    assert (entry.cost, entry.plan, ledger.entries) == (Fraction(3, 4), request, (entry,))
    approximate = qs.ApproxDP(0.1, 1e-6)
    second = ledger.charge_budget(approximate, request, DISCRETE)
    assert second.cost == Fraction(approximate.discrete_privacy_cost)
    with pytest.raises(PrivacyError, match="Nothing was measured"):
        ledger.charge_budget(qs.PrivacyCost(0.75), request, ROUNDED)
    with pytest.raises(PrivacyError, match="cannot be added"):
        ledger.charge_budget(qs.PrivacyCost(0.01, records_per_person=2), request, ROUNDED)
    with pytest.raises(PrivacyError, match="request: expected"):
        ledger.charge_budget(qs.PrivacyCost(0.01), "not a digest", ROUNDED)
    with pytest.raises(PrivacyError, match="protects nobody"):
        ledger.charge_budget(qs.PrivacyCost(0.01), request, DISTRIBUTIONS["gaussian"])
    assert ledger.entries == (entry, second)

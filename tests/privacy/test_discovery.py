"""Values above a threshold: every sentence of the proof, exactly, over all neighbours of small tables."""

import itertools
import math
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import querysmasher as qs
from querysmasher.data.values import open_values
from querysmasher.errors import BudgetError, PrivacyError
from querysmasher.privacy.bound import Bound, ValueBound
from querysmasher.privacy.discovery import Discovery, reach, squared_change, tail
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.entries import Total
from querysmasher.privacy.measurement import measure_values
from querysmasher.privacy.noise import noise_source

KEY = bytes(range(32))
NOISES = ["rounded", "discrete"]
BUDGET = qs.zCDP(1)


def gaussian(x):
    """P(N(0, 1) >= x) to 30 digits, by the continued fraction of Mills' ratio."""
    if x < 0:
        return 1 - gaussian(-x)
    with localcontext() as context:
        context.prec = 50
        if x < 1:  # the alternating series of the error function, in 50 digits
            term, total, n = x, x, 0
            while abs(term) > Decimal(10) ** -45:
                n += 1
                term = -term * x * x / (2 * n)
                total += term / (2 * n + 1)
            return Decimal("0.5") - total / (2 * PI).sqrt()
        ratio = x
        for n in range(3000, 0, -1):
            ratio = x + n / ratio
        return (-x * x / 2).exp() / (2 * PI).sqrt() / ratio


PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494459230781640628620899863")


@cache
def mass(noise, variance, m):
    """P(Z = m), from the definition of the noise."""
    with localcontext() as context:
        context.prec = 50
        sigma = (Decimal(variance.numerator) / variance.denominator).sqrt()
        half = Decimal("0.5")
        if noise == "rounded":
            return gaussian((abs(m) - half) / sigma) - gaussian((abs(m) + half) / sigma)
        return (-Decimal(m * m) / (2 * sigma * sigma)).exp() / whole(variance)


@cache
def whole(variance):
    with localcontext() as context:
        context.prec = 50
        square = 2 * Decimal(variance.numerator) / variance.denominator
        end = 25 * math.isqrt(math.ceil(variance)) + 25
        return 1 + 2 * sum((-Decimal(m * m) / square).exp() for m in range(1, end))


@cache
def exceeds(noise, variance, least):
    """P(Z >= least), from the definition of the noise, to 30 digits."""
    with localcontext() as context:
        context.prec = 50
        if noise == "rounded":
            sigma = (Decimal(variance.numerator) / variance.denominator).sqrt()
            return gaussian((least - Decimal("0.5")) / sigma)
        square = 2 * Decimal(variance.numerator) / variance.denominator
        end = abs(least) + 25 * math.isqrt(math.ceil(variance)) + 25
        return sum((-Decimal(m * m) / square).exp() for m in range(least, end)) / whole(variance)


VARIANCES = [Fraction(1), Fraction(1025, 1024), Fraction(7, 2), Fraction(40), Fraction(1000)]


@pytest.mark.parametrize("variance", VARIANCES, ids=str)
def test_the_tail_is_an_upper_bound_for_both_noises(variance):
    sigma = math.sqrt(variance)
    start = next(m for m in itertools.count(1) if (2 * m - 1) ** 2 >= 4 * variance)
    for step in range(12):
        least = start + math.floor(step * sigma / 2)
        bound = tail(variance, least)
        for noise in NOISES:
            assert exceeds(noise, variance, least) <= Decimal(bound.numerator) / bound.denominator
        exact = exceeds("rounded", variance, least)
        assert float(bound) <= float(exact) * (1 + 1e-10)  # for rounded noise it is an equation


@pytest.mark.parametrize("variance", [*VARIANCES, Fraction(10**12)], ids=str)
@pytest.mark.parametrize("delta", [0.3, 1e-3, 1e-9, 1e-60, 1e-200])
def test_the_least_number_that_noise_reaches_rarely_enough(variance, delta):
    least = reach(variance, Fraction(delta))
    assert (2 * least - 1) ** 2 >= 4 * variance
    assert tail(variance, least) <= Fraction(delta)
    before = least - 1
    assert (2 * before - 1) ** 2 < 4 * variance or tail(variance, before) > Fraction(delta)


def parts(total, most=None):
    """All ways to write a number as a sum, in falling order."""
    if not total:
        yield ()
    for first in range(min(total, most or total), 0, -1):
        yield from ((first, *rest) for rest in parts(total - first, first))


BOUNDS = [
    (qs.zCDP(1), None),
    (qs.zCDP(1, records_per_person=2), None),
    (qs.zCDP(1, records_per_person=7), None),
    (qs.zCDP(1, neighbours="replace_one"), None),
    (qs.zCDP(1, neighbours="replace_one", records_per_person=3), None),
    (qs.zCDP(1), 1),
    (qs.zCDP(1, records_per_person=9), 4),
]


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(("budget", "most"), BOUNDS)
@pytest.mark.parametrize("delta", [0.2, 1e-3, 1e-7])
def test_values_that_only_one_person_has_appear_with_probability_at_most_delta(noise, budget, most, delta):
    """Exactly, however the records of the person are distributed among values that nobody else has."""
    for variance in VARIANCES[1:4]:
        discovery = Discovery(budget, most, variance, Fraction(delta))
        records = budget.records_per_person
        ways = [(1,) * n for n in range(1, most + 1)] if most else list(parts(records))
        worst = Decimal(0)
        for way in ways:
            missed = [1 - exceeds(noise, variance, discovery.threshold - count) for count in way]
            worst = max(worst, 1 - math.prod(missed))
        assert worst <= Decimal(delta)
        if noise == "rounded" and delta < 0.01:  # and no lower threshold would do
            lower = [sum(exceeds(noise, variance, discovery.threshold - 1 - c) for c in way) for way in ways]
            assert max(lower) > Decimal(delta)


def table_of(rows):
    return pa.table({"p": [p for p, _ in rows], "v": [v for _, v in rows]}, TYPES)


TYPES = pa.schema([("p", pa.string()), ("v", pa.string())])


def counts_of(rows, most):
    """The exact counts of all values that occur, as the library counts them."""
    bound = None if most is None else Bound("p", most, KEY)
    found = open_values("v", table_of(rows), bound)
    (counts,) = found.counter.marginals([("v",)])
    places = np.flatnonzero(counts)
    return dict(zip(found.labels(places), counts[places].tolist(), strict=True))


def check_neighbours(here, there, discovery):
    """What step 1 and step 2 of the proof say of the exact counts of two neighbours."""
    both = here.keys() & there.keys()
    change = sum((here[v] - there[v]) ** 2 for v in both)
    assert change <= discovery.cost * discovery.variance
    for counts, other in ((here, there), (there, here)):
        own = [counts[v] for v in counts if v not in other]
        if discovery.most is not None:
            assert len(own) <= discovery.most
            assert set(own) <= {1}
        else:
            assert sum(own) <= discovery.budget.unit.records_per_person
        for noise in NOISES:
            passed = sum(exceeds(noise, discovery.variance, discovery.threshold - c) for c in own)
            assert passed <= Decimal(discovery.delta.numerator) / discovery.delta.denominator
    return change


@pytest.mark.slow
@pytest.mark.parametrize("most", [1, 2])
def test_all_tables_of_three_persons_and_all_that_lack_one(most):
    """Every person holds any of three values, some twice; whoever leaves, the proof's sentences hold."""
    holdings = [tuple(c) for n in range(4) for c in itertools.combinations("abc", n)] + [tuple("aab")]
    discovery = Discovery(qs.zCDP(1, records_per_person=5), most, Fraction(9), Fraction(1, 10**6))
    seen = {}
    for held in itertools.product(holdings, repeat=3):
        rows = [(f"p{i}", v) for i, values in enumerate(held) for v in values]
        seen[held] = counts_of(rows, most)
        expected = sum(min(most, len(set(values))) for values in held)
        assert sum(seen[held].values()) == expected  # each of at most `most` values, once
    worst = 0
    for held, here in seen.items():
        for who in range(3):
            less = (*held[:who], (), *held[who + 1 :])
            worst = max(worst, check_neighbours(here, seen[less], discovery))
    assert worst == most  # the cost is reached


def test_all_tables_of_four_records_and_all_neighbours():
    for records, replaced in ((1, False), (2, False), (1, True), (2, True)):
        kind = "replace_one" if replaced else "add_remove"
        budget = qs.zCDP(1, neighbours=kind, records_per_person=records)
        discovery = Discovery(budget, None, Fraction(9), Fraction(1, 10**6))
        worst = 0
        for rows in itertools.combinations_with_replacement("abc", 4):
            here = Counter(rows)
            for taken in set(itertools.combinations(rows, records)):
                rest = here - Counter(taken)
                others = itertools.combinations_with_replacement("abcd", records) if replaced else [()]
                for other in others:
                    worst = max(worst, check_neighbours(here, rest + Counter(other), discovery))
        assert worst == squared_change(budget, None)  # the cost is reached


def test_tables_are_counted_by_records_if_persons_are_not_distinguished():
    assert counts_of([("x", "a"), ("x", "a"), ("y", "b")], None) == {"a": 2, "b": 1}


def released(noise, counts, discovery, span):
    """The exact distribution of what is published of two values, each a noisy count or nothing."""
    each = []
    for value in "ab":
        count = counts.get(value, 0)
        if not count:
            each.append({None: Decimal(1)})
            continue
        passed = {
            n: mass(noise, discovery.variance, n - count)
            for n in range(discovery.threshold, discovery.threshold + span)
        }
        each.append(passed | {None: exceeds(noise, discovery.variance, 1 - (discovery.threshold - count))})
    return {(a, b): p * q for a, p in each[0].items() for b, q in each[1].items()}


@pytest.mark.parametrize("noise", NOISES)
@pytest.mark.parametrize(
    ("more", "less"), [({"a": 9, "b": 1}, {"a": 8}), ({"a": 1}, {}), ({"a": 5, "b": 6}, {"a": 4, "b": 5})]
)
def test_the_whole_mechanism_is_epsilon_delta(noise, more, less):
    """The hockey-stick divergence of all outputs, exactly, both ways, never exceeds what `Total` states."""
    discovery = Discovery(qs.zCDP(1), 2, Fraction(4), Fraction(1, 1000))
    total = Total().plus(discovery.cost, DISTRIBUTIONS[noise], discovery.delta)
    one, other = (released(noise, counts, discovery, 40) for counts in (more, less))
    for delta in (0.0011, 0.01, 0.2):
        grow = Decimal(total.epsilon_at(delta)).exp()
        for p, q in ((one, other), (other, one)):
            worst = sum(max(p[o] - grow * q.get(o, Decimal(0)), Decimal(0)) for o in p)
            assert worst <= Decimal(delta)
    assert total.epsilon_at(0.0009) == math.inf  # nothing is left for the noise


def test_what_adds_up():
    """The δ of thresholds is taken from the δ at which ε is stated, and makes Gaussian DP no claim."""
    noise = DISTRIBUTIONS["rounded"]
    plain = Total().plus(Fraction(1, 4), noise)
    total = plain.plus(Fraction(0), noise, Fraction(1, 10**7)).plus(Fraction(0), noise, Fraction(1, 10**7))
    assert total.delta == Fraction(2, 10**7)
    assert (plain.mu, total.mu) == (0.5, None)
    assert total.epsilon_at(1e-6) == pytest.approx(plain.epsilon_at(8e-7), rel=1e-12)
    assert total.epsilon_at(1e-6) >= plain.epsilon_at(8e-7) * (1 - 1e-15)
    limit = qs.ApproxDP(1.0, 1e-6)
    assert float(total.allowed(limit)) == pytest.approx(qs.ApproxDP(1.0, 8e-7).privacy_cost)
    assert total.allowed(qs.zCDP(1)) == 2  # what stands beside such a limit is the ledger's business
    assert plain.plus(Fraction(0), noise, Fraction(1e-6)).allowed(limit) == 0


records = st.lists(st.tuples(st.sampled_from(range(3)), st.sampled_from(range(5))), min_size=1, max_size=20)


def kept_of(rows, most, words):
    """The pairs that are counted, of codes in the order of values."""
    present = sorted({person for person, _ in rows})
    bound = ValueBound("p", most, KEY, words=words)
    persons = np.array([present.index(person) for person, _ in rows])
    mask = bound.kept(persons, lambda i: f"name {present[i]}".encode(), [np.array([c for _, c in rows])])
    return Counter(row for row, one in zip(rows, mask, strict=True) if one)


@given(records, st.integers(1, 4), st.booleans(), st.randoms(use_true_random=False))
@example([(0, 1), (0, 1), (0, 2), (1, 1)], 1, True, None)
def test_the_values_of_a_person_that_are_counted_depend_on_nobody_else(rows, most, alike, chance):
    """Nor on how often anyone has them, nor on the order; also if all values have one hash."""
    words = np.zeros(5, np.uint64) if alike else np.arange(5, dtype=np.uint64) * 977
    kept = kept_of(rows, most, words)
    assert set(kept.values()) <= {1}
    for person in {p for p, _ in rows}:
        own = [row for row in rows if row[0] == person]
        mine = {row for row in kept if row[0] == person}
        assert len(mine) == min(most, len(set(own)))
        assert mine == set(kept_of(own, most, words))
        assert mine == set(kept_of(sorted(set(own)), most, words))
    if chance is not None:
        chance.shuffle(rows)
        assert kept_of(rows, most, words) == kept
    gap = [(person, 2 * code) for person, code in rows]  # others hold values in between: codes move
    spread = np.repeat(words, 2)
    assert {(p, c // 2) for p, c in kept_of(gap, most, spread)} == set(kept)


def test_every_value_of_a_person_may_be_counted():
    rows = [(0, code) for code in range(4)]
    chosen = set()
    for seed in range(60):
        key = seed.to_bytes(16, "big")
        bound = Bound("p", 1, key)
        words = np.array([bound.number(bytes([c])) for c in range(4)], np.uint64)
        mask = ValueBound("p", 1, key, words=words).kept(
            np.zeros(4, np.int64), lambda _: b"x", [np.array([c for _, c in rows])]
        )
        chosen |= set(np.flatnonzero(mask).tolist())
    assert chosen == {0, 1, 2, 3}


@pytest.mark.parametrize("noise", ["rounded", "discrete"])
@pytest.mark.parametrize(("budget", "most"), BOUNDS)
def test_a_discovery_spends_its_budget_and_not_more(noise, budget, most):
    distribution = DISTRIBUTIONS[noise]
    unit = {"neighbours": budget.neighbours, "records_per_person": budget.records_per_person}
    for each in (qs.zCDP(0.02, **unit), qs.ApproxDP(0.5, 1e-6, **unit)):
        discovery = Discovery.planned(each, most, Fraction(1, 10**7), distribution)
        allowed = distribution.allowed_cost(each.without(Fraction(1, 10**7)))
        assert Fraction(99, 100) * Fraction(allowed) <= discovery.cost <= Fraction(allowed)


def test_what_is_refused():
    source = noise_source("rounded", 1)
    found = open_values("v", table_of([("x", "a")]), None)
    over = Discovery(qs.zCDP(0.01), None, Fraction(1), Fraction(1, 10**6))
    with pytest.raises(PrivacyError, match=r"discovery: it costs 1, more than the 0\.02"):
        measure_values(over, "v", found.counter, source)
    fine = Discovery(qs.zCDP(1), None, Fraction(1), Fraction(1, 10**6))
    with pytest.raises(PrivacyError, match="'gaussian', which protects nobody"):
        measure_values(fine, "v", found.counter, noise_source("gaussian", 1))
    with pytest.raises(PrivacyError, match="variance from 1"):
        Discovery(BUDGET, None, Fraction(1, 2), Fraction(1, 10))
    with pytest.raises(PrivacyError, match="delta between 0 and 1"):
        Discovery(BUDGET, None, Fraction(1), Fraction(1))
    with pytest.raises(PrivacyError, match="replace_one"):
        Discovery(qs.zCDP(1, neighbours="replace_one"), 2, Fraction(1), Fraction(1, 10))
    with pytest.raises(PrivacyError, match="positive number"):
        Discovery(BUDGET, 0, Fraction(1), Fraction(1, 10))
    with pytest.raises(BudgetError, match="at least 1e-290"):
        Discovery(BUDGET, None, Fraction(1), Fraction(1, 10**295))
    with pytest.raises(BudgetError, match="too small to discover"):
        Discovery.planned(qs.PrivacyCost(1e-40), None, Fraction(1, 10), DISTRIBUTIONS["rounded"])
    with pytest.raises(BudgetError, match="less than the delta = 1e-06"):
        Discovery.planned(qs.ApproxDP(1, 1e-6), None, Fraction(1, 10**5), DISTRIBUTIONS["rounded"])


@pytest.mark.slow
def test_noisy_counts_have_the_stated_noise():
    """4,000 seeds: mean and variance of a published count; false alarms below 1e-6."""
    found = open_values("v", table_of([("x", "a")] * 900 + [("x", "b")] * 2), None)
    discovery = Discovery(BUDGET, None, Fraction(25), Fraction(1, 10**6))
    drawn = []
    for seed in range(4000):
        places, counts = measure_values(discovery, "v", found.counter, noise_source("rounded", seed))
        assert found.labels(places) == ["a"]
        drawn += counts.tolist()
    noise = np.array(drawn) - 900
    assert abs(noise.mean()) < 5 * math.sqrt(25 / 4000)
    assert abs(noise.var() - 25 - 1 / 12) < 5 * 25 * math.sqrt(2 / 4000)

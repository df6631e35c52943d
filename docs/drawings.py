"""Draws the pictures of the concepts, with numbers from the library: `python docs/drawings.py`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

import querysmasher as qs
from querysmasher.planning.lines.forest import solve_tree
from querysmasher.planning.lines.trees import nested
from querysmasher.planning.strategies import TreeStrategy
from querysmasher.workload.family import Family

IMAGES = Path(__file__).parent / "images"
LIGHT = (
    "--ink:#1f2328;--soft:#59636e;--line:#d1d9e0;--paper:#f6f8fa;--one:#2563c9;--two:#b45309;--three:#0f7b5f"
)
DARK = (
    "--ink:#e6edf3;--soft:#9da7b1;--line:#3d444d;--paper:#1c2128;--one:#6ea8fe;--two:#f0a35e;--three:#4cc9a4"
)
STYLE = (
    f"svg.drawing{{{LIGHT}}}@media (prefers-color-scheme:dark){{svg.drawing{{{DARK}}}}}"
    ".drawing text{font:14px system-ui,sans-serif;fill:var(--ink)}"
    ".drawing .soft{fill:var(--soft);font-size:12.5px}"
    ".drawing .strong{font-weight:650}.drawing .middle{text-anchor:middle}.drawing .end{text-anchor:end}"
)
Grid = NDArray[np.float64]


def drawing(width: float, height: float, title: str, parts: Iterable[str]) -> str:
    """Put elements into one picture, in colours that follow light and dark."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" role="img" '
        f'viewBox="0 0 {width:g} {height:g}">'
        f"<title>{escape(title)}</title><style>{STYLE}</style>{''.join(parts)}</svg>\n"
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """Write words; `kind` is any of soft, strong, middle, end."""
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def box(
    x: float, y: float, width: float, height: float, fill: str, opacity: float = 1, radius: float = 2
) -> str:
    """Fill a box in a colour of the palette."""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:g}" '
        f'fill="var(--{fill})" fill-opacity="{opacity:.2f}"/>'
    )


def line(points: Sequence[tuple[float, float]], colour: str, *, width: float = 2, more: str = "") -> str:
    """Join points."""
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path d="{path}" fill="none" stroke="var(--{colour})" stroke-width="{width:g}" {more}/>'


def grid(x: float, y: float, values: Grid, cell: float = 22) -> list[str]:
    """Show a query as the weight of each cell: above 0 in one colour, below in another."""
    parts = []
    for (i, j), value in np.ndenumerate(values):
        left, top = x + j * cell, y + i * cell
        parts.append(box(left, top, cell - 2, cell - 2, "line", 0.45))
        if abs(value) > 1e-9:
            colour = "one" if value > 0 else "two"
            parts.append(box(left, top, cell - 2, cell - 2, colour, 0.12 + 0.88 * min(abs(value), 1)))
    return parts


def split_query() -> str:
    """One query on two attributes, and its four parts at the uniform centre."""
    ages, regions = 6, 3
    row, column = np.zeros((regions, 1)), np.zeros((1, ages))
    row[0], column[0, :4] = 1, 1  # region = north and age <= 3
    means = {"r": np.full_like(row, row.mean()), "a": np.full_like(column, column.mean())}
    pieces = [
        ("the query", "age ≤ 3, region north", row * column),
        ("total", "a share of everyone", means["r"] * means["a"]),
        ("age", "what age adds", means["r"] * (column - means["a"])),
        ("region", "what region adds", (row - means["r"]) * means["a"]),
        ("age × region", "what both add together", (row - means["r"]) * (column - means["a"])),
    ]
    wide, gap, top = ages * 22, 40, 62
    parts: list[str] = []
    for place, (name, words, values) in enumerate(pieces):
        x = 10 + place * (wide + gap)
        parts += [text(x + wide / 2, 24, name, "strong middle"), text(x + wide / 2, 44, words, "soft middle")]
        parts += grid(x, top, values)
        if place:
            parts.append(text(x - gap / 2 - 1, top + 38, "=" if place == 1 else "+", "strong middle"))
            parts.append(text(x + wide / 2, top + 94, f"weights {span(values)}", "soft middle"))
        else:
            parts.append(text(x + wide / 2, top + 94, "columns age, rows region", "soft middle"))
    return drawing(5 * wide + 4 * gap + 20, 174, "A query is the sum of its parts on attribute sets", parts)


def span(values: Grid) -> str:
    """Say between which numbers the weights are."""
    low, high = f"{values.min():.2f}".replace("-", "−"), f"{values.max():.2f}"
    return high if low == high else f"{low} to {high}"


def shares() -> str:
    """The attribute sets of a small workload, and which share of the budget each gets."""
    schema = qs.Schema(
        [qs.Ordinal("age", range(20)), qs.Categorical("region", range(8)), qs.Categorical("sex", ["F", "M"])]
    )
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.PrivacyCost(1.0))
    found = {frozenset(names): share for names, share in plan.budget_shares().items()}
    rows: list[list[tuple[str, ...]]] = [
        [()],
        [("age",), ("region",), ("sex",)],
        [("age", "region"), ("age", "sex"), ("region", "sex")],
    ]
    places = {
        frozenset(names): (380 + (i - (len(row) - 1) / 2) * 230, 50 + 110 * level)
        for level, row in enumerate(rows)
        for i, names in enumerate(row)
    }
    parts = [
        line([(places[a][0], places[a][1] + 25), (places[b][0], places[b][1] - 27)], "line", width=1.5)
        for a in places
        for b in places
        if a < b and len(b) == len(a) + 1
    ]
    for names, (x, y) in places.items():
        share = found[names]
        parts += [
            box(x - 85, y - 26, 170, 52, "paper", 1, 8),
            box(x - 85, y - 26, 170, 52, "one", 0.06 + share, 8),
        ]
        label = " × ".join(a for a in schema.names if a in names) or "total"
        parts += [
            text(x, y - 3, label, "strong middle"),
            text(x, y + 16, f"{share:.0%} of the budget", "soft middle"),
        ]
    return drawing(
        760, 310, "Every attribute set is measured on its own, with its share of the budget", parts
    )


def centres() -> str:
    """Weights of the uniform and of the best centre, and the error of every prefix query under each."""
    schema = qs.Schema.of(age=10)
    workload = qs.all_kway(schema, 1, "prefix")
    colours = (("uniform", "two"), ("optimized", "one"))
    budget = qs.PrivacyCost(1.0)
    plans = {name: qs.plan(workload, budget, centering=name, tolerance=1e-5) for name, _ in colours}
    weights = {name: plan.centres[0].weights for name, plan in plans.items()}
    errors = {name: np.sqrt(plan.variances(workload)) for name, plan in plans.items()}
    parts = [text(20, 24, "The centre: a weight for each value", "strong")]
    parts.append(text(420, 24, "Standard error of “age ≤ x”", "strong"))
    base, tall, top = 200.0, 330.0, float(max(w.max() for w in weights.values()))
    for i in range(10):
        for place, (name, colour) in enumerate(colours):
            height = tall / 2.4 * weights[name][i] / top
            parts.append(box(20 + 33 * i + 13 * place, base - height, 12, height, colour, 0.85))
        parts.append(text(33 + 33 * i, base + 18, str(i), "soft middle"))
    parts.append(line([(16, base), (350, base)], "line", width=1))
    low, high = 1.2, 2.0
    for level in (1.2, 1.4, 1.6, 1.8, 2.0):
        y = base - (level - low) / (high - low) * 150
        parts += [line([(450, y), (748, y)], "line", width=1), text(442, y + 4, f"{level}", "soft end")]
    for name, colour in colours:
        points = [(462 + 30.5 * i, base - (e - low) / (high - low) * 150) for i, e in enumerate(errors[name])]
        parts.append(line(points, colour, width=2.5))
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="var(--{colour})"/>' for x, y in points]
    parts += [text(462 + 30.5 * i, base + 18, str(i), "soft middle") for i in range(10)]
    for place, (name, colour) in enumerate(colours):
        x = 20 + 365 * place
        parts += [
            box(x, 238, 13, 13, colour, 0.85),
            text(x + 20, 250, f"{name}: root mean square error {plans[name].rmse:.3f}"),
        ]
    return drawing(760, 266, "Choosing the centre lowers the error", parts)


def known_error() -> str:
    """Three tables, one plan: the answers differ, the noise does not."""
    parts = [
        box(10, 12, 350, 56, "three", 0.14, 8),
        text(185, 36, "schema, queries, budget  →  plan  →  error", "strong middle"),
        text(185, 56, "all public, no data", "soft middle"),
        box(400, 12, 350, 56, "one", 0.14, 8),
        text(575, 36, "plan + table  →  answer = truth + noise", "strong middle"),
        text(575, 56, "the noise is drawn as the plan says", "soft middle"),
    ]
    for row, (name, truth) in enumerate(
        (("one table", 240.0), ("another table", 380.0), ("a third table", 520.0))
    ):
        base = 150 + 82 * row
        t = np.linspace(-3.2, 3.2, 65)
        bell = [(truth + 34 * u, base - 56 * float(np.exp(-u * u / 2))) for u in t]
        area = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in bell) + "Z"
        parts.append(line([(125, base), (750, base)], "line", width=1))
        parts += [f'<path d="{area}" fill="var(--one)" fill-opacity=".18"/>', line(bell, "one")]
        parts.append(
            line([(truth, base - 62), (truth, base + 5)], "two", width=1.5, more='stroke-dasharray="4 3"')
        )
        parts += [text(12, base - 4, name), text(truth + 6, base + 18, "truth", "soft")]
        parts.append(line([(truth, base - 34), (truth + 34, base - 34)], "ink", width=1.5))
        parts.append(text(truth + 48, base - 38, "± standard error: the same", "soft"))
    return drawing(760, 340, "The spread of the noise follows from the plan alone", parts)


def quantiles() -> str:
    """Nine deciles of income in three regions, with their intervals, from one release."""
    regions = {"north": 12_000, "south": 7_900, "islands": 400}
    schema = qs.Schema(
        [
            qs.Categorical("region", list(regions)),
            qs.Binned("income", edges=[0, 10, 15, 20, 25, 30, 40, 50, 70, 100]),
        ]
    )
    generator = np.random.default_rng(1)
    people = {
        "region": np.repeat(list(regions), list(regions.values())),
        "income": np.clip(
            np.concatenate(
                [generator.gamma(3, s, n) for s, n in zip((8, 6.5, 10), regions.values(), strict=True)]
            ),
            0,
            99,
        ),
    }
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.ApproxDP(epsilon=1.0, delta=1e-6), progress=False)
    release = qs.measure(plan, pd.DataFrame(people), seed=7, progress=False)
    found = release.quantile("income", [k / 10 for k in range(1, 10)], by="region", assume="midpoint")
    low, high = found.interval(0.95)
    parts = [text(12, 24, "deciles of income, with 95% intervals", "strong")]
    for tick in range(0, 101, 20):
        x = 130 + 6 * tick
        parts += [line([(x, 40), (x, 268)], "line", width=1), text(x, 288, f"{tick}", "soft middle")]
    parts.append(
        text(
            430, 308, "income in 1,000 €; all 27 quantiles come from one release, epsilon = 1", "soft middle"
        )
    )
    for place, one in enumerate(found):
        row, k = divmod(place, 9)
        y = 50 + 76 * row + 7.4 * k
        if k == 4:
            size = regions[one.about["region"]]
            parts += [text(12, y, one.about["region"]), text(12, y + 17, f"{size:,} people", "soft")]
        colour = ("one", "two", "three")[row]
        parts.append(
            line(
                [(130 + 6 * low[place], y), (130 + 6 * high[place], y)],
                colour,
                width=5,
                more='stroke-opacity=".35"',
            )
        )
        x = 130 + 6 * one.value
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="var(--{colour})"/>')
    return drawing(760, 318, "Deciles of income in three regions, with intervals, from one release", parts)


def targets() -> str:
    """What a target costs: epsilon against the half-width of all 1-way intervals."""
    schema = qs.Schema(
        [
            qs.Categorical("sex", ["F", "M"]),
            qs.Ordinal("age", range(0, 100, 5)),
            qs.Categorical("region", ["north", "south", "east", "west"]),
        ]
    )
    plan = qs.least_budget(qs.all_kway(schema, 1).within(50, level=0.95), progress=False)
    one = plan.budget.privacy_cost * 50**2  # the cost of ± 1

    def place(half: float) -> tuple[float, float]:
        epsilon = qs.PrivacyCost(one / half**2).epsilon_at(1e-6)
        return 70 + 6.4 * half, 270 - 115 * epsilon

    parts = [text(12, 24, "what it costs that every 1-way count is within ± t (95% intervals)", "strong")]
    for epsilon in (0.5, 1.0, 1.5, 2.0):
        y = 270 - 115 * epsilon
        parts += [line([(70, y), (720, y)], "line", width=1), text(60, y + 4, f"{epsilon}", "soft end")]
    parts.append(line([(70, 270), (720, 270)], "line", width=1))
    parts += [text(70 + 6.4 * t, 288, f"± {t}", "soft middle") for t in (10, 25, 50, 75, 100)]
    parts += [text(12, 44, "ε at δ = 10⁻⁶", "soft"), text(400, 308, "target t", "soft middle")]
    parts.append(line([place(t) for t in np.linspace(10.5, 100, 80).tolist()], "one", width=2.5))
    for t in (50, 25):
        x, y = place(t)
        epsilon = qs.PrivacyCost(one / t**2).epsilon_at(1e-6)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="var(--two)"/>')
        parts.append(text(x + 10, y - 8, f"± {t}: ε = {epsilon:.2f}"))
    return drawing(760, 318, "Epsilon against the accuracy target: half the error costs about twice", parts)


def tree_strategy(geography: Family) -> TreeStrategy:
    """Return the best precision of every node."""
    asked = nested([geography], [1.0])
    if asked is None:
        raise AssertionError
    found = solve_tree(asked).strategy
    if not isinstance(found, TreeStrategy):
        raise TypeError
    return found


def trees() -> str:
    """An irregular tree of states, counties and tracts: the precision and the error of every node."""
    tracts = [3, 2, 4, 1, 6]  # of each county; the first three counties are in one state
    schema = qs.Schema.of(tract=sum(tracts))
    county = np.repeat(np.arange(5), tracts)
    geography = qs.hierarchy(schema, "tract", country=[0] * sum(tracts), state=county // 3, county=county)
    own = tree_strategy(geography)
    nodes, errors = own.nodes, np.sqrt(own.passes[2])
    x = np.zeros(len(nodes))
    x[nodes.leaves] = 150 + 38 * np.argsort(own.classes).astype(float)
    for level, parents, starts in nodes.families[:0:-1]:
        x[parents] = np.add.reduceat(x[level], starts) / np.add.reduceat(np.ones_like(x[level]), starts)
    height = np.zeros(len(nodes))
    for depth, level in enumerate(nodes.levels):
        height[level] = depth
    height[nodes.leaves] = len(nodes.levels) - 1
    y = 50 + 78 * height
    parts = [
        line([(x[up], y[up] + 16), (x[v], y[v] - 16)], "line", width=1.5)
        for v, up in enumerate(nodes.parents)
        if up >= 0
    ]
    for v in range(len(nodes)):
        wide = 32 if nodes.is_leaf[v] else 64
        parts += [
            box(x[v] - wide / 2, y[v] - 17, wide, 34, "paper", 1, 6),
            box(x[v] - wide / 2, y[v] - 17, wide, 34, "one", 0.08 + 0.8 * float(own.precisions[v]), 6),
            text(x[v], y[v] - 2, f"{own.precisions[v]:.0%}", "strong middle" if wide > 40 else "middle soft"),
            text(x[v], y[v] + 13, f"±{errors[v]:.{1 if nodes.is_leaf[v] else 2}f}", "soft middle"),
        ]
    for place, name in enumerate(("country", "states", "counties", "tracts")):
        parts.append(text(12, 54 + 78 * place, name, "strong"))
    parts.append(
        text(430, 330, "share of the cost on each path, and standard error at cost 1", "soft middle")
    )
    return drawing(
        780, 342, "A tree of states, counties and tracts: how much of the budget each node gets", parts
    )


def estimate() -> str:
    """The counts of a sparse table: true, unbiased and estimated."""
    rng = np.random.default_rng(4)
    first = np.minimum(rng.geometric(0.35, 3000) - 1, 11)
    second = np.clip(first // 2 + rng.integers(-1, 2, 3000), 0, 5)
    third = np.minimum(rng.geometric(0.5, 3000) - 1, 3)
    schema = qs.Schema.of(a=12, b=6, c=4)
    people = pd.DataFrame({"a": first, "b": second, "c": third})
    budget = qs.ApproxDP(0.3, 1e-6)
    release = qs.measure(qs.plan(qs.marginals(schema, 3), budget), people, seed=3)
    exact = np.histogramdd(
        people.to_numpy(), bins=schema.sizes, range=[(-0.5, n - 0.5) for n in schema.sizes]
    )[0]
    shown = [
        ("the truth", exact, "three"),
        ("unbiased", np.asarray(release.marginal("a", "b", "c")), "two"),
        ("estimate", np.asarray(release.estimate().marginal("a", "b", "c")), "one"),
    ]
    parts: list[str] = []
    scale = 62 / max(float(np.abs(table).max()) for _, table, _ in shown)
    for place, (name, table, colour) in enumerate(shown):
        base = 92 + place * 128
        parts.append(line([(118, base), (770, base)], "line", width=1))
        for cell, value in enumerate(table[:, :, 0].ravel().tolist()):
            height = value * scale
            parts.append(box(120 + cell * 9, base - max(height, 0), 7, max(abs(height), 0.6), colour, 0.9, 1))
        wrong = np.abs(table - exact).sum() / exact.sum()
        parts += [text(8, base - 12, name, "strong"), text(8, base + 6, f"error {wrong:.2f} N", "soft")]
    parts.append(text(445, 412, "72 of the 288 cells of one table of 3,000 people at ε = 0.3", "soft middle"))
    return drawing(780, 424, "The counts of a sparse table: true, unbiased and estimated", parts)


PICTURES = {
    "split": split_query,
    "shares": shares,
    "centres": centres,
    "error": known_error,
    "quantiles": quantiles,
    "targets": targets,
    "trees": trees,
    "estimate": estimate,
}


def main(folder: Path = IMAGES) -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (folder / f"concept-{name}.svg").write_text(draw())


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

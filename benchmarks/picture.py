"""The README's picture: expected errors on the same workloads, as SVG: `python -m benchmarks.picture`."""

from html import escape
from pathlib import Path

import querysmasher as qs
from benchmarks.schemas import WORKLOADS

PICTURE = Path(__file__).parent.parent / "docs" / "images" / "accuracy.svg"

CASES = [  # what is asked, how to build it, and the paper's columns RP+, HDMM, WFF and QS
    (
        "Census-like table (CPS), counts and prefixes on up to 3 attributes",
        ("hybrid", "cps", "<=3"),
        (8.39, 8.623, 10.594, 8.140),
    ),
    (
        "Adult, 21 million counts and prefixes on up to 3 attributes",
        ("hybrid", "adult", "<=3"),
        (48.90, 61.613, 66.794, 47.853),
    ),
    (
        "40 attributes of 10 values, prefixes on pairs",
        ("one_and_two_way", 10, "prefix"),
        (36.23, 52.35, 39.70, 33.70),
    ),
    (
        "40 attributes of 10 values, a + b <= c",
        ("one_and_two_way", 10, "affine"),
        (62.48, None, 45.23, 28.25),
    ),
    ("40 attributes of 10 values, |a - b| <= c", ("one_and_two_way", 10, "abs"), (85.99, None, 64.11, 35.85)),
]
NAMES = ("ResidualPlanner+", "HDMM", "Weighted Fourier", "QuerySmasher paper", "this library")
COLOURS = ("#b8c4d0", "#a9b1c9", "#98a6b8", "#6f8fb3", "#d9622b")
LEFT, WIDTH, BAR, GAP = 170, 560, 15, 3


def main():
    """Plan every case and draw the bars."""
    rows, y = [], 46
    for title, (name, *arguments), peers in CASES:
        plan = qs.plan(
            WORKLOADS[name](*arguments), qs.PrivacyCost(1.0), centering="optimized", tolerance=1e-4
        )
        values = [*peers, plan.rmse]
        largest = max(v for v in values if v is not None)
        rows.append(f'<text x="16" y="{y}" class="title">{escape(title)}</text>')
        y += 10
        for label, colour, value in zip(NAMES, COLOURS, values, strict=True):
            if value is None:
                continue
            length = WIDTH * value / largest
            strong = ' class="strong"' if label == NAMES[-1] else ""
            rows.append(
                f'<text x="{LEFT - 8}" y="{y + BAR - 3}" text-anchor="end"{strong}>{label}</text>'
                f'<rect x="{LEFT}" y="{y}" width="{length:.1f}" height="{BAR}" rx="2" fill="{colour}"/>'
                f'<text x="{LEFT + length + 6:.1f}" y="{y + BAR - 3}"{strong}>{value:.2f}</text>'
            )
            y += BAR + GAP
        y += 26
    style = (
        "text{font:12px system-ui,sans-serif;fill:#333}"
        ".title{font-weight:600;font-size:13px}.strong{font-weight:700}"
        "@media (prefers-color-scheme:dark){text{fill:#ddd}}"
    )
    said = "Expected error of a count at the same privacy cost (root mean square, less is better)"
    head = f'<text x="16" y="22" class="title">{said}</text>'
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 {y}" width="820" height="{y}" role="img">'
        f"<style>{style}</style>{head}{''.join(rows)}</svg>\n",
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()

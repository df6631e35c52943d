"""Takes the pictures of the pages that the documentation shows: `python -m tests.report.pictures`."""

import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

import querysmasher as qs
from tests.report.browser import Browser, find_browser

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SCHEMA = qs.Schema(
    [
        qs.Ordinal("income", range(100)),
        qs.Ordinal("age", range(50)),
        qs.Categorical(
            "marital", ["never", "married", "separated", "divorced", "widowed", "absent", "other"]
        ),
        qs.Categorical("race", ["white", "black", "asian", "other"]),
        qs.Categorical("sex", ["F", "M"]),
    ]
)
"""The schema of the demo."""


def made_up_people(records=60_000):
    """A table that nobody is in."""
    generator = np.random.default_rng(7)
    age = np.minimum(generator.gamma(6.0, 3.6, records), 49).astype(int)
    sex = generator.integers(0, 2, records)
    income = np.clip(generator.normal(14 + 1.1 * age * (1 - age / 90) + 4 * sex, 11), 0, 99).astype(int)
    married = generator.random(records) < age / 45
    marital = np.where(
        married, generator.choice([1, 1, 1, 3, 2, 4], records), generator.choice([0, 0, 5, 6], records)
    )
    race = generator.choice(4, records, p=[0.62, 0.18, 0.12, 0.08])
    columns = zip(SCHEMA, (income, age, marital, race, sex), strict=True)
    return pd.DataFrame({a.name: [a.values[i] for i in column] for a, column in columns})


def main():
    plan = qs.plan(qs.all_kway(SCHEMA, [1, 2, 3]), qs.ApproxDP(1.0, 1e-6))
    release = qs.measure(plan, made_up_people())
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        pages = Path(folder)
        browser = Browser(find_browser(), pages / "profile")
        try:
            browser.open(plan.report(pages / "plan.html", title="Income by age, family, race and sex"))
            browser.picture(IMAGES / "plan-report.png", start="#error", height=1240)
            browser.open(release.report(pages / "release.html", title="Income by age, family, race and sex"))
            browser.set("#first", "0", "change")
            browser.set("#second", "4", "change")
            browser.until("document.querySelectorAll('#chart .mark-area path').length === 2")
            time.sleep(0.3)
            browser.picture(IMAGES / "release-report.png", height=1090)
        finally:
            browser.close()


if __name__ == "__main__":
    main()

"""Fictitious people that fit the schema of the template."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from querysmasher.files import replacing

COUNT = 5_000


def write_people(path: Path) -> None:
    """Write a CSV table of fictitious people, the same each time."""
    draw = np.random.default_rng(2026)
    age = np.minimum(99, draw.gamma(4.0, 10.0, COUNT)).astype(int)
    income = np.minimum(100_000, draw.lognormal(10.0, 0.7, COUNT)).round(2)
    hour = draw.normal(8.5, 3.0, COUNT).round().astype(int) % 24
    sex = np.where(draw.random(COUNT) < 0.51, "F", "M")
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["sex", "age", "income", "hour"])
        writer.writerows(zip(sex.tolist(), age.tolist(), income.tolist(), hour.tolist(), strict=True))

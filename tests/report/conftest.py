"""Plans and releases, once for all tests of a file."""

import json
import re

import numpy as np
import pandas as pd
import pytest

import querysmasher as qs

HOSTILE = "</script><script>window.broken = 1</script><img src=x onerror='window.broken=2'>"
SCHEMA = qs.Schema(
    [
        qs.Categorical("region", ["north", "south", "east", "west"]),
        qs.Ordinal("age", range(20)),
        qs.Cyclic("quarter", [1, 2, 3, 4]),
        qs.Categorical("sex", ["F", "M"]),
    ]
)


def table(schema, records=3000, seed=1):
    generator = np.random.default_rng(seed)
    return pd.DataFrame({a.name: generator.choice(np.array(a.values), records) for a in schema})


def released(workload, data=None, budget=None, **options):
    """A release of a made-up table, or of another one."""
    plan = qs.plan(workload, budget or qs.zCDP(0.5), centering="uniform")
    return qs.measure(plan, table(workload.schema) if data is None else data, **options)


def data_of(page):
    """The data that a page holds for its script."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


@pytest.fixture(scope="module")
def plan():
    return qs.plan(qs.all_kway(SCHEMA, [1, 2]), qs.ApproxDP(1.0, 1e-6), centering="uniform")


@pytest.fixture(scope="module")
def release(plan):
    return qs.measure(plan, table(SCHEMA))


@pytest.fixture(scope="module")
def hostile():
    """A plan and a release whose every text is out to break the page."""
    schema = qs.Schema(
        [
            qs.Categorical(HOSTILE, [HOSTILE, "a.b[0]", "it's", '"', "\\u003c", "\u2028", "&lt;", 1, "1"]),
            qs.Ordinal("<!-- a.b['c']", range(5)),
        ]
    )
    plan = qs.plan(qs.all_kway(schema, [1, 2]), qs.zCDP(0.5), centering="uniform")
    frame = pd.DataFrame({schema.names[0]: [HOSTILE, "it's"] * 50, schema.names[1]: [0, 1] * 50})
    return plan, qs.measure(plan, frame)

"""A new kind of table needs a function of its own and its name in one registry."""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

import querysmasher as qs
from querysmasher.data import sources
from querysmasher.data.foreign import check_columns
from querysmasher.data.rows import ScanCounter


@dataclass
class Records:
    """A toy source: a list of records, one mapping each."""

    records: list


def open_records(rows, data):
    """The file of the toy source."""
    if not isinstance(data, Records):
        return None
    check_columns(rows.columns, list(data.records[0]))

    def read():
        for start in range(0, len(data.records), rows.limits.read_rows):
            yield pa.RecordBatch.from_pylist(data.records[start : start + rows.limits.read_rows])

    return ScanCounter(rows, read)


def test_a_new_source_needs_one_line_in_one_registry(monkeypatch):
    monkeypatch.setattr(sources, "OPENERS", (*sources.OPENERS, open_records))
    schema = qs.Schema.of(a=3, b=2)
    people = Records([{"a": i % 3, "b": i % 2} for i in range(300)])
    assert qs.check(schema, people).ok
    release = qs.measure(qs.plan(qs.marginals(schema, [1, 2]), qs.zCDP(10)), people, seed=1)
    np.testing.assert_allclose(release.marginal("a", "b"), 50, atol=8)
    found = qs.check(schema, Records([{"a": 7, "b": 1}]))
    assert found["a"].values == (("7", 1),)

"""A new kind of queries or of families in a spec is a class or a function, and its line in a registry."""

import querysmasher as qs
from querysmasher.spec import workloads
from querysmasher.spec.workloads import Queries
from tests.spec.files import SMALL, read


class Totals(Queries):
    """The total, several times."""

    times: int

    def build(self, schema, folder):
        return self.weight * sum(
            (qs.marginals(schema, 0) for _ in range(self.times - 1)), qs.marginals(schema, 0)
        )


def every_second(attribute, given, folder):
    return qs.queries(qs.Schema([attribute]), {attribute.name: "identity"}).groups[0].families[0]


def test_a_toy_kind_of_queries_needs_a_class_and_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.WORKLOADS, "totals", Totals)
    spec = read(tmp_path, SMALL + '[[workload]]\nkind = "totals"\ntimes = 3\nweight = 2.0\n')
    assert spec.entries[-1].workload == 2 * Totals(kind="totals", times=3).build(spec.schema, tmp_path)


def test_a_toy_form_of_families_needs_a_function_and_a_line(tmp_path, monkeypatch):
    monkeypatch.setitem(workloads.FORMS, "toy", ((), every_second))
    text = '[[workload]]\nkind = "queries"\nfamilies = {sex = {toy = true}}\n'
    assert read(tmp_path, SMALL + text).entries[-1].workload.query_count == 2

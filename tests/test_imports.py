"""No file imports itself by a detour, and what is heavy is loaded where it is used."""

import ast
import importlib
from functools import cache
from pathlib import Path

import pytest

from tests.builders import python
from tests.sources import imports, module_name, package_sources

HEAVY = {
    "altair": "charts, an extra: 0.54 s",
    "vl_convert": "charts, an extra: 78 MB to install",
    "causaldata": "the demo's table, an extra: 1.07 s",
    "opendp": "another source of noise, an extra: 0.50 s and 249 MB to install",
    "duckdb": "for tables in databases: 0.16 s",
    "xlsxwriter": "Excel files, an extra",
    "joblib": "for several large blocks at once: 0.22 s, 0.10 s of it beyond numpy",
    "pyarrow": "for tables of data: 0.17 s, 0.05 s of it beyond numpy",
    "rich": "for what a terminal shows: 0.08 s",
    "scipy.linalg": "for rows far apart and for many rows: 0.26 s beyond numpy",
    "scipy.optimize": "for estimates of cumulative counts: a third of what reading a spec loads",
    "scipy.signal": "for errors of very many ranges: 0.4 s beyond numpy",
    "scipy.sparse.csgraph": "for estimates of tables that were not measured: 0.3 s beyond numpy",
    "scipy.special": "for (ε, δ) and for intervals: 0.25 s beyond numpy",
}
"""What a first plan does not load, and what that would cost.

Seconds are CPU time beyond an empty interpreter, the least of seven fresh processes on one machine.
"""

VIEWS = {
    "planning/plan": ("planning.plan_file", "report."),
    "release/release": ("release.release_file", "release.writing", "report.", "estimate."),
    "estimate/estimate": ("estimate.estimate_files", "estimate.microdata"),
}
"""Values, and what shows or stores them: their methods import it when they are called."""


FIRST_PLAN = """
schema = qs.Schema.of(a=4, b=3)
plan = qs.plan({queries}, qs.zCDP(0.5))
plan.weighted_rmse, plan.worst_std, plan.gap
"""


class Running(ast.NodeTransformer):
    """Leaves out the imports that only a type checker makes, and those of views of a value in its methods."""

    def __init__(self, path):
        self.path = path

    def visit_If(self, node):
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)

    def visit_FunctionDef(self, node):
        node.body = [each for each in node.body if not is_view(self.path, getattr(each, "module", None))]
        return self.generic_visit(node)


def is_view(path, name):
    return (name or "").removeprefix("querysmasher.").startswith(VIEWS.get(path, ()))


@cache
def running(text, path):
    return ast.unparse(Running(path).visit(ast.parse(text)))


def graph(sources):
    """Return the imports between the modules of the package, wherever in a file they stand."""
    modules = set(map(module_name, sources))
    return {
        module_name(path): set(imports(running(text, path), path, modules)) - {module_name(path)}
        for path, text in sources.items()
    }


def reached(arrows, start):
    """Return all modules that can be reached from one by at least one import."""
    found, left = set(), [start]
    while left:
        new = arrows.get(left.pop(), set()) - found
        found |= new
        left += new
    return found


def circles(sources):
    """Return the sets of modules that import each other, directly or by a detour."""
    arrows = graph(sources)
    reach = {module: reached(arrows, module) for module in arrows}
    return {frozenset(b for b in reach[a] if a in reach[b]) for a in arrows if a in reach[a]}


@pytest.mark.slow
def test_there_are_no_circles():
    sources = package_sources()
    assert graph(sources)["planning.plan_file"] >= {"planning.plan", "planning.strategies.strategy"}
    assert not any(module.startswith(VIEWS["planning/plan"]) for module in graph(sources)["planning.plan"])
    assert circles(sources) == set()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "members"),
    [
        (
            "planning/plan",
            "from querysmasher.planning.plan_file import save_plan",
            {"planning.plan_file", "planning.plan"},
        ),
        (
            "planning/estimator/estimator",
            "if not TYPE_CHECKING:\n    from ...report.plan_report import shares",
            {"report.plan_report", "planning.estimator.estimator", "planning.plan"},
        ),
        (
            "release/reconstruction",
            "def f():\n    from querysmasher.release.release import Release",
            {"release.reconstruction", "release.release"},
        ),
        (
            "errors",
            "import querysmasher.html as t\nfrom .schema import Schema",
            {"errors", "schema", "attributes"},
        ),
    ],
)
def test_a_planted_circle_is_found(path, line, members):
    sources = package_sources()
    sources[path] += "\n" + line
    (found,) = circles(sources)
    assert members <= found


def loaded_after(code):
    """Return the modules that a fresh interpreter has loaded after some lines."""
    code = f"import sys\nimport querysmasher as qs\n{code}\nprint(*sys.modules)"
    return set(python("-c", code, check=True).stdout.split())


@pytest.mark.slow
@pytest.mark.parametrize(
    "queries",
    [
        "qs.marginals(schema, 2)",
        "qs.all_kway(schema, [1, 2], 'prefix') + qs.all_kway(schema, 1, 'range')",
        "qs.where(schema, 'a >= 2 and b == 1')",
    ],
)
def test_a_first_plan_loads_nothing_heavy(queries):
    """Neither with closed forms, nor where strategies and centres are searched for, nor for one query."""
    loaded = loaded_after(FIRST_PLAN.format(queries=queries))
    assert {"numpy", "querysmasher.planning.plan", "querysmasher.planning.solvers.bounds"} <= loaded
    assert loaded.isdisjoint({*HEAVY, "scipy", "scipy.optimize", "pandas", "narwhals", "pydantic", "typer"})


@pytest.mark.slow
def test_what_measures_and_reads_specs_loads_nothing_that_only_estimates_need():
    loaded = loaded_after("from querysmasher.spec import read_spec\nqs.measure, qs.Release, qs.Estimate")
    assert {"querysmasher.estimate.sums", "querysmasher.spec.spec"} <= loaded
    assert "scipy.optimize" not in loaded


@pytest.mark.slow
def test_what_plans_for_studio_loads_no_tables():
    loaded = loaded_after("import querysmasher.studio.tasks")
    assert {"querysmasher.spec.spec", "querysmasher.statistics.statistic"} <= loaded
    assert loaded.isdisjoint({"pyarrow", "narwhals"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "views"),
    [
        ("Release", ["report.release_report", "estimate.estimate"]),
        ("Estimate", ["estimate.estimate_files", "estimate.microdata"]),
    ],
)
def test_values_load_neither_pages_nor_files_before_they_are_asked_for(value, views):
    views = {
        f"querysmasher.{name}" for name in (*views, "release.release_file", "release.writing", "report.page")
    }
    assert loaded_after(f"qs.{value}").isdisjoint(views)
    assert loaded_after(f"import {', '.join(sorted(views))}") >= views, "the names above are those of today"


@pytest.mark.slow
def test_what_is_heavy_is_found_where_it_is_used():
    """The test above can fail: where queries far apart are planned, scipy is seen."""
    far_apart = "qs.where(schema, 'a >= 2 and b == 1') + 1e-9 * qs.where(schema, 'a >= 1 and b == 1')"
    loaded = loaded_after(FIRST_PLAN.format(queries=far_apart))
    assert "scipy.linalg" in loaded
    assert "scipy.optimize" not in loaded


def test_benchmarks_and_drawings_import_what_is_there():
    """Also where an import is inside a function, which runs only for some tables."""
    folder = Path(__file__).parent.parent
    missing = []
    for path in (*folder.glob("benchmarks/*.py"), *folder.glob("docs/*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("querysmasher"):
                module = importlib.import_module(node.module)
                names = [alias.name for alias in node.names]
                missing += [f"{path.name}: {name}" for name in names if not is_there(module, name)]
    assert missing == []


def is_there(module, name):
    """Whether a module, or a package with its files, has a name."""
    return hasattr(module, name) or f"{module.__name__.partition('.')[2]}.{name}".replace(".", "/") in {
        path.removesuffix("/__init__") for path in package_sources()
    }

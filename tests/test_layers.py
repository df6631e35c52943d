"""The pipeline points one way: nothing that plans sees data, nothing after the noise sees data again."""

import ast
from pathlib import Path

import pytest

import querysmasher

ROOT = Path(querysmasher.__file__).parent

LAYERS = (
    {"errors", "arrays", "html"},
    {"attributes", "schema"},
    {"workload"},
    {
        "privacy.rates",
        "privacy.budget",
        "privacy.distributions",
        "privacy.filters",
        "privacy.integer_plan",
        "privacy.accounting",
        "files",
        "progress",
        "report",
    },
    {"planning", "report.plan_data", "report.plan_report"},
    {"data", "privacy"},  # privacy: noise and measurement
    {"release", "report.release_data", "report.release_report"},
    {"measure"},
    {"comparison", "spec"},
    {""},  # the package itself, which gathers the public names
    {"demo", "cli", "__main__"},  # what is run
)
"""A module may import from its own layer and from those before it."""

FORBIDDEN = (
    ("workload", ("data", "release", "privacy.measurement", "privacy.noise")),
    ("planning", ("data", "release", "privacy.measurement", "privacy.noise")),
    ("data", ("planning",)),
    ("privacy", ("planning", "release")),
    ("release", ("data", "privacy.measurement", "privacy.noise")),
    ("report", ("data", "privacy.measurement", "privacy.noise")),
)
"""Said outright, whatever the layers: planning is data-independent and not trusted by what guards privacy,
releasing is post-processing."""


def within(module, folder):
    return module == folder or module.startswith(folder + ".")


def layer(module):
    """The place of a module in the pipeline: that of the longest name in LAYERS that holds it."""
    if module == "privacy":  # an empty package around the budget
        return layer("privacy.budget")
    found = [(len(n), place) for place, names in enumerate(LAYERS) for n in names if within(module, n)]
    assert found, f"{module} has no place in the pipeline: give it one in LAYERS"
    return max(found)[1]


def imports(source, path, modules):
    """The modules of this package that a source text imports, wherever in it the import stands."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            targets = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = ["querysmasher", *path.split("/")[:-1]]
            base = folder[: len(folder) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            targets = [(origin, alias.name) for alias in node.names]
        else:
            continue
        for origin, name in targets:
            package, _, inner = origin.partition(".")
            deeper = f"{inner}.{name}".strip(".")
            if package == "querysmasher":
                yield deeper if deeper in modules else inner


def module_name(path):
    return path.removesuffix("__init__").strip("/").replace("/", ".")


def wrong_arrows(sources):
    """Every import that points the wrong way, as text; `sources` maps paths to source texts."""
    modules = set(map(module_name, sources))
    wrong = []
    for path, source in sorted(sources.items()):
        module = module_name(path)
        banned = [t for folder, targets in FORBIDDEN if within(module, folder) for t in targets]
        wrong += [
            f"{module} -> {target or 'querysmasher'}"
            for target in imports(source, path, modules)
            if layer(target) > layer(module) or any(within(target, t) for t in banned)
        ]
    return wrong


def package_sources():
    return {p.relative_to(ROOT).with_suffix("").as_posix(): p.read_text() for p in ROOT.rglob("*.py")}


def test_every_import_points_down_the_pipeline():
    sources = package_sources()
    assert {"errors", "planning/plan", "workload/families", "privacy/budget", "data/counting"} <= set(sources)
    assert wrong_arrows(sources) == []


def test_the_walk_sees_the_imports_that_are_there():
    sources = package_sources()
    seen = set(imports(sources["planning/plan"], "planning/plan", set(map(module_name, sources))))
    assert {"privacy.budget", "workload.workload", "errors"} <= seen
    assert "planning.storage" in seen  # imported inside a function


@pytest.mark.parametrize(
    ("path", "line", "arrow"),
    [
        ("planning/plan", "from querysmasher.data.counting import count", "planning.plan -> data.counting"),
        ("planning/plan", "import querysmasher.privacy.noise", "planning.plan -> privacy.noise"),
        ("workload/rows", "from querysmasher.privacy import noise", "workload.rows -> privacy.noise"),
        ("workload/rows", "from querysmasher.planning.plan import plan", "workload.rows -> planning.plan"),
        (
            "planning/solvers/dense",
            "from ...release import answers",
            "planning.solvers.dense -> release.answers",
        ),
        ("planning/plan", "def f():\n    from querysmasher import Release", "planning.plan -> querysmasher"),
        ("schema", "from querysmasher.workload import families", "schema -> workload.families"),
        ("errors", "from .schema import Schema", "errors -> schema"),
        ("privacy/budget", "import querysmasher.planning.plan as p", "privacy.budget -> planning.plan"),
        ("release/__init__", "from querysmasher.data import frames", "release -> data.frames"),
        ("release/__init__", "if TYPE_CHECKING:\n    import querysmasher.data", "release -> data"),
        ("privacy/accounting", "import querysmasher.planning.plan", "privacy.accounting -> planning.plan"),
        ("privacy/measurement", "from ..planning import plan", "privacy.measurement -> planning.plan"),
        ("release/release", "from ..privacy.noise import x", "release.release -> privacy.noise"),
        ("data/counting", "from querysmasher.release import x", "data.counting -> release"),
        ("html", "from querysmasher.schema import x", "html -> schema"),
        ("report/plan_data", "from ..release import answers", "report.plan_data -> release.answers"),
        ("report/release_data", "from querysmasher.data import x", "report.release_data -> data"),
    ],
)
def test_a_planted_wrong_arrow_is_found(path, line, arrow):
    sources = package_sources()
    sources[path] += "\n" + line
    assert wrong_arrows(sources) == [arrow]


def test_a_module_without_a_place_is_reported():
    sources = package_sources() | {"surprise": "from querysmasher.errors import FileError"}
    with pytest.raises(AssertionError, match="surprise has no place"):
        wrong_arrows(sources)

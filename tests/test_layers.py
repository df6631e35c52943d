"""The pipeline points one way: nothing that plans sees data, nothing after the noise sees data again.

Own code, not import-linter, because it also reads the stub of public names, finds tests of kinds, and plants
wrong arrows in source texts to show that it sees them.
"""

import ast
from functools import cache
from pathlib import Path

import pytest

import querysmasher
from querysmasher.attributes import KINDS as ATTRIBUTES
from querysmasher.attributes import Attribute
from querysmasher.planning.strategies import KINDS as STRATEGIES
from querysmasher.privacy.budget import KINDS as BUDGETS
from querysmasher.privacy.budget import Budget
from querysmasher.privacy.distributions import DISTRIBUTIONS
from querysmasher.privacy.factors import KINDS
from querysmasher.privacy.noise import SOURCES
from querysmasher.workload.family import Family
from querysmasher.workload.registry import FAMILIES

ROOT = Path(querysmasher.__file__).parent

LAYERS = (
    {"errors", "arrays", "formatting", "html", "endings", "fields"},
    {"attributes", "conditions", "schema"},
    {"workload"},
    {
        "privacy.unit",
        "privacy.budget",
        "privacy.distributions",
        "privacy.factors",
        "privacy.integer_plan",
        "privacy.accounting",
        "privacy.entries",
        "files",
        "guarantees",
        "progress",
        "report",
    },
    {
        "planning",
        "report.expectations",
        "report.plan_report",
    },
    {"privacy"},  # what draws noise, and what reads counts
    {"data"},
    {
        "release",
        "statistics",
        "estimate",
        "report.release_data",
        "report.release_report",
    },
    {"measuring"},
    {"exploring"},
    {"comparison", "spec"},
    {""},  # the package itself, which gathers the public names
    {"demo", "cli", "__main__"},  # what is run
)
"""A module may import from its own layer and from those before it."""

COUNTS_AND_NOISE = (
    "privacy.counts",
    "privacy.measurement",
    "privacy.phases",
    "privacy.noise",
)

FORBIDDEN = (
    ("workload", ("data", "release", *COUNTS_AND_NOISE)),
    ("planning", ("data", "release", *COUNTS_AND_NOISE)),
    ("data", ("planning", "privacy.measurement", "privacy.noise")),
    ("privacy", ("planning", "release", "data")),
    ("release", ("data", *COUNTS_AND_NOISE)),
    ("statistics", ("data", *COUNTS_AND_NOISE)),
    ("estimate", ("data", *COUNTS_AND_NOISE)),
    ("report", ("data", *COUNTS_AND_NOISE)),
    *(
        (folder, ("data.check",))
        for folder in ("privacy", "measuring", "exploring", "spec", "comparison", "demo")
    ),
)
"""Said outright, whatever the layers: planning is data-independent and not trusted by what guards privacy,
releasing is post-processing."""


AUDITED = ("privacy", "errors", "arrays", "schema", "progress")
"""All that the privacy folder stands on: the promise is checked by reading it, and nothing else that acts."""


@cache
def parsed(text):
    """Return the tree of a file, which many tests read and none changes."""
    return ast.parse(text)


def within(module, folder):
    return module == folder or module.startswith(folder + ".")


@cache
def layer(module):
    """The place of a module in the pipeline: that of the longest name in LAYERS that holds it."""
    if module == "privacy":  # an empty package around the budget
        return layer("privacy.budget")
    found = [(len(n), place) for place, names in enumerate(LAYERS) for n in names if within(module, n)]
    assert found, f"{module} has no place in the pipeline: give it one in LAYERS"
    return max(found)[1]


@cache
def nodes(source):
    """All that a source text consists of."""
    return tuple(ast.walk(parsed(source)))


@cache
def imported(source, path):
    """What a source text imports, wherever the import stands: modules, and names in them or none."""
    targets = []
    for node in nodes(source):
        if isinstance(node, ast.Import):
            targets += [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            folder = ["querysmasher", *path.split("/")[:-1]]
            base = folder[: len(folder) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            targets += [(origin, alias.name) for alias in node.names]
    return tuple(targets)


def imports(source, path, modules):
    """The modules of this package that a source text imports, wherever in it the import stands."""
    for origin, name in imported(source, path):
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
    """Return the text of every file by its path, for a test to change."""
    return dict(read_sources())


@cache
def read_sources():
    """Read every file of the package, and after its own its stub: the public names."""
    sources = {p.relative_to(ROOT).with_suffix("").as_posix(): p.read_text() for p in ROOT.rglob("*.py")}
    sources["__init__"] += (ROOT / "__init__.pyi").read_text()
    return sources


def test_every_import_points_down_the_pipeline():
    sources = package_sources()
    assert {"errors", "planning/plan", "workload/families", "privacy/budget", "data/counting"} <= set(sources)
    assert wrong_arrows(sources) == []


def test_the_privacy_folder_stands_on_nothing_else():
    sources = package_sources()
    modules = set(map(module_name, sources))
    inside = {path: source for path, source in sources.items() if path.startswith("privacy/")}
    assert len(inside) > 10
    found = {target for path, source in inside.items() for target in imports(source, path, modules)}
    assert {target for target in found if not any(within(target, a) for a in AUDITED)} == set()


def names_asked(node):
    """The classes that an `isinstance` or a comparison of types asks for."""
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("isinstance", "issubclass"):
        asked = [node.args[1]]
    elif isinstance(node, ast.Compare) and ast.unparse(node.left).startswith("type("):
        asked = node.comparators
    else:
        asked = []
    return {leaf.id for own in asked for leaf in ast.walk(own) if isinstance(leaf, ast.Name)}


def noises_compared(node):
    """The names of noises that something is compared with."""
    if isinstance(node, ast.Compare):
        return {leaf.value for leaf in ast.walk(node) if isinstance(leaf, ast.Constant)} & set(DISTRIBUTIONS)
    return set()


def kinds_of(base):
    """A class and everything derived from it."""
    return [base, *(kind for own in base.__subclasses__() for kind in kinds_of(own))]


CLOSED = {
    base.__name__
    for kind in (
        *KINDS.values(),
        *STRATEGIES.values(),
        *SOURCES.values(),
        *FAMILIES.values(),
        *kinds_of(Family),
        *BUDGETS.values(),
        *ATTRIBUTES.values(),
    )
    for base in kind.__mro__
    if base.__module__.startswith("querysmasher.") and base not in (Family, Budget, Attribute)
}
"""The names of all kinds of attributes, budgets, families, factors, strategies and noises, and of what they
have in common."""


@cache
def kinds_asked(source):
    """The kinds that a source text asks for, in order; a kind compares itself with its own."""
    own = {node.name for node in nodes(source) if isinstance(node, ast.ClassDef)}
    asked = [names_asked(node) & CLOSED - own | noises_compared(node) for node in nodes(source)]
    return [name for names in asked for name in sorted(names)]


def asked_by_kind(sources):
    """Where the kind of an object is asked for, instead of asking the object itself."""
    return [f"{path}: {name}" for path, source in sorted(sources.items()) for name in kinds_asked(source)]


@pytest.mark.slow
def test_objects_are_asked_and_not_told_apart_by_their_kinds():
    sources = package_sources()
    assert asked_by_kind(sources) == [
        "planning/strategies/__init__: Matrix",  # square ones bring a centre
        "planning/strategies/coarse: Coarse",  # a strategy knows its own counterpart in integers
        "planning/strategies/dense: Merged",
        "planning/strategies/diagonal: Filter",
        "planning/strategies/mirrored: Mirrored",
        "planning/strategies/nodes: Tree",
        "statistics/ratios: Ordinal",  # refuses others, and names their kind
    ]
    sources = {path: "" if kinds_asked(text) else text for path, text in sources.items()}
    sources["release/release"] += (
        "\nif isinstance(x, Filter | DenseStrategy | AxisStrategy): pass\ny = z in ('rounded', 'gaussian')"
        "\nif type(x.y) is TreeStrategy or issubclass(x, Mirrored): pass"
        "\nif isinstance(x.family, Identity | Family): pass"
    )
    assert sorted(asked_by_kind(sources)) == [
        "release/release: AxisStrategy",
        "release/release: DenseStrategy",
        "release/release: Filter",
        "release/release: Identity",
        "release/release: Mirrored",
        "release/release: TreeStrategy",
        "release/release: gaussian",
        "release/release: rounded",
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "line", "arrow"),
    [
        ("planning/plan", "from querysmasher.data.counting import count", "planning.plan -> data.counting"),
        ("planning/plan", "import querysmasher.privacy.noise", "planning.plan -> privacy.noise"),
        ("workload/joint", "from querysmasher.privacy import noise", "workload.joint -> privacy.noise"),
        (
            "planning/solvers/optimum",
            "from ...release import answers",
            "planning.solvers.optimum -> release.answers",
        ),
        ("planning/plan", "def f():\n    from querysmasher import Release", "planning.plan -> querysmasher"),
        ("errors", "from .schema import Schema", "errors -> schema"),
        ("release/__init__", "from querysmasher.data import sources", "release -> data.sources"),
        ("release/__init__", "if TYPE_CHECKING:\n    import querysmasher.data", "release -> data"),
        ("privacy/measurement", "from ..planning import plan", "privacy.measurement -> planning.plan"),
        ("release/release", "from ..privacy.noise import x", "release.release -> privacy.noise"),
        ("data/counting", "from ..privacy.noise import x", "data.counting -> privacy.noise"),
        ("report/release_data", "from querysmasher.data import x", "report.release_data -> data"),
        ("measuring", "from querysmasher.data import check", "measuring -> data.check"),
        ("spec/spec", "import querysmasher.data.check", "spec.spec -> data.check"),
    ],
)
def test_a_planted_wrong_arrow_is_found(path, line, arrow):
    sources = package_sources()
    sources[path] += "\n" + line
    assert wrong_arrows(sources) == [arrow]


def test_only_the_command_and_the_public_name_know_what_shows_records():
    sources = package_sources()
    modules = set(map(module_name, sources))
    knowing = {
        module_name(path)
        for path, text in sources.items()
        if "data.check" in set(imports(text, path, modules))
    }
    assert knowing == {"", "cli.custody"}


def test_a_module_without_a_place_is_reported():
    sources = package_sources() | {"surprise": "from querysmasher.errors import FileError"}
    with pytest.raises(AssertionError, match="surprise has no place"):
        wrong_arrows(sources)

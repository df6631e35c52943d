"""The source files of the library, and what they import."""

import ast
from functools import cache
from pathlib import Path

import querysmasher

ROOT = Path(querysmasher.__file__).parent


@cache
def parsed(text):
    """Return the tree of a file, which many tests read and none changes."""
    return ast.parse(text)


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


def package_sources():
    """Return the text of every file by its path, for a test to change."""
    return dict(read_sources())


@cache
def read_sources():
    """Read every file of the package, and after its own its stub: the public names."""
    sources = {p.relative_to(ROOT).with_suffix("").as_posix(): p.read_text() for p in ROOT.rglob("*.py")}
    sources["__init__"] += (ROOT / "__init__.pyi").read_text()
    return sources

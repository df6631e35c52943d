"""The demonstration, also as `querysmasher demo`. Run it with `make demo`."""

from __future__ import annotations

import sys
from pathlib import Path

from querysmasher.cli.studio import studio
from querysmasher.demo import people_schema, run_demo
from querysmasher.studio.codebooks import table_of
from querysmasher.studio.document import Document

BEGINNING = """# The plan of the demo: all tables on up to three attributes.

[[workload]]
kind = "all_kway"
k = [1, 2, 3]

[budget]
epsilon = 1.0
delta = 1e-6
"""


def write_spec(path: Path) -> Path:
    """Write the plan of the demo as a spec file, unless there is one."""
    if not path.exists():
        document = Document(BEGINNING)
        document.add("schema", *map(table_of, people_schema()))
        path.write_text(document.text, encoding="utf-8")
    return path


def offer(folder: Path) -> None:
    """Offer to open Studio on the plan of the demo, if somebody is there to answer."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return
    if input("Open Studio on this plan, in the browser? [y/N] ").strip().lower() in ("y", "yes"):
        studio(write_spec(folder / "release.toml"), port=0, browser=True, as_json=False)


if __name__ == "__main__":
    run_demo()
    offer(Path("demo-output"))

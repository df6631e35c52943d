"""Arguments and options that several commands share."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from querysmasher.release.outputs import FORMATS

if TYPE_CHECKING:
    FormatName: TypeAlias = str
else:
    FormatName = enum.StrEnum("FormatName", {name: name for name in (*(f.name for f in FORMATS), "none")})

SpecPath = Annotated[Path, typer.Argument(help="The spec file.", show_default=True)]
ReleasePath = Annotated[Path, typer.Argument(help="A folder that `querysmasher release` wrote.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else on standard output.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what exists already.")]
DataPath = Annotated[Path | None, typer.Option(help="The table, instead of the one in the spec.")]
OutPath = Annotated[Path | None, typer.Option(help="The folder, instead of the one in the spec.")]
AnswerFormat = Annotated[
    FormatName | None, typer.Option(help="Format of the answers, instead of the one in the spec.")
]
Resume = Annotated[
    Path | None, typer.Option(help="Complete the draft of an unfinished run, without measuring again.")
]
Seed = Annotated[
    int | None,
    typer.Option(help="For tests only: a release with a seed protects nobody, and says so.", min=0),
]
ErrorShare = Annotated[
    float | None,
    typer.Option(
        help="Share of the budget that measures the errors of estimates, 0 to 0.5, instead of the spec's."
    ),
]

SPEC = Path("release.toml")
"""The default spec file."""


def examples(*lines: str) -> str:
    """Return examples as the end of a help text."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)

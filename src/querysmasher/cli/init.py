"""`querysmasher init`: writes a first spec file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from querysmasher.cli.guard import guarded
from querysmasher.cli.output import print_json, say
from querysmasher.cli.words import SPEC, AsJson, Force, SpecPath, examples
from querysmasher.endings import check_ending
from querysmasher.errors import SpecError


def add_to(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "init",
        short_help="Write a first spec file.",
        epilog=examples(
            "querysmasher init",
            "querysmasher init --example",
            "querysmasher init survey.toml --codebook codebook.csv",
        ),
    )(init)


@guarded
def init(
    spec: SpecPath = SPEC,
    codebook: Annotated[
        Path | None,
        typer.Option(help="Take the attributes from this CSV or JSON file with attribute, kind and values."),
    ] = None,
    example: Annotated[
        bool, typer.Option("--example", help="Also write people.csv, a table of fictitious people.")
    ] = False,
    force: Force = False,
    as_json: AsJson = False,
) -> None:
    """Write a commented, valid spec file for you to edit.

    The schema is never read from the data, because the values in a table reveal something about people.
    """
    from querysmasher.cli.folder import check_free
    from querysmasher.files import replacing
    from querysmasher.spec import read_codebook, template

    if codebook is not None and example:
        msg = "--example: its fictitious people do not fit your codebook; use only one of the two options"
        raise SpecError(msg)
    check_ending(spec, (".toml",))
    people = spec.parent / "people.csv"
    for path in [spec, people] if example else [spec]:
        check_free(path, force)
    name = None
    if codebook is not None:
        read_codebook(codebook)
        name = _relative(codebook, spec.parent)
    with replacing(spec) as temporary:
        temporary.write_text(template(name), encoding="utf-8")
    written = [str(spec)]
    if example:
        from querysmasher.cli.people import write_people

        write_people(people)
        written.append(str(people))
    if as_json:
        print_json({"written": written})
        return
    say(f"Written: {', '.join(written)}")
    where = "" if spec == SPEC else f" {spec}"
    say(f"Next: edit {spec}, then run `querysmasher plan{where}`. It needs no data.")


def _relative(path: Path, folder: Path) -> str:
    """Return the path relative to the folder, if it is inside."""
    path, folder = path.resolve(), folder.resolve()
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else path.as_posix()

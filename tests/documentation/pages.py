"""The pages of the documentation, the blocks of code in them, and a way to run these."""

import doctest
import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from querysmasher.cli.app import app
from tests.cli.conftest import Ran, planned_once

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", flags=re.MULTILINE | re.DOTALL)
NOISY = doctest.register_optionflag("NOISY")
"""Marks an example whose numbers differ each time; the words around them must be as printed."""


def pages():
    """All pages, but not the pieces that others are made of."""
    return sorted(p for p in DOCS.rglob("*.md") if p.parent != DOCS / "benchmarks")


def fenced(page):
    """The language and the text of every block, in order; what Sphinx runs itself is left out."""
    return [(language, text) for language, text in FENCE.findall(page) if not language.startswith("{")]


def blocks(page, language):
    """The blocks in one language."""
    return [text for own, text in fenced(page) if own == language]


def run_page(page):
    """Run all blocks of Python and all commands of a page, from top to bottom, in the folder we are in."""
    names = {"__name__": "__main__"}
    for number, (language, text) in enumerate(fenced(page)):
        if language == "console":
            run_commands(text)
        elif language == "python" and not text.startswith(">>> "):
            exec(compile(text, f"block {number}", "exec"), names)  # noqa: S102 - our own words
        elif language == "python":
            names = run_examples(text, names, f"block {number}")


def run_commands(text):
    """Run commands, which must be ours and must end well."""
    for line in text.splitlines():
        prompt, name, *arguments = shlex.split(line)
        assert (prompt, name) == ("$", "querysmasher"), f"cannot run {line!r}"
        with planned_once():
            ran = Ran(CliRunner().invoke(app, arguments))
        assert ran.code == 0, f"{line}\n{ran.err}"


def run_examples(text, names, title):
    """Run examples, which must print what is printed, and return all names after them."""
    test = doctest.DocTestParser().get_doctest(text, names, title, None, 0)
    said = []
    doctest.DocTestRunner(checker=Checker()).run(test, out=said.append, clear_globs=False)
    assert not said, "".join(said)
    return test.globs


class Checker(doctest.OutputChecker):
    """Compares outputs to the letter, or, where there is noise, all but the numbers and the spaces."""

    def check_output(self, want, got, optionflags):
        if optionflags & NOISY:
            want, got = words_of(want), words_of(got)
        return super().check_output(want, got, optionflags)


def words_of(text):
    """The words between numbers; which of two bounds a noisy number keeps is no word."""
    return " ".join(re.sub(r"(<=|>)?-?\d[\d,]*(\.\d+)?", " # ", text).split())

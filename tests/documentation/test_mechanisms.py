"""The page about mechanisms says of each what the registry says."""

from pathlib import Path

from querysmasher.planning.mechanisms import DEFAULT, MECHANISMS
from querysmasher.planning.solvers import METHODS

PAGE = (Path(__file__).parents[2] / "docs" / "mechanisms.md").read_text(encoding="utf-8")


def test_the_table_lists_every_mechanism_in_the_words_of_the_registry():
    for name, mechanism in MECHANISMS.items():
        default = " (default)" if name == DEFAULT else ""
        row = f'| `"{name}"`{default} | {mechanism.title} | {mechanism.measures} | {mechanism.suits} |'
        assert row in PAGE


def test_the_page_names_every_method():
    assert all(f"`{method}`" in PAGE for method in METHODS)

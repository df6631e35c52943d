"""The place of a release folder: what is there meanwhile, and what only looks free."""

import pytest

from querysmasher.comparison import compare
from querysmasher.spec import spec as spec_module


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_no_folder_is_refused_before_the_budget_is_spent(run, folder, monkeypatch, force):
    monkeypatch.setattr(spec_module, "measure", None)
    (folder / "out").symlink_to("nowhere")
    ran = run("release", *force, code=4)
    assert "a link to nothing" in ran.err
    assert (folder / "out").is_symlink()


def test_a_chart_that_cannot_be_drawn_is_refused_at_once(run, folder, monkeypatch):
    monkeypatch.setattr(compare, "compare", None)
    assert "expected a name that ends in" in run("compare", "--chart", "a.pdf", code=2).err

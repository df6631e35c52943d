"""The place of a release folder: what is there meanwhile, and what only looks free."""

from pathlib import Path

import pytest

from querysmasher import measuring
from querysmasher.comparison import compare


@pytest.mark.parametrize("force", [[], ["--force"]])
def test_what_is_no_folder_is_refused_before_the_budget_is_spent(run, folder, monkeypatch, force):
    monkeypatch.setattr(measuring, "measure", None)
    (folder / "out").symlink_to("nowhere")
    ran = run("release", *force, code=4)
    assert "a broken link" in ran.err
    assert (folder / "out").is_symlink()


def test_a_link_to_a_release_is_replaced_and_what_it_points_to_is_kept(run, folder):
    run("release", "--out", "elsewhere")
    (folder / "out").symlink_to("elsewhere")
    before = (folder / "elsewhere" / "release.qs").read_bytes()
    run("release", "--force")
    assert sorted(p.name for p in folder.iterdir()) == ["elsewhere", "out", "people.csv", "release.toml"]
    assert not (folder / "out").is_symlink()
    assert (folder / "elsewhere" / "release.qs").read_bytes() == before


def test_a_folder_that_cannot_be_moved_keeps_what_was_there(run, folder, monkeypatch):
    run("release", "--seed", "1")
    before = (folder / "out" / "release.qs").read_bytes()
    rename = Path.rename

    def failing(self, target):
        if "unfinished" in self.name and not self.name.startswith("."):
            raise PermissionError(13, "Permission denied")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    ran = run("release", "--force", code=4)
    assert ran.err.startswith("error: Permission denied. The table was measured, and the budget is spent.")
    assert (folder / "out" / "release.qs").read_bytes() == before
    assert len(list(folder.iterdir())) == 4


def test_a_chart_that_cannot_be_drawn_is_refused_at_once(run, folder, monkeypatch):
    monkeypatch.setattr(compare, "compare", None)
    assert "expected a name that ends in" in run("compare", "--chart", "a.gif", code=2).err

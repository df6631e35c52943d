"""Names are shown, and do nothing to the terminal."""

from tests.cli.conftest import SPEC


def test_control_signs_in_names_are_not_printed(run, folder):
    name = "s\\u001b]0;title\\u0007"
    (folder / "release.toml").write_text(SPEC.replace('"sex"', f'"{name}"'))
    (folder / "people.csv").write_text("")
    ran = run("plan")
    assert "s\ufffd]0;title\ufffd" in ran.out
    assert "\x1b" not in ran.out

"""No exact count comes out of the command: not on a terminal, not in a file, not in an error."""

import os
import pty
import re
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from querysmasher.privacy import measurement
from tests.spec.files import SEX

COUNTS = {("F", 0): 1_009, ("F", 1): 7_919, ("M", 0): 2_003, ("M", 1): 93_798}
TOTAL = sum(COUNTS.values())
EXACT = {*COUNTS.values(), TOTAL, 1_009 + 7_919, 2_003 + 93_798, 1_009 + 2_003, 7_919 + 93_798}
SPEC = f"""{SEX}[[schema]]
name = "home"
kind = "ordinal"
range = [0, 1]
[[workload]]
kind = "all_kway"
k = [0, 1, 2]
[budget]
cost = 1e-4
[data]
path = "people.parquet"
[output]
answers = "csv"
"""


@pytest.fixture
def planted(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sex = np.repeat([sex for sex, _ in COUNTS], list(COUNTS.values()))
    home = np.repeat([home for _, home in COUNTS], list(COUNTS.values()))
    pq.write_table(pa.table({"sex": sex, "home": home}), "people.parquet")
    (tmp_path / "release.toml").write_text(SPEC)
    return tmp_path


def numbers(text):
    """All whole numbers in a text, however they are written; digits inside digests are none."""
    text = re.sub(r"\b[0-9a-f]{64}\b", " ", text)
    return {round(float(n.replace(",", ""))) for n in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}


def test_the_search_finds_what_it_looks_for():
    assert 7_919 in numbers("x: 7,919 of 8") & numbers("x=7919.0") & EXACT
    assert numbers("a1009b" + "0" * 58) == set()


def test_outputs_and_files(run, planted):
    texts = [run("plan").out, run("plan", "--json").out, run("release", "--seed", "11").out]
    texts += [run("release", "--seed", "12", "--out", "b", "--json").out]
    texts += [run("answer", "out", "sex == 'F'", "home == 1 and sex == 'F'").out]
    texts += [run("answer", "out", "sex == 'F'", "--json").out]
    for name in ("out", "b"):
        texts += [(planted / name / file).read_text() for file in ("summary.json", "answers.csv")]
        for file in ("release.qs", "plan.qs"):
            with zipfile.ZipFile(planted / name / file) as archive:
                texts.append(archive.read("payload.json").decode())
                for member in archive.namelist():
                    if member.endswith(".npy"):
                        array = np.load(archive.open(member), allow_pickle=False)
                        texts.append(" ".join(map(str, array.ravel().tolist())))
    for text in texts:
        assert not numbers(text) & EXACT


def test_errors(run, planted, monkeypatch):
    (planted / "release.toml").write_text(SPEC + "[measure]\nmax_records = 5000\n")
    ran = run("release", code=5)
    assert "more records than max_records = 5,000" in ran.err
    assert not numbers(ran.err) & EXACT

    def failing(plan, measured, counts, *_):
        raise ValueError(f"the counts are {counts.tolist()} of {TOTAL}")

    monkeypatch.setattr(measurement, "exact_answers", failing)
    (planted / "release.toml").write_text(SPEC)
    for arguments in (["release"], ["release", "--json"]):
        ran = run(*arguments, code=1)
        assert "ValueError at test_privacy.py" in ran.err or "ValueError at measurement.py" in ran.err
        assert "withheld" in ran.err
        assert not numbers(ran.err + ran.out) & EXACT
    assert sorted(p.name for p in planted.iterdir()) == ["people.parquet", "release.toml"]


@pytest.mark.slow
def test_progress_on_a_real_terminal(planted):
    """Bars are drawn, and do not count records."""
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "querysmasher", "release", "--seed", "13"],
        stdout=subprocess.PIPE,
        stderr=terminal,
        cwd=planted,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120"},
    )
    os.close(terminal)
    drawn = b""
    try:
        while part := os.read(controller, 4096):
            drawn += part
    except OSError:  # how Linux says that the other end is closed
        pass
    finally:
        os.close(controller)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", drawn.decode(errors="replace"))
    for word in ("Planning", "Counting", "Measuring", "Saving", "Writing"):
        assert word in text
    assert not {"Solving", "Choosing"} & set(text.split()), "a plan has one bar"
    assert not numbers(text + out.decode()) & EXACT

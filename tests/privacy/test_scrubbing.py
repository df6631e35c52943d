"""Tracebacks that show local variables show no record: while a table is opened, and while it is measured."""

import importlib
import os
import subprocess
import sys
import textwrap
import traceback
from functools import partial

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from rich.console import Console
from rich.traceback import Traceback

import querysmasher as qs
from querysmasher.data import counting
from querysmasher.data import sources as table_module
from querysmasher.demo import true_answers
from querysmasher.errors import DataError
from querysmasher.privacy.scrubbing import scrubbed
from querysmasher.release.reconstruction import MemoryStore
from querysmasher.spec import read_spec
from tests.builders import PRIVATE, plan_uniform
from tests.spec.files import SMALL

MEASURE = importlib.import_module("querysmasher.measuring")
SCHEMA = qs.Schema.of(a=4, b=3)
ALL = qs.marginals(SCHEMA, [1, 2])
PLAN = plan_uniform(ALL, qs.PrivacyCost(1.0))
WITHOUT = {"a": [0, 1, 2, 3], "name": [PRIVATE] * 4}
"""A table that cannot be opened: it has no column b."""
UNFIT = {"a": [0, 1, 2, 3], "b": ["0", "1", "2", PRIVATE]}
"""A table that is opened, and found not to fit when it is read."""
WHOLE = {"a": [0, 1, 2, 3], "b": [0, 1, 2, 2], "name": [PRIVATE] * 4}


def relation(columns):
    connection = duckdb.connect()
    connection.register("people", pa.table(columns))
    return connection.table("people")


def csv(columns, folder):
    pd.DataFrame(columns).to_csv(folder / "people.csv", index=False)
    return folder / "people.csv"


def parquet(columns, folder):
    pd.DataFrame(columns).to_parquet(folder / "people.parquet")
    return str(folder / "people.parquet")


ENGINES = {
    "pandas": lambda columns, _: pd.DataFrame(columns),
    "polars": lambda columns, _: pl.DataFrame(columns),
    "lazy polars": lambda columns, _: pl.DataFrame(columns).lazy(),
    "arrow": lambda columns, _: pa.table(columns),
    "duckdb": lambda columns, _: relation(columns),
    "csv": csv,
    "parquet": parquet,
}


def told(error):
    """What reporters of errors print, with local variables."""
    plain = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    console = Console(record=True, width=400, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(
        Traceback.from_exception(
            type(error), error, error.__traceback__, show_locals=True, locals_max_string=None
        )
    )
    return plain + console.export_text()


def frames(error):
    step = error.__traceback__
    while step is not None:
        yield step.tb_frame
        step = step.tb_next


def check(error):
    """No record in what is printed, nor in the variables of any frame of ours."""
    assert PRIVATE not in told(error)
    for frame in frames(error):
        if "querysmasher" in frame.f_code.co_filename:
            for name, value in frame.f_locals.items():
                assert PRIVATE not in repr(value), (frame, name)
                tables = pd.DataFrame | pl.DataFrame | pl.LazyFrame | pa.Table | duckdb.DuckDBPyRelation
                assert not isinstance(value, tables), (frame, name)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("columns", ["WITHOUT", "UNFIT"])
def test_no_record_is_shown_when_a_table_is_refused(engine, columns, tmp_path):
    with pytest.raises(DataError) as caught:
        qs.measure(PLAN, ENGINES[engine](globals()[columns], tmp_path))
    assert len(list(frames(caught.value))) > 2, "there is a way to look along"
    check(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("read", [partial(qs.check, SCHEMA), partial(true_answers, ALL)])
def test_nor_where_a_custodian_looks_for_what_does_not_fit(engine, read, tmp_path, monkeypatch):
    """What `check` returns shows records, but only to whoever prints it: an error of its own does not."""

    def fail(*_):
        raise DataError("planted")

    monkeypatch.setattr(counting.Tally, "add", fail)
    monkeypatch.setattr("querysmasher.data.check._joined", fail)
    with pytest.raises(DataError, match="planted") as caught:
        read(ENGINES[engine](WHOLE, tmp_path))
    assert len(list(frames(caught.value))) > 2, "there is a way to look along"
    check(caught.value)


def test_no_record_of_a_spark_frame_is_shown(spark):
    with pytest.raises(DataError) as caught:
        qs.measure(PLAN, spark.createDataFrame(pd.DataFrame(WITHOUT)))
    check(caught.value)


def test_the_search_finds_records_that_are_shown():
    def shows(data):
        raise DataError("refused")

    with pytest.raises(DataError) as caught:
        shows(pd.DataFrame(WITHOUT))
    assert PRIVATE in told(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("error", [KeyboardInterrupt(), SystemExit(1), DataError("data: no"), MemoryError()])
@pytest.mark.parametrize(
    ("module", "name"),
    [(table_module, "OPENERS"), (counting.Tally, "add"), (MemoryStore, "put")],
    ids=["opening", "counting", "storing"],
)
def test_what_an_error_was_raised_from_is_not_shown_either(module, name, error, monkeypatch):
    def failing(*arguments):
        kept = [PRIVATE]
        try:
            int(kept[0])
        except ValueError:
            raise type(error)(*error.args)  # noqa: B904 - as foreign libraries do

    monkeypatch.setattr(module, name, {"": failing} if name == "OPENERS" else failing)
    with pytest.raises(type(error)) as caught:
        qs.measure(PLAN, pd.DataFrame(WHOLE))
    check(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


@pytest.mark.parametrize("error", [ValueError, RuntimeError, KeyError])
def test_a_foreign_error_while_opening_is_withheld(error, monkeypatch):
    def failing(*_):
        raise error(PRIVATE)

    monkeypatch.setattr(table_module, "OPENERS", {"": failing})
    with pytest.raises(DataError, match=error.__name__) as caught:
        qs.measure(PLAN, pd.DataFrame(WHOLE))
    check(caught.value)


def test_the_error_that_was_being_handled_when_measuring_began_is_kept():
    def outer():
        mine = "a local of the caller"
        raise LookupError(mine)

    def handling():
        try:
            outer()
        except LookupError:
            qs.measure(PLAN, pd.DataFrame(WITHOUT))

    with pytest.raises(DataError) as caught:
        handling()
    before = caught.value.__context__
    assert isinstance(before, LookupError)
    assert "a local of the caller" in told(before), "frames that are not ours are left alone"


def test_error_groups_and_causes_are_scrubbed():
    def inner():
        kept = PRIVATE
        raise ValueError(len(kept))

    @scrubbed
    def failing(data):
        errors = []
        for _ in range(2):
            try:
                inner()
            except ValueError as error:
                errors.append(error)
        raise ExceptionGroup("several", errors)

    with pytest.raises(ExceptionGroup) as caught:
        failing(PRIVATE)
    assert PRIVATE not in told(caught.value)


def test_a_scrubbed_function_is_called_as_before():
    @scrubbed
    def double(number: int, *, times: int = 2) -> int:
        """Double."""
        return number * times

    assert double(2, times=3) == 6
    assert double.__name__ == "double"
    assert double.__doc__ == "Double."
    with pytest.raises(TypeError, match="positional"):
        double(1, 2)


def test_a_database_opened_by_a_spec(tmp_path):
    (tmp_path / "release.toml").write_text(SMALL)
    read = read_spec(tmp_path / "release.toml")
    planned = read.plan()
    with pytest.raises(DataError) as caught:
        read.measure(planned, relation(WITHOUT))
    check(caught.value)


@pytest.mark.slow
def test_pytest_with_locals_prints_no_record(tmp_path):
    (tmp_path / "test_it.py").write_text(
        textwrap.dedent("""
        import pandas as pd
        import querysmasher as qs

        def table():
            return pd.DataFrame({"a": [0, 1], "name": ["Zebra" + str(77_123)] * 2})

        def test_it():
            schema = qs.Schema.of(a=4, b=3)
            plan = qs.plan(qs.marginals(schema, 1), qs.PrivacyCost(1.0), centering="uniform")
            qs.measure(plan, table())
        """)
    )
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--showlocals", "--tb=long", "-p", "no:cacheprovider", "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    assert "no column 'b'" in ran.stdout
    assert PRIVATE not in ran.stdout + ran.stderr

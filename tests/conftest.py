"""What all tests share: reproducible Hypothesis, one Spark, one browser, and a way to say what is refused."""

import atexit
import gc
import os
import shutil
import sys
from contextlib import ExitStack, contextmanager, suppress
from importlib import import_module
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import is_hypothesis_test, settings

from querysmasher.errors import QuerySmasherError
from querysmasher.planning.limits import limited
from tests import profiles  # noqa: F401 - which makes them known
from tests.report.browser import Browser, find_browser

settings.load_profile("fixed")


@pytest.fixture
def refuses():
    """A context that must raise exactly this error of ours, which must also be that builtin one."""

    @contextmanager
    def context(error, builtin, *words):
        with pytest.raises(QuerySmasherError) as caught:
            yield
        assert type(caught.value) is error
        assert isinstance(caught.value, builtin)
        for word in words:
            assert word in str(caught.value)

    return context


@pytest.fixture
def limit_planning():
    """Put other limits of planning in force for the rest of a test."""
    with ExitStack() as stack:
        yield lambda **changes: stack.enter_context(limited(**changes))


@pytest.fixture
def unmeasured(monkeypatch):
    """Comparisons plan with each mechanism once, and not again under a tracer to measure its memory."""
    monkeypatch.setattr("querysmasher.comparison.compare.MEASURED_SECONDS", 0)


@pytest.fixture
def rehearsed_once(monkeypatch):
    """Errors of estimates are the mean of one rehearsal, not of ten: where they are written and compared."""
    monkeypatch.setattr("querysmasher.estimate.estimate_errors.REHEARSALS", 1)


QUICK_START = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""How Java runs: on small tables, compiling well and checking what is loaded take longer than the work."""


@pytest.fixture
def spark(spark_session):
    """A real Spark; no garbage is collected meanwhile, which could break into its conversation with Java."""
    gc.disable()
    yield spark_session
    gc.enable()


@pytest.fixture(scope="session")
def spark_session():
    """A real Spark of two threads."""
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java, and there is none here")
    sql = pytest.importorskip("pyspark.sql")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers need this library too
    session = (
        sql.SparkSession.builder.master("local[2]")
        .appName("querysmasher-tests")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .config("spark.python.daemon.module", "tests.spark_daemon")
        .config("spark.executorEnv.PYTHONPATH", str(Path(__file__).parents[1]))
        .config("spark.driver.extraJavaOptions", QUICK_START)
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory):
    """A real Chromium, which opens one page after the other."""
    executable = find_browser()
    if executable is None:
        pytest.skip("no Chromium or Chrome on this machine")
    opened = Browser(executable, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


TOGETHER = {
    "spark": ["spark"],
    "pages": [  # which need a browser, or what draws charts: the first takes four seconds
        "tests/report/",
        "documentation/test_site.py",
        "test_examples.py::test_every_example_runs[start/",
        "howto/verify.md",
        "README.md",
        "documentation/test_reference.py",  # plans the same spec as the next one and the quick start
        "test_the_tour_of_the_help_runs",
        "cli/test_reviewing.py",
        "comparison/test_compare.py",
        "release/test_verify_files.py",
        "_page",
        "chart",
        "come_back_from_files",
        "do_not_describe_rounded_estimates",
        "keep_dates_and_stand_ins",
        "who_publishes_what_and_when",
    ],
    "processes": [  # forks of one process
        "cli/test_custody.py",
        "cli/test_start.py",
    ],
    "mechanisms": ["planning/test_mechanisms.py"],  # which share plans
    "least": ["objectives/test_least.py"],
    "sources": [  # which share parsed files
        "tests/test_layers.py",
        "tests/test_imports.py",
        "tests/test_tests.py",
    ],
}
"""What the names of tests have in common that are run by one process, one after the other."""

LATEST = 10
"""How many of the units that a process was given may have tests to do: it gets one more if two are left."""

SLOW_FIXTURES = {"spark", "browser", "processes"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep what needs Spark, a browser or the same plans in one process, so that none is made twice."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return next((name for name, words in TOGETHER.items() if any(w in nodeid for w in words)), nodeid)

        def _pending_of(self, workload):
            """Look at the units given last only: a process works in order, and there are thousands."""
            return super()._pending_of(dict(islice(reversed(workload.items()), LATEST)))

    return Together(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Look for garbage only once the tests are read, and only among what is made from then on."""
    gc.disable()
    if getattr(session.config, "workerinput", {}).get("workerid") == "gw1":
        read_from_the_end()
    try:
        return (yield)
    finally:
        gc.freeze()
        atexit.register(gc.unfreeze)  # libraries complain about what is left at the end
        gc.set_threshold(10_000, 20, 20)
        gc.enable()


def read_from_the_end():
    """Import the last test first: two processes on a fresh clone then compile half of them each."""
    for path in sorted(Path(__file__).parent.rglob("test_*.py"), reverse=True):
        with suppress(Exception):  # whatever is wrong with a test is reported when it is collected
            import_module(".".join(path.relative_to(Path(__file__).parents[1]).with_suffix("").parts))


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(config, items):
    """Mark whatever starts a Spark, a browser or a process as slow.

    In the quick profile no test draws more examples than the profile says, also where a test asks for more.
    """
    quick = config.getoption("--hypothesis-profile") == "quick"
    for item in items:
        if "spark" in item.nodeid or SLOW_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
        if quick and is_hypothesis_test(getattr(item, "function", None)):
            few_examples(item.function, settings.default)


def few_examples(test, profile):
    """Hold a test to the number of examples of a profile."""
    asked = getattr(test, "_hypothesis_internal_use_settings", None) or profile
    fewer = min(asked.max_examples, profile.max_examples)
    test._hypothesis_internal_use_settings = settings(asked, max_examples=fewer)

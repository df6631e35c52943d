"""The processes that plan: they answer, report, stop when they are cancelled, and cannot take all memory."""

import asyncio
import json
import os
import signal

import pytest

from querysmasher.spec import read_spec
from querysmasher.studio.worker import DIED, Worker
from tests.spec.files import SMALL
from tests.studio.conftest import MANY

pytestmark = pytest.mark.slow

LARGE = """
schema = [{name = "a", kind = "ordinal", range = [0, 65]}, {name = "b", kind = "ordinal", range = [0, 65]}]
workload = [{kind = "random_queries", attributes = ["a", "b"], count = 20000}]
budget = {rho = 0.5}
"""
"""What takes a gigabyte or more."""


def finish(coroutine):
    return asyncio.run(asyncio.wait_for(coroutine, 120))


async def begun(worker, path):
    """Begin a long plan, and return the job and what it says once it says something."""
    said, heard = [], asyncio.Event()
    job = asyncio.create_task(
        worker.ask("plan", lambda text: (said.append(text), heard.set()), path=path, text=MANY)
    )
    await heard.wait()
    return job, said


def test_it_reads_and_plans_as_the_command_does(tmp_path):
    async def ask():
        worker = Worker()
        try:
            path = str(tmp_path / "release.toml")
            return [await worker.ask(task, path=path, text=SMALL) for task in ("read", "plan")]
        finally:
            worker.stop()

    known, planned = finish(ask())
    assert [a["name"] for a in known["attributes"]] == ["sex", "age", "hour", "income"]
    spec = read_spec(tmp_path / "release.toml", SMALL)
    assert planned["rmse"] == f"{spec.plan().rmse:.3g}"
    json.dumps([known, planned])


def test_errors_are_answers(tmp_path):
    async def ask():
        worker = Worker()
        try:
            path = str(tmp_path / "release.toml")
            wrong = await worker.ask("read", path=path, text=SMALL.replace("rho = 0.5", "rho = -1"))
            bug = await worker.ask("read", path=path, text=None)
            return wrong, bug, await worker.ask("read", path=path, text=SMALL), worker.process.pid
        finally:
            worker.stop()

    wrong, bug, right, _ = finish(ask())
    assert wrong["problems"] == [["budget.rho", "expected a positive number, got -1"]]
    assert "there is no file" in bug["error"]
    assert "error" not in right


def test_cancelling_ends_the_process_and_another_follows(tmp_path):
    async def ask():
        worker, path = Worker(), str(tmp_path / "release.toml")
        try:
            job, said = await begun(worker, path)
            first = worker.process.pid
            job.cancel()
            with pytest.raises(asyncio.CancelledError):
                await job
            with pytest.raises(ProcessLookupError):
                os.kill(first, 0)
            answer = await worker.ask("plan", path=path, text=SMALL)
            return answer, said, worker.process.pid != first
        finally:
            worker.stop()

    answer, said, is_other = finish(ask())
    assert "rmse" in answer
    assert said[0].startswith("Planning")
    assert is_other


def test_only_one_plans_at_a_time(tmp_path):
    async def ask():
        worker = Worker()
        try:
            path = str(tmp_path / "release.toml")
            jobs = [worker.ask("plan", path=path, text=SMALL) for _ in range(3)]
            return [answer["rmse"] for answer in await asyncio.gather(*jobs)]
        finally:
            worker.stop()

    assert len(set(finish(ask()))) == 1


def test_memory_is_bounded(tmp_path):
    async def ask():
        worker = Worker(memory=400_000_000)
        try:
            path = str(tmp_path / "release.toml")
            much = await worker.ask("plan", path=path, text=LARGE)
            return much, await worker.ask("read", path=path, text=SMALL)
        finally:
            worker.stop()

    much, after = finish(ask())
    assert much["error"].startswith("this takes more memory than Studio may use")
    assert "error" not in after


def test_a_killed_process_is_an_error_and_not_the_end(tmp_path):
    async def ask():
        worker, path = Worker(), str(tmp_path / "release.toml")
        try:
            job, _ = await begun(worker, path)
            os.kill(worker.process.pid, signal.SIGKILL)
            return await job, await worker.ask("read", path=path, text=SMALL)
        finally:
            worker.stop()

    died, after = finish(ask())
    assert died["error"] == DIED
    assert "error" not in after


def test_a_process_that_rests_ends_and_another_follows(tmp_path):
    async def ask():
        worker = Worker(idle=0.05)
        try:
            path = str(tmp_path / "release.toml")
            await worker.ask("read", path=path, text=SMALL)
            first = worker.process
            await asyncio.sleep(0.5)
            return first, worker.process, await worker.ask("read", path=path, text=SMALL)
        finally:
            worker.stop()

    first, rested, answer = finish(ask())
    assert first is not None
    assert rested is None
    assert "error" not in answer

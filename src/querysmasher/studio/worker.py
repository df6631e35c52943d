"""Processes that read specs and plan: one task at a time, with bounded memory, ended by cancelling.

The server itself loads nothing of the library: it stays small, and nothing that a task does can stop it. A
process forks from one that has loaded the library, so that a new one is there in milliseconds.
"""

from __future__ import annotations

import asyncio
import gc
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from importlib import import_module
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

TASKS = "querysmasher.studio.tasks"

WARM = (TASKS, "scipy.special")
"""What every process has loaded before it forks."""

LEAST_MEMORY = 2 << 30
"""Bytes that a process may take, beyond what the library takes, on a small machine."""

PATIENCE = 0.1
"""Seconds between two messages about progress."""

GARBAGE = 100_000
"""Number of objects made until a process looks for garbage: more often, thousands of tables take longer."""

IDLE = 60.0
"""Seconds after which a process that has nothing to do ends; the next one forks when it is needed."""

DATE = "$date"
"""The key of a date in an answer, which JSON does not have."""

DIED = "the process ended without an answer; perhaps it took too much memory"


def ample_memory() -> int:
    """Return half the memory of this machine in bytes."""
    with suppress(AttributeError, ValueError, OSError):
        return max(LEAST_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    return LEAST_MEMORY


class Worker:
    """One process at a time. `ask` waits for its answer; cancelling `ask` ends the process."""

    def __init__(self, memory: int | None = None, idle: float = IDLE) -> None:
        """Bound the memory of the process in bytes, by default by half that of the machine; and its rest."""
        self._memory = ample_memory() if memory is None else memory
        self._context = multiprocessing.get_context("forkserver")  # pipes are awaited on such systems only
        self._context.set_forkserver_preload(list(WARM))
        self.process: BaseProcess | None = None
        self._connection: Connection | None = None
        self._lock, self._idle = asyncio.Lock(), idle
        self._ending: asyncio.TimerHandle | None = None

    @property
    def is_free(self) -> bool:
        """Whether it has nothing to do."""
        return not self._lock.locked()

    async def ask(
        self, task: str, said: Callable[[str], None] = lambda _: None, **arguments: Any
    ) -> dict[str, Any]:
        """Return what a function of `tasks` answers, or its `error`; pass on what it says meanwhile."""
        async with self._lock:
            if self._ending is not None:
                self._ending.cancel()
            try:
                connection = self._connection
                if connection is None:
                    connection = await asyncio.to_thread(self._start)
                connection.send_bytes(json.dumps([task, arguments]).encode())
                while True:
                    await _readable(connection)
                    answer = json.loads(connection.recv_bytes(), object_hook=_with_dates)
                    if "progress" not in answer:
                        return dict(answer)
                    said(answer["progress"])
            except (EOFError, OSError):
                self.stop()
                return {"error": DIED, "problems": []}
            except BaseException:  # cancelled
                self.stop()
                raise
            finally:
                self._ending = asyncio.get_running_loop().call_later(self._idle, self.stop)

    def _start(self) -> Connection:
        """Start the process, and return the connection to it."""
        ours, theirs = self._context.Pipe()
        self.process = self._context.Process(target=serve, args=(theirs, self._memory), daemon=True)
        self.process.start()
        theirs.close()
        self._connection = ours
        return ours

    def stop(self) -> None:
        """End the process, whatever it does."""
        if self.process is not None and self._connection is not None:
            self._connection.close()
            self.process.kill()
            self.process.join()
        self.process = self._connection = None


async def _readable(connection: Connection) -> None:
    """Wait until there is something to read."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    loop.add_reader(connection.fileno(), done.set)
    try:
        await done.wait()
    finally:
        loop.remove_reader(connection.fileno())


def _with_dates(data: dict[str, Any]) -> Any:
    """Return a date for what stands for one."""
    return date.fromisoformat(data[DATE]) if DATE in data else data


def serve(connection: Connection, memory: int) -> None:
    """Answer one task after the other, until nobody is there to ask."""
    gc.freeze()  # a search for garbage would copy what the processes share
    gc.set_threshold(GARBAGE)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server decides when to end
    tasks = import_module(TASKS)
    import_module("querysmasher.planning.solvers").MEMORY.append({})  # most changes leave most blocks alike
    _bound(memory)
    latest = 0.0

    def say(text: str) -> None:
        nonlocal latest
        if time.monotonic() - latest > PATIENCE:
            latest = time.monotonic()
            connection.send_bytes(json.dumps({"progress": text}).encode())

    with suppress(EOFError, OSError):
        while True:
            task, arguments = json.loads(connection.recv_bytes())
            answer = tasks.perform(task, arguments, say)
            connection.send_bytes(json.dumps(answer, default=lambda day: {DATE: str(day)}).encode())


def _bound(memory: int) -> None:
    """Refuse this process more memory than it has now and `memory` bytes, where the system can."""
    with suppress(ImportError, OSError, ValueError):
        import resource  # noqa: PLC0415 - not on every system

        taken = 0
        with suppress(OSError), open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            taken = int(file.read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + memory, taken + memory))

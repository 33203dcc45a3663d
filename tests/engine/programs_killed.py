"""Random programs on a real store: `python -m tests.engine.programs_killed --programs 2000 --seed 1 --store sqlite`.

A file or schema at a time gets some programs, which have children, deep chains of callbacks and much else. A worker process
carries them and is killed with -9 at random moments; meanwhile people send messages, pause, resume and cancel. In the end
every run has ended, none has diverged from its journal on the way, each life saw what the lives before it had seen, no call has
two outcomes, and below a run that was cancelled nothing is left.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import logging
import os
import random
import secrets
import signal
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from tests.chaos.server import Server
from tests.engine import schedules
from tests.engine.programs import program
from tests.postgres import NEVER_FLUSH

import holdfast

TOGETHER = 20  # programs in one store
ENDED = {"completed", "failed", "cancelled"}
PATIENCE_S = 60.0


class Written(list[str]):
    """What a life sees, as lines of a file: the process may be killed at any moment."""

    file = -1
    number = itertools.count()

    def __init__(self) -> None:
        super().__init__()
        self._name = f"{os.getpid()}.{next(self.number)}"
        self.append("begins")

    def append(self, saw: str) -> None:
        line = {"run": holdfast.this_run().id, "life": self._name, "saw": saw}
        os.write(self.file, json.dumps(line).encode() + b"\n")  # one write: lines of two processes do not mix


def _fork(main: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run it in a process of its own; returns its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        asyncio.run(main())
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


class Diverged(logging.Handler):
    """Writes down that a run did not fit its journal: it is paused then, and a cancel would hide it."""

    def emit(self, record: logging.LogRecord) -> None:
        if "NondeterminismError" in (told := record.getMessage()):
            os.write(Written.file, json.dumps({"diverged": told}).encode() + b"\n")


async def _carry(url: str) -> None:
    logging.getLogger("holdfast").addHandler(Diverged())
    schedules.new_life, schedules.longest_s = Written, 0.03
    schedules.noise.seed()
    async with holdfast.open(url, agents=[program]):
        await asyncio.Event().wait()


async def _people(url: str, seed: int, span_s: float) -> None:
    """Messages to all; some are paused and go on, some are cancelled, once or twice."""
    dice = random.Random(seed)
    async with holdfast.open(url) as hf, asyncio.TaskGroup() as group:

        async def one(n: int) -> None:
            run, fate, family = hf.get(f"p{n}"), dice.random(), dice.random() < 0.7
            waits = [dice.random() ** 2 * span_s for _ in range(4)]
            with suppress(holdfast.RunFinished):
                for mail in range(3):
                    await run.send("mail", f"m{mail}", key=str(mail))
                    await asyncio.sleep(waits[mail] / 4)
            with suppress(holdfast.RunFinished, holdfast.RunActive, holdfast.HoldfastError):
                if fate < 0.45:
                    await run.cancel(by="people", grace="50ms" if fate < 0.05 else "20s")
                    if fate > 0.38:
                        await run.cancel(by="people")
                elif fate < 0.7:
                    await run.pause(by="people", **({} if family else {"family": False}))
                    await asyncio.sleep(waits[0])
                    await run.resume(by="people", **({} if family else {"family": False}))

        for n in range(TOGETHER):
            group.create_task(one(n))


async def _start(url: str, seed: int) -> None:
    async with holdfast.open(url) as hf:
        for n in range(TOGETHER):
            await hf.start(program, seed * TOGETHER + n, id=f"p{n}")


async def _wait(url: str) -> None:
    """Until every run has ended. What is still paused is resumed: its resume may have come before its pause."""
    until = time.monotonic() + PATIENCE_S
    async with holdfast.open(url) as hf:
        while time.monotonic() < until:
            infos = await hf.runs(limit=10_000)
            if all(info.status in ENDED for info in infos):
                return
            for info in infos:
                if info.status == "paused" and (info.reason or "").startswith("paused by"):
                    with suppress(holdfast.HoldfastError):
                        await hf.get(info.id).resume(by="the end")
            await asyncio.sleep(0.1)


async def _verdict(url: str, seen: str) -> tuple[list[str], Counter[str]]:
    """What is wrong, and how many runs ended how."""
    wrong: list[str] = []
    lives: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for text in seen.splitlines():
        line = json.loads(text)
        if "diverged" in line:
            wrong.append(line["diverged"])
            continue
        lives[line["run"]].setdefault(line["life"], []).append(line["saw"])
    async with holdfast.open(url) as hf:
        infos = await hf.runs(limit=10_000)
        for info in infos:
            run = hf.get(info.id)
            if info.status not in ENDED:
                wrong.append(f"{info.id} is {info.status}, waits for {info.waits_for}: {info.reason}")
            closed: Counter[str] = Counter()
            async for event in run.events(follow=False):
                if event.kind in ("step.completed", "step.failed", "step.cancelled"):
                    closed[event.key or ""] += 1
                if event.kind == "foreign":
                    wrong.append(f"{info.id} is told of something foreign: {event.data}")
            wrong += [f"{info.id} has {count} outcomes of {key}" for key, count in closed.items() if count > 1]
            longest = max(lives[info.id].values(), key=len, default=[])
            for life, saw in lives[info.id].items():
                if saw != longest[: len(saw)]:
                    at = next(n for n, (a, b) in enumerate(zip(saw, longest, strict=False)) if a != b)
                    wrong.append(
                        f"{info.id}, life {life}: saw {saw[at]!r} where another saw {longest[at]!r} (line {at} of {len(saw)})"
                    )
    return wrong, Counter(info.status for info in infos)


async def _orphans(url: str) -> None:
    """Exit with 1 when a run that ended by a cancel has unfinished runs below it, at any moment."""
    async with holdfast.open(url) as hf:
        while True:
            rows = await hf.store.runs(limit=10_000)
            status = {row.id: row.status for row in rows}
            for row in rows:
                if row.parent_id and row.status not in ENDED and status.get(row.parent_id) == "cancelled":
                    # Rows are not of one moment: look again at both, the child last.
                    parent, child = await hf.store.run(row.parent_id), await hf.store.run(row.id)
                    if parent and child and parent.status == "cancelled" and child.status not in ENDED:
                        raise AssertionError(f"{child.id} is {child.status}, and its parent has been cancelled")
            await asyncio.sleep(0.02)


def _stop(pid: int, number: int = signal.SIGKILL) -> int:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _done(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    if os.waitstatus_to_exitcode(os.waitpid(_fork(main), 0)[1]):
        raise AssertionError("a process failed; see above")


def batch(url: str, seed: int, kills: int = 3) -> tuple[list[str], Counter[str]]:
    """One store full of programs, from start to verdict."""
    dice = random.Random(seed)
    with tempfile.TemporaryDirectory(prefix="holdfast-programs-") as folder:
        seen = Path(folder) / "seen"
        Written.file = os.open(seen, os.O_APPEND | os.O_WRONLY | os.O_CREAT)
        _done(lambda: _start(url, seed))
        watch, people = _fork(lambda: _orphans(url)), _fork(lambda: _people(url, seed, 1.0))
        for _ in range(kills):
            worker = _fork(lambda: _carry(url))
            time.sleep(0.15 + dice.random() * 0.8)
            _stop(worker)
        worker = _fork(lambda: _carry(url))
        failed = os.waitstatus_to_exitcode(os.waitpid(people, 0)[1])
        _done(lambda: _wait(url))
        _stop(worker, signal.SIGTERM)
        left = os.waitpid(watch, os.WNOHANG)
        if not left[0]:
            _stop(watch)
        wrong, ended = asyncio.run(_verdict(url, seen.read_text()))
        if failed:
            wrong.append("what people did failed; see above")
        if left[0]:
            wrong.append("a run outlived the cancel of its parent; see above")
        os.close(Written.file)
        return wrong, ended


def main() -> None:
    """Run batches until the number of programs is reached; exit with 1 if one broke."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    parser.add_argument("--store", choices=("sqlite", "postgres", "both"), default="both")
    given = parser.parse_args()
    broken = 0
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="holdfast-programs-")))
        kinds = ("sqlite", "postgres") if given.store == "both" else (given.store,)
        server = None
        if "postgres" in kinds:
            server = Server(folder / "cluster")
            server.create()
            server.start(NEVER_FLUSH)
            stack.callback(server.stop)
        for kind in kinds:
            total: Counter[str] = Counter()
            for number in range(-(-given.programs // TOGETHER)):
                seed = given.seed + number
                url = (
                    f"sqlite:{folder}/{seed}.db?durability=process" if server is None or kind == "sqlite"
                    else f"{server.url}?schema=p{seed}"
                )  # fmt: skip
                wrong, ended = batch(url, seed)
                total += ended
                broken += bool(wrong)
                for line in wrong[:10]:
                    print(f"{kind}, seed {seed}: {line}", flush=True)  # noqa: T201
            print(f"{kind}: {(number + 1) * TOGETHER} programs, runs: {dict(total)}", flush=True)  # noqa: T201
    print("broken" if broken else "all well")  # noqa: T201
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()

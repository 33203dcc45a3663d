"""A store with a run in every state, filled by real workers of which one is killed in the middle; and the server before it.

`python -m tests.page.scene FOLDER` makes it, prints where it is served and a token of ana, and serves until it is stopped.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast

HERE = Path(__file__).parent
HOLDFAST = Path(sys.executable).with_name("holdfast")
STARTED = (
    ("atlas", ["how sea otters hold on"], "otters-2026-07", {"desk": "nature"}),
    ("atlas", ["harbour seals"], "seals-2026-07", {"desk": "nature"}),
    ("onboard", ["noor"], "noor", {"team": "people"}),
    ("travel", ["ana"], "trip-ana", {"team": "people"}),
    ("seat", ["noor"], "seat-noor", {"team": "people"}),
    ("refund", [84.0], "refund-5521", {"tier": "eu"}),
    ("settle", ["4,200 EUR"], "payout-8841", {"desk": "treasury", "tier": "eu"}),
    ("survey", ["Lisbon"], "scan-lisbon", {"city": "lisbon"}),
    ("seek", ["lost keys"], "seek-keys", {}),
    ("tides", ["the log"], "tides-12", {"desk": "nature"}),
    ("briefing", ["news"], "brief-thursday", {"desk": "news"}),
    ("context", [628], "lisbon-tile-0117", {"city": "lisbon"}),
    ("janitor", [412], "cleanup-0716", {}),
    ("billing", [31], "invoice-20260716-0031", {"tier": "eu"}),
    ("reply", ["u4471", "Where is my parcel?"], "support-u4471-38", {"customer": "u4471"}),
    ("reply", ["u4471", "And now?"], "support-u4471-39", {"customer": "u4471"}),
    ("listener", ["news"], "shrimp-3", {"desk": "nature"}),
    ("listener", ["go"], "paused-1", {}),
)


@dataclass
class Scene:
    """A store, its workers and its server; all are processes of their own."""

    folder: Path
    url: str
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""
    tokens: dict[str, str] = field(default_factory=dict)

    @property
    def hold(self) -> Path:
        return self.folder / "hold"

    def run(self, *words: str) -> str:
        """Run a command to its end; what it printed."""
        done = subprocess.run(
            [HOLDFAST, *words], env=self._env(), cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def begin(self, name: str, *words: str) -> subprocess.Popen[bytes]:
        """Start a command that goes on; what it says is in a file of its name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([HOLDFAST, *words], env=self._env(), cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def _env(self) -> dict[str, str]:
        return {
            **os.environ,
            "HOLDFAST_URL": self.url,
            "SCENE_HOLD": str(self.hold),
            # Of this tree, whatever is installed.
            "PYTHONPATH": os.pathsep.join(map(str, (HERE.parents[1], HERE.parents[1] / "src"))),
        }

    def worker(self, name: str, file: str = "agents.py") -> subprocess.Popen[bytes]:
        return self.begin(name, "worker", str(HERE / file), "--name", name, "--quiet")

    def token(self, name: str, **options: Any) -> str:
        """Make a token in the store: `token("eve", scopes=["read"])`."""
        made: str = self.act(lambda hf: hf.create_token(name, **options))[1]
        self.tokens[name] = made
        return made

    def serve(self, port: int = 0, *words: str) -> subprocess.Popen[bytes]:
        """Start a server and wait until it says where it listens."""
        log = self.folder / "serve.log"
        log.unlink(missing_ok=True)
        process = self.begin("serve", "serve", "--port", str(port), *words)
        self.address = _until(lambda: re.search(r"http://[\d.]+:\d+", log.read_text()), log).group()
        return process

    def act(self, do: Callable[[holdfast.Client], Awaitable[Any]]) -> Any:
        """Do something from outside, in a thread of its own, because the browser's driver has a loop in this one."""

        async def acting() -> Any:
            async with holdfast.open(self.url) as hf:
                return await do(hf)

        with ThreadPoolExecutor(1) as other:
            return other.submit(lambda: asyncio.run(acting())).result(150)

    def stop(self) -> None:
        self.hold.unlink(missing_ok=True)
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in self.processes:
            with suppress(subprocess.TimeoutExpired):
                process.wait(15)
            if process.poll() is None:
                process.kill()
                process.wait()


def _until(find, log=None, seconds=60):
    """Wait for something to be there; a test that waits for an event that does not come says for what."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if found := find():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"nothing after {seconds} s{': ' + log.read_text()[-2000:] if log else ''}")


async def _status(hf: holdfast.Client, *wanted: tuple[str, str]) -> None:
    """Wait until runs stand as wanted; `status/waits_for`, the second part only if it matters."""
    for id, want in wanted:
        status, _, waits = want.partition("/")
        async with asyncio.timeout(60):
            while True:
                info = await hf.get(id).info()
                if info.status == status and (not waits or info.waits_for == waits):
                    break
                await asyncio.sleep(0.05)


async def served(hf: holdfast.Client, agent: str) -> None:
    """Wait until a worker has published an agent."""
    async with asyncio.timeout(60):
        while not any(each.name == agent and each.served for each in await hf.agents()):
            await asyncio.sleep(0.05)


async def _open(hf: holdfast.Client, id: str, number: int) -> None:
    """Wait until the worker of a run has told that so many bodies are in the middle."""
    async with asyncio.timeout(60):
        while len(await hf.get(id).open_calls()) < number:
            await asyncio.sleep(0.05)


async def _fill(scene: Scene, hf: holdfast.Client) -> None:
    scene.hold.touch()
    old = scene.worker("gull", "old_agents.py")
    await served(hf, "report")
    await hf.start("report", "q1", id="migrate-old-7", labels={"quarter": "q1"})
    await _status(hf, ("migrate-old-7", "waiting"))
    old.send_signal(signal.SIGTERM)
    await asyncio.to_thread(old.wait)
    await hf.get("migrate-old-7").send("go", "on")
    fox = scene.worker("fox")
    await served(hf, "atlas")
    for agent, args, id, labels in STARTED:
        await hf.acting_as("ana").start(agent, *args, id=id, labels=labels)
    await hf.acting_as("bo").start("briefing", "later", id="brief-friday", after="6h")
    await _status(
        hf, ("payout-8841", "running"), ("invoice-20260716-0031", "running"), ("noor", "waiting"),
        ("tides-12", "waiting/retry"), ("scan-lisbon", "waiting/person"), ("seek-keys", "waiting/person"),
        ("lisbon-tile-0117", "failed"), ("cleanup-0716", "completed"), ("support-u4471-39", "waiting/conversation"),
        ("shrimp-3", "waiting"), ("paused-1", "waiting"),
    )  # fmt: skip
    await _open(hf, "otters-2026-07", 3)  # so that the kill cuts a fan of which it is known what ran
    fox.kill()
    await asyncio.to_thread(fox.wait)
    scene.worker("heron")
    await _status(
        hf, ("payout-8841", "waiting/person"), ("invoice-20260716-0031", "running"), ("otters-2026-07", "running")
    )
    bo = holdfast.Actor("bo", groups=["it-admins"])
    (asked,) = await hf.approvals(run="noor")
    await hf.approve(asked, by=bo, note="Known her for years.")
    (asked,) = await hf.approvals(run="refund-5521")
    await hf.deny(asked, by=bo, note="The parcel arrived.")
    await hf.get("shrimp-3").cancel(by="bo", reason="no budget left for shrimp")
    await hf.get("paused-1").pause(by="bo", reason="until the new prices are in")
    await _status(hf, ("shrimp-3", "cancelled"), ("paused-1", "paused"), ("refund-5521", "completed"))


@contextmanager
def scene(folder: Path, url: str | None = None, port: int = 0):
    """Make the scene, serve it, and stop all of it in the end."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Scene(folder, url or f"sqlite:{folder / 'holdfast.db'}")
    try:
        made.token("ana", groups=["it-admins", "editors"])
        made.token("bo", groups=["it-admins"])
        made.token("eve", scopes=["read"])
        made.act(lambda hf: _fill(made, hf))
        made.serve(port)
        yield made
    finally:
        made.stop()


@contextmanager
def bare(folder: Path, prepare: Callable[[str], Awaitable[Any]] | None = None, serve: tuple[str, ...] = ()):
    """Serve an empty store, or one that `prepare(url)` has filled; ana has a token. `serve` are more words of the command."""
    folder.mkdir(parents=True, exist_ok=True)
    made = Scene(folder, f"sqlite:{folder / 'holdfast.db'}")
    try:
        if prepare is not None:
            with ThreadPoolExecutor(1) as other:
                other.submit(lambda: asyncio.run(prepare(made.url))).result(900)
        made.token("ana", groups=["editors"])
        made.serve(0, *serve)
        yield made
    finally:
        made.stop()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that what it started ends with it
    with scene(Path(sys.argv[1]), port=int(sys.argv[2]) if len(sys.argv) > 2 else 0) as made:
        print(made.address, made.tokens["ana"], flush=True)  # noqa: T201
        with suppress(KeyboardInterrupt):
            signal.pause()

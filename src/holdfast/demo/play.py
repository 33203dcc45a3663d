"""The demo itself: it starts the agent, kills it twice at bad moments, lets it end, and counts what was done.

When to kill is decided by what the store and the site say, not by the clock. What it claims at the end is read from
files that the killed processes wrote.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.table import Table

from holdfast.cli import prompts
from holdfast.cli.show import drawn
from holdfast.cli.view.console import console, glyphs, print_json
from holdfast.cli.view.draw import print_lines
from holdfast.cli.view.lines import line
from holdfast.cli.view.live import Watch
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge
from holdfast.client.family import account
from holdfast.demo.site import Site
from holdfast.errors import AlreadyDecided, BadArguments, HoldfastError, UnknownRun
from holdfast.words.durations import spoken
from holdfast.words.model import Event

RUN: Final = "otters"
TOPIC: Final = "sea otters"
_STAGE_LIMIT_S: Final = 30
_LOOK_S: Final = 0.02
_NULL: Final = subprocess.DEVNULL
_SUMMARIES_BEFORE_KILL: Final = 3


@dataclass(slots=True)
class Kill:
    """One kill: which process, and what was recorded at that moment."""

    process: int
    steps: int
    work_s: float
    why: str


@dataclass(slots=True)
class Play:
    """The demo's play: its acts, and all it has seen."""

    folder: Path
    site: Site
    hf: Client
    watch: Watch
    quiet: bool
    processes: list[int] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    recorded: list[Event] = field(default_factory=list)
    child: subprocess.Popen[bytes] | None = None
    approved: bool = False

    def say(self, text: str | Text = "", style: str = "") -> None:
        if not self.quiet:
            on = console()
            for each in [text] if isinstance(text, Text) else text.split("\n"):
                on.print(Text(each, style) if isinstance(each, str) else each, soft_wrap=True)
            on.file.flush()

    # One process

    def start(self) -> None:
        """A new process with the same command."""
        number = len(self.processes) + 1
        command = [sys.executable, "-m", "holdfast", "run", "research.py:research", TOPIC, "--id", RUN]
        env = os.environ | {"DEMO_SITE": self.site.url, "DEMO_LEDGER": str(self.folder / "ledger.jsonl")}
        env["HOLDFAST_URL"] = Edge(self.hf).url
        with (self.folder / f"process-{number}.log").open("wb") as log:
            self.child = subprocess.Popen(command, cwd=self.folder, env=env, stdin=_NULL, stdout=log, stderr=log)  # noqa: S603
        self.processes.append(self.child.pid)
        again = "starts" if number == 1 else "goes on with the same command"
        self.say(f"Process {self.child.pid} {again}", "bold")

    def kill(self, why: str) -> None:
        """Kill the process as the kernel would when memory is short: no warning, no clean-up."""
        assert self.child is not None
        self.child.send_signal(signal.SIGKILL)
        self.child.wait()
        steps = [event for event in self.recorded if event.kind == "step.completed"]
        work_s = sum(event.at - (event.data.get("began") or event.at) for event in steps) / 1000
        self.kills.append(Kill(self.child.pid, len(steps), work_s, why))
        self.say(f"  kill -9 {self.child.pid}: {why}\n", "bold red")

    async def until(self, done: Callable[[], bool], *, ends: bool = False) -> None:
        """Follow the run until something is so; a process that ends before that is a failure of the demo."""
        assert self.child is not None
        limit = time.monotonic() + _STAGE_LIMIT_S
        while True:
            ended = self.child.poll() is not None  # asked before the look: what it wrote is then seen
            await self._look()
            if done():
                return
            if ended and not ends:
                raise HoldfastError(f"process {self.child.pid} ended with {self.child.returncode}; see {self._log()}")
            if time.monotonic() > limit:
                raise HoldfastError(f"process {self.child.pid} takes longer than {_STAGE_LIMIT_S} s; see {self._log()}")
            await asyncio.sleep(_LOOK_S)

    async def _look(self) -> None:
        try:
            new = await self.watch.look()
        except UnknownRun:
            return  # the process has not come so far
        for event in new:
            self.recorded.append(event)
            if event.kind != "step.started":
                self.say(Text("  ").append_text(line(event, width=console().width - 4, run=False)))

    def _log(self) -> Path:
        return self.folder / f"process-{len(self.processes)}.log"

    async def decide(self) -> bool:
        """Ask the person at the terminal; without one, the demo itself approves. True when it was approved."""
        (question,) = self.watch.questions
        if not self.quiet and prompts.is_at_terminal():
            self.say("  The agent asks a person, and nothing of it needs to run meanwhile.\n", "bold")
            await prompts.decide(self.hf, question, None, asyncio.Event())
        with contextlib.suppress(AlreadyDecided):
            await self.hf.approve(question, by="the demo", note="nobody sits here")
        (decided,) = await self.hf.approvals(run=RUN, open=False)
        self.approved = decided.decision == "approved"
        self.say(f"  {decided.decision} by {decided.decided_by}", "bold green" if self.approved else "bold yellow")
        return self.approved

    def done(self, step: str) -> int:
        """Count the calls of a step that are recorded as completed."""
        return sum(event.kind == "step.completed" and event.data.get("name") == step for event in self.recorded)


def play(keep: str | None, *, as_json: bool) -> int:
    """The command; returns its exit code."""
    folder = _folder(keep)
    shutil.copy(Path(__file__).parent / "agent.py", folder / "research.py")
    return asyncio.run(_play(folder, as_json=as_json))


def _folder(keep: str | None) -> Path:
    if keep is None:
        return Path(tempfile.mkdtemp(prefix="holdfast-demo-"))
    folder = Path(keep).resolve()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise BadArguments(f"{keep!r} is not an empty folder; name one that is empty or does not exist")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


async def _play(folder: Path, *, as_json: bool) -> int:
    began = time.monotonic()
    site = Site(folder)
    with site.open():
        async with open_store(f"sqlite:{folder / 'holdfast.db'}") as hf:
            stage = Play(folder, site, hf, Watch(hf, RUN), quiet=as_json)
            try:
                await _act(stage)
            finally:
                if stage.child is not None and stage.child.poll() is None:
                    stage.child.kill()
                    stage.child.wait()
            claims = _claims(stage, time.monotonic() - began)
            if as_json:
                print_json(claims)
            else:
                await _tell(stage, claims)
    return 0 if claims["kept"] else 1


async def _act(stage: Play) -> None:
    """Three processes, two kills; two and one if the person says no."""
    site, pages = stage.site, len(stage.site.names)
    stage.say(f"An agent reads {pages} pages of a small site in parallel, asks a person, and publishes one report.")
    stage.say(f"It is killed on the way. Files: {stage.folder}\n")
    stage.start()
    await stage.until(lambda: stage.done("summarise") >= _SUMMARIES_BEFORE_KILL)
    done = stage.done("summarise")
    stage.kill(f"{done} of {pages} summaries are recorded, {pages - done} were in the middle")
    site.pages_held = False
    stage.start()
    await stage.until(lambda: bool(stage.watch.questions))
    if await stage.decide():
        await stage.until(site.published.is_set)
        stage.kill("the report was published, and the answer had not come back")
        site.publication_held = False
        stage.start()
    await stage.until(lambda: bool(stage.watch.rows) and stage.watch.root.status == "completed", ends=True)
    assert stage.child is not None
    await asyncio.to_thread(stage.child.wait, 10)
    stage.say()


# What it shows


def _claims(stage: Play, took_s: float) -> dict[str, Any]:
    """Count what was done, from the files that the agent's processes and the site wrote."""
    ledger = [json.loads(each) for each in (stage.folder / "ledger.jsonl").read_text("utf-8").splitlines()]
    bodies = Counter((each["step"], each["about"]) for each in ledger)
    published = stage.folder / "publications.jsonl"
    publications = published.read_text("utf-8").splitlines() if published.exists() else []
    recorded = Counter(event.data["name"] for event in stage.recorded if event.kind == "step.completed")
    finished_first = [event for event in stage.recorded if event.kind == "step.completed"][: stage.kills[0].steps]
    kept = {event.data.get("input", "") for event in finished_first}
    steps = [
        {"step": step, "about": about, "bodies": count, "kept_at_first_kill": any(about in each for each in kept)}
        for (step, about), count in bodies.items()
    ]
    repeated = [each for each in steps if each["kept_at_first_kill"] and each["bodies"] != 1]
    return {
        "folder": str(stage.folder),
        "run": RUN,
        "processes": stage.processes,
        "kills": [{"process": kill.process, "steps_recorded": kill.steps, "why": kill.why} for kill in stage.kills],
        "steps": steps,
        "recorded": dict(recorded),
        "from_scratch": {
            "steps": sum(kill.steps for kill in stage.kills),
            "seconds": round(sum(kill.work_s for kill in stage.kills), 2),
            "publications": len(stage.kills) if stage.approved else 0,
        },
        "publications": len(publications),
        "report": str(stage.folder / "report.md"),
        "seconds": round(took_s, 2),
        "approved": stage.approved,
        "kept": not repeated and len(publications) == bodies["publish", "report.md"] == stage.approved,
    }


async def _tell(stage: Play, claims: dict[str, Any]) -> None:
    on = console()
    stage.say("How often each body ran", "bold")
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_header=False)
    for each in claims["steps"]:
        count = each["bodies"]
        why = "in the middle at the first kill; it ran again" if count > 1 else ""
        if each["step"] == "publish":
            why = "in doubt after the second kill; its probe found it done"
        table.add_row(each["step"], each["about"], f"{count} time{'' if count == 1 else 's'}", Text(why, "dim"))
    on.print(table)
    scratch = claims["from_scratch"]
    stage.say()
    again = " and published the report a second time" if claims["approved"] else ""
    stage.say(
        f"Starting over after each kill would have repeated {scratch['steps']} finished steps "
        f"({spoken(scratch['seconds'])} of work){again}."
    )
    times = {0: "not written, as you said.", 1: f"written once: {claims['report']}"}
    times_told = times.get(claims["publications"], f"written {claims['publications']} times")
    stage.say(f"With Holdfast no finished step ran again, and the report was {times_told}")
    if not claims["kept"]:
        stage.say("This is not what was promised; please report it with the files of the folder.", "bold red")
    stage.say()
    stage.say(f"$ holdfast show {RUN}", "bold")
    print_lines(on, await drawn(stage.hf, await account(stage.hf, RUN), on.width, glyphs(on), None))
    stage.say(f"All this took {spoken(claims['seconds'])}. Agent, store and logs are in {stage.folder}; try next:")
    stage.say(f"  cd {stage.folder}")
    for words, why in (
        (f'holdfast run research.py:research "{TOPIC}" --id {RUN}', "it is finished: its result, at once"),
        (f"holdfast show {RUN} --events", "what is on record"),
    ):
        stage.say(Text(f"  {words:<60}", "bold").append(f"# {why}", "dim"))

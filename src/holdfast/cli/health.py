"""`holdfast doctor`: what the store is, what is in it, and what is wrong, with advice."""

from __future__ import annotations

import platform
import time
from typing import Any, Final

from rich.text import Text

from holdfast.cli.output import command, console, glyphs, print_json, version
from holdfast.cli.picture import clean, when
from holdfast.cli.reading import existing
from holdfast.cli.stuck import why_stuck
from holdfast.client import Client
from holdfast.durations import spoken
from holdfast.naming import size

_DURABILITY: Final = {
    2: "power: an acknowledged write survives a power cut",
    1: "process: the last writes may be lost in a power cut, not in a crash",
}
_LOOKED_AT: Final = 200  # runs of each state


async def doctor(url: str | None, *, as_json: bool) -> int:
    """The command; returns 0 when nothing was found, else 1."""
    async with existing(url) as hf:
        started = time.monotonic()
        facts = await hf.store.facts()
        agents, paused = (
            await hf.store.agents(),
            [(key.removeprefix("rate:"), until) for key, until in await hf.store.paused_rates()],
        )
        took_s = time.monotonic() - started
        problems = await _problems(hf, facts, url)
    durability = _DURABILITY.get(facts.get("pragmas", {}).get("synchronous"), "unknown")
    if as_json:
        print_json({
            "holdfast": version(), "python": platform.python_version(), "platform": platform.platform(),
            "durability": durability.partition(":")[0], "store": facts,
            "agents": [{"name": name, "version": own, "served": bool(served), "versions": sorted(filter(None, served))}
                       for name, (own, _, served) in agents.items()],
            "paused": [{"rate": rate, "until": until} for rate, until in paused], "problems": problems,
        })  # fmt: skip
    else:
        facts["paused"] = "; ".join(f"{rate} until {when(until)}" for rate, until in paused)
        _print(facts, agents, problems, durability, took_s)
    return 1 if problems else 0


def _print(
    facts: dict[str, Any], agents: dict[str, Any], problems: list[dict[str, str]], durability: str, took_s: float
) -> None:
    on = console()
    signs = glyphs(on)

    def fact(name: str, value: str) -> None:
        on.print(Text(f"  {name:<13}", "dim").append(value), soft_wrap=True)

    on.print()
    fact("Holdfast", f"{version()}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    fact("Store", f"{facts['url']} (SQLite {facts['sqlite']}, schema {facts['schema']})")
    fact("Durability", durability)
    fact("Size", f"{size(facts.get('file_bytes', 0))}, write-ahead log {size(facts.get('log_bytes', 0))}")
    counts = ", ".join(f"{count} {status}" for status, count in facts["runs"].items())
    fact("Runs", counts or "none")
    fact("Events", f"{facts['events']}, {facts['blobs']} large values, {facts['open_approvals']} open questions")
    codes = ", ".join(f"{count} with code {code}" for code, count in facts["code_versions"].items() if code)
    fact("Workers", f"{facts['workers']} registered" + (f" ({codes})" if codes else ""))
    live = ", ".join(name for name, (_, _, served) in agents.items() if served)
    idle = ", ".join(name for name, (_, _, served) in agents.items() if not served)
    fact("Agents", " ".join([f"served now: {live or 'none'}", *([f"(not now: {idle})"] if idle else [])]))
    if facts["paused"]:
        fact("Paused", f"{facts['paused']} (a provider said so; calls that share the rate wait)")
    fact("Integrity", f"{facts['integrity']} (all of the file was read in {spoken(took_s)})")
    on.print()
    if not problems:
        on.print(Text(f"  {signs.done} nothing is wrong", "green"))
    for problem in problems:
        on.print(Text(f"  {signs.warning} ", "bold yellow").append(clean(problem["problem"]), "bold"), soft_wrap=True)
        on.print(Text(f"    {problem['advice']}", "dim"), soft_wrap=True)
    on.print()


async def _problems(hf: Client, facts: dict[str, Any], url: str | None) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []

    def add(problem: str, advice: str, run: str = "") -> None:
        found.append({"run": run, "problem": problem, "advice": advice})

    if facts["integrity"] != "ok":
        add(f"the file is damaged: {facts['integrity']}", "Stop all workers, keep a copy, and restore a backup")
    if facts["identity"]["held_at"] is not None:
        copied = when(facts["identity"]["backup_at"])
        add(
            f"this store is a copy of {copied}, and held: none of its runs is carried",
            f"When the original does nothing any more: {command('restore', '--activate', db=url)}",
        )
    agents, queues = await hf.store.agents(), await hf.store.queues_taken()
    for row in await hf.store.runs(statuses=["ready", "waiting", "running", "paused"], limit=_LOOKED_AT * 5):
        problem = why_stuck(row, agents, queues, hf.store.clock.now(), url)
        if problem is not None:
            add(f"run {row.id}: {problem[0]}", problem[1], row.id)
    return found

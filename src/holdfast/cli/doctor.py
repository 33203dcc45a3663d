"""`holdfast doctor`: what the store is, what is in it, and what is wrong, with advice."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from typing import Any, Final

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import existing, held
from holdfast.cli.stuck import found_stuck
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import console, glyphs, lines_of, print_json, version
from holdfast.cli.view.draw import clean
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.edge import Edge, file_facts
from holdfast.client.info import RunInfo
from holdfast.client.tokens import RENEW
from holdfast.errors import StoreUnavailable
from holdfast.values.text import size
from holdfast.words.durations import spoken, when
from holdfast.words.model import Published

_DURABILITY: Final = {
    2: "power: an acknowledged write survives a power cut",
    1: "process: the last writes may be lost in a power cut, not in a crash",
}
_MALFORMED: Final = "malformed"  # SQLite's word for what cannot even be opened
_LITTLE_ROOM: Final = 64 << 20  # bytes
_NAMED: Final = 5
_LOOKED_AT: Final = 200  # runs of each state


@subcommand()
@db_option
@json_option
async def doctor(db: str | None, as_json: bool) -> int:
    """Check the store and say what is wrong.

    The exit code is 1 if anything is: a damaged file, a failed or a paused run, one that is due and nobody serves,
    one that ends its process again and again, or a token in its last 14 days (or the last quarter of its life, if that is shorter).
    """
    try:
        return await _examine(db, as_json=as_json)
    except StoreUnavailable as error:
        facts = file_facts(db)
        if not facts or _MALFORMED not in str(error):
            raise
        facts["integrity"] = ascii(str(error).rpartition(": ")[2])[1:-1]
    problems = _damage(facts, db) + _room(facts)
    if as_json:
        print_json({"holdfast": version(), "store": facts, "problems": problems})
    else:
        _print_problems(problems)
    return 1


async def _examine(url: str | None, *, as_json: bool) -> int:
    async with existing(url) as hf:
        edge, started = Edge(hf), time.monotonic()
        facts = await edge.facts()
        took_s = time.monotonic() - started
        facts["only_looked_at"] = edge.only_reads
        if facts["only_looked_at"]:  # a copy, on another disk
            facts |= file_facts(url)
        agents: Published = {}
        paused: list[tuple[str, int]] = []
        try:
            agents, paused = await edge.agents(), await edge.paused_rates()
            problems = await _problems(hf, facts, url)
        except StoreUnavailable:
            if facts["integrity"] == "ok" and not facts.get("down"):
                raise
            problems = _damage(facts, url) + _down(facts, url)  # of a store that is not whole not all can be read
    durability = _durability(facts)
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

    def fact(name: str, value: str) -> None:
        on.print(Text(f"  {name:<13}", "dim").append(value), soft_wrap=True)

    on.print()
    fact("Holdfast", f"{version()}, Python {platform.python_version()}, {platform.platform(terse=True)}")
    for name, value in _about(facts):
        fact(name, value)
    fact("Durability", durability)
    if "runs" in facts:
        _print_contents(fact, facts, agents)
    if facts["store"] != "temporal" or facts["side"] is not None:
        read = "all of it" if facts["store"] != "temporal" else "the database beside the cluster"
        fact("Integrity", f"{facts['integrity']} ({read} was read in {spoken(took_s)})")
    _print_problems(problems)


def _print_problems(problems: list[dict[str, str]]) -> None:
    on = console()
    signs = glyphs(on)
    on.print()
    if not problems:
        on.print(Text(f"  {signs.done} nothing is wrong", "green"))
    for problem in problems:
        on.print(Text(f"  {signs.warning} ", "bold yellow").append(clean(problem["problem"]), "bold"), soft_wrap=True)
        for line in lines_of(problem["advice"]):
            on.print(Text(f"    {line}", "dim", no_wrap=True), soft_wrap=True)
    on.print()


def _durability(facts: dict[str, Any]) -> str:
    if facts["store"] == "temporal":
        return "cluster: an acknowledged write is in the cluster's own database, and as safe as that"
    if facts["store"] == "sqlite":
        return _DURABILITY.get(facts["pragmas"]["synchronous"], "unknown")
    return _DURABILITY[1 if facts["synchronous_commit"] == "off" else 2]


def _about(facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Say which kind of store it is, and how large."""
    schema = f", schema {facts['schema']}" if "schema" in facts else ""
    if facts["store"] == "temporal":
        store = f"{facts['url']} (Temporal {facts['server']}, namespace {facts['namespace']})"
        side = (
            "none (?side= names one)"
            if facts["side"] is None
            else ", ".join(value for _, value in _about(facts["side"]))
        )
        return [("Store", store), ("Beside it", side)]
    if facts["store"] == "postgresql":
        server = " ".join(facts["server"].split()[:2])
        return [
            ("Store", f"{facts['url']} ({server}, database {facts['database']}{schema})"),
            ("Size", size(facts["bytes"] or 0)),
        ]
    room = f", {size(facts['free_bytes'])} of the disk left"
    sizes = f"{size(facts.get('file_bytes', 0))}, write-ahead log {size(facts.get('log_bytes', 0))}{room}"
    return [("Store", f"{facts['url']} (SQLite {facts['sqlite']}{schema})"), ("Size", sizes)]


def _print_contents(fact: Callable[[str, str], None], facts: dict[str, Any], agents: dict[str, Any]) -> None:
    if facts["only_looked_at"]:
        why = "its file, folder or disk cannot be written" if facts["store"] == "sqlite" else "its role may not write"
        fact("Access", f"it can only be looked at: {why}")
    fact("Id", facts["store_id"] or "none yet")
    counts = ", ".join(f"{count} {status}" for status, count in facts["runs"].items())
    fact("Runs", counts or "none")
    asked = facts["open_approvals"]
    questions = f"{asked} open question{'s' * (asked != 1)}"
    if facts["store"] == "temporal":  # which tells neither how many events it has, nor of its workers
        fact("Questions", questions)
    else:
        fact("Events", f"{facts['events']}, {facts['blobs']} large values, {questions}")
        codes = ", ".join(f"{count} with code {code}" for code, count in facts["code_versions"].items() if code)
        fact("Workers", f"{facts['workers']} alive" + (f" ({codes})" if codes else ""))
    live = ", ".join(name for name, (_, _, served) in agents.items() if served)
    idle = ", ".join(name for name, (_, _, served) in agents.items() if not served)
    fact("Agents", " ".join([f"served now: {live or 'none'}", *([f"(not now: {idle})"] if idle else [])]))
    if facts["paused"]:
        fact("Paused", f"{facts['paused']} (a provider said so; calls that share the rate wait)")


def _damage(facts: dict[str, Any], url: str | None) -> list[dict[str, str]]:
    if facts["integrity"] == "ok":
        return []
    what = "the file is damaged" if facts["store"] == "sqlite" else "the store is damaged"
    others = {"sqlite": "sqlite:NEW.db", "temporal": "postgresql://NEW"}  # of a cluster only what is beside it can be
    to = "postgresql://NEW" if "cells" in facts else others.get(facts["store"], url)
    restore = command("restore", "BACKUP", db=to)
    advice = (
        "Stop all workers and keep a copy of what is there, with the files beside it. Look at the disk: damage comes from "
        f"below. Then go on from a backup: {restore}"
    )
    return [{"run": "", "problem": f"{what}: {facts['integrity']}", "advice": advice}]


def _down(facts: dict[str, Any], url: str | None) -> list[dict[str, str]]:
    """Tell of cells that cannot be reached: nothing of them is lost."""
    found = []
    for name, why in facts.get("down", {}).items():
        advice = (
            "Start its database, mend the way there, or use the newer file: its share of the runs waits meanwhile, all others go "
            f"on, and nothing of it is lost. See: {command('cells', 'list', db=url)}"
        )
        found.append({"run": "", "problem": f"cell {name} is down or left out: {why}", "advice": advice})
    return found


def _room(facts: dict[str, Any]) -> list[dict[str, str]]:
    if facts.get("free_bytes", _LITTLE_ROOM) >= _LITTLE_ROOM:
        return []
    advice = (
        "Make room: on a full disk nothing is written and nothing begins; work goes on by itself when there is room"
    )
    return [{"run": "", "problem": f"the disk of the store has {size(facts['free_bytes'])} left", "advice": advice}]


async def _problems(hf: Client, facts: dict[str, Any], url: str | None) -> list[dict[str, str]]:
    found: list[dict[str, str]] = []

    def add(problem: str, advice: str, run: str = "") -> None:
        found.append({"run": run, "problem": problem, "advice": advice})

    found += _damage(facts, url)
    found += _down(facts, url)
    found += _room(facts)
    if failed := await hf.runs(status="failed", limit=_LOOKED_AT):
        add(*_failed(failed, facts["runs"].get("failed", len(failed)), url))
    asleep = await held(hf, url)
    if asleep is not None:
        add(f"{asleep.what} (copied {when(facts['identity']['backup_at'])})", asleep.advice)
        return found  # what keeps a single run is nothing beside it
    for token in [] if "tokens" in Edge(hf).lacks else await hf.tokens():
        if token.ends_soon():
            add(
                f"token {token.id} of {token.name} expires at {token.expires_at:%Y-%m-%d %H:%M} UTC",
                f"{RENEW[0].upper()}{RENEW[1:]}",
            )
    for row, _, (problem, advice) in (await found_stuck(hf, url))[: _LOOKED_AT * 5]:
        add(f"run {row.id}: {problem}", advice, row.id)
    return found


def _failed(rows: list[RunInfo], count: int, url: str | None) -> tuple[str, str, str]:
    """Tell of failed runs: the problem, the advice, and the first run. A child goes on with the run that it brought down."""
    ids = {row.id for row in rows}
    tops = [row.id for row in rows if row.parent not in ids]
    below = f", and {len(rows) - len(tops)} below" if len(tops) < len(rows) == count else ""
    many = len(tops) if len(rows) == count else count
    names = ", ".join(tops[:_NAMED]) + (" and others" if many > _NAMED else "")
    look, again = command("show", tops[0], db=url), command("retry", tops[0], db=url)
    told = f"{f'{many} runs have' if many > 1 else '1 run has'} failed, {names}{below}"
    return told, f"Look why: {look}\nThen go on from the failure: {again}", tops[0]

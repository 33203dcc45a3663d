"""`holdfast schedules`: what begins by itself, when, and how it went; to pause it, to begin a run now, to fill in past times."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final, get_args

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import at_terminal, existing
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, print_json, print_list, table
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.documents import plain
from holdfast.client.edge import Edge
from holdfast.client.schedules import ScheduleHandle, ScheduleInfo
from holdfast.values.text import cut
from holdfast.words.durations import written
from holdfast.words.model import FINISHED
from holdfast.words.schedules import CatchUp, Overlap, Schedule

_ENDS: Final = {"failed": "red", "completed": "green"}
_SHOWN: Final = 200  # characters of arguments; --json has all


class _Moment(click.ParamType[datetime]):
    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            self.fail(
                f"{value!r} is not a time; write it as 2026-11-16 or 2026-11-16T07:00, in UTC unless it says otherwise"
            )
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


@subcommand()
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--pause", "pause", is_flag=True, help="Begin no more runs, also after deploys.")
@click.option("--resume", "resume", is_flag=True, help="Begin runs again, from the next time on.")
@click.option("--trigger", is_flag=True, help="Begin a run now.")
@click.option(
    "--backfill", nargs=2, type=_Moment(), metavar="START END", help="Begin a run for each time from START to END."
)
@click.option("--delete", is_flag=True, help="Delete a schedule that a person made.")
@click.option("--agent", metavar="AGENT", help="Make NAME: runs of this agent begin by themselves, or change it.")
@click.option("--cron", metavar="LINE", help="With --agent: its times, such as '0 7 * * mon-fri'.")
@click.option("--every", metavar="TIME", help="With --agent: its times, such as 15m.")
@click.option("--tz", metavar="ZONE", help="With --cron: the time zone, such as Europe/Vienna. Default: UTC.")
@click.option("--jitter", metavar="TIME", help="With --agent: each run begins up to so much later, such as 5m.")
@click.option(
    "--overlap", type=click.Choice(get_args(Overlap)),
    help="With --agent: if the run before goes on, skip the time (default), queue it, cancel that run, or allow both.",
)  # fmt: skip
@click.option(
    "--catch-up", type=click.Choice(get_args(CatchUp)),
    help="With --agent: of times that could not begin, begin the last (default), all or none.",
)  # fmt: skip
@click.option("--args", "arguments", metavar="JSON", help="With --agent: the arguments of its runs, as an object.")
@db_option
@json_option
async def schedules(
    name: str | None, pause: bool, resume: bool, trigger: bool, backfill: tuple[datetime, datetime] | None, delete: bool,
    agent: str | None, cron: str | None, every: str | None, tz: str | None, jitter: str | None, overlap: Overlap | None,
    catch_up: CatchUp | None, arguments: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List what begins by itself, or steer it.

    Each is shown with its next times and its last run. An agent declares its schedule with @agent(schedule=...);
    --agent makes one by hand, in the place of what was made under this name before.
    """
    steered = [pause, resume, trigger, backfill is not None, delete, agent is not None]
    if sum(steered) > 1:
        raise click.UsageError("give one of --pause, --resume, --trigger, --backfill, --delete and --agent")
    if any(steered) and name is None:
        raise click.UsageError("name the schedule: `holdfast schedules` lists them")
    if agent is None and any(each is not None for each in (cron, every, tz, jitter, overlap, catch_up, arguments)):
        raise click.UsageError(
            "--cron, --every, --tz, --jitter, --overlap, --catch-up and --args make a schedule: give --agent too"
        )
    if name is not None and agent is not None:
        if (cron is None) == (every is None):
            raise click.UsageError("give its times: --cron '0 7 * * mon-fri' or --every 15m, and not both")
        made = Schedule(
            cron, every=every, tz=tz or "UTC", jitter=jitter or 0, overlap=overlap or "skip", catch_up=catch_up or "last",
            args=_arguments(arguments),
        )  # fmt: skip
        async with at_terminal(open_store(db)) as hf:
            _show_one(await (await hf.schedule(name, agent, made)).info(), as_json=as_json)
        return
    async with existing(db) as hf:
        if name is None:
            _show(await hf.schedules(), hf, as_json=as_json)
            return
        handle = hf.get_schedule(name)
        if trigger or backfill is not None:
            await _begin(handle, backfill, as_json=as_json)
        elif delete:
            before = await handle.info()
            await handle.delete()
            _deleted(before, as_json=as_json)
        elif pause:
            before = await handle.info()
            _show_one(await handle.pause(), as_json=as_json)
            if before.waiting and not as_json:
                _missed(before, db)
        else:
            _show_one(await (handle.resume() if resume else handle.info()), as_json=as_json)


def _arguments(text: str | None) -> Any:
    if text is None:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        raise click.UsageError(
            f'--args {text!r} is not JSON; write an object, such as \'{{"team": "sales"}}\''
        ) from None
    return found


async def _begin(handle: ScheduleHandle, backfill: tuple[datetime, datetime] | None, *, as_json: bool) -> None:
    begun = [await handle.trigger()] if backfill is None else await handle.backfill(*backfill)
    if as_json:
        print_json({"runs": begun})
        return
    for run in begun:
        answer(run)
    if not begun:
        answer("There is no time in between that has no run yet.", "dim")


def _deleted(before: ScheduleInfo, *, as_json: bool) -> None:
    if as_json:
        print_json({"deleted": before.name, "missed": before.waiting})
        return
    answer(f"Schedule {before.name} is deleted. Runs that it began are left alone.")
    if before.waiting:
        answer(f"{_waited(before)} not begun any more.", "yellow")


def _missed(before: ScheduleInfo, db: str | None) -> None:
    """Say of a schedule that was paused what became of times that waited, and how they are begun all the same."""
    since, now = before.last_at, datetime.now(UTC)
    begin = "" if since is None else "; to begin what has come since its last run:"
    commands = [] if since is None else [
        command("schedules", before.name, "--backfill", f"{since:%Y-%m-%dT%H:%M:%S}", f"{now:%Y-%m-%dT%H:%M:%S}", db=db)
    ]  # fmt: skip
    answer(f"{_waited(before)} missed{begin}", "yellow", *commands)


def _waited(before: ScheduleInfo) -> str:
    return f"A time of {before.name} had come and waited. It is" if before.waiting == 1 else (
        f"{before.waiting} times of {before.name} had come and waited. They are"
    )  # fmt: skip


def _show(found: Sequence[ScheduleInfo], hf: Client, *, as_json: bool) -> None:
    if not found:
        Edge(hf).check_has("schedules")
    if as_json:
        print_json({"schedules": [dataclasses.asdict(each) for each in found]})
        return
    if not found:
        edge = Edge(hf)
        declared = f"No schedules in {edge.url}. An agent declares one with @agent(schedule='0 7 * * mon-fri')."
        answer(declared)
        return
    made = table("name", "agent", "times", "next", "last", "", "begun", "missed")
    for each in found:
        state = "not known here" if each.problem else "" if each.state == "active" else each.state
        coming = Text(_at(each.next[0])) if each.next else Text(state, "yellow")
        ended = each.last_status or ("" if each.last_run is None else "deleted")
        waits = Text(f"{', ' if ended else ''}{each.waiting} {'behind it' if is_behind(each) else 'due'}" if each.waiting else "",
                     "yellow")  # fmt: skip
        made.add_row(Text(each.name, "bold"), each.agent, f"{each.times}{options_of(each)}", coming, _at(each.last_at),
                     Text(ended, _ENDS.get(ended, "")).append_text(waits), str(each.begun),
                     Text(str(each.missed or ""), "yellow"))  # fmt: skip
    print_list(made, 0)
    answer("Times are in UTC.", "dim")


def is_behind(each: ScheduleInfo) -> bool:
    """Do the times that wait wait for the run before, and not for a worker?"""
    return each.overlap != "allow" and each.last_status not in (None, *FINISHED)


def options_of(each: ScheduleInfo) -> str:
    """Say in a few words what is declared beside the times, as it is written; nothing where nothing is."""
    said = {"overlap": "" if each.overlap == "skip" else each.overlap, "catch_up": "" if each.catch_up == "last" else each.catch_up,
            "jitter": written(round(each.jitter_s * 1000)) if each.jitter_s else ""}  # fmt: skip
    return "".join(f", {name}={value}" for name, value in said.items() if value)


def _show_one(each: ScheduleInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(dataclasses.asdict(each))
        return
    who = (
        f"{each.agent} declares it"
        if each.declared
        else "no worker declares it"
        if each.state == "retired"
        else "made by hand"
    )
    answer(f"{each.name}: {each.agent}, {each.times}; {each.state}, {who}.", "bold")
    jitter = f" A run begins up to {written(round(each.jitter_s * 1000))} after its time." if each.jitter_s else ""
    answer(f"If the run before goes on: {each.overlap}. Of times that could not begin: {each.catch_up}.{jitter}", "dim")
    if each.args:
        answer(f"Arguments: {cut(json.dumps(plain(each.args), ensure_ascii=False), _SHOWN)}", "dim")
    if each.problem:
        answer(f"Its next times are not known here: {each.problem}", "yellow")
    if each.waiting:
        count = "1 time has come and waits" if each.waiting == 1 else f"{each.waiting} times have come and wait"
        answer(f"{count} {f'for the end of {each.last_run}' if is_behind(each) else 'for a worker'}.", "yellow")
    for at in each.next:
        answer(f"  {at:%a} {_at(at)} UTC")
    last = "" if each.last_run is None else f"Last run: {each.last_run} ({each.last_status or 'deleted'}). "
    if each.last_run is not None or each.missed:
        answer(f"{last}Begun: {each.begun}, missed: {each.missed}.")


def _at(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"

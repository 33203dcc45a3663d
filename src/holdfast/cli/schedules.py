"""`holdfast schedules`: what begins by itself, when, and how it went; to pause it, to begin a run now, to fill in past times."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import at_terminal, existing
from holdfast.cli.view.console import answer, console, print_json, table
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge
from holdfast.client.schedules import ScheduleHandle, ScheduleInfo
from holdfast.words.schedules import Schedule

_ENDS = {"failed": "red", "completed": "green"}


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
@click.option("--args", "arguments", metavar="JSON", help="With --agent: the arguments of its runs, as an object.")
@db_option
@json_option
async def schedules(
    name: str | None, pause: bool, resume: bool, trigger: bool, backfill: tuple[datetime, datetime] | None, delete: bool,
    agent: str | None, cron: str | None, every: str | None, tz: str | None, arguments: str | None, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List what begins by itself, or steer it.

    Each is shown with its next times and its last run. An agent declares its schedule with @agent(schedule=...);
    --agent makes one by hand.
    """
    steered = [pause, resume, trigger, backfill is not None, delete, agent is not None]
    if sum(steered) > 1:
        raise click.UsageError("give one of --pause, --resume, --trigger, --backfill, --delete and --agent")
    if any(steered) and name is None:
        raise click.UsageError("name the schedule")
    if agent is None and any(each is not None for each in (cron, every, tz, arguments)):
        raise click.UsageError("--cron, --every, --tz and --args make a schedule: give --agent too")
    if name is not None and agent is not None:
        made = Schedule(cron, every=every, tz=tz or "UTC", args=_arguments(arguments))
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
            await handle.delete()
            answer(f"Schedule {name} is deleted. Runs that it began are left alone.")
        else:
            info = await (handle.pause() if pause else handle.resume() if resume else handle.info())
            _show_one(info, as_json=as_json)


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


def _show(found: Sequence[ScheduleInfo], hf: Client, *, as_json: bool) -> None:
    if as_json:
        print_json({"schedules": [dataclasses.asdict(each) for each in found]})
        return
    if not found:
        answer(f"No schedules in {Edge(hf).url}. An agent declares one with @agent(schedule='0 7 * * mon-fri').")
        return
    made = table("name", "agent", "times", "next", "last", "", "begun", "missed")
    for each in found:
        state = "not known here" if each.problem else "" if each.state == "active" else each.state
        coming = Text(_at(each.next[0])) if each.next else Text(state, "yellow")
        ended = each.last_status or ("" if each.last_run is None else "deleted")
        made.add_row(Text(each.name, "bold"), each.agent, each.times, coming, _at(each.last_at), Text(ended, _ENDS.get(ended, "")),
                     str(each.begun), Text(str(each.missed or ""), "yellow"))  # fmt: skip
    console().print(made)
    answer("Times are in UTC.", "dim")


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
    answer(f"If the run before goes on: {each.overlap}. Of times that were missed: {each.catch_up}.", "dim")
    if each.problem:
        answer(f"Its next times are not known here: {each.problem}", "yellow")
    for at in each.next:
        answer(f"  {at:%a} {_at(at)} UTC")
    if each.last_run is not None:
        answer(
            f"Last run: {each.last_run} ({each.last_status or 'deleted'}). Begun: {each.begun}, missed: {each.missed}."
        )


def _at(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"

"""`holdfast notify`: the receivers of events; to add one, to try it, and to send again what did not go out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.stores import at_terminal, existing
from holdfast.cli.view.console import answer, console, print_json, print_list, table
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.edge import Edge
from holdfast.client.notifications import NotificationHandle, NotificationInfo
from holdfast.client.triggers import DeliveryInfo
from holdfast.words.durations import spoken

_STATES = {"done": "green", "dead": "red"}
_SHOWN = 20


@subcommand()
@click.argument("name", metavar="[NAME]", required=False)
@click.option(
    "--to",
    "url",
    metavar="URL",
    help="Have NAME told: https://HOST/PATH, mailto:ADDRESS, or env:VARIABLE of the workers.",
)
@click.option(
    "--kind", "kinds", metavar="KIND", multiple=True, help="With --to: of this kind of events. May be repeated."
)
@click.option(
    "--secret",
    "secrets",
    metavar="env:VARIABLE",
    multiple=True,
    help="With --to: the variable of the workers whose secret signs: `whsec_` and base64, as `openssl rand -base64 32` makes it.",
)
@click.option("--format", "format_", type=click.Choice(["json", "slack", "mail"]), help="With --to: how messages look.")
@click.option("--agent", metavar="AGENT", help="With --to: only runs of this agent.")
@click.option("--base-url", metavar="URL", help="With --to: where `holdfast serve` is reached, for links.")
@click.option("--test", is_flag=True, help="Send a message to see whether it arrives.")
@click.option("--pause", is_flag=True, help="Send nothing until it is resumed.")
@click.option("--resume", is_flag=True, help="Send what waits, and tell it of what happens from now on.")
@click.option("--replay", metavar="ID", help="Try a dead message again; 'all' are all that are dead.")
@click.option("--delete", is_flag=True, help="Delete it, with what has not gone out.")
@db_option
@json_option
async def notify(
    name: str | None, url: str | None, kinds: tuple[str, ...], secrets: tuple[str, ...], format_: str | None, agent: str | None,
    base_url: str | None, test: bool, pause: bool, resume: bool, replay: str | None, delete: bool, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List who is told of what happens to runs; have others told.

    NAME alone shows its last messages. Workers send them, signed, and try again for more than a day.
    """
    if sum([url is not None, test, pause, resume, replay is not None, delete]) > 1:
        raise click.UsageError("give one of --to, --test, --pause, --resume, --replay and --delete")
    if any([test, pause, resume, replay is not None, delete]) and name is None:
        raise click.UsageError("name the notification: `holdfast notify` lists them")
    if url is None and (kinds or secrets or format_ or agent or base_url):
        raise click.UsageError("--kind, --secret, --format, --agent and --base-url are for --to: give it too")
    if url is not None:
        async with at_terminal(open_store(db)) as hf:
            handle = await hf.notify(
                url, kinds, secret=secrets, name=name, format=format_, agent=agent, base_url=base_url
            )
            await _show_one(handle, as_json=as_json)
        return
    async with existing(db) as hf:
        if name is None:
            _show(await hf.notifications(), hf, as_json=as_json)
            return
        handle = hf.get_notification(name)
        if delete:
            await handle.delete()
            if as_json:
                print_json({"deleted": name})
            else:
                answer(f"Notification {name} is deleted.")
        elif test:
            message = await handle.test()
            if as_json:
                print_json({"message": message})
            else:
                answer(
                    f"Message {message} is sent by the next worker that looks. `holdfast notify {name}` tells how it went."
                )
        elif replay is not None:
            await _replay(handle, replay, as_json=as_json)
        else:
            if pause or resume:
                await (handle.pause() if pause else handle.resume())
            await _show_one(handle, as_json=as_json)


async def _replay(handle: NotificationHandle, which: str, *, as_json: bool) -> None:
    ids = [each.id for each in await handle.deliveries(status="dead")] if which == "all" else [which]
    found = [await handle.replay(each) for each in ids]
    if as_json:
        print_json({"deliveries": [dataclasses.asdict(each) for each in found]})
        return
    for each in found:
        answer(f"{each.id}: {'it went out before' if each.status == 'done' else 'it is tried again'}.")
    if not found:
        answer("No message is dead.", "dim")


def _show(found: Sequence[NotificationInfo], hf: Client, *, as_json: bool) -> None:
    if not found:
        Edge(hf).check_has("notifications")
    if as_json:
        print_json({"notifications": [dataclasses.asdict(each) for each in found]})
        return
    if not found:
        edge = Edge(hf)
        nobody = (
            f"Nobody is told of anything in {edge.url}. `holdfast notify NAME --to URL --kind run.failed` changes that."
        )
        answer(nobody)
        return
    made = table("name", "to", "kinds", "state", "sent", "waiting", "dead")
    for each in found:
        state = Text(each.state, "" if each.state == "active" else "yellow")
        made.add_row(Text(each.name, "bold"), each.url, ", ".join(each.kinds), state, str(each.done), str(each.waiting or ""),
                     Text(str(each.dead or ""), "red"))  # fmt: skip
    print_list(made, 0)


async def _show_one(handle: NotificationHandle, *, as_json: bool) -> None:
    each, last = await handle.info(), await handle.deliveries(limit=_SHOWN)
    if as_json:
        print_json(dataclasses.asdict(each) | {"deliveries": [dataclasses.asdict(message) for message in last]})
        return
    answer(f"{each.name}: {each.url} as {each.format}; {each.state}.", "bold")
    answer(f"Told of: {', '.join(each.kinds)}" + (f"; of runs of {each.agent}" if each.agent else ""), "dim")
    late = f", the first for {spoken(each.lag_s)}" if each.waiting else ""
    answer(f"Sent: {each.done}, waiting: {each.waiting}{late}, dead: {each.dead}.", "dim")
    for message in last:
        _show_message(message)


def _show_message(message: DeliveryInfo) -> None:
    line = Text(f"  {message.received_at:%Y-%m-%d %H:%M:%S}  {message.id}  ").append(
        message.status, _STATES.get(message.status, "")
    )
    if message.error and message.status != "done":
        line.append(
            f"  {message.attempts} failed: {message.error}" if message.attempts else f"  {message.error}", "dim"
        )
    console().print(line, soft_wrap=True)

"""`holdfast triggers`: all that starts agents by itself, the deliveries and their ends; to replay dead deliveries."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any, Final

import click

from holdfast.cli.options import db_option, json_option, subcommand
from holdfast.cli.schedules import options_of
from holdfast.cli.stores import existing
from holdfast.cli.view.advice import command
from holdfast.cli.view.console import answer, block, console, print_json, print_list, table
from holdfast.cli.view.screen import Text
from holdfast.client.client import Client
from holdfast.client.documents import body_text
from holdfast.client.edge import Edge
from holdfast.client.schedules import ScheduleInfo
from holdfast.client.triggers import DeliveryInfo, TriggerInfo, is_dismissed
from holdfast.errors import UnknownTrigger
from holdfast.values.text import cut
from holdfast.words.durations import spoken, written
from holdfast.words.queues import DEFAULT_IN_FLIGHT
from holdfast.words.triggers import DEFAULT_BYTES, Delivery
from holdfast.words.webhooks import Verify

_STYLES: Final = {"dead": "red", "failed": "red", "new": "yellow", "done": "green", "completed": "green"}
_SHOWN: Final = 4_000  # characters of a body; --json has all
_WIDE: Final = 60  # characters of what is only one column
_DEFAULTS: Final = {  # of options that nobody wrote
    "max_bytes": DEFAULT_BYTES, "in_flight": DEFAULT_IN_FLIGHT, "redeliver_ms": 30_000,
}  # fmt: skip


@subcommand()
@click.argument("name", metavar="[NAME]", required=False)
@click.argument("delivery", metavar="[ID]", required=False)
@click.option("--status", type=click.Choice(["new", "done", "dead"]), help="With NAME: only deliveries in this state.")
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=20, show_default=True, help="With NAME: at most so many."
)
@click.option("--replay", metavar="ID", help="Try this delivery of NAME again, when what it failed for is mended.")
@click.option("--replay-dead", is_flag=True, help="Try all dead deliveries of NAME again.")
@click.option("--dismiss", metavar="ID", help="Let this dead delivery of NAME be: nothing is done about it.")
@click.option("--delete", is_flag=True, help="Forget NAME, whose code is gone. What came for it stays for 30 days.")
@db_option
@json_option
async def triggers(
    name: str | None, delivery: str | None, status: str | None, limit: int, replay: str | None, replay_dead: bool,
    dismiss: str | None, delete: bool, db: str | None, as_json: bool,
) -> None:  # fmt: skip
    """List what starts agents by itself, and what came for it.

    With NAME its deliveries are listed, with ID one of them is shown whole. A delivery that is dead was tried as often as its
    trigger says: look at its error, mend the cause, and replay it.
    """
    done = [replay is not None, replay_dead, dismiss is not None, delete]
    if sum(done) > 1 or (delivery is not None and (any(done) or status is not None)):
        raise click.UsageError("give one of ID, --status, --replay, --replay-dead, --dismiss and --delete")
    if name is None and (any(done) or status is not None):
        raise click.UsageError("name the trigger: `holdfast triggers` lists them")
    async with existing(db) as hf:
        if name is None:
            _show_all(await hf.triggers(), await hf.schedules(), hf, as_json=as_json)
        elif delivery is not None:
            _show_whole(*await Edge(hf).delivery(name, delivery), as_json=as_json)
        elif delete:
            await _delete(hf, name, as_json=as_json)
        elif replay is not None:
            _replayed(await hf.replay_delivery(name, replay), as_json=as_json)
        elif dismiss is not None:
            _dismissed(await hf.dismiss_delivery(name, dismiss), as_json=as_json)
        elif replay_dead:
            count = await hf.replay_dead(name)
            if as_json:
                print_json({"replayed": count})
            else:
                answer(
                    f"Dead deliveries of {name} that are tried again: {count}."
                    if count
                    else f"No delivery of {name} is dead."
                )
        else:
            await _show_one(hf, name, status, limit, as_json=as_json)


# All


def _show_all(found: Sequence[TriggerInfo], schedules: Sequence[ScheduleInfo], hf: Client, *, as_json: bool) -> None:
    if not found and not schedules:
        Edge(hf).check_has("triggers")
    if as_json:
        print_json({"triggers": [_dict(each) for each in found], "schedules": [_dict(each) for each in schedules]})
        return
    if not found and not schedules:
        edge = Edge(hf)
        declared = (
            f"Nothing starts by itself in {edge.url}. Workers declare it: @holdfast.on.webhook, queue or files, "
            "@agent(schedule=...) or @agent(on=...)."
        )
        answer(declared)
        return
    made = table("name", "kind", "declared", "workers", "waiting", "dead", "done", "lag", "last", "")
    for each in found:
        workers = Text(str(each.workers), "" if each.workers else "yellow")
        declared = cut(declared_words(each.config), _WIDE)
        made.add_row(Text(each.name, "bold"), each.kind, declared, workers, _count(_waiting(each), "yellow"),
                     _count(each.dead, "red"), str(_applied(each)), _lag(each.lag_s), _at(each.last_at),
                     Text(_away(each), "yellow"))  # fmt: skip
    now = datetime.now(UTC)
    for one in schedules:
        late_s = 0.0 if one.due_at is None else max((now - one.due_at).total_seconds(), 0)
        ended = one.last_status or ("" if one.last_run is None else "deleted")
        told = ", ".join(filter(None, [ended, f"{one.missed} missed" if one.missed else ""]))
        state = "" if one.state == "active" else f" ({one.state})"
        declared = cut(f"{one.agent}, {one.times}{options_of(one)}{state}", _WIDE)
        made.add_row(Text(one.name, "bold"), "schedule", declared, "", _count(one.waiting, "yellow"), "", str(one.begun),
                     _lag(late_s), _at(one.last_at), Text(told, _STYLES.get(ended, "")))  # fmt: skip
    print_list(made, 0)
    notes = ["Times are in UTC."]
    if any(each.dead for each in found):
        notes.append("`holdfast triggers NAME --status dead` says why deliveries are dead.")
    if any(each.away_since is not None for each in found):
        notes.append("`holdfast triggers NAME` says why a broker is away.")
    if any(not each.workers for each in found):
        notes.append("No worker has the code of a trigger with 0 workers: what comes for it waits.")
    for note in notes:
        answer(note, "dim")


def _away(each: TriggerInfo) -> str:
    """Say that the broker of a queue is away, and for whom, if not for all."""
    if each.away_since is None:
        return ""
    of = f" for {each.away_workers} of {each.workers} workers" if each.away_workers < each.workers else ""
    return f"broker away since {_at(each.away_since)}{of}"


def _waiting(each: TriggerInfo) -> int:
    """Count what waits: deliveries, and messages that are still with the broker."""
    return each.waiting + (each.lag_messages or 0)


def _applied(each: TriggerInfo) -> int:
    """Count what was applied: deliveries, and messages of a queue, which become deliveries only if they fail."""
    return each.done + each.messages


def declared_words(config: Mapping[str, Any]) -> str:
    """Say what is declared as it is written in code, the most telling first; secrets are named by where they are."""
    told = dict(config)
    first = [str(told.pop(name)) for name in ("url", "pattern", "event") if told.get(name)]
    if isinstance(verify := told.pop("verify", None), dict):
        first.append(_verifier(verify))
    more = [(name, value) for name, value in told.items() if value not in (None, "", False, _DEFAULTS.get(name))]
    return ", ".join(first + [_option(name, value) for name, value in more])


def _verifier(told: Mapping[str, Any]) -> str:
    """Write a verifier as it is declared: what its scheme says of itself is left out."""
    own = asdict(Verify(told["scheme"], tuple(told["secrets"])))
    more = [
        _option(name, told[name])
        for name in ("header", "signed", "timestamp", "id", "prefix", "encoding", "algorithm", "tolerance_ms")
        if (told["scheme"] == "hmac" or name == "tolerance_ms" or (told["scheme"], name) == ("bearer", "id"))
        and told.get(name) != own[name]
    ]
    return f"Verify.{told['scheme']}({', '.join([*map(_quoted, told['secrets']), *more])})"


def _option(name: str, value: Any) -> str:
    """Write an option as it is declared: durations are stored in milliseconds, and a condition only as there being one."""
    if name == "batch":
        return f"batch=Batch({value[0]}, {_quoted(written(value[1]))})"
    if name == "if":
        return "if_=..."
    return f"{name.removesuffix('_ms')}={_quoted(written(value) if name.endswith('_ms') else value)}"


def _quoted(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# One


def _counts(info: TriggerInfo) -> str:
    """Count as the list does, and say of what."""
    unknown = " (how many with the broker is not known)" if info.away_since is not None else ""
    queued = f" ({info.lag_messages} with the broker)" if info.lag_messages else ""
    of = f" ({info.messages} messages, {info.done} deliveries of the last 30 days)" if info.messages else " in 30 days"
    waiting = unknown if info.lag_messages is None else queued
    return f"{_waiting(info)} waiting{waiting}, {info.dead} dead, {_applied(info)} done{of}"


async def _show_one(hf: Client, name: str, status: str | None, limit: int, *, as_json: bool) -> None:
    info = next((each for each in await hf.triggers() if each.name == name), None)
    found = await hf.deliveries(trigger=name, status=status, limit=limit)
    if info is None and not found:
        if any(each.name == name for each in await hf.schedules()):
            raise UnknownTrigger(f"{name!r} is a schedule; `holdfast schedules {name}` shows it")
        raise UnknownTrigger(f"there is no trigger {name!r}; `holdfast triggers` lists those there are")
    if as_json:
        print_json({"trigger": None if info is None else _dict(info), "deliveries": [_dict(each) for each in found]})
        return
    if info is None:
        answer(f"{name}: no trigger of this name is declared any more.", "bold")
    else:
        answer(f"{name}: {info.kind}, {declared_words(info.config)}.", "bold")
        answer(f"{_counts(info)}; workers with its code: {info.workers}.")
        if info.away_since is not None:
            answer(f"{_away(info).capitalize()} UTC, and tried again: {info.away_error}", "yellow")
    if not found:
        nothing = (
            "Messages become deliveries only if they fail."
            if info is not None and info.messages
            else "Nothing came for it."
        )
        answer(nothing if status is None else f"None of its deliveries is {status}.", "dim")
        return
    made = table("id", "state", "attempts", "received", "what became of it")
    for each in found:
        made.add_row(each.id, Text(each.status, _STYLES[each.status]), str(each.attempts or ""), _at(each.received_at),
                     cut(_became(each), 200))  # fmt: skip
    print_list(made, 0)
    if any(each.status == "dead" for each in found):
        answer("Try one again, or all, when what they failed for is mended:", "dim",
               command("triggers", name, "--replay", "ID"), command("triggers", name, "--replay-dead"))  # fmt: skip


def _became(each: DeliveryInfo) -> str:
    if is_dismissed(each):
        return f"dismissed: {each.error}"
    if each.status == "done":
        return "; ".join(_done(each.outcome)) or "nothing was to be done"
    if each.status == "dead":
        return each.error or ""
    if each.attempts and each.due_at is not None:
        return f"{each.error} (again at {_at(each.due_at)})"
    return "waits for a worker"


def _done(outcome: Iterable[dict[str, Any]]) -> list[str]:
    told = []
    for act in outcome:
        if "start" in act:
            told.append(f"{'was there' if act.get('was_there') else 'started'}: {act['start']}")
        elif "send" in act:
            told.append(f"sent {act.get('topic')} to {act['send']}")
        elif "decide" in act:
            told.append(f"decided {act['decide']} for {act.get('by')}")
        elif "gather" in act:
            told.append("gathered with others")
        else:
            told.append(json.dumps(act))
    return told


def _show_whole(info: DeliveryInfo, whole: Delivery, *, as_json: bool) -> None:
    if as_json:
        body, encoding = body_text(whole.body)
        print_json({"delivery": _dict(info), "headers": dict(whole.headers), "body": body, "encoding": encoding})
        return
    on = console()
    on.print(Text(f"{info.trigger} {info.id}", "bold").append(f"  {info.status}", _STYLES[info.status]), soft_wrap=True)
    tried = f", failed {info.attempts} {'time' if info.attempts == 1 else 'times'}" if info.attempts else ""
    answer(f"Received {_at(info.received_at)} UTC, {info.size} bytes{tried}.")
    if info.error is not None:
        answer("Dismissed. Its error was:" if is_dismissed(info) else "Error:", "red")
        block(on, info.error)
    for line in _done(info.outcome):
        block(on, line)
    answer("Headers:", "dim")
    for name, value in whole.headers.items():
        block(on, f"{name}: {value}")
    answer("Body:", "dim")
    text = whole.text()
    block(on, text[:_SHOWN])
    if len(text) > _SHOWN:
        answer(f"… and {len(text) - _SHOWN} characters more: --json prints all.", "dim")


# Steering


def _replayed(info: DeliveryInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(_dict(info))
    elif info.status == "done":
        answer(f"Delivery {info.id} of {info.trigger} is done, and stays so: {cut(_became(info), 200)}.")
    else:
        answer(f"Delivery {info.id} of {info.trigger} is tried again.")


def _dismissed(info: DeliveryInfo, *, as_json: bool) -> None:
    if as_json:
        print_json(_dict(info))
    elif is_dismissed(info):
        answer(f"Delivery {info.id} of {info.trigger} is dismissed: nothing is done about it.")
    elif info.status == "done":
        answer(f"Delivery {info.id} of {info.trigger} is done already: {cut(_became(info), 200)}.")
    else:
        answer(f"A worker has delivery {info.id} of {info.trigger} right now. Look again in a moment.", "yellow")


async def _delete(hf: Client, name: str, *, as_json: bool) -> None:
    workers = next((each.workers for each in await hf.triggers() if each.name == name), 0)
    await hf.delete_trigger(name)
    if as_json:
        print_json({"deleted": name, "workers": workers})
        return
    answer(f"Trigger {name} is forgotten. What came for it stays for 30 days.")
    if workers:
        answer(
            f"It comes back within half a minute: {workers} {'worker has' if workers == 1 else 'workers have'} its code.",
            "yellow",
        )


def _dict(info: Any) -> dict[str, Any]:
    return asdict(info)


def _count(number: int, style: str) -> Text:
    return Text(str(number), style if number else "")


def _lag(lag_s: float) -> str:
    return spoken(lag_s) if lag_s >= 1 else ""


def _at(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M:%S}"

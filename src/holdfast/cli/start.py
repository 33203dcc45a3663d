"""`holdfast start`: a run for the workers of the store. Nothing is carried here."""

from __future__ import annotations

from typing import Any

import click

from holdfast.cli.agents import load_agent
from holdfast.cli.options import Typed, budget_option, db_option, json_option, subcommand, typed_options, value_of
from holdfast.cli.stores import at_terminal
from holdfast.cli.view.advice import code_of, command
from holdfast.cli.view.console import answer, print_json, say
from holdfast.cli.view.draw import clean
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.info import AgentInfo
from holdfast.client.run import Run
from holdfast.values.signature import refuse_object
from holdfast.words.durations import when


@subcommand()
@typed_options("AGENT", "The run's id. The same id again is the same run.")
@click.option("--after", metavar="TIME", help="Begin so long from now: 30m, 12h.")
@budget_option("What the run may spend, instead of what its agent declares.")
@db_option
@json_option
async def start(typed: Typed, after: str | None, db: str | None, as_json: bool) -> None:
    """Start a run for the workers, and return at once.

    AGENT is the name under which a worker has published it, or FILE.py:AGENT, for which no worker is needed yet. ARGS are
    checked before anything is stored; text that starts with a dash goes after `--`. Prints the run's id.
    """
    async with at_terminal(open_store(db)) as hf:
        run = await _started(hf, typed, after)
        info = await run.info()
        served = await hf.agents()
    if as_json:
        print_json({"run": info, "created": run.created})
        return
    begins = f" It begins at {when(round(info.due_at.timestamp() * 1000))}." if info.due_at is not None else ""
    if info.status == "moved":
        say(
            f"Nothing was started: there was a run {info.id} of {info.agent}, and it was {clean(info.reason or 'moved')}. "
            "Look for it there, or choose another id.",
            "yellow",
        )
    else:
        say(f"{'Started' if run.created else 'There already:'} run {info.id} of {info.agent}.{begins}")
    if info.status == "ready" and not any(_serves(each, info.agent, info.version) for each in served):
        file = typed.target.rpartition(":")[0] or "FILE.py"
        say(f"No live worker serves {code_of(info)}. Start one:", "yellow", command("worker", file, db=db))
    answer(info.id)


def _serves(agent: AgentInfo, name: str, version: str | None) -> bool:
    return agent.name == name and agent.served and (version is None or version in agent.versions)


async def _started(hf: Client, typed: Typed, after: str | None) -> Run[Any]:
    options: dict[str, Any] = {"id": typed.id, "labels": typed.labels, "after": after, "budget": typed.budget}
    if ":" in typed.target or typed.target.endswith(".py"):
        agent = load_agent(typed.target)[1]
        given, by_name = agent.spec.signature.parse(typed.strings, typed.named)
        return await hf.start(agent, *given, kwargs=by_name, **options)
    known = {each.name: each.schema for each in await hf.agents()}.get(typed.target, {})
    args, kwargs = _values(known, typed)
    return await hf.start(typed.target, *args, kwargs=kwargs, **options)


def _values(schema: dict[str, Any], typed: Typed) -> tuple[list[Any], dict[str, Any]]:
    """Read what was typed as the published schema means it: as text where it wants text, else as JSON."""
    properties: dict[str, Any] = schema.get("properties", {})
    names = [*schema.get("x-positional", properties), *[""] * len(typed.strings)]

    def meant(name: str, text: str) -> Any:
        return text if properties.get(name, {}).get("type") == "string" else value_of(text)

    if len(typed.strings) == 1 and meant(names[0], typed.strings[0]) == typed.strings[0]:
        refuse_object(f"agent {typed.target!r}", typed.strings[0], names[0], properties)
    places = zip(names, typed.strings, strict=False)
    by_name = {name.replace("-", "_") if name not in properties else name: text for name, text in typed.named.items()}
    return [meant(name, text) for name, text in places], {name: meant(name, text) for name, text in by_name.items()}

"""`holdfast start`: a run for the workers of the store. Nothing is carried here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from holdfast.cli.agents import load_agent
from holdfast.cli.control import value_of
from holdfast.cli.view.console import answer, code_of, command, print_json, say
from holdfast.cli.view.draw import when
from holdfast.cli.view.read import at_terminal
from holdfast.client.client import Client
from holdfast.client.client import open as open_store
from holdfast.client.run import AgentInfo, Run
from holdfast.values.signature import refuse_object
from holdfast.words.budget import Budget


@dataclass(frozen=True, slots=True)
class Start:
    """What was typed."""

    agent: str
    strings: tuple[str, ...]
    named: dict[str, str]
    id: str | None
    labels: dict[str, str]
    after: str | None
    budget: str | None


async def start(url: str | None, wanted: Start, *, as_json: bool) -> None:
    """The command: the run's id alone goes to standard output, so that it can be piped."""
    async with at_terminal(open_store(url)) as hf:
        run = await _started(hf, wanted)
        info = await run.info()
        served = await hf.agents()
    if as_json:
        print_json({"run": info, "created": run.created})
        return
    begins = f" It begins at {when(round(info.due_at.timestamp() * 1000))}." if info.due_at is not None else ""
    say(f"{'Started' if run.created else 'There already:'} run {info.id} of {info.agent}.{begins}")
    if info.status == "ready" and not any(_serves(each, info.agent, info.version) for each in served):
        file = wanted.agent.rpartition(":")[0] or "FILE.py"
        say(f"No live worker serves {code_of(info)}. Start one:", "yellow", command("worker", file, db=url))
    answer(info.id)


def _serves(agent: AgentInfo, name: str, version: str | None) -> bool:
    return agent.name == name and agent.served and (version is None or version in agent.versions)


async def _started(hf: Client, wanted: Start) -> Run[Any]:
    options: dict[str, Any] = {
        "id": wanted.id, "labels": wanted.labels, "after": wanted.after,
        "budget": None if wanted.budget is None else Budget.parse(wanted.budget),
    }  # fmt: skip
    if ":" in wanted.agent or wanted.agent.endswith(".py"):
        agent = load_agent(wanted.agent)[1]
        given, by_name = agent.spec.signature.parse(wanted.strings, wanted.named)
        return await hf.start(agent, *given, kwargs=by_name, **options)
    known = {each.name: each.schema for each in await hf.agents()}.get(wanted.agent, {})
    args, kwargs = _values(known, wanted)
    return await hf.start(wanted.agent, *args, kwargs=kwargs, **options)


def _values(schema: dict[str, Any], wanted: Start) -> tuple[list[Any], dict[str, Any]]:
    """What was typed, as the published schema means it: a text where there is to be one, and JSON where not."""
    properties: dict[str, Any] = schema.get("properties", {})
    names = [*schema.get("x-positional", properties), *[""] * len(wanted.strings)]

    def meant(name: str, text: str) -> Any:
        return text if properties.get(name, {}).get("type") == "string" else value_of(text)

    if len(wanted.strings) == 1 and meant(names[0], wanted.strings[0]) == wanted.strings[0]:
        refuse_object(f"agent {wanted.agent!r}", wanted.strings[0], names[0], properties)
    places = zip(names, wanted.strings, strict=False)
    by_name = {name.replace("-", "_") if name not in properties else name: text for name, text in wanted.named.items()}
    return [meant(name, text) for name, text in places], {name: meant(name, text) for name, text in by_name.items()}

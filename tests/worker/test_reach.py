"""Which agents are served because another one's code uses them."""

import asyncio

import pytest

import holdfast
from holdfast.worker.agents import called_by


@holdfast.agent
async def deepest() -> None: ...


@holdfast.agent
async def deep() -> None:
    await deepest()


async def helper() -> None:
    await asyncio.gather(*(deep() for _ in range(2)))


@holdfast.agent
async def through_a_function() -> None:
    await helper()


TOOLS = {"deepest": deepest}


@holdfast.agent
async def through_a_container(name: str) -> None:
    await TOOLS[name]()


@holdfast.agent
async def through_spawn() -> None:
    await holdfast.spawn(deepest)


@holdfast.agent
async def itself(times: int) -> None:
    if times:
        await itself(times - 1)


def made_with(other):
    @holdfast.agent
    async def through_a_closure() -> None:
        await other()

    return through_a_closure


@pytest.mark.parametrize(
    ("agent", "expected"),
    [
        (through_a_function, {"deep", "deepest"}),
        (through_a_container, {"deepest"}),
        (through_spawn, {"deepest"}),
        (made_with(deepest), {"deepest"}),
        (itself, set()),
        (deepest, set()),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_agents_that_code_uses_are_found(agent, expected):
    """Agents are found through functions, containers, closures and each other; an agent does not find itself."""
    assert {spec.name for spec in called_by(agent.spec)} == expected


ELSEWHERE = """
import holdfast

@holdfast.agent
async def used() -> None: ...

@holdfast.agent
async def unused() -> None: ...
"""
USER = """
import elsewhere, holdfast

@holdfast.agent
async def user() -> None:
    await elsewhere.used()
"""


def test_an_attribute_of_a_module_is_found(tmp_path, monkeypatch):
    """`module.agent(...)` is followed into the module, and only what is named there is taken."""
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE)
    monkeypatch.syspath_prepend(tmp_path)
    scope = {}
    exec(USER, scope)
    assert [spec.name for spec in called_by(scope["user"].spec)] == ["used"]

"""Slips that everybody makes once: what the error says, or that it simply works."""

import asyncio
import inspect
import logging
import operator

import pytest
from tests.engine.lives import history

import holdfast
import holdfast.testing


@holdfast.step
async def number(n: int) -> int:
    return n


@holdfast.step
def plain(n: int) -> int:
    return n + 1


class Shop:
    @holdfast.step
    def price(self, n: int) -> int:
        return n * 2


SLIPS = {
    "+": lambda call: call + 1,
    "1 +": lambda call: 1 + call,
    "<": lambda call: call < 1,
    "[]": operator.itemgetter(0),
    "for": list,
    "in": lambda call: 1 in call,
    "-": operator.neg,
    "len": len,
    "int": int,
    "%": lambda call: call % 2,
}


@pytest.mark.parametrize("slip", SLIPS)
async def test_a_forgotten_await_in_an_expression_is_told(slip):
    """The error names the step and says what to write."""

    @holdfast.agent
    async def agent() -> object:
        return SLIPS[slip](number(1))

    async with holdfast.testing.open(agents=[agent]) as hf:
        with pytest.raises(
            holdfast.RunFailed, match=r"number\(\.\.\.\) was used in an expression without await.*await number"
        ):
            await hf.run(agent)
        assert hf.bodies[number] == 0


async def test_an_attribute_of_a_call_is_told():
    """`step().field` says that the value is there after await only; looking for an attribute stays harmless."""

    @holdfast.agent
    async def agent() -> str:
        call = number(1)
        assert not hasattr(call, "cr_code")
        assert inspect.isawaitable(call)
        await call
        return number(2).bit_length()

    async with holdfast.testing.open(agents=[agent]) as hf:
        with pytest.raises(holdfast.RunFailed, match=r"not awaited.*\(await number\(\.\.\.\)\)\.bit_length"):
            await hf.run(agent)


def test_a_note_has_fields_of_any_name(caplog):
    """Also one that is called like the parameter of `note`; and the text may be given by its name."""

    @holdfast.agent
    async def agent() -> None:
        await holdfast.note("said", text="field", data=1, self=2)
        await holdfast.note(text="by name", n=1)
        with pytest.raises(holdfast.BadArguments, match="one text"):
            await holdfast.note()
        with pytest.raises(holdfast.BadArguments, match="one text"):
            await holdfast.note("two", "texts")

    async def main():
        async with holdfast.testing.open(agents=[agent]) as hf:
            run = await hf.start(agent, id="r")
            await run.result(timeout=20)
            said = await history(run, "note")
            assert [event.data["text"] for event in said] == ["said", "by name"]
        with caplog.at_level(logging.INFO, "holdfast"):
            await holdfast.note("outside", text="field")

    asyncio.run(main())
    assert "outside {'text': 'field'}" in caplog.text


def test_a_plain_step_outside_a_run_is_a_plain_call():
    """A step written with `def` returns its value where no loop runs; in async code it is awaited, as in an agent."""
    assert plain(1) == 2
    assert Shop().price(4) == 8

    @holdfast.step
    def key() -> tuple[str, int]:
        return holdfast.idempotency_key(), holdfast.this_step().attempt

    assert key() != key()
    assert key()[1] == 1

    async def main():
        return await plain(1)

    assert asyncio.run(main()) == 2


async def test_nondeterminism_names_what_the_code_does_now():
    """The reason has both sides, and what to use instead of clocks and random numbers."""
    calls = [number, plain]

    @holdfast.agent
    async def agent() -> None:
        await asyncio.gather(calls[0](1), holdfast.receive("go"))

    async with holdfast.testing.open(agents=[agent]) as hf:
        run = await hf.start(agent, id="r")
        await run.wait("waiting", timeout=20)
        calls.reverse()
        await run.send("go", "x")
        with pytest.raises(holdfast.NondeterminismError) as caught:
            await run.result(timeout=20)
    told = str(caught.value)
    assert "number" in told
    assert "it now calls plain(" in told
    assert "'plain#0'" in told
    for name in ("holdfast.now()", "holdfast.rng()", "holdfast.uuid4()"):
        assert name in told


def test_an_error_of_the_store_has_one_traceback(tmp_path):
    """What the database said is in the message, so its own traceback is not printed before ours."""
    (tmp_path / "x.db").write_bytes(b"this is no database" * 100)

    async def main():
        async with holdfast.open(f"sqlite:{tmp_path}/x.db"):
            pass

    with pytest.raises(holdfast.StoreUnavailable) as caught:
        asyncio.run(main())
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__

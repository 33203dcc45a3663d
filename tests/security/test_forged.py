"""What nobody writes and somebody forges: values whose reading would take for ever are refused at once."""

import asyncio
import contextlib
import json
import time
from dataclasses import dataclass, field
from decimal import Decimal

import pytest
from tests.http.site import served

import holdfast
from holdfast import BadArguments, NotStorable
from holdfast.values import tagged
from holdfast.values.codec import UNTYPED, digest, shape_of
from holdfast.values.schema import check_value
from holdfast.values.signature import Signature

MODULUS = 2**61 - 1  # all multiples of it have one hash
COLLIDING = [n * MODULUS for n in range(20_000)]
FORGED = {
    "exponent": '{"$decimal":"1E+999999999"}',
    "small exponent": '{"$decimal":"1E-999999999"}',
    "digits": '{"$decimal":"' + "9" * 1_000_000 + '"}',
    "payload": '{"$decimal":"NaN' + "9" * 150_000 + '"}',
    "exponents together": json.dumps([{"$decimal": "1E-999999"}] * 20),
    "exponents in disguise": json.dumps([{"$decimal": "1E-999999"}] * 20).replace("$decimal", "\\u0024d\\u0065cimal"),
    "exponents that are noted": json.dumps({"$unset": [["a"], {"a": [{"$decimal": "1E+99999"}] * 20}]}),
    "set": json.dumps({"$set": COLLIDING}),
    "frozenset": json.dumps({"$frozenset": COLLIDING}),
    "map": json.dumps({"$map": [[n, 1] for n in COLLIDING]}),
    "tuples": json.dumps({"$set": [{"$tuple": [n]} for n in COLLIDING]}),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_value_is_refused_at_once(name):
    """Also where it is read as a whole number, of which it would have millions of digits."""
    began = time.thread_time()  # of the processor: a computer that is busy with other tests takes no more of it
    for shape in (UNTYPED, shape_of(int), shape_of(set[int]), shape_of(dict[int, int])):
        with pytest.raises(NotStorable):
            shape.load(FORGED[name])
    assert time.thread_time() - began < 3


@pytest.mark.parametrize("number", ["1E+999999", "1E-999999"])
def test_the_largest_decimal_is_read_in_time(number):
    """Pydantic tries it as a whole number, with all its digits, wherever the type takes one too."""
    shape = shape_of(int | Decimal)
    text = shape.store(Decimal(number))[0]
    began = time.thread_time()
    assert shape.load(text) == Decimal(number)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize("text", ['[1e999,{"a":1}]', '{"$map":[[-1e999,1]]}', '{"$of":["A",{"a":1e999}]}'])
def test_an_infinite_number_that_nobody_wrote_has_a_digest(text):
    assert len(digest(text)) == 32
    for read in (tagged.canonical, tagged.bare):
        with contextlib.suppress(NotStorable):
            read(text)


def test_what_cannot_be_read_is_not_written():
    """And what any computation gives is both."""
    many = [Decimal("1E+9999")] * 200
    for value in (
        Decimal("1E+9999999"),
        Decimal("9" * 200_000),
        set(COLLIDING[:200]),
        dict.fromkeys(COLLIDING[:200]),
        many,
    ):
        with pytest.raises(NotStorable):
            UNTYPED.store(value)
    for value in (
        Decimal("1E+999999"),
        Decimal("-1.5E-999990"),
        Decimal("Infinity"),
        [Decimal("1E+999")] * 5000,
        set(range(50_000)),
        {1: 1, "1": 2},
    ):
        assert UNTYPED.store(value)[1] == value


@pytest.mark.parametrize(("hint", "value"), [(set[int], COLLIDING), (dict[int, int], {str(n): 1 for n in COLLIDING})])
def test_a_document_cannot_bring_them_either(hint, value):
    """It would be the worker that makes a set of them."""
    with pytest.raises(BadArguments, match="one hash"):
        check_value(shape_of(hint).schema(), value, "it")
    check_value(shape_of(hint).schema(), dict.fromkeys("123", 1) if type(value) is dict else [1, 2, 3], "it")


def test_arguments_that_cannot_be_read_together_are_not_taken():
    """Each of them could be."""

    async def take(*prices: Decimal, **more: Decimal) -> None: ...

    large, signature = Decimal("1E+999999"), Signature(take)
    assert signature.load(signature.bind([large], {"b": Decimal("1E+999")}).text)
    for args, kwargs in (([large] * 2, {}), ([large], {"a": large}), ([], {"a": large, "b": large})):
        with pytest.raises((BadArguments, NotStorable), match="exponents"):
            signature.bind(args, kwargs).text  # noqa: B018


def test_keys_that_look_alike_are_told_apart():
    assert tagged.read(tagged.write({1: "one", "1": "uno"})) == {1: "one", "1": "uno"}


BEYOND = ["1E+999999999", "1E+9999999999999", "1E-999999999", "1_0E+9_99_99_99", "9" * 200_000]


@dataclass
class Bill:
    amount: Decimal
    parts: list[Decimal] = field(default_factory=list)


@holdfast.agent(name="forged.pay")
async def pay(amount: Decimal, way: str = "ends") -> str:
    if way == "asks":
        return repr(await holdfast.ask("How much?", Decimal))
    if way == "edits":
        return repr((await holdfast.approve("Pay?", show=Bill(amount), edit=True)).data)
    if way == "receives":
        return repr(await holdfast.receive("amount", Decimal))
    return repr(amount)


@pytest.mark.parametrize("text", BEYOND, ids=lambda text: text[:20])
def test_no_text_becomes_a_decimal_that_is_never_written(text):
    """Whatever has the text of a decimal: the worker reads it no more than it reads one that was stored as such."""
    for shape, data in ((Decimal, text), (Bill, {"amount": text}), (Bill, {"amount": "1", "parts": [text]})):
        with pytest.raises(NotStorable, match="an exponent up to 999,999"):
            shape_of(shape).load(json.dumps(data))
    assert shape_of(Decimal | str).load(json.dumps(text)) == text  # as a text it is fine
    with pytest.raises(NotStorable, match="too many large ones"):
        shape_of(Bill).load(json.dumps({"amount": "1", "parts": ["1E+99999"] * 20}))


async def test_no_document_brings_such_a_decimal_to_a_worker(tmp_path):
    """A start, an edit and an answer are refused where they are made, and what was asked stays open; a message is not read."""
    async with asyncio.timeout(60), served(f"sqlite:{tmp_path}/runs.db", agents=[pay]) as site:
        questions = {}
        for way in ("asks", "edits", "receives"):
            run = await site.start("forged.pay", "12.50", way, id=way)
            if way != "receives":
                questions[way] = await site.hf.get(run).wait_for_question()
        for text in BEYOND:
            told = await site.post("/api/runs", {"agent": "forged.pay", "args": [text]}, 422)
            assert "an exponent up to 999,999" in told["error"]["message"]
            edit = {"decision": "approve", "data": {"amount": text, "parts": []}}
            for way, said in (("asks", {"decision": "answer", "value": text}), ("edits", edit)):
                question = questions[way]
                told = await site.post(f"/api/approvals/{question.id}", {**said, "digest": question.digest}, 422)
                assert "an exponent up to 999,999" in told["error"]["message"]
                assert (await site.hf.approval(question.id)).status == "open"
        many = {"amount": "1", "parts": ["1E+99999"] * 20}
        edit = {"decision": "approve", "digest": questions["edits"].digest, "data": many}
        await site.post(f"/api/approvals/{questions['edits'].id}", edit, 422)
        assert len(await site.hf.runs()) == 3
        await site.post("/api/runs/receives/send", {"topic": "amount", "value": BEYOND[0]})
        with pytest.raises(holdfast.HoldfastError, match="an exponent up to 999,999"):
            await site.hf.get("receives").result()

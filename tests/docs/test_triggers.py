"""The blocks of docs/triggers.md, run as they stand there."""

import asyncio
import re
import sys

from tests.docs.pages import between, module, page

import holdfast.testing
from holdfast import Verify

PAGE = "docs/triggers.md"


def test_declare_and_test(monkeypatch):
    monkeypatch.setitem(sys.modules, "agents", module(PAGE, "triggers: declare"))
    asyncio.run(module(PAGE, "triggers: test").test_the_morning())


def test_announcements(monkeypatch):
    announce, gather = module(PAGE, "triggers: announce"), module(PAGE, "triggers: gather")
    announce.index = gather.index
    monkeypatch.setitem(sys.modules, "agents", announce)
    tests = module(PAGE, "triggers: test announcements")
    asyncio.run(tests.test_an_order())
    asyncio.run(tests.test_the_index())


def test_a_list_of_announcements():
    bill = module(PAGE, "triggers: gather").bill

    async def main():
        async with holdfast.testing.open(agents=[bill]) as hf:
            for amount in (1, 2, 4):
                await hf.publish("order.paid", {"amount": amount})
            await hf.advance("5s")
            (run,) = await hf.runs(agent="bill")
            assert await hf.get(run.id).result() == 7

    asyncio.run(main())


def test_make():
    morning = module(PAGE, "triggers: declare").morning

    async def main():
        async with holdfast.testing.open(agents=[morning]) as hf:
            at = await module(PAGE, "triggers: make").weekly(hf, "sales")
            assert at.weekday() == 0
            await hf.advance("8 days")
            info = await hf.get_schedule("weekly-sales").info()
            assert await hf.get(info.last_run).result() == "What sales did."

    asyncio.run(main())


def test_fire_messages_and_files(monkeypatch, tmp_path):
    agents = module(PAGE, "triggers: queue")
    agents.inbox = module(PAGE, "triggers: files").inbox
    monkeypatch.setitem(sys.modules, "agents", agents)
    tests = module(PAGE, "triggers: fire")
    asyncio.run(tests.test_an_order())
    asyncio.run(tests.test_a_file(tmp_path))


def test_webhook(monkeypatch):
    monkeypatch.setitem(sys.modules, "issues", module(PAGE, "triggers: webhook"))
    asyncio.run(module(PAGE, "triggers: test webhook").test_an_issue())


def test_the_table_of_schemes_says_what_verifiers_do():
    """What the matrix of tests/http/test_webhooks.py proves of each, in the words of the page."""
    rows = {}
    for line in between(page(PAGE), "schemes").strip().splitlines()[2:]:
        scheme, signs, id, window = (cell.strip() for cell in line.strip("|").split("|"))
        rows[scheme.partition("`")[2].partition("`")[0].removeprefix("Verify.")] = signs, id, window
    assert set(rows) == {"standard", "github", "stripe", "slack", "hmac", "bearer"}
    for each in (Verify.standard("env:A"), Verify.github("env:A"), Verify.stripe("env:A"), Verify.slack("env:A")):
        signs, id, window = rows[each.scheme]
        named = {"{body}": "body", "{timestamp}": "time", "{id}": "id"}
        words = set(re.findall(r"\w+", signs.partition(";")[0]))
        assert words == {word for place, word in named.items() if place in each.signed}, each
        assert (each.id or "in the body") in id.lower(), each
        assert window == ("5 min" if "{timestamp}" in each.signed else "never"), each

"""One value that is hard to show hides no other: every list has all its rows, in Python, on the command line and over HTTP."""

import asyncio
import json
import re
from datetime import datetime, timedelta, timezone

import httpx2
import pytest
from tests.workers import Worker, bearer

import holdfast
from holdfast.client.approvals import Room


def nested(levels):
    value = []
    for _ in range(levels):
        value = [value]
    return value


HOUR = timedelta(hours=1)
HARD = {
    "digits": 10**5000,
    "keys": {1: "one", "1": "uno", 10**5000: "many", (1, 2): "pair"},
    "half": "\ud800 and \udfff",
    "deep": nested(190),
    "large": "x" * 100_000,
    "wide": list(range(20_000)),
    "set": {frozenset({1}), frozenset({10**5000})},
    "ends": [datetime.min.replace(tzinfo=timezone(HOUR)), datetime.max.replace(tzinfo=timezone(-HOUR))],
    "odd": [float("nan"), float("inf"), b"\xff", complex(1, 2), 1e300],
}


@holdfast.agent
async def asks(name: str) -> None:
    await holdfast.approve(f"May {name}?", show=HARD.get(name, name))


@holdfast.agent
async def edits() -> None:
    await holdfast.approve("May I?", show="this", edit=True, needs=2)


@holdfast.agent
async def takes(name: str, value: object) -> object:
    async with holdfast.conversation("talk") as talk:
        await talk.add({"name": name, "value": value})
    async with holdfast.stream("answer") as out:
        await out.write(name)
    await holdfast.note(name)
    return [await holdfast.receive("value"), await holdfast.ask("What?", object)]


AGENTS = [asks, takes]
COMMANDS = [
    ["runs"], ["runs", "--json"], ["approvals"], ["approvals", "--json"], ["audit"], ["audit", "--json"], ["conversations"],
    ["conversations", "--json"], ["conversations", "talk"], ["conversations", "talk", "--json"], ["tail", "--no-follow"],
    ["tail", "--no-follow", "--json"],
]  # fmt: skip


def fill(url):
    """A store in which each hard value was shown, said, sent and answered, beside easy ones."""

    async def main():
        async with holdfast.open(url, agents=AGENTS) as hf:
            for name in ["first", *HARD, "last"]:
                await hf.start(asks, name, id=f"asks-{name}")
                run = await hf.start(takes, name, HARD.get(name, name), id=f"takes-{name}")
                await run.send("value", HARD.get(name, name))
                await run.wait("waiting", timeout="30s")
                while not (found := await run.approvals()):
                    await asyncio.sleep(0.01)
                await hf.answer(found[0], HARD.get(name, name), by="ana")
                await run.wait("completed", timeout="30s")
                await hf.get(f"asks-{name}").wait("waiting", timeout="30s")

    asyncio.run(main())
    return url


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return fill(f"sqlite:{tmp_path_factory.mktemp('lists') / 'runs.db'}?durability=process")


NAMES = ["first", *HARD, "last"]


def test_python_lists_everything(filled):
    """The values themselves, for they are what the agent showed."""
    check_python(filled)


def check_python(filled):
    async def main():
        async with holdfast.open(filled) as hf:
            shown = {each.run: each.shown for each in await hf.approvals()}
            for name in NAMES:
                if name != "odd":  # a nan equals nothing
                    assert shown[f"asks-{name}"] == HARD.get(name, name)
            assert len(await hf.runs()) == 2 * len(NAMES)
            assert len([deed for deed in await hf.audit() if deed.action == "answer"]) == len(NAMES)
            assert len(await hf.conversation("talk").messages()) == len(NAMES)

    asyncio.run(main())


def test_commands_list_everything(filled, commands, tmp_path):
    """None ends in a traceback, each has all rows, and no value takes more than a page of it."""
    many = [
        *COMMANDS,
        *(["show", f"takes-{name}", *more] for name in ("digits", "keys", "half") for more in ([], ["--json"])),
    ]
    for words in many:
        process = Worker(commands.start([*words, "--db", filled], tmp_path, {}))
        code, told = process.ended(), process.said()
        assert code == 0, (words, told[-2000:])
        assert "Traceback" not in told
        if words[-1] == "--json":
            for line in [told] if words[0] != "tail" else told.splitlines():
                json.loads(line)
        elif words[0] in ("approvals", "runs"):
            assert all(f"asks-{name}" in told for name in NAMES), words
            assert len(told) < 200_000, (words, len(told))


def test_a_server_lists_everything(filled, commands, tmp_path):
    """Each row is there; what is too large for a list is told by its beginning, and is whole where it is asked for alone."""
    check_server(filled, commands, tmp_path)


@pytest.mark.nightly
def test_so_it_is_on_postgres(postgres_url, commands, tmp_path):
    check_python(fill(postgres_url))
    check_server(postgres_url, commands, tmp_path)


def check_server(filled, commands, tmp_path):
    server = Worker(commands.start(["serve", "--port", "0", "--db", filled], tmp_path, {}))
    try:
        address = re.search(r"http://[\d.]+:\d+", server.until("Serving"))[0]
        with httpx2.Client(base_url=address, timeout=20, headers=bearer(filled)) as web:

            def get(path):
                answer = web.get(path)
                assert answer.status_code == 200, (path, answer.text[:500])
                return answer

            whole = get("/api/approvals")
            assert len(whole.content) < 1_200_000
            listed = {each["run"]: each for each in whole.json()["approvals"]}
            assert listed.keys() == {f"asks-{name}" for name in NAMES}
            assert listed["asks-digits"]["shown"] == {"$int": hex(10**5000)}
            keys = [["1", "one"], ["1", "uno"]]
            assert [[str(key), item] for key, item in listed["asks-keys"]["shown"]["$map"][:2]] == keys
            assert listed["asks-large"]["shown"] == {"$cut": "a value of more than 64 KiB"}
            one = get(f"/api/approvals/{listed['asks-large']['id']}").json()["approval"]
            assert one["shown"] == HARD["large"]
            for path in ("/api/runs?limit=1000", "/api/runs?search=xxx"):
                assert len(get(path).content) < 500_000
            for name in NAMES:
                for part in ("", "/result", "/events", "/streams/answer"):
                    get(f"/api/runs/takes-{name}{part}")
    finally:
        server.kill()


async def test_what_is_for_lists_is_bounded(tmp_path):
    """Labels and the keys of messages; and what is inline in a thousand rows is told by its beginning when it is too much."""
    async with holdfast.open(f"sqlite:{tmp_path / 'runs.db'}", agents=AGENTS) as hf:
        for labels in ({str(n): "" for n in range(65)}, {"a" * 201: ""}, {"a": "b" * 201}):
            with pytest.raises(holdfast.BadArguments, match="at most"):
                await hf.start(asks, "x", labels=labels)
        run = await hf.start(asks, "first", labels={str(n): "b" * 200 for n in range(64)})
        with pytest.raises(holdfast.BadArguments, match="at most 1000"):
            await run.send("topic", 1, key="k" * 1001)
        await run.wait("waiting", timeout="20s")
        ((seen,), _) = await hf._listed(Room(5), run=None, to=None, open=True, limit=9)
        assert seen.shown == {"$cut": "'first'"}
        assert (await hf.approval(seen.id)).shown == "first"


async def test_what_is_said_to_a_question_is_bounded(store_url):
    """Who passes it on to themselves or changes it without end stops when it is a million characters; others agree and end it."""
    async with holdfast.open(store_url, agents=[edits]) as hf:
        run = await hf.start(edits, id="e")
        question = await run.wait_for_question(timeout="20s")
        for _ in range(16):
            seen = await hf.delegate("e", to="eve", by="eve", note="\x01" * 10_000)
        with pytest.raises(holdfast.BadArguments, match="so often"):
            await hf.delegate("e", to="eve", by="eve", note="\x01" * 10_000)
        with pytest.raises(holdfast.BadArguments, match="so often"):
            await hf.approve(seen, by="eve", data="other", note="\x01" * 10_000)
        ((listed,), _) = await hf._listed(Room(50_000), run=None, to=None, open=True, limit=9)
        assert sum(len(each.note) for each in listed.delegations) < 60_000
        await hf.approve(question, by="ana", note="n" * 10_000)
        assert (await hf.approve(question, by="ben")).status == "decided"

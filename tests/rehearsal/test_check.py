"""Checks: which runs stop a deploy, which are only told, and which are left out."""

import asyncio
import json
import sys

import pytest
from click.testing import CliRunner
from tests.rehearsal.agents import look, pay, shop

import holdfast
import holdfast.testing
from holdfast.cli import main
from holdfast.rehearsal import replay

CODE = """
import asyncio

import holdfast
from tests.rehearsal.agents import look, pay


@holdfast.agent
async def shop(item: str) -> str:
    order = await look(item)
    receipt = await pay(order)
    answer = await holdfast.approve("Send it?", show=receipt)
    return f"{receipt}, {'sent' if answer else 'kept'}"
"""


@pytest.fixture
def url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:{tmp_path}/runs.db")
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys"))
    for name in ("fitting", "ending", "raw", "empty", "other"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "fitting.py").write_text(CODE)
    (tmp_path / "ending.py").write_text(CODE.replace("return f", "return 'now ' + f"))
    (tmp_path / "raw.py").write_text(
        CODE.replace("order = await look", "while True:\n        await asyncio.sleep(0)\n    order = await look")
    )
    (tmp_path / "empty.py").write_text(CODE.replace("async def shop", "async def nobody"))
    (tmp_path / "other.py").write_text(CODE.replace("await look(item)", "await look(item + '!')"))
    return f"sqlite:{tmp_path}/runs.db"


def call(*words):
    return CliRunner().invoke(main, list(words), prog_name="holdfast")


def hurried(app, monkeypatch):
    """Wait for less long for code that loops for ever; other code has all the time it needs."""
    if app == "raw.py":
        monkeypatch.setattr(replay, "LIMIT_S", 1.0)


async def waiting(hf, name):
    run = await hf.start(shop, "kettle", id=name)
    await run.wait("waiting")
    return run


async def sold(hf, name):
    run = await waiting(hf, name)
    await hf.approve(await run.wait_for_question(), by="ana")
    await run.result()


def checked(*words):
    """The exit code of a check, what it prints, and the verdict of each run."""
    said, told = call("check", *words), call("check", *words, "--json")
    document = json.loads(told.stdout)
    assert said.exit_code == told.exit_code
    assert document["fits"] is (said.exit_code == 0)
    return said.exit_code, said.stdout, {run["run"]: run["verdict"] for run in document["runs"]}


@pytest.mark.parametrize("app", ["raw.py", "empty.py"])
def test_an_unfinished_run_that_cannot_be_told_or_has_no_code_stops_the_deploy(url, app):
    with holdfast.sync.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        hf.start(shop, "kettle", id="waits").wait("waiting")
    code, said, verdicts = checked(app, "--timeout", "1s")
    assert (code, verdicts) == (1, {"waits": {"raw.py": "unsure", "empty.py": "unknown"}[app]})
    assert "waits  shop  " + {"raw.py": "cannot be told", "empty.py": "has no code here"}[app] in said


@pytest.mark.parametrize(("app", "verdict", "says"), [
    ("empty.py", "unknown", "1 of agents without code here"), ("ending.py", "differs", "nothing is to be done"),
])  # fmt: skip
def test_a_finished_run_without_code_or_with_another_end_is_told_and_stops_nothing(url, app, verdict, says):
    with holdfast.sync.open(url, agents=[shop]) as hf:
        run = hf.start(shop, "kettle", id="over")
        hf.approve(run.wait_for_question(), by="ana")
        run.result()
    code, said, verdicts = checked(app)
    assert (code, verdicts) == (0, {"over": verdict})
    assert says in said


def test_a_run_that_was_moved_is_left_out(url, tmp_path):
    holdfast.Keys().new("ana")
    with holdfast.sync.open(f"sqlite:{tmp_path}/there.db") as there:
        store = there.store_id()
    with holdfast.sync.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        run = hf.start(shop, "kettle", id="gone")
        run.wait("waiting")
        run.export("gone.bundle", move=store)
    for words in (("other.py",), ("other.py", "--run", "gone")):
        code, _, verdicts = checked(*words)
        assert (code, verdicts) == (0, {})


async def test_forks_retried_runs_and_copies_are_replayed(url, tmp_path):
    """Each has a history that began elsewhere, or that was cut; the code is held against all of it."""
    broken = [True]

    @holdfast.step
    async def weak(text: str) -> str:
        if broken[0]:
            raise ValueError(text)
        return text

    @holdfast.agent
    async def fragile(item: str) -> str:
        order = await look(item)
        text = await weak(await pay(order))
        await holdfast.receive("go", str)
        return text

    code = [shop, fragile]
    holdfast.Keys().new("ana")
    async with holdfast.open(url, agents=code, settings=holdfast.Settings(park_grace_s=0)) as hf:
        run = await waiting(hf, "first")
        await run.export("first.bundle")
        fork = await run.fork(at="pay#0", effects="new", id="fork")
        await fork.wait("waiting")
        again = await fork.fork(at="look#0", effects="new", id="fork-of-fork")
        await again.wait("waiting")
        failed = await hf.start(fragile, "pot", id="retried")
        await failed.wait("failed")
        broken[0] = False
        await failed.retry(at="pay#0", effects="new")
        await failed.wait("waiting")
        found = (await hf.check(code)).replays
    there = f"sqlite:{tmp_path}/there.db"
    async with holdfast.open(there, agents=code, settings=holdfast.Settings(park_grace_s=0)) as hf:
        await hf.import_run("first.bundle", id="copy")
        await hf.get("copy").wait("waiting")
        found += (await hf.check(code)).replays
    runs = {"first", "fork", "fork-of-fork", "retried", "copy"}
    assert {each.run: (each.verdict, each.reason) for each in found} == dict.fromkeys(runs, ("fits", ""))
    assert all(each.seen == each.of > 1 for each in found)

    @holdfast.agent(name="shop")
    async def other(item: str) -> str:
        return await pay(await look(item + "!"))

    parted = set()
    for place in (url, there):
        async with holdfast.open(place) as hf:
            parted |= {each.run for each in (await hf.check([other, fragile])).found}
    assert parted == runs - {"retried"}


async def test_a_question_that_is_another_is_told_as_what_it_is(url):
    async with holdfast.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        await waiting(hf, "waits")

    def version(question, shown):
        @holdfast.agent(name="shop")
        async def code(item: str) -> str:
            receipt = await pay(await look(item))
            return str(await holdfast.approve(question, show=f"{receipt}{shown}"))

        return code

    async with holdfast.open(url) as hf:
        (same,) = (await hf.check([version("Send it?", "")])).replays
        (text,) = (await hf.check([version("Send it now?", "")])).found
        (shown,) = (await hf.check([version("Send it?", "!")])).found
    assert same.fits
    assert (text.verdict, text.present) == ("diverges", "the code now asks 'Send it now?' there, and not 'Send it?'")
    assert shown.verdict == "diverges"
    assert "paid 6!" in shown.present


async def test_an_agent_that_swallows_cancellation_keeps_no_check_from_coming_back(url):
    async with holdfast.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        await waiting(hf, "waits")

    @holdfast.agent(name="shop")
    async def stubborn(item: str) -> str:
        while True:
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                await asyncio.sleep(0)

    async with holdfast.open(url) as hf, asyncio.timeout(30):
        (found,) = (await hf.check([stubborn])).found
    assert found.verdict in ("diverges", "unsure")
    assert "test_check.py" in found.line
    left = [task for task in asyncio.all_tasks() if "stubborn" in repr(task)]
    assert not left  # nothing that would keep the loop from ending


async def test_a_rehearsal_has_an_end_whatever_the_code_does(url):
    async with holdfast.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        await sold(hf, "over")

    @holdfast.agent(name="shop")
    async def polls(item: str) -> str:
        while True:
            await asyncio.sleep(0)

    @holdfast.agent(name="shop")
    async def sleeps(item: str) -> str:
        while True:
            await holdfast.sleep("1h")

    @holdfast.agent(name="shop")
    async def stubborn(item: str) -> str:
        while True:
            try:
                await asyncio.sleep(0.01)
            except BaseException:
                await asyncio.sleep(0)

    async with holdfast.open(url) as hf, asyncio.timeout(60):
        for code in (polls, sleeps, stubborn):
            (found,) = await holdfast.testing.rehearse(hf, ["over"], [code], timeout=0.5)
            assert "not at its end after 0.5 s" in found.stopped, code
        with pytest.raises(holdfast.BadArguments, match="not a duration"):
            await holdfast.testing.rehearse(hf, ["over"], [shop], timeout=-1)


@pytest.mark.parametrize(("app", "code", "says"), [
    ("fitting.py", 0, "The code fits run comes: 2 of 2 outcomes seen"), ("other.py", 1, "The code does not fit run comes"),
    ("raw.py", 1, "It cannot be told whether run comes would go on"), ("empty.py", 1, "there is no code for agent 'shop'"),
])  # fmt: skip
def test_a_dry_import_says_of_each_run_whether_the_code_fits(url, tmp_path, app, code, says, monkeypatch):
    hurried(app, monkeypatch)
    holdfast.Keys().new("ana")
    with holdfast.sync.open(url, agents=[shop], settings=holdfast.Settings(park_grace_s=0)) as hf:
        run = hf.start(shop, "kettle", id="comes")
        run.wait("waiting")
        run.export("comes.bundle")
    dry = ("import", "comes.bundle", "--dry-run", "--db", f"sqlite:{tmp_path}/there.db", "--code", app)
    found = call(*dry)
    assert (found.exit_code, says in " ".join(found.output.split())) == (code, True), found.output
    told = call(*dry, "--json")
    assert (told.exit_code, len(json.loads(told.stdout)["replays"])) == (code, 1)
    assert call(*dry[:-2]).exit_code == 0  # no code, nothing to hold against it

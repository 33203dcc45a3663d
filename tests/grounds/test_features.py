"""What a ground lacks is not offered, and whoever asks for it all the same is told why in words for people."""

import ast
import asyncio
import inspect
import re
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from click.testing import CliRunner
from tests.cells import own_cells_url, own_servers  # noqa: F401 - fixtures
from tests.chaos.server import free_port
from tests.grounds import scenes
from tests.temporal import cluster, own_cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.temporal.gaps import BESIDE, GAPS, lacked
from holdfast.backends.temporal.store import TemporalStore
from holdfast.cli import main
from holdfast.store.store import Store

QUICK = holdfast.Settings(lease_ttl_s=3.0)
SOURCES = Path(holdfast.__file__).parent
# What is said to nobody: names of methods, and of what is inside.
INNER = re.compile(r"\b[a-z]+_[a-z_]+\b(?!=|\()|what is to be written")


@pytest.fixture
def beside(temporal_url, postgres_url):  # noqa: F811
    return f"{temporal_url}&side={quote(postgres_url, safe='')}"


def command(*words, db):
    return CliRunner().invoke(main, [*words, "--db", db], prog_name="holdfast")


def test_what_clients_write_is_done_on_a_cluster_or_refused_with_words():
    """What the client calls of a store, and what writes, is the cluster's own, the side's, or in the table of gaps."""
    called = set()
    for file in (SOURCES / "client").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                called.add(node.func.attr)
    known = {name for gap in (*GAPS.values(), *BESIDE.values()) for name in gap.operations}
    left = []
    for name in sorted(called):
        own = getattr(Store, name, None)
        if own is None or name.startswith("_") or getattr(TemporalStore, name) is not own or name in known:
            continue
        if "_submit" in inspect.getsource(own):
            left.append(name)
    assert left == []


@pytest.mark.parametrize("side", [True, False])
def test_a_gap_names_the_ground_and_what_to_do_instead(side):
    for feature, told in lacked("temporal://host:7233/ns", side=side).items():
        assert "'temporal://host:7233/ns' is a Temporal cluster, which has no " in told, feature
        assert len(told.partition(". ")[2]) > 20, feature
        assert not INNER.search(told), feature


@pytest.mark.slow
def test_commands_say_what_a_cluster_lacks_and_invite_to_nothing_of_it(beside):
    for words, lacks in (("schedules", "schedules"), ("triggers", "triggers"), ("notify", "notifications")):
        told = command(words, db=beside)
        assert told.exit_code == 2, told.output
        assert f"is a Temporal cluster, which has no {lacks}." in " ".join(told.output.split())
        assert "declare" not in told.output
        assert "changes that" not in told.output
    refused = {
        ("notify", "ops", "--to", "https://127.0.0.1/x", "--kind", "run.failed", "--format", "slack"): "notifications",
        ("publish", "news", "1"): "announcements",
        ("prune", "--older-than", "1d"): "deletion of runs",
        ("prune", "--older-than", "1d", "--dry-run"): "deletion of runs",
        ("backup", "x.db"): "backups of Holdfast's",
    }
    for words, lacks in refused.items():
        told = command(*words, db=beside)
        assert told.exit_code == 2, told.output
        assert f"is a Temporal cluster, which has no {lacks}." in " ".join(told.output.split()), told.output
        assert not INNER.search(told.output), told.output


@pytest.mark.slow
def test_a_cluster_without_a_side_says_what_one_would_add(temporal_url, tmp_path):  # noqa: F811
    for words in (("token", "ann"), ("audit",), ("conversations",), ("tail",)):
        told = command(*words, db=temporal_url)
        assert told.exit_code == 2, told.output
        assert "?side=postgresql://" in told.output
        assert not INNER.search(told.output), told.output


@pytest.mark.slow
def test_a_server_that_could_let_nobody_in_does_not_begin(temporal_url):  # noqa: F811
    told = command("serve", "--port", "0", db=temporal_url)
    assert told.exit_code == 2
    assert "Serving" not in told.output
    assert "hf.asgi(auth=...)" in told.output


@pytest.mark.slow
@pytest.mark.parametrize("with_side", [True, False])
def test_the_doctor_examines_a_cluster(beside, temporal_url, with_side):  # noqa: F811
    url = beside if with_side else temporal_url
    told = command("doctor", db=url)
    assert told.exit_code == 0, told.output
    assert "nothing is wrong" in told.output
    assert "Temporal " in told.output
    assert ("PostgreSQL" in told.output) == with_side
    document = command("doctor", "--json", db=url)
    assert '"durability": "cluster"' in document.output


@pytest.mark.slow
async def test_runs_of_a_cluster_do_not_damage_the_database_beside_it(beside, postgres_url, tmp_path):
    """What lies there of a run are copies; also of one that went to the cluster from there."""
    holdfast.Keys(keys := tmp_path / "keys").new("ops")
    async with holdfast.open(postgres_url, agents=[scenes.paused], settings=QUICK) as hf:
        goes = await hf.start(scenes.paused, id="goes")
        await goes.wait("waiting", waits_for="message", timeout="60s")
        async with holdfast.open(beside, agents=[scenes.paused, scenes.sequential], settings=QUICK) as other:
            await goes.export(file := tmp_path / "goes.bundle", move=await other.store_id(), keys=keys)
            await other.import_run(file, keys=keys)
            await other.get("goes").send("go", "now")
            await other.get("goes").result(timeout="60s")
            await (await other.start(scenes.sequential, 2, id="there")).result(timeout="60s")
        for run in ("goes", "there"):
            copied = [event.seq async for event in hf.get(run).events(follow=False)]
            assert copied == list(range(len(copied))), run
        with pytest.raises(holdfast.RunFinished, match="with the URL of the cluster"):
            await hf.get("there").cancel()
    for url in (beside, postgres_url):
        told = await asyncio.to_thread(command, "doctor", db=url)
        assert told.exit_code == 0, told.output
        assert "nothing is wrong" in told.output


@pytest.mark.postgres
async def test_the_doctor_still_finds_a_run_that_lacks_events(postgres_url):
    async with holdfast.open(postgres_url, agents=[scenes.sequential], settings=QUICK) as hf:
        await (await hf.start(scenes.sequential, 2, id="whole")).result(timeout="60s")
        await hf.store._submit(_lose_one)
        assert (await hf.store.facts())["integrity"].startswith("1 runs have")


def _lose_one(tx):
    yield from tx.rows("delete_events", run="whole")


@pytest.mark.slow
def test_the_doctor_tells_a_cell_that_is_down_from_one_that_is_damaged(own_cells_url, own_servers):  # noqa: F811
    """Nothing is lost with it: nobody need stop a worker, or restore a backup."""
    assert "nothing is wrong" in command("doctor", db=own_cells_url).output
    for name in "ba":  # the second, then the first of the file, which has the tokens
        own_servers[name].kill()
        told = command("doctor", db=own_cells_url)
        assert told.exit_code == 1, told.output
        assert f"cell {name} is down" in told.output
        assert "all others go on" in " ".join(told.output.split())
        assert "damaged" not in told.output
        assert "restore" not in told.output
        own_servers[name].start(("shared_buffers=32MB",))


@pytest.mark.slow
async def test_a_caller_is_told_what_the_store_lacks(beside):
    async with holdfast.open(beside) as hf:
        transport = httpx2.ASGITransport(app=hf.asgi(auth=lambda _: holdfast.Actor("ann")))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
            me = (await web.get("/api/me")).json()
            assert me["store"] == "temporal"
            assert me["lacks"] == sorted(GAPS)
            refused = (await web.get("/api/fleet")).json()["error"]
            assert refused["code"] == "unsupported"
            assert refused["message"].startswith("the store is a Temporal cluster, which has no overview of the fleet.")


@pytest.mark.slow
async def test_a_server_is_not_ready_while_its_cluster_is_away(own_cluster):  # noqa: F811
    async with holdfast.open(own_cluster.url()) as hf:
        transport = httpx2.ASGITransport(app=hf.asgi(auth=lambda _: holdfast.Actor("ann")))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as web:
            assert (await web.get("/readyz")).status_code == 200
            own_cluster.kill()
            away = await web.get("/readyz")
            assert (away.status_code, away.json()["status"]) == (503, "unavailable")
            assert (await web.get("/healthz")).status_code == 200


@holdfast.agent
async def announces() -> None:
    await holdfast.publish("news", 1)


@pytest.mark.slow
async def test_a_run_that_uses_what_its_ground_lacks_is_paused_since_then_and_can_be_ended(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[announces], settings=QUICK) as hf:
        run = await hf.start(announces, id="lacks")
        with pytest.raises(holdfast.RunPaused, match="an announcement"):
            await run.result(timeout="120s")
        began = (await run.info()).created_at
        (need,) = [need for need in (await hf.needs()).needs if need.run == "lacks"]
        assert (need.kind, need.since >= began) == ("paused", True)
        told = await asyncio.to_thread(command, "runs", "--stuck", db=temporal_url)
        assert "holdfast cancel lacks" in told.output
        assert "holdfast resume" not in told.output


@holdfast.step
async def streams(text: str) -> str:
    async with holdfast.stream("words") as out:
        await out.write(text)
    return text


@holdfast.step
async def tells_all() -> None:
    await holdfast.publish("news", 1)


@holdfast.agent
async def streams_in_a_step() -> str:
    return await streams("hello")


@holdfast.agent
async def announces_in_a_step() -> None:
    await tells_all()


@holdfast.agent
async def streams_itself() -> str:
    async with holdfast.stream("words") as out:
        await out.write("hello")
    return "hello"


@pytest.mark.slow
async def test_a_run_whose_step_uses_what_its_ground_lacks_is_paused_and_told_what_helps(temporal_url, tmp_path):  # noqa: F811
    agents = [streams_in_a_step, announces_in_a_step, streams_itself]
    async with holdfast.open(temporal_url, agents=agents, settings=QUICK) as hf:
        for agent, why, advice in (
            (streams_in_a_step, "its step 'streams' uses a stream", "holdfast resume"),
            (announces_in_a_step, "its step 'tells_all' uses an announcement", "holdfast cancel"),
            (streams_itself, "its agent uses a stream", "holdfast cancel"),
        ):
            run = await hf.start(agent, id=agent.name)
            with pytest.raises(holdfast.RunPaused, match=why):
                await run.result(timeout="60s")
            told = await asyncio.to_thread(command, "show", run.id, db=temporal_url)
            assert f"{advice} {run.id}" in told.output
    async with holdfast.open(f"{temporal_url}&side=sqlite:{tmp_path}/side.db", agents=agents, settings=QUICK) as hf:
        run = hf.get("streams_in_a_step")
        await run.resume()
        assert await run.result(timeout="60s") == "hello"
        again = hf.get("streams_itself")
        await again.resume()
        with pytest.raises(holdfast.RunPaused, match="for runs that are started with it"):
            await again.result(timeout="60s")
        assert [event.kind async for event in again.events(follow=False)] == [
            "run.resumed"
        ]  # and no stream that has no text


@holdfast.step
async def holds() -> None:
    begun.set()
    await go.wait()


@holdfast.agent
async def held() -> None:
    await holds()


begun, go = asyncio.Event(), asyncio.Event()


@pytest.mark.slow
async def test_a_run_that_nobody_has_taken_is_ready_and_one_that_somebody_has_is_no_orphan(temporal_url):  # noqa: F811
    async with holdfast.open(temporal_url, agents=[held], settings=holdfast.Settings(lease_ttl_s=60.0)) as hf:
        run = await hf.start(held, id="taken")
        await begun.wait()
        while not (found := await hf.runs(agent="held")):
            await asyncio.sleep(0.1)  # the index of the cluster is a moment behind
        assert (found[0].status, found[0].waits_for) == ("running", None)
        assert (await run.info()).waits_for is None
        assert (await hf.needs()).needs == ()
        go.set()
        await run.result(timeout="120s")
    async with holdfast.open(temporal_url) as hf:
        hf.store._is_polled = nobody  # as it is a minute later
        await hf.start("held", id="untaken")
        assert (await hf.get("untaken").info()).waits_for == "worker"
        while not (found := [info for info in await hf.runs(agent="held") if info.id == "untaken"]):
            await asyncio.sleep(0.1)
        assert (found[0].status, found[0].waits_for) == ("ready", "worker")


async def nobody(_: str) -> bool:
    return False


@pytest.mark.slow
async def test_all_name_the_same_database_beside_a_cluster(temporal_url, tmp_path):  # noqa: F811
    sides = [f"{temporal_url}&side=sqlite:{tmp_path}/{name}.db" for name in "ab"]
    for _ in range(2):
        async with holdfast.open(sides[0]):
            pass
    with pytest.raises(holdfast.StoreUnavailable, match="not the database that others name") as refused:
        async with holdfast.open(sides[1]):
            pass
    assert "holdfast.beside:" in str(refused.value)
    with pytest.raises(holdfast.StoreUnavailable, match=r"this URL names none. Name the same one: \?side="):
        async with holdfast.open(temporal_url):
            pass


@holdfast.step
async def adds(n: int) -> int:
    added.append(n)
    return n + 1


@holdfast.agent
async def adding() -> int:
    return await adds(1)


added = []


@pytest.mark.slow
async def test_a_worker_without_a_side_leaves_runs_that_have_one_alone(temporal_url, tmp_path, caplog):  # noqa: F811
    """It began before anybody named a side."""
    added.clear()
    async with holdfast.open(temporal_url, agents=[adding], settings=QUICK) as alone:
        async with holdfast.open(f"{temporal_url}&side=sqlite:{tmp_path}/side.db") as hf:
            run = await hf.start(adding)
            while not (said := [each for each in caplog.records if "names none" in each.getMessage()]):
                await asyncio.sleep(0.05)
            await asyncio.sleep(2)
            own = await alone.run(adding)
            assert (own, added) == (2, [1])  # its own alone
            assert (await run.info()).status in ("ready", "running")
        async with holdfast.open(
            f"{temporal_url}&side=sqlite:{tmp_path}/side.db", agents=[adding], settings=QUICK
        ) as hf:
            assert await hf.get(run.id).result(timeout="60s") == 2
    said = [each for each in caplog.records if "names none" in each.getMessage()]
    assert len(said) == 1
    assert run.id in said[0].getMessage()
    assert not [each for each in caplog.records if each.exc_info]


@pytest.mark.slow
async def test_a_cluster_that_cannot_be_reached_is_told_in_words(cluster):  # noqa: F811
    for url, told in (
        (f"temporal://127.0.0.1:{free_port()}/default", "nothing answers at 127.0.0.1:.*connection refused.*7233"),
        (cluster.url("nosuch"), "no namespace 'nosuch'.*temporal operator namespace create --namespace nosuch"),
    ):
        with pytest.raises(holdfast.StoreUnavailable, match=told) as refused:
            async with holdfast.open(url):
                pass
        assert "tonic" not in str(refused.value)


@pytest.mark.slow
async def test_what_the_sdk_has_to_say_is_logged_a_line_each(own_cluster, caplog, capfd):  # noqa: F811
    async with holdfast.open(own_cluster.url(), agents=[scenes.sequential], settings=QUICK):
        own_cluster.kill()
        while not (said := [each for each in caplog.records if each.name == "holdfast.temporal"]):
            await asyncio.sleep(0.05)
        await asyncio.to_thread(own_cluster.start)
    assert not [each for each in said if "\n" in each.getMessage() or "\x1b" in each.getMessage()]
    assert capfd.readouterr().err == ""


@pytest.mark.slow
def test_pause_says_that_a_run_on_a_cluster_is_paused_in_a_moment(temporal_url):  # noqa: F811
    async def begun():
        async with holdfast.open(temporal_url, agents=[scenes.paused], settings=QUICK) as hf:
            await (await hf.start(scenes.paused, id="w")).wait("waiting", waits_for="message", timeout="120s")

    asyncio.run(begun())
    told = command("pause", "w", db=temporal_url)
    assert told.exit_code == 0, told.output
    assert "w is waiting" not in told.output
    assert "paused" in told.output


@pytest.mark.slow
async def test_whoever_needs_a_worker_that_is_not_there_is_told_how_to_start_one(temporal_url, tmp_path, monkeypatch):  # noqa: F811
    """And an open question of a run that was imported is listed before any worker has it."""
    holdfast.Keys(keys := tmp_path / "keys").new("ops")
    monkeypatch.setenv("HOLDFAST_KEYS", str(keys))
    monkeypatch.setattr(TemporalStore, "_is_polled", nobody_polls)
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db", agents=[scenes.approvals], settings=QUICK) as hf:
        run = await hf.start(scenes.approvals, "draft", id="asks")
        question = await run.wait_for_question(timeout="60s")
        async with holdfast.open(temporal_url) as other:
            await run.export(tmp_path / "asks.bundle", move=await other.store_id(), keys=keys)
    told = await asyncio.to_thread(command, "import", str(tmp_path / "asks.bundle"), db=temporal_url)
    assert told.exit_code == 0, told.output
    async with holdfast.open(temporal_url) as hf:
        while not (listed := await hf.approvals()):
            await asyncio.sleep(0.1)  # the index of the cluster is a moment behind
        assert [each.id for each in listed] == [question.id]
        with hf.deadline("1s"), pytest.raises(holdfast.Unconfirmed, match="no worker serves agent 'approvals'"):
            await hf.approve(question.id, by="ann", digest=question.digest)
    start = f"Start one: `holdfast worker FILE.py --db '{temporal_url}'`"
    where = f"sqlite:{tmp_path}/runs.db"
    moved = await asyncio.to_thread(
        command, "export", "asks", "--move", where, "--timeout", "1s", "--to", str(tmp_path / "x"), db=temporal_url
    )
    assert moved.exit_code == 2
    assert "No worker serves agent 'approvals'" in " ".join(moved.output.split())
    assert start in " ".join(moved.output.split())


async def nobody_polls(self, _: str) -> bool:
    return False


def test_commands_are_told_commands_and_no_calls():
    from holdfast.cli.group import _in_commands

    for told, shown in (
        ("x. `await hf.get('a-1').info()` says how the run stands", "x. `holdfast show a-1` says how the run stands"),
        ("`await hf.approval('q-1')` says how", "`holdfast approvals --all` says how"),
        ("`await hf.conversation('u 1').info()` says", "`holdfast conversations 'u 1'` says"),
    ):
        assert _in_commands(told) == shown

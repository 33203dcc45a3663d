"""What a ground lacks is not offered, and whoever asks for it all the same is told why in words for people."""

import ast
import inspect
import re
from pathlib import Path
from urllib.parse import quote

import httpx2
import pytest
from click.testing import CliRunner
from tests.cells import own_cells_url, own_servers  # noqa: F401 - fixtures
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
    """Every operation of a store that the client calls and that writes is the cluster's own, the side's, or in the table of gaps."""
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
        assert told.exit_code == 0, told.output
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

"""A worker's numbers and verdicts, in this process."""

import asyncio
import http.client
import re
import socket
import sys

import pytest

import holdfast
from holdfast.store.runs import NewRun
from holdfast.worker import health
from holdfast.worker.health import Health, listening
from holdfast.worker.metrics import METRICS, Sight, exposition

UNITS = (
    "_seconds", "_runs", "_steps", "_leases", "_heartbeats", "_operations", "_limit", "_usd", "_tokens", "_calls", "_questions",
    "_deliveries", "_messages",
)  # fmt: skip
FLAGS = ("holdfast_draining", "holdfast_queue_up", "holdfast_store_up", "holdfast_runs_finished_total")


@holdfast.step
async def work(n: int) -> int:
    if n < 0:
        raise ValueError("less than nothing")
    return n


@holdfast.agent
async def worker_agent(n: int) -> int:
    return await work(n)


def numbers(text):
    """Samples of the text format: name with labels -> value."""
    return {name: float(value) for name, value in re.findall(r"^(\w\S*) (\S+)$", text.decode(), re.MULTILINE)}


async def seen(hf):
    census, questions = await hf.store.census(health.LATE_MS), await hf.store.question_ages()
    sight = Sight(census, hf._worker.clock.now(), hf._worker, questions=questions)
    return numbers(exposition(METRICS, sight)[1])


async def test_two_workers_in_one_process_do_not_meet(tmp_path):
    """What one worker does is not in the other's numbers."""
    url = f"sqlite:{tmp_path}/"
    async with (
        holdfast.open(url + "a.db", agents=[worker_agent]) as one,
        holdfast.open(url + "b.db", agents=[worker_agent]) as other,
    ):
        for n in range(3):
            await one.run(worker_agent, n)
        await one.store.create(NewRun("x", "u", "of nobody", "{}", queue="slow"))
        mine, others = await seen(one), await seen(other)
        assert mine["holdfast_claimed_runs_total"] == 3
        assert mine['holdfast_step_seconds_count{outcome="completed"}'] == 3
        assert mine['holdfast_backlog_runs{queue="slow"}'] == 1
        assert mine['holdfast_store_runs{queue="slow",status="ready"}'] == 1
        assert others["holdfast_claimed_runs_total"] == 0
        assert 'holdfast_backlog_runs{queue="slow"}' not in others
        assert others['holdfast_backlog_runs{queue="default"}'] == 0


async def test_attempts_are_counted_by_how_they_ended(tmp_path):
    """A failed attempt is in its own histogram."""
    async with holdfast.open(f"sqlite:{tmp_path}/a.db", agents=[worker_agent]) as hf:
        run = await hf.start(worker_agent, -1)
        await run.wait("failed")
        found = await seen(hf)
        assert found['holdfast_step_seconds_count{outcome="failed"}'] == 1
        assert 'holdfast_step_seconds_count{outcome="completed"}' not in found


@holdfast.step
async def buys(usd: float) -> None:
    holdfast.spend(usd, input_tokens=10, output_tokens=5)


@holdfast.agent(name="buyer")
async def buyer() -> None:
    await buys(0.25)
    await buys(0.5)


@holdfast.agent(name="asker")
async def asker() -> bool:
    return bool(await holdfast.approve("May it?"))


async def test_ends_and_what_was_spent_are_counted_by_agent(tmp_path):
    """Each run that ends here by its status, and what bodies here said they spent."""
    async with holdfast.open(f"sqlite:{tmp_path}/a.db", agents=[worker_agent, buyer]) as hf:
        await hf.run(buyer)
        await hf.run(worker_agent, 1)
        await (await hf.start(worker_agent, -1)).wait("failed")
        while sum(hf._worker.measures.finished.values()) < 3:
            await asyncio.sleep(0)
        found = await seen(hf)
        assert found['holdfast_runs_finished_total{agent="buyer",status="completed"}'] == 1
        assert found['holdfast_runs_finished_total{agent="worker_agent",status="completed"}'] == 1
        assert found['holdfast_runs_finished_total{agent="worker_agent",status="failed"}'] == 1
        assert found['holdfast_spent_usd_total{agent="buyer"}'] == 0.75
        assert found['holdfast_spent_tokens_total{agent="buyer",direction="input"}'] == 20
        assert found['holdfast_spent_tokens_total{agent="buyer",direction="output"}'] == 10
        assert not [name for name in found if "spent" in name and "worker_agent" in name]


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_open_questions_are_counted_by_their_age(kind, request, tmp_path):
    """Those that wait for somebody now; one that was decided is none, and without any each age says 0."""
    url = f"sqlite:{tmp_path}/a.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")

    async with holdfast.open(url, agents=[asker]) as hf:
        found = await seen(hf)
        assert {name: count for name, count in found.items() if name.startswith("holdfast_store_open_questions")} == {
            f'holdfast_store_open_questions{{age="{age}"}}': 0 for age in ("5m", "1h", "1d", "7d", "older")
        }
        assert found["holdfast_store_oldest_question_age_seconds"] == 0
        for name in ("a", "b"):
            await (await hf.start(asker, id=name)).wait("waiting")
        await hf.approve("a", by="ana")
        assert (await seen(hf))['holdfast_store_open_questions{age="5m"}'] == 1
        day = 24 * 3600 * 1000
        later = hf.store.clock.now() + 2 * day
        ages = await hf.store.question_ages(later)
        assert ages.counts == (0, 0, 0, 1, 0)
        assert 2 * day <= ages.oldest_ms < 3 * day
        assert (await hf.store.question_ages(later + 30 * day)).counts == (0, 0, 0, 0, 1)


async def test_without_an_answer_of_the_store_its_numbers_are_missing_and_not_zero(tmp_path):
    """A backlog that is not known is not reported as none."""
    async with holdfast.open(f"sqlite:{tmp_path}/a.db", agents=[worker_agent]) as hf:
        found = numbers(exposition(METRICS, Sight(None, hf._worker.clock.now(), hf._worker))[1])
        assert found["holdfast_store_up"] == 0
        assert not [name for name in found if name.startswith(("holdfast_backlog", "holdfast_store_runs"))]
        assert found["holdfast_running_runs"] == 0


def test_every_metric_says_its_unit_and_has_one_sentence():
    """Names end in their unit (counters then in _total), helps in a full stop, and no name is there twice."""
    for each in METRICS:
        unit = each.name.removesuffix("_total")
        assert (each.kind == "counter") == each.name.endswith("_total"), each.name
        assert unit.endswith(UNITS) or each.name in FLAGS, each.name
        assert re.fullmatch(r"[A-Z0-9][^.]*\.", each.help), each.help
    assert len({each.name for each in METRICS}) == len(METRICS)


async def test_the_counts_of_the_store_are_taken_every_five_seconds_at_the_most(tmp_path, monkeypatch):
    """A second look within that time sees the counts of the first; a later one sees new ones."""
    async with holdfast.open(f"sqlite:{tmp_path}/a.db", agents=[worker_agent]) as hf:
        looking = Health()
        await looking.count()
        assert looking.census is None  # there is no worker yet
        looking.watch(hf._worker)
        await looking.count()
        await hf.store.create(NewRun("x", "u", "of nobody", "{}"))
        await looking.count()
        assert looking.census == []
        monkeypatch.setattr(health, "_CENSUS_S", 0.0)
        await looking.count()
        assert [row.runs for row in looking.census] == [1]


async def test_a_store_that_was_closed_under_a_worker_makes_it_unready_and_dead(tmp_path):
    """When the writer of the store has ended, a new process is needed, and both verdicts say so."""
    async with holdfast.open(f"sqlite:{tmp_path}/a.db", agents=[worker_agent]) as hf:
        looking = Health()
        assert (await looking.alive()).good
        assert (await looking.ready()).reason == "the worker starts"
        looking.watch(hf._worker)
        assert (await looking.alive()).good
        assert (await looking.ready()).good
        hf.store.abandon()
        assert "has ended" in (await looking.alive()).reason
        assert "has ended" in (await looking.ready()).reason


def ask(url, path):
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body.decode()


def test_without_prometheus_client_the_answer_says_what_to_install(monkeypatch):
    """/metrics is 501 with the command; the other paths do not need it."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with listening("127.0.0.1", 0) as listener:
        status, body = ask(listener.url, "/metrics")
        assert status == 501
        assert r"pip install \"holdfast[metrics]\"" in body
        assert ask(listener.url, "/healthz")[0] == 200
        assert ask(listener.url, "/readyz") == (503, '{"status": "unavailable", "reason": "the worker starts"}\n')


def test_a_request_that_does_not_come_is_not_waited_for(monkeypatch):
    """A connection that sends half a request is told so and closed."""
    monkeypatch.setattr(health, "_REQUEST_S", 0.1)
    with listening("127.0.0.1", 0) as listener:
        host, port = listener.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=20) as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 408 ")


def test_it_listens_on_ipv6_too():
    """An address with colons is one of IPv6, in brackets in the URL."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        pytest.skip(f"this machine has no IPv6: {error}")
    with listening("::1", 0) as listener:
        assert listener.url.startswith("http://[::1]:")
        assert ask(listener.url, "/healthz")[0] == 200

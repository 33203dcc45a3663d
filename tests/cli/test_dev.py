"""`holdfast dev`: one command, real processes; the worker is killed, its code changes, and all of it ends together."""

import os
import re
import signal
import socket
import time
from pathlib import Path

import httpx2
import pytest
from tests.workers import Worker, ask

APP = """
import asyncio
import holdfast

@holdfast.step
async def slow(n: int) -> int:
    await asyncio.sleep(0.3)
    return n

@holdfast.agent
async def counting(count: int) -> str:
    numbers = [await slow(n) for n in range(count)]
    return f"WORD {sum(numbers)}"
"""


class Page:
    """A browser that has opened the link."""

    def __init__(self, dev):
        self.address, code = re.search(r"(http://127.0.0.1:\d+)/#code=([\w-]+)", dev.until("#code=")).groups()
        headers = {"Origin": self.address, "X-Holdfast-Page": "1"}
        self.web = httpx2.Client(base_url=self.address, timeout=30, headers=headers)
        assert self.web.post("/session", json={"code": code}).status_code == 201

    def start(self, id, count):
        asked = {"agent": "counting", "args": [count], "id": id}
        until(lambda: self.web.post("/api/runs", json=asked).status_code in (200, 201))  # the worker publishes it first

    def result(self, id):
        return self.web.get(f"/api/runs/{id}/result", params={"timeout": 25}).json().get("result")

    def kinds(self, id):
        return [event["kind"] for event in self.web.get(f"/api/runs/{id}/events").json()["events"]]


def until(holds, within_s=30.0):
    end = time.monotonic() + within_s
    while not (found := holds()):
        assert time.monotonic() < end, "it never held"
        time.sleep(0.05)
    return found


def workers(dev):
    return [int(pid) for pid in re.findall(r"The worker is process (\d+)", dev.said())]


def is_there(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture
def dev(commands, tmp_path):
    started = []

    def start(*words):
        (tmp_path / "app.py").write_text(APP)
        process = Worker(
            commands.start(
                ["dev", "app.py", "--no-open", *words], tmp_path, {"HOLDFAST_URL": f"sqlite:{tmp_path}/runs.db"}
            )
        )
        started.append(process)
        return process

    yield start
    for each in started:
        for pid in workers(each):
            if is_there(pid):
                os.kill(pid, signal.SIGKILL)
        each.kill()


@pytest.mark.slow
def test_a_killed_worker_has_a_successor_and_saved_code_is_taken(dev, tmp_path):
    """A run goes on in another process, as its history says; then with the code that was saved; broken code waits to be mended."""
    process = dev("--port", "0")
    page = Page(process)
    page.start("a", 8)
    until(lambda: "step.completed" in page.kinds("a"))
    (first,) = workers(process)
    os.kill(first, signal.SIGKILL)
    process.until("was killed (SIGKILL): another one goes on")
    assert page.result("a") == "WORD 28"
    assert "run.interrupted" in page.kinds("a")
    app = tmp_path / "app.py"
    app.write_text(APP.replace("WORD", "sum"))
    process.until("The code has changed")
    until(lambda: len(workers(process)) == 3)
    page.start("b", 2)
    assert page.result("b") == "sum 1"
    app.write_text("this is no Python")
    process.until("The worker cannot begin")
    app.write_text(APP.replace("WORD", "again"))
    page.start("c", 1)
    assert page.result("c") == "again 0"
    last = workers(process)[-1]
    page.web.close()
    os.kill(process.pid, signal.SIGINT)
    assert process.ended() == 0
    assert "Stopped." in process.said()
    until(lambda: not is_there(last))


@pytest.mark.slow
def test_the_worker_ends_with_it(dev, tmp_path):
    """Also where nobody could tell it to: Linux does."""
    process = dev("--port", "0")
    process.until("Serving counting")
    (worker,) = workers(process)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: not is_there(worker))
    assert [token.is_good() for token in ask(f"sqlite:{tmp_path}/runs.db", lambda hf: hf.tokens())] == [True]


def test_who_develops_is_in_the_groups_that_are_named(dev, tmp_path):
    """So that questions to them can be decided; a token that is there already and is in none of them is not enough."""
    for words, groups in (((), [[]]), (("--group", "editors", "--group", "ops"), [[], ["editors", "ops"]])):
        process = dev("--port", "0", *words)
        page = Page(process)
        assert page.web.get("/api/me").json()["groups"] == groups[-1]
        page.web.close()
        os.kill(process.pid, signal.SIGINT)
        assert process.ended() == 0
        assert [list(token.groups) for token in ask(f"sqlite:{tmp_path}/runs.db", lambda hf: hf.tokens())] == groups


def test_a_port_that_is_in_use_is_refused_where_it_is_named(dev):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        process = dev("--port", str(taken.getsockname()[1]))
        assert process.ended() == 2
    assert "in use" in process.said()


def test_what_is_no_app_is_told(commands, tmp_path):
    process = Worker(commands.start(["dev", "nothing.py"], tmp_path, {}))
    assert process.ended() == 2
    assert "'nothing.py' is no file and no module here" in process.said()
    assert list(tmp_path.iterdir()) == []  # no store was made for it

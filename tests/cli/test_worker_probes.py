"""A worker's /healthz, /readyz and /metrics: real processes, real requests, real signals."""

import asyncio
import http.client
import json
import re
import signal
import socket

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.cli.terminal import FLEET

import holdfast


class Probe:
    """Asks one worker."""

    def __init__(self, port):
        self.port = port

    def ask(self, path, method="GET"):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer, answer.read()
        finally:
            connection.close()

    def health(self, path):
        answer, body = self.ask(path)
        assert answer.getheader("content-type") == "application/json"
        assert body.count(b"\n") == 1
        return answer.status, json.loads(body)

    def numbers(self):
        """Every sample, by its name and the values of its labels."""
        answer, body = self.ask("/metrics")
        assert answer.status == 200, body
        assert answer.getheader("content-type").startswith("text/plain; version=0.0.4")
        return {
            " ".join([sample.name, *sample.labels.values()]): sample.value
            for family in text_string_to_metric_families(body.decode())
            for sample in family.samples
        }

    def raw(self, request):
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as connection:
            connection.sendall(request)
            answer = b""
            while part := connection.recv(65_536):
                answer += part
        return answer


def serve(terminal, *words):
    worker = terminal.start("worker", FLEET, "--db", "sqlite:a.db", "--port", 0, *words)
    port = int(re.search(r"http://127\.0\.0\.1:(\d+)", worker.until("Health and metrics at"))[1])
    worker.until("Serving")
    return worker, Probe(port)


def start(terminal, agent, *args, **options):
    async def main():
        async with holdfast.open(f"sqlite:{terminal.folder}/a.db") as hf:
            await hf.start(agent, *args, **options)

    asyncio.run(main())


def until(found):
    """Ask until it holds; pytest's timeout ends the test if it never does."""
    while True:
        answer = found()
        if answer:
            return answer


def test_a_worker_tells_its_health_and_its_numbers(terminal):
    """What a worker does is in its numbers: before, while a body runs, and after."""
    worker, probe = serve(terminal)
    assert probe.health("/healthz") == (200, {"status": "ok"})
    assert until(lambda: probe.health("/readyz")[0] == 200)
    before = probe.numbers()
    assert before["holdfast_claimed_runs_total"] == before["holdfast_running_runs"] == 0
    assert before["holdfast_backlog_runs default"] == before["holdfast_backlog_age_seconds default"] == 0
    assert before["holdfast_store_up"] == 1
    assert before["holdfast_running_runs_limit"] == 200
    assert before["process_resident_memory_bytes"] > 1e6
    start(terminal, "read", 2, id="r")
    during = until(lambda: (found := probe.numbers())["holdfast_running_steps"] == 2 and found)
    assert during["holdfast_claimed_runs_total"] == during["holdfast_running_runs"] == 1
    terminal.touch("go-0", "go-1")
    worker.until("r  completed")
    after = until(lambda: (found := probe.numbers())["holdfast_running_runs"] == 0 and found)
    assert after["holdfast_left_runs_total ended"] == 1
    assert after["holdfast_step_seconds_count completed"] == 2
    assert after["holdfast_lost_leases_total"] == after["holdfast_taken_over_runs_total"] == 0
    assert after["holdfast_commit_operations_sum"] >= after["holdfast_commit_seconds_count"] > 3
    assert after["holdfast_commit_operations_bucket +Inf"] == after["holdfast_commit_operations_count"]


def test_a_worker_that_drains_is_alive_and_not_ready(terminal):
    """On SIGTERM, while a body still runs, /readyz turns 503 and /healthz does not; then the body ends and the exit is 0."""
    worker, probe = serve(terminal)
    start(terminal, "read", 1, id="r")
    worker.until("body: page 0")
    assert probe.health("/readyz")[0] == 200
    worker.signal(signal.SIGTERM)
    status, told = until(lambda: (found := probe.health("/readyz"))[0] != 200 and found)
    assert (status, told) == (503, {"status": "unavailable", "reason": "the worker drains: it takes no new runs"})
    assert probe.health("/healthz") == (200, {"status": "ok"})
    assert probe.numbers()["holdfast_draining"] == 1
    terminal.touch("go-0")
    assert worker.wait() == 0
    assert terminal.ledger == ["page 0"]
    with pytest.raises(ConnectionRefusedError):
        probe.health("/healthz")


def test_a_hung_loop_is_told_with_its_time_and_the_numbers_still_come(terminal):
    """While a step keeps the loop, /healthz is 503 and says for how long; afterwards it is 200 again."""
    worker, probe = serve(terminal)
    start(terminal, "hogger", id="h")
    worker.until("body: hog")
    status, told = probe.health("/healthz")
    assert status == 503
    assert re.fullmatch(r"the event loop has not turned for [\d.]+ s", told["reason"])
    assert probe.health("/readyz")[0] == 503
    assert probe.numbers()["holdfast_running_steps"] == 1
    terminal.touch("let-go")
    worker.until("h  completed")
    assert probe.health("/healthz")[0] == probe.health("/readyz")[0] == 200


def test_runs_of_a_killed_worker_are_counted_as_recovered(terminal):
    """After kill -9 the next worker counts a recovery and a takeover."""
    first, _ = serve(terminal)
    start(terminal, "read", 1, id="r")
    first.until("body: page 0")
    first.kill()
    second, probe = serve(terminal)
    second.until("body: page 0")
    numbers = probe.numbers()
    assert numbers["holdfast_recovered_runs_total"] == numbers["holdfast_taken_over_runs_total"] == 1
    terminal.touch("go-0")
    second.until("r  completed")


def test_a_port_in_use_is_told_before_any_run_is_claimed(terminal):
    """The second worker on one port ends with the reason; the run that is due stays as it was."""
    start_only = f"sqlite:{terminal.folder}/b.db"

    async def due():
        async with holdfast.open(start_only) as hf:
            row = await hf.store.run("r")
            return row.status, row.lease_epoch

    async def make():
        from holdfast.store.runs import NewRun

        async with holdfast.open(start_only) as hf:
            await hf.store.create(NewRun("r", "u", "greet", '{"name":"ana"}'))

    asyncio.run(make())
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, output = terminal.run("worker", FLEET, "--db", start_only, "--port", port)
    assert code == 2
    assert f"port {port} of 127.0.0.1 is in use" in output
    assert asyncio.run(due()) == ("ready", 0)
    code, output = terminal.run("worker", FLEET, "--db", start_only, "--port", 0, "--host", "no.such.host.invalid")
    assert code == 2
    assert "cannot listen on port 0 of 'no.such.host.invalid'" in output


def test_only_three_paths_can_be_read_and_nothing_else_harms(terminal):
    """HEAD has no body; other paths, methods, garbage and large requests get their status; then all is as before."""
    _, probe = serve(terminal)
    for path in ("/healthz", "/readyz", "/metrics"):
        answer, body = probe.ask(path, "HEAD")
        assert (answer.status, body) == (200, b"")
        assert int(answer.getheader("content-length")) > 10
        answer, body = probe.ask(path, "POST")
        assert (answer.status, answer.getheader("allow")) == (405, "GET, HEAD")
    assert probe.ask("/healthz?verbose=1")[0].status == 200
    assert probe.ask("/")[0].status == probe.ask("/healthz/")[0].status == probe.ask("/../etc/passwd")[0].status == 404
    assert probe.raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert probe.raw(b"\x16\x03\x01\x00\r\n\r\n").startswith(b"HTTP/1.1 400 ")
    assert probe.raw(b"GET /healthz HTTP/1.1\r\nx: " + b"a" * 20_000 + b"\r\n\r\n").startswith(b"HTTP/1.1 431 ")
    silent = [socket.create_connection(("127.0.0.1", probe.port)) for _ in range(40)]
    assert until(lambda: _answers(probe))  # those beyond the bound are closed at once, the others after some seconds
    for connection in silent:
        connection.close()
    assert probe.health("/healthz")[0] == 200


def _answers(probe):
    try:
        return probe.health("/healthz")[0] == 200
    except (OSError, http.client.HTTPException):
        return False

"""Worker processes share what a provider tells one of them."""

import pytest
from tests.processes import fleet_agents as agents

from holdfast.testing.provider import RateLimited, provider

PAUSE_S = 1.5


@pytest.fixture
def fake(monkeypatch):
    """A provider that refuses the first request for a while, and answers all others."""
    with provider(lambda request: RateLimited(PAUSE_S) if request.number == 1 else f"to {request.prompt}") as fake:
        for name, value in fake.env.items():
            monkeypatch.setenv(name, value)
        yield fake


def paused(fleet):
    """The rates that the store has as paused."""
    return [key for key, _ in fleet.ask(lambda hf: hf.store.paused_rates())]


@pytest.mark.by_day("postgres")
def test_two_processes_share_one_retry_after(fleet, fake):
    """One is refused: until the provider's time has come neither asks again, for any run; then all are answered, once."""
    here, elsewhere = fleet.worker("--queues", "default"), fleet.worker("--queues", "elsewhere")
    fleet.start((agents.asking, ["first"], "first"))
    fleet.until(lambda: paused(fleet) == ["rate:provider"])
    runs = [f"run-{number}" for number in range(8)]
    fleet.start(*[((agents.asking, agents.asking_elsewhere)[n % 2], [run], run) for n, run in enumerate(runs)])
    assert fleet.results(["first", *runs]) == {run: f"to {run}" for run in ("first", *runs)}
    refused, *others = [request.at for request in fake.requests]
    assert min(others) - refused >= PAUSE_S
    assert (fake.asked, fake.paid) == (10, 9)
    assert {effect.pid for effect in fleet.effects()} == {here.pid, elsewhere.pid}
    assert {event.run for event in fleet.events("step.held")} >= set(runs)


@pytest.mark.parametrize("fleet", ["sqlite"], indirect=True)
def test_a_pause_survives_kill_9(fleet, fake):
    """The process that was refused is killed in the pause: the next one knows of it, and asks when it is over."""
    worker = fleet.worker()
    fleet.start((agents.asking, ["first"], "first"))
    fleet.until(lambda: paused(fleet) == ["rate:provider"])
    worker.kill()
    fleet.worker()
    fleet.start((agents.asking, ["second"], "second"))
    assert fleet.results(["first", "second"]) == {"first": "to first", "second": "to second"}
    refused, *others = [request.at for request in fake.requests]
    assert min(others) - refused >= PAUSE_S
    assert fake.paid == 2

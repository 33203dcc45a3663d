"""What a worker says about itself, and how it is told what to serve."""

import signal

import pytest
from tests.cli.terminal import FLEET

from holdfast.cli.worker import _MOST_LINES, Report
from holdfast.words.model import Event


@pytest.mark.parametrize("words", [("--queues", "a,,b"), ("--queues", ""), ("--lease", "0"), ("--grace", "-1")])
def test_options_that_make_no_sense(cli, words):
    """They are bad usage, before anything is served."""
    assert cli("worker", FLEET, *words).exit_code == 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--socket", "s", "--port", "9"), "--socket is in the place of --host and --port"),
        (("--limits", "head=soon"), "head='soon' as a limit: it is a time from 100ms to 1h"),
        (("--socket", "taken"), "cannot listen at 'taken': a file is there that is no socket"),
    ],
)
def test_options_of_a_server_that_make_no_sense(cli, words, said, monkeypatch):
    """They are bad usage, and what is wrong with them is said."""
    monkeypatch.chdir(cli.folder)
    (cli.folder / "taken").touch()
    result = cli("serve", *words)
    assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


def test_a_name_that_makes_no_sense(cli):
    """It is told what a name may be."""
    result = cli("worker", FLEET, "--name", "a b")
    assert result.exit_code == 2
    assert "up to 40 letters" in result.stderr


def test_a_worker_tells_what_starts_its_agents_and_once_that_a_broker_is_away(terminal):
    """Drivers have a log of their own, with a traceback for each try."""
    (terminal.folder / "orders.py").write_text(
        "import holdfast\n\n@holdfast.on.queue('amqp://127.0.0.1:1/orders', id='order_id')\ndef orders(delivery): ...\n"
    )
    worker = terminal.start("worker", "orders.py")
    worker.until("Serving no agents from")
    worker.until("Triggers: orders (queue).")
    worker.until("trigger 'orders' cannot read amqp://127.0.0.1:1/orders and tries again")
    worker.signal(signal.SIGTERM)
    worker.wait()
    assert "transport" not in worker.output() and "Traceback" not in worker.output()


def test_a_worker_tells_what_it_carries(terminal):
    """Steps, waits and ends are printed as they become durable, with the run's id; the name begins the worker's id."""
    worker = terminal.start("worker", FLEET, "--name", "web-1")
    assert " as web-1-" in worker.until("Serving")
    listening = terminal.start("run", f"{FLEET}:listener", "--id", "l")
    listening.until("waits for a message")
    listening.signal(signal.SIGINT)
    listening.wait()
    terminal.run("send", "l", "words", "hello")
    worker.until("l  message on words: 'hello'")
    worker.until("l  completed")
    worker.signal(signal.SIGTERM)
    assert worker.wait() == 0


async def test_a_slow_terminal_costs_no_memory(capsys):
    """More lines than can be printed are counted, not kept."""
    report = Report()
    for seq in range(_MOST_LINES + 7):
        report.recorded(Event(seq, "note", None, {"text": f"number {seq}"}, run="r"))
    async with report:
        pass
    printed = capsys.readouterr().err
    assert f"number {_MOST_LINES - 1}" in printed
    assert f"number {_MOST_LINES}\n" not in printed
    assert "7 more events came too quickly" in printed

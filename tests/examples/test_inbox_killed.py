"""The inbox example with its door and its workers killed while letters come: each letter is one run, with one answer."""

import os
import random
import signal
import socket
import subprocess
import sys
from collections import Counter
from email import message_from_bytes, policy

import pytest
from tests.commands import ROOT
from tests.examples.inbox import EXAMPLE, open_inbox
from tests.receivers import until
from tests.workers import Worker, ask

import holdfast

LETTERS = 30


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as free:
        return free.getsockname()[1]


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_each_letter_has_one_answer(commands, store_url, tmp_path, monkeypatch):
    dice, port = random.Random(7), free_port()
    monkeypatch.setenv("INBOX_PORT", str(port))
    with open_inbox(monkeypatch) as (server, _):
        from world import write

        env = {name: os.environ[name] for name in ("HOLDFAST_SMTP_URL", "HOLDFAST_SMTP_FROM", "INBOX_PORT")}

        def door():
            whole = os.environ | env | {"HOLDFAST_URL": store_url, "PYTHONPATH": str(ROOT / "src")}
            started = subprocess.Popen(
                [sys.executable, EXAMPLE / "receive.py"], env=whole, cwd=tmp_path, stdout=subprocess.PIPE
            )
            assert b"are taken" in started.stdout.readline()
            return started

        def shut(process):
            process.send_signal(signal.SIGKILL)
            process.wait()
            process.stdout.close()

        def worker():
            started = Worker(commands.start(["worker", EXAMPLE / "agents.py", "--db", store_url], tmp_path, env))
            started.until("Serving")
            return started

        ask(store_url, lambda hf: hf.notify("mailto:clerk@example.com", "approval.asked", name="clerk"))
        opened, works = door(), worker()
        said = Counter()
        try:
            for number in range(LETTERS):
                for _ in range(dice.choice([1, 1, 2])):  # some come twice
                    said[write(f"p{number}@example.com", f"Letter {number}", "When are you open?").split()[1]] += 1
                if dice.random() < 0.15:
                    shut(opened)
                    opened = door()
                if dice.random() < 0.25:
                    works.kill()
                    works = worker()

            async def decide(hf):
                for question in await hf.approvals(limit=1000):
                    await hf.approve(question, by=holdfast.Actor("cleo", groups=["clerks"]))
                return [run.status for run in await hf.runs(limit=1000)]

            until(lambda: Counter(ask(store_url, decide)) == {"completed": LETTERS})
            until(lambda: ask(store_url, lambda hf: hf.get_notification("clerk").info()).done == LETTERS)
        finally:
            shut(opened)
            works.kill()
        assert said["kept"] == LETTERS and said["known"] > 0
        found = [message_from_bytes(each.content, policy=policy.default) for each in server.mails]
        shown = {mail["Message-ID"]: mail["To"] for mail in found}
        wanted = {f"p{number}@example.com": 1 for number in range(LETTERS)} | {"clerk@example.com": LETTERS}
        assert Counter(shown.values()) == wanted

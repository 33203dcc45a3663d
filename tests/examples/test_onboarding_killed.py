"""The onboarding example with real workers that die of SIGKILL, and people who decide from processes of their own."""

import time

import pytest
from tests.examples.onboarding import EXAMPLE, open_office
from tests.workers import ask

PATIENCE_S = 60.0  # a bound, never a measure


@pytest.fixture
def office(tmp_path):
    with open_office(tmp_path / "office", mail_s=600.0) as opened:  # whoever sends a mail has to be killed
        yield opened


@pytest.fixture
def company(store_url, terminal, office):
    return Company(store_url, terminal, office)


class Company:
    """Workers and people on one store; nothing but the store and the office connects them."""

    def __init__(self, url, terminal, office):
        self.url, self.terminal = url, terminal
        self.terminal.env |= {"OFFICE_URL": office.url, "HOLDFAST_URL": url}

    def worker(self):
        started = self.terminal.start("worker", EXAMPLE / "agents.py")
        started.until("Serving")
        return started

    def say(self, *words):
        """Somebody types a command."""
        code, output = self.terminal.run(*words)
        return code, output.strip()

    def ask(self, what):
        return ask(self.url, what)

    def questions(self):
        return self.ask(lambda hf: hf.approvals())


def until(holds):
    end = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.01)
    return found


async def all_wait(hf):
    return [run.status for run in await hf.runs()] == ["waiting"] * 3


@pytest.mark.by_day("sqlite")
@pytest.mark.timeout(300)
def test_workers_killed_while_it_waits_and_in_the_mail(company, office):
    """Decided by the command line while no worker lives, and by a second person; each effect is in the books once."""
    first = company.worker()
    company.ask(lambda hf: hf.start("onboard", "ada", id="ada"))
    until(lambda: company.questions() and company.ask(all_wait))
    first.kill()
    (question,) = company.questions()
    assert question.path == ("onboard", "accounts", "privileges")
    assert company.ask(lambda hf: hf.get("ada").approvals()) == [question]

    code, said = company.say("approve", "ada", "--by", "ana", "--data", '["staff", "admin"]')
    assert code == 0 and "Your vote" in said
    second = company.worker()  # it knows how many must agree to that
    until(lambda: [each.needs for each in company.questions()] == [2])
    code, said = company.say("approve", "ada", "--by", "ana")
    assert code == 2 and "it needs 2 different people" in said
    second.kill()
    code, said = company.say("approve", "ada", "--by", "bo")
    assert code == 0 and "Approved" in said
    code, said = company.say("deny", "--by", "eve", question.id)
    assert code == 2 and "approved by 'bo'" in said

    third = company.worker()
    until(lambda: office.books()["mails"])
    third.kill()  # in the middle of the step: the mail is out, and nobody heard of it
    company.worker()
    access = "in staff, admin (allowed by ana and bo)"
    assert company.ask(lambda hf: hf.get("ada").result()) == f"ada is {access}"
    assert office.books() == {
        "accounts": ["ada"],
        "grants": [["ada", ["staff", "admin"]]],
        "mails": [["ada", f"Welcome, ada! Your account is ada. You are {access}."]],
        "requests": {"accounts": 1, "grants": 1, "looks": 1, "mails": 1},
    }
    decided = company.ask(lambda hf: hf.audit(run=question.run))
    assert [(deed.via[:4], deed.action, deed.by) for deed in reversed(decided)] == [
        ("cli:", "vote", "ana"), ("cli:", "approve", "bo"),
    ]  # fmt: skip

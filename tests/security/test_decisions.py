"""A decision is for what was seen: somebody decides, edits and asks on while two people look at a question."""

import asyncio
import contextlib
import json
import random

import pytest
from tests.cli.terminal import PATIENCE_S, person  # noqa: F401 - a fixture
from tests.http.site import served

import holdfast

HONEST, FORGED = {"to": "alice", "euros": 10}, {"to": "mallory", "euros": 9999}


@holdfast.agent
async def pay(needs: int = 2) -> list:
    """Whoever decides the first question by the id of the run may find the second in its place."""
    first = await holdfast.approve("Pay this?", show=HONEST, edit=True, needs=needs)
    second = await holdfast.approve("Pay this?", show=FORGED, needs=needs)
    return [bool(first), first.data, bool(second)]


@holdfast.agent
async def pay_many(many: int) -> None:
    """Many payments at once, each with its two questions."""

    async def one(number):
        await holdfast.approve(f"Pay {number}?", show=HONEST, edit=True, needs=2)
        await holdfast.approve(f"Pay {number} too?", show=FORGED, needs=2)

    await asyncio.gather(*map(one, range(many)))


@holdfast.agent
async def twice() -> list:
    """Asks the same thing again: only the id says which of the two."""
    return [bool(await holdfast.approve("Go on?")) for _ in range(2)]


async def paying(hf, run, agent=pay, *args):
    started = await hf.start(agent, *args, id=run)
    await started.wait("waiting")
    return await hf.approval(run)


async def paying_many(hf, run, many=2):
    """Its questions, once it waits for all."""
    await hf.start(pay_many, many, id=run)
    while len(found := await hf.approvals(run=run)) < many:
        await asyncio.sleep(0.005)
    return found


def with_agents(main, url):
    async def opened():
        async with asyncio.timeout(50), holdfast.open(url, agents=[pay, pay_many, twice]) as hf:
            await main(hf)

    asyncio.run(opened())


async def test_a_decision_without_what_was_seen_is_refused(tmp_path):
    """Over HTTP: no digest, the digest of something else, or the id of a run decide nothing; each says what to do."""
    async with asyncio.timeout(50), served(f"sqlite:{tmp_path}/runs.db", agents=[pay, twice]) as site:
        question = await paying(site.hf, "r")
        path, seen = f"/api/approvals/{question.id}", {"digest": question.digest}
        for said in ({"decision": "approve"}, {"decision": "deny"}, {"decision": "delegate", "to": "bo"},
                     {"decision": "answer", "value": 1}):  # fmt: skip
            told = (await site.post(path, said, 422))["error"]["message"]
            assert told.startswith("digest: it is missing") and "GET /api/approvals/{id} has it" in told
        words = "expected one of approve, deny, answer, delegate"
        for said, wrong in ({"decision": "yes"}, "found 'yes'"), ({}, "it is missing in the document"):
            assert (await site.post(path, said, 422))["error"]["message"] == f"decision: {wrong}, {words}"
        for said in ([], 7, "x", None, {"decision": {}}, {"decision": None}):
            await site.post(path, said, 422)
        by_run = await site.post("/api/approvals/r", {"decision": "approve", **seen}, 404)
        assert (by_run["error"]["code"], question.id in by_run["error"]["message"]) == ("unknown_approval", True)
        await site.hf.approve(question, by="eve", data=FORGED)
        for said in ({"decision": "approve"}, {"decision": "deny"}, {"decision": "delegate", "to": "bo"},
                     {"decision": "approve", "data": HONEST}):  # fmt: skip
            stale = await site.post(path, said | seen, 409)
            assert (stale["error"]["code"], stale["approval"]["data"]) == ("stale", FORGED)
        now = {"digest": stale["approval"]["digest"]}
        assert (await site.post(path, {"decision": "approve", **now}))["approval"]["data"] == FORGED
        first = await paying(site.hf, "t", twice)
        await site.hf.deny(first, by="eve")
        while (second := await site.hf.approval("t")).status != "open":
            await asyncio.sleep(0.01)
        assert (first.digest, first.id != second.id) == (second.digest, True)
        late = {"decision": "approve", "digest": first.digest}
        told = await site.post(f"/api/approvals/{first.id}", late, 409)
        assert told["error"]["code"] == "already_decided"
        assert (await site.hf.approval(second.id)).status == "open"


@pytest.mark.by_day("sqlite-12")
@pytest.mark.parametrize(("kind", "runs"), [("sqlite", 12), ("sqlite", 50), ("postgres", 10)])
async def test_two_people_and_an_attacker(kind, runs, tmp_path, request):
    """In many races both have voted for what they saw, or were refused: on no other question, for no other value."""
    url = (
        f"sqlite:{tmp_path}/runs.db?durability=process" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    )
    dice = random.Random(runs)
    refused = []

    async def later():
        for _ in range(dice.choice((0, 0, 1, 3, 9))):
            await asyncio.sleep(0)

    async def honest(site, token, name, question):
        await later()
        try:
            match dice.choice(("object", "id", "id", "http") if name == "ana" else ("object", "id")):
                case "object":
                    await site.hf.approve(question, by=name)
                case "id":
                    await site.hf.approve(question.id, by=name, digest=question.digest)
                case _:
                    said = json.dumps({"decision": "approve", "digest": question.digest})
                    answer = await site.web.post(f"/api/approvals/{question.id}", content=said, headers=token)
                    assert answer.status_code in (200, 409), answer.text
                    refused.extend(["http"] if answer.status_code == 409 else [])
        except (holdfast.Stale, holdfast.AlreadyDecided) as error:
            refused.append(type(error).__name__)

    async def attacker(site, question):
        for _ in range(2):
            await later()
            with contextlib.suppress(holdfast.Stale, holdfast.AlreadyDecided):
                if dice.random() < 0.6:
                    await site.hf.approve(question.id, by="eve", data=FORGED)
                else:
                    await site.hf.deny(question.id, by="eve")

    async def race(site, token, question):
        actors = [honest(site, token, "ana", question), honest(site, token, "bo", question), attacker(site, question)]
        dice.shuffle(actors)
        await asyncio.gather(*actors)

    async with asyncio.timeout(55), served(url, agents=[pay_many]) as site:
        _, secret = await site.hf.create_token("ana")
        token = {"Authorization": f"Bearer {secret}", "Content-Type": "application/json"}
        for number in range(runs):
            seen = {each.id: each for each in await paying_many(site.hf, f"r{number}", 20)}
            await asyncio.gather(*[race(site, token, question) for question in seen.values()])
            for row in await site.hf.store.approvals(run=f"r{number}", statuses=("open", "decided")):
                votes = [vote for vote in json.loads(row.votes) if vote["by"] != "eve"]
                assert not votes or row.id in seen, row
                assert all(vote["digest"] == seen[row.id].digest for vote in votes), row
                assert row.decision != "approved" or row.data in (None, row.shown), row
        assert len(refused) > runs  # it was close


@pytest.fixture
def asked(terminal):
    """A run that waits for two people, and a client for somebody else: `asked(lambda hf: hf.approve(...))`."""
    url = f"sqlite:{terminal.folder / 'runs.db'}"
    terminal.env["HOLDFAST_URL"] = url

    def do(what):
        found = []

        async def main(hf):
            found.append(await what(hf))

        with_agents(main, url)
        return found[0]

    return do


def test_a_command_decides_what_it_has_shown(terminal, asked):
    """Without a terminal it is shown and decided in one go; with --digest it is that or nothing; of several it is none."""
    question = asked(lambda hf: paying(hf, "r"))
    code, output = terminal.run("approve", "r", "--by", "ana")
    assert (code, f"digest {question.digest}" in output, '"alice"' in output) == (0, True, True)
    assert "1 so far, 2 must agree" in output
    edited = asked(lambda hf: hf.approve(question, by="eve", data=FORGED))
    for words in (["approve"], ["deny"], ["delegate", "--to", "cy"]):
        code, output = terminal.run(*words, "r", "--by", "bo", "--digest", question.digest)
        assert (code, "Error: question" in output, '"mallory"' in output) == (2, True, True)
    assert asked(lambda hf: hf.approval(question.id)).votes == edited.votes
    refused = asked(lambda hf: hf.audit(run="r", action="refused"))
    assert {(deed.by, deed.data["tried"], deed.data["code"]) for deed in refused} == {
        ("bo", tried, "stale") for tried in ("approve", "deny", "delegate")
    }
    code, output = terminal.run("approve", "r", "--by", "group:it", "--digest", edited.digest)
    assert (code, "name one of its people" in output) == (2, True)
    code, output = terminal.run("approve", "r", "--by", "bo", "--digest", edited.digest)
    assert (code, "Approved: q-" in output) == (0, True)
    code, output = terminal.run("approve", "r", "--by", "cy", "--digest", question.digest)
    assert (code, "This was approved: " in output, "was decided before" in output) == (2, True, True)
    asked(lambda hf: paying_many(hf, "m"))
    code, output = terminal.run("approve", "m")
    assert (code, output.count("q-") >= 2, "Pay 0?" in output, "Pay 1?" in output) == (2, True, True, True)


def test_on_a_terminal_it_is_asked_and_bound(terminal, asked, person):  # noqa: F811
    """What was edited between the question and the `y` is shown again and not decided; `n` decides nothing."""
    question = asked(lambda hf: paying(hf, "r", pay, 1))
    ana = person("approve", "r", "--by", "ana")
    ana.sees('"alice"')
    ana.sees("Approve this?")
    ana.types("n")
    ana.sees("Nothing was decided.")
    assert ana.process.wait(PATIENCE_S) == 1
    bo = person("approve", "r", "--by", "bo")
    bo.sees("Approve this?")
    asked(lambda hf: hf.deny(question, by="eve"))
    bo.types("y")
    bo.sees("was decided before: denied by 'eve'")
    assert bo.process.wait(PATIENCE_S) == 2
    question = asked(lambda hf: paying(hf, "s"))
    cy = person("approvals", "--by", "cy", "--run", "s")
    cy.sees('"alice"')
    cy.sees("[a]pprove")
    asked(lambda hf: hf.approve(question, by="eve", data=FORGED))
    cy.types("a")
    cy.sees("changed it on")
    cy.sees('"mallory"')
    cy.sees("[a]pprove")
    cy.types("q")
    assert cy.process.wait(PATIENCE_S) == 0
    assert [vote.by for vote in asked(lambda hf: hf.approval(question.id)).votes] == ["eve"]

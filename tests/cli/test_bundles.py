"""`holdfast export`, `import` and `key`, and the commands that look at a bundle and decide in it."""

import asyncio
import json
from urllib.parse import quote

import pytest
from tests.cells import cell_urls, written  # noqa: F401 - a fixture
from tests.cli.terminal import PATIENCE_S
from tests.temporal import cluster, temporal_url  # noqa: F401 - fixtures

import holdfast
from holdfast.backends.cells.slots import slot_of
from holdfast.cli.view.console import Glyphs

WAITS = Glyphs().waiting


@holdfast.step
async def prepare(text: str) -> str:
    return text.title()


@holdfast.agent
async def publishing(text: str) -> str:
    decision = await holdfast.approve("Publish this?", show=await prepare(text), to="editors")
    return "published" if decision else f"kept: {decision.note}"


@holdfast.agent
async def desk(text: str) -> str:
    return await publishing(text)


@pytest.fixture
def store(cli, monkeypatch):
    """A store in which a run asks a person, below another; the agents are served by nobody."""
    monkeypatch.setenv("HOLDFAST_KEYS", str(cli.folder / "keys"))
    monkeypatch.delenv("HOLDFAST_KEY", raising=False)

    async def main():
        async with holdfast.open(
            "sqlite:holdfast.db", agents=[desk, publishing], settings=holdfast.Settings(park_grace_s=0)
        ) as hf:
            run = await hf.start(desk, "on \x1b[31motters", id="r")
            await run.wait_for_question()
            for each in await hf.runs():
                await hf.get(each.id).wait("waiting")

    asyncio.run(main())
    return cli


def ok(result):
    assert result.exit_code == 0, result.output
    return result.stdout


def test_a_run_is_moved_decided_in_the_file_and_imported(store):
    """By commands alone, as the guide has it."""
    line = ok(store("key", "new", "ana")).strip()
    assert line.startswith("holdfast-public-key ana ed25519:")
    assert ok(store("key", "show")).strip() == line
    ok(store("key", "trust", line, "--name", "ana-at-home", "--group", "editors"))
    listed = store.json("key", "list")["keys"]
    told = [(key["name"], key["kind"], key["groups"]) for key in listed]
    assert told == [("ana", "own", []), ("ana-at-home", "trusted", ["editors"])]
    ok(store("token", "x", "--db", "sqlite:other.db"))  # makes the store
    said = ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    assert "Moved r to r.bundle: 2 runs" in said and "holdfast import r.bundle --receipt r.bundle.receipt" in said

    shown = ok(store("show", "r.bundle"))
    assert "\\n" not in shown
    assert "move of run r" in shown and "Publish this?" in shown and "\x1b" not in shown
    (question,) = store.json("approvals", "r.bundle")["questions"]
    assert f"holdfast approve r.bundle {question['id']}" in ok(store("approvals", "r.bundle"))
    assert "moved" in ok(store("runs")) and "moved to store" in (gone := ok(store("show", "r")))
    assert "asked in the store that has the run" in gone and WAITS not in gone
    assert WAITS in shown, "in the file it is open"
    late = store("approve", question["id"])
    assert late.exit_code == 2 and "moved to store" in late.output

    decided = ok(store("approve", "r.bundle", question["id"], "--note", "fine"))
    assert "Signed as ana and written into r.bundle" in decided
    assert "Nothing waits for a person" in ok(store("approvals", "r.bundle"))
    again = store("deny", "r.bundle", question["id"])
    assert again.exit_code == 2 and "was decided before: approved by 'ana'" in again.output

    refused = store("import", "r.bundle", "--db", "sqlite:other.db")
    assert refused.exit_code == 2 and "it is for editors" in refused.output
    (store.folder / "keys" / "ana.key").rename(store.folder / "ana.key")  # here she is known by her public key alone
    dry = ok(store("import", "r.bundle", "--db", "sqlite:other.db", "--dry-run"))
    assert "Would import run r, a move: 2 runs" in dry and "1 decision in it would count" in dry
    assert store.json("runs", "--db", "sqlite:other.db")["runs"] == []
    told = store.json("import", "r.bundle", "--db", "sqlite:other.db")
    assert (told["run"], told["decisions"], sorted(told["missing"])) == ("r", 1, ["desk", "publishing"])
    assert store("import", "r.bundle", "--db", "sqlite:other.db").exit_code == 2

    async def result():
        async with holdfast.open("sqlite:other.db", agents=[desk, publishing]) as hf:
            return await hf.get("r").result(timeout=20)

    assert asyncio.run(result()) == "published"
    kept = store("delete", "r")
    assert kept.exit_code == 2 and "holdfast export r --confirm" in kept.output and "moved to store" in kept.output
    for words in (("cancel", "r"), ("resume", "r"), ("retry", "r"), ("pause", "r")):
        gone = store(*words)
        assert gone.exit_code == 2 and "moved to store" in gone.output and "--undo --force" in gone.output, gone.output
    (store.folder / "ana.key").rename(store.folder / "keys" / "ana.key")
    ok(store("receipt", "r", "--to", "r.receipt", "--db", "sqlite:other.db"))
    assert ok(store("receipt", "r", "--db", "sqlite:other.db")) == (store.folder / "r.receipt").read_text()
    assert "as the receipt proves" in ok(store("export", "r", "--confirm", "r.receipt"))
    assert "on your word" in ok(store("export", "r", "--confirm"))
    assert [row["data"]["receipt"] is None for row in store.json("audit", "--action", "confirm_move")["audit"]] == [
        False,
        True,
    ]
    undone = store("export", "r", "--undo", "--force")
    assert undone.exit_code == 2 and "it came there" in undone.output


@holdfast.step
async def slow() -> None:
    await asyncio.sleep(60)


@holdfast.agent
async def busy() -> None:
    await slow()


@holdfast.agent
async def broken() -> None:
    raise ValueError("no otters")


def test_a_move_of_a_busy_run_says_how_to_go_on(store):
    """The error is a line with the way on, and the history does not say that it was moved."""
    ok(store("key", "new", "ana"))

    async def main():
        async with holdfast.open(
            "sqlite:holdfast.db", agents=[busy], settings=holdfast.Settings(stop_grace_s=0.1)
        ) as hf:
            run = await hf.start(busy, id="b")
            await run.wait("running")
            return await asyncio.to_thread(
                store, "export", "b", "--to", "b.bundle", "--move", "0" * 32, "--timeout", "300ms"
            )

    said = asyncio.run(main())
    assert said.exit_code == 2 and said.exception.__class__ is SystemExit, said.exception
    assert (
        "Error: run 'b' came to no safe point" in said.output and "--now" in said.output and "--timeout" in said.output
    )
    events = ok(store("show", "b", "--events"))
    assert "to be moved to store" in events and ": moved to store" not in events


def test_a_copy_is_looked_at_and_decided_nowhere(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    for words in (("show", "r.bundle"), ("approvals", "r.bundle")):
        said = ok(store(*words))
        assert "asks its questions anew" in said and "holdfast approve" not in said
    refused = store("approve", "r.bundle")
    assert refused.exit_code == 2 and "asks its questions anew" in refused.output and "Approved" not in refused.output


def test_a_terminal_lists_what_a_copy_asks(store, person):
    """It refuses before it asks: nobody decides for nothing."""
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    at = person("approvals", "r.bundle")
    at.sees("asks its questions anew")
    assert at.process.wait(PATIENCE_S) == 0


def test_a_decision_that_does_not_count_hides_nothing(store, monkeypatch):
    """Whoever sent the bundle may look at it after somebody else decided in it."""
    line = ok(store("key", "new", "ana")).strip()
    ok(store("export", "r", "--to", "r.bundle", "--move", "0" * 32))
    ours, theirs = store.folder / "keys", store.folder / "theirs"
    monkeypatch.setenv("HOLDFAST_KEYS", str(theirs))
    bob = ok(store("key", "new", "bob")).strip()
    ok(store("key", "trust", line))
    ok(store("approve", "r.bundle", "--note", "fine"))
    (decided,) = store.json("show", "r.bundle")["decisions"]
    assert decided["by"] == "bob" and "--group editors" in decided["why"] and decided["decision"] == "approved"

    monkeypatch.setenv("HOLDFAST_KEYS", str(ours))
    shown = ok(store("show", "r.bundle"))
    assert "decision 1 by bob" in shown and "not trusted here" in shown and "without" not in shown
    assert "Decision 1 in it, by bob, would not count" in store("approvals", "r.bundle").output
    refused = store("import", "r.bundle")
    assert (
        refused.exit_code == 2
        and "--without-decision 1 leaves it out" in refused.output
        and "without=" not in refused.output
    )
    ok(store("key", "trust", bob, "--group", "editors"))
    assert "it would count" in ok(store("show", "r.bundle"))


def test_a_decision_is_shown_at_its_time(store):
    """And who started the run stays known."""
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))
    before = store.json("show", "r")["run"]["started_by"]
    ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    ok(store("approve", "r.bundle"))
    (decided,) = store.json("show", "r.bundle")["decisions"]
    told = store.json("show", "r.bundle")
    assert told["run"]["started_by"] == before is not None
    (event,) = told["children"][0]["untaken"]
    assert event["kind"] == "approval.decided" and event["at"] == decided["at"]


def test_a_failed_run_in_a_bundle_is_offered_what_can_be_done(store):
    ok(store("key", "new", "ana"))

    async def main():
        async with holdfast.open("sqlite:holdfast.db", agents=[broken]) as hf:
            await (await hf.start(broken, id="f")).wait()

    asyncio.run(main())
    ok(store("pause", "r"))
    for run in ("f", "r"):
        ok(store("export", run, "--to", f"{run}.bundle"))
        said = ok(store("show", f"{run}.bundle"))
        assert f"holdfast import {run}.bundle" in said and "--db" not in said


def test_commands_that_follow_name_the_store(store):
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))
    said = ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db", "--db", "sqlite:holdfast.db"))
    assert "import r.bundle --receipt r.bundle.receipt --db sqlite:other.db" in said
    assert "export r --confirm r.bundle.receipt --db sqlite:holdfast.db" in said
    ok(store("approve", "r.bundle"))
    done = ok(store("import", "r.bundle", "--without-decision", "1", "--db", "sqlite:other.db"))
    assert "Left out, as you said: decision 1" in done and "show r --db sqlite:other.db" in done


def test_an_import_that_is_given_again_changes_nothing_and_names_the_receipt(store):
    """So whoever was killed behind its commit confirms the move all the same, as the page on bundles says."""
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))
    ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    ok(store("import", "r.bundle", "--db", "sqlite:other.db"))
    before = [ok(store(word, "r", "--db", "sqlite:other.db", "--json")) for word in ("steps", "audit")]
    again = store("import", "r.bundle", "--receipt", "r.receipt", "--db", "sqlite:other.db")
    assert again.exit_code == 2 and "`holdfast receipt r` gives its receipt" in " ".join(again.output.split())
    assert [ok(store(word, "r", "--db", "sqlite:other.db", "--json")) for word in ("steps", "audit")] == before
    ok(store("receipt", "r", "--to", "r.receipt", "--db", "sqlite:other.db"))
    assert "as the receipt proves" in ok(store("export", "r", "--confirm", "r.receipt"))


def test_the_audit_says_why_a_run_came_and_went(store):
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))
    ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    ok(store("approve", "r.bundle"))
    words = ("import", "r.bundle", "--without-decision", "1", "--receipt", "r.receipt", "--db", "sqlite:other.db")
    ok(store(*words))
    again = store(*words)
    assert again.exit_code == 2 and "was imported here before" in again.output and "holdfast receipt r" in again.output
    came = " ".join(ok(store("audit", "r", "--db", "sqlite:other.db")).split())
    assert "a move from store" in came and "without decision 1" in came
    ok(store("export", "r", "--confirm", "r.receipt"))
    ok(store("export", "r", "--confirm"))
    gone = " ".join(ok(store("audit", "r")).split())
    assert "to store" in gone and "by a receipt of ana" in gone and "on a person's word" in gone


def test_a_refused_import_makes_no_store(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "c.bundle"))
    ok(store("export", "r", "--to", "r.bundle", "--move", "0" * 32))
    wrong = store("import", "r.bundle")
    assert wrong.exit_code == 2 and "--undo --force" in wrong.output
    for words, why in (
        (("r.bundle",), "is a move for store 000"),
        (("c.bundle", "--id", "r"), "--id 'r' is that of the original"),
    ):
        refused = store("import", *words, "--db", "sqlite:new.db")
        assert refused.exit_code == 2 and why in refused.output, refused.output
        assert not list(store.folder.glob("new.db*"))
    ok(store("import", "c.bundle", "--id", "c", "--db", "sqlite:new.db"))


def test_a_key_that_is_trusted_for_less_says_so(store):
    line = holdfast.Keys(store.folder / "theirs").new("bob").public
    ok(store("key", "trust", line, "--use", "decisions", "--group", "editors"))
    said = store("key", "trust", line, "--use", "bundles")
    assert "for bundles" in ok(said) and "It was trusted for decisions, in editors until now" in said.output
    assert "until now" not in store("key", "trust", line).output


def test_a_fork_that_nobody_serves_says_so(store):
    said = store("fork", "r", "--id", "g", "--replace", 'arguments={"text": "seals"}')
    assert "goes on from before event" in ok(said) and "No live worker serves 'desk'" in said.output
    assert "a fork of r" in (told := " ".join(ok(store("audit", "g")).split())) and "replaced: arguments" in told


def test_commands_that_take_no_file_say_so(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    for words in (("state", "r.bundle"), ("tail", "r.bundle"), ("audit", "r.bundle"), ("diff", "r", "r.bundle")):
        said = store(*words)
        assert said.exit_code == 2 and "takes no file" in said.output, said.output
    ok(store("export", "r", "--to", "m.bundle", "--move", "0" * 32))
    unknown = store("approve", "m.bundle", "nothing")
    assert unknown.exit_code == 2 and "holdfast approvals m.bundle" in unknown.output


def test_a_copy_goes_to_standard_output(store):
    ok(store("key", "new", "ana"))
    made = store("export", "r")
    assert made.exit_code == 0 and made.stdout_bytes.startswith(b"holdfast-bundle 1\n")
    (store.folder / "r.bundle").write_bytes(made.stdout_bytes)
    summary = json.loads(made.stdout_bytes.split(b"\n")[1])
    assert (summary["agent"], summary["done"]["steps"], summary["asks"][0]["to"]) == ("desk", 1, ["editors"])
    data = store.json("show", "r.bundle")
    assert data["bundle"]["kind"] == "copy" and data["run"]["id"] == "r" and len(data["children"]) == 1
    assert store.json("show", "r")["run"]["status"] == "waiting"


def test_a_move_is_taken_back(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle", "--move", "0" * 32))
    refused = store("export", "r", "--undo")
    assert refused.exit_code == 2 and "--force" in refused.output
    assert "goes on here" in ok(store("export", "r", "--undo", "--force"))
    assert store.json("runs")["runs"][0]["status"] == "waiting"


def test_an_import_writes_the_receipt_by_which_the_source_confirms(store):
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))  # makes the store
    ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    said = ok(store("import", "r.bundle", "--receipt", "r.receipt", "--db", "sqlite:other.db"))
    assert "holdfast export r --confirm r.receipt" in said
    again = store("import", "r.bundle", "--db", "sqlite:other.db")
    assert again.exit_code == 2 and "holdfast receipt r" in again.output
    assert "as the receipt proves" in ok(store("export", "r", "--confirm", "r.receipt"))


def test_a_dry_run_makes_no_store(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    said = store("import", "r.bundle", "--dry-run", "--db", "sqlite:new.db")
    assert "Would import run r-" in ok(said) and "the import would make it" in said.output
    assert not list(store.folder.glob("new.db*"))


def test_a_decider_with_two_keys_is_told_how_to_name_one(store):
    for name in ("ana", "bob"):
        ok(store("key", "new", name))
    ok(store("export", "r", "--to", "r.bundle", "--move", "0" * 32, "--key", "ana"))
    refused = store("approve", "r.bundle")
    assert refused.exit_code == 2 and "--key NAME" in refused.output
    assert "Signed as bob" in ok(store("approve", "r.bundle", "--key", "bob"))
    assert store("approve", "r", "--key", "bob").exit_code == 2


def test_a_key_is_known_without_being_trusted(store):
    ok(store("key", "new", "ana"))
    line = holdfast.Keys(store.folder / "theirs").new("bob").public
    assert "count for nothing" in ok(store("key", "add", line))
    assert [(key["name"], key["uses"]) for key in store.json("key", "list")["keys"]][1] == ("bob", [])
    assert "nothing" in ok(store("key", "list"))
    ok(store("export", "r", "--to", "r.bundle", "--for", "bob"))
    unknown = store("export", "r", "--to", "x.bundle", "--for", "eve")
    assert unknown.exit_code == 2 and "holdfast key add LINE" in unknown.output


def test_a_run_in_a_bundle_is_looked_into_without_a_store(store):
    """`steps FILE` and `snapshot FILE` as `show FILE`."""
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    (store.folder / "holdfast.db").rename(store.folder / "away.db")
    assert "publishing" in ok(store("steps", "r.bundle"))
    assert [step["name"] for step in store.json("steps", "r.bundle")["steps"]] == ["publishing"]
    assert store.json("steps", "r.bundle", "publishing#0")["step"]["status"] == "waiting"
    assert "Publish this?" in ok(store("snapshot", "r.bundle"))
    assert store.json("snapshot", "r.bundle")["snapshot"]["run"]["id"] == "r"


def test_a_damaged_file_says_what_to_do(store):
    ok(store("key", "new", "ana"))
    ok(store("export", "r", "--to", "r.bundle"))
    whole = (store.folder / "r.bundle").read_bytes()
    for damaged in (
        whole[:-10],
        whole[:100],
        whole[:-1] + bytes([whole[-1] ^ 1]),
        whole.replace(b'"agent"', b'"agenT"', 1),
    ):
        (store.folder / "r.bundle").write_bytes(damaged)
        said = store("show", "r.bundle")
        assert said.exit_code == 2 and "sha256sum" in said.output, said.output


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("export", "r", "--move", "0" * 32), "--to FILE"),
        (("export", "r", "--to", "r.bundle"), "holdfast key new"),
        (("export", "r", "--confirm", "--undo"), "give one of them"),
        (("export", "nobody", "--to", "x"), "no run 'nobody'"),
        (("import", "nothing"), "cannot be read"),
        (("import", "holdfast.db"), "not a bundle"),
        (("approvals", "holdfast.db"), "is no bundle"),
        (("approve", "holdfast.db", "q-1"), "is no bundle"),
        (("approve", "a", "b", "c"), "3 ids were given"),
        (("key", "new"), "say whose"),
        (("key", "new", "../x"), "cannot name a key"),
        (("key", "trust", "ssh-ed25519 AAAA"), "not the line of a public key"),
        (("key", "show", "eve"), "no key of 'eve'"),
    ],
)
def test_what_cannot_be_done_is_said_with_what_can(store, words, why):
    result = store(*words)
    assert result.exit_code == 2 and why in result.output, result.output


@holdfast.agent
async def asks() -> str:
    return await holdfast.ask("Who goes there?", str)


def test_a_question_of_a_run_that_was_cut_short_is_not_drawn_as_open(cli):
    async def main():
        async with holdfast.open("sqlite:holdfast.db", agents=[asks]) as hf:
            run = await hf.start(asks, id="q")
            await run.wait_for_question()
            await run.wait("waiting")

    asyncio.run(main())
    assert f"{WAITS} Who goes there?" in ok(cli("show", "q"))
    for _ in range(2):  # the second one ends it, although nobody serves it
        ok(cli("cancel", "q"))
    assert WAITS not in (shown := ok(cli("show", "q"))) and "Who goes there?" in shown


def still_waits(store, run="r"):
    (found,) = [row for row in store.json("runs")["runs"] if row["id"] == run]
    return found["status"] == "waiting"


@pytest.mark.slow
def test_a_run_is_not_given_up_to_a_set_of_cells_nor_to_the_wrong_cell(store, cell_urls):  # noqa: F811
    """Only the cell that has the run's slot takes it, and the refusal names its URL."""
    ok(store("key", "new", "ana"))
    slot = slot_of("r")
    others = f"0-{slot - 1}, {slot + 1}-1023"
    db = written(store.folder / "cells.toml", cell_urls, {"a": others, "b": str(slot)})
    ok(store("cells", "check", "--db", db))
    whole = store("export", "r", "--to", "r.bundle", "--move", db)
    assert whole.exit_code == 2 and still_waits(store), whole.output
    said = " ".join(whole.output.split())
    assert f"Run 'r' belongs to slot {slot}, which is in cell 'b': use its URL, " in said and "_b" in said
    wrong = store("export", "r", "--to", "r.bundle", "--move", cell_urls["a"])
    assert wrong.exit_code == 2 and still_waits(store), wrong.output
    assert f"slot {slot} is not in this cell" in " ".join(wrong.output.split())
    assert not (store.folder / "r.bundle").exists()
    ok(store("export", "r", "--to", "r.bundle", "--move", cell_urls["b"]))
    over = store("import", "r.bundle", "--receipt", "r.receipt", "--db", db)
    said = " ".join(over.output.split())
    assert over.exit_code == 2 and "in cell 'b': use its URL" in said and "holdfast export r --undo --force" in said
    ok(store("import", "r.bundle", "--receipt", "r.receipt", "--db", cell_urls["b"]))


@holdfast.step
async def tells() -> None:
    async with holdfast.stream("answer") as out:
        await out.write("word")


@holdfast.agent
async def streams() -> bool:
    await tells()
    return bool(await holdfast.approve("Go on?"))


@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, True])
def test_a_run_is_not_given_up_to_a_cluster_that_would_refuse_it(store, temporal_url, postgres_url, beside):  # noqa: F811
    """Whether or not a database stands beside the cluster: what lies there comes by no bundle."""
    ok(store("key", "new", "ana"))
    there = f"{temporal_url}&side={quote(postgres_url, safe='')}" if beside else temporal_url

    async def main():
        async with holdfast.open("sqlite:holdfast.db", agents=[streams]) as hf:
            run = await hf.start(streams, id="s")
            await run.wait("waiting", waits_for="person", timeout=PATIENCE_S)
        async with holdfast.open(there) as hf:
            return await hf.store_id()

    to = asyncio.run(main())
    refused = store("export", "s", "--to", "s.bundle", "--move", there)
    assert refused.exit_code == 2 and still_waits(store, "s"), refused.output
    said = " ".join(refused.output.split())
    assert "run 's' was not moved" in said and "has streams, and a bundle does not bring that" in said
    assert "--undo" not in said
    ok(store("export", "s", "--to", "s.bundle", "--move", to))  # by its id it cannot be asked
    late = store("import", "s.bundle", "--db", there)
    assert late.exit_code == 2 and "holdfast export s --undo --force" in " ".join(late.output.split()), late.output
    ok(store("export", "s", "--undo", "--force"))
    assert still_waits(store, "s")


def test_a_start_with_the_id_of_a_run_that_moved_away_says_where_it_went(store):
    ok(store("key", "new", "ana"))
    ok(store("token", "x", "--db", "sqlite:other.db"))  # makes the store
    ok(store("export", "r", "--to", "r.bundle", "--move", "sqlite:other.db"))
    told = store("start", "desk", "on \x1b[31motters", "--id", "r")
    assert (told.exit_code, told.stdout) == (0, "r\n"), told.output
    said = " ".join(told.stderr.split())
    assert "Nothing was started: there was a run r of desk, and it was moved to store" in said
    assert "There already" not in said

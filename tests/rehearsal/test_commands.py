"""`holdfast replay`, `check`, `diff` and `rehearse`, as people and pipelines call them."""

import asyncio
import json
import subprocess
import sys

import pytest
from click.testing import CliRunner
from tests.histories.record import HERE, _connected, bring_back_postgres, bring_back_sqlite

import holdfast
import holdfast.testing
from holdfast.cli import main

CODE = """
import holdfast


@holdfast.step
async def search(topic: str) -> list[str]:
    return [f"{topic} 1", f"{topic} 2"]


@holdfast.step
async def publish(text: str) -> str:
    return f"published {text}"


@holdfast.agent
async def report(topic: str) -> str:
    found = await search(topic)
    text = ", ".join(found)
    if await holdfast.approve("Publish?", show=text):
        return await publish(text)
    return "kept"
"""


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Call a command in a folder with an app, a newer app and a store with two runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", "sqlite:runs.db")
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("app", "newer", "loud", "models", "long", "family", "tasks"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "app.py").write_text(CODE)
    (tmp_path / "newer.py").write_text(CODE.replace("await search(topic)", 'await search(topic + "!")'))
    (tmp_path / "loud.py").write_text(CODE.replace('", ".join(found)', '" AND ".join(found)'))

    def call(*words):
        return CliRunner().invoke(main, [str(word) for word in words], prog_name="holdfast")

    async def record():
        import app

        async with holdfast.testing.open(agents=[app], path=tmp_path / "runs.db") as hf:
            for name, topic in (("done", "otters"), ("other", "bees")):
                run = await hf.start(app.report, topic, id=name)
                await hf.approve(await run.wait_for_question(), by="ana")
                await run.result()
            run = await hf.start(app.report, "otters", id="open")
            await run.wait_for_question()
            await run.wait("waiting")

    sys.path.insert(0, str(tmp_path))
    asyncio.run(record())
    return call


def test_replay_prints_variables_where_it_stops(cli):
    whole = cli("replay", "open", "--code", "app.py")
    assert whole.exit_code == 0, whole.output
    assert "open  report  fits" in whole.stdout
    assert "report  app.py:19" in whole.stdout
    assert "text   'otters 1, otters 2'" in whole.stdout
    early = cli("replay", "open", "--code", "app.py", "--break", "search")
    assert "topic  'otters'" in early.stdout
    assert "found" not in early.stdout
    first = cli("replay", "open", "--code", "app.py", "--to", "0", "--json")
    told = json.loads(first.stdout)
    assert (told["verdict"], told["frames"][0]["variables"]["found"]) == ("fits", "['otters 1', 'otters 2']")


def test_replay_of_other_code_says_where_and_fails(cli):
    found = cli("replay", "open", "--code", "newer.py")
    assert found.exit_code == 1
    for word in ("diverges", "search#0", "newer.py:17", "step.completed of search", "otters!", "patched"):
        assert word in found.stdout, word


def test_replay_wants_one_end_and_an_app_that_is_there(cli):
    assert cli("replay", "open", "--code", "app.py", "--to", "0", "--break", "search").exit_code == 2
    assert cli("replay", "open").exit_code == 2
    assert cli("replay", "open", "--code", "none.py").exit_code == 2
    assert cli("replay", "nobody", "--code", "app.py").exit_code == 2
    assert cli("replay", "open", "--code", "app.py", "--break", "serch").exit_code == 2


def test_replay_prints_variables_whole_if_asked(cli, tmp_path):
    (tmp_path / "long.py").write_text(CODE.replace('", ".join(found)', '("x" * 5000, found)[1] and ("x" * 5000)'))
    brief, whole = [cli("replay", "open", "--code", "long.py", *more) for more in ((), ("--full",))]
    assert "x" * 300 not in brief.stdout
    assert "x" * 5000 in "".join(whole.stdout.split())


def test_replay_points_at_the_child_that_made_the_call(cli, tmp_path):
    (tmp_path / "family.py").write_text(
        CODE + "\n\n@holdfast.agent\nasync def above() -> str:\n    return await report('x')\n"
    )

    async def record():
        import family

        async with holdfast.testing.open(agents=[family], path=tmp_path / "runs.db") as hf:
            await hf.start(family.above, id="above")
            async for event in hf.events(kinds="approval.asked"):
                if event.run not in ("done", "other", "open"):
                    break

    asyncio.run(record())
    found = cli("replay", "above", "--code", "family.py", "--break", "search")
    assert found.exit_code == 2
    told = " ".join(found.output.split())
    child = told.partition("its child '")[2].partition("'")[0]
    assert f"replay '{child}' up to 'search#0'" in told
    assert cli("replay", child, "--code", "family.py", "--break", "search#0").exit_code == 0


def test_a_bundle_is_replayed_checked_and_rehearsed_without_a_store(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys"))
    holdfast.Keys().new("ana")
    for run in ("open", "done"):
        assert cli("export", run, "--to", f"{run}.bundle").exit_code == 0
    before = (tmp_path / "open.bundle").read_bytes()
    (tmp_path / "runs.db").unlink()
    found = cli("replay", "open.bundle", "--code", "app.py", "--break", "search")
    assert (found.exit_code, "topic  'otters'" in found.stdout) == (0, True), found.output
    assert cli("replay", "open.bundle", "--code", "newer.py").exit_code == 1
    good = cli("check", "app.py", "open.bundle", "done.bundle")
    assert (good.exit_code, "2 runs replayed: 2 fit" in good.stdout) == (0, True), good.output
    assert cli("check", "newer.py", "open.bundle").exit_code == 1
    again = cli("rehearse", "done.bundle", "--code", "app.py")
    assert (again.exit_code, "the same 3 calls" in again.stdout) == (0, True), again.output
    assert cli("rehearse", "done.bundle", "open.bundle", "--code", "app.py").exit_code == 2
    assert (tmp_path / "open.bundle").read_bytes() == before
    assert not (tmp_path / "runs.db").exists()


RUDE = """
import os
import sys
import threading
import time

import holdfast
from app import publish, search

print("loaded")


def rude():
    print("printed", os.environ.get("PYDANTIC_AI_NO_BANNER"))
    threading.Thread(target=time.sleep, args=(1000,)).start()
    try:
        input("name? ")
    except EOFError:
        pass


@holdfast.agent
async def report(topic: str) -> str:
    rude()
    found = await search(topic)
    text = ", ".join(found)
    if await holdfast.approve("Publish?", show=text):
        return await publish(text)
    return "kept"
"""


def typed(*words, **how):
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", *words], check=False, capture_output=True, text=True, timeout=60, **how
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("command", ["check", "replay", "rehearse"])
def test_code_that_prints_reads_and_starts_threads_disturbs_nobody(cli, tmp_path, command):
    """What it prints is not in our JSON, it waits for nobody at the terminal, and its threads do not keep the process."""
    (tmp_path / "rude.py").write_text(RUDE)
    words = ["check", "rude.py"] if command == "check" else [command, "open", "--code", "rude.py"]
    code, out, err = typed(*words, "--json", input="nobody reads this\n")
    assert (code, json.loads(out) != {}, "printed 1" in err) == (0, True, True), (code, out, err)


def test_code_that_never_gives_the_loop_back_is_a_finding_with_its_line(cli, tmp_path):
    spins = CODE.replace("found = await search(topic)", "found = await search(topic)\n    while topic:\n        pass")
    (tmp_path / "spins.py").write_text(spins)
    code, out, _ = typed("check", "spins.py", "--timeout", "0.5s", "--finished", "1")
    assert (code, "2 runs replayed: 2 cannot be told" in out) == (1, True), out
    assert "has kept the event loop for 0.5 s at spins.py:1" in " ".join(out.split())
    code, out, _ = typed("rehearse", "open", "--code", "spins.py", "--timeout", "0.5s")
    assert (code, out.count("has kept the event loop")) == (1, 1), out


def test_the_debugger_opens_at_a_step_and_steps_on_with_recorded_results(cli):
    code, out, err = typed("replay", "done", "--code", "app.py", "--break", "search", "--debug",
                           input="w\np topic\nn\np found\nn\nn\np text\nc\n")  # fmt: skip
    assert code == 0, (out, err)
    assert "app.py(17)report()\n-> found = await search(topic)" in out
    assert "(holdfast) 'otters'\n" in out
    assert "(holdfast) ['otters 1', 'otters 2']\n" in out
    assert "(holdfast) 'otters 1, otters 2'\n" in out
    assert "-- the record ends here --" in out
    assert "done  report  fits" in out
    assert "site-packages" not in out and "asyncio" not in out and "holdfast/engine" not in out


LOCKS = """
import re

import holdfast


@holdfast.agent
async def report(topic: str) -> str:
    re.match(r"(a+)+$", "a" * 60 + "b")
    return topic
"""


def test_code_that_keeps_pythons_own_lock_ends_the_command_with_its_line(cli, tmp_path):
    """Nothing in Python can stop it: the process ends, says where the code was, and does not say that all is well."""
    (tmp_path / "locks.py").write_text(LOCKS)
    call = "import holdfast.cli.rehearsal as r; r._LOCKED_S = 1.0; from holdfast.cli import main; main(['check', 'locks.py'])"
    done = subprocess.run([sys.executable, "-c", call], check=False, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'locks.py", line 9 in report' in done.stderr


FAMILY = """
import asyncio

import holdfast
from app import publish, search


async def one(topic, number):
    found = await search(f"{topic} {number}")
    return await publish(found[0])


@holdfast.agent
async def several(topic: str) -> list[str]:
    return await asyncio.gather(*[one(topic, number) for number in range(3)])
"""


def test_the_debugger_opens_in_the_task_and_in_the_round_that_is_meant(cli, tmp_path):
    (tmp_path / "tasks.py").write_text(FAMILY)

    async def record():
        import tasks

        async with holdfast.testing.open(agents=[tasks], path=tmp_path / "runs.db") as hf:
            await (await hf.start(tasks.several, "otters", id="tasks")).result()

    asyncio.run(record())
    code, out, err = typed("replay", "tasks", "--code", "tasks.py", "--break", "one#1/publish#0", "--debug",
                           input="p number, found\nn\nq\n")  # fmt: skip
    assert (code, "(holdfast) (1, ['otters 1 1', 'otters 1 2'])" in out) == (0, True), (out, err)


def test_the_debugger_prints_nothing_that_steers_a_terminal(cli, tmp_path):
    evil = CODE.replace(
        'text = ", ".join(found)', 'text = ", ".join(found)\n    raise ValueError("\\x1b[2J\\u202egone")'
    )
    (tmp_path / "evil.py").write_text(evil)
    _, out, _ = typed(
        "replay", "open", "--code", "evil.py", "--to", "0", "--debug", input="n\nn\np '\\x1b[2J'\nn\nn\nc\n"
    )
    assert "gone" in out and "\x1b" not in out and "\u202e" not in out


def test_the_debugger_opens_at_the_first_line_or_where_the_code_parts_and_can_be_left(cli):
    code, out, _ = typed("replay", "open", "--code", "app.py", "--debug", input="n\nn\nn\nc\n")
    assert (code, out.count("-> found = await search(topic)"), "the record ends here" in out) == (0, 1, True)
    code, out, _ = typed("replay", "open", "--code", "newer.py", "--debug", input="p topic\nc\n")
    assert (code, "newer.py(17)report()" in out, "diverges" in out) == (1, True, True)
    code, out, err = typed("replay", "done", "--code", "app.py", "--to", "0", "--debug", input="q\n")
    assert (code, "fits" in out, err) == (0, False, "")
    assert cli("replay", "done", "--code", "app.py", "--debug", "--json").exit_code == 2


def test_check_is_for_pipelines(cli):
    good = cli("check", "app.py")
    assert (good.exit_code, "3 runs replayed: 3 fit" in good.stdout) == (0, True), good.output
    bad = cli("check", "newer.py")
    assert bad.exit_code == 1
    assert "3 runs replayed: 3 diverge" in bad.stdout
    assert "open, other, done" in bad.stdout  # one finding, with all the runs that it is of
    assert bad.stdout.count("newer.py:17") == 1
    told = json.loads(cli("check", "newer.py", "--json").stdout)
    assert (told["fits"], [run["run"] for run in told["runs"]]) == (False, ["open", "other", "done"])
    one = cli("check", "newer.py", "--run", "open", "--finished", "0")
    assert "1 run replayed: 1 diverge" in one.stdout


def test_diff_shows_where_runs_part(cli):
    found = cli("diff", "done", "other")
    assert found.exit_code == 0, found.output
    for word in ("they part at search#0", "'otters'", "'bees'", "published otters 1", "published bees 1"):
        assert word in found.stdout, word
    told = json.loads(cli("diff", "done", "other", "--json").stdout)
    assert (told["same"], told["parted"]["key"]) == (False, "search#0")
    assert "the same" in cli("diff", "done", "done").stdout
    assert cli("diff", "done", "nobody").exit_code == 2


def test_rehearse_with_the_same_code_is_the_same(cli):
    found = cli("rehearse", "done", "--code", "app.py")
    assert found.exit_code == 0, found.output
    assert "the same 3 calls" in found.stdout
    assert "2 recorded" in found.stdout


def test_rehearse_with_other_code_stops_at_a_new_input_or_takes_an_answer(cli):
    stopped = cli("rehearse", "done", "--code", "newer.py")
    assert stopped.exit_code == 1
    assert stopped.stdout.lstrip().startswith("? done  stopped: search#0 is called")
    assert "search#0 is called with an input that the record does not have" in " ".join(stopped.stdout.split())
    loud = cli("rehearse", "done", "--code", "loud.py")
    assert "asks 'Publish?' and shows another value; --decide" in " ".join(loud.stdout.split())
    newer = cli("rehearse", "done", "--code", "newer.py", "--answer", 'search=["otters 1", "otters 2"]')
    assert newer.exit_code == 1
    assert "they part at search#0" in newer.stdout
    assert "1 recorded, 1 scripted" in newer.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("rehearse", "done", "--code", "app.py", "--answer", "serch=1"), "did you mean 'search'?"),
        (("rehearse", "done", "--code", "app.py", "--live", "serch"), "steps of the recorded runs: publish, search"),
        (
            ("rehearse", "done", "--code", "app.py", "--model", "models.py:nope"),
            "has no 'nope', which --model names; it has small",
        ),
        (("retry", "done", "--effects", "new"), "name that with --at"),
        (("import", "x.bundle", "--dry-run", "--receipt", "r"), "leave one of them out"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_what_can(cli, tmp_path, words, told):
    (tmp_path / "models.py").write_text("import sys\n\n\ndef f():\n    pass\n\n\nsmall = object()\n")
    found = cli(*words)
    assert (found.exit_code, told in " ".join(found.output.split())) == (2, True), found.output


def test_rehearse_of_many_runs_is_a_table(cli):
    found = cli("rehearse", "done", "other", "open", "--code", "app.py")
    assert found.exit_code == 0, found.output
    lines = [line.split() for line in found.stdout.splitlines()]
    assert ["done", "nowhere", "equal", "none", "none"] in lines
    told = json.loads(cli("rehearse", "done", "other", "--code", "app.py", "--json").stdout)
    assert [each["difference"]["same"] for each in told["rehearsals"]] == [True, True]


def test_nothing_is_written(cli, tmp_path):
    before = (tmp_path / "runs.db").read_bytes()
    for words in (("replay", "open", "--code", "app.py"), ("check", "app.py"), ("diff", "done", "other"),
                  ("rehearse", "open", "--code", "app.py")):  # fmt: skip
        assert cli(*words).exit_code == 0
    assert (tmp_path / "runs.db").read_bytes() == before


def test_a_store_of_an_older_version_is_not_brought_up_to_date(cli, tmp_path):
    """A check comes before the deploy: workers of the older version are still at work there."""
    older = tmp_path / "older.db"
    bring_back_sqlite(HERE / "0.1" / "sqlite.db.gz", f"sqlite:{older}")
    before, url = older.read_bytes(), f"sqlite:{older}"
    code = "tests.histories.agents"
    assert "fits" in cli("replay", "finished", "--code", code, "--db", url).stdout
    assert cli("diff", "sequence", "sequence", "--db", url).exit_code == 0
    assert json.loads(cli("check", code, "--db", url, "--json").stdout)["runs"]
    assert older.read_bytes() == before and sorted(path.name for path in tmp_path.glob("older.db*")) == ["older.db"]


def test_a_schema_of_an_older_version_is_not_brought_up_to_date(cli, postgres_nothing):
    async def schemas():
        connection, _ = await _connected(postgres_nothing)
        try:
            return await connection.fetchval("SELECT max(number) FROM migrations")
        finally:
            await connection.close()

    asyncio.run(bring_back_postgres(HERE / "0.1" / "postgres.json.gz", postgres_nothing))
    before = asyncio.run(schemas())
    said = cli("check", "tests.histories.agents", "--db", postgres_nothing)
    assert said.exit_code == 2 and "older Holdfast" in said.output and "holdfast backup" in said.output
    assert asyncio.run(schemas()) == before == 1

"""Backups: made of a store in use, whole or not there, put into a store of either kind, and asleep until they are told."""

from __future__ import annotations

import asyncio
import json
import random
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

import holdfast
from holdfast import BadArguments, StoreUnavailable
from holdfast.store.backup import seal
from holdfast.store.migrate import known, migrate

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {
    "test_a_backup_is_put_into_another_store_and_goes_on_there_when_it_is_told",
    "test_a_backup_under_load_is_one_moment",
    "test_a_restored_store_is_another_store",
    "test_from_the_command_line",
}

PATIENCE_S = 50
DONE: list[tuple[str, str]] = []


@holdfast.step
async def pay(run: str) -> str:
    DONE.append((run, holdfast.idempotency_key()))
    return "paid " + "x" * 1000


@holdfast.step(in_doubt="ask")
async def once(run: str) -> str:
    DONE.append((run, holdfast.idempotency_key()))
    await asyncio.Event().wait()
    return ""


@holdfast.agent(name="backup.buys")
async def buys(run: str) -> str:
    await holdfast.receive("go")
    return await pay(run)


@holdfast.agent(name="backup.sleeps")
async def sleeps(run: str) -> str:
    await holdfast.sleep("50ms")
    return await pay(run)


@holdfast.agent(name="backup.late", queue="late")
async def comes_late(run: str) -> str:
    return await pay(run)


@holdfast.agent(name="backup.asks")
async def asks() -> str:
    decision = await holdfast.approve("Pay?", show="y" * 100_000)
    return f"{decision.by} {len(decision.data)}"


@holdfast.agent(name="backup.risks")
async def risks(run: str) -> str:
    return await once(run)


AGENTS = [buys, sleeps, comes_late, asks, risks]
PROGRAM = """
import holdfast

@holdfast.agent
async def sings() -> None: ...
"""


@pytest.fixture(params=["sqlite", "postgres"])
def other_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a backup is put: an empty store of each kind."""
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'other.db'}?durability=process"
    server: str = request.getfixturevalue("postgres_server")
    return f"{server}{'&' if '?' in server else '?'}schema=test_{secrets.token_hex(6)}"


@pytest.fixture
def backup_file(tmp_path: Path) -> Path:
    """A backup with runs that wait and one that has ended."""
    file = tmp_path / "copy.backup"

    async def original(hf):
        await (await hf.start(sleeps, "done", id="done")).result()
        await (await hf.start(buys, "a", id="a")).wait("waiting")
        await (await hf.start(asks, id="q")).wait("waiting")
        await hf.start("backup.buys", run="late", id="late", after="1h")
        await hf.backup(file)

    at(f"sqlite:{tmp_path / 'source.db'}", original)
    (tmp_path / "buys.py").write_text(PROGRAM)
    return file


def at(url, main, agents=AGENTS, **settings):
    async def opened():
        options = holdfast.Settings(park_grace_s=0, stop_grace_s=1, **settings)
        async with holdfast.open(url, agents=agents, settings=options) as hf:
            return await asyncio.wait_for(main(hf), PATIENCE_S)

    return asyncio.run(opened())


async def filled(hf):
    """Runs in many states: finished, waiting for a message, a timer, a person; and one in the middle of a body."""
    done = await hf.start(sleeps, "done", id="done", labels={"team": "x"})
    await done.result()
    for name in ("a", "b"):
        await (await hf.start(buys, name, id=name)).wait("waiting")
    await (await hf.start(asks, id="q")).wait("waiting")
    await hf.start(risks, "r", id="r")
    while ("r",) not in {key[:1] for key in DONE}:
        await asyncio.sleep(0.01)
    await hf.create_token("ana")
    await hf.start(comes_late, "late", id="late")  # its queue is one that nobody serves here


@pytest.mark.by_day("sqlite-postgres", "postgres-sqlite")
def test_a_backup_is_put_into_another_store_and_goes_on_there_when_it_is_told(store_url, other_url, tmp_path):
    """Nothing begins before; then all goes on, with the idempotency keys of the original, and what was in doubt is asked."""
    DONE.clear()
    file = tmp_path / "copy.backup"

    async def original(hf):
        await filled(hf)
        await hf.backup(file)
        listed = {run.id: run.status for run in await hf.runs()}
        for name in ("a", "b"):
            await hf.get(name).send("go")
        return listed, {name: await hf.get(name, buys).result() for name in ("a", "b")}

    listed, results = at(store_url, original, queues=["default"])
    keys = dict(DONE)
    DONE.clear()

    async def restored():
        return await holdfast.restore_backup(file, other_url)

    asyncio.run(restored())

    async def asleep(hf):
        assert {run.id: run.status for run in await hf.runs()} == listed
        assert listed["late"] == "ready"
        assert [event.kind async for event in hf.get("done").events()][-1] == "run.completed"
        assert await hf.get("done", sleeps).result() == results["a"]
        await hf.get("a").send("go")
        await asyncio.sleep(0.5)  # `late` is served here, and the message is there: nothing must happen
        assert DONE == []

    at(other_url, asleep)

    async def goes_on(hf):
        assert DONE == []
        await hf.acting_as("ana").activate()
        await hf.get("b").send("go")
        assert {name: await hf.get(name, buys).result() for name in ("a", "b")} == results
        assert await hf.get("late", comes_late).result() == results["a"]
        await hf.approve("q", by="ana")
        assert await hf.get("q", asks).result() == "ana 100000"
        while not [question for question in await hf.approvals(run="r") if question.kind == "in_doubt"]:
            await asyncio.sleep(0.01)
        assert dict(DONE) == {name: keys[name] for name in ("a", "b")} | {"late": dict(DONE)["late"]}
        told = [(deed.by, deed.action) for deed in reversed(await hf.audit(action=["backup", "restore", "activate"]))]
        assert told == [("someone", "backup"), ("someone", "restore"), ("ana", "activate")]
        assert (await hf.store.facts())["integrity"] == "ok"
        await hf.start(sleeps, "new", id="new")
        await hf.get("new").wait()
        positions = [event.position async for event in hf.events(follow=False)]
        assert positions == sorted(set(positions))
        assert [event.run async for event in hf.events(follow=False)][-1] in ("new", "r")

    at(other_url, goes_on)


def beside(file: Path) -> dict[str, bytes]:
    """The file and whatever lies beside it under a name that begins with its own."""
    return {each.name: each.read_bytes() if each.is_file() else b"" for each in file.parent.glob(f"{file.name}*")}


def test_a_backup_can_be_looked_at_and_stays_as_it_is(store_url, tmp_path):
    """A client reads it, a worker is refused before it does anything, and it can be restored all the same."""
    DONE.clear()
    file = tmp_path / "copy.backup"

    async def original(hf):
        await hf.start(sleeps, "s", id="s", after="100ms")
        await hf.backup(file)

    at(store_url, original, agents=())
    before = beside(file)

    async def look(hf):
        assert (await hf.store.facts())["integrity"] == "ok"
        return [(run.id, run.status) for run in await hf.runs()]

    assert at(f"sqlite:{file}", look, agents=()) == [("s", "ready")]
    with pytest.raises(StoreUnavailable, match="is a backup"):
        at(f"sqlite:{file}", look)
    assert DONE == [] and beside(file) == before
    asyncio.run(holdfast.restore_backup(file, f"sqlite:{tmp_path / 'again.db'}"))


def test_a_backup_of_an_older_schema_can_be_looked_at_and_stays_as_it_is(tmp_path):
    """What is read is a copy that was brought up to date."""
    file = tmp_path / "old.backup"
    db = apsw.Connection(str(file))
    migrate(db, 0, [migration for migration in known() if migration.number <= 5])
    db.execute("INSERT INTO tokens VALUES ('t', 'ana', '[]', '[]', 'd', 0, NULL)")
    seal(db, "original", 1)
    db.close()
    before = beside(file)
    assert [token.name for token in at(f"sqlite:{file}", lambda hf: hf.tokens(), agents=())] == ["ana"]
    assert beside(file) == before


@pytest.mark.parametrize(
    "words",
    [
        ("restore", "--activate"), ("run", "buys.py:sings"), ("worker", "buys.py"), ("start", "backup.buys", "--arg", "run=y"),
        ("send", "a", "go", "1"), ("cancel", "a"), ("pause", "a"), ("approve", "q"), ("delete", "done"),
        ("prune", "--older-than", "1ms"), ("token", "ben"), ("backup", "second.backup"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_backup_refuses_every_command_that_would_change_it(words, commands, backup_file):
    """With how to make a store of it; the file stays what it was, and nothing lies beside it."""
    from tests.processes.office import Office

    before = beside(backup_file)
    said = Office(commands, f"sqlite:{backup_file}", backup_file.parent).say(*words, code=2)
    assert "is a backup" in said and re.search(r"holdfast restore \S*copy\.backup --db sqlite:NEW\.db", said)
    assert "--activate" not in said
    assert beside(backup_file) == before


@pytest.mark.parametrize("words", [("runs",), ("runs", "--stuck"), ("show", "a"), ("approvals",), ("audit",)])
def test_a_backup_is_not_changed_by_commands_that_look(words, commands, backup_file):
    """What they say of going on is how to make a store of it."""
    from tests.processes.office import Office

    before, office = beside(backup_file), Office(commands, f"sqlite:{backup_file}", backup_file.parent)
    said = office.say(*words)
    assert "--activate" not in said and "holdfast run" not in said
    if words[0] in ("runs", "show", "approvals"):
        assert "is a backup" in said and "--db sqlite:NEW.db" in said
    assert "--db sqlite:NEW.db" in office.say("doctor", code=1)
    assert beside(backup_file) == before


def test_a_file_that_was_opened_as_a_store_once_leaves_no_log_beside_it(tmp_path):
    """Versions before switched a backup to a write-ahead log when they looked at it; who reads it now, whole or cut, makes none."""
    file = tmp_path / "copy.backup"
    at(f"sqlite:{tmp_path / 'source.db'}", lambda hf: hf.backup(file), agents=())
    db = apsw.Connection(str(file))
    db.pragma("journal_mode", "wal")
    db.close()
    before = beside(file)
    assert at(f"sqlite:{file}", lambda hf: hf.runs(), agents=()) == []
    asyncio.run(holdfast.restore_backup(file, f"sqlite:{tmp_path / 'again.db'}"))
    assert beside(file) == before
    damaged(file, "cut")
    before = beside(file)
    with pytest.raises(BadArguments, match="damaged"):
        asyncio.run(holdfast.restore_backup(file, f"sqlite:{tmp_path / 'no.db'}"))
    assert beside(file) == before


def test_a_restored_store_is_another_store(store_url, other_url, tmp_path):
    """It has an identity of its own, and says of which one it is a copy, and that it is held."""
    file = tmp_path / "copy.backup"

    async def identity(hf):
        return (await hf.store.facts())["identity"]

    async def original(hf):
        await hf.backup(file)
        return await identity(hf)

    first = at(store_url, original, agents=())
    asyncio.run(holdfast.restore_backup(file, other_url))
    second = at(other_url, identity, agents=())
    assert first["held_at"] is None and first["backup_of"] is None
    assert second["id"] != first["id"] and second["backup_of"] == first["id"]
    assert second["held_at"] is not None


def test_a_backup_under_load_is_one_moment(store_url, tmp_path):
    """While runs are recorded as fast as can be, the copy has whole runs: as many events as their rows say."""
    file = tmp_path / "copy.backup"

    async def main(hf):
        over = False

        async def load():
            while not over:
                await asyncio.gather(*[hf.run(pays, str(n)) for n in range(20)])

        loading = asyncio.create_task(load())
        await asyncio.sleep(0.2)
        for _ in range(3):
            file.unlink(missing_ok=True)
            await hf.backup(file)
        over = True
        await loading

    @holdfast.agent(name="backup.pays")
    async def pays(run: str) -> None:
        for _ in range(5):
            await pay(run)

    at(store_url, main, agents=[pays])
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
    wrong = db.execute(
        "SELECT id, next_seq, (SELECT count(*) FROM events WHERE run_id = runs.id) FROM runs"
        " WHERE next_seq <> (SELECT count(*) FROM events WHERE run_id = runs.id)"
    ).fetchall()
    runs = db.execute("SELECT count(*) FROM runs").get
    db.close()
    assert wrong == [] and runs >= 20


@pytest.mark.by_day("sqlite")
def test_a_process_that_is_killed_while_it_copies_leaves_nothing_that_looks_whole(store_url, tmp_path):
    """There is no file of that name; what is there cannot be restored, and the next backup is whole."""
    file, source = tmp_path / "backups" / "copy.backup", Path(__file__).parent / "backup_program.py"
    file.parent.mkdir()

    async def nothing(hf):
        """That the agents are known."""
        await hf.agents()

    async def much(hf):
        value = "x" * 60_000
        await asyncio.gather(*[hf.start("backup.buys", run=value + str(n)) for n in range(400)])

    at(store_url, nothing)
    at(store_url, much, agents=())
    copying = subprocess.Popen([sys.executable, str(source), store_url, str(file)], stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + PATIENCE_S
        while not any(part.stat().st_size for part in file.parent.iterdir()):
            assert copying.poll() is None and time.monotonic() < end
            time.sleep(0.001)
    finally:
        copying.kill()
        copying.wait()
    assert not file.exists()
    for part in file.parent.iterdir():
        assert part.suffix == ".part" or ".part-" in part.name
        if part.suffix == ".part":
            with pytest.raises(BadArguments):
                asyncio.run(holdfast.restore_backup(part, f"sqlite:{tmp_path / 'no.db'}"))
    at(store_url, lambda hf: hf.backup(file), agents=())
    asyncio.run(holdfast.restore_backup(file, f"sqlite:{tmp_path / 'yes.db'}"))
    assert len(at(f"sqlite:{tmp_path / 'yes.db'}", lambda hf: hf.runs(limit=500), agents=())) == 400


def damaged(path: Path, how: str) -> None:
    """What disks, programs and people do to files."""
    content = bytearray(path.read_bytes())
    if how == "cut":
        content = content[: len(content) // 2]
    elif how == "empty":
        content = bytearray()
    elif how == "text":
        content = bytearray(b"this is no database\n" * 50)
    elif how == "flipped":  # a letter of a value
        place = content.index(b"otters")
        content[place] = ord("a")
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("cut", "damaged"), ("empty", "is no backup"), ("text", "is no backup"), ("flipped", "damaged"),
        ("foreign", "is no backup"), ("store", "is a store and no backup"), ("missing", "there is no file"),
        ("newer", "upgrade this one"),
    ],
)  # fmt: skip
def test_what_is_no_whole_backup_is_refused_and_changes_nothing(how, told, store_url, tmp_path):
    """With what was found, before anything is written."""
    file, source = tmp_path / "copy.backup", f"sqlite:{tmp_path / 'source.db'}"

    async def original(hf):
        await hf.start(buys, "otters", id="a")
        await hf.backup(file)

    at(source, original, agents=())
    if how == "foreign":
        file.unlink()
        db = apsw.Connection(str(file))
        db.execute("CREATE TABLE notes (text)")
        db.close()
    elif how == "store":
        file = tmp_path / "source.db"
    elif how == "missing":
        file.unlink()
    elif how == "newer":
        db = apsw.Connection(str(file))
        db.execute("INSERT INTO migrations VALUES (9999, 'later', '', 0)")
        db.close()
    else:
        damaged(file, how)
    with pytest.raises((BadArguments, StoreUnavailable, holdfast.NewerJournal), match=told):
        asyncio.run(holdfast.restore_backup(file, store_url))
    assert at(store_url, lambda hf: hf.runs(), agents=()) == []


def harmed(whole: bytes, chance: random.Random) -> Iterator[bytes]:
    """A file with a bit flipped where there is something, at many places, cut at others, and with something behind it."""
    used = [place for place, byte in enumerate(whole) if byte and whole[place : place + 8] != b"y" * 8]
    for place in chance.sample(used, 200):
        yield whole[:place] + bytes([whole[place] ^ 1 << chance.randrange(8)]) + whole[place + 1 :]
    for place in chance.sample(range(len(whole)), 30):
        yield whole[:place]
    for length in (1, 4096, 10_000):
        yield whole + chance.randbytes(length)


def content(path: Path) -> list[object]:
    """All that a restored store has, but its identity and when it was restored."""
    db = apsw.Connection(str(path))
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")]
    rows = [sorted(ascii(row) for row in db.execute(f'SELECT * FROM "{table}"') if "restore" not in row)
            for table in tables if table != "identity"]  # fmt: skip
    found = [rows, db.execute("SELECT sql FROM sqlite_schema ORDER BY type, name").fetchall(),
             db.execute("SELECT backup_of, backup_at FROM identity").fetchall()]  # fmt: skip
    db.close()
    return found


@pytest.mark.by_day("sqlite")
def test_a_backup_that_was_harmed_anywhere_is_refused_or_restored_whole(store_url, tmp_path):
    """With one flipped bit, or cut off: it says so, and leaves nothing. A bit that means nothing may be any."""
    file, target = tmp_path / "copy.backup", tmp_path / "new.db"

    async def original(hf):
        await (await hf.start(sleeps, "done", id="done", labels={"team": "otters"})).result()
        await (await hf.start(asks, id="q")).wait("waiting")
        await hf.backup(file)

    at(store_url, original)

    def restored() -> list[object]:
        asyncio.run(holdfast.restore_backup(file, f"sqlite:{target}?durability=process"))
        found = content(target)
        target.unlink()
        return found

    right, told = restored(), list[str]()
    for damaged_file in harmed(file.read_bytes(), random.Random(7)):
        file.write_bytes(damaged_file)
        try:
            assert restored() == right
        except BadArguments as error:
            told.append(str(error))
            assert [path.name for path in tmp_path.iterdir() if "new.db" in path.name] == []
    assert len(told) > 100
    assert all("is damaged" in each or "is no backup" in each for each in told)


def test_a_store_that_has_anything_is_not_overwritten(store_url, tmp_path):
    """Neither by a backup nor by a restore; both say what is there."""
    file = tmp_path / "copy.backup"

    async def main(hf):
        await hf.start(buys, "x", id="mine")
        await hf.backup(file)
        with pytest.raises(BadArguments, match="is there already"):
            await hf.backup(file)

    at(store_url, main, agents=())
    with pytest.raises(BadArguments, match=r"is not empty|is there already"):
        asyncio.run(holdfast.restore_backup(file, store_url))
    assert [run.id for run in at(store_url, lambda hf: hf.runs(), agents=())] == ["mine"]


def test_a_backup_of_an_older_schema_is_brought_up_to_date(store_url, tmp_path):
    """As the first version that made backups made them; the file itself stays as it was."""
    file = tmp_path / "old.backup"
    db = apsw.Connection(str(file))
    migrate(db, 0, [migration for migration in known() if migration.number <= 5])
    db.execute("INSERT INTO tokens VALUES ('t', 'ana', '[]', '[]', 'd', 0, NULL)")
    seal(db, "original", 1)
    db.close()
    before = file.read_bytes()
    asyncio.run(holdfast.restore_backup(file, store_url))
    assert file.read_bytes() == before
    assert [token.name for token in at(store_url, lambda hf: hf.tokens(), agents=())] == ["ana"]


@pytest.mark.by_day("sqlite-postgres")
def test_from_the_command_line(commands, store_url, other_url, tmp_path):
    """`backup`, `restore`, what `doctor` and a worker say of a store that is held, and `restore --activate`."""
    from tests.processes.office import Office

    office, other = Office(commands, store_url, tmp_path), Office(commands, other_url, tmp_path)
    at(store_url, lambda hf: hf.start(buys, "x", id="a"), agents=())
    said = office.say("backup", str(tmp_path / "copy.backup"))
    assert re.search(r"1 run\b.*copy\.backup", said)
    assert "is there already" in office.say("backup", str(tmp_path / "copy.backup"), code=2)
    said = other.say("restore", str(tmp_path / "copy.backup"))
    assert "holdfast restore --activate" in said
    assert re.search("is not empty|is there already", other.say("restore", str(tmp_path / "copy.backup"), code=2))
    assert "restore --activate" in other.say("doctor", "--json", code=1)
    (tmp_path / "buys.py").write_text(PROGRAM)
    assert "restore --activate" in other.say("run", "buys.py:sings", code=2)
    for words in (("runs",), ("show", "a"), ("runs", "--stuck")):
        said = other.say(*words)
        assert "held" in said and "restore --activate" in said and "holdfast run" not in said
        told = json.loads(other.say(*words, "--json"))["held"]
        assert "no run is carried" in told["what"] and "restore --activate" in told["command"]
    assert "1 run" in other.say("restore", "--activate")
    assert "is not held" in other.say("restore", "--activate", code=2)
    assert json.loads(other.say("runs", "--json"))["held"] is None
    doors = [
        deed.via.partition(":")[0] for deed in other.ask(lambda hf: hf.audit(action=["backup", "restore", "activate"]))
    ]
    assert doors == ["cli", "cli", "cli"]

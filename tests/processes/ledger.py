"""The outside world of the scenarios: a file to which every effect adds one line, and what the store says beside it.

The ledger is written with O_APPEND in one call per line, outside of anything Holdfast knows: whatever happens to the
process, a line that was written is there, and it is there as often as the effect happened.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs

import apsw
import asyncpg

import holdfast
from holdfast.words.model import CLOSING


class Line(NamedTuple):
    """One effect: in which run, by which call and attempt, with which idempotency key, in which process, and what."""

    run: str
    key: str
    idempotency_key: str
    attempt: int
    pid: int
    what: str


class Recorded(NamedTuple):
    """One event, as the file has it."""

    run: str
    seq: int
    kind: str
    key: str
    data: dict


class Place:
    """A folder with a store and a ledger. Both sides use it: processes write, the test reads.

    With a `url` the store is there instead, in a schema of PostgreSQL.
    """

    def __init__(self, folder, disk=None, url=None):
        self.folder, self.url = Path(folder), url
        self.store, self.ledger = Path(disk or folder) / "runs.db", self.folder / "ledger"
        self.kill_at = None  # (number of the effect in this process, "before" or "after" it)
        self.effects = 0
        self._fd = None

    # In a process

    def effect(self, what=""):
        """Do something to the world that nothing can take back; or die just before or after, if a test wants that."""
        step = holdfast.this_step()
        assert step.run is not None
        line = Line(step.run.id, step.key, step.idempotency_key, step.attempt, os.getpid(), what)
        self.effects += 1
        self._die_at("before")
        self.write("\t".join(map(str, line)))
        self._die_at("after")

    async def effect_of(self, what):
        """Wait until the ledger has this effect."""
        while what not in [line.what for line in self.lines()]:
            await asyncio.sleep(0.002)

    def _die_at(self, when):
        if self.kill_at == (self.effects, when):
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, text):
        if self._fd is None:
            self._fd = os.open(self.ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.write(self._fd, f"{text}\n".encode())

    # In the test

    def lines(self):
        """All effects so far, in order."""
        with contextlib.suppress(FileNotFoundError):
            rows = [text.split("\t") for text in self.ledger.read_text().splitlines()]
            return [Line(run, key, token, int(attempt), int(pid), what) for run, key, token, attempt, pid, what in rows]
        return []

    def effects_of(self, run):
        """How often each call of this run had its effect."""
        return Counter(line.key for line in self.lines() if line.run == run)

    def query(self, text, *bindings, busy_ms=10_000):
        """Ask the store's file, while others use it."""
        if self.url is not None:
            assert not bindings
            return asyncio.run(ask_postgres(self.url, text))
        db = apsw.Connection(str(self.store), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            db.set_busy_timeout(busy_ms)
            return db.execute(text, bindings).fetchall()
        finally:
            db.close()

    def locked(self):
        """Is a commit under way that does not end? A process that is stopped in the middle of one keeps all others out."""
        try:
            self.query("BEGIN IMMEDIATE", busy_ms=300)
        except apsw.BusyError:
            return True
        return False

    def clear(self):
        """Make a schema that was used before as good as new."""
        kept = "('migrations', 'positions', 'identity')"
        tables = self.query(
            f"SELECT tablename FROM pg_tables WHERE schemaname = current_schema AND tablename NOT IN {kept}"
        )
        if tables:
            self.query(f"TRUNCATE {', '.join(name for (name,) in tables)}")

    def run(self, run, *columns):
        """Columns of one run's row; one value when one is named."""
        ((*found,),) = self.query(f"SELECT {', '.join(columns)} FROM runs WHERE id = ?", run)
        return found[0] if len(columns) == 1 else tuple(found)

    def dead(self):
        """What is in the file while no process has it open. Read from a copy: recovery is left to the next process."""
        if self.url is not None:
            return self.events()
        with tempfile.TemporaryDirectory() as folder:
            for suffix in ("", "-wal"):
                with contextlib.suppress(FileNotFoundError):
                    shutil.copy(f"{self.store}{suffix}", f"{folder}/copy{suffix}")
            db = apsw.Connection(f"{folder}/copy")
            try:
                if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'events'").get:
                    return []
                rows = db.execute("SELECT run_id, seq, kind, key, data FROM events ORDER BY position").fetchall()
            finally:
                db.close()
        return [Recorded(run, seq, kind, key, json.loads(data or "{}")) for run, seq, kind, key, data in rows]

    def events(self):
        """What is in the file now."""
        rows = self.query("SELECT run_id, seq, kind, key, data FROM events ORDER BY position")
        return [Recorded(run, seq, kind, key, json.loads(data or "{}")) for run, seq, kind, key, data in rows]


async def ask_postgres(url, text):
    """The rows of one statement in the schema that the store is in."""
    server, _, options = url.partition("?")
    schema = parse_qs(options)["schema"][0]
    connection = await asyncpg.connect(server, server_settings={"search_path": schema})
    try:
        return [tuple(row) for row in await connection.fetch(text)]
    finally:
        await connection.close()


def until(holds, timeout=20.0):
    """Look at what processes have left in files and in the store until it is so."""
    end = time.monotonic() + timeout
    while not holds():
        assert time.monotonic() < end, "it never came to be so"
        time.sleep(0.005)


def closed(events):
    """The calls that have their outcome: (run, key). None has two."""
    found = [(event.run, event.key) for event in events if event.kind in CLOSING]
    assert len(found) == len(set(found)), f"two outcomes: {[each for each in found if found.count(each) > 1]}"
    return set(found)


def in_doubt(events):
    """The calls whose body may have begun and whose outcome is not there: (run, key)."""
    begun = {(event.run, event.key) for event in events if event.kind == "step.started"}
    return begun - closed(events)


def tried(events):
    """How many attempts of each call are on record as over."""
    return {(event.run, event.key): event.data["attempt"] for event in events if event.kind == "step.retrying"}


def check_once(before, lines, pids):
    """Nothing that was on record when a process died has its effect again in a later one.

    `before` is what was recorded when all earlier processes were gone, `pids` are the later ones.
    """
    over, attempts = closed(before), tried(before)
    for line in lines:
        if line.pid in pids:
            assert (line.run, line.key) not in over, f"{line} happened although its outcome is on record"
            assert line.attempt > attempts.get((line.run, line.key), 0), f"{line} happened although it is on record"


def check_tokens(lines):
    """A call has one idempotency key, and no other call has it."""
    tokens = {(line.run, line.key, line.idempotency_key) for line in lines}
    assert len(tokens) == len({(run, key) for run, key, _ in tokens}) == len({token for _, _, token in tokens})

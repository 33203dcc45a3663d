"""Bundles to which something was done: bytes of the file, or, signed anew with a trusted key, what the bytes say.

Most harm here makes of a bundle what is none, so none may be taken: a store that took one would have a run that never was. Harm
inside an event or a value (`OTHER`) may make another bundle, which its signer means. If that is taken, people can look at it, code
can be held against it, and a worker goes on with it until the run rests: waiting, paused, or at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import logging
import random
import re
import tempfile
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import apsw
from tests.client.bundle_agents import AGENTS, all_there_is, house, house_of_cards
from tests.security.fuzzers.hunting import SHOWN
from tests.security.fuzzers.texts import refused

import holdfast
from holdfast import errors
from holdfast.client.bundles import Opened, _replayed, read_from, summary
from holdfast.errors import BadBundle, HoldfastError
from holdfast.store.bundles import CONTENT, SECTIONS
from holdfast.values import bundle as files
from holdfast.values.bundle import Manifest, Section
from holdfast.words.events import told
from holdfast.words.facts import ALSO, NEEDED
from holdfast.worker.agents import specs_of

Rows = dict[str, list[list[Any]]]
NEVER = (1.5, True, [], {}, [1], {"a": 1}, -1, 2**60, 10**400, "\0", "\ud800")  # that no column holds
WORDS = ("", "nobody", "../../etc/passwd", "{", "[1", "NaN", "1" * 5000, "x" * 300, "\x1b[31m", "__import__('os')")


QUICK = holdfast.Settings(park_grace_s=0.0)
OURS = {each.__name__ for each in vars(errors).values() if isinstance(each, type) and issubclass(each, HoldfastError)}
_BROKEN = re.compile(r"cannot be set up: (?:holdfast\.errors\.)?(\w+)")


class _Handler(logging.Handler):
    """Keeps what was logged with a traceback that is not that of an agent."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[0] and record.exc_info[0].__name__ not in OURS:
            self._kept.append(self.format(record) + "".join(traceback.format_exception(*record.exc_info)))


@contextlib.contextmanager
def unlogged() -> Iterator[list[str]]:
    """Collect errors of the engine that a log would have; nothing is printed."""
    logged: list[str] = []
    handler = _Handler(logged)
    log = logging.getLogger("holdfast")
    before, log.propagate = log.propagate, False
    log.addHandler(handler)
    try:
        yield logged
    finally:
        log.removeHandler(handler)
        log.propagate = before


async def looked_at(taken: Opened, agents: list[Any]) -> None:
    """Do with a bundle what people do who have no store: read it, and hold code against it."""
    found = taken.found
    summary(found, 0, taken.head.manifest.kind)
    for run in found.runs:
        for event in found.events(run.id):
            told(event)
    for replay in await _replayed(found, specs_of(agents)):
        broken = _BROKEN.search(replay.reason or "")
        assert broken is None or broken[1] in OURS, replay.reason


async def borne(taken: Opened, content: bytes, folder: Path, keys: holdfast.Keys, agents: list[Any]) -> str:
    """Look at a bundle, and let a worker of the store in a folder go on with it. Returns how the run rests."""
    await looked_at(taken, agents)
    file = folder / "x.bundle"
    file.write_bytes(content)
    async with holdfast.open(f"sqlite:{folder}/b.db?durability=process", agents=agents, settings=QUICK) as hf:
        try:
            taken_in = hf.get((await hf.import_run(file, keys=keys)).run)
        except HoldfastError:
            return "refused"
        async with asyncio.timeout(10):
            rests = await taken_in.wait("waiting", "paused", "completed", "failed", "cancelled")
        broken = _BROKEN.search(rests.reason or "")
        assert broken is None or broken[1] in OURS, rests.reason
        [step async for step in taken_in.steps()]
        await taken_in.snapshot()
        return rests.status


def changes(before: bytes, after: bytes) -> list[str]:
    """Say in which rows two bundles differ, as far as both can be read."""
    try:
        first, second = (Apart.of(content).rows for content in (before, after))
    except BadBundle as error:
        return [f"it cannot be taken apart: {error}"]
    return [
        f"{section} {place} {column}: {str(old)[:SHOWN]} -> {str(new)[:SHOWN]}"
        for section in SECTIONS
        for place, rows in enumerate(itertools.zip_longest(first[section], second[section], fillvalue=()))
        if rows[0] != rows[1]
        for column, old, new in itertools.zip_longest(SECTIONS[section], *rows)
        if old != new
    ]


@functools.cache
def bomb() -> bytes:
    return zlib.compress(bytes(64 << 20), 9)


class Bundles:
    """A family with all that runs can have, and what can be done to its file."""

    name = "bundles"

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._folder = tempfile.TemporaryDirectory(prefix="holdfast-fuzz-")
        self.keys = holdfast.Keys(Path(self._folder.name) / "keys")
        self.signer = self.keys.new("ana")
        self.stranger = holdfast.Keys(Path(self._folder.name) / "others").new("eve")
        self.bases = asyncio.run(self._bases(Path(self._folder.name)))
        for base in self.bases:
            for whole in (base, self._said(base, [])):
                assert whole is not None
                read_from(io.BytesIO(whole), self.keys)  # unharmed it is taken

    def close(self) -> None:
        """Remove the folder of its keys."""
        self._folder.cleanup()

    async def _bases(self, folder: Path) -> list[bytes]:
        async with (
            holdfast.open(f"sqlite:{folder / 'a.db'}?durability=process", agents=AGENTS, settings=QUICK) as hf,
            holdfast.open(f"sqlite:{folder / 'b.db'}?durability=process") as other,
        ):
            all_of_it = await hf.start(all_there_is, "otters", id="a")
            asking = await hf.start(house, "ada", id="b")
            await asking.wait_for_question()
            for each in await hf.runs():
                await hf.get(each.id).wait("waiting", "completed")
            done = await hf.start(house_of_cards, "x", id="c")
            await done.result()
            fork = await done.fork(at=0, id="d")  # it knows what the other did
            await fork.wait_for_question()
            await fork.wait("waiting")
            made = []
            for run in (all_of_it, asking, fork):
                copied = io.BytesIO()
                await run.export(copied, keys=self.keys)
                await run.export(folder / f"{run.id}.bundle", move=await other.store_id(), keys=self.keys)
                made += [copied.getvalue(), (folder / f"{run.id}.bundle").read_bytes()]
        with apsw.Connection(str(folder / "b.db")) as db:
            db.pragma("wal_checkpoint(TRUNCATE)")
        self.empty = (folder / "b.db").read_bytes()
        return made

    def make(self, dice: random.Random) -> tuple[int, bool, list[tuple[str, int]]]:
        """Which bundle, whether it is signed anew, and what is done to it."""
        signed = dice.random() < 0.5
        harms = list(DONE if not signed else OTHER if dice.random() < 0.5 else SAID)
        return dice.randrange(len(self.bases)), signed, [(dice.choice(harms), dice.randrange(1 << 30))]

    def check(self, case: tuple[int, bool, list[tuple[str, int]]]) -> None:
        which, signed, harms = case
        base = self.bases[which]
        content = self._said(base, harms) if signed else self._done(base, harms)
        if content in (None, base, self._said(base, [])):
            self.seen["nothing to harm"] += 1
            return
        try:
            self._judge(content, signed, harms)
        except Exception as error:
            if signed:
                error.add_note("\n".join(changes(base, content)))
            raise

    def _judge(self, content: bytes, signed: bool, harms: list[tuple[str, int]]) -> None:
        taken, said = refused(read_from, io.BytesIO(content), self.keys, by=(BadBundle,))
        if taken is not None and signed and all(name in OTHER for name, _ in harms):
            self.bear(taken, content)
            self.seen["signed anew, taken and borne"] += 1
            return
        assert said, f"taken: {harms}"
        self.seen["signed anew, refused" if signed else "refused"] += 1

    def bear(self, taken: Opened, content: bytes) -> None:
        """Look at it, replay it, and let a worker go on with it: whatever it says, the run comes to rest."""
        with unlogged() as logged, tempfile.TemporaryDirectory(dir=self._folder.name) as folder:
            (Path(folder) / "b.db").write_bytes(self.empty)
            asyncio.run(borne(taken, content, Path(folder), self.keys, AGENTS))
        assert not logged, logged[0]

    def _done(self, base: bytes, harms: list[tuple[str, int]]) -> bytes | None:
        for name, number in harms:
            base = DONE[name](base, random.Random(number))
        return base

    def _said(self, base: bytes, harms: list[tuple[str, int]]) -> bytes | None:
        """Take the bundle apart, harm it, and sign it as if nothing had happened."""
        made = Apart.of(base)
        for name, number in harms:
            if not SAID[name](made, random.Random(number)):
                return None
        return made.together(self.signer)


@dataclasses.dataclass
class Apart:
    """A bundle taken apart."""

    manifest: Manifest
    summary: Any
    rows: Rows
    content: bytes
    told: Callable[[dict[str, Any]], None] = lambda _: None  # done to the manifest
    stored: dict[str, bytes] = dataclasses.field(default_factory=dict)  # in place of what is compressed
    tail: bytes = b""
    version: bytes = b"holdfast-bundle 1\n"

    @classmethod
    def of(cls, content: bytes) -> Apart:
        """Take it apart."""
        file = io.BytesIO(content)
        head = files.read_head(file)
        sections = {each.name: files.read_section(file, head, each, None) for each in head.manifest.sections}
        rows = {
            each.name: files.read_rows(sections[each.name], each)
            for each in head.manifest.sections
            if each.name != CONTENT
        }
        return cls(head.manifest, head.summary, rows, sections[CONTENT])

    def together(self, signer: holdfast.Key) -> bytes:
        packer = files.Rows()
        for name in SECTIONS:
            packer.add(name, self.rows[name])
        sections = packer.sections() | {CONTENT: (len(self.rows["blobs"]), self.content)}
        kept = {name: self.stored.get(name, zlib.compress(text, 1)) for name, (_, text) in sections.items()}
        described = tuple(
            Section(name, count, len(text), len(kept[name]), hashlib.sha256(kept[name]).hexdigest())
            for name, (count, text) in sections.items()
        )
        told = files._written(dataclasses.replace(self.manifest, sections=described))
        self.told(told)
        head = self.version + files.to_line(self.summary) + json.dumps(told, separators=(",", ":")).encode() + b"\n"
        name = (signer.id, signer.name)
        signed = files._base64(signer.sign(files.to_sign("bundle", *name, head)))
        signature = files.to_line({"key": name[0], "by": name[1], "signature": signed})
        release = b"not needed"
        if self.manifest.kind == "move":
            release = files._base64(signer.sign(files.to_sign("release", *name, head))).encode().ljust(88, b"=")
        return head + signature + b"release " + release + b"\n" + b"".join(kept.values()) + self.tail


# Harm to bytes


def _flip(content: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << dice.randrange(8)]) + content[at + 1 :]


def _cut(content: bytes, dice: random.Random) -> bytes:
    return content[: dice.randrange(len(content))]


def _more(content: bytes, dice: random.Random) -> bytes:
    return content + dice.choice(
        [b"\n", b"x", b"{}\n", b"[]\n", b'{"decision":""}\n', dice.randbytes(40), bytes(100_000)]
    )


def _piece(content: bytes, dice: random.Random) -> bytes:
    at, end = sorted(dice.randrange(len(content)) for _ in range(2))
    return content[:at] + dice.choice([b"", dice.randbytes(9), content[at:end] * 2, content[end:]]) + content[end:]


def _line(content: bytes, dice: random.Random) -> bytes:
    lines = content.split(b"\n", 5)
    at = dice.randrange(5)
    other = lines[dice.randrange(5)]
    lines[at] = dice.choice(
        [b"", other, lines[at] + b" ", b" " + lines[at], lines[at] * 2, b"[" * 100_000, b"x" * (1 << 21)]
    )
    return b"\n".join(lines)


def _bytes_of_head(content: bytes, dice: random.Random) -> bytes:
    end = content.index(b"\nrelease ") + 100
    return _flip(content[:end], dice) + content[end:]


DONE: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "flip": _flip, "cut": _cut, "more": _more, "piece": _piece, "line": _line, "head": _bytes_of_head,
}  # fmt: skip


# Harm to what is said. Each returns whether there was something to harm.


def _row(made: Apart, dice: random.Random, *sections: str) -> tuple[str, int] | None:
    full = [name for name in sections or SECTIONS if made.rows[name]]
    if not full:
        return None
    section = dice.choice(full)
    return section, dice.randrange(len(made.rows[section]))


def _odd(made: Apart, dice: random.Random) -> bool:
    """A column with what no column holds."""
    section, at = _row(made, dice)
    row = made.rows[section][at]
    column = dice.randrange(len(row))
    value = dice.choice(NEVER)
    if section == "chunks" and list(SECTIONS[section])[column] == "data" and isinstance(value, str):
        value = 7
    row[column] = copy.deepcopy(value)
    return True


def _other_type(made: Apart, dice: random.Random) -> bool:
    """A number where a text is, and the other way round."""
    section, at = _row(made, dice)
    row = made.rows[section][at]
    column = dice.choice([n for n, value in enumerate(row) if value is not None])
    row[column] = dice.choice(WORDS) if isinstance(row[column], int) else dice.randrange(100)
    return True


def _columns(made: Apart, dice: random.Random) -> bool:
    section, at = _row(made, dice)
    row = made.rows[section][at]
    if dice.random() < 0.5:
        row.append(None)
    else:
        del row[dice.randrange(len(row))]
    return True


def _leave_out(made: Apart, dice: random.Random) -> bool:
    """A row of those that others count or name."""
    found = _row(made, dice, "runs", "events", "signals", "messages", "blobs", "parts", "uses")
    del made.rows[found[0]][found[1]]
    return True


def _twice(made: Apart, dice: random.Random) -> bool:
    section, at = _row(made, dice)
    made.rows[section].insert(at, list(made.rows[section][at]))
    return True


def _swap(made: Apart, dice: random.Random) -> bool:
    at = dice.randrange(len(made.rows["events"]) - 1)
    rows = made.rows["events"]
    if rows[at][0] != rows[at + 1][0]:
        return False
    rows[at], rows[at + 1] = rows[at + 1], rows[at]
    return True


def _stranger(made: Apart, dice: random.Random) -> bool:
    """A row of a run that is not there."""
    section, at = _row(made, dice, "events", "signals", "spending", "chunks", "uses", "lineage")
    made.rows[section][at][0] = "nobody"
    return True


def _number(made: Apart, dice: random.Random) -> bool:
    """Places, counts and epochs that contradict the others."""
    choices = [("events", 1), ("events", 8), ("signals", 1), ("messages", 1)]
    choices += [("runs", list(SECTIONS["runs"]).index(name)) for name in ("next_seq", "inbox_count")]
    section, column = dice.choice([(name, at) for name, at in choices if made.rows[name]])
    row, more = dice.choice(made.rows[section]), dice.choice([1, 2, 1000, 2**40])
    row[column] += more
    return (section, column) != ("events", 8) or row[column] > _last_epoch(made, row)


def _last_epoch(made: Apart, row: list[Any]) -> int:
    """The last claim under which an event can have been written: that of the event behind it, or of its run.

    Up to that a later epoch contradicts nothing. The last event of a claim may as well have been the first of the next, and nobody
    could tell who was not there: its signer says so. (`reference` makes such histories, and a worker must bear them.)
    """
    columns, rows = list(SECTIONS["runs"]), made.rows["events"]
    at = next(n for n, each in enumerate(rows) if each is row)
    run = next(each for each in made.rows["runs"] if each[0] == row[0])
    behind = [each for each in rows[at + 1 :] if each[0] == row[0] and each[2] != "run.forked"]
    if row[2] == "run.forked":  # has the epoch of the claim that comes first, whatever the store writes before that
        return run[columns.index("lease_epoch")] + 1
    return behind[0][8] if behind else run[columns.index("lease_epoch")]


def _kind(made: Apart, dice: random.Random) -> bool:
    section, at = _row(made, dice, "events", "signals")
    place = list(SECTIONS[section]).index("kind")
    made.rows[section][at][place] = dice.choice(["", "run.exploded", "step", "STEP.COMPLETED", "run.completed ", None])
    return True


def _parent(made: Apart, dice: random.Random) -> bool:
    at = dice.randrange(len(made.rows["runs"]))
    columns = list(SECTIONS["runs"])
    row = made.rows["runs"][at]
    which = dice.choice(["parent_id", "root_id", "parent_key", "id"])
    now = row[columns.index(which)]
    if which == "parent_key":
        row[columns.index(which)] = None if now else "x#0"
    else:
        row[columns.index(which)] = dice.choice(["nobody", None, row[0] if which == "parent_id" else "other", "../x"])
    return row[columns.index(which)] != now


def _state(made: Apart, dice: random.Random) -> bool:
    at = dice.randrange(len(made.rows["runs"]))
    columns, row = list(SECTIONS["runs"]), made.rows["runs"][at]
    ended = row[columns.index("finished_at")] is not None
    which = dice.choice(["status", "finished_at", "result", "error", "checkpoint_seq"])
    if which == "status":
        row[columns.index("status")] = dice.choice(["moved", "odd", "failed" if not ended else "waiting"])
    elif which == "finished_at":
        row[columns.index(which)] = None if ended else 5
    elif which == "checkpoint_seq":
        row[columns.index(which)] = 0 if row[columns.index(which)] is None else None
    else:
        place = columns.index(which)
        row[place] = '{"a":1}' if row[place] is None else None
    return True


def _json(made: Apart, dice: random.Random) -> bool:
    """Text in place of JSON, or JSON of another kind."""
    section, at = _row(made, dice, "runs", "events", "signals", "approvals", "messages", "agents")
    names = {
        "input",
        "labels",
        "data",
        "value",
        "shown",
        "schema",
        "recipients",
        "needs",
        "votes",
        "delegations",
        "path",
        "result",
    }
    full = [n for n, name in enumerate(SECTIONS[section]) if name in names and made.rows[section][at][n] is not None]
    if not full:
        return False
    made.rows[section][at][dice.choice(full)] = dice.choice(
        ["{", "", "nul", "[1,", '{"a":}', "\u00e9{", "'x'", "[" * 5000]
    )
    return True


def _outcome(made: Apart, dice: random.Random) -> bool:
    """A second outcome of a call, at the end of its run."""
    columns = list(SECTIONS["runs"])
    closing = [row for row in made.rows["events"] if row[2] == "step.completed"]
    if not closing:
        return False
    row = dice.choice(closing)
    run = next(each for each in made.rows["runs"] if each[0] == row[0])
    last = max(n for n, each in enumerate(made.rows["events"]) if each[0] == row[0])
    seq = run[columns.index("next_seq")]
    made.rows["events"].insert(last + 1, [row[0], seq, *row[2:8], run[columns.index("lease_epoch")], None])
    run[columns.index("next_seq")] += 1
    return True


def _dropped(made: Apart, dice: random.Random) -> bool:
    row = dice.choice(made.rows["events"])
    row[9] = dice.choice([0, row[1], row[1] + 1, 10**6])
    return True


def _blob(made: Apart, dice: random.Random) -> bool:
    if not made.rows["blobs"]:
        made.content = b"more"
        return True
    how = dice.randrange(4)
    row = dice.choice(made.rows["blobs"])
    if how == 0:
        made.content = _flip(made.content, dice)
    elif how == 1:
        row[0] = hashlib.sha256(dice.randbytes(8)).hexdigest()
    elif how == 2:
        row[1] += dice.choice([1, -1, 10**9])
    else:
        extra = dice.randbytes(10)
        made.rows["blobs"].append([hashlib.sha256(extra).hexdigest(), len(extra)])
        made.content += extra
    return True


def _question(made: Apart, dice: random.Random) -> bool:
    if not made.rows["approvals"]:
        return False
    columns, row = list(SECTIONS["approvals"]), dice.choice(made.rows["approvals"])
    which, value = dice.choice([
        ("run_id", "nobody"), ("root_id", "nobody"), ("status", "odd"), ("status", "decided"), ("needs", "0"), ("needs", "[]"),
        ("votes", "{}"), ("votes", "[1]"), ("votes", '[{"by":"x"}]'), ("recipients", "[1]"), ("decision", "approved"),
        ("decided_at", 5), ("kind", "run"), ("delegations", "[[]]"), ("path", '"x"'), ("schema", "[]"), ("not_by", "[{}]"),
        ("question", "Nice day?"), ("recipients", '["mallory"]'), ("digest", "0" * 32), ("kind", "ask"), ("id", "q-0"),
    ])  # fmt: skip
    row[columns.index(which)] = value
    return True


def _sections(made: Apart, dice: random.Random) -> bool:
    """A manifest that does not describe what is there."""
    harm = dice.choice(list(MANIFEST))
    made.told = functools.partial(MANIFEST[harm], dice=dice)
    return True


def _version(made: Apart, dice: random.Random) -> bool:
    made.version = dice.choice(
        [b"holdfast-bundle 2\n", b"holdfast-bundle 01\n", b"holdfast-bundle  1\n", b"holdfast-bundle 1\r\n"]
    )
    return True


def _bomb(made: Apart, dice: random.Random) -> bool:
    """A section that inflates to much more than it says."""
    made.stored[dice.choice([*SECTIONS, CONTENT])] = bomb()
    return True


def _not_compressed(made: Apart, dice: random.Random) -> bool:
    section = dice.choice(list(SECTIONS))
    made.stored[section] = dice.choice([b"", b"x", dice.randbytes(100), zlib.compress(b"[]\n") + b"more"])
    return True


def _tail(made: Apart, dice: random.Random) -> bool:
    made.tail = dice.choice(
        [b"\n", b"{}\n", b"x", files.to_line({"decision": "", "key": "x", "by": "y", "signature": ""})]
    )
    return True


def _deep(made: Apart, dice: random.Random) -> bool:
    """A row that is nested more than any reader could bear."""
    section, at = _row(made, dice)
    made.rows[section][at][0] = functools.reduce(lambda inner, _: [inner], range(400), 1)
    return True


def _summary(made: Apart, dice: random.Random) -> bool:
    made.summary = dice.choice([[], None, "x", 1, functools.reduce(lambda inner, _: {"a": inner}, range(400), {})])
    return True


# Harm to what is inside: of an event, a signal, a question, a value


INSIDE = {
    "events": ("data", "value"), "bases": ("data", "value"), "signals": ("data", "value"), "messages": ("value",),
    "runs": ("input", "labels", "result", "error", "budget", "awaits"),
    "approvals": ("path", "shown", "schema", "recipients", "needs", "votes", "delegations", "fallback", "data", "not_by"),
    "forks": ("starters",), "agents": ("schema",), "parts": ("text",),
}  # fmt: skip
ODD = (
    None, True, 0, -1, 1, 1.5, 2**31, 2**53, 2**63, -(2**63), 10**30, 10**400, 1e308, -1e308, "", "x", "nobody", "\0", "\ud800",
    "x" * 5_000, "\x1b[31m", [], {}, [None], [[]], {"a": None}, {"": 0}, {"$blob": "0" * 64}, {"$part": "x" * 22}, {"$dt": 5},
    {"$map": [[1]]}, {"$int": "zz"}, [1, 2, 3], {"by": 1},
)  # fmt: skip


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The ways to everything inside a value."""
    found = [way] if way else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, item in items:
        found += places(item, (*way, name))
    return found


def _inside(made: Apart, dice: random.Random) -> bool:
    """One thing inside a text of JSON: another type, gone, huge, nested, or the name of something else in the bundle."""
    section = dice.choice([name for name in ("events", "events", "events", *INSIDE) if made.rows[name]])
    columns, row = list(SECTIONS[section]), dice.choice(made.rows[section])
    full = [columns.index(name) for name in INSIDE[section] if row[columns.index(name)] is not None]
    if not full:
        return False
    at = dice.choice(full)
    value = json.loads(row[at])
    for _ in range(dice.choice([1, 1, 1, 2, 3])):
        value = _changed(value, made, dice)
    row[at] = json.dumps(value, separators=(",", ":"))
    return True


def _changed(value: Any, made: Apart, dice: random.Random) -> Any:
    ways = places(value)
    if not ways:
        return copy.deepcopy(dice.choice(ODD))
    *before, last = dice.choice(ways)
    holder = functools.reduce(lambda inner, name: inner[name], before, value)
    how = dice.randrange(6)
    if how == 0:
        del holder[last]
    elif how == 1:
        holder[last] = functools.reduce(lambda inner, _: [inner], range(dice.choice([3, 60, 150, 300])), holder[last])
    elif how == 2:
        holder[last] = dice.choice(_names(made))
    elif how == 3 and type(holder[last]) is int:
        holder[last] += dice.choice([-1, 1, 7, 1_000, 2**31, 2**52])
    elif how == 4 and isinstance(holder, dict):
        holder[dice.choice(FACTS)] = copy.deepcopy(dice.choice([*ODD, *_names(made)]))
    else:
        holder[last] = copy.deepcopy(dice.choice(ODD))
    return value


def _names(made: Apart) -> list[Any]:
    """What else the bundle names: calls, runs, questions, numbers of events."""
    events = made.rows["events"]
    return [
        *sorted({row[3] for row in events if row[3] is not None}), *(row[0] for row in made.rows["runs"]), len(events),
        *(row[0] for row in made.rows["approvals"]), *(row[2] for row in made.rows["signals"]), *range(0, len(events), 5),
    ]  # fmt: skip


def _reference(made: Apart, dice: random.Random) -> bool:
    """The key, the kind, the epoch or the large value of an event is that of another, or none."""
    section = dice.choice([name for name in ("events", "bases") if made.rows[name]])
    row, other = (dice.choice(made.rows[section]) for _ in range(2))
    column = dice.choice([2, 3, 4, 5, 6, 8])
    none = {2: "note", 8: row[8] + 1}
    row[column] = dice.choice([other[column], other[column], none.get(column)])
    return True


def _large(made: Apart, dice: random.Random) -> bool:
    """A large value that is another one, under its right name."""
    if not made.rows["blobs"]:
        return False
    at = dice.randrange(len(made.rows["blobs"]))
    digest, size = made.rows["blobs"][at]
    start = sum(row[1] for row in made.rows["blobs"][:at])
    new = dice.choice([
        b"", b"{", b"\xff" * 9, '"é"'.encode("utf-16"), b'"\xc3\xa9"', b"null", b"1" * 5_000, b"[" * 240 + b"]" * 240,
        b"[" * 50_000 + b"]" * 50_000, b'{"$blob":"' + digest.encode() + b'"}', b'{"$of":5}', b'"\\ud800"', b"NaN",
        _flip(made.content[start : start + size], dice),
    ])  # fmt: skip
    name = hashlib.sha256(new).hexdigest()
    made.content = made.content[:start] + new + made.content[start + size :]
    made.rows["blobs"][at] = [name, len(new)]
    for section in SECTIONS:
        made.rows[section] = [
            [each.replace(digest, name) if isinstance(each, str) else each for each in row]
            for row in made.rows[section]
        ]
    return True


MANIFEST: dict[str, Callable[[dict[str, Any], random.Random], Any]] = {
    "rows": lambda told, dice: told["sections"][dice.randrange(3)].__setitem__(
        1, dice.choice([0, 999, -1, "1", 2**60])
    ),
    "size": lambda told, dice: told["sections"][dice.randrange(3)].__setitem__(
        2, dice.choice([0, 1, 2**50, -1, None, 1.5])
    ),
    "stored": lambda told, dice: told["sections"][dice.randrange(3)].__setitem__(3, dice.choice([0, 1, 2**50, -1])),
    "digest": lambda told, dice: told["sections"][dice.randrange(3)].__setitem__(4, "0" * 64),
    "name": lambda told, dice: told["sections"][dice.randrange(1, 3)].__setitem__(
        0, dice.choice(["runs", "x", "../x", "", 1])
    ),
    "left out": lambda told, dice: told["sections"].pop(dice.randrange(3)),
    "twice": lambda told, dice: told["sections"].insert(dice.randrange(3), told["sections"][0]),
    "order": lambda told, dice: dice.choice([told["sections"].reverse, told["sections"].clear])(),
    "many": lambda told, dice: told["sections"].extend([["x", 0, 0, 0, "0" * 64]] * dice.choice([1, 2, 40])),
    "kind": lambda told, dice: told.update(
        kind=dice.choice(["odd", None, 1, "move" if told["kind"] == "copy" else "copy"])
    ),
    "id": lambda told, dice: told.update(id=dice.choice(["", "x" * 32, None, 7, "0" * 31])),
    "source": lambda told, dice: told.update(source=dice.choice(["", None, "../x"])),
    "made_at": lambda told, dice: told.update(made_at=dice.choice([-1, None, "now", 1.5, 2**60, float("nan")])),
    "effects": lambda told, dice: told.update(effects=dice.choice(["all", None, 1])),
    "sealed": lambda told, dice: told.update(sealed=dice.choice(SEALED)),
    "more": lambda told, dice: told.update({dice.choice(["more", "", "Id"]): 1}),
    "less": lambda told, dice: told.pop(dice.choice(list(told))),
}
SEALED = ({}, [], "x", {"for": "me"}, {"a": 1}, dict.fromkeys("abcdefghijk", "x"))

SAID: dict[str, Callable[[Apart, random.Random], bool]] = {
    "odd": _odd, "other type": _other_type, "columns": _columns, "leave out": _leave_out, "twice": _twice, "swap": _swap,
    "stranger": _stranger, "number": _number, "kind": _kind, "parent": _parent, "state": _state, "json": _json,
    "outcome": _outcome, "dropped": _dropped, "blob": _blob, "question": _question, "manifest": _sections, "version": _version,
    "bomb": _bomb, "not compressed": _not_compressed, "tail": _tail, "deep": _deep, "summary": _summary,
}  # fmt: skip
# Harm that may make another bundle, which its signer means: if it is taken, a worker must be able to bear it.
OTHER: dict[str, Callable[[Apart, random.Random], bool]] = {
    "inside": _inside, "reference": _reference, "large": _large,
}  # fmt: skip
SAID |= OTHER
FACTS = sorted({*ALSO, *(name for facts in NEEDED.values() for name in facts)})

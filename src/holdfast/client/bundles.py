"""Bundles: a run with all below it as one file, written by `run.export`, read by `hf.import_run`, and decided on in between.

Look here for the order in which files and stores change. A file that is there under its name is whole: it is written under another
name first, flushed, and renamed. A move is written without its release; the store gives the run up; the release is written into its
place. An export that was interrupted is asked for again, with the same words: it goes on where it stopped.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import io
import json
import os
import re
import secrets
import shlex
import sys
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from holdfast.client.approvals import checked_entry, digest_for
from holdfast.client.base import Base
from holdfast.client.documents import plain
from holdfast.client.info import starter
from holdfast.client.keys import Key, Keys, opened, sealed_for, signer_of
from holdfast.declare import Agent
from holdfast.errors import (
    BadArguments,
    BadBundle,
    HoldfastError,
    NotStorable,
    RunActive,
    RunExists,
    RunFinished,
    Stale,
    StoreUnavailable,
    Unconfirmed,
    UnknownRun,
    Unsupported,
)
from holdfast.runtime import AgentSpec
from holdfast.store.approvals import count
from holdfast.store.blobs import spilled
from holdfast.store.bundles import (
    CONTENT,
    MOVABLE,
    MOVES,
    SECTIONS,
    Belongings,
    Changed,
    Import,
    Mark,
    Move,
    Moved,
    Offline,
    TakeBack,
    Unchanged,
    check_movable,
    checked,
    imported_before,
    membership,
    refused_decision,
    sections_of,
    way_back,
)
from holdfast.store.changes import News
from holdfast.store.conversations import MessageRow
from holdfast.store.families import FAR
from holdfast.store.forks import NewFork
from holdfast.store.streams import Piece
from holdfast.values import bundle as files
from holdfast.values.bundle import EFFECTS, Decision, Head, Manifest
from holdfast.values.codec import UNTYPED
from holdfast.values.text import cut, is_whole
from holdfast.words.durations import Duration, moment, seconds, spoken
from holdfast.words.model import FINISHED, ApprovalRow, Event, RunRow, checked_run_id, is_served
from holdfast.words.people import Actor, Author, Ballot, checked_note
from holdfast.worker.agents import specs_of

if TYPE_CHECKING:  # loaded when code is tried
    from holdfast.rehearsal.replay import Replay

_TRIES: Final = 5  # reads of runs that change meanwhile; then runs that wait are paused too
_LOOK_S: Final = 0.5
_LISTED: Final = 50  # entries of a list in a summary
_SAID: Final = 300  # characters of a text in it
_STORE: Final = re.compile(r"[0-9a-f]{32}")
_BALLOT: Final = ("id", "question", "yes", "note", "at", "seen", "value", "digest")
_NONCE: Final = 12
_MOST_RECEIPT: Final = 20_000  # bytes that are read of one


@dataclass(frozen=True, slots=True)
class Bundle:
    """A file that holds a run and all runs below it.

    Attributes:
        id: Names the bundle.
        run: The run above all; empty if the bundle is encrypted and was not opened.
        kind: "move" or "copy".
        source: The id of the store it is from.
        destination: Of a move: the id of the only store that takes it.
        made_at: When it was made.
        signed_by: The owner of the key that signed it.
        released: Whether its source has given the run up; a copy is always released.
        summary: Goal, what is done, what is pending and the open questions, as the second line of the file has it.
        size_bytes: The size of the file.
        at_work: Of a copy: the runs that a worker had when it was made. Nothing tells which step's body was running there
            then, so the copy runs that step again, and asks only if the step says `in_doubt="ask"`.

    Example:
        ```python
        holdfast.Keys("keys").new("ana")
        made = await run.export("r-1.bundle", keys="keys")
        assert (made.run, made.kind) == ("r-1", "copy")
        ```
    """

    id: str
    run: str
    kind: str
    source: str
    destination: str | None
    made_at: datetime
    signed_by: str
    released: bool
    summary: dict[str, Any]
    size_bytes: int
    at_work: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Imported:
    """The outcome of an import, or, of a dry run, what it would be.

    Attributes:
        run: The run above all.
        bundle: The id of the bundle.
        kind: "move" or "copy".
        dry_run: Whether nothing was changed.
        runs: How many runs came.
        events: How many events.
        size_bytes: The size of the file.
        questions: The ids of the questions that are open.
        decisions: How many decisions of the file were counted.
        missing: Agents that no worker here serves.
        changed: Agents whose arguments are others here than where the run comes from.
        diverges: Of a dry run that was given code: the runs that would not go on with it, each with the step and the line.
        replays: Of a dry run that was given code: each run that could go on here, and whether the code fits it.
        at_work: Of a copy: the runs that a worker had when it was made; a step that was running there then runs again here.

    Example:
        ```python
        holdfast.Keys("keys").new("ana")
        async with holdfast.open("sqlite:other.db") as other:
            await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
            told = await other.import_run("r-1.bundle", keys="keys", dry_run=True)
            assert (told.run, told.missing) == ("r-1", ("report",))
        ```
    """

    run: str
    bundle: str
    kind: str
    dry_run: bool
    runs: int
    events: int
    size_bytes: int
    questions: tuple[str, ...]
    decisions: int
    missing: tuple[str, ...]
    changed: tuple[str, ...]
    diverges: tuple[Replay, ...] = ()
    replays: tuple[Replay, ...] = ()
    at_work: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MoveReceipt:
    """The signed word of a store that the run of a move came to it, for the source: `run.confirm_move(receipt)`.

    Attributes:
        bundle: The id of the bundle that was imported.
        run: The run above all.
        source: The id of the store it came from.
        destination: The id of the store that has it.
        imported_at: When it came.
        signed_by: The owner of the key that signed it.
        text: All of it, as it stands in a file.

    Example:
        ```python
        holdfast.Keys("keys").new("ana")
        async with holdfast.open("sqlite:other.db") as other:
            await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
            await other.import_run("r-1.bundle", keys="keys")
            receipt = await other.get("r-1").move_receipt(keys="keys")
        assert (receipt.run, receipt.signed_by) == ("r-1", "ana")
        ```
    """

    bundle: str
    run: str
    source: str
    destination: str
    imported_at: datetime
    signed_by: str
    text: str


# Files


@dataclass(frozen=True, slots=True)
class Judgement:
    """A decision in a bundle, and why it would not count if it were imported with the keys that are here."""

    place: int
    by: str
    why: str | None = None
    question: str | None = None
    decision: str | None = None
    note: str = ""
    at: datetime | None = None


class Opened(NamedTuple):
    """A bundle that was read, and found whole and signed."""

    head: Head
    found: Belongings
    decisions: list[Decision]
    ballots: list[Offline]
    signer: Key
    size_bytes: int
    refused: list[
        Judgement
    ]  # decisions that cannot count here, whatever they are about; of a bundle that is only looked at

    @property
    def started_by(self) -> str | None:
        """The person who started the run, as its source says."""
        name = self.head.summary.get("started_by")
        return cut(name, _SAID) if isinstance(name, str) else None

    def told(self) -> Bundle:
        """Tell what the file is."""
        return _told(self.head, self.found.root, self.signer.name, self.size_bytes, self.head.summary)


def _told(head: Head, run: str, signer: str, size_bytes: int, summary: dict[str, Any]) -> Bundle:
    manifest = head.manifest
    return Bundle(
        manifest.id, run, manifest.kind, manifest.source, manifest.destination, moment(manifest.made_at), signer,
        head.is_released, summary, size_bytes, tuple(summary.get("at_work", ())),
    )  # fmt: skip


def is_bundle(path: str | os.PathLike[str]) -> bool:
    """Is there a file of this name that begins as a bundle does?"""
    try:
        with Path(path).open("rb") as file:
            return files.is_bundle(file)
    except (OSError, ValueError):
        return False


def read(path: str | os.PathLike[str], keys: Keys, without: Collection[int] = (), *, looks: bool = False) -> Opened:
    """Read a bundle: all of it is checked before anything of it is believed. `BadBundle` says what is wrong.

    `without`: the places of decisions in it that are left out, whichever key signed them. `looks`: a decision that
    cannot count here is told as such, and hides nothing else.
    """
    try:
        with Path(path).open("rb") as file:
            return read_from(file, keys, without, looks=looks)
    except OSError as error:
        raise BadArguments(f"{str(path)!r} cannot be read: {error.strerror}") from None


def read_from(file: BinaryIO, keys: Keys, without: Collection[int] = (), *, looks: bool = False) -> Opened:
    """Read a bundle from a file that is open."""
    head = files.read_head(file)
    signer = signer_of(keys, head.signed.key, "bundles", head.signed.by)
    head.check_signed(functools.partial(_check, keys, "bundles", head.signed.by))
    end = file.seek(0, os.SEEK_END)
    if end < head.ends:
        raise files.damaged("it ends in the middle: it was not copied whole")
    manifest = head.manifest
    inside = [] if manifest.sealed is None else ["summary"]  # outside there is no more of it than for whom it is
    if [section.name for section in manifest.sections] != [*SECTIONS, CONTENT, *inside]:
        raise BadBundle("it has other sections than bundles of its version have")
    cipher = None if manifest.sealed is None else opened(manifest.sealed, keys)
    told, content = {}, b""
    for section in manifest.sections:
        text = files.read_section(file, head, section, cipher)
        if section.name == CONTENT:
            content = text
        else:
            told[section.name] = files.read_rows(text, section)
    if inside:
        head = replace(head, summary=_inner_summary(told.pop("summary")))
    found = checked(told, content, manifest)
    decisions = files.read_decisions(file, head)
    if decisions and manifest.kind == "copy":
        raise BadBundle("decisions stand behind a copy, which asks its questions anew")
    if missing := set(without) - set(range(1, len(decisions) + 1)):
        raise BadArguments(f"there is no decision {min(missing)} in it to leave out; it has {len(decisions)}")
    questions = {each.id: each for each in found.questions}
    signers: dict[str, Key] = {}  # each is looked up once, however much it has decided
    ballots, refused = list[Offline](), list[Judgement]()
    for place, (decision, message) in enumerate(files.signed_decisions(head, decisions), 1):
        if place in without:
            continue
        by = decision.signed
        try:
            if by.key not in signers:
                signers[by.key] = signer_of(keys, by.key, "decisions", by.by)
            if not signers[by.key].check(by.signature, message):
                raise BadBundle(f"it was changed after {signers[by.key].name!r} signed it, or stands elsewhere")
            text = decision.content
            if cipher is not None:
                text = cipher.decrypt(int.from_bytes(text[:_NONCE], "big"), text[_NONCE:])
            ballots.append(Offline(place, *_ballot(text, signers[by.key], questions, found)))
        except BadBundle as error:
            if not looks:
                raise BadBundle(refused_decision(place, by.by, str(error))) from None
            refused.append(Judgement(place, by.by, str(error)))
    return Opened(head, found, decisions, ballots, signer, end, refused)


def judged(bundle: Opened) -> list[Judgement]:
    """Tell of each decision in a bundle whether it would count, imported with the keys that are here, and why not."""
    made, rows = list(bundle.refused), {each.id: each for each in bundle.found.questions}
    for place, question, ballot, _, at in bundle.ballots:
        row, why = rows[question], None
        try:
            rows[question] = count(at, row, ballot).row
        except HoldfastError as error:
            why = str(error) + membership(row, ballot.by.name, error)
        decision = ("answered" if row.kind != "approve" else "approved") if ballot.yes else "denied"
        made.append(Judgement(place, ballot.by.name, why, question, decision, ballot.note, moment(at)))
    return sorted(made, key=lambda each: each.place)


def _inner_summary(rows: list[list[Any]]) -> dict[str, Any]:
    if len(rows) != 1 or len(rows[0]) != 1 or type(rows[0][0]) is not dict:
        raise BadBundle("it has no summary, or several")
    found: dict[str, Any] = rows[0][0]
    return found


def _check(keys: Keys, use: Any, by: str, key: str, signature: bytes, message: bytes) -> None:
    if not signer_of(keys, key, use, by).check(signature, message):
        raise files.damaged(f"it was changed after {by!r} signed it")


def _ballot(
    text: bytes, key: Key, questions: dict[str, ApprovalRow], found: Belongings
) -> tuple[str, Ballot, dict[str, bytes], int]:
    """Read what a person decided; the name and the groups are those of the key, as it is known here.

    A value that a person has entered stands in `questions` from then on, for the people who decide later.
    """
    told = files.read_json(files.text_of(text, "a decision"), "a decision")
    if type(told) is not dict or tuple(told) != _BALLOT:
        raise BadBundle("a decision in it does not say what decisions say")
    asked = questions.get(told["question"]) if type(told["question"]) is str else None
    texts = [told["id"], told["note"], *(told[name] for name in ("seen", "value", "digest") if told[name] is not None)]
    if (
        asked is None
        or type(told["yes"]) is not bool
        or not is_whole(told["at"], 0)
        or any(type(each) is not str for each in texts)
    ):
        raise BadBundle("a decision in it is about no question in it, or says what no decision says")
    if told["at"] < asked.asked_at:
        raise BadBundle(f"a decision in it was made before question {asked.id!r} was asked")
    try:
        checked_note(told["note"])
    except BadArguments as error:
        raise BadBundle(str(error)) from None
    value, blobs = _entered(asked, told, found), dict[str, bytes]()
    if value is not None:
        questions[asked.id] = replace(asked, data=value, digest=told["digest"])
        value, blobs = spilled(value)
    actor = Actor(key.name, key.groups)
    ballot = Ballot(
        told["id"][:100], actor, told["yes"], told["note"], told["seen"], value, told["digest"], f"bundle:{key.id[:8]}"
    )
    return asked.id, ballot, blobs, told["at"]


def _entered(asked: ApprovalRow, told: dict[str, Any], found: Belongings) -> str | None:
    """Read the value that a person decided for, if it is another than was shown: it fits, and is the one that the vote is for."""
    if told["value"] is None and told["digest"] is None:
        return None
    if told["value"] is None or told["digest"] is None or not told["yes"]:
        raise BadBundle("a decision in it is for a value that it does not have, or denies one that it has")
    files.read_json(told["value"], "the value of a decision")
    shown, edited = (None if text is None else _text(found, text) for text in (asked.shown, asked.data))
    try:
        value = checked_entry(asked, told["value"], shown if edited is None else edited)
    except (BadArguments, NotStorable) as error:
        raise BadBundle(str(error)) from None
    if digest_for(asked, value, shown) != told["digest"]:
        raise BadBundle("a decision in it is for another value than it has")
    return value


def write(path: Path, content: bytes, check: Callable[[], object] | None = None) -> None:
    """Write a file so that it is there whole or not at all, and stays.

    `check` says, in the moment it gets its name and before anybody else can take that, whether the name is to be had.
    """
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            if check is None:
                part.rename(path)
            else:
                with _names_in(path.parent):
                    check()
                    part.rename(path)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
        flush_folder(path)
    except OSError as error:
        raise BadArguments(f"{str(path)!r} cannot be written: {error.strerror}") from None


def flush_folder(path: Path) -> None:
    """Flush the folder of a file, so that its name stays."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def read_receipt(receipt: str | os.PathLike[str] | MoveReceipt, keys: Keys) -> MoveReceipt:
    """Read a receipt, whether from a file or not; `BadBundle` unless a key signed it that is trusted here for bundles."""
    if isinstance(receipt, MoveReceipt):
        content = receipt.text.encode("utf-8", "replace")
    else:
        try:
            with Path(os.fspath(receipt)).open("rb") as file:
                content = file.read(_MOST_RECEIPT)
        except (OSError, ValueError, TypeError) as error:
            why = getattr(error, "strerror", None) or "it is no name of a file"
            raise BadArguments(f"the receipt {str(receipt)!r} cannot be read: {why}") from None
    word, signed, message = files.read_receipt(content)
    signer = signer_of(keys, signed.key, "bundles", signed.by)
    if not signer.check(signed.signature, message):
        raise BadBundle(f"the receipt was changed after {signed.by!r} signed it; ask for it again")
    return _receipt(word, signer.name, content)


def write_receipt(receipt: MoveReceipt, to: str | os.PathLike[str]) -> None:
    """Write a receipt to a new file, whole or not at all."""
    write(_new_file(to), receipt.text.encode())


def _new_file(to: Any) -> Path:
    path = Path(os.fspath(to)).absolute()
    if path.exists() or not path.parent.is_dir():
        raise BadArguments(f"{str(path)!r} is there already, or its folder is not; name a new file for the receipt")
    return path


def _receipt(word: files.Receipt, signer: str, text: bytes) -> MoveReceipt:
    at = moment(word.imported_at)
    return MoveReceipt(word.bundle, word.run, word.source, word.destination, at, signer, text.decode("ascii"))


def _checked_path(to: Any, run: str) -> Path:
    """Find where a bundle goes: to a new file, or over one of the same run that its source has not given up yet."""
    path = Path(os.fspath(to)).absolute()
    if not path.parent.is_dir():
        raise BadArguments(f"there is no folder {str(path.parent)!r} for the bundle; create it first")
    if path.exists() and not _is_unfinished(path, run):
        raise BadArguments(f"{str(path)!r} is there already; name another file for the bundle")
    return path


def _is_unfinished(path: Path, run: str) -> bool:
    try:
        with path.open("rb") as file:
            head = files.read_head(file)
    except (OSError, BadBundle):
        return False
    return not head.is_released and head.summary.get("run", run) == run


@contextlib.contextmanager
def _names_in(folder: Path) -> Iterator[None]:
    """Lock the names in a folder against other processes that write bundles there; a process that dies lets go of them.

    A file under its name is replaced, and never locked itself: a lock on a replaced file would lock nothing.
    """
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _put(path: Path, content: bytes, run: str) -> None:
    """Write a bundle under a name that is free, or over one of the same run that its source has not given up yet."""
    write(path, content, lambda: _checked_path(path, run))


def add_decisions(
    path: str | os.PathLike[str], keys: Keys, seen: Opened, made: Sequence[tuple[Key, dict[str, Any]]]
) -> None:
    """Write decisions into a bundle, behind its other decisions; `Stale` if it is not the one any more that was `seen`."""
    where = Path(path).absolute()
    try:
        with _names_in(where.parent), where.open("rb") as file:
            head = files.read_head(file)
            if head.manifest.kind == "copy":
                raise BadArguments(
                    "a copy asks its questions anew where it is imported: decide there; a move takes its questions along"
                )
            decisions = files.read_decisions(file, head)
            if (head.text, decisions) != (seen.head.text, seen.decisions):
                raise Stale(
                    f"{str(path)!r} is not what you were shown any more: it was written anew, or somebody has decided in it. "
                    "Nothing was decided; look at it again"
                )
            _check_released(head, seen.found)
            for signer, told in made:
                text = files.to_line({name: told[name] for name in _BALLOT})[:-1]
                if head.manifest.sealed is not None:
                    place = secrets.randbits(95) | 1 << 95  # no other decision has it, wherever it is made
                    text = place.to_bytes(_NONCE, "big") + opened(head.manifest.sealed, keys).encrypt(place, text)
                decisions.append(files.new_decision(head, decisions, text, signer))
            file.seek(0)
            write(where, file.read(head.ends) + b"".join(each.line for each in decisions))
    except OSError as error:
        raise BadArguments(f"{str(where)!r} cannot be written: {error.strerror}") from None


# Summaries


def summary(found: Belongings, made_at: int, kind: str) -> dict[str, Any]:
    """Write what people and programs want to know before they open a bundle: goal, done, pending, and open questions."""
    runs, root = found.runs, found.runs[0]
    done = [row for row in found.rows["events"] if row[2] == "step.completed" and row[9] is None]
    asked = [each for each in found.questions if each.status == "open"]
    said = {row[2]: json.loads(row[4] or "{}") for row in found.rows["events"] if row[0] == root.id and row[9] is None}
    pending = [row for row in runs if row.status not in FINISHED]
    return {
        "run": root.id,
        "agent": root.agent,
        "arguments": _arguments(found, root.input),
        "status": root.status,
        "kind": kind,
        "made_at": _when(made_at),
        "started_at": _when(root.created_at),
        "started_by": found.started_by,
        "runs": len(runs),
        "events": len(found.rows["events"]),
        "done": {"steps": len(done), "last": [_step(row) for row in done[-5:]]},
        "progress": _progress(said.get("progress")),
        "plan": [{"item": cut(item, _SAID), "done": is_done} for item, is_done in said.get("plan", {}).get("items", ())[:_LISTED]],
        "pending": [_pending(row) for row in pending[:_LISTED]],
        "at_work": [row.id for row in runs if row.status == "running"][:_LISTED],
        "asks": [
            {
                "id": each.id, "run": each.run_id, "question": cut(each.question, _SAID), "to": json.loads(each.recipients),
                "shown": None if each.shown is None else _readable(_value(found, each.shown)),
                "asked_at": _when(each.asked_at), "expires_at": _when(each.expires_at),
            }
            for each in asked[:_LISTED]
        ],
        "agents": [[name, version] for name, version, _ in found.rows["agents"][:_LISTED]],
    }  # fmt: skip


def _value(found: Belongings, text: str) -> Any:
    """Read a value as JSON has it, wherever it lies; one that cannot be read is told as it is stored."""
    text = _text(found, text)
    try:
        return plain(UNTYPED.load(text))
    except NotStorable:
        return text


def _text(found: Belongings, text: str) -> str:
    """The text of a value itself, wherever it lies."""
    return found.blobs[text[10:74]].decode() if text.startswith('{"$blob":') else text


def _arguments(found: Belongings, text: str) -> dict[str, Any]:
    told = _value(found, text)
    named = told if isinstance(told, dict) else {"": told}
    return {cut(name, 100): _readable(value) for name, value in list(named.items())[:_LISTED]}


def _readable(value: Any) -> Any:
    """The value, or of a large one its beginning as text."""
    text = value if isinstance(value, str) else json.dumps(value)
    return value if len(text) <= _SAID else cut(text, _SAID)


def _progress(told: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if told is None else {"done": told["done"], "total": told["total"], "text": cut(told["text"], _SAID)}


def _step(row: list[Any]) -> str:
    return cut(str(json.loads(row[4] or "{}").get("name") or row[3]), 100)


def _pending(row: RunRow) -> dict[str, Any]:
    told = {
        "run": row.id,
        "agent": row.agent,
        "status": row.status,
        "waits_for": row.waits_for,
        "until": _when(row.due_at),
    }
    return {name: value for name, value in told.items() if value is not None}


def _when(at: int | None) -> str | None:
    return None if at is None else moment(at).isoformat(timespec="seconds")


# Going and coming


def _ring(keys: str | os.PathLike[str] | Keys | None) -> Keys:
    return keys if isinstance(keys, Keys) else Keys(keys)


class _Pen(NamedTuple):
    """The keys with which a bundle is written: the signer's, and the recipient's if it is encrypted."""

    signer: Key
    recipient: Key | None

    def write(self, found: Belongings, manifest: Manifest) -> files.Bundle:
        """Make the file of a family."""
        told = summary(found, manifest.made_at, manifest.kind)
        rows = files.Rows()
        for name, some in sections_of(found):
            rows.add(name, some)
        values = b"".join(found.blobs.values())
        sections = rows.sections() | {CONTENT: (len(found.blobs), values)}
        if self.recipient is None:
            return files.packed(told, manifest, sections, self.signer)
        cipher, sealed = sealed_for(self.recipient)
        sections["summary"] = (1, files.to_line([told]))
        outside = {"encrypted_for": self.recipient.name, "key": self.recipient.id}
        return files.packed(outside, replace(manifest, sealed=sealed), sections, self.signer, cipher)


def _opened_there(found: Belongings, manifest: Manifest, ring: Keys, pen: _Pen) -> Opened:
    """Read the bundle of a family as its destination would read it, before it is written anywhere."""
    made = _Pen(pen.signer, None).write(found, manifest)
    return read_from(io.BytesIO(made.content), ring)


@contextlib.contextmanager
def _way_back(head: Head, run: str) -> Iterator[None]:
    """Add to a refusal of a move how its source has the run again: nobody else can go on with it."""
    try:
        yield
    except (BadArguments, RunExists, Unsupported) as error:
        if head.manifest.kind == "move" and head.is_released:
            error.args = (f"{error}. {way_back(run)}", *error.args[1:])
        raise


def _check_released(head: Head, found: Belongings) -> None:
    """Refuse a move whose source has not given the run up: it may go on there, and be written anew."""
    if not head.is_released:
        raise BadBundle(
            f"the source of this bundle still has run {found.root!r}: its export was interrupted. Export it again there, to "
            "the same file"
        )


def _copy_of(bundle: Opened, id: str | None, author: Author) -> NewFork | None:
    """Make of a copy the fork that it becomes: the same past, and an identity of its own from there on."""
    manifest, root = bundle.head.manifest, bundle.found.root
    if manifest.kind == "move":
        if id is not None:
            raise BadArguments(f"id={id!r}: a move keeps its id, {root!r}; only a copy gets another")
        return None
    name = checked_run_id(id if id is not None else f"{root[:190]}-{manifest.id[:8]}")
    if name in {row.id for row in bundle.found.runs}:
        raise BadArguments(
            f"id={name!r} is that of the original, which goes on where it is and may be moved here one day; a copy is another run: "
            "give it another id, or none. To have the run itself here, move it: `holdfast export ID --move STORE`"
        )
    # One that was told to stop goes on from before that: behind it the copy would be told to stop, too.
    stops = [
        event.seq for event in bundle.found.events(root) if event.kind == "run.cancelling" and event.dropped is None
    ]
    at = min(stops, default=None)
    return NewFork(root, name, secrets.token_hex(16), at, manifest.effects, Actor(author["by"]), author["via"])


class Record:
    """A bundle as a place that runs are read from, so that code can be held against them."""

    def __init__(self, found: Belongings) -> None:
        self._found = found
        self._runs = {row.id: row for row in found.runs}

    async def run(self, run: str) -> RunRow | None:
        """Read one run."""
        return self._runs.get(run)

    async def journal(self, run: str, from_seq: int = 0) -> list[Event]:
        """Read its events from a place on, as far as they count."""
        return [event for event in self._found.events(run) if event.seq >= from_seq and event.dropped is None]

    async def events_at(self, run: str, seqs: Iterable[int]) -> list[Event]:
        """Read the events at these places."""
        wanted = set(seqs)
        return [event for event in self._found.events(run) if event.seq in wanted]

    async def blob(self, digest: str) -> bytes:
        """Read a large value."""
        return self._found.blobs[digest]

    async def streams(self, run: str) -> list[Piece]:
        """Read the last row of each stream, without its text."""
        last = {piece.stream: piece for piece in self._found.pieces(run)}
        return [replace(piece, parts=[]) for piece in last.values()]

    async def pieces(self, run: str, stream: str, after: int) -> Sequence[Piece]:
        """Read the rows of a stream behind a position."""
        return [piece for piece in self._found.pieces(run) if piece.stream == stream and piece.position > after]

    async def said(self, conversation: str, first: int, end: int) -> list[MessageRow]:
        """Read messages of a conversation."""
        rows = self._found.rows["messages"]
        return [MessageRow(*row) for of, *row in rows if of == conversation and first <= row[0] < end]


async def _replayed(found: Belongings, specs: list[AgentSpec]) -> tuple[Replay, ...]:
    """Replay the runs that have not ended, or can be retried, with this code."""
    if not specs:
        return ()
    from holdfast.rehearsal.replay import Ground  # noqa: PLC0415 - loaded when code is tried

    ground = Ground(Record(found), specs)
    try:
        rows = [row for row in found.runs if row.status not in FINISHED or row.status == "failed"]
        return tuple([await ground.replay(row) for row in rows])
    finally:
        await ground.close()


class Bundles(Base):
    """The part of a client that carries runs from store to store."""

    async def store_id(self) -> str:
        """Read the id of the store, which no other store has: a move names its destination by it.

        Example:
            ```python
            assert len(await hf.store_id()) == 32
            ```
        """
        return await self.store.store_id()

    async def import_run(
        self,
        path: str | os.PathLike[str],
        *,
        id: str | None = None,
        dry_run: bool = False,
        agents: Iterable[Agent[..., Any] | ModuleType] = (),
        without: Iterable[int] = (),
        receipt: str | os.PathLike[str] | None = None,
        key: str | None = None,
        keys: str | os.PathLike[str] | Keys | None = None,
        by: str = "",
    ) -> Imported:
        """Put the run of a bundle, and all below it, into this store: whole or not at all. It goes on here at once.

        Decisions that were written into the file count from now on.

        Args:
            path: The file.
            id: Of a copy: the id of the run that it becomes here. A move keeps its id.
            dry_run: Change nothing, and tell what would happen.
            agents: With `dry_run`: code that the runs are held against; none of it has effects.
            without: Places of decisions in the file that are left out, from 1: their questions stay open. An error that a
                decision does not count names its place.
            receipt: Of a move: a new file for the receipt, which the source confirms the move by; `run.move_receipt` gives it
                later too.
            key: With `receipt`: the name of the key that signs it; the only one there is unless given.
            keys: The folder of keys; `Keys` says which it is unless given.
            by: The person who imports it.

        Raises:
            BadBundle: The file is no whole bundle, is signed by nobody who is trusted here, is for another store, or was
                imported before. Nothing was imported.
            RunExists: There is a run with one of its ids.
            NotAllowed: A person may not decide what they decided in the file. Nothing was imported.
            BadArguments: There is no key for the receipt, or its file is there already. Nothing was imported.

        Example:
            ```python
            holdfast.Keys("keys").new("ana")
            async with holdfast.open("sqlite:other.db") as other:
                await run.export("r-1.bundle", move=await other.store_id(), keys="keys")
                await other.import_run("r-1.bundle", receipt="r-1.receipt", keys="keys")
            await run.confirm_move("r-1.receipt", keys="keys")
            ```
        """
        ring = _ring(keys)
        left_out = sorted(set(without))
        bundle = await asyncio.to_thread(read, path, ring, left_out)
        head, found = bundle.head, bundle.found
        if head.manifest.kind == "move":
            with _way_back(head, found.root):
                self.store.check_takes(found.root)
        if receipt is not None:
            if head.manifest.kind == "move" and await self.store.imported(head.manifest.id) is not None:
                raise imported_before(found.root)
            self._check_receipt_path(receipt, head.manifest.kind, ring, key)
        copy = _copy_of(bundle, id, self._author(by))
        _check_released(head, found)
        work = Import(
            head.manifest, found, bundle.ballots, **self._author(by), without=left_out, copy=copy, dry_run=dry_run,
            started_by=bundle.started_by,
        )  # fmt: skip
        try:
            with _way_back(head, found.root):
                questions = await self.store.import_bundle(work)
        except Unchanged as tried:
            questions = tried.questions
        if receipt is not None and not dry_run:
            word = await self._move_receipt(found.root, key=key, keys=ring)
            await asyncio.to_thread(write_receipt, word, receipt)
        replays = await _replayed(found, specs_of(agents)) if dry_run else ()
        served = await self.store.agents()
        unfinished = {row.agent: row for row in found.runs if row.status not in FINISHED}
        here = {name: told[1] for name, told in served.items()}
        return Imported(
            found.root if copy is None else copy.id,
            head.manifest.id, head.manifest.kind, dry_run, len(found.rows["runs"]), len(found.rows["events"]),
            bundle.size_bytes, questions, len(bundle.ballots),
            tuple(sorted(name for name, row in unfinished.items() if not is_served(row, served))),
            tuple(sorted(name for name, _, schema in found.rows["agents"] if here.get(name, schema) != schema)),
            tuple(each for each in replays if each.verdict in ("diverges", "unfit")), replays,
            () if copy is None else tuple(row.id for row in found.runs if row.status == "running"),
        )  # fmt: skip

    @staticmethod
    def _check_receipt_path(receipt: Any, kind: str, ring: Keys, key: str | None) -> None:
        """Refuse a receipt that could not be written, before anything is imported."""
        if kind == "copy":
            raise BadArguments("only a move has a receipt: a copy leaves the original where it is")
        _new_file(receipt)
        ring.own(key)

    async def _confirm_move(
        self, run: str, receipt: str | os.PathLike[str] | MoveReceipt | None, *, keys: Any, by: str
    ) -> None:
        """Note that the destination of a move has the run; `Run.confirm_move` says what for."""
        row = await self._run_row(run)
        moved = await self.store.moved(run)
        told: dict[str, Any] = {"receipt": None}  # the word of somebody here
        if receipt is not None:
            proof = await asyncio.to_thread(read_receipt, receipt, _ring(keys))
            await self._check_receipt(proof, run, moved)
            told = {"receipt": {"by": proof.signed_by, "imported_at": round(proof.imported_at.timestamp() * 1000)}}
        if row.status != "moved" or moved is None:
            raise RunActive(f"run {run!r} is {row.status}: it was not moved, and there is nothing to confirm")
        write = self.store.confirm(run, moved.bundle, told, **self._author(by))
        await self._written(write, "Confirming it again is safe")

    async def _check_receipt(self, proof: MoveReceipt, run: str, moved: Moved | None) -> None:
        """Refuse a receipt that is not of the last move of this run."""
        own = await self.store.store_id()
        if moved is None or (proof.source, proof.run) != (own, run):
            raise BadBundle(
                f"the receipt is for run {proof.run!r}, moved from store {proof.source}; this is run {run!r} of store {own}, and "
                "it is no receipt of that"
            )
        if (proof.bundle, proof.destination) != (moved.bundle, moved.destination):
            raise BadBundle(
                f"the receipt is for bundle {proof.bundle}, imported into store {proof.destination}; the last move of run {run!r} "
                f"is bundle {moved.bundle}, for store {moved.destination}. Ask that store for its receipt: `holdfast receipt {run}`"
            )
        if moved.undone_at is not None:
            raise RunActive(
                f"run {run!r} was taken back here, and store {proof.destination} has it too, since "
                f"{proof.imported_at:%Y-%m-%d %H:%M:%S %Z}: two stores go on with it. Cancel it in one of them"
            )

    async def _move_receipt(self, run: str, *, key: str | None, keys: Any) -> MoveReceipt:
        """Sign that a run came here; `Run.move_receipt` says what for."""
        came = await self.store.came(run)
        if came is None:
            raise UnknownRun(f"no run {run!r} was moved into this store, so there is no receipt for it")
        signer = _ring(keys).own(key)
        word = files.Receipt(came.bundle, run, came.source, await self.store.store_id(), came.at)
        text = await asyncio.to_thread(word.signed, signer)
        return _receipt(word, signer.name, text)

    async def _export(self, run: str, to: Any, **how: Any) -> Bundle:
        return await self._exported(run, to, **how)

    async def _exported(
        self, run: str, to: str | os.PathLike[str] | BinaryIO, *, move: str | None, effects: str, key: str | None,
        recipient: str | None, keys: str | os.PathLike[str] | Keys | None, now: bool, timeout: Duration | None, by: str,
        there: Base | None = None,
    ) -> Bundle:  # fmt: skip
        """Write a run and all below it to a file; `Run.export` says how. `there`: the destination, which is asked beforehand."""
        row = await self._run_row(run)
        if row.parent_id is not None:
            raise BadArguments(
                f"run {run!r} belongs to run {row.root_id!r}: export that one, and this one comes with it"
            )
        if effects not in EFFECTS:
            raise BadArguments(f"effects={effects!r}: use one of {', '.join(EFFECTS)}")
        if row.status == "moved":
            return await self._write_again(row, to, move)
        ring = _ring(keys)
        pen = _Pen(ring.own(key), None if recipient is None else ring.named(recipient))
        if move is None:
            return await self._copy(run, to, pen, effects, by)
        own = await self.store.store_id()
        if not isinstance(move, str) or not _STORE.fullmatch(move) or move == own:
            raise BadArguments(
                f"move={move!r}: give the id of the store that the run goes to, not of this one; there, `await hf.store_id()` "
                "reads it and `holdfast doctor` shows it"
            )
        if not isinstance(to, str | os.PathLike):
            raise BadArguments("a move goes to a file, which is flushed before the run is given up; give its name")
        if await self.store.held():
            raise BadArguments(
                f"this store is a copy and held, because its original may have run {run!r} too: two stores would go on with it. "
                "When the original does nothing any more, `holdfast restore --activate`; then move it"
            )
        check_movable(row)
        path = await asyncio.to_thread(_checked_path, to, run)
        limit = None if timeout is None else seconds(timeout)
        if there is not None:
            there.store.check_takes(run)

        async def ask(found: Belongings, manifest: Manifest) -> None:
            if there is not None:
                await self._ask(there, found, manifest, ring, pen)

        return await self._move(run, path, pen, move, limit, by, ask, now=now)

    def _manifest(self, kind: str, source: str, **more: Any) -> Manifest:
        version = str(getattr(sys.modules["holdfast"], "__version__", "unknown"))
        facts: dict[str, Any] = {"destination": None, "effects": "ask", "pause": None} | more
        return Manifest(
            secrets.token_hex(16), kind, source, made_at=self.store.clock.now(), holdfast=version, sections=(), **facts
        )

    async def _belongings(self, run: str) -> Belongings:
        found = await self.store.belongings(run)
        found.started_by = await starter(self.store, run)
        return found

    async def _copy(self, run: str, to: Any, pen: _Pen, effects: str, by: str) -> Bundle:
        path = await asyncio.to_thread(_checked_path, to, run) if isinstance(to, str | os.PathLike) else None
        found = await self._belongings(run)
        manifest = self._manifest("copy", found.store, effects=effects)
        made = await asyncio.to_thread(pen.write, found, manifest)
        told = {"bundle": manifest.id, "runs": len(found.rows["runs"])}
        note = self.store.note_copy(run, told, **self._author(by))  # first: no copy leaves without its row
        await self._written(note, "Exporting it again is safe")
        if path is not None:
            await asyncio.to_thread(_put, path, made.content, run)
        else:
            await asyncio.to_thread(to.write, made.content)
        return _made(made.content, run, found, manifest)

    async def _ask(self, there: Base, found: Belongings, manifest: Manifest, ring: Keys, pen: _Pen) -> None:
        """Refuse to give a run up to a store that would not import it, in the words of that import."""
        bundle = await asyncio.to_thread(_opened_there, found, manifest, ring, pen)
        work = Import(manifest, bundle.found, [], **there._author(), dry_run=True, started_by=bundle.started_by)
        try:
            await there.store.import_bundle(work)
        except Unchanged:
            return
        except HoldfastError as error:
            what = f"run {found.root!r} was not moved, because {there.store.url!r} would refuse it"
            error.args = (f"{what}: {error}", *error.args[1:])
            raise

    async def _move(
        self, run: str, path: Path, pen: _Pen, to: str, limit_s: float | None, by: str,
        ask: Callable[[Belongings, Manifest], Awaitable[None]], *, now: bool,
    ) -> Bundle:  # fmt: skip
        request, tries, written = f"{MOVES}{secrets.token_hex(8)}", 0, ""
        where = f"to store {to} in {path.name}"
        clock = asyncio.get_running_loop().time
        ends = None if limit_s is None else clock() + limit_s
        try:
            while True:
                async with asyncio.timeout_at(ends):
                    await self._quiesce(run, request, f"to be moved {where}", by, now=now, every=tries >= _TRIES)
                    found = await self._belongings(run)
                tries += 1
                check_movable(found.runs[0])
                manifest = self._manifest("move", found.store, destination=to, pause=request)
                if any(row.status not in MOVABLE for row in found.runs):
                    continue
                await ask(found, manifest)
                made = await asyncio.to_thread(pen.write, found, manifest)
                await asyncio.to_thread(_put, path, made.unreleased, run)
                written = manifest.id
                if ends is not None and clock() > ends:
                    raise TimeoutError  # here, because nothing is known of a commit that is broken off
                marks = {row.id: Mark.of(row) for row in found.runs}
                move = Move(manifest.id, run, to, marks, request, made.content, f"moved {where}", **self._author(by))
                try:
                    with self._limited():
                        await self.store.move(move)
                    break
                except Changed:
                    continue
        except Unconfirmed as error:
            raise Unconfirmed(
                f"{error}. Export it again, to the same file: if it was moved, its bundle is written again"
            ) from None
        except BaseException as error:
            await self._let_go(run, request, by, path, written)
            if isinstance(error, TimeoutError):
                waited = spoken(limit_s or 0)
                raise TimeoutError(
                    f"run {run!r} came to no safe point within {waited}; nothing was moved, and it goes on here. "
                    f"{await self._how_to_move(run)}"
                ) from None
            raise
        await asyncio.to_thread(_release, path, made, run)
        return _made(made.content, run, found, manifest)

    async def _how_to_move(self, run: str) -> str:
        """Say what lets a run come to a safe point that came to none in time."""
        with contextlib.suppress(StoreUnavailable):
            row = await self.store.run(run)
            if row is not None and not is_served(row, await self.store.agents()):
                start = f"`holdfast worker FILE.py --db {shlex.quote(self.store.url)}`"
                return f"No worker serves agent {row.agent!r}, and this store needs one for that. Start one: {start}"
        return "Give it longer (a larger timeout), or stop the bodies that are running: now=True"

    async def _quiesce(self, run: str, request: str, reason: str, by: str, *, now: bool, every: bool) -> None:
        """Wait until no worker has any of these runs, or could take one at once. With `every`, runs that wait are paused too."""
        author = self._author(by)
        going = {"ready", "running", "waiting"} if every else {"ready", "running"}
        with self._listening("", News.MOVED) as heard:
            while True:
                heard.clear()
                family = await self.store.members(run)
                for row in family:
                    if row.id == run:
                        check_movable(row)
                members = [row for row in family if row.status in going]
                if not members:
                    return
                data = {**author, "reason": reason, "request": request, "depth": FAR, "family": False, "now": now}
                await self.store.halt_forsaken(run, data)
                for row in members:
                    with contextlib.suppress(RunFinished):
                        await self.store.pause(
                            row.id, **author, reason=reason, request=request, family=False, now=now, yields=True
                        )
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_S):
                        await self._pause_for(heard)

    async def _let_go(self, run: str, request: str, by: str, path: Path, written: str) -> None:
        """Undo what an export has done that comes to nothing: what it paused goes on, and the bundle goes that it has written."""
        with contextlib.suppress(StoreUnavailable):
            await self.store.call_off_move(run, request, by=self._author(by)["by"])
            moved = await self.store.moved(run)
            if moved is None or moved.bundle != written:
                await asyncio.to_thread(_remove, path, written)

    async def _write_again(self, row: RunRow, to: Any, destination: str | None) -> Bundle:
        """Write the file of a move once more, as long as nobody knows that it came."""
        moved = await self.store.moved(row.id)
        content = None if moved is None else await self.store.moved_content(moved.bundle)
        if moved is None or content is None:
            raise RunFinished(f"run {row.id!r} is not here any more: it was {row.reason}, and it came there")
        if destination not in (None, moved.destination):
            raise RunFinished(
                f"run {row.id!r} was {row.reason}; it is not here to be moved to another. Only that store can take it"
            )
        if not isinstance(to, str | os.PathLike):
            raise BadArguments("a move goes to a file; give its name")
        await asyncio.to_thread(_put_again, to, row.id, moved.bundle, content)
        return await asyncio.to_thread(_described, content, row.id)

    async def _take_back(self, run: str, *, force: bool, by: str) -> None:
        """Make a run that was moved one of this store again; `Run.take_back` says how."""
        row = await self._run_row(run)
        moved = await self.store.moved(run) if row.status == "moved" else None
        if moved is not None and moved.confirmed_at is None and not force:
            raise BadArguments(
                f"run {run!r} was {row.reason}. If its bundle is imported there, now or later, two stores go on with it and every "
                "effect happens twice. When that cannot be: force=True, or --force"
            )
        write = self.store.take_back(TakeBack(run, **self._author(by)))
        await self._written(write, f"`await hf.get({run!r}).info()` says how the run stands")


def _release(path: Path, made: files.Bundle, run: str) -> None:
    """Write the release into its place. Where the file is not as it was written, all of it is written again."""
    with _names_in(path.parent), contextlib.suppress(OSError), path.open("r+b") as file:
        if file.read(len(made.head)) == made.head:
            file.seek(len(made.unreleased) - len(made.body) - len(made.release) - 1)
            file.write(made.release)
            file.flush()
            os.fsync(file.fileno())
            return

    def check() -> None:
        if path.exists() and not _is_unfinished(path, run):
            raise BadArguments(
                f"run {run!r} was moved, but another file is in the place of its bundle, {str(path)!r}; write it again: "
                f"`holdfast export {run} --to FILE`"
            )

    write(path, made.content, check)


def _remove(path: Path, bundle: str) -> None:
    """Remove a file if it holds this bundle, and not that of another export."""
    with contextlib.suppress(OSError), _names_in(path.parent):
        if _holds(path, bundle):
            path.unlink()


def _holds(path: Path, bundle: str) -> bool:
    with contextlib.suppress(OSError, BadBundle), path.open("rb") as file:
        return files.read_head(file).manifest.id == bundle
    return False


def _put_again(to: Any, run: str, bundle: str, content: bytes) -> None:
    """Write a bundle once more: over itself too, with what was decided in it."""
    path = Path(os.fspath(to)).absolute()
    if not _holds(path, bundle):
        _put(path, content, run)
        return
    with _names_in(path.parent):
        write(path, content + _decided_in(path, bundle))


def _decided_in(path: Path, bundle: str) -> bytes:
    """Read the decisions that stand behind a bundle."""
    try:
        with path.open("rb") as file:
            head = files.read_head(file)
            if head.manifest.id == bundle:
                return b"".join(each.line for each in files.read_decisions(file, head))
    except (OSError, BadBundle) as error:
        raise BadArguments(
            f"what was decided in {str(path)!r} cannot be read ({error}), and would be lost; name another file for the bundle"
        ) from None
    raise BadArguments(f"{str(path)!r} is there already; name another file for the bundle")


def _made(content: bytes, run: str, found: Belongings, manifest: Manifest) -> Bundle:
    return _described(content, run, summary(found, manifest.made_at, manifest.kind))


def _described(content: bytes, run: str, told: dict[str, Any] | None = None) -> Bundle:
    head = files.read_head(io.BytesIO(content))
    return _told(head, run, head.signed.by, len(content), head.summary if told is None else told)


def new_decisions(before: Sequence[ApprovalRow], after: Sequence[ApprovalRow]) -> list[dict[str, Any]]:
    """Find what was decided since, as decisions in a bundle say it."""
    found = []
    for old, new in zip(before, after, strict=True):
        votes = json.loads(new.votes)[len(json.loads(old.votes)) :]
        if new.delegations != old.delegations or len(votes) > 1:
            raise BadArguments(
                "a question in a bundle can be approved, denied or answered, once at a time; nothing was written"
            )
        for vote in votes:
            changed = vote["yes"] and new.data != old.data
            found.append({
                "id": vote["id"], "question": new.id, "yes": vote["yes"], "note": vote["note"], "at": vote["at"],
                "seen": old.digest, "value": new.data if changed else None, "digest": vote["digest"] if changed else None,
            })  # fmt: skip
    return found

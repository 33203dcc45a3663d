"""Files in a worker: it looks for files that triggers name, and keeps each as a delivery once it is whole.

Look here when a file is not taken, or is taken before it is whole.

A file is taken when its size and times have not changed for as long as the trigger says, as this worker saw it. It is known by its
path and the digest of its content, and the store notes both with the delivery (store/files.py). So it is taken once, whichever
workers look, and also if it came while none did: every worker looks at all files when it begins, and now and then. In between the
operating system tells what has changed, through `watchfiles`; where that is not installed or does not work, it looks more often.

Links are not followed, neither to files nor to folders, because a link is not a file that somebody put there.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from holdfast.errors import StoreUnavailable
from holdfast.store.contract import WorkerStore
from holdfast.store.files import FoundFile
from holdfast.store.triggers import RETENTION_MS, NewDelivery
from holdfast.values.text import cut, type_name
from holdfast.words.files import file_key, pattern_of
from holdfast.words.harmless import logger
from holdfast.words.triggers import TriggerSpec
from holdfast.worker.agents import Served
from holdfast.worker.rounds import Round

_log = logger("holdfast")
KIND: Final = "files"
_SCAN_EVERY_S: Final = 30.0  # where changes are heard of
_POLL_EVERY_S: Final = 2.0  # where they are not
_SHARE: Final = 20  # a look at all files takes at most this part of the time
_AT_ONCE: Final = 100  # files that are taken before it looks again
_PIECE: Final = 1 << 20  # bytes that are read at a time
_SEE_EVERY_S: Final = 24 * 3600.0
_MOST_SAID: Final = 1_000
_WATCH_AGAIN_S: Final = 5.0
_AGAIN_S: Final = 60.0  # before a file that could not be taken is tried again
_LONGEST_PATH: Final = 2_000  # bytes: an index of PostgreSQL takes no more than 2,700 in all
_DEEPEST: Final = 200  # folders in each other
_MARK: Final = re.compile(r"(\d+)-(-?\d+)-(?:-?\d+)")  # times are negative before 1970


def mark_of(status: os.stat_result) -> str:
    """Write down what changes when a file is written to."""
    return f"{status.st_size}-{status.st_mtime_ns}-{status.st_ctime_ns}"


def regular(root: str, path: str) -> os.stat_result | None:
    """Look at a file below a folder; None if it is none, or a link leads to it."""
    place = root
    for name in path.split("/"):
        place = os.path.join(place, name)  # noqa: PTH118 - a million of these is a second instead of four
        try:
            status = os.lstat(place)
        except (FileNotFoundError, NotADirectoryError):
            return None
        if stat.S_ISLNK(status.st_mode):
            return None
    return status if stat.S_ISREG(status.st_mode) else None


def digest_of(place: str, mark: str) -> str | None:
    """Read a whole file, a piece at a time; None if it was not the same all the while."""
    content = hashlib.sha256()
    with os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        if mark_of(os.fstat(file.fileno())) != mark:
            return None
        while piece := file.read(_PIECE):
            content.update(piece)
        if mark_of(os.fstat(file.fileno())) != mark or mark_of(os.lstat(place)) != mark:
            return None
    return f"sha256:{content.hexdigest()}"


def told_of(place: str, name: str, digest: str | None = None, mark: str | None = None) -> dict[str, str]:
    """Write down what a delivery tells of a file: its headers."""
    mark = mark or mark_of(os.lstat(place))
    size, modified = (int(each) for each in _MARK.fullmatch(mark).groups())  # type: ignore[union-attr]  # mark_of wrote it
    return {
        "path": str(Path(place).absolute()), "name": name, "digest": digest or digest_of(place, mark) or "", "size": str(size),
        "modified": _moment(modified).isoformat(),
    }  # fmt: skip


def _moment(ns: int) -> datetime:
    """Tell a time of a file; one that no calendar has is the first or the last that it has."""
    try:
        return datetime.fromtimestamp(ns / 1e9, UTC)
    except (ValueError, OverflowError, OSError):
        return datetime.min.replace(tzinfo=UTC) if ns < 0 else datetime.max.replace(tzinfo=UTC)


class Folder:
    """A folder in which files are looked for, for one trigger."""

    def __init__(self, spec: TriggerSpec) -> None:
        self.spec, self.pattern = spec, pattern_of(spec.config["pattern"])
        self.root = os.path.abspath(self.pattern.folder)  # noqa: PTH100 - it must not follow links
        self.settle_s = spec.config["settle_ms"] / 1000
        self.known: dict[str, set[str]] | None = None  # the marks of files that were taken, by path
        self.waiting: dict[str, tuple[str, float]] = {}  # the marks of others, and since when they are so
        self.heard: set[str] = set()  # paths of which something was heard
        self.scan_at = self.see_at = 0.0
        self.watched = False
        self.rests_until = 0.0  # a look at all of it takes no more than a share of the time
        self._said: set[str] = set()

    def hear(self, place: str) -> bool:
        """Hear of a change; True if it is about a file that is meant."""
        path = os.path.relpath(place, self.root)
        meant = not path.startswith("..") and path.count("/") <= _DEEPEST and self.pattern.fits(path)
        if meant:
            self.heard.add(path)
        return meant

    def scan(self) -> dict[str, os.stat_result]:
        """Look at all files that are meant. In a thread."""
        return {path: status for path in self._paths() if (status := self._look(path)) is not None}

    def look(self, paths: set[str]) -> dict[str, os.stat_result]:
        """Look at some. In a thread."""
        return {path: status for path in paths if (status := self._look(path)) is not None}

    def _look(self, path: str) -> os.stat_result | None:
        try:
            length = len(path.encode())
        except UnicodeEncodeError:
            self.say(path, "its name is not UTF-8; give it another")
            return None
        if length > _LONGEST_PATH:
            self.say(path, f"its path has {length} bytes, and at most {_LONGEST_PATH} can be kept; move it up")
            return None
        try:
            status = regular(self.root, path)
        except OSError as problem:
            self.say(path, problem.strerror or str(problem))
            return None
        if status is None and Path(self.root, path).is_symlink():
            self.say(path, "it is a link, and links are not followed")
        return status

    def _paths(self) -> Iterator[str]:
        folders = [""]
        while folders:
            folder = folders.pop()
            for name, is_folder in self._entries(folder):
                path = f"{folder}/{name}" if folder else name
                if path.count("/") > _DEEPEST:
                    self.say(path, f"it lies in more than {_DEEPEST} folders; move it up")
                elif is_folder:
                    if self.pattern.goes_into(path):
                        folders.append(path)
                elif self.pattern.fits(path):
                    yield path

    def _entries(self, folder: str) -> list[tuple[str, bool]]:
        """List what is in a folder: names, and whether each is a folder."""
        try:
            with os.scandir(os.path.join(self.root, folder)) as entries:  # noqa: PTH118
                return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
        except FileNotFoundError:
            if not folder:
                self.say("", "there is no such folder yet")
        except OSError as problem:
            self.say(folder, problem.strerror or str(problem))
        return []

    def say(self, path: str, why: str) -> None:
        """Say once why a file is passed over."""
        if f"{path}: {why}" in self._said:
            return
        if len(self._said) >= _MOST_SAID:
            self._said.clear()
        self._said.add(f"{path}: {why}")
        place = os.path.join(self.root, path) if path else self.root  # noqa: PTH118
        _log.warning("trigger %r passes %s over: %s", self.spec.name, cut(ascii(place)[1:-1], 300), why)

    def note(self, found: dict[str, os.stat_result], now: float, looked: set[str] | None = None) -> None:
        """Note how files look, and since when they look so: the files that were looked at, or all."""
        assert self.known is not None
        for path in [path for path in (self.waiting if looked is None else looked) if path not in found]:
            self.waiting.pop(path, None)
        for path, status in found.items():
            mark = mark_of(status)
            if mark in self.known.get(path, ()):
                self.waiting.pop(path, None)
            elif self.waiting.get(path, ("", 0.0))[0] != mark:
                self.waiting[path] = (mark, now)
        if looked is None:
            for path in self.known.keys() - found.keys():
                del self.known[path]  # the store knows it for longer

    def settled(self, now: float) -> list[tuple[str, str]]:
        """List files that have not changed for long enough, with their marks."""
        return [(path, mark) for path, (mark, since) in self.waiting.items() if now >= since + self.settle_s][:_AT_ONCE]

    def next_look(self) -> float:
        """Say when to look again."""
        first = min((since for _, since in self.waiting.values()), default=None)
        return self.scan_at if first is None else min(self.scan_at, first + self.settle_s)


def watcher() -> Any:
    """Import what tells of changes; None if it is not installed."""
    try:
        import watchfiles  # noqa: PLC0415 - an optional dependency
    except ModuleNotFoundError:
        return None
    return watchfiles


class Files(Round):
    """One worker's part in looking for files. A copy that was restored and is held looks for none."""

    what, news = "files", " files"

    def __init__(self, store: WorkerStore) -> None:
        super().__init__(store.clock)
        self._store = store
        self._folders: dict[str, Folder] = {}
        self._watching: dict[str, asyncio.Task[None]] = {}

    def serve(self, served: Served) -> None:
        """Look for the files of these triggers from now on."""
        folders: dict[str, Folder] = {}
        for spec in served.triggers:
            if spec.kind == KIND:
                known = self._folders.get(spec.name)
                folders[spec.name] = known if known is not None and known.spec is spec else Folder(spec)
        self._folders = folders
        self.wake()

    async def keep(self) -> None:
        """Take turns for ever."""
        try:
            await super().keep()
        finally:
            for each in self._watching.values():
                each.cancel()

    async def turn(self) -> int | None:
        """Take files that are whole."""
        for name in [name for name in self._watching if name not in self._folders]:
            self._watching.pop(name).cancel()
        if not self._folders or await self._store.held():
            return None
        for name, folder in self._folders.items():
            if name not in self._watching:
                self._watching[name] = asyncio.get_running_loop().create_task(self._watch(name))
            try:
                await self._turn(folder)
            except StoreUnavailable:
                raise
            except Exception:
                _log.exception("trigger %r could not look at %s; it tries again", name, folder.root)
                folder.scan_at = time.monotonic() + _WATCH_AGAIN_S
        wait_s = min(folder.next_look() for folder in self._folders.values()) - time.monotonic()
        return self._clock.now() + round(max(wait_s, 0) * 1000) + 1

    async def _turn(self, folder: Folder) -> None:
        if folder.known is None:
            folder.known = {}
            for file in await self._store.files(folder.spec.name):
                folder.known.setdefault(file.path, set()).add(file.mark)
        began = time.monotonic()
        if began >= folder.scan_at:
            folder.heard.clear()
            found = await asyncio.to_thread(folder.scan)
            folder.note(found, began)
            took = time.monotonic() - began
            folder.rests_until = began + took * _SHARE
            folder.scan_at = max(began + (_SCAN_EVERY_S if folder.watched else _POLL_EVERY_S), folder.rests_until)
            if began >= folder.see_at:
                await self._see(folder)
                folder.see_at = began + _SEE_EVERY_S
        elif folder.heard:
            heard, folder.heard = folder.heard, set()
            found = await asyncio.to_thread(folder.look, heard)
            folder.note(found, began, heard)
        for path, mark in folder.settled(time.monotonic()):
            try:
                await self._take(folder, path, mark)
            except StoreUnavailable:
                raise
            except Exception as problem:  # whatever it is, other files are not held up
                folder.say(path, f"it cannot be taken ({type_name(type(problem))}: {problem}); it is tried again")
                folder.waiting[path] = (mark, time.monotonic() + _AGAIN_S)

    async def _see(self, folder: Folder) -> None:
        """Note which taken files are still there, and forget files that have been gone for long."""
        assert folder.known is not None
        await self._store.see_files(folder.spec.name, sorted(folder.known))
        await self._store.prune_files(folder.spec.name, self._clock.now() - RETENTION_MS)

    async def _take(self, folder: Folder, path: str, mark: str) -> None:
        """Read a file, and keep it as a delivery."""
        place = os.path.join(folder.root, path)  # noqa: PTH118
        try:
            digest = await asyncio.to_thread(digest_of, place, mark)
        except FileNotFoundError:
            folder.waiting.pop(path, None)
            return
        except OSError as problem:
            folder.say(path, f"it cannot be read ({problem.strerror or problem}); it is taken when it can be")
            digest = None
        if digest is None:  # it has changed: a later look tells
            folder.waiting[path] = (mark, time.monotonic())
            folder.heard.add(path)
            return
        headers = told_of(place, path, digest, mark)
        new = NewDelivery(folder.spec.name, file_key(path, digest), KIND, headers, b"")
        await self._store.find_file(FoundFile(path, digest, mark), new)
        assert folder.known is not None
        folder.known.setdefault(path, set()).add(mark)
        folder.waiting.pop(path, None)

    async def _watch(self, name: str) -> None:
        """Hear of changes, where that is possible."""
        library, told = watcher(), False
        while library is not None:
            folder = self._folders.get(name)
            if folder is None:
                return
            try:
                if await asyncio.to_thread(os.path.isdir, folder.root):
                    changes = library.awatch(
                        folder.root, watch_filter=None, debounce=200, step=50, recursive=True, rust_timeout=1_000,
                        yield_on_timeout=True,
                    )  # fmt: skip
                    async with contextlib.aclosing(changes):
                        folder.watched, listens = True, False
                        async for found in changes:
                            # A file that came before it listened, or into a new folder before that was listened to, is
                            # not told.
                            if not listens or await asyncio.to_thread(_names_folder, found):
                                folder.scan_at, listens = min(folder.scan_at, folder.rests_until), True
                                self.wake()
                            if [place for _, place in found if folder.hear(place)]:
                                self.wake()
            except Exception as problem:
                if not told:
                    _log.warning(
                        "trigger %r does not hear of changes in %s, and looks every %g s: %s",
                        name, folder.root, _POLL_EVERY_S, problem,
                    )  # fmt: skip
                    told = True
            folder.watched = False
            await asyncio.sleep(_WATCH_AGAIN_S)


def _names_folder(changes: Iterable[tuple[Any, str]]) -> bool:
    """Is one of the changes about a folder?"""
    return any(Path(place).is_dir() for _, place in changes)

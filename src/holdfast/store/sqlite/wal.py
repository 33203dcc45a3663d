"""Room for the log ahead of what is written to it.

To flush a file that has grown is to write its new length and where its new blocks are, too, which takes as long again as
the rest. So the log is made longer now and then, by zeros, and then written over. A log is read up to the first frame
whose checksum is wrong, as after every restart of a log in a file that stays long; zeros are such frames.

Only the holder of the write lock may do it: nobody else writes to the log then, and it begins where the file ends.
"""

from __future__ import annotations

import contextlib
import os
from typing import Final

import apsw

from holdfast.store.sqlite.connection import CHECKPOINT_PAGES

_FRAME_HEADER: Final = 24
_CHUNK: Final = 256 * 1024
_AHEAD: Final = 8  # pages that a commit may need


class Runway:
    """The end of the log of one file."""

    def __init__(self, path: str, page_bytes: int) -> None:
        self._path, self._frame = path + "-wal", page_bytes + _FRAME_HEADER
        self._fd: int | None = None
        self._end = 0

    def reach(self, pages: int) -> None:
        """Have room for a commit after so many pages of the log. Whatever prevents it, the commit itself will tell."""
        if (pages + _AHEAD) * self._frame <= self._end:
            return
        with contextlib.suppress(OSError):
            if self._fd is None:
                self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
            self._end = os.fstat(self._fd).st_size
            if (pages + _AHEAD) * self._frame > self._end:
                self._end += os.pwrite(self._fd, bytes(_CHUNK), self._end)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd is not None:
            os.close(self._fd)
        self._fd, self._end = None, 0


class Log:
    """The log of one connection: how long it is, and when it is moved into the file."""

    def __init__(self, runway: Runway | None) -> None:
        self._runway, self._pages = runway, 0
        self.longest_pages, self.is_long = CHECKPOINT_PAGES, False

    def watch(self, db: apsw.Connection) -> None:
        """Take the place of automatic checkpoints, which would come inside a commit."""
        self._pages, self.is_long = 0, False
        db.set_wal_hook(self._grown)

    def _grown(self, _db: apsw.Connection, _name: str, pages: int) -> int:
        self._pages, self.is_long = pages, pages >= self.longest_pages
        return apsw.SQLITE_OK

    def shorten(self, db: apsw.Connection) -> None:
        """Move what the log holds into the file, when it has grown."""
        if self.is_long:
            with contextlib.suppress(apsw.Error):  # it is tried again after the next commit
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
                self._pages, self.is_long = 0, False

    def make_room(self) -> None:
        """Have room for a commit."""
        if self._runway is not None:
            self._runway.reach(self._pages)

    def close(self) -> None:
        if self._runway is not None:
            self._runway.close()

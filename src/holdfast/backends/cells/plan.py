"""The plan: the file that `cells:FILE` names. It says where the databases are, and how the slots were divided at first.

```toml
[cells.a]
url = "postgresql://holdfast@db-a/holdfast"
slots = "0-511"

[cells.b]
url = "postgresql://holdfast@db-b/holdfast"
slots = "512-1023"
```

The first cell of the file keeps what belongs to no run (tokens, sessions), so its place must not change. The owner of a
slot is written in the databases alone: `holdfast cells move` leaves the file as it is, and `holdfast cells add` puts
one more cell there.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import secrets
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.backends.cells.slots import SLOTS, parsed, spelled
from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.postgres.connection import parse_url

MOST: Final = 63  # cells: each has a number in the positions of the feed
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")
_FIELDS: Final = frozenset({"url", "slots"})
SCHEME: Final = "cells:"


@dataclass(frozen=True, slots=True)
class Plan:
    """The cells of a file, in its order: their URLs, and the slots that it gives each."""

    path: Path
    urls: Mapping[str, str] = field(repr=False)
    slots: Mapping[str, tuple[int, ...]]

    @property
    def shown(self) -> str:
        """The URL that names it."""
        return f"{SCHEME}{self.path}"

    @property
    def home(self) -> str:
        """The cell that keeps what belongs to no run."""
        return next(iter(self.urls))

    @property
    def digest(self) -> str:
        """Tell a set of cells from another: by its names and how its slots are divided, not by where it is."""
        return hashlib.sha256(json.dumps({name: self.slots[name] for name in self.urls}).encode()).hexdigest()[:32]

    def owner(self, slot: int) -> str:
        """The cell to which the file gives a slot."""
        return next(name for name, slots in self.slots.items() if slot in slots)

    def with_cell(self, name: str, url: str) -> Plan:
        """Make a plan with one more cell, that has no slot yet. `BadArguments` if its name is taken or is none."""
        if name in self.urls:
            raise BadArguments(f"{str(self.path)!r} has a cell {name!r} already; name the new one otherwise")
        return checked(self.path, {**self.urls, name: url}, {**self.slots, name: ()})

    def write(self) -> None:
        """Write the file: whole or not at all, and readable by its owner alone, because URLs may have passwords."""
        text = "".join(
            f"[cells.{name}]\nurl = {json.dumps(url)}\nslots = {json.dumps(spelled(self.slots[name]))}\n\n"
            for name, url in self.urls.items()
        )
        part = self.path.with_name(f".{self.path.name}.{secrets.token_hex(4)}.part")
        try:
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(text.rstrip("\n") + "\n")
                file.flush()
                os.fsync(file.fileno())
            if self.path.exists():
                part.chmod(self.path.stat().st_mode & 0o777)
            part.replace(self.path)
        except OSError as error:
            part.unlink(missing_ok=True)
            raise BadArguments(f"{str(self.path)!r} cannot be written: {error.strerror or error}") from None


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Lock a file against other processes that change it; a process that dies lets go of it.

    Its folder is locked: the file is replaced, and a lock on a replaced file would lock nothing.
    """
    descriptor = os.open(path.absolute().parent, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def first_plan(path: str | os.PathLike[str], name: str, url: str) -> Plan:
    """A plan of one cell, that has all slots."""
    return checked(Path(path), {name: url}, {name: tuple(range(SLOTS))})


def path_of(url: str) -> Path:
    """The file that a URL names."""
    path = url.removeprefix(SCHEME)
    if not path.strip():
        raise BadArguments("'cells:' names no file; write cells:FILE, for example 'cells:cells.toml'")
    return Path(path)


def read_plan(url: str) -> Plan:
    """Read the file that a URL names. `BadArguments` says what is wrong with it; `StoreUnavailable`: it cannot be read."""
    path = path_of(url)
    try:
        told = tomllib.loads(path.read_text())
    except FileNotFoundError:
        raise StoreUnavailable(
            f"there is no file {str(path)!r}, which {url!r} names; `holdfast cells add NAME POSTGRESQL-URL --db {url}` begins one"
        ) from None
    except OSError as error:
        raise StoreUnavailable(f"{str(path)!r} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadArguments(f"{str(path)!r} is no TOML: {error}. {_LIKE}") from None
    return _checked_text(path, told)


_LIKE: Final = 'A cell is written as: [cells.a], url = "postgresql://user@host/database", slots = "0-1023"'


def _checked_text(path: Path, told: Mapping[str, Any]) -> Plan:
    cells = told.get("cells")
    if told.keys() - {"cells"} or not isinstance(cells, dict) or not cells:
        odd = ", ".join(map(repr, sorted(told.keys() - {"cells"}))) or "no cell"
        raise BadArguments(f"{str(path)!r} has {odd}, and should have cells and nothing else. {_LIKE}")
    urls, slots = {}, {}
    for name, cell in cells.items():
        if not isinstance(cell, dict) or cell.keys() - _FIELDS or not isinstance(cell.get("url"), str):
            more = sorted(cell.keys() - _FIELDS) if isinstance(cell, dict) else []
            raise BadArguments(f"{str(path)!r}: cell {name!r} {f'has {more[0]!r}' if more else 'has no url'}. {_LIKE}")
        given = cell.get("slots", "")
        if not isinstance(given, str):
            raise BadArguments(f'{str(path)!r}: the slots of cell {name!r} are a text such as "0-511", not {given!r}')
        try:
            urls[name], slots[name] = cell["url"], tuple(parsed(given))
        except BadArguments as wrong:
            raise BadArguments(f"{str(path)!r}: cell {name!r}: {wrong}") from None
    return checked(path, urls, slots)


def checked(path: Path, urls: Mapping[str, str], slots: Mapping[str, tuple[int, ...]]) -> Plan:
    """A plan that has every slot once, and databases that differ. `BadArguments` says what is wrong."""
    if len(urls) > MOST:
        raise BadArguments(f"{str(path)!r} has {len(urls)} cells; there can be {MOST}")
    places: dict[tuple[str, str], str] = {}
    for name, url in urls.items():
        if not _NAME.fullmatch(name):
            raise BadArguments(f"{str(path)!r}: {name!r} is no name for a cell; use small letters, digits, '-' and '_'")
        try:
            options = parse_url(url)
        except BadArguments as wrong:
            raise BadArguments(f"{str(path)!r}: cell {name!r}: {wrong}. A cell is a PostgreSQL database") from None
        other = places.setdefault((options.dsn, options.schema), name)
        if other != name:
            raise BadArguments(f"{str(path)!r}: cells {other!r} and {name!r} are one database ({options.shown})")
    _check_division(path, slots)
    return Plan(path, dict(urls), dict(slots))


def _check_division(path: Path, slots: Mapping[str, Iterable[int]]) -> None:
    owners: dict[int, str] = {}
    for name, given in slots.items():
        for slot in given:
            if slot in owners:
                raise BadArguments(
                    f"{str(path)!r}: slot {slot} is given to {owners[slot]!r} and to {name!r}; each belongs to one cell"
                )
            owners[slot] = name
    missing = [slot for slot in range(SLOTS) if slot not in owners]
    if missing:
        raise BadArguments(
            f"{str(path)!r}: slots {spelled(missing)} belong to no cell; all from 0 to {SLOTS - 1} must be given to one"
        )

"""URLs of stores: which store each names."""

from __future__ import annotations

from typing import Final

from holdfast.errors import BadArguments, StoreUnavailable
from holdfast.store.operations import Faults
from holdfast.store.sqlite.store import SQLiteStore
from holdfast.store.store import Store
from holdfast.words.clock import Clock
from holdfast.words.urls import redacted

DEFAULT_URL: Final = "sqlite:holdfast.db"


def store_at(url: str, *, clock: Clock | None = None, faults: Faults | None = None, name: str = "") -> Store:
    """Make the store that a URL names, to be opened. PostgreSQL needs a driver that not everyone has."""
    scheme = url.partition(":")[0] if isinstance(url, str) else ""
    if scheme == "sqlite":
        return SQLiteStore.from_url(url, clock=clock, faults=faults, name=name)
    if scheme in ("postgresql", "postgres"):
        try:
            from holdfast.store.postgres.store import PostgresStore  # noqa: PLC0415 - its driver may not be installed
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("asyncpg"):
                raise
            raise StoreUnavailable(
                f'PostgreSQL needs a driver that is not installed ({error}): pip install "holdfast[postgres]"'
            ) from error
        return PostgresStore.from_url(url, clock=clock, faults=faults, name=name)
    if scheme == "temporal":
        try:
            from holdfast.backends.temporal.store import TemporalStore  # noqa: PLC0415 - its client may not be installed
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("temporalio"):
                raise
            raise StoreUnavailable(
                f'Temporal needs a client that is not installed ({error}): pip install "holdfast[temporal]"'
            ) from error
        return TemporalStore.from_url(url, clock=clock, faults=faults, name=name, beside=store_at)
    if scheme == "cells":
        try:
            from holdfast.backends.cells.store import CellsStore  # noqa: PLC0415 - as PostgreSQL
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("asyncpg"):
                raise
            raise StoreUnavailable(
                f'cells need a driver of PostgreSQL that is not installed ({error}): pip install "holdfast[postgres]"'
            ) from error
        return CellsStore.from_url(url, clock=clock, faults=faults, name=name)
    shown = redacted(url)
    named = repr(shown) if isinstance(url, str) else shown
    raise BadArguments(f"{named} is not a store this version can open; write {_meant(shown)}")


def _meant(url: str) -> str:
    """Suggest the URL of the store that may have been meant."""
    postgres = "'postgresql://user@host/database'"
    scheme, colon, rest = url.partition(":")
    kind = scheme.lower().partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return postgres
    path = rest if colon else scheme
    if path.strip("/") and (kind in ("sqlite", "file") if colon else path.endswith((".db", ".sqlite", ".sqlite3"))):
        return f"'sqlite:{path.lstrip('/') if path.startswith('//') else path}'"
    if kind == "cell" and path.strip("/"):
        return f"'cells:{path}'"
    if kind in ("temporal", "temporals", "temporalio"):
        return "'temporal://host:7233/namespace'"
    return f"'sqlite:PATH', for example {DEFAULT_URL!r}, {postgres}, 'cells:FILE' or 'temporal://host:7233/namespace'"

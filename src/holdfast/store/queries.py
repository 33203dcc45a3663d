"""Queries of `queries.sql`, each by its name."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from typing import Final

from holdfast.store.announcements import AnnouncementRow
from holdfast.store.links import LinkRow
from holdfast.store.notifications import NotificationRow
from holdfast.store.schedules import ScheduleRow
from holdfast.store.sessions import SessionRow
from holdfast.store.tokens import TokenRow
from holdfast.store.triggers import DeliveryRow, TriggerRow
from holdfast.words.model import ApprovalRow, RunRow

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_NAMED = re.compile(r"\{(\w+)\}")  # the text of another query

# The columns of these rows are named once, by their classes; the queries say {run}, {approval} and so on.
COLUMNS: Final = {
    "{run}": ", ".join(column.name for column in dataclasses.fields(RunRow)),
    "{approval}": ", ".join(column.name for column in dataclasses.fields(ApprovalRow)),
    "{session}": ", ".join(column.name for column in dataclasses.fields(SessionRow)),
    "{link}": ", ".join(column.name for column in dataclasses.fields(LinkRow)),
    "{token}": ", ".join(column.name for column in dataclasses.fields(TokenRow)),
    "{schedule}": ", ".join(column.name for column in dataclasses.fields(ScheduleRow)),
    "{trigger}": ", ".join(column.name for column in dataclasses.fields(TriggerRow)),
    "{announcement}": ", ".join(column.name for column in dataclasses.fields(AnnouncementRow)),
    "{delivery}": ", ".join(column.name for column in dataclasses.fields(DeliveryRow)),
    "{notification}": ", ".join(column.name for column in dataclasses.fields(NotificationRow)),
}


def text_of(name: str) -> str:
    """Read a file of this folder."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def load(*texts: str) -> dict[str, str]:
    """Split each text at its `-- name:` lines; a later text replaces queries of an earlier one by their names.

    Comments stay out, so that statement caches compare short texts.
    """
    queries: dict[str, str] = {}
    for text in texts:
        parts = _NAME.split(text)
        names = parts[1::2]
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise ValueError(f"queries.sql has two queries named {twice[0]!r}")
        for name, body in zip(names, parts[2::2], strict=True):
            lines = (line for line in body.splitlines() if not line.startswith("--"))
            sql = " ".join(" ".join(lines).split())
            for word, columns in COLUMNS.items():
                sql = sql.replace(word, columns)
            queries[name] = sql

    def whole(sql: str) -> str:
        return _NAMED.sub(lambda word: whole(queries[word[1]]), sql)

    return {name: whole(sql) for name, sql in queries.items()}


QUERIES: Final = load(text_of("queries.sql"))

"""Loads `queries.sql`: each query by its name."""

from __future__ import annotations

import dataclasses
import re
from importlib import resources
from typing import Final

from holdfast.model import ApprovalRow, RunRow

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)
_NAMED = re.compile(r"\{(\w+)\}")  # the text of another query

# The columns of these rows are named once, in model.py; the queries say {run} and {approval}.
COLUMNS: Final = {
    "{run}": ", ".join(column.name for column in dataclasses.fields(RunRow)),
    "{approval}": ", ".join(column.name for column in dataclasses.fields(ApprovalRow)),
}


def load(text: str) -> dict[str, str]:
    """Split the text at its `-- name:` lines; comments stay out, so that statement caches compare short texts."""
    parts = _NAME.split(text)
    queries: dict[str, str] = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        if name in queries:
            raise ValueError(f"queries.sql has two queries named {name!r}")
        lines = (line for line in body.splitlines() if not line.startswith("--"))
        sql = " ".join(" ".join(lines).split())
        for word, columns in COLUMNS.items():
            sql = sql.replace(word, columns)
        queries[name] = sql

    def whole(sql: str) -> str:
        return _NAMED.sub(lambda word: whole(queries[word[1]]), sql)

    return {name: whole(sql) for name, sql in queries.items()}


QUERIES: Final = load(resources.files(__package__).joinpath("queries.sql").read_text(encoding="utf-8"))

"""Answers of a PostgreSQL connection to what work asks."""

from __future__ import annotations

from typing import Any, TypeVar

from asyncpg import exceptions as pg

from holdfast.errors import BadArguments
from holdfast.store.postgres.connection import Connection
from holdfast.store.postgres.dialect import STATEMENTS
from holdfast.store.work import HALF_OF_A_CHARACTER, Asked, Asking, Conflict, Count, Rows

T = TypeVar("T")


class Answers:
    """One transaction's answers. Counts the events written in it: that is part of their positions."""

    def __init__(self, connection: Connection) -> None:
        self.connection, self._events = connection, 0

    async def do(self, work: Asking[T]) -> T:
        """Run a piece of work to its end."""
        try:
            asked = next(work)
            while True:
                try:
                    rows = await self._answer(asked)
                except Conflict as conflict:
                    asked = work.throw(conflict)
                else:
                    asked = work.send(rows)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _answer(self, asked: Asked) -> Any:
        statement = STATEMENTS[asked.query]
        try:
            if type(asked) is Rows:
                parameters = [asked.parameters[name] for name in statement.parameters]
                return await self.connection.fetch(statement.text, *parameters)
            columns: list[Any] = list(zip(*asked[1], strict=True))  # one array for each parameter
            if "number" in statement.parameters:
                columns.insert(statement.parameters.index("number"), self._events)
                self._events += len(asked[1])
            if type(asked) is Count:
                changed = await self.connection.execute(statement.text, *columns)
                return int(changed.rpartition(" ")[2])
            return await self.connection.fetch(statement.text, *columns)
        except pg.IntegrityConstraintViolationError as error:
            raise Conflict(str(error)) from error
        except (pg.CharacterNotInRepertoireError, pg.UntranslatableCharacterError) as error:
            raise BadArguments("a text has a NUL in it, which no database takes") from error
        except pg.DataError as error:
            in_json = isinstance(error, pg.InvalidTextRepresentationError) and "surrogate" in str(error.detail)
            if in_json or isinstance(error.__cause__, UnicodeEncodeError):
                raise BadArguments(HALF_OF_A_CHARACTER) from error
            raise


async def ask(connection: Connection, query: str, **parameters: Any) -> list[Any]:
    """Read the rows of a named query."""
    statement = STATEMENTS[query]
    rows: list[Any] = await connection.fetch(statement.text, *[parameters[name] for name in statement.parameters])
    return rows

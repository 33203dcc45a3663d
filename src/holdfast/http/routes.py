"""Endpoints: one row says all of a path. Routing, checks, /openapi.json and /api are made from it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from holdfast.client.client import Client
from holdfast.client.tokens import Scope
from holdfast.http.auth import Caller
from holdfast.http.errors import Refused
from holdfast.http.follow import Followers, Permission, Source
from holdfast.http.shares import Place
from holdfast.words.people import Actor


class Input(BaseModel):
    """The input of a path. An unknown name is refused: it is a mistake, and what was meant would be lost."""

    model_config = ConfigDict(extra="forbid")


class Nothing(Input):
    """No parameters."""


def _moment(given: Any) -> Any:
    """Read a moment: a date alone is its midnight in UTC; a time without a zone names no moment."""
    if not isinstance(given, str):
        return given  # seconds since 1970, or nothing that is a time
    try:
        if len(given) <= _LENGTH_OF_A_DATE:
            return datetime.combine(date.fromisoformat(given), time.min, UTC)
        found = datetime.fromisoformat(given)
    except ValueError:
        raise _no_moment("This is not a time") from None
    if found.tzinfo is None:
        raise _no_moment("This time has no time zone")
    return found


def _no_moment(what: str) -> PydanticCustomError:
    return PydanticCustomError(
        "moment",
        "{what}; write it as 2026-11-16T07:00:00Z or 2026-11-16T07:00:00+01:00, or as a day in UTC, 2026-11-16",
        {"what": what},
    )


_LENGTH_OF_A_DATE: Final = len("2026-11-16")
Moment = Annotated[datetime, BeforeValidator(_moment)]  # of what is asked for

Q = TypeVar("Q", bound=Input)
B = TypeVar("B")


@dataclass(frozen=True, slots=True)
class Call(Generic[Q, B]):
    """A request whose caller is known and whose input was checked."""

    hf: Client
    by: Actor  # of the credential
    query: Q
    body: B
    request: Request
    followers: Followers
    allowed: Permission
    caller: Caller | None = None  # None where no credential is needed
    place: Place | None = None  # in the share of the caller

    def __getitem__(self, name: str) -> str:
        """A part of the path."""
        value: str = self.request.path_params[name]
        return value

    @property
    def decides(self) -> bool:
        """Whether the caller may decide anything at all."""
        return self.caller is None or "decide" in self.caller.scopes

    def labelled(self, labels: Mapping[str, str]) -> dict[str, str]:
        """Add the labels of the runs that are there for the caller; refuse others in their place."""
        only = {} if self.caller is None else dict(self.caller.who.only or {})
        wrong = [name for name, value in only.items() if labels.get(name, value) != value]
        if wrong:
            told = f"this token is for runs with {wrong[0]}={only[wrong[0]]} alone; leave that label out, or give this value"
            raise Refused("forbidden", told)
        return {**labels, **only}

    async def allows(self, needs: Scope) -> None:
        """Refuse a caller that may not do this as well."""
        await self.allowed.check(needs)

    def away(self) -> AbstractAsyncContextManager[None]:
        """Wait for something in this block, without keeping others of the caller from their work."""
        return nullcontext() if self.place is None else self.place.away()

    def follow(self, source: Source, after: int) -> Response:
        """Send what comes behind a place."""
        return self.followers.response(source, after, self.allowed)


@dataclass(frozen=True, slots=True)
class Answer:
    """A document with another status than 200."""

    status: int
    document: Any


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path and a method. `do` returns a document, an `Answer` or a response."""

    method: Literal["GET", "POST", "DELETE"]
    path: str
    says: str
    do: Callable[[Call[Any, Any]], Awaitable[Any]]
    # "any": any known caller. None: unknown callers too; what is sent may have its own proof, which `do` checks.
    needs: Scope | Literal["any"] | None
    answers: Any  # the type of the document; `bytes`, if it is a file
    query: type[Input] = Nothing
    body: Any = None  # a type, if it takes a document; `bytes`, if `do` reads what comes by itself
    # Other good statuses: what they mean, their document.
    more: Mapping[int, tuple[str, Any]] = field(default_factory=dict)
    also: Scope | None = None  # what a caller must be allowed to do besides
    slashes: bool = False  # the last part may have some, encoded or not: it is the key of a call
    # For a caller that is limited to some runs. "some": `do` gives what its client gives, and that is limited. "self":
    # the caller.
    sees: Literal["some", "self"] | None = None
    follows: Any = None  # the type of what comes as text/event-stream, if that can be asked for

    @property
    def route(self) -> str:
        """The path as Starlette knows it."""
        return f"{self.path[:-1]}:path}}" if self.slashes else self.path

    @property
    def about(self) -> Literal["all", "run", "question", "some", "self"]:
        """The part of the store that it is about. Callers limited to some runs are refused what is about all of it."""
        if self.sees is not None:
            return self.sees
        if self.path.startswith("/api/runs/{id}"):
            return "run"
        return "question" if self.path == "/api/approvals/{id}" else "all"

"""`approve` and `ask`: the run stops until a person has decided. Waiting costs a row, however long it takes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar, overload

from holdfast.errors import BadArguments
from holdfast.runtime import NO_DEFAULT, Answer, Called, Question, current
from holdfast.values.codec import UNTYPED, Shape, shape_of
from holdfast.words.durations import Duration, milliseconds, moment
from holdfast.words.people import checked_names

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_PLAIN = frozenset({dict, list, tuple, set, frozenset, str, int, float, bool, bytes, type(None)})
_QUESTION_LIMIT = 10_000


@dataclass(frozen=True)
class Vote:
    """What one person said."""

    by: str
    yes: bool
    note: str
    at: datetime


@dataclass(frozen=True)
class Decision(Generic[T_co]):
    """What people decided: true when they approved. `data` is what was shown, as they edited it; `votes` are for that."""

    approved: bool
    data: T_co
    by: str | None
    note: str
    at: datetime
    expired: bool = False
    votes: tuple[Vote, ...] = ()

    def __bool__(self) -> bool:
        return self.approved


@overload
def approve(
    question: str, *, to: str | Sequence[str] = (), needs: int = 1, expires: Duration | None = None, default: bool = False,
    remind: Duration | None = None, not_by: Literal["starter"] | None = None,
) -> Called[Decision[None]]: ...  # fmt: skip
@overload
def approve(
    question: str, *, show: T, edit: bool | type[T] | Mapping[str, Any] = False, to: str | Sequence[str] = (),
    needs: int | Callable[[T], int] = 1, expires: Duration | None = None, default: bool = False,
    remind: Duration | None = None, not_by: Literal["starter"] | None = None,
) -> Called[Decision[T]]: ...  # fmt: skip
def approve(
    question: str, *, show: Any = None, edit: Any = False, to: str | Sequence[str] = (), needs: Any = 1,
    expires: Duration | None = None, default: bool = False, remind: Duration | None = None,
    not_by: Literal["starter"] | None = None,
) -> Any:  # fmt: skip
    """Stop until a person approves or denies; false when denied, with the reason in `note`.

    `show` is what the person sees and decides about, exactly as it is now; with `edit` the person may change it first. What
    is entered must fit the type of `show`, or `edit` itself: a type, or a JSON schema.
    `needs` people must agree, each another one. When nobody decided before it `expires`, the `default` holds.
    With `not_by="starter"` another person decides than the one who started the run, or the run above all.
    """
    if not_by not in (None, "starter"):
        raise BadArguments(f"not_by={not_by!r}: it is 'starter', who started the run, or is left out")
    if not isinstance(default, bool):
        raise BadArguments(f"default={default!r}: what holds when nobody decides in time is True or False")
    shown = shape_of_value(show) if isinstance(edit, bool | Mapping) else shape_of(edit)
    shape = UNTYPED if isinstance(edit, Mapping) else shown
    asked = _question("approve", question, show, shown, shape, edit is not False, to, needs, expires, default, remind)
    if isinstance(edit, Mapping):
        asked = replace(asked, given_schema=dict(edit))
    if not_by is not None:
        asked = replace(asked, not_by_starter=True)
    return current("approve").ask(asked).then(_decision)


@overload
def ask(
    question: str, type: type[T], /, *, show: object = None, to: str | Sequence[str] = (), expires: Duration | None = None,
    default: T = ..., remind: Duration | None = None,
) -> Called[T]: ...  # fmt: skip
@overload
def ask(
    question: str, type: Any, /, *, show: object = None, to: str | Sequence[str] = (), expires: Duration | None = None,
    default: Any = ..., remind: Duration | None = None,
) -> Called[Any]: ...  # fmt: skip
def ask(
    question: str, type: Any, /, *, show: object = None, to: str | Sequence[str] = (), expires: Duration | None = None,
    default: Any = NO_DEFAULT, remind: Duration | None = None,
) -> Any:  # fmt: skip
    """Stop until a person has answered with a value of this type.

    When nobody did before it `expires`, it is the `default`; without one, `Expired` is raised.
    """
    shape = shape_of(type)
    if default is not NO_DEFAULT:
        default = shape.store(default, "default")[1]
    asked = _question("ask", question, show, shape_of_value(show), shape, True, to, 1, expires, default, remind)
    return current("ask").ask(asked).then(lambda answer: answer.value)


def _question(
    kind: str, text: str, show: object, shown_shape: Shape, shape: Shape, editable: bool, to: str | Sequence[str],
    needs: Any, expires: Duration | None, default: object, remind: Duration | None,
) -> Question:  # fmt: skip
    if not isinstance(text, str) or not text.strip() or len(text) > _QUESTION_LIMIT:
        raise BadArguments(
            f"{kind} begins with the question, text of at most {_QUESTION_LIMIT} characters; got {text!r:.60}"
        )
    expires_ms = None if expires is None else milliseconds(expires)
    remind_ms = None if remind is None else milliseconds(remind)
    if remind_ms is not None and remind_ms < 1000:
        raise BadArguments(f"remind={remind!r}: people are reminded once a second at most")
    return Question(
        kind, text, show, shown_shape, shape, editable, checked_names(to), needs, expires_ms, default, remind_ms
    )


def _decision(answer: Answer) -> Decision[Any]:
    votes = tuple(Vote(vote["by"], vote["yes"], vote["note"], moment(vote["at"])) for vote in answer.votes)
    return Decision(answer.yes, answer.value, answer.by, answer.note, answer.at, answer.expired, votes)


def shape_of_value(value: object) -> Shape:
    """The shape of a value by its own type; of a list or dict, with the type of what is in it if that is one."""
    return UNTYPED if value is None else shape_of(_annotation(value))


def _annotation(value: object) -> Any:
    if type(value) is list:
        items = {_annotation(item) for item in value}
        return list[items.pop()] if len(items) == 1 else list  # type: ignore[misc]
    if type(value) is dict:
        keys, items = {type(key) for key in value}, {_annotation(item) for item in value.values()}
        if len(keys) == len(items) == 1 and not items <= _PLAIN:  # a dict of plain values is a record: they may change
            return dict[keys.pop(), items.pop()]  # type: ignore[misc]
    return type(value)

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
    """One person's voice in a decision.

    Attributes:
        by: The person.
        yes: Whether the person agreed.
        note: The reason the person gave.
        at: When.

    Example:
        ```python
        decision = await holdfast.approve("Publish?", needs=2)
        names = [vote.by for vote in decision.votes if vote.yes]
        ```
    """

    by: str
    yes: bool
    note: str
    at: datetime


@dataclass(frozen=True)
class Decision(Generic[T_co]):
    """The end of an `approve`: truthy if people approved.

    Attributes:
        approved: Whether they did.
        data: The value that was shown, as they edited it.
        by: The person who decided; None if nobody did.
        note: The reason that was given.
        at: When.
        expired: Nobody decided in time, and the default holds.
        votes: The votes for `data` as it is.

    Example:
        ```python
        decision = await holdfast.approve("Publish?", show="a draft")
        text = "published" if decision else f"kept: {decision.note}"
        ```
    """

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
    """Stop until a person approves or denies; returns a `Decision`, which is truthy if approved.

    Args:
        question: What the person is asked.
        show: The value to decide about, stored and shown exactly as it is now.
        edit: Whether the person may change the value first. A type or a JSON schema says what fits.
        to: The people and groups who may decide; anybody if there is none.
        needs: How many different people must agree; a number, or a function of the value.
        expires: After this time the `default` holds.
        default: The decision if nobody decides in time.
        remind: Record an event `approval.reminded` each time this has passed.
        not_by: "starter": the person who started the run may not decide.

    Raises:
        BadArguments: An option cannot be used.
        NotStorable: The value cannot be stored.

    Example:
        ```python
        decision = await holdfast.approve("Publish this?", show=["a", "b"], to="group:editors", expires="2 days")
        if decision:
            await publish(", ".join(decision.data))
        ```
    """
    if not_by not in (None, "starter"):
        raise BadArguments(f"not_by={not_by!r}: it is 'starter', who started the run, or is left out")
    if not isinstance(default, bool):
        raise BadArguments(f"default={default!r}: what holds when nobody decides in time is True or False")
    shown = shape_of_value(show) if isinstance(edit, bool | Mapping) else shape_of(edit)
    shape = UNTYPED if isinstance(edit, Mapping) else shown
    asked = checked_question(
        "approve", question, show, shown, shape, edit is not False, to, needs, expires, default, remind
    )
    if isinstance(edit, Mapping):
        asked = replace(asked, given_schema=dict(edit))
    if not_by is not None:
        asked = replace(asked, not_by_starter=True)
    return current("approve").call(asked).then(_decision)


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

    Args:
        question: What the person is asked.
        type: The type of the answer; its JSON schema is the form.
        show: A value to look at.
        to: The people and groups who may answer; anybody if there is none.
        expires: After this time the `default` is the answer.
        default: The answer if nobody answers in time.
        remind: Record an event `approval.reminded` each time this has passed.

    Raises:
        Expired: Nobody answered in time, and there is no default.
        BadArguments: An option cannot be used.

    Example:
        ```python
        days = await holdfast.ask("For how many days?", int, expires="1 day", default=30)
        ```
    """
    shape = shape_of(type)
    if default is not NO_DEFAULT:
        default = shape.store(default, "default")[1]
    asked = checked_question("ask", question, show, shape_of_value(show), shape, True, to, 1, expires, default, remind)
    return current("ask").call(asked).then(lambda answer: answer.value)


def checked_question(
    kind: str, text: str, show: object, shown_shape: Shape, shape: Shape, editable: bool, to: str | Sequence[str],
    needs: Any, expires: Duration | None, default: object, remind: Duration | None,
) -> Question:  # fmt: skip
    """Make a question; `BadArguments` if a part of it cannot be used."""
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

"""Triggers: what comes from outside as a delivery, and what is to be done about it. Data and arithmetic only: no clock, no I/O.

A trigger is a name and a plain function. What comes under the name is a `Delivery` with an id; the function, the mapping, returns
actions: `Start`, `Send`, `Decide`. Each action has a key that comes from the trigger's name and the delivery's id, so to apply the
same delivery twice does nothing the second time.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal
from urllib.parse import parse_qsl

from holdfast.errors import BadArguments
from holdfast.values.text import cut, is_whole, short
from holdfast.words.budget import Budget
from holdfast.words.durations import Duration
from holdfast.words.model import is_awkward, plain_id
from holdfast.words.people import Actor
from holdfast.words.retry import Retry

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,100}")
_PLAIN_KEY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")  # no dot and no colon: what is added to keys has one
_LONGEST_KEY: Final = 200  # characters of a delivery's id; a longer one is known by its digest
_UNWRITABLE: Final = re.compile("[\0\ud800-\udfff]")
_MOST_ACTIONS: Final = 1_000  # of one delivery: they are one transaction
_MOST_FIELDS: Final = 1_000  # of a form
MOST_BYTES: Final = 32 * 1024 * 1024  # that a trigger may ask for
DEFAULT_BYTES: Final = 1024 * 1024
DEFAULT_RETRY: Final = Retry(5, first="1s", factor=4, max="5m")
_DECISIONS: Final = ("approve", "deny", "answer")
OUTGOING: Final = "to "  # before the name of what is told of events: no trigger has a space in its name


@dataclass(frozen=True, slots=True)
class Delivery:
    """Something that came for a trigger: a webhook's request, or a message of a broker.

    In a test of a mapping it is made by hand: `github(holdfast.Delivery(b'{"action": "opened"}'))`.

    Attributes:
        body: The bytes as they came.
        headers: Its headers, with names in lower case. Headers that hold credentials are left out.
        id: Makes it one delivery however often it comes.
        trigger: The name of the trigger.
        received_at: When it came.

    Example:
        ```python
        delivery = holdfast.Delivery(b'{"action": "opened"}', {"x-github-event": "issues"})
        assert delivery.json() == {"action": "opened"}
        ```
    """

    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict, hash=False)
    id: str = ""
    trigger: str = ""
    received_at: datetime | None = None

    def json(self) -> Any:
        """Read the body as JSON.

        Raises:
            BadArguments: It is none; the delivery is not tried again.

        Example:
            ```python
            assert holdfast.Delivery(b"[1, 2]").json() == [1, 2]
            ```
        """
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError) as error:
            told = "it is nested too deeply" if isinstance(error, RecursionError) else cut(str(error), 200)
            kind = self.headers.get("content-type")
            of = f"{len(self.body):,} bytes" + (f", content-type {short(kind)}" if kind else "")
            raise BadArguments(
                f"the body ({of}) is not JSON: {told}. Have JSON sent, or read it with delivery.text() or delivery.form()"
            ) from None

    def text(self) -> str:
        """Read the body as UTF-8; what is none becomes a replacement character.

        Example:
            ```python
            assert holdfast.Delivery(b"otters").text() == "otters"
            ```
        """
        return self.body.decode(errors="replace")

    def form(self) -> dict[str, str]:
        """Read the body as the fields of a form; of a field that comes twice, the first.

        Raises:
            BadArguments: It has too many fields.

        Example:
            ```python
            assert holdfast.Delivery(b"user=ana&text=yes").form() == {"user": "ana", "text": "yes"}
            ```
        """
        try:
            found = parse_qsl(self.text(), keep_blank_values=True, max_num_fields=_MOST_FIELDS)
        except ValueError:
            raise BadArguments(
                f"the body has more than {_MOST_FIELDS:,} fields, which are the most of a form; read it with delivery.text()"
            ) from None
        return dict(reversed(found))


@dataclass(frozen=True, slots=True, init=False)
class Start:
    """Start a run: what a mapping returns to have an agent begin. The options are those of `hf.start`.

    Attributes:
        agent: The agent, or its name.
        args: Arguments by position.
        named: Arguments by name.
        id: The run's id. Unless given it comes from the trigger and the delivery's id, and one delivery starts one run.
        labels: Texts by which lists find it.
        kwargs: Arguments of the agent whose names are options here.
        after: Begin this much later.
        budget: In place of the agent's own.

    Example:
        ```python
        start = holdfast.Start(research, "otters", labels={"from": "mail"})
        assert start.args == ("otters",)
        ```
    """

    agent: Any
    args: tuple[Any, ...]
    named: Mapping[str, Any] = field(hash=False)
    id: str | None
    labels: Mapping[str, str] | None = field(hash=False)
    kwargs: Mapping[str, Any] | None = field(hash=False)
    after: Duration | None
    budget: Budget | None

    def __init__(
        self, agent: Any, /, *args: Any, id: str | None = None, labels: Mapping[str, str] | None = None,
        kwargs: Mapping[str, Any] | None = None, after: Duration | None = None, budget: Budget | None = None, **named: Any,
    ) -> None:  # fmt: skip
        of = {"agent": agent, "args": args, "named": named, "id": id, "labels": labels, "kwargs": kwargs, "after": after,
              "budget": budget}  # fmt: skip
        for attribute, value in of.items():
            object.__setattr__(self, attribute, value)


@dataclass(frozen=True, slots=True)
class Send:
    """Send a message to a run: what a mapping returns to have an agent hear of a delivery.

    Attributes:
        run: The run's id.
        topic: The topic, as the agent receives it.
        value: The message.
        key: Messages with one key are one message. Unless given it comes from the trigger and the delivery's id.

    Example:
        ```python
        send = holdfast.Send("order-7", "paid", {"amount": 12})
        ```
    """

    run: str
    topic: str
    value: Any = field(default=None, hash=False)
    key: str | None = None


@dataclass(frozen=True, slots=True)
class Decide:
    """Decide a question in a person's name: what a mapping returns when somebody pressed a button.

    The mapping vouches for the person: take the name from what the verifier has checked.

    Attributes:
        question: The question's id, or that of a run with exactly one open.
        decision: "approve", "deny" or "answer".
        value: The answer; or what is approved instead of the value shown.
        by: The person.
        note: The reason; the agent sees it.
        digest: The digest of what the person was shown.

    Example:
        ```python
        decide = holdfast.Decide("q-1", "approve", by="ana")
        ```
    """

    question: str
    decision: Literal["approve", "deny", "answer"]
    value: Any = field(default=..., hash=False)
    by: str | Actor = field(default="", kw_only=True)
    note: str = field(default="", kw_only=True)
    digest: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.decision not in _DECISIONS:
            raise BadArguments(f"Decide(..., {short(self.decision)}): choose one of {', '.join(_DECISIONS)}")
        if not self.by:
            raise BadArguments(f"Decide({short(self.question)}, ...): say who decides, by='ana'")
        if self.decision == "answer" and not self.has_value:
            raise BadArguments(f"Decide({short(self.question)}, 'answer'): give the answer behind it")
        if self.decision == "deny" and self.has_value:
            raise BadArguments(f"Decide({short(self.question)}, 'deny'): a no has no value; give its reason as note=")

    @property
    def has_value(self) -> bool:
        """Was a value given? None is one.

        Example:
            ```python
            assert not holdfast.Decide("q-1", "approve", by="ana").has_value
            ```
        """
        return self.value is not ...


@dataclass(frozen=True, slots=True)
class Gather:
    """Let a delivery wait for others, and map what they come to: no mapping of users returns it.

    `most`: a list of so many; 0: the last one. `quiet_ms`: until none came for so long. `within_ms`: so long after the first.
    """

    trigger: str
    key: str
    bucket: str
    position: int
    value: str
    most: int
    quiet_ms: int | None
    within_ms: int | None


Action = Start | Send | Decide | Gather
Mapped = Action | list[Action] | None  # of a mapping


def actions(returned: object, trigger: str) -> list[Action]:
    """List what a mapping returned: one action, several, or none. `BadArguments` if it is anything else."""
    if returned is None:
        return []
    found: list[Action] = []
    for each in returned if isinstance(returned, list | tuple) else [returned]:
        if not isinstance(each, Start | Send | Decide | Gather):
            raise BadArguments(
                f"trigger {trigger!r} returned {short(each)}; return Start(...), Send(...), Decide(...), a list of these, or None"
            )
        found.append(each)
    if len(found) > _MOST_ACTIONS:
        raise BadArguments(
            f"trigger {trigger!r} returned {len(found):,} actions, and {_MOST_ACTIONS:,} are the most for one delivery. Start one "
            "agent that does the rest"
        )
    return found


# Names and keys


def checked_trigger(name: object) -> str:
    """The name itself, or `BadArguments` that says what it looks like: it is a part of paths, and ids of runs begin with it."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or is_awkward(name):
        raise BadArguments(
            f"{short(name)} is not the name of a trigger; use 1 to 100 letters, digits or any of '_ . -', such as 'github'"
        )
    return name


def delivery_key(id: str) -> str:
    """Make the key under which a delivery is kept: its id, or the digest of one that is long or cannot be written."""
    if 0 < len(id) <= _LONGEST_KEY and not _UNWRITABLE.search(id):
        return id
    return f"sha256:{hashlib.sha256(id.encode(errors='surrogatepass')).hexdigest()}"


def action_key(trigger: str, delivery: str, nth: int) -> str:
    """Name the nth action of a delivery, the first being 0: `github@72d3162e`, `github@72d3162e.2`. It may be the id of a run."""
    plain = _PLAIN_KEY.fullmatch(delivery)
    key = delivery if plain else f"sha256:{hashlib.sha256(delivery.encode()).hexdigest()[:32]}"
    return f"{plain_id(trigger)}@{key}" + (f".{nth + 1}" if nth else "")


def checked_bytes(max_bytes: object) -> int:
    """The most bytes of a body, or `BadArguments`."""
    if not isinstance(max_bytes, int) or not is_whole(max_bytes, 1) or max_bytes > MOST_BYTES:
        raise BadArguments(f"max_bytes={short(max_bytes)}: give a number of bytes from 1 to {MOST_BYTES:,}")
    return max_bytes


@dataclass(frozen=True, eq=False, slots=True)
class TriggerSpec:
    """A trigger as declared: `kind` is "webhook", say, and `config` what an edge that has no code of it must know, as JSON.

    `url` is where it reads, which may hold credentials: nothing stores or shows it.
    """

    name: str
    kind: str
    fn: Callable[..., Any]
    config: Mapping[str, Any]
    retry: Retry
    url: str = field(default="", repr=False)

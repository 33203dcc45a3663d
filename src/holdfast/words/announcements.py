"""Announcements: what agents and programs publish for others, and how others say what they wait for. No clock, no I/O.

An announcement is a name and a value. Nobody is addressed: agents that are declared with `On` are started by it, and runs that
wait by `next_event` hear of it. It has an id, which comes from the call that published it, or from a key that the publisher
gives; so it reaches each of them once, however often the call is made again.

What a run waits for is compared by digest: the fields that it names, and the values that these must have. So the store finds the
runs that wait for an announcement by an index, and the others cost nothing.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Generic, TypeVar

from holdfast.errors import BadArguments, NotStorable
from holdfast.values.codec import BLOB_BYTES
from holdfast.values.text import is_whole, short, size
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.people import checked_text

T_co = TypeVar("T_co", covariant=True)
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:-]{0,99}")
LONGEST_VALUE: Final = BLOB_BYTES  # characters; each that waits for it gets a copy
_MOST_GATHERED: Final = 1_000
_MOST_FIELDS: Final = 20
_LONGEST_FIELD: Final = 200
_LONGEST_MATCH: Final = 2_000  # characters of one value
_EXACT: Final = 2**53  # beyond it a float is not the whole number that it seems to be
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str)  # finds where a value ends, whatever its number
KEYED: Final = "key_"  # begins the ids that come from keys
KIND: Final = "event"  # of the triggers that announcements come to
GATHERED: Final = "gathered"  # the header that says of how many announcements a delivery was made
OWN_TOPICS: Final = "holdfast:"  # begins the topics that only Holdfast sends to
_TOPIC: Final = f"{OWN_TOPICS}event:"


@dataclass(frozen=True, slots=True)
class Announcement(Generic[T_co]):
    """Something that was published: a name and a value, when, and by which run.

    Attributes:
        name: The name under which it was published.
        value: The value.
        id: Makes it one announcement however often its publisher was tried again.
        at: When it was published.
        run: The run that published it; None if a program did.

    Example:
        ```python
        paid = holdfast.Announcement("order.paid", {"order": 7})
        assert paid.value["order"] == 7
        ```
    """

    name: str
    value: T_co = field(default=None, hash=False)  # type: ignore[assignment]
    id: str = ""
    at: datetime | None = None
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """Announcements that start one run together: a list of up to so many, or of all that came within a time.

    Attributes:
        most: So many at once, up to 1,000.
        within: The run is started so long after the first came, with all announcements until then.

    Raises:
        BadArguments: A number or a time cannot be used.

    Example:
        ```python
        batch = holdfast.Batch(100, "5s")
        ```
    """

    most: int
    within: Duration

    def __post_init__(self) -> None:
        if not is_whole(self.most, 1, _MOST_GATHERED):
            raise BadArguments(f"Batch({short(self.most)}, ...): give how many at most, from 1 to {_MOST_GATHERED:,}")
        milliseconds(self.within)


@dataclass(frozen=True, slots=True)
class On:
    """Which announcements start runs of an agent: `@holdfast.agent(on=On("order.paid"))`. The agent gets the value.

    Attributes:
        name: The name under which they are published.
        if_: Gets the `Announcement`, its value as plain data; without a true answer it starts nothing. A plain function, which
            a worker calls.
        debounce: Start when none came for so long, with the last one.
        batch: Start with a list of them.
        by: The field of the value by which they are debounced or batched apart; all together unless given.

    Raises:
        BadArguments: An option cannot be used.

    Example:
        ```python
        @holdfast.agent(on=holdfast.On("order.paid", if_=lambda event: event.value["amount"] > 100))
        async def thank(order: dict[str, int]) -> str:
            return await publish(f"thanks for {order['amount']}")
        ```
    """

    name: str
    if_: Callable[[Announcement[Any]], object] | None = field(default=None, kw_only=True)
    debounce: Duration | None = field(default=None, kw_only=True)
    batch: Batch | None = field(default=None, kw_only=True)
    by: str | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        checked_event(self.name)
        if self.if_ is not None and (not callable(self.if_) or inspect.iscoroutinefunction(self.if_)):
            raise BadArguments(
                f"On({self.name!r}, if_={short(self.if_)}): give a plain function that gets the announcement, such as "
                "`lambda event: event.value['amount'] > 100`"
            )
        if self.batch is not None and not isinstance(self.batch, Batch):
            raise BadArguments(f"On({self.name!r}, batch={short(self.batch)}): give a Batch, such as Batch(100, '5s')")
        if self.debounce is not None:
            milliseconds(self.debounce)
        if self.by is not None:
            _checked_field(self.by, "by=")
            if not gathers(self):
                raise BadArguments(f"On({self.name!r}, by={self.by!r}): by= goes with debounce= or batch=")


def gathers(on: On) -> bool:
    """Is a run started with what several announcements came to?"""
    return on.debounce is not None or on.batch is not None


def most_of(on: On) -> int:
    """The most announcements that a run gets; 0: one, the last."""
    return 0 if on.batch is None else on.batch.most


def quiet_ms(on: On) -> int | None:
    """The time for which none may come before the run is started."""
    return None if on.debounce is None else milliseconds(on.debounce)


def within_ms(on: On) -> int | None:
    """The time after the first at which the run is started at the latest."""
    return None if on.batch is None else milliseconds(on.batch.within)


def stored(on: On) -> dict[str, Any]:
    """Write what is declared as plain data: the same in every process that has the same code."""
    return {
        "event": on.name, "if": on.if_ is not None, "debounce_ms": quiet_ms(on), "by": on.by,
        "batch": None if on.batch is None else [most_of(on), within_ms(on)],
    }  # fmt: skip


def gathering_ms(stored: Mapping[str, Any]) -> int | None:
    """Tell for how long announcements wait for others at the most, by what `stored` wrote; None: they do not."""
    _, within = stored.get("batch") or (0, None)
    return min((wait for wait in (stored.get("debounce_ms"), within) if wait is not None), default=None)


def checked_on(on: object) -> On | None:
    """The announcements that start an agent, or `BadArguments`."""
    if on is None or isinstance(on, On):
        return on
    raise BadArguments(f"on={short(on)}: say which announcements start it, as in on=On('order.paid')")


def checked_event(name: object) -> str:
    """The name of an announcement, or `BadArguments` that says what one looks like."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArguments(
            f"{short(name)} cannot name an announcement; use 1 to 100 letters, digits or any of '_ . : -', such as 'order.paid'"
        )
    return name


def checked_value(text: str, name: str) -> str:
    """The text of a value, or `NotStorable` if it is too large."""
    if len(text) > LONGEST_VALUE:
        raise NotStorable(
            f"the value of the announcement {name!r}: {size(len(text))} is more than the limit of {size(LONGEST_VALUE)}, because "
            "each that waits for it gets a copy; put it into a file or an object store and publish its address"
        )
    return text


def checked_key(key: str | None) -> str | None:
    """The key of an announcement, or `BadArguments`."""
    if key is not None and not key:
        raise BadArguments("key='': give a text that only this announcement has, or leave it out")
    return None if key is None else checked_text(key, "key", 200)


# Ids


def keyed_id(name: str, key: str) -> str:
    """The id of an announcement whose publisher gives it a key: the same for each that gives it."""
    return KEYED + _digest(name, key)


def nth_id(call: str, nth: int) -> str:
    """The id of the nth announcement of a call that has this idempotency key."""
    return f"ev_{_digest(call, str(nth))}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()[:32]


# What a run waits for


def checked_match(match: object) -> dict[str, Any]:
    """The fields that an announcement must have, and their values; `BadArguments` if these cannot be compared."""
    if match is None:
        return {}
    if not isinstance(match, Mapping) or len(match) > _MOST_FIELDS:
        raise BadArguments(
            f"match={short(match)}: give up to {_MOST_FIELDS} fields and the values they must have, as in match={{'order': 7}}"
        )
    for name, needed in match.items():
        _checked_field(name, "match=")
        if not _is_plain(needed) or _is_long(needed) or needed != needed:  # noqa: PLR0124 - nan is no value
            raise BadArguments(
                f"match={{{name!r}: {short(needed)}}}: fields are compared with a short text, a number, True, False or None"
            )
    return dict(match)


def _checked_field(name: object, where: str) -> str:
    if not isinstance(name, str) or not 0 < len(name) <= _LONGEST_FIELD:
        raise BadArguments(f"{where}{short(name)}: name a field of the value, with 1 to {_LONGEST_FIELD} characters")
    return checked_text(name, "field", _LONGEST_FIELD)


def fields_of(match: Mapping[str, Any]) -> str:
    """Return the fields that are compared, in an order of their own; empty: none."""
    return json.dumps(sorted(match)) if match else ""


def wanted(fields: str, value: Any) -> str | None:
    """The digest of what these fields of a value have; None if it lacks one or has what cannot be compared. Empty for none."""
    if not fields:
        return ""
    names = json.loads(fields)
    if not isinstance(value, Mapping) or not all(name in value and _is_plain(value[name]) for name in names):
        return None
    try:
        return _digest(fields, json.dumps([_comparable(value[name]) for name in names]))
    except ValueError:  # a number of so many digits that Python does not write it; no match has one
        return None


def bucket(field: str | None, value: Any) -> str:
    """Return the bucket in which an announcement is gathered, by what this field of its value has."""
    found = value.get(field) if field is not None and isinstance(value, Mapping) else None
    if field is None:
        return ""
    try:
        return _digest(json.dumps(_comparable(found), sort_keys=True, default=str))
    except (TypeError, ValueError, RecursionError):  # too many digits, or keys without an order
        return _digest(hex(found) if type(found) is int else "?")


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)


def _is_long(value: Any) -> bool:
    """Is it longer than what is compared? Python does not write a number of thousands of digits."""
    return value.bit_length() > 4 * _LONGEST_MATCH if type(value) is int else len(str(value)) > _LONGEST_MATCH


def _comparable(value: Any) -> Any:
    """Make a whole number one however it was written: 7.0 is 7."""
    return int(value) if type(value) is float and value.is_integer() and abs(value) < _EXACT else value


def topic_of(name: str, match: Mapping[str, Any]) -> str:
    """The topic on which a run hears of announcements."""
    return f"{_TOPIC}{name}" if not match else f"{_TOPIC}{name} {wanted(fields_of(match), match)}"


def event_of(topic: str) -> str | None:
    """The name of the announcements that come on a topic; None for other topics."""
    return topic.removeprefix(_TOPIC).partition(" ")[0] if topic.startswith(_TOPIC) else None


def told_match(match: Mapping[str, Any]) -> str:
    """Write what is compared, for people."""
    return ", ".join(f"{name}={short(value)}" for name, value in sorted(match.items()))


def joined(values: Iterable[str]) -> str:
    """Write a list of texts of values as the text of a list."""
    return f"[{','.join(values)}]"


def parted(text: str) -> list[str]:
    """Read the texts of the values from the text of a list that `joined` has written: each as it was."""
    values, at = [], 1
    while at < len(text) - 1:
        _, end = _DECODER.raw_decode(text, at)
        values.append(text[at:end])
        at = end + 1
    return values

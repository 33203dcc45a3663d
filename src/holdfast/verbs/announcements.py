"""`publish` and `next_event`: announcements between agents. And what makes an agent that is declared with `On` a trigger.

Look here when an announcement starts no run: `subscribed` has the mapping that a worker calls for each.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, Final, TypeVar, overload

from holdfast.declare import Agent
from holdfast.errors import NotInRun, NotStorable
from holdfast.runtime import AgentSpec, Called, NextEvent, Publish, StepContext, current, here
from holdfast.values import tagged
from holdfast.values.codec import UNTYPED, shape_of
from holdfast.words.announcements import (
    GATHERED,
    KIND,
    Announcement,
    On,
    bucket,
    checked_event,
    checked_key,
    checked_match,
    checked_value,
    gathers,
    joined,
    most_of,
    parted,
    quiet_ms,
    stored,
    within_ms,
)
from holdfast.words.durations import Duration, milliseconds, moment
from holdfast.words.triggers import DEFAULT_RETRY, Delivery, Gather, Mapped, Start, TriggerSpec

T = TypeVar("T")
_PLAIN: Final = (dict, list, tuple, set, frozenset, str, int, float, bool, bytes, type(None))


class _Published:
    """The id of an announcement that goes out with its step; it need not be awaited, because plain functions cannot."""

    __slots__ = ("_id",)

    def __init__(self, id: str) -> None:
        self._id = id

    def __await__(self) -> Generator[Any, Any, str]:
        return self._id
        yield


def publish(name: str, value: Any = None, *, key: str | None = None) -> Called[str]:
    """Publish an announcement to its waiters: agents declared with `On`, and runs in `next_event`. Returns its id.

    In an agent it goes out with the record that it did, once, whatever is killed. In the body of a step it goes out with the
    step's outcome: an attempt that fails publishes nothing. A plain function need not await it.

    Args:
        name: The name, such as "order.paid".
        value: The value, up to 64 KiB as JSON.
        key: Announcements of a name with one key are one, for 30 days, whichever run or program publishes them.

    Raises:
        BadArguments: The name or the key cannot be used.
        NotStorable: The value cannot be stored, or is too large.
        NotInRun: It was called outside a run; `hf.publish` publishes from there.

    Example:
        ```python
        @holdfast.agent
        async def order(number: int) -> str:
            return await holdfast.publish("order.paid", {"order": number})
        ```
    """
    request = Publish(checked_event(name), value_text(value, name), checked_key(key))
    place = here()
    if isinstance(place, StepContext):
        if place.publish is None:
            raise NotInRun(
                f"publish({name!r}) was called in {place.key!r}, which has no outcome that it could go out with: a step outside a "
                "run, one that has ended, or a resource. Call it in the body of a step of a run, or in an agent"
            )
        step: Any = _Published(place.publish(request))
        return step  # type: ignore[no-any-return]
    if place is None:
        raise NotInRun(
            f"publish({name!r}) works in an agent and in the body of a step. Elsewhere `await hf.publish({name!r}, ...)` does it; "
            "a mapping or a condition of a trigger starts an agent that publishes"
        )
    return current("publish").call(request)


@overload
def next_event(
    name: str, type: type[T], /, *, match: Mapping[str, Any] | None = None, timeout: Duration | None = None
) -> Called[Announcement[T]]: ...
@overload
def next_event(
    name: str, type: Any = ..., /, *, match: Mapping[str, Any] | None = None, timeout: Duration | None = None
) -> Called[Announcement[Any]]: ...
def next_event(
    name: str, type: Any = Any, /, *, match: Mapping[str, Any] | None = None, timeout: Duration | None = None
) -> Any:
    """Wait for the next announcement of a name. From the first call on the run hears of them until it ends.

    What comes between two calls is kept, and their order too. What was published before the first call does not come.

    Args:
        name: The name under which it is published.
        type: The type of its value; without one it is plain data. One whose value is not of the type is passed over: a note in the
            history and the log tell of it.
        match: Fields of the value, and what they must have; others do not wake the run. Each match is waited for apart.
        timeout: How long to wait; without one, for ever.

    Raises:
        TimeoutError: None came in time.
        BadArguments: The name or the match cannot be used.

    Example:
        ```python
        paid = await holdfast.next_event("order.paid", match={"order": 7})
        assert paid.value["order"] == 7
        ```
    """
    timeout_ms = None if timeout is None else milliseconds(timeout)
    shape = UNTYPED if type is Any else shape_of(type)
    return current("next_event").call(NextEvent(checked_event(name), checked_match(match), shape, timeout_ms))


def value_text(value: Any, name: str) -> str:
    """The value of an announcement as text, by its own type; `NotStorable` if it cannot be."""
    shape = UNTYPED if type(value) in _PLAIN else shape_of(type(value))
    return checked_value(shape.store(value, f"the value of the announcement {name!r}")[0], name)


# Agents that announcements start


def subscribed(spec: AgentSpec) -> TriggerSpec:
    """Make a trigger of an agent that is declared with `On`; it has the agent's name."""
    on, agent = spec.on, Agent[..., Any](spec)
    assert on is not None

    def mapped(delivery: Delivery) -> Mapped:
        text, told = delivery.text(), delivery.headers
        if GATHERED in told:
            return [Start(agent, _argument(spec, each)) for each in _shares(on, text)]
        plain = tagged.read(text)
        if on.if_ is not None:
            name, at = told.get("event", on.name), moment(int(told["at"]))  # it may have been declared for another one
            if not on.if_(Announcement(name, plain, delivery.id, at, told.get("run"))):
                return None
        if gathers(on):
            _argument(
                spec, joined([text]) if most_of(on) else text
            )  # one that does not fit must not fail those beside it
            where, position = bucket(on.by, plain), int(told["position"])
            return Gather(spec.name, delivery.id, where, position, text, most_of(on), quiet_ms(on), within_ms(on))
        return Start(agent, _argument(spec, text))

    return TriggerSpec(spec.name, KIND, mapped, stored(on), DEFAULT_RETRY)


def _shares(on: On, text: str) -> list[str]:
    """Share a list that was gathered among runs, by what is declared now, whatever was when the first of them came."""
    values, most = parted(text), most_of(on)
    if most:
        return [joined(values[at : at + most]) for at in range(0, len(values), most)]
    return values[-1:] if gathers(on) else values


def _argument(spec: AgentSpec, text: str) -> Any:
    """The value as the agent takes it."""
    parameter = spec.signature.parameters[0]
    try:
        return parameter.shape.load(text, parameter.name)
    except NotStorable as error:
        raise NotStorable(f"agent {spec.name!r} takes no such value: {error}") from None

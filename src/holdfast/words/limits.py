"""Flow control as it is declared: how many at once, how often, what goes first. Data only: no clock and no I/O.

What is declared of an agent becomes a `Lane` of each of its runs: the keys under which the store counts them. A key is the
name of the agent or step and, with `per`, the stored value of one of its parameters; so it is the same in every process.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.errors import BadArguments
from holdfast.values.codec import digest
from holdfast.values.signature import Signature
from holdfast.values.text import short
from holdfast.words.durations import Duration, milliseconds

NORMAL: Final = 5  # the priority of what declares none
HIGHEST: Final = 9
_MOST: Final = 1_000_000
_MOST_TOKENS: Final = 10_000_000_000
_WINDOWS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_RATE: Final = re.compile(r"(\d{1,20})/([smhd])", re.ASCII)
_NAME: Final = re.compile(r"[\w.:@-]{1,200}", re.ASCII)
SHARED: Final = "rate:"  # begins the key of a rate that has a name
_LATE_US: Final = 500_000
_LONG: Final = 120  # characters of a key's value; of a longer one only the digest is kept


def _checked_count(n: object, what: str, most: int = _MOST) -> int:
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= most:
        raise BadArguments(f"{what} must be a whole number from 1 to {most:,}, not {short(n)}")
    return n


@dataclass(frozen=True, slots=True)
class Limit:
    """At most `n` at once, in all workers together.

    Attributes:
        n: How many run at once.
        per: The name of a parameter: the limit holds for each of its values.

    Raises:
        BadArguments: `n` is no whole number from 1 on.

    Example:
        ```python
        @holdfast.agent(limit=holdfast.Limit(2, per="customer"))
        async def sync_mailbox(customer: str) -> None: ...
        ```
    """

    n: int
    per: str | None = None

    def __post_init__(self) -> None:
        _checked_count(self.n, "a limit")


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """At most `n` in any window of time, in all workers together, evenly apart.

    `Rate("60/m")` is `Rate(60, every="1m")`. When a provider answers 429 or 503 with a Retry-After, no sharer of the
    rate begins before that time; `Rate(name="openai")` does only this.

    Args:
        n: How many, or a text such as "60/m".
        every: The window.
        per: The name of a parameter: the rate holds for each of its values.
        name: All agents and steps that name it share the rate.
        tokens: How many tokens in a time, as bodies report them with `spend`.

    Raises:
        BadArguments: It is no rate.

    Example:
        ```python
        @holdfast.step(rate=holdfast.Rate("500/m", tokens="200000/m", name="openai"))
        async def complete(prompt: str) -> str:
            return prompt.upper()
        ```
    """

    n: int  # 0: as many as there are
    every_ms: int
    per: str | None
    name: str | None
    tokens: int
    tokens_ms: int

    def __init__(
        self,
        n: int | str | None = None,
        *,
        every: Duration | None = None,
        per: str | None = None,
        name: str | None = None,
        tokens: str | None = None,
    ) -> None:
        if name is not None and (not isinstance(name, str) or not _NAME.fullmatch(name)):
            raise BadArguments(f"name={name!r}: use 1 to 200 letters, digits or any of '_ . : @ -', such as 'openai'")
        if n is None and every is None and (name or tokens):
            many, every_ms = 0, 0
        else:
            many, every_ms = _in_a_time(n, every)
        count, tokens_ms = (0, 0) if tokens is None else _in_a_time(tokens, None, _MOST_TOKENS)
        of = {"n": many, "every_ms": every_ms, "per": per, "name": name, "tokens": count, "tokens_ms": tokens_ms}
        for attribute, value in of.items():
            object.__setattr__(self, attribute, value)


def _in_a_time(n: object, every: Duration | None, most: int = _MOST) -> tuple[int, int]:
    """Read a rate: how many in how many milliseconds."""
    if isinstance(n, str):
        found = _RATE.fullmatch(n)
        if found is None or every is not None:
            raise BadArguments(
                f"{short(n)} is not a rate; write it as '5/s', '60/m', '1000/h' or '10/d', or as Rate(60, every='1m')"
            )
        n, every = int(found[1]), _WINDOWS_MS[found[2]] / 1000
    if n is None:
        raise BadArguments("a rate needs a number, as in Rate('60/m'), or a name to share, as in Rate(name='openai')")
    if every is None:
        raise BadArguments(f"Rate({short(n)}) lacks the time in which; write Rate('60/m') or Rate(60, every='1m')")
    if milliseconds(every) < 1:
        raise BadArguments(f"every={every!r}: a rate is counted over some time, for example every='1m'")
    return _checked_count(n, "a rate", most), milliseconds(every)


def span_us(every_ms: int) -> int:
    """The time that `n` turns take: the window, and a slack of a fiftieth, so that late ones too are at most `n` in any window."""
    return every_ms * 1020


def slack_us(every_ms: int) -> int:
    """The delay after which a turn counts as late, because a claim or a commit takes its time. Late turns are written down."""
    return every_ms * 20 or _LATE_US


def stretch_us(place: int, every_ms: int) -> int:
    """The beginning of the stretch of a rate that a place is in. What is late in one stretch is written down together."""
    return place - place % slack_us(every_ms)


def latest_us(every_ms: int) -> int:
    """The delay after which a turn may not be used at all: it is lost, and another is taken.

    It is less than a window, so turns that must wait for a late one (a window after it) find what was written down of it.
    """
    return min(max(every_ms * 100, _LATE_US), every_ms * 500) or _LATE_US


def interval_us(n: int, every_ms: int) -> int:
    """The time between two turns."""
    return math.ceil(span_us(every_ms) / n) if n else 0


@dataclass(frozen=True, slots=True)
class Lane:
    """The way of one run, or of one call of a step, through limits and rates."""

    priority: int = NORMAL
    limit_key: str | None = None
    limit_n: int | None = None
    rate_key: str | None = None
    rate_n: int | None = None
    rate_ms: int | None = None
    singleton_key: str | None = None
    tokens_us: int = 0  # what a thousand tokens take; 0: they are not counted
    tokens_ms: int = 0


@dataclass(frozen=True, slots=True)
class Flow:
    """Limits that one agent or step declares. `name` begins its keys; `singleton` names a parameter, or is ''."""

    name: str
    queue: str | None = None
    priority: int = NORMAL
    limit: Limit | None = None
    rate: Rate | None = None
    singleton: str | None = None

    def lane(self, arguments: str, defaults: Callable[[], Mapping[str, str]], *, child: bool = False) -> Lane:
        """The keys of a call with these stored arguments. A parameter that was left out has its default's text.

        Of a singleton there is one unfinished run at a time. A child cannot be another's, so it waits for its turn.
        """
        if self.limit is None and self.rate is None and self.singleton is None:
            return Lane(self.priority)
        values = _values(arguments, defaults) if any(self.parameters) else {}
        limit, rate = self.limit, self.rate
        limit_key, limit_n = (None, None) if limit is None else (self._key("", limit.per, values), limit.n)
        singleton_key = None if self.singleton is None else self._key(" alone", self.singleton or None, values)
        if singleton_key is not None and (child or limit is None):
            limit_key, limit_n = singleton_key, 1
        return Lane(
            self.priority,
            limit_key,
            limit_n,
            rate_key=None if rate is None else self._key("", rate.per, values, rate.name and SHARED + rate.name),
            rate_n=None if rate is None else rate.n,
            rate_ms=None if rate is None else rate.every_ms,
            singleton_key=None if child else singleton_key,
            tokens_us=0 if rate is None or not rate.tokens else math.ceil(rate.tokens_ms * 1e6 / rate.tokens),
            tokens_ms=0 if rate is None else rate.tokens_ms,
        )

    @property
    def parameters(self) -> list[str]:
        """The parameters whose values are part of a key."""
        limit, rate = self.limit and self.limit.per, self.rate and self.rate.per
        return [name for name in (limit, rate, self.singleton) if name]

    def _key(self, kind: str, per: str | None, values: Mapping[str, str], name: str | None = None) -> str:
        name = name or self.name
        if per is None:
            return name + kind
        value = values.get(per, "null")
        return f"{name}{kind} {per}={value if len(value) <= _LONG else digest(value)}"

    def published(self, defaults: Mapping[str, str]) -> dict[str, Any]:
        """Return plain data, for clients that start the agent without its code."""
        limit, rate = self.limit, self.rate
        return {
            "name": self.name, "queue": self.queue, "priority": self.priority,
            "limit": limit and [limit.n, limit.per], "rate": rate and [rate.n or None, rate.every_ms, rate.per, rate.name],
            "singleton": self.singleton, "defaults": dict(defaults),
        }  # fmt: skip

    @classmethod
    def from_published(cls, data: dict[str, Any]) -> tuple[Flow, dict[str, str]]:
        """Read what was published, and the texts of the defaults."""
        limit, rate, defaults = data["limit"], data["rate"], data["defaults"]
        if rate:
            n, every_ms, per, name = rate
            rate = Rate(n, every=every_ms / 1000 if n else None, per=per, name=name)
        flow = cls(
            data["name"], data["queue"], data["priority"], limit and Limit(*limit), rate or None, data["singleton"]
        )
        return flow, defaults


def _values(arguments: str, defaults: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    given = json.loads(arguments)
    texts = {name: json.dumps(value, sort_keys=True, separators=(",", ":")) for name, value in given.items()}
    return {**defaults(), **texts}


def declared(
    kind: str,
    name: str,
    fn: Callable[..., Any],
    *,
    queue: str | None = None,
    priority: int = NORMAL,
    limit: int | Limit | None = None,
    rate: str | Rate | None = None,
    singleton: str | bool = False,
) -> Flow:
    """Check a declaration; `BadArguments` says what is wrong with it."""
    what = f"{kind} {name!r}"
    if queue is not None and (not isinstance(queue, str) or not _NAME.fullmatch(queue)):
        raise BadArguments(f"{what}: queue={queue!r}: use 1 to 200 letters, digits or any of '_ . : @ -'")
    if isinstance(priority, bool) or not isinstance(priority, int) or not 0 <= priority <= HIGHEST:
        raise BadArguments(
            f"{what}: priority={short(priority)}: use a whole number from 0 to {HIGHEST}, higher goes first"
        )
    if limit is not None and not isinstance(limit, Limit):
        limit = Limit(_checked_count(limit, f"{what}: limit="))
    if rate is not None and not isinstance(rate, Rate):
        if not isinstance(rate, str):
            raise BadArguments(f"{what}: rate={rate!r}: write '60/m', or Rate(60, every='1m')")
        rate = Rate(rate)
    if rate is not None and rate.tokens and kind != "step":
        raise BadArguments(f"{what}: tokens= belongs to the rate of a step, whose body says what it has used")
    if not isinstance(singleton, bool | str) or singleton == "":
        raise BadArguments(f"{what}: singleton={singleton!r}: name a parameter, or use True for one run of the agent")
    alone = None if singleton is False else "" if singleton is True else singleton
    flow = Flow(f"{kind}:{name}", queue, priority, limit, rate, alone)
    _check_parameters(what, fn, flow)
    return flow


def _check_parameters(what: str, fn: Callable[..., Any], flow: Flow) -> None:
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    known = [name for name, found in inspect.signature(fn).parameters.items() if found.kind not in stars]
    for name in flow.parameters:
        if name not in known:
            have = ", ".join(known) or "none"
            raise BadArguments(f"{what}: there is no parameter {name!r} to count by; its parameters are: {have}")


def default_texts(signature: Signature, flow: Flow) -> dict[str, str]:
    """The stored texts of the defaults of the parameters that are part of a key."""
    wanted, found = set(flow.parameters), {}
    for parameter in signature.parameters:
        if parameter.name not in wanted:
            continue
        if parameter.local:
            raise BadArguments(
                f"{signature.what}: {parameter.name} is {parameter.hint}, which is not stored and cannot be counted by"
            )
        if parameter.default_text is not None:
            canonical = json.dumps(json.loads(parameter.default_text), sort_keys=True, separators=(",", ":"))
            found[parameter.name] = canonical
    return found


def lane_of(flow: Flow, signature: Signature, arguments: str, *, child: bool = False) -> Lane:
    """The lane of a call whose code is here."""
    return flow.lane(arguments, functools.partial(default_texts, signature, flow), child=child)

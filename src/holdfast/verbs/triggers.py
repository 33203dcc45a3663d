"""`holdfast.on`: plain functions become triggers, which say what is to be done about what comes from outside."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from os import PathLike
from typing import Any, Final, Generic, ParamSpec, TypeVar

from holdfast.errors import BadArguments
from holdfast.values.text import short
from holdfast.words.durations import Duration, milliseconds
from holdfast.words.files import pattern_of
from holdfast.words.queues import DEFAULT_IN_FLIGHT, address_of, checked_id, checked_in_flight, checked_redeliver
from holdfast.words.retry import Retry, as_retry
from holdfast.words.triggers import DEFAULT_BYTES, DEFAULT_RETRY, TriggerSpec, checked_bytes, checked_trigger
from holdfast.words.webhooks import Verify, stored

P = ParamSpec("P")
R = TypeVar("R")


class Trigger(Generic[P, R]):
    """A mapping that was declared with `holdfast.on`; `.fn` is the function as it was written. To call it is a plain call.

    It is served like an agent: in a list of `agents=`, or with the module it is in.

    Attributes:
        name: The name under which things come for it.
        fn: The function.

    Example:
        ```python
        @holdfast.on.webhook("mail", verify=holdfast.Verify.bearer("env:MAIL_TOKEN"))
        def mail(delivery: holdfast.Delivery) -> holdfast.Start:
            return holdfast.Start(research, delivery.json()["topic"])


        assert mail(holdfast.Delivery(b'{"topic": "otters"}')) == holdfast.Start(research, "otters")
        ```
    """

    def __init__(self, spec: TriggerSpec, fn: Callable[P, R]) -> None:
        self.spec, self.name, self.fn = spec, spec.name, fn
        functools.update_wrapper(self, fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.fn(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<trigger {self.name}>"


def declared(
    name: str | None, kind: str, fn: Callable[P, R], config: dict[str, Any], retry: int | Retry | None, url: str = ""
) -> Trigger[P, R]:
    """Make a trigger of a function, whatever kind it is of; `BadArguments` if the function cannot be one.

    Without a name it has that of the function.
    """
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn) or not inspect.isroutine(fn):
        raise BadArguments(
            f"@holdfast.on.{kind} belongs on a function written with def or async def that returns actions, not on {short(fn)}"
        )
    try:
        inspect.signature(fn).bind(object())
    except TypeError:
        raise BadArguments(
            f"@holdfast.on.{kind}: {fn.__qualname__!r} is called with the delivery alone, as in `def {fn.__name__}(delivery): ...`"
        ) from None
    policy = DEFAULT_RETRY if retry is None else as_retry(retry)
    return Trigger(TriggerSpec(checked_trigger(name or fn.__name__), kind, fn, config, policy, url), fn)


class Triggers:
    """The ways in which things come from outside; `holdfast.on` is the one there is.

    Example:
        ```python
        @holdfast.on.webhook("github", verify=holdfast.Verify.github("env:GITHUB_SECRET"))
        def github(delivery: holdfast.Delivery) -> holdfast.Start | None:
            told = delivery.json()
            return holdfast.Start(research, told["issue"]["title"]) if told["action"] == "opened" else None
        ```
    """

    def webhook(
        self, name: str, *, verify: Verify, retry: int | Retry | None = None, max_bytes: int = DEFAULT_BYTES
    ) -> Callable[[Callable[P, R]], Trigger[P, R]]:
        """Declare a function that maps what is posted to `/hooks/NAME` of `holdfast serve`.

        The function gets a `Delivery`, and returns `Start`, `Send`, `Decide`, a list of them, or None. It may be
        `async`. The server checks the sender and keeps the delivery; a worker that has the function calls it.

        Args:
            name: The last part of the path.
            verify: The scheme by which the sender is known.
            retry: How often the function is tried when it raises; then the delivery is a dead letter. Five times unless given.
            max_bytes: The largest body that is taken.

        Raises:
            BadArguments: The function or an option cannot be used.

        Example:
            ```python
            @holdfast.on.webhook("paid", verify=holdfast.Verify.stripe("env:STRIPE_SECRET"))
            def paid(delivery: holdfast.Delivery) -> holdfast.Send:
                told = delivery.json()["data"]["object"]
                return holdfast.Send(told["metadata"]["run"], "paid", told["amount"])
            ```
        """
        if not isinstance(verify, Verify):
            raise BadArguments(
                f"verify={short(verify)}: say how the sender is known, as in verify=Verify.github('env:GITHUB_SECRET')"
            )
        config = {"verify": stored(verify), "max_bytes": checked_bytes(max_bytes)}
        return lambda fn: declared(name, "webhook", fn, config, retry)

    def queue(
        self, url: str, *, id: str | None = None, name: str | None = None, retry: int | Retry | None = None,
        in_flight: int = DEFAULT_IN_FLIGHT, redeliver: Duration = "30s",
    ) -> Callable[[Callable[P, R]], Trigger[P, R]]:  # fmt: skip
        """Declare a function that maps the messages of a queue, which workers read from a broker.

        A message is acknowledged when the actions that the function returns are committed. The broker gives it again if that did
        not happen, and then only what was not done is done: actions are known by the trigger's name and the message's id.

        Args:
            url: The broker and the queue, such as "nats://host:4222/orders". A password is in it as `env:NAME`, the variable of the
                worker that has it; given itself, it is neither stored nor shown.
            id: Where the message has its id: "order_id" in its JSON body, or "header:message-id". Unless given it is the
                broker's own; RabbitMQ and Kafka have none.
            name: The trigger's name; that of the function unless given. Ids of runs begin with it.
            retry: How often the function is tried when it raises; then the message is a dead letter. Five times unless given.
            in_flight: How many messages a worker has taken and not acknowledged, at the most.
            redeliver: The time after which the broker gives a message of a worker that is gone to another.

        Raises:
            BadArguments: The function, the URL or an option cannot be used.

        Example:
            ```python
            @holdfast.on.queue("nats://worker:env:NATS_PASSWORD@127.0.0.1:4222/topics")
            def topics(delivery: holdfast.Delivery) -> holdfast.Start:
                return holdfast.Start(research, delivery.json()["topic"])
            ```
        """
        address = address_of(url)
        config = {
            "url": address.shown, "id": checked_id(id, address.broker), "in_flight": checked_in_flight(in_flight),
            "redeliver_ms": checked_redeliver(redeliver),
        }  # fmt: skip
        return lambda fn: declared(name, "queue", fn, config, retry, url)

    def files(
        self, pattern: str | PathLike[str], *, name: str | None = None, settle: Duration = "2s",
        retry: int | Retry | None = None,
    ) -> Callable[[Callable[P, R]], Trigger[P, R]]:  # fmt: skip
        """Declare a function that maps files: each path with each content once, also if it came while no worker was there.

        The delivery has no body. Its headers tell the `path`, the `name` below the folder, the `digest` of the content, the `size`
        and when it was `modified`; the function, or better a step of the agent, opens the file.

        Args:
            pattern: The files that are meant, such as "inbox/**/*.pdf". A relative one begins where the worker runs.
            name: The trigger's name; that of the function unless given. Ids of runs begin with it.
            settle: For how long size and times of a file must not have changed before it is taken.
            retry: How often the function is tried when it raises; then the delivery is a dead letter. Five times unless given.

        Raises:
            BadArguments: The function, the pattern or an option cannot be used.

        Example:
            ```python
            @holdfast.on.files("inbox/**/*.pdf")
            def inbox(delivery: holdfast.Delivery) -> holdfast.Start:
                return holdfast.Start(research, delivery.headers["path"])
            ```
        """
        config = {"pattern": pattern_of(pattern).text, "settle_ms": milliseconds(settle)}
        return lambda fn: declared(name, "files", fn, config, retry)


on: Final = Triggers()
"""Declares triggers: functions that say what is to be done about what comes from outside."""

"""`holdfast.on`: plain functions become triggers, which say what is to be done about what comes from outside."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, Final, Generic, ParamSpec, TypeVar

from holdfast.errors import BadArguments
from holdfast.values.text import short
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
    name: str, kind: str, fn: Callable[P, R], config: dict[str, Any], retry: int | Retry | None
) -> Trigger[P, R]:
    """Make a trigger of a function, whatever kind it is of; `BadArguments` if the function cannot be one."""
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
    return Trigger(TriggerSpec(checked_trigger(name), kind, fn, config, policy), fn)


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

        The function gets a `Delivery`, and returns `Start`, `Send`, `Decide`, a list of them, or None. It may be `async`. The
        server checks who sent it and keeps it; a worker that has the function calls it.

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


on: Final = Triggers()
"""Declares triggers: functions that say what is to be done about what comes from outside."""

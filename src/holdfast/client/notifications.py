"""Notifications, from outside: made and steered by people, and looked at with what has gone out."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from holdfast.client.triggers import DeliveryInfo, Triggers
from holdfast.errors import BadArguments, UnknownNotification, UnknownTrigger
from holdfast.store.notifications import NotificationRow, outgoing
from holdfast.store.triggers import STATUSES, Tally
from holdfast.words.durations import moment
from holdfast.words.notifications import Target, checked, checked_notification, default_name, shown_url, trial
from holdfast.words.retry import Retry

_LOOK: Final = "`holdfast notify` shows what there is"


@dataclass(frozen=True, slots=True)
class NotificationInfo:
    """A notification as it is now.

    Attributes:
        name: Its name.
        url: Where messages go. Of a web address only the host is shown, because the rest may be what lets anybody post there.
        kinds: The kinds of events that it is told.
        format: "json", "slack" or "mail".
        state: "active" or "paused".
        agent: Told of runs of this agent alone.
        labels: Told of runs with these labels alone.
        waiting: Messages that have not gone out yet.
        dead: Messages that were tried too often.
        done: Messages that went out in the last 30 days.
        last_at: When the last message was written.
        lag_s: For how long the first waiting message has waited, in seconds.

    Example:
        ```python
        for info in await hf.notifications():
            print(info.name, info.waiting, info.dead)
        ```
    """

    name: str
    url: str
    kinds: tuple[str, ...]
    format: str
    state: str
    agent: str | None
    labels: dict[str, str]
    waiting: int
    dead: int
    done: int
    last_at: datetime | None
    lag_s: float


class NotificationHandle:
    """A notification that can be steered, from `hf.notify` or `hf.get_notification`.

    Attributes:
        name: Its name.

    Example:
        ```python
        ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
        await ops.pause()
        ```
    """

    def __init__(self, client: Notifications, name: str) -> None:
        self._client, self.name = client, name

    def __repr__(self) -> str:
        return f"<notification {self.name}>"

    async def info(self) -> NotificationInfo:
        """Read it as it is now.

        Raises:
            UnknownNotification: There is no such notification.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            assert (await ops.info()).url == "https://example.com/…"
            ```
        """
        return await _told(self._client, await self._client.store.notification(self.name))

    async def pause(self) -> NotificationInfo:
        """Send nothing until `resume`. It is not told of what happens meanwhile; what was to go out waits.

        Raises:
            UnknownNotification: There is no such notification.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            assert (await ops.pause()).state == "paused"
            ```
        """
        return await self._steer("paused")

    async def resume(self) -> NotificationInfo:
        """Send what waits, and tell it of what happens from now on.

        Raises:
            UnknownNotification: There is no such notification.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            await ops.pause()
            assert (await ops.resume()).state == "active"
            ```
        """
        return await self._steer("active")

    async def _steer(self, state: str) -> NotificationInfo:
        client = self._client
        row = await client._written(client.store.steer_notification(self.name, state, **client._author()), _LOOK)
        return await _told(client, row)

    async def test(self) -> str:
        """Have a message of the kind "notification.test" sent, to see whether it arrives; returns its id.

        Raises:
            UnknownNotification: There is no such notification.
            BadArguments: It is paused, or this store is a copy that is held.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            print(await ops.test())
            ```
        """
        client = self._client
        message = trial(self.name, secrets.token_hex(8), client.store.clock.now())
        if not await client._written(client.store.tell([(self.name, message)]), _LOOK):
            row = await client.store.notification(self.name)
            why = "it is paused; resume it first" if row.state == "paused" else "this store is a copy that is held"
            raise BadArguments(f"notification {self.name!r} sends nothing: {why}")
        return message.id

    async def deliveries(self, *, status: str | None = None, limit: int = 100) -> list[DeliveryInfo]:
        """List its messages, the newest first, with what became of each.

        Args:
            status: "new", "done" or "dead".
            limit: How many at most.

        Raises:
            BadArguments: A filter cannot be used.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            for info in await ops.deliveries(status="dead"):
                print(info.id, info.error)
            ```
        """
        return await self._client.deliveries(trigger=outgoing(self.name), status=status, limit=limit)

    async def replay(self, id: str) -> DeliveryInfo:
        """Try a dead message again from the beginning, under the same id. One that went out stays so.

        Raises:
            UnknownNotification: It has no such message.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            for info in await ops.deliveries(status="dead"):
                await ops.replay(info.id)
            ```
        """
        try:
            return await self._client.replay_delivery(outgoing(self.name), id)
        except UnknownTrigger:
            raise UnknownNotification(f"notification {self.name!r} has no message {id!r}; {_LOOK}") from None

    async def delete(self) -> None:
        """Delete it, with what has not gone out.

        Raises:
            UnknownNotification: There is no such notification.

        Example:
            ```python
            ops = await hf.notify("https://example.com/hooks", kinds="run.failed", secret="env:OPS_SECRET", name="ops")
            await ops.delete()
            ```
        """
        client = self._client
        await client._written(client.store.delete_notification(self.name, **client._author()), _LOOK)


class Notifications(Triggers):
    """The part of a client that has to do with notifications."""

    async def notify(
        self,
        url: str,
        /,
        kinds: str | Iterable[str],
        *,
        secret: str | Sequence[str] | None = None,
        name: str | None = None,
        format: str | None = None,
        agent: Any = None,
        labels: Mapping[str, str] | None = None,
        base_url: str | None = None,
        retry: int | Retry | None = None,
    ) -> NotificationHandle:
        """Tell a person or a service what happens to runs, from now on. Workers send the messages; the same name changes it.

        Args:
            url: An address on the web, `"mailto:ana@example.com"`, or `"env:NAME"`, a variable of the workers that has it.
            kinds: Kinds of events; "approval" is all that happens to questions. Beside those of `hf.events` there are "run.stuck"
                and "budget.reached".
            secret: Where the secret is that signs messages by Standard Webhooks, `"env:NAME"`; of several each signs.
            name: Its name; one made from the URL unless given.
            format: "json", "slack" for chats that take Slack's messages, or "mail".
            agent: Only runs of this agent.
            labels: Only runs with these labels.
            base_url: Where `holdfast serve` is reached, for links.
            retry: How often a message is tried, and how far apart. Twelve times in more than a day unless given.

        Raises:
            BadArguments: The URL, a kind or an option cannot be used.

        Example:
            ```python
            await hf.notify(
                "https://example.com/hooks",
                kinds=["approval.asked", "run.failed", "run.stuck", "budget.reached"],
                secret="env:OPS_SECRET",
            )
            await hf.notify("mailto:ana@example.com", kinds="approval.asked")
            ```
        """
        of = None if agent is None else getattr(agent, "name", agent)
        target = checked(
            url, kinds, format=format, secret=secret, agent=of, labels=labels, base_url=base_url, retry=retry
        )
        named = default_name(target.url) if name is None else checked_notification(name)
        await self._written(self.store.make_notification(named, target.stored(), **self._author()), _LOOK)
        return NotificationHandle(self, named)

    def get_notification(self, name: str) -> NotificationHandle:
        """Return a handle to a notification. Nothing is read before the handle is used.

        Raises:
            BadArguments: This is no name of a notification.

        Example:
            ```python
            await hf.notify("mailto:ana@example.com", kinds="run.failed", name="ana")
            await hf.get_notification("ana").pause()
            ```
        """
        return NotificationHandle(self, checked_notification(name))

    async def notifications(self) -> list[NotificationInfo]:
        """List all notifications, in the order of their names.

        Example:
            ```python
            assert [info.name for info in await hf.notifications() if info.dead] == []
            ```
        """
        tallies = await _tallies(self)
        return [_info(row, tallies, self.store.clock.now()) for row in await self.store.notifications()]


Tallies = Mapping[tuple[str, str], Tally]


async def _tallies(client: Notifications) -> Tallies:
    return {(tally.trigger, tally.status): tally for tally in await client.store.tally_deliveries()}


async def _told(client: Notifications, row: NotificationRow) -> NotificationInfo:
    return _info(row, await _tallies(client), client.store.clock.now())


def _info(row: NotificationRow, tallies: Tallies, now: int) -> NotificationInfo:
    of = {status: tallies.get((outgoing(row.name), status)) for status in STATUSES}
    counts = {status: 0 if tally is None else tally.count for status, tally in of.items()}
    last = max((tally.last_at for tally in of.values() if tally is not None), default=None)
    target, waits = Target.loaded(row.config), of["new"]
    return NotificationInfo(
        row.name, shown_url(target.url), target.kinds, target.format, row.state, target.agent, dict(target.labels),
        counts["new"], counts["dead"], counts["done"], None if last is None else moment(last),
        0.0 if waits is None else max(now - waits.first_at, 0) / 1000,
    )  # fmt: skip

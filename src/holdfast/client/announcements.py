"""Announcements, from outside: publishing one."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Any, Self

from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.store.announcements import NewAnnouncement
from holdfast.verbs.announcements import value_text
from holdfast.words.announcements import checked_event, checked_key, keyed_id
from holdfast.words.durations import moment


class Published(str):
    """The id of an announcement, and whether it was published by this call.

    Attributes:
        created: True if this call has published it; False if its name and key were published before, and nothing was sent again.
        before: When it was published before; None if it was not.
        differs: Whether the value given now is another than the one that was published, which holds. None if that is not known:
            it was passed on by an earlier version.

    Example:
        ```python
        told = await hf.publish("order.paid", {"order": 7}, key="payment-31")
        assert told.created or not told.differs
        ```
    """

    __slots__ = ("before", "created", "differs")

    created: bool
    before: datetime | None
    differs: bool | None

    def __new__(
        cls, id: str, *, created: bool = True, before: datetime | None = None, differs: bool | None = False
    ) -> Self:
        """Make one."""
        made = super().__new__(cls, id)
        made.created, made.before, made.differs = created, before, differs
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return _published, (str(self), self.created, self.before, self.differs)


def _published(id: str, created: bool, before: datetime | None, differs: bool | None) -> Published:
    return Published(id, created=created, before=before, differs=differs)


class Announcements(Base):
    """The part of a client that has to do with announcements."""

    async def publish(self, name: str, value: Any = None, *, key: str | None = None) -> Published:
        """Publish an announcement to its waiters: agents declared with `On`, and runs in `next_event`.

        Args:
            name: The name, such as "order.paid".
            value: The value, up to 64 KiB as JSON.
            key: Announcements of a name with one key are one, for 30 days. Give one where a request may be made again.

        Returns:
            The id of the announcement. `created` says whether it was published now; if not, `before` says when, and `differs`
            whether with another value, which holds.

        Raises:
            BadArguments: The name or the key cannot be used.
            NotStorable: The value cannot be stored, or is too large.

        Example:
            ```python
            await hf.publish("order.paid", {"order": 7}, key="payment-31")
            ```
        """
        checked_event(name), checked_key(key)
        text = await aside(value, value_text, value, name)
        id = f"ev_{secrets.token_hex(16)}" if key is None else keyed_id(name, key)
        write = self.store.announce(NewAnnouncement(id, name, text), **self._author())
        done = await self._written(write, "Publish it with a key, and it is safe to publish it again")
        before = None if done.before is None else moment(done.before)
        return Published(id, created=done.made, before=before, differs=None if done.same is None else not done.same)

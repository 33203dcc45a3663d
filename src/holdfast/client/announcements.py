"""Announcements, from outside: publishing one."""

from __future__ import annotations

import secrets
from typing import Any

from holdfast.client.aside import aside
from holdfast.client.base import Base
from holdfast.store.announcements import NewAnnouncement
from holdfast.verbs.announcements import value_text
from holdfast.words.announcements import checked_event, checked_key, keyed_id


class Announcements(Base):
    """The part of a client that has to do with announcements."""

    async def publish(self, name: str, value: Any = None, *, key: str | None = None) -> str:
        """Publish an announcement for whoever waits for it: agents declared with `On`, and runs in `next_event`.

        Args:
            name: The name, such as "order.paid".
            value: The value, up to 64 KiB as JSON.
            key: Announcements of a name with one key are one, for 30 days. Give one where a request may be made again.

        Returns:
            The id of the announcement.

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
        await self._written(write, "Publish it with a key, and it is safe to publish it again")
        return id

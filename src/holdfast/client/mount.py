"""A client as a part of somebody's web application."""

from __future__ import annotations

import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from holdfast.client.base import Base
from holdfast.errors import BadArguments

_SERVER: Final = "holdfast.http.mount"


class Mount(Base):
    """The part of a client that serves it."""

    def asgi(self, auth: Callable[[Any], Any | Awaitable[Any]] | None = None, *, url: str | None = None) -> Any:
        """Return the dashboard and the whole API as an ASGI application, to mount in another one or to serve alone.

        The client must be open while it is used: open it in the lifespan of the application that it is mounted in. Served alone,
        the application opens and closes the client itself. Needs `holdfast[server]`.

        Args:
            auth: Returns the user of a request (`starlette.requests.Request`): an `Actor`, who may do everything; an `Actor` and
                some of "read", "write" and "decide"; or None for nobody. It may be `async`. Without it there are tokens, as of
                `holdfast serve`.
            url: Without `auth`: how browsers reach it, so that people can begin sessions with a token.

        Raises:
            BadArguments: The packages of a server are not installed, or `url` is no address.

        Example:
            ```python
            app = hf.asgi(auth=lambda request: holdfast.Actor("ana") if "x-user" in request.headers else None)
            ```
        """
        try:
            edge = importlib.import_module(_SERVER)  # an edge stands above a client, and not everybody has it
        except ModuleNotFoundError as error:
            raise BadArguments(
                f'a server needs {error.name}, which is not installed: pip install "holdfast[server]"'
            ) from None
        return edge.Mounted(self, auth, url)

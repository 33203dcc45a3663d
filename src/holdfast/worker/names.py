"""Names of hosts: resolved in threads of their own, because the person who chooses a name may let its name server hang.

Look here when a message is not sent because the name of its receiver takes long.

asyncio resolves names in the few threads that it has for everything, and nothing can stop a thread: some names that take long would
hold up every other receiver, and what else a worker does in threads. So each name that is being resolved has a thread of its
own, and all that ask for it meanwhile wait for that one: a name that hangs takes one thread, however many messages go there. The
process does not wait for it when it ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from typing import Final

_asked: Final[dict[tuple[asyncio.AbstractEventLoop, str], asyncio.Future[list[str]]]] = {}  # and not answered


async def addresses_of(host: str) -> list[str]:
    """Resolve the name of a host, or read an address; empty if it has none. `OSError` if no thread can be had."""
    loop = asyncio.get_running_loop()
    answer = _asked.get((loop, host))
    if answer is None:
        answer = _asked[loop, host] = loop.create_future()
        try:
            threading.Thread(target=_look, args=(loop, host, answer), name="holdfast-name", daemon=True).start()
        except RuntimeError as problem:  # there are too many
            del _asked[loop, host]
            raise OSError(str(problem)) from problem
    return await asyncio.shield(answer)  # others may wait for it too


def _look(loop: asyncio.AbstractEventLoop, host: str, answer: asyncio.Future[list[str]]) -> None:
    try:
        found = [str(address[0]) for *_, address in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    except (OSError, ValueError):  # a name that cannot be written is none either
        found = []
    del _asked[loop, host]
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there any more
        loop.call_soon_threadsafe(answer.set_result, found)

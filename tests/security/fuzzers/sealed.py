"""The agents for a worker that finds nobody by a name: what the fuzzers make it notify is nowhere."""

import socket
from typing import Any

from tests.security.fuzzers import agents

_found = socket.getaddrinfo


def _here(host: Any, *more: Any, **how: Any) -> Any:
    if host not in (None, "127.0.0.1", "localhost"):
        raise OSError("the fuzzers leave this computer alone, and no other is there for them")
    return _found(host, *more, **how)


socket.getaddrinfo = _here
globals().update({name: value for name, value in vars(agents).items() if not name.startswith("_")})

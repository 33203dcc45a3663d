"""The inbox example's parts for its tests: its modules, fresh, with the world's mail at a server of the test."""

import importlib
import sys
from contextlib import contextmanager
from pathlib import Path

from tests.receivers import MailServer

EXAMPLE = Path(__file__).parents[2] / "examples" / "inbox"
_PARTS = ("agents", "receive", "world")


@contextmanager
def open_inbox(monkeypatch):
    """The example's agents, and a mail server that takes what they send."""
    with MailServer() as server:
        monkeypatch.setenv("HOLDFAST_SMTP_URL", f"smtp://127.0.0.1:{server.port}")
        monkeypatch.setenv("HOLDFAST_SMTP_FROM", "inbox@example.com")
        monkeypatch.syspath_prepend(str(EXAMPLE))
        for name in _PARTS:
            sys.modules.pop(name, None)
        try:
            yield server, importlib.import_module("agents")
        finally:
            for name in _PARTS:
                sys.modules.pop(name, None)

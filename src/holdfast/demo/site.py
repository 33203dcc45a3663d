"""The site that the demo's agent reads: a few pages, a search, and a place to publish. It lives in the demo's process.

It is slow where the demo wants to strike: half of the pages answer a first visit only when they are let go, and so does
the first publication, after it was written. A second visit is quick.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

PAGES: Final = Path(__file__).parent / "pages"
_ANSWER_S: Final = 0.5
_LONGEST_HOLD_S: Final = 30.0


class Site:
    """The pages, and what was published in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.names = sorted(path.name for path in PAGES.glob("*.html"))
        self.slow = set(self.names[1::2])
        self.published = threading.Event()
        self.pages_held = self.publication_held = True
        self.publications: list[str] = []
        self.url = ""

    @contextmanager
    def open(self) -> Iterator[Site]:
        """Serve on a free port of this computer only."""
        server = _Server(("127.0.0.1", 0), _Handler)
        server.site = self
        self.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self.pages_held = self.publication_held = False
            server.shutdown()
            server.server_close()

    def page(self, name: str) -> str | None:
        """A page's text, in its own time."""
        if name not in self.names:
            return None
        self._hold(lambda: self.pages_held and name in self.slow)
        return (PAGES / name).read_text("utf-8")

    def publish(self, key: str, text: str) -> str:
        """Write the report, once for each time this is asked: nothing here stops a second one."""
        path = self.folder / "report.md"
        path.write_text(text, "utf-8")
        self.publications.append(key)
        with (self.folder / "publications.jsonl").open("a", encoding="utf-8") as ledger:
            ledger.write(json.dumps({"key": key, "at": time.time(), "characters": len(text)}) + "\n")
        self.published.set()
        self._hold(lambda: self.publication_held)
        return path.name

    def find(self, key: str) -> str | None:
        """The name of the report that was published with this key, if one was."""
        return "report.md" if key in self.publications else None

    def _hold(self, held: Any) -> None:
        time.sleep(_ANSWER_S)
        until = time.monotonic() + _LONGEST_HOLD_S
        while held() and time.monotonic() < until:
            time.sleep(0.02)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    site: Site

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A visitor that was killed is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        site, parts = self.server.site, urlsplit(self.path)
        if parts.path == "/search":
            time.sleep(_ANSWER_S)
            self._answer(json.dumps([f"{site.url}/{name}" for name in site.names]))
        elif parts.path.startswith("/published/"):
            self._answer(json.dumps(site.find(parts.path.removeprefix("/published/"))))
        else:
            text = site.page(parts.path.removeprefix("/"))
            self._answer(text or "not found", 200 if text else 404, "text/html")

    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self._answer(json.dumps(self.server.site.publish(self.headers.get("Idempotency-Key", ""), text)))

    def _answer(self, text: str, status: int = 200, kind: str = "application/json") -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

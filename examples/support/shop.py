"""The shop of the example: its orders and its till, served over HTTP on this computer only.

    python shop.py          serves them at SHOP_URL (http://127.0.0.1:8720), with books in shop.db
    python shop.py books    shows what was paid back, and what the shop was asked for

The till honours an idempotency key: asked again with the same one, it gives the same answer and pays nothing.
"""

import json
import os
import sqlite3
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8720")
ORDERS = {
    101: {"what": "a kettle", "price": 40, "state": "delivered on Monday"},
    102: {"what": "a lamp", "price": 25, "state": "on its way"},
}
BOOKS = """
    create table if not exists requests (what text);
    create table if not exists refunds (key text unique, number integer, amount integer);
"""


class Shop:
    """Orders, a till, and its books."""

    def __init__(self, path: Path) -> None:
        self.url, self._lock = "", threading.Lock()
        self._books = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._books.executescript(BOOKS)

    @contextmanager
    def open(self, port: int = 0) -> Iterator["Shop"]:
        """Serve at this port, or any free one, until the block ends."""
        server = _Server(("127.0.0.1", port), _Handler)
        server.shop, self.url = self, f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()
            self._books.close()

    def order(self, number: int) -> dict[str, Any] | None:
        with self._lock:
            self._books.execute("insert into requests values ('order')")
        return ORDERS.get(number)

    def refund(self, key: str, number: int, amount: int) -> None:
        """Pay back, once for each key."""
        with self._lock:
            self._books.execute("insert into requests values ('refund')")
            self._books.execute("insert or ignore into refunds values (?, ?, ?)", (key, number, amount))

    def books(self) -> dict[str, Any]:
        """Every refund, and how many requests there were: more, when somebody had to ask again."""
        with self._lock:
            refunds = self._books.execute("select number, amount from refunds").fetchall()
            counted = self._books.execute("select what, count(*) from requests group by what order by what").fetchall()
        return {"refunds": [list(row) for row in refunds], "requests": dict(counted)}


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = False, True
    shop: Shop

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who asked was killed before the answer: nothing to complain about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.shop.refund(self.headers["Idempotency-Key"], **wanted)
        self._answer("paid back")

    def do_GET(self) -> None:
        if self.path == "/books":
            self._answer(self.server.shop.books())
        else:
            self._answer(self.server.shop.order(int(self.path.removeprefix("/orders/"))))

    def _answer(self, value: Any) -> None:
        content = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def main() -> None:
    """What the command line says."""
    if sys.argv[1:] == ["books"]:
        with urllib.request.urlopen(f"{URL}/books") as answer:
            for name, entries in json.load(answer).items():
                print(f"{name}: {json.dumps(entries)}")
        return
    with Shop(Path("shop.db")).open(urlsplit(URL).port or 8720) as shop:
        print(f"The shop is open at {shop.url}.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("The shop is closed.")


if __name__ == "__main__":
    main()

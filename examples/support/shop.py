"""The world of the example, on this computer only: a shop with orders and a till, and a model to talk with its customers.

    python shop.py --model scripted    serves both at SHOP_URL and MODEL_URL (http://127.0.0.1:8720, ...:8711/v1)
    python shop.py --model local       the same with a real small model: see ../models/local.py
    python shop.py books               shows what was paid back, and what shop and model were asked for

The till honours an idempotency key: asked again with the same one, it gives the same answer and pays nothing. Its books are in
shop.db. The scripted model knows a few words; the small one knows more of them and understands fewer.

For a first look neither need be started: a worker opens both in its own process where nobody has (`at_hand`).
"""

import argparse
import json
import os
import re
import signal
import socket
import sqlite3
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.testing.provider import Answer, Provider, Request, Tool, provider

SHOP_URL = os.environ.get("SHOP_URL", "http://127.0.0.1:8720")
MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8711/v1")
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
        self.model: Provider | None = None
        self._books = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._books.executescript(BOOKS)

    @contextmanager
    def open(self, port: int = 0) -> Iterator["Shop"]:
        """Serve at this port, or any free one, until the block ends."""
        server = _Server(("127.0.0.1", port), _Handler)
        server.shop, self.url = self, f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
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
        books = {"refunds": [list(row) for row in refunds], "requests": dict(counted)}
        return books if self.model is None else books | {"model": {"asked": self.model.asked, "paid": self.model.paid}}


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


def answer(request: Request) -> str | Tool:
    """Looks up the order that was spoken of last, and pays it back if the customer wants the money."""
    said = [str(message["content"]) for message in request.messages if message["role"] == "user"]
    spoken_of = re.findall(r"\b\d{3}\b", " ".join(said))
    if not spoken_of:
        return "Which order is it about?"
    number = int(spoken_of[-1])
    if "leave it" in said[-1]:
        return f"All right, nothing is paid back for order {number}."
    if not request.results:
        return Tool("find_order", number=number)
    found = request.results[-1]
    if not found.startswith("{"):
        return f"About order {number}: {found}"
    order = json.loads(found)
    if "money" in said[-1]:
        return Tool("refund", number=number, amount=order["price"])
    return f"Order {number}, {order['what']}, is {order['state']}."


@contextmanager
def scripted_model(shop: Shop, port: int = 0, pause: float = 0.0) -> Iterator[Provider]:
    """A model that does what a function says, and counts. It thinks for so many seconds at each word."""

    def think(request: Request) -> Answer:
        said = answer(request)
        return Answer(said, pause=pause) if isinstance(said, str) else Answer("", said, pause=pause)

    with provider(think, models=("smollm2",), port=port) as model:
        shop.model = model
        yield model


_opened = ExitStack()  # by this process, for as long as it lives


def at_hand() -> tuple[str, str]:
    """Where the shop and the model are. Where nobody has named any, and none is open, both are opened in this process."""
    if {"SHOP_URL", "MODEL_URL"} & os.environ.keys() or _is_open(SHOP_URL):
        return os.environ.get("SHOP_URL", SHOP_URL), os.environ.get("MODEL_URL", MODEL_URL)
    shop = _opened.enter_context(Shop(Path("shop.db")).open())
    return shop.url, _opened.enter_context(scripted_model(shop, pause=1.5)).url


def _is_open(url: str) -> bool:
    try:
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port), 1):
            return True
    except OSError:
        return False


def local_model(port: int) -> Any:
    """The real one."""
    sys.path.append(str(Path(__file__).parents[1] / "models"))
    import local  # noqa: PLC0415 - a file of the other folder

    return local.local_model(port)


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="The shop and the model of the example.")
    parser.add_argument("what", nargs="?", choices=["books"])
    parser.add_argument("--model", choices=["scripted", "local"], default="scripted")
    wanted = parser.parse_args()
    if wanted.what == "books":
        with urllib.request.urlopen(f"{SHOP_URL}/books") as page:
            for name, entries in json.load(page).items():
                print(f"{name}: {json.dumps(entries)}")
        return
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    with Shop(Path("shop.db")).open(urlsplit(SHOP_URL).port or 8720) as shop:
        port = urlsplit(MODEL_URL).port or 8711
        with scripted_model(shop, port) if wanted.model == "scripted" else local_model(port) as model:
            print(f"The shop is open at {shop.url}; a {wanted.model} model answers at {model.url}.", flush=True)
            signal.sigwait(stop)


if __name__ == "__main__":
    main()

"""The office of the example: an account directory, a group store and a mailbox, served over HTTP on this computer only.

    python services.py          serves them at OFFICE_URL (http://127.0.0.1:8700), with books in office.db
    python services.py books    shows what they were asked for, and what they did

The directory and the group store honour an idempotency key: asked again with the same one, they give the same answer and do
nothing. The mailbox delivers whatever it gets, as mailboxes do; but one can ask it whether it has a mail with some key.
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

URL = os.environ.get("OFFICE_URL", "http://127.0.0.1:8700")

BOOKS = """
    create table if not exists requests (service text, key text);
    create table if not exists accounts (key text unique, name text unique, person text);
    create table if not exists grants (key text unique, account text, names text);
    create table if not exists mails (key text, recipient text, content text);
"""


class Office:
    """The three services and their books. The mailbox answers `mail_s` after it has delivered: time to kill somebody."""

    def __init__(self, path: Path, mail_s: float = 0.0) -> None:
        self.mail_s, self.url = mail_s, ""
        self._closing, self._lock = threading.Event(), threading.Lock()
        self._books = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._books.row_factory = sqlite3.Row
        self._books.executescript(BOOKS)

    @contextmanager
    def open(self, port: int = 0) -> Iterator["Office"]:
        """Serve at this port, or any free one, until the block ends."""
        server = _Server(("127.0.0.1", port), _Handler)
        server.office, self.url = self, f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            self._closing.set()
            server.shutdown()
            thread.join()
            server.server_close()
            self._books.close()

    # What can be asked for

    def accounts(self, key: str, person: str) -> str:
        """Make an account, once for each key; a name that is taken gets a number."""
        if found := self._rows("select name from accounts where key = ?", key):
            return str(found[0]["name"])
        taken = len(self._rows("select 1 from accounts where person = ?", person))
        name = f"{person}{taken + 1}" if taken else person
        self._rows("insert into accounts values (?, ?, ?)", key, name, person)
        return name

    def grants(self, key: str, account: str, groups: list[str]) -> str:
        """Put an account into groups, once for each key."""
        self._rows("insert or ignore into grants values (?, ?, ?)", key, account, json.dumps(groups))
        return account

    def mails(self, key: str, to: str, text: str) -> str:
        """Deliver a mail, each time."""
        self._rows("insert into mails values (?, ?, ?)", key, to, text)
        return key

    def ask(self, service: str, key: str, wanted: dict[str, Any]) -> str:
        """Do what is asked for, and note that it was."""
        with self._lock:
            self._rows("insert into requests values (?, ?)", service, key)
            answer: str = getattr(self, service)(key, **wanted)
        if service == "mails":
            self._closing.wait(self.mail_s)
        return answer

    # What can be looked at

    def find_mail(self, key: str) -> str:
        """The id of the mail with this key, or nothing if none was delivered."""
        with self._lock:
            self._rows("insert into requests values ('looks', ?)", key)
            return key if self._rows("select 1 from mails where key = ?", key) else ""

    def books(self) -> dict[str, Any]:
        """Every effect, and how many requests there were: more, when somebody had to ask again."""
        with self._lock:
            accounts = [row["name"] for row in self._rows("select name from accounts")]
            grants = [[row["account"], json.loads(row["names"])] for row in self._rows("select * from grants")]
            mails = [[row["recipient"], row["content"]] for row in self._rows("select * from mails")]
            counted = self._rows("select service, count(*) as times from requests group by service order by service")
            requests = {row["service"]: row["times"] for row in counted}
        return {"accounts": accounts, "grants": grants, "mails": mails, "requests": requests}

    def _rows(self, query: str, *values: str) -> list[sqlite3.Row]:
        return self._books.execute(query, values).fetchall()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = False, True
    office: Office

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who asked was killed before the answer: nothing to complain about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_POST(self) -> None:
        wanted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        service = self.path.strip("/")
        if service in ("accounts", "grants", "mails"):
            self._answer(self.server.office.ask(service, self.headers["Idempotency-Key"], wanted))
        else:
            self.send_error(404)

    def do_GET(self) -> None:
        if self.path == "/books":
            self._answer(json.dumps(self.server.office.books()))
        elif self.path.startswith("/mails/"):
            self._answer(self.server.office.find_mail(self.path.removeprefix("/mails/")))
        else:
            self.send_error(404)

    def _answer(self, text: str) -> None:
        content = text.encode()
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
                print(f"{name}: {json.dumps(entries, ensure_ascii=False)}")
        return
    with Office(Path("office.db"), mail_s=5.0).open(urlsplit(URL).port or 8700) as office:
        print(f"The office is open at {office.url}; the mailbox takes {office.mail_s:g} s to answer.", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            print("The office is closed.")


if __name__ == "__main__":
    main()

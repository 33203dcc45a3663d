"""The world of the example, on this computer only: a site of 40 pages, and a model to ask about them.

    python coast.py --model scripted    serves both at SITE_URL and MODEL_URL (http://127.0.0.1:8710, ...:8711/v1)
    python coast.py --model local       the same with a real small model: see ../models/local.py
    python coast.py books               shows what was read, asked and published

The scripted model gives the first words of what it is asked about, takes its time, and has a context as small as the real one.
"""

import argparse
import functools
import json
import os
import re
import signal
import sys
import threading
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from holdfast.testing.provider import Answer, Failure, Provider, Request, provider

HERE = Path(__file__).resolve().parent
SITE_URL = os.environ.get("SITE_URL", "http://127.0.0.1:8710")
MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8711/v1")
CONTEXT = 500  # words
PAGE = """<!doctype html>
<html lang="en">
<head><title>{title}</title></head>
<body>
<header>An atlas of the cold coast</header>
<main>
<p>{text}</p>
<ul>
{links}
</ul>
</main>
</body>
</html>
"""


def atlas() -> dict[str, str]:
    """The pages by their paths, made from atlas.md."""
    pages = {}
    for entry in (HERE / "atlas.md").read_text("utf-8").split("\n## ")[1:]:
        title, text, see = entry.strip().split("\n")
        links = "\n".join(map(_link, see.removeprefix("See: ").split(", ")))
        pages[_path(title)] = PAGE.format(title=escape(title), text=escape(text), links=links)
    return pages


def _path(title: str) -> str:
    return f"/{title.lower().replace(' ', '-')}.html"


def _link(title: str) -> str:
    return f'<li><a href="{_path(title)}">{escape(title)}</a></li>'


class Site:
    """The pages, the reports that were published, and how often each page was read."""

    def __init__(self) -> None:
        self.pages, self.url = atlas(), ""
        self.read: Counter[str] = Counter()
        self.reports: dict[str, str] = {}  # by idempotency key
        self.model: Callable[[], dict[str, int]] = dict  # what the model counts
        self._lock = threading.Lock()

    @contextmanager
    def open(self, port: int = 0) -> Iterator["Site"]:
        """Serve at this port, or any free one, until the block ends."""
        server = _Server(("127.0.0.1", port), _Handler)
        server.site, self.url = self, f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield self
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def page(self, path: str) -> str | None:
        with self._lock:
            self.read[path] += path in self.pages
        return self.pages.get(path)

    def publish(self, key: str, report: str) -> str:
        """Put a report up, once for each key; gives its place."""
        with self._lock:
            self.reports.setdefault(key, report)
            return f"{self.url}/reports/{list(self.reports).index(key) + 1}"

    def books(self) -> dict[str, Any]:
        with self._lock:
            pages = {"different": len(+self.read), "read": self.read.total()}
            return {"pages": pages, "model": self.model(), "reports": list(self.reports.values())}


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = False, True
    site: Site

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Somebody who asked was killed before the answer: nothing to complain about."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        site = self.server.site
        page = json.dumps(site.books()) if self.path == "/books" else site.page(self.path)
        self._answer(page or "not found", 200 if page else 404)

    def do_POST(self) -> None:
        report = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self._answer(self.server.site.publish(self.headers["Idempotency-Key"], report))

    def _answer(self, text: str, status: int = 200) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


def answer(request: Request, pause_s: float = 0.0) -> Answer | Failure:
    """The first sentences of what was asked, `pause_s` for each word; what is too long is refused."""
    words = request.prompt.split()
    if len(words) > CONTEXT:
        return Failure(400, f"request ({len(words)} tokens) exceeds the available context size ({CONTEXT} tokens)")
    sentences = re.split(r"(?<=\.)\s", request.prompt)
    return Answer(" ".join(sentences[: 2 if "two" in words else 1]), pause=pause_s)


@contextmanager
def scripted_model(site: Site, port: int = 0, script: Callable[[Request], Any] = answer) -> Iterator[Provider]:
    """A model that does what a function says."""
    with provider(script, models=("smollm2",), port=port) as model:
        site.model = lambda: {"asked": model.asked, "paid": model.paid}
        yield model


@contextmanager
def local_model(site: Site, port: int = 0) -> Iterator[Any]:
    """The real one, which counts the tokens it made."""
    sys.path.append(str(HERE.parent / "models"))
    import local  # noqa: PLC0415 - a file of the other folder

    with local.local_model(port) as model:

        def counted() -> dict[str, int]:
            with urllib.request.urlopen(model.metrics_url) as page:
                found = re.search(r"^llamacpp:tokens_predicted_total (\d+)", page.read().decode(), re.MULTILINE)
            return {"tokens": int(found[1]) if found else 0}

        site.model = counted
        yield model


def main() -> None:
    """What the command line says."""
    parser = argparse.ArgumentParser(description="The site and the model of the example.")
    parser.add_argument("what", nargs="?", choices=["books"])
    parser.add_argument("--model", choices=["scripted", "local"], default="scripted")
    wanted = parser.parse_args()
    if wanted.what == "books":
        with urllib.request.urlopen(f"{SITE_URL}/books") as page:
            for name, entries in json.load(page).items():
                print(f"{name}: {json.dumps(entries, ensure_ascii=False)}")
        return
    stop = {signal.SIGINT, signal.SIGTERM}
    signal.pthread_sigmask(signal.SIG_BLOCK, stop)
    with Site().open(urlsplit(SITE_URL).port or 8710) as site:
        port = urlsplit(MODEL_URL).port or 8711
        slowly = functools.partial(answer, pause_s=0.02)
        with scripted_model(site, port, slowly) if wanted.model == "scripted" else local_model(site, port) as model:
            print(f"{len(site.pages)} pages at {site.url}; a {wanted.model} model at {model.url}.", flush=True)
            signal.sigwait(stop)


if __name__ == "__main__":
    main()

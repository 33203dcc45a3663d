"""/api: every path in a table, for human readers. Programs have /openapi.json."""

from __future__ import annotations

import functools
from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.http.page import SAFE
from holdfast.http.paths import PATHS

_STYLE: Final = """
:root { color-scheme: light dark }
body { margin: 3rem auto; max-width: 62rem; padding: 0 1.25rem; font: 1rem/1.55 system-ui, sans-serif }
table { border-collapse: collapse }
td { padding: .4rem 1rem .4rem 0; border-top: 1px solid; vertical-align: baseline }
"""
_HASH: Final = b64encode(sha256(_STYLE.encode()).digest()).decode()
_HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    **SAFE,
}
_OTHERS: Final = (
    ("POST", "/session", "Begin a session in a browser, with a token or a code that the server printed."),
    ("DELETE", "/session", "End the session."),
    ("GET", "/healthz", "Is the server alive?"),
    ("GET", "/readyz", "Does it answer, and does its store?"),
    ("GET", "/metrics", "Numbers for Prometheus."),
    ("GET", "/openapi.json", "All of this for programs."),
)
_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast: paths</title>
<style>STYLE</style>
</head>
<body>
<h1>Paths</h1>
<p>This server shows runs of agents, starts them, and lets people answer what agents ask. It carries none itself: workers do.</p>
<p>A request has a token, <code>Authorization: Bearer TOKEN</code>, which <code>holdfast token NAME</code> makes.</p>
<table>
ROWS
</table>
</body>
</html>
"""


async def overview(_: Request) -> Response:
    """Answer with the table."""
    return HTMLResponse(_made(), headers=_HEADERS)


@functools.cache
def _made() -> str:
    rows = [(each.method, each.path, each.says) for each in PATHS]
    filled = "\n".join(_row(*each) for each in (*rows, *_OTHERS))
    return _PAGE.replace("STYLE", _STYLE).replace("ROWS", filled)


def _row(method: str, path: str, says: str) -> str:
    return f"<tr><td><code>{method}</code></td><td><code>{escape(path)}</code></td><td>{escape(says)}</td></tr>"

"""The first page: what this is, and which paths there are. Until there is a dashboard."""

from __future__ import annotations

from html import escape
from typing import Final

from holdfast.http.paths import PATHS

HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",
}
_OTHERS: Final = (
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
<meta name="color-scheme" content="light dark">
<title>Holdfast</title>
<style>
:root { --text: #22262b; --dim: #626a73; --line: #dfe3e8; --back: #fbfbfa; --get: #24623c; --post: #85480b; --delete: #9b2c2c }
@media (prefers-color-scheme: dark) {
  :root { --text: #dfe3e8; --dim: #98a2ad; --line: #32383f; --back: #16191d; --get: #7fd3a0; --post: #f0b26b; --delete: #f19a9a }
}
body { margin: 3rem auto; max-width: 62rem; padding: 0 1.25rem; font: 1rem/1.55 system-ui, sans-serif;
  color: var(--text); background: var(--back) }
h1 { margin: 0; font-size: 1.6rem }
p { max-width: 44rem; color: var(--dim) }
table { border-collapse: collapse; width: 100%; margin: 2rem 0 }
td { padding: .45rem 1rem .45rem 0; border-top: 1px solid var(--line); vertical-align: baseline }
code { font: .9rem ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.GET { color: var(--get) } .POST { color: var(--post) } .DELETE { color: var(--delete) }
a { color: inherit }
@media (max-width: 40rem) { td { display: block; border: 0; padding: 0 } td:first-child { border-top: 1px solid var(--line);
  padding-top: .6rem } td:last-child { padding-bottom: .6rem } }
</style>
</head>
<body>
<h1>Holdfast</h1>
<p>This server shows runs of agents, starts them, and lets people answer what agents ask. It carries none itself: workers do.</p>
<table>
ROWS
</table>
</body>
</html>
"""


def page() -> str:
    """The page as HTML."""
    rows = [(each.method, each.path, each.says) for each in PATHS]
    return _PAGE.replace("ROWS", "\n".join(_row(*each) for each in (*rows, *_OTHERS)))


def _row(method: str, path: str, says: str) -> str:
    shown = f"<code>{escape(path)}</code>"
    if method == "GET" and "{" not in path:
        shown = f'<a href="{escape(path[1:])}">{shown}</a>'
    return f'<tr><td><code class="{method}">{method}</code></td><td>{shown}</td><td>{escape(says)}</td></tr>'

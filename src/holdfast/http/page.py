"""The first page: what this is, and which paths there are. Until there is a dashboard."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from typing import Final

from holdfast.http.paths import PATHS

# A code in the fragment becomes a session; what is asked for is shown, with what cannot be seen spelled out.
_SCRIPT: Final = r"""
const [told, end, shown] = ["told", "end", "shown"].map(id => document.getElementById(id)), nobody = told.textContent;
const visible = text => text.replace(/[^\P{C}\n]|[\p{Zl}\p{Zp}\p{DI}\u2800]|(?<=\p{M}{4})\p{M}/gu, mark => {
  const code = mark.codePointAt(0).toString(16);
  return code.length > 4 ? `\\u{${code}}` : "\\u" + code.padStart(4, "0");
});
function kept() {
  try {
    const session = JSON.parse(localStorage.getItem("holdfast"));
    return session && session.until > Date.now() ? session : null;
  } catch { return null; }
}
function tell(otherwise = nobody) {
  const session = kept();
  if (!session) localStorage.removeItem("holdfast");
  const until = session && new Date(session.until).toLocaleString();
  told.textContent = visible(session ? `You are ${session.name} here until ${until}.` : otherwise);
  end.hidden = !session;
}
async function ask(path, options = {}) {
  const session = kept();
  const headers = {...options.headers, ...(session && {Authorization: "Session " + session.key})};
  try {
    const answer = await fetch(path, {...options, headers});
    if (answer.status === 401 && session && options.method !== "POST") {
      localStorage.removeItem("holdfast");
      tell("This session is over; the server prints a link to another one when it is started again.");
    }
    return [answer.ok, answer.status === 204 ? null : await answer.json()];
  } catch {
    return [false, {error: {message: "The server does not answer."}}];
  }
}
async function begin(credential) {
  const asked = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(credential)};
  const [ok, said] = await ask("session", asked);
  if (ok) localStorage.setItem("holdfast", JSON.stringify({...said, until: Date.now() + 1000 * said.seconds}));
  tell(ok ? nobody : said.error.message);
}
const code = new URLSearchParams(location.hash.slice(1)).get("code");
tell();
if (code) { history.replaceState(null, "", location.pathname); begin({code}); }
end.addEventListener("click", async () => {
  await ask("session", {method: "DELETE"});
  localStorage.removeItem("holdfast");
  shown.textContent = "";
  tell();
});
document.addEventListener("click", async event => {
  const link = event.target.closest("a[data-api]");
  if (!link) return;
  event.preventDefault();
  const [, said] = await ask(link.href);
  shown.textContent = visible(JSON.stringify(said, null, 2));
  shown.scrollIntoView();
});
"""
_HASH: Final = b64encode(sha256(_SCRIPT.encode()).digest()).decode()
HEADERS: Final = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{_HASH}'; connect-src 'self'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
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
pre { overflow: auto; font: .85rem ui-monospace, monospace }
code { font: .9rem ui-monospace, SFMono-Regular, Menlo, Consolas, monospace }
.GET { color: var(--get) } .POST { color: var(--post) } .DELETE { color: var(--delete) }
a { color: inherit }
button { margin-left: .5rem; padding: 0; border: 0; background: none; font: inherit; color: inherit; text-decoration: underline;
  cursor: pointer }
@media (max-width: 40rem) { td { display: block; border: 0; padding: 0 } td:first-child { border-top: 1px solid var(--line);
  padding-top: .6rem } td:last-child { padding-bottom: .6rem } }
</style>
</head>
<body>
<h1>Holdfast</h1>
<p>This server shows runs of agents, starts them, and lets people answer what agents ask. It carries none itself: workers do.</p>
<p><span id="told">Every request needs a token; the link that the server printed when it was started begins a session here.</span>
<button id="end" hidden>End the session</button></p>
<table>
ROWS
</table>
<pre id="shown"></pre>
<script>SCRIPT</script>
</body>
</html>
"""


def page() -> str:
    """The page as HTML."""
    rows = [(each.method, each.path, each.says) for each in PATHS]
    filled = _PAGE.replace("ROWS", "\n".join(_row(*each) for each in (*rows, *_OTHERS)))
    return filled.replace("SCRIPT", _SCRIPT)


def _row(method: str, path: str, says: str) -> str:
    shown = f"<code>{escape(path)}</code>"
    if method == "GET" and "{" not in path:
        asked = " data-api" if path.startswith("/api/") else ""
        shown = f'<a href="{escape(path[1:])}"{asked}>{shown}</a>'
    return f'<tr><td><code class="{method}">{method}</code></td><td>{shown}</td><td>{escape(says)}</td></tr>'

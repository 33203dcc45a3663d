"""The page: the files of the dashboard, and the one document that every address of it answers with.

What agents wrote is shown by scripts of ours alone: the policy lets no other run, none of ours make markup of a text, and nothing
be asked of another server. The document has lines that depend on the request: `<base>`, because an application may be mounted
anywhere, and links to what the view of that address needs, so that no script is read to find the next.
"""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from holdfast.http.errors import Refused, answer
from holdfast.http.lean import lean_script, lean_style

# Every address of the dashboard, and the scripts that its view begins with, which the document names so that they come with the
# others; which view it is, the page reads from the address itself.
PAGES: Final[dict[str, tuple[str, ...]]] = {
    "/": (),
    "/runs": ("views/runs",),
    "/runs/{id}": ("views/run",),
    "/runs/{id}/conversation": ("views/run", "views/run/talk"),
    "/runs/{id}/journal": ("views/run", "views/run/history"),
    "/runs/{id}/data": ("views/run", "views/run/data"),
    "/runs/{id}/audit": ("views/run", "views/audit"),
    "/runs/{id}/streams": ("views/run", "views/run/streams"),
    "/runs/{id}/streams/{name:path}": ("views/run", "views/run/streams"),
    "/approvals": ("views/approvals",),
    "/approvals/{id}": ("views/approvals", "form", "events"),
    "/compare": ("views/compare",),
    "/fleet": ("views/fleet",),
    "/fleet/{worker:path}": ("views/fleet",),
    "/agents": ("views/agents",),
    "/agents/{name:path}": ("views/agents",),
    "/schedules": ("views/schedules",),
    "/schedules/{name:path}": ("views/schedules",),
    "/conversations": ("views/conversations",),
    "/conversations/{id:path}": ("views/conversations",),
    "/audit": ("views/audit",),
    "/sign-in": ("views/sign-in",),
}
SAFE: Final = {
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_POLICY: Final = (
    # `base-uri` is 'self' for the one line that is filled in here; no text of an agent becomes markup.
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'self'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_POWERS: Final = (
    "accelerometer", "autoplay", "camera", "display-capture", "encrypted-media", "fullscreen", "geolocation", "gyroscope",
    "magnetometer", "microphone", "midi", "payment", "picture-in-picture", "publickey-credentials-get", "screen-wake-lock", "usb",
    "xr-spatial-tracking",
)  # fmt: skip
HEADERS: Final = {
    "Content-Security-Policy": _POLICY,
    "Permissions-Policy": ", ".join(f"{power}=()" for power in _POWERS),
    **SAFE,
}
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}
_PACKED: Final = (".png", ".woff2")  # no smaller by gzip
_DOCUMENTS: Final = (".html", ".svg")  # their policies hold for all that they load, so no script needs to bring one
_LEAN: Final = {".css": lean_style, ".js": lean_script}
_NAME: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(?:/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*", re.ASCII)
_BASE: Final = re.compile(rb"<base\b[^>]*>")
_IMPORTED: Final = re.compile(r'^(?:import|export)\b[^"]*? from "([^"]+)"', re.MULTILINE)
_STYLED: Final = re.compile(r'\bstyled\(.*"(\w+)"\)')
FOLDER: Final = Path(__file__).parent / "static"


@dataclass(frozen=True, slots=True)
class _File:
    """A file as it is sent, and what tells whether it has changed since it was read."""

    mark: tuple[int, ...]  # which file it is, when it was written, and its size
    body: bytes
    small: bytes  # as gzip; empty if that is no smaller
    tag: str
    imports: tuple[str, ...] = ()  # of a script, as it writes them
    sheets: tuple[str, ...] = ()  # and the styles that come with it


def mount_of(scope: Any) -> str:
    """Name the path under which the application is mounted, without a slash at its end."""
    return str(scope.get("root_path", "")).rstrip("/")


def path_in(scope: Any) -> str:
    """Name the path that is asked for, below where the application is mounted."""
    path, mount = str(scope["path"]), mount_of(scope)
    return path[len(mount) :] if mount and path.startswith(f"{mount}/") else path


class Page:
    """The files of a folder, read when they are asked for and again when they have changed."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder.resolve()
        self._read: dict[str, _File] = {}

    async def document(self, scripts: tuple[str, ...], request: Request) -> Response:
        """Answer with the document of the dashboard, whichever of its addresses was asked for: it begins with these scripts."""
        found = self._file("index.html")
        if found is None:
            return answer(Refused("unknown_path", "this installation has no dashboard: its files are missing"))
        base = f'<base href="{escape(mount_of(request.scope))}/">'.encode()
        body = _BASE.sub(lambda _: base, found.body, count=1).replace(
            b"</head>", self._links(scripts, found.body) + b"</head>", 1
        )
        return _sent(request, _made(found.mark, body, ".html"), ".html")

    async def static(self, request: Request) -> Response:
        """Answer with a file, if there is one of this name."""
        name = request.path_params["path"]
        found = self._file(name)
        if found is None:
            return answer(Refused("unknown_path", f"there is nothing at {request.url.path!r}"))
        return _sent(request, found, Path(name).suffix)

    def _links(self, scripts: tuple[str, ...], document: bytes) -> bytes:
        """Link to all that these scripts need, beside what the document names itself."""
        needed: dict[str, _File] = {}
        for each in scripts:
            self._need(f"js/{each}.js", needed)
        sheets = dict.fromkeys(sheet for file in needed.values() for sheet in file.sheets)
        lines = [f'<link rel="stylesheet" href="static/css/{each}.css" data-of="{each}">' for each in sheets]
        lines += [
            f'<link rel="modulepreload" href="static/{each}">'
            for each in needed
            if f'"static/{each}"'.encode() not in document
        ]
        return "".join(f"{each}\n" for each in lines).encode()

    def _need(self, name: str, found: dict[str, _File]) -> None:
        file = None if name in found else self._file(name)
        if file is not None:
            found[name] = file
            for each in file.imports:
                self._need(normpath(join(dirname(name), each)), found)

    def _file(self, name: str) -> _File | None:
        """Read a file of the folder; None for whatever leads out of it or is none that a browser is sent."""
        kept = self._read.get(name)
        if kept is None and (not _NAME.fullmatch(name) or Path(name).suffix not in _TYPES):
            return None
        path = self._folder / name
        try:
            mark = _mark(path)
            if kept is None or kept.mark != mark:  # a file that is still the same is still where it was
                if not path.resolve().is_relative_to(self._folder) or not path.is_file():
                    return None
                kept = self._read[name] = _made(mark, path.read_bytes(), path.suffix)
        except OSError:
            return None
        return kept


def _mark(path: Path) -> tuple[int, ...]:
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _made(mark: tuple[int, ...], body: bytes, suffix: str) -> _File:
    text = body.decode() if suffix in _LEAN else ""
    if text:
        body = _LEAN[suffix](text).encode()
    small = b"" if suffix in _PACKED else gzip.compress(body, 9, mtime=0)
    return _File(
        mark, body, small if len(small) < len(body) else b"", sha256(body).hexdigest()[:32],
        tuple(_IMPORTED.findall(text)), tuple(_STYLED.findall(text)),
    )  # fmt: skip


def _sent(request: Request, file: _File, suffix: str) -> Response:
    """Make the response; `no-cache` lets browsers keep a file, and ask whether it is still the same."""
    small = bool(file.small) and _takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{file.tag}-gz"' if small else f'"{file.tag}"'
    headers = {
        **(HEADERS if suffix in _DOCUMENTS else SAFE),
        "Cache-Control": "no-cache",
        "ETag": tag,
        "Vary": "Accept-Encoding",
    }
    if _has(request.headers.get("if-none-match", ""), tag):
        return Response(status_code=304, headers=headers)
    if small:
        headers["Content-Encoding"] = "gzip"
    return Response(file.small if small else file.body, 200, headers, _TYPES[suffix])


def _takes_gzip(accepted: str) -> bool:
    for part in accepted.lower().split(","):
        name, _, more = part.partition(";")
        if name.strip() in ("gzip", "*"):
            return not re.fullmatch(r"\s*q=0(\.0*)?\s*", more)
    return False


def _has(tags: str, tag: str) -> bool:
    return tags.strip() == "*" or tag in (each.strip().removeprefix("W/") for each in tags.split(","))

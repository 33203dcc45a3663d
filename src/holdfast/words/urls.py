"""URLs of stores as they may be shown: without anything that could be a password, also where they are written wrong.

What is shown is also a URL. Where it cannot be known whether something is a password it is left out.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

from holdfast.values.text import short

_STORES: Final = ("sqlite", "postgresql", "postgres", "file", "cells")
_NO_USER: Final = (
    "temporal",
    "cell",
)  # stores whose URLs have no user, and what is written for one: what stands there is a token
_SCHEME: Final = re.compile(r"\s*([a-z][a-z0-9+.-]*):(//)?", re.IGNORECASE)
_SECRET: Final = ("pass", "pwd", "secret", "token", "credential", "api_key", "apikey", "api-key")
_FILES: Final = ("passfile", "api_key_file")  # which have secrets, and are none
# `name=value` of a query or of a list of keywords. A value goes on until the next name: nobody knows what was not escaped.
_NAMED: Final = re.compile(r"([\w%.+-]+)(\s*=\s*)(.*?)(?=[&;\s]+[\w%.+-]+\s*=|\Z)", re.DOTALL)
_NAME: Final = re.compile(r"([\w%.+-]+)\s*=\s*")
_NO_PORT: Final = re.compile(r"(?<!:):(?!\d*(?:[/?#,]|\Z))[^/?#:\]\[]*(?=[/?#]|\Z)")  # but stands where a port would
_CLUSTER: Final = (
    "queue",
    "blobs",
    "events",
    "ca",
    "cert",
    "key",
    "tls",
    "api_key_file",
    "inputs",
)  # options that are shown
_PLAIN: Final = re.compile(r"[^@:;=?#\s]*")  # what such an option may say
_VARIABLE: Final = re.compile(r"\$[A-Za-z_]\w*", re.ASCII)
_LENGTH: Final = 4000
HIDDEN: Final = "***"


def redacted(url: object) -> str:
    """The URL as it may be shown, stored, logged and sent to anybody."""
    if not isinstance(url, str) or len(url) > _LENGTH:
        return f"<{len(url)} characters>" if isinstance(url, str) else short(url)
    return _of_cluster(url) or _NAMED.sub(_named, _without_password(url))


def _of_cluster(url: str) -> str | None:
    """Show the URL of a Temporal cluster; None if it is none, or something like a password stands where none belongs.

    Of its options those are shown that are known to say nothing secret. What `side=` says is the URL of another store, which may be
    written as it is, so what follows belongs to it as long as there is an '@' to come.
    """
    found, (base, mark, query) = _SCHEME.match(url), url.partition("?")
    if found is None or _scheme(found) != "temporal":
        return None
    shown: list[str] = []
    pieces = query.split("&") if mark else []
    for place, piece in enumerate(pieces):
        shown.append(_option(piece))
        if "@" in piece and not piece.startswith("side="):
            return None
        if shown[-1] == f"side={HIDDEN}" and any("@" in each for each in pieces[place + 1 :]):
            break
    return _without_password(base) + mark + "&".join(shown)


def _option(piece: str) -> str:
    name, given, value = piece.partition("=")
    if name in _CLUSTER and _PLAIN.fullmatch(value):
        return piece
    if name == "side" and _VARIABLE.fullmatch(value):
        return piece
    harmless = given and re.fullmatch(r"[a-z_]{1,20}", name)
    return f"{name}={HIDDEN}" if harmless else HIDDEN


def _without_password(text: str) -> str:
    found = _SCHEME.match(text)
    known = found is not None and (bool(found[2]) or _scheme(found) in (*_STORES, *_NO_USER))
    start = found.end() if found is not None and known else 0
    rest = text[start:]
    at, colon = rest.rfind("@"), rest.find(":")
    if colon < 0 or -1 < rest.find("@") < colon:  # a user without a password, if there is one
        alone = at >= 0 and found is not None and known and _scheme(found) not in _STORES
        return f"{text[:start]}{HIDDEN}{rest[at:]}" if alone else text  # elsewhere that is a token, or may be
    if at >= 0 and found is not None and _scheme(found) in _NO_USER:
        return f"{text[:start]}{HIDDEN}{rest[at:]}"
    if at >= 0:
        is_path = text[:start].strip().lower() == "sqlite:" and "/" in rest[:colon]
        return text if is_path else text[:start] + rest[:colon] + rest[at:]
    return text[:start] + _NO_PORT.sub("", rest)


def _scheme(found: re.Match[str]) -> str:
    return found[1].lower().partition("+")[0]


def _named(found: re.Match[str]) -> str:
    for each in _NAME.finditer(found[0]):  # also where a value should be: somebody has left one out
        name = unquote(each[1]).lower()
        secret = any(word in name for word in _SECRET) and name not in _FILES
        if secret or (name == "side" and not found[0][each.end() :].startswith("$")):  # it is the URL of another store
            return f"{found[0][: each.end()]}{HIDDEN}"
    return found[0]


def redacted_words(text: str) -> str:
    """A text in which a word may be a URL, as one that was typed in the wrong place."""
    return re.sub(r"""(['"`(\[]*)(\S*(?:://|:\S*@)\S*)""", lambda found: found[1] + redacted(found[2]), text)


def without_secrets(text: str, url: str) -> str:
    """A text of somebody else's, such as an error of a driver, without what is not shown of the URL."""
    shown = redacted(url)
    pieces = {piece for form in (url, unquote(url)) for piece in re.split(r"[:@/?#&;=,\s'\"]+", form)}
    for piece in sorted(pieces, key=len, reverse=True):
        if len(piece) > 2 and piece not in shown:
            text = text.replace(piece, HIDDEN)
    return text

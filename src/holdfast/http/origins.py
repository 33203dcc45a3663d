"""Origins: where browsers reach this server, and which of their requests are those of its own page.

A browser sends a cookie to every port of a host, and with what a page of another port asks. So a cookie alone names a
person, and does not say that this person meant it. Whatever changes something needs an `Origin` that is this server's,
and a header that only a page of this server can send. Without an address of its own a server is this computer's: then
its host must be called so, and nothing may say that it was passed on.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request

from holdfast.errors import BadArguments
from holdfast.http.errors import Refused
from holdfast.values.text import cut, short

PAGE: Final = "x-holdfast-page"  # a page of another site cannot send it: it would have to ask first, and is refused
# What proxies, tunnels and content networks add, each in its own way.
_PASSED_ON: Final = re.compile(
    r"forwarded|via|x-forwarded.*|x-original-.*|x-rewrite-url|(x-|true-|x-cluster-|fastly-)?client-ip|x-real-.*|x-host|x-proxy.*"
    r"|(cf|fly|fastly|ngrok|tailscale|wl-proxy|cdn|x-envoy|x-amzn?|x-amz-cf|x-azure|x-appengine|x-arr|x-vercel|x-nf|x-varnish)-.*"
    r"|x-varnish|client-ip|proxy-.*"
)
_SAFE: Final = ("GET", "HEAD")
_PORTS: Final = {"https": 443, "http": 80}


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of a server's own pages: that of its address, or, without one, this computer's."""

    url: str | None = None

    @classmethod
    def parse(cls, text: str | None) -> Origin:
        """Read an address as it is typed: https, or http of this computer alone, because a session goes over it."""
        if text is None:
            return cls()
        wanted = "it is how browsers reach this server, such as https://agents.example.com"
        try:
            parts = urlsplit(text)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            raise BadArguments(f"--url {short(text)} is no address; {wanted}") from None
        plain = parts.scheme == "http" and is_loopback(host)
        if (
            not host
            or not text.isascii()
            or parts.query
            or parts.fragment
            or "@" in parts.netloc
            or re.search(r"\s", text)
        ):
            raise BadArguments(f"--url {short(text)} is no address; {wanted}")
        if parts.scheme != "https" and not plain:
            raise BadArguments(
                f"--url {short(text)}: sessions are for https, because anybody on the way could read their cookie. Let a "
                "proxy speak https before this server"
            )
        named = f"[{host}]" if ":" in host else host
        shown = named if port in (None, _PORTS[parts.scheme]) else f"{named}:{port}"
        return cls(f"{parts.scheme}://{shown}{parts.path.rstrip('/')}")

    @property
    def path(self) -> str:
        """The path below which it is reached; a proxy takes it away."""
        return "" if self.url is None else urlsplit(self.url).path

    @property
    def is_secret(self) -> bool:
        """Is what browsers send it encrypted on its way?"""
        return self.url is not None and self.url.startswith("https:")

    def cookie(self, request: Request) -> str:
        """Name a session's cookie. Other ports of a host get it too, and have their own."""
        if self.is_secret:
            return "__Host-holdfast_session"
        server = request.scope.get("server") or ("", 0)
        return f"holdfast_session_{server[1]}"

    def check(self, request: Request) -> None:
        """Refuse a request of a browser that no page of this server has made."""
        own = self._own(request)
        origin = request.headers.get("origin")
        if origin is not None and origin != own:
            raise Refused(
                "foreign_request", f"the request comes from a page of {cut(origin, 100)!r}, and this server is {own}"
            )
        if request.method in _SAFE:
            return
        if origin is None:
            raise Refused(
                "foreign_request", "the request of a session does not say which page it comes from: it has no Origin"
            )
        if request.headers.get(PAGE) != "1":
            raise Refused(
                "foreign_request", "the request of a session is not of this server's page: X-Holdfast-Page is not 1"
            )

    def address(self, request: Request) -> str:
        """Name the address of this server's pages, as the browser that asks knows it; `Refused` if that is no page of it."""
        return self.url or self._own(request)

    def _own(self, request: Request) -> str:
        host = request.headers.get("host", "")
        if self.url is None:
            check_local(request)
            return f"{request.url.scheme}://{host}"
        parts = urlsplit(self.url)
        name = _without_port(host)
        if name != parts.hostname and not is_loopback(name):
            told = f"the request is for the host {cut(host, 100)!r}, and this server is {self.url}"
            raise Refused("foreign_request", f"{told}: let the proxy pass Host on as it is")
        return f"{parts.scheme}://{parts.netloc}"


def is_loopback(host: str) -> bool:
    """Does this name or address mean this computer, for itself alone?"""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_local(request: Request) -> None:
    """Refuse all but programs of this computer, and pages that this server has sent, that ask directly."""
    host = request.headers.get("host", "")
    if not is_loopback(_without_port(host)):
        raise Refused("foreign_request", f"the request is for the host {host!r}, and this server is this computer's")
    origin = request.headers.get("origin")
    if origin is not None and origin != f"{request.url.scheme}://{host}":
        raise Refused("foreign_request", f"the request comes from a page of {origin!r}")
    for name in request.headers:
        if _PASSED_ON.fullmatch(name):
            raise Refused("foreign_request", f"the request was passed on by a proxy: it has {cut(name, 40)!r}")


def _without_port(host: str) -> str:
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).strip("[]").lower()

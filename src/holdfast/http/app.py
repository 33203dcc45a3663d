"""The whole server as an ASGI application: the paths, and what stands in front of each."""

from __future__ import annotations

import asyncio
import functools

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.client.client import Client
from holdfast.client.documents import json_bytes
from holdfast.client.edge import Edge
from holdfast.http import oidc
from holdfast.http.auth import OwnPages, Tokens
from holdfast.http.callers import Provider, SignIn
from holdfast.http.errors import Refused, answer
from holdfast.http.follow import Followers
from holdfast.http.health import Health
from holdfast.http.login import Entrance
from holdfast.http.openapi import description
from holdfast.http.overview import overview
from holdfast.http.page import PAGES, Page, path_in
from holdfast.http.paths import by_route
from holdfast.http.requests import Receiver


def application(hf: Client, guard: Tokens, followers: Followers, provider: oidc.Provider | None = None) -> Starlette:
    """Serve an open client to callers that the guard knows. `followers.closing` tells followers to come back."""
    health = Health(Edge(hf), followers)
    entrance = Entrance(hf, guard)
    receiver, page = Receiver(hf, guard, followers, health.served), Page()

    async def failed(_: Request, error: Exception) -> Response:
        return answer(error, Edge(hf).url)

    async def openapi(_: Request) -> Response:
        return Response(_described(), media_type="application/json")

    routes = [
        Route("/static/{path:path}", page.static),  # first, because most requests are for files
        *(Route(path, functools.partial(page.document, scripts)) for path, scripts in PAGES.items()),
        Route("/api", overview),
        Route("/healthz", health.alive),
        Route("/readyz", health.ready),
        Route("/metrics", health.metrics),
        Route("/openapi.json", openapi),
        Route("/session", entrance.serve, methods=["POST", "DELETE"]),
    ]
    if provider is not None:
        away = oidc.SignIn(hf, guard, entrance, provider)
        routes += [Route("/sign-in/oidc", away.leave), Route("/sign-in/oidc/back", away.back)]
    for path, endpoints in by_route().items():
        routes.append(Route(path, functools.partial(receiver.serve, endpoints), methods=list(endpoints)))

    async def lost(request: Request, error: Exception) -> Response:
        """Answer that there is no such path; to a browser, by the page."""
        told = _lost(request, error)
        if told.status_code != 404 or path_in(request.scope).startswith(("/api", "/static/")) or not _is_shown(request):
            return told
        found = await page.document(("views/lost",), request)
        found.status_code = 404 if found.status_code == 200 else found.status_code
        return found

    failures = {HTTPException: lost, Exception: failed}
    app = Starlette(routes=routes, middleware=[Middleware(OwnPages)], exception_handlers=failures)
    app.router.redirect_slashes = False
    app.state.bundles = asyncio.Semaphore(1)
    app.state.ways = SignIn(token=True, oidc=None if provider is None else Provider(provider.label))
    return app


@functools.cache
def _described() -> bytes:
    """Made once: anybody may ask for it, as often as they like."""
    return json_bytes(description())


def _is_shown(request: Request) -> bool:
    """Does a browser ask for a document to show?"""
    return request.method == "GET" and "text/html" in request.headers.get("accept", "")


def _lost(request: Request, error: Exception) -> Response:
    """Answer that there is no such path, or that it is asked with another method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = (error.headers or {}).get("Allow", "")
        told = f"{request.method} is not what {request.url.path!r} is asked with; it is {allowed}"
        return answer(Refused("wrong_method", told, error.headers))
    return answer(Refused("unknown_path", f"there is nothing at {request.url.path!r}"))

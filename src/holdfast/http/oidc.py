"""OpenID Connect: a provider knows people, and tells this server which one came: /sign-in/oidc and /sign-in/oidc/back.

The authorization code flow with PKCE. What a browser must bring back (state, nonce, verifier) is in a cookie of its own, so that
any server of the store can take it, and nothing is kept for strangers. A person who is known by the token that the provider has
signed begins a session; the state is used up in that moment. Groups say what a person may do, as the operator has
granted it: a person who is in none of them does not come in.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.client.client import Client
from holdfast.client.edge import Edge
from holdfast.client.sessions import Identity
from holdfast.client.tokens import SCOPES, Scope
from holdfast.errors import BadArguments
from holdfast.http.auth import Tokens, note_refused, unauthorized
from holdfast.http.login import Entrance
from holdfast.http.origins import is_loopback
from holdfast.http.page import mount_of
from holdfast.http.requests import answered
from holdfast.values.text import cut, short
from holdfast.words.harmless import logger
from holdfast.words.people import Actor, checked_name

_ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
)  # keys in public
_WITHIN_S: Final = 600  # from leaving to coming back
_SKEW_S: Final = 60  # that clocks may differ
_DEADLINE_S: Final = 10.0
_MOST_BYTES: Final = 1024 * 1024  # of an answer of the provider
_KEPT_S: Final = 3600  # for which what the provider says of itself is believed
_AGAIN_S: Final = 60  # before keys are asked for again because one is not known
_AT_ONCE: Final = 8  # requests to the provider; others wait
_MOST_GROUPS: Final = 500
_INSIDE: Final = re.compile(r"(?![/\\])[\w.~%?=&@:+,/-]{0,1000}", re.ASCII)
_log = logger("holdfast.http")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider as the operator declares it."""

    issuer: str
    client: str
    grants: Mapping[str, tuple[Scope, ...]]  # by group; "*" is everybody whom the provider knows
    secret: str = ""
    label: str = ""  # on the button
    name_claim: str = "email"
    groups_claim: str = "groups"

    @classmethod
    def parse(
        cls, issuer: str | None, client: str | None, grants: Iterable[str], *, secret: str = "", label: str = "", claims: str = ""
    ) -> Provider | None:  # fmt: skip
        """Read what is typed; None without an issuer, `BadArguments` if something cannot be used."""
        if not issuer:
            if client or tuple(grants) or label or claims:
                raise BadArguments(
                    "--oidc names the provider: give its address, such as --oidc https://login.example.com"
                )
            return None
        _check_address(issuer, "--oidc")
        if not client:
            raise BadArguments("--oidc-client is missing: the id under which the provider knows this server")
        granted = dict(_grant(each) for each in grants)
        if not granted:
            raise BadArguments(
                "--oidc-grant is missing: say what groups may do, --oidc-grant ops=read+write+decide; '*=read' is everybody "
                "whom the provider knows"
            )
        chosen = {"name": "email", "groups": "groups"}
        for part in filter(None, claims.split(",")):
            key, equals, value = part.strip().partition("=")
            if not equals or not value or key not in chosen:
                raise BadArguments(
                    f"--oidc-claims {short(part)}: write name=email,groups=groups with the claims of the provider"
                )
            chosen[key] = value
        _check_installed()
        shown = label or urlsplit(issuer).netloc
        return cls(issuer.rstrip("/"), client, granted, secret, shown, chosen["name"], chosen["groups"])

    def scopes(self, groups: Iterable[str]) -> frozenset[Scope]:
        """Join what these groups may do."""
        return frozenset(scope for group in ("*", *groups) for scope in self.grants.get(group, ()))


def _grant(text: str) -> tuple[str, tuple[Scope, ...]]:
    group, equals, words = text.rpartition("=")
    scopes = tuple(scope for scope in SCOPES if scope in words.split("+"))
    if not equals or not group or len(scopes) != len(words.split("+")):
        raise BadArguments(f"--oidc-grant {short(text)}: write GROUP=read+decide, with any of {', '.join(SCOPES)}")
    return group, scopes


def _check_address(url: str, what: str) -> None:
    """Refuse an address at which anybody on the way could forge identities."""
    try:
        parts = urlsplit(url)
        plain = parts.scheme == "http" and is_loopback(parts.hostname or "")
        if (parts.scheme == "https" or plain) and parts.hostname and not parts.query and not parts.fragment:
            return
    except ValueError:
        pass
    raise BadArguments(
        f"{what} {short(url)}: a provider is at an address with https, such as https://login.example.com"
    )


class Unproved(Exception):
    """An answer that proves no identity; the text is for the log and for people."""


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


@dataclass
class _Known:
    """Something the provider has said, and when."""

    at: float = -1e9
    value: Any = None


@dataclass
class Talk:
    """Requests of this server to the provider, and what it has said of itself."""

    provider: Provider
    _about: _Known = field(default_factory=_Known)
    _keys: _Known = field(default_factory=_Known)
    _room: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE))

    async def about(self) -> dict[str, Any]:
        """Read where the provider's paths are, from what it publishes of itself."""
        if time.monotonic() > self._about.at + _KEPT_S:
            found = await self._ask(f"{self.provider.issuer}/.well-known/openid-configuration")
            if found.get("issuer", "").rstrip("/") != self.provider.issuer:
                raise Unproved("the provider calls itself by another name than --oidc")
            for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                try:
                    _check_address(str(found.get(name, "")).partition("?")[0], name)
                except BadArguments as wrong:
                    raise Unproved(str(wrong)) from None
            self._about = _Known(time.monotonic(), found)
        known: dict[str, Any] = self._about.value
        return known

    async def tokens(self, code: str, verifier: str, back: str) -> dict[str, Any]:
        """Exchange a code for what it stands for."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": back, "code_verifier": verifier}
        headers = {}
        if self.provider.secret:
            pair = urlencode({"": self.provider.client})[1:] + ":" + urlencode({"": self.provider.secret})[1:]
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = self.provider.client
        return await self._ask((await self.about())["token_endpoint"], urlencode(form).encode(), headers)

    async def claims(self, token: str, nonce: str) -> dict[str, Any]:
        """Read a token that the provider has signed for this server and this sign-in; `Unproved` if it is any other."""
        found = await self._verified(token)
        audience = found.get("aud")
        named = [audience] if isinstance(audience, str) else audience
        now = time.time()
        wrong = None
        if found.get("iss") != (await self.about())["issuer"]:
            wrong = "is of another issuer"
        elif not isinstance(named, list) or self.provider.client not in named:
            wrong = "is for another client"
        elif (len(named) > 1 or "azp" in found) and found.get("azp") != self.provider.client:
            wrong = "was given to another client"
        elif not isinstance(found.get("exp"), int | float) or found["exp"] <= now - _SKEW_S:
            wrong = "has expired"
        elif (
            not isinstance(found.get("iat"), int | float)
            or found["iat"] > now + _SKEW_S
            or found.get("nbf", 0) > now + _SKEW_S
        ):
            wrong = "is of the future"
        elif not _same(str(found.get("nonce", "")), nonce):
            wrong = "is of another sign-in"
        elif not found.get("sub"):
            wrong = "names nobody"
        if wrong is not None:
            raise Unproved(f"the token of the provider {wrong}")
        return found

    async def _verified(self, token: str) -> dict[str, Any]:
        from joserfc import jwt  # noqa: PLC0415 - of an extra
        from joserfc.errors import JoseError  # noqa: PLC0415
        from joserfc.jwk import KeySet  # noqa: PLC0415

        for again in (False, True):
            if time.monotonic() > self._keys.at + (_AGAIN_S if again else _KEPT_S):
                found = await self._ask((await self.about())["jwks_uri"])
                self._keys = _Known(time.monotonic(), found)
            elif again:
                break
            try:
                keys = KeySet.import_key_set(self._keys.value)
                return dict(jwt.decode(token, keys, algorithms=list(_ALGORITHMS)).claims)
            except (JoseError, ValueError, TypeError, KeyError) as error:
                wrong = type(error).__name__
        raise Unproved(f"the token of the provider is not signed by it ({wrong})")

    async def _ask(
        self, url: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        async with self._room:
            try:
                found = await asyncio.to_thread(_fetched, url, body, dict(headers or {}))
            except (OSError, ValueError) as error:
                status = f" with {error.code}" if isinstance(error, urllib.error.HTTPError) else ""
                raise Unproved(f"the provider did not answer{status} at {urlsplit(url).path}") from None
        if not isinstance(found, dict):
            raise Unproved("the provider answered something else than a document")
        return found


def _fetched(url: str, body: bytes | None, headers: dict[str, str]) -> Any:
    asked = urllib.request.Request(url, body, {"Accept": "application/json", **headers})  # noqa: S310 - the address was checked
    with urllib.request.build_opener(_NoRedirect).open(asked, timeout=_DEADLINE_S) as answer:
        text = answer.read(_MOST_BYTES + 1)
    if len(text) > _MOST_BYTES:
        raise ValueError("too large")
    return json.loads(text)


def _same(one: str, other: str) -> bool:
    """Compare what strangers send, which may be any text, in a time that tells nothing."""
    return hmac.compare_digest(one.encode(errors="surrogatepass"), other.encode(errors="surrogatepass"))


class SignIn:
    """Serves the two paths."""

    def __init__(self, hf: Client, guard: Tokens, entrance: Entrance, provider: Provider) -> None:
        self._hf, self._edge, self._guard, self._entrance, self._talk = hf, Edge(hf), guard, entrance, Talk(provider)

    async def leave(self, request: Request) -> Response:
        """Send a browser to the provider."""
        return await answered(self._hf, request, "/sign-in/oidc", self._leave(request))

    async def back(self, request: Request) -> Response:
        """Take a browser that comes from the provider; whatever is wrong is told on the page where people sign in."""
        return await answered(self._hf, request, "/sign-in/oidc/back", self._back(request))

    async def _leave(self, request: Request) -> Response:
        provider = self._talk.provider
        own, to = self._guard.origin.address(request), request.query_params.get("to", "")
        to = to if _INSIDE.fullmatch(to) else ""
        try:
            about = await self._talk.about()
        except Unproved as wrong:
            return self._refused(request, str(wrong), to)
        state, nonce, verifier = (
            f"{int(time.time())}.{secrets.token_urlsafe(32)}",
            secrets.token_urlsafe(32),
            secrets.token_urlsafe(48),
        )
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code", "client_id": provider.client, "redirect_uri": f"{own}/sign-in/oidc/back", "state": state,
            "scope": "openid profile email", "nonce": nonce, "code_challenge": challenge, "code_challenge_method": "S256",
        }  # fmt: skip
        place = about["authorization_endpoint"]
        response = RedirectResponse(f"{place}{'&' if '?' in place else '?'}{urlencode(asked)}", 303)
        kept = json.dumps([state, nonce, verifier, to])
        self._keep(request, response, base64.urlsafe_b64encode(kept.encode()).decode(), _WITHIN_S)
        return response

    async def _back(self, request: Request) -> Response:
        own = self._guard.origin.address(request)
        self._guard.tries.allow(request, "")
        to = ""
        try:
            *began, to = self._brought(request)
            who = await self._proved(request, f"{own}/sign-in/oidc/back", *began)
        except Unproved as wrong:
            self._guard.tries.wrong(request)
            return self._refused(request, str(wrong), to)
        begun = await self._entrance.begin(request, who, f"person {who.actor.name}")
        response = RedirectResponse(f"{mount_of(request.scope)}/{to}", 303)
        self._entrance.admit(request, response, begun)
        self._keep(request, response, "", 0)
        return response

    async def _proved(self, request: Request, back: str, state: str, nonce: str, verifier: str) -> Identity:
        """Find out which person came back."""
        given = request.query_params
        if not _same(given.get("state", ""), state):
            raise Unproved("this sign-in did not begin in this browser")
        if not time.time() - _WITHIN_S < float(state.partition(".")[0]) < time.time() + _SKEW_S:
            raise Unproved("this sign-in took too long")
        if "error" in given or not given.get("code"):
            raise Unproved(f"the provider refused: {cut(given.get('error', 'it sent no code'), 60)}")
        if "iss" in given and given["iss"] != (await self._talk.about())["issuer"]:
            raise Unproved("another provider answered")
        told = await self._talk.tokens(given["code"], verifier, back)
        claims = await self._talk.claims(str(told.get("id_token", "")), nonce)
        who = self._person(claims)
        if not await self._edge.use_once(f"oidc {state}", 2 * _WITHIN_S):
            raise Unproved("this sign-in has been used")
        return who

    def _brought(self, request: Request) -> tuple[str, str, str, str]:
        """Read what the browser was given when it left: state, nonce, verifier, and where that person was going."""
        try:
            cookie = request.cookies.get(self._cookie(request), "")
            state, nonce, verifier, to = json.loads(base64.urlsafe_b64decode(cookie.encode()))
            found = str(state), str(nonce), str(verifier), str(to)
            float(found[0].partition(".")[0])
        except (ValueError, TypeError, RecursionError):
            raise Unproved("this sign-in did not begin in this browser, or long ago") from None
        if not _INSIDE.fullmatch(found[3]):
            raise Unproved("this sign-in leads elsewhere")
        return found

    def _person(self, claims: dict[str, Any]) -> Identity:
        provider = self._talk.provider
        name = claims.get(provider.name_claim)
        if provider.name_claim == "email" and claims.get("email_verified") is not True:
            raise Unproved(
                "the provider has not verified this person's email; --oidc-claims name=sub names people otherwise"
            )
        try:
            name = checked_name(name, "name")  # type: ignore[arg-type]
        except BadArguments:
            raise Unproved(f"the token of the provider has no {provider.name_claim!r} that can be a name") from None
        groups = [group for group in _listed(claims.get(provider.groups_claim)) if _is_name(group)][:_MOST_GROUPS]
        scopes = provider.scopes(groups)
        if not scopes:
            raise Unproved(f"{name!r} is in no group that may come in; --oidc-grant says which may")
        return Identity(Actor(name, tuple(groups)), scopes, "oidc")

    def _refused(self, request: Request, why: str, to: str) -> Response:
        """Lead back to the page where people sign in, with what was wrong: behind the #, which only the page reads."""
        _log.warning("a sign-in with %s was refused: %s", self._talk.provider.label, why)
        note_refused(self._hf, request, "/sign-in/oidc/back", unauthorized(why))
        query = f"?{urlencode({'to': to})}" if to else ""
        response = RedirectResponse(f"{mount_of(request.scope)}/sign-in{query}#{urlencode({'problem': why})}", 303)
        self._keep(request, response, "", 0)
        return response

    def _cookie(self, request: Request) -> str:
        return self._guard.origin.cookie(request).replace("session", "oidc")

    def _keep(self, request: Request, response: Response, text: str, seconds: int) -> None:
        """Have the browser keep what it must bring back: to a page of another site that leads here, so not strictly."""
        secure = self._guard.origin.is_secret
        response.set_cookie(self._cookie(request), text, max_age=seconds, secure=secure, httponly=True, samesite="lax")


def _listed(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


def _is_name(group: str) -> bool:
    try:
        checked_name(group, "groups")
    except BadArguments:
        return False
    return True


def _check_installed() -> None:
    """Say what is missing before anybody signs in."""
    try:
        import joserfc  # noqa: F401, PLC0415
    except ModuleNotFoundError:
        raise BadArguments('sign-in with a provider needs joserfc: pip install "holdfast[oidc]"') from None

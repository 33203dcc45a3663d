"""Sign-in with a provider: real HTTP and real signatures, from the button to the session, and everything that proves nothing."""

import asyncio
import base64
import time
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from joserfc.jwk import RSAKey
from tests.http.provider import OidcProvider

import holdfast
from holdfast.http import oidc
from holdfast.http.oidc import Provider
from holdfast.http.server import listening, serving

GRANTS = ("editors=read+decide", "ops=read+write+decide")


@asynccontextmanager
async def site(tmp_path, grants=GRANTS, **more):
    """A server that knows a provider, and browsers."""
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(asyncio.timeout(60))
        idp = stack.enter_context(OidcProvider())
        hf = await stack.enter_async_context(holdfast.open(f"sqlite:{tmp_path}/runs.db"))
        provider = Provider.parse(idp.issuer, "holdfast-1", grants, secret="s3cret", label="Example", **more)
        listener = stack.enter_context(listening("127.0.0.1", 0))
        address = await stack.enter_async_context(serving(hf, listener, provider=provider))

        async def browser():
            return await stack.enter_async_context(httpx2.AsyncClient(base_url=address, timeout=20))

        yield idp, hf, browser


async def gone(web, to=""):
    """The address of the provider to which a browser is sent."""
    left = await web.get("/sign-in/oidc", params={"to": to} if to else {})
    assert left.status_code == 303, left.text
    return left.headers["location"]


async def returned(web, place):
    """Where the provider leads back to."""
    answer = await web.get(place)
    assert answer.status_code == 302
    return answer.headers["location"]


async def signed_in(web, to=""):
    return await web.get(await returned(web, await gone(web, to)))


def refused(answer):
    """Why it was, as the page tells it; there is no session."""
    assert answer.status_code == 303, answer.text
    assert "session" not in answer.headers.get("set-cookie", "")
    place = urlsplit(answer.headers["location"])
    assert place.path == "/sign-in"
    return parse_qs(place.fragment)["problem"][0]


async def test_a_person_whom_the_provider_knows_comes_in(tmp_path):
    """With groups, and what they may do here; the audit has the door; to revoke the name ends the session."""
    async with site(tmp_path) as (idp, hf, browser):
        web = await browser()
        assert (await web.get("/api/sign-in")).json() == {"token": True, "oidc": {"name": "Example"}}
        done = await signed_in(web, "approvals/q-1?x=1")
        assert (done.status_code, done.headers["location"]) == (303, "/approvals/q-1?x=1")
        cookies = done.headers.get_list("set-cookie")
        assert any("holdfast_session" in each and "SameSite=strict" in each and "HttpOnly" in each for each in cookies)
        me = (await web.get("/api/me")).json()
        assert (me["name"], me["groups"], me["scopes"]) == ("ana@example.com", ["editors", "staff"], ["read", "decide"])
        assert me["via"] == "session"
        assert (await web.get("/api/runs")).status_code == 200
        own = {"Origin": str(web.base_url).rstrip("/"), "X-Holdfast-Page": "1"}
        assert (await web.post("/api/runs", json={}, headers=own)).status_code == 403  # her groups do not write
        (deed,) = await hf.audit(action="sign_in")
        assert (deed.by, deed.via) == ("ana@example.com", "oidc")
        await hf.revoke_token("ana@example.com")
        assert (await web.get("/api/me")).status_code == 401
        assert idp.uses == 1


WRONG = {
    "another nonce": ({"nonce": "x"}, "of another sign-in"),
    "no nonce": ({"nonce": None}, "of another sign-in"),
    "another audience": ({"aud": "other"}, "for another client"),
    "no audience": ({"aud": None}, "for another client"),
    "several audiences": ({"aud": ["holdfast-1", "other"]}, "given to another client"),
    "another party": ({"azp": "other"}, "given to another client"),
    "another issuer": ({"iss": "https://evil.example"}, "of another issuer"),
    "expired": ({"exp": int(time.time()) - 3600}, "has expired"),
    "no end": ({"exp": None}, "has expired"),
    "of the future": ({"iat": int(time.time()) + 3600}, "of the future"),
    "not yet": ({"nbf": int(time.time()) + 3600}, "of the future"),
    "nobody": ({"sub": None}, "names nobody"),
    "an unverified email": ({"email_verified": False}, "has not verified"),
    "no email": ({"email": None}, "can be a name"),
    "in no group": ({"groups": ["staff"]}, "in no group"),
    "no groups": ({"groups": None}, "in no group"),
}


async def test_tokens_that_prove_nothing_are_refused(tmp_path, monkeypatch):
    """Each claim, one by one; the right one is taken afterwards by the same server."""
    monkeypatch.setattr("holdfast.http.tries.WRONG_MOST", 1000)
    async with site(tmp_path) as (idp, hf, browser):
        for name, (spoil, told) in WRONG.items():
            idp.spoil = spoil
            assert told in refused(await signed_in(await browser())), name
        idp.spoil = {}
        for how in ("none", "hmac", "forged", "unsigned"):
            idp.how = how
            assert "not signed by it" in refused(await signed_in(await browser())), how
        idp.how = "right"
        assert (await signed_in(await browser())).headers["location"] == "/"
        assert len(await hf.audit(action="sign_in")) == 1


async def test_a_state_is_of_one_browser_and_good_once(tmp_path, monkeypatch):
    """Neither another browser's, nor one that was used, nor an old one; also where the provider would give a code twice."""
    async with site(tmp_path) as (idp, _, browser):
        idp.keeps_codes = True
        victim, thief = await browser(), await browser()
        place = await returned(victim, await gone(victim))
        assert "did not begin in this browser" in refused(await thief.get(place))
        await gone(thief)  # it has begun one of its own
        assert "did not begin in this browser" in refused(await thief.get(place))
        kept = dict(victim.cookies)
        assert (await victim.get(place)).headers["location"] == "/"
        replaying = await browser()
        for name, value in kept.items():
            replaying.cookies.set(name, value)
        assert "has been used" in refused(await replaying.get(place))
        other = await browser()
        place = await returned(other, await gone(other))
        monkeypatch.setattr(oidc, "_WITHIN_S", -1)
        assert "took too long" in refused(await other.get(place))


async def test_what_the_provider_says_no_to(tmp_path):
    """An error instead of a code, another issuer's answer, and a provider that is away."""
    async with site(tmp_path) as (idp, _, browser):
        web = await browser()
        place = await returned(web, await gone(web))
        query = parse_qs(urlsplit(place).query)
        state = query["state"][0]
        denied = await web.get("/sign-in/oidc/back", params={"error": "access_denied", "state": state})
        assert "access_denied" in refused(denied)
        web = await browser()
        place = await returned(web, await gone(web))
        assert "another provider" in refused(await web.get(place + "&iss=https%3A%2F%2Fevil.example"))
        web = await browser()
        place = await returned(web, await gone(web))
        idp.codes.clear()
        assert "did not answer with 400" in refused(await web.get(place))


async def test_a_state_or_cookie_of_a_stranger_is_refused_whatever_it_is(tmp_path):
    async with site(tmp_path) as (_, _, browser):
        web = await browser()
        await gone(web)
        assert "did not begin" in refused(await web.get("/sign-in/oidc/back", params={"state": "\u00e9"}))
        web = await browser()
        await gone(web)
        ((name, _),) = web.cookies.items()
        web.cookies.clear()
        web.cookies.set(name, base64.urlsafe_b64encode(b"[" * 9000).decode())
        assert "did not begin" in refused(await web.get("/sign-in/oidc/back", params={"state": "x"}))


async def test_keys_are_asked_for_again_when_one_is_not_known(tmp_path, monkeypatch):
    """A provider changes its keys; not more often than once in a while, whatever comes."""
    monkeypatch.setattr(oidc, "_AGAIN_S", 0)
    async with site(tmp_path) as (idp, _, browser):
        assert (await signed_in(await browser())).headers["location"] == "/"
        idp.key = RSAKey.generate_key(2048, {"kid": "k1", "use": "sig", "alg": "RS256"})
        assert (await signed_in(await browser())).headers["location"] == "/"
        assert idp.asked.count("/keys") == 2
        monkeypatch.setattr(oidc, "_AGAIN_S", 60)
        idp.how = "forged"
        for _ in range(3):
            refused(await signed_in(await browser()))
        assert idp.asked.count("/keys") == 2


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "\\evil", "a\nb", "x" * 2000]
)
async def test_it_leads_nowhere_else(tmp_path, to):
    """Wherever the link said."""
    async with site(tmp_path, ["*=read"]) as (_, _, browser):
        web = await browser()
        done = await signed_in(web, to)
        place = urlsplit(done.headers["location"])
        assert (place.netloc, done.headers["location"][:2]) != ("evil.example", "//")
        assert done.headers["location"].startswith("/") and not done.headers["location"].startswith(("//", "/\\"))
        assert (await web.get("/api/me")).json()["scopes"] == ["read"]  # everybody may


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({"issuer": "http://login.example.com"}, "with https"),
        ({"issuer": "login.example.com"}, "with https"),
        ({"client": None}, "--oidc-client is missing"),
        ({"grants": ()}, "--oidc-grant is missing"),
        ({"grants": ("ops",)}, "write GROUP=read"),
        ({"grants": ("ops=all",)}, "write GROUP=read"),
        ({"claims": "person=x"}, "name=email,groups=groups"),
        ({"issuer": None}, "--oidc names the provider"),
    ],
)
def test_what_cannot_be_a_provider_is_refused(how, told):
    given = {"issuer": "https://login.example.com", "client": "c", "grants": ("ops=read",), "claims": ""} | how
    with pytest.raises(holdfast.BadArguments, match=told):
        Provider.parse(given["issuer"], given["client"], given["grants"], claims=given["claims"])

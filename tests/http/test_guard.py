"""Who may ask: tokens, what each may do, and how requests that a web page forges are told from others."""

import asyncio
import getpass

import httpx2
import pytest
from tests.http.serving import on_a_server, served

import holdfast
from holdfast.http.paths import PATHS
from holdfast.http.server import listening, serving


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@on_a_server
async def test_once_there_is_a_token_all_of_the_api_needs_one(site):
    """Each path says 401 without one, and with one that is wrong in any way; health and the description stay open."""
    token, secret = await site.hf.create_token("ana")
    wrong = [
        "",
        "Bearer",
        "Basic YTpi",
        f"Bearer {secret}x",
        f"Bearer {secret[:-1]}",
        f"Bearer holdfast_{token.id}_{'a' * 43}",
    ]
    asked = [(each, None) for each in PATHS] + [(PATHS[0], given) for given in wrong]
    for each, given in asked:
        headers = {} if given is None else {"Authorization": given}
        answer = await site.web.request(each.method, each.path.replace("{", "").replace("}", ""), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await site.web.get("/api/runs", headers=bearer(secret))).status_code == 200
    for path in ("/", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await site.web.get(path)).status_code == 200


@on_a_server
async def test_a_revoked_token_is_refused_at_once_and_keeps_the_door_closed(site):
    """By id and by name; and a store that has had a token is not open to everybody again."""
    first, secret = await site.hf.create_token("ana")
    _, second = await site.hf.create_token("ana")
    await site.hf.revoke_token(first.id)
    codes = [(await site.web.get("/api/runs", headers=bearer(each))).status_code for each in (secret, second)]
    assert codes == [401, 200]
    assert len(await site.hf.revoke_token("ana")) == 2
    assert (await site.web.get("/api/runs", headers=bearer(second))).status_code == 401
    assert (await site.web.get("/api/runs")).status_code == 401


@pytest.mark.parametrize("scope", ["read", "write", "decide"])
@on_a_server
async def test_a_token_may_do_what_its_scopes_say(site, scope):
    """Paths that need another scope are 403 and change nothing."""
    _, secret = await site.hf.create_token("ana", scopes=[scope])
    for each in PATHS:
        path = each.path.replace("{id}", "a").replace("{name}", "b")
        answer = await site.web.request(
            each.method, path, headers=bearer(secret) | {"Content-Type": "application/json"}
        )
        assert (answer.status_code == 403) == (each.needs != scope), (each.path, answer.text)


@on_a_server
async def test_web_pages_cannot_use_a_server_without_tokens(site):
    """Another host's name, another page's origin, a form and what a proxy passes on are refused; this computer's are served."""
    port = site.address.rpartition(":")[2]
    for host in ("evil.example", f"evil.example:{port}", "127.0.0.1.evil.example", "10.0.0.1", "", "[::2]"):
        answer = await site.web.get("/api/runs", headers={"Host": host})
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "foreign_request"), host
    own = f"http://127.0.0.1:{port}"
    for origin in (
        "http://evil.example",
        "null",
        "http://127.0.0.1",
        f"https://127.0.0.1:{port}",
        f"http://localhost:{port}",
    ):
        for method in ("GET", "POST", "DELETE"):
            answer = await site.web.request(method, "/api/runs/a", headers={"Origin": origin})
            assert answer.status_code in (403, 405), (origin, method)
        answer = await site.web.post("/api/runs", json={"agent": "twice", "args": [1]}, headers={"Origin": origin})
        assert answer.status_code == 403, origin
    for name in ("X-Forwarded-For", "Forwarded", "Via"):
        assert (await site.web.get("/api/runs", headers={name: "1.2.3.4"})).status_code == 403
    form = {"Content-Type": "text/plain"}
    assert (await site.web.post("/api/runs", content='{"agent":"twice","args":[1]}', headers=form)).status_code == 415
    preflight = await site.web.options("/api/runs", headers={"Origin": "http://evil.example"})
    assert not [name for name in preflight.headers if name.startswith("access-control")]
    assert (await site.get("/api/runs"))["runs"] == []
    for host in ("localhost", f"LocalHost:{port}", "127.0.0.1", f"[::1]:{port}"):
        assert (await site.web.get("/api/runs", headers={"Host": host})).status_code == 200
    assert (await site.web.get("/api/runs", headers={"Origin": own})).status_code == 200


@on_a_server
async def test_without_tokens_the_user_of_this_computer_acts(site):
    """The audit names the user who runs the server, and a question to others is not that user's."""
    run = await site.start("listener", 1)
    await site.post(f"/api/runs/{run}/pause")
    pause, start = await site.hf.audit(run=run)
    assert (pause.by, pause.via) == (start.by, start.via) == (getpass.getuser(), "http")


def test_an_address_that_others_reach_needs_a_token(tmp_path):
    """Without one it is refused with what to do, a revoked one counts for nothing; with one it serves whoever has it."""
    url = f"sqlite:{tmp_path}/runs.db"

    async def main():
        async with holdfast.open(url) as hf:
            for _ in range(2):
                with listening("0.0.0.0", 0) as listener, pytest.raises(holdfast.BadArguments) as refused:
                    await serving(hf, listener).__aenter__()
                assert "`holdfast token NAME`, or serve this computer alone" in str(refused.value)
                token, _ = await hf.create_token("ana")
                await hf.revoke_token(token.id)
            _, secret = await hf.create_token("ana", scopes=["read"])
        async with served(url, host="0.0.0.0") as site, httpx2.AsyncClient() as web:
            address = site.address.replace("0.0.0.0", "127.0.0.1") + "/api/runs"
            headers = {"Host": "holdfast.example", "X-Forwarded-For": "1.2.3.4"}
            assert (await web.get(address)).status_code == 401
            assert (await web.get(address, headers=headers | bearer(secret))).status_code == 200

    asyncio.run(main())

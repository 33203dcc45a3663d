"""Who may ask: tokens, and what each may do."""

import httpx2
import pytest
from tests.http.site import on_a_server, served

import holdfast
from holdfast.http.paths import PATHS
from holdfast.http.server import listening, serving


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@on_a_server
async def test_all_of_the_api_needs_a_token(site):
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
    asked = [(each, None) for each in PATHS if each.needs] + [(PATHS[0], given) for given in wrong]
    for each, given in asked:
        headers = {} if given is None else {"Authorization": given}
        answer = await site.bare.request(each.method, each.path.replace("{", "").replace("}", ""), headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "unauthorized")
        assert answer.headers["www-authenticate"].startswith("Bearer")
    assert (await site.web.get("/api/runs", headers=bearer(secret))).status_code == 200
    for path in ("/", "/api", "/healthz", "/readyz", "/metrics", "/openapi.json"):
        assert (await site.bare.get(path)).status_code == 200


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
    assert (await site.bare.get("/api/runs")).status_code == 401


async def test_an_address_that_others_reach_needs_a_token(tmp_path):
    """Without one it is refused with what to do, a revoked one counts for nothing; with one it serves whoever has it."""
    url = f"sqlite:{tmp_path}/runs.db"

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


@on_a_server
async def test_a_token_that_may_not_decide_decides_nothing_by_a_fork(site):
    """However the question is named; to fork without a decision needs no more than to write."""
    run = site.hf.get(await site.start("publish", "text", id="r"))
    question = await run.wait_for_question()
    await site.hf.deny(question, by=holdfast.Actor("bob", groups=["editors"]))
    await site.until("r", "completed", "failed")
    _, writes = await site.hf.create_token("ana", groups=["editors"], scopes=["read", "write"])
    _, decides = await site.hf.create_token("bob", groups=["editors"], scopes=["read", "write", "decide"])
    for key in (question.key, ":approve", question.key.removesuffix("#0")):
        answer = await site.web.post("/api/runs/r/fork", headers=bearer(writes), json={"replace": {key: True}})
        assert answer.status_code == 403, answer.text
    assert len(await site.hf.runs()) == 1
    made = await site.web.post("/api/runs/r/fork", headers=bearer(writes), json={"at": 0, "effects": "new"})
    assert made.status_code == 201, made.text
    asked = await site.hf.get(made.json()["run"]["id"]).wait_for_question()
    assert asked.id != question.id
    made = await site.web.post("/api/runs/r/fork", headers=bearer(decides), json={"replace": {question.key: True}})
    assert made.status_code == 201, made.text
    fork = site.hf.get(made.json()["run"]["id"])
    assert await fork.result() != await run.result()


async def test_a_page_that_asks_who_is_there_before_anybody_signed_in_is_no_refusal(tmp_path):
    """Who asks with something that is wrong is in the audit, and who asks for anything else."""
    url = f"sqlite:{tmp_path}/runs.db"
    async with served(url) as site:
        assert (await site.bare.get("/api/me")).status_code == 401
        assert (await site.bare.get("/api/me", headers=bearer("wrong"))).status_code == 401
        assert (await site.bare.get("/api/runs")).status_code == 401
    async with holdfast.open(url) as hf:
        tried = [(each.data["tried"], each.data["count"]) for each in await hf.audit(action="refused")]
    assert sorted(tried) == [("GET /api/me", 1), ("GET /api/runs", 1)]

"""The server mounted in another application, or served by another server: real HTTP, by uvicorn as users run it."""

import asyncio
import contextlib
import json

import fastapi
import httpx2
import pytest
import uvicorn
from starlette.requests import Request
from starlette.testclient import TestClient
from tests.http.site import publish

import holdfast
from holdfast.http.mount import Embedded

PEOPLE = {"of-ana": holdfast.Actor("ana", groups=["editors"]), "of-eve": (holdfast.Actor("eve"), ["read"])}
PAGE = {"X-Holdfast-Page": "1"}


def somebody(request):
    return PEOPLE.get(request.cookies.get("site"))


@contextlib.asynccontextmanager
async def serving(app):
    """The address of an application that uvicorn serves."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, ws="none"))
    task = asyncio.create_task(server.serve())
    while not server.started:
        assert not task.done(), task.exception()
        await asyncio.sleep(0.01)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await task


def inside(hf, **how):
    """A FastAPI application with it at a path."""

    @contextlib.asynccontextmanager
    async def lifespan(_):
        async with hf:
            yield

    app = fastapi.FastAPI(lifespan=lifespan)
    app.mount("/agents/here", hf.asgi(**how))

    @app.get("/own")
    async def own():
        return {"runs": len(await hf.runs())}

    return app


def as_(name, **more):
    return {"Cookie": f"site=of-{name}", **more}


async def test_in_fastapi_the_application_says_who_asks(tmp_path):
    """Its own cookie names people; a run is started, decided and followed below the path of the mount; all in one process."""
    hf = holdfast.open(f"sqlite:{tmp_path}/runs.db", agents=[publish])
    async with (
        asyncio.timeout(40),
        serving(inside(hf, auth=somebody)) as address,
        httpx2.AsyncClient(base_url=address) as web,
    ):
        base = "/agents/here"
        page = await web.get(f"{base}/runs/a")
        assert (
            f'<base href="{base}/">' in page.text and "trusted-types 'none'" in page.headers["content-security-policy"]
        )
        assert page.headers["x-content-type-options"] == "nosniff" and page.headers["x-holdfast-version"]
        assert (await web.get(f"{base}/static/index.html")).status_code == 200
        assert (await web.get(f"{base}/api/runs")).status_code == 401
        assert (await web.get(f"{base}/api/sign-in")).json() == {"token": False, "oidc": None}
        me = (await web.get(f"{base}/api/me", headers=as_("ana"))).json()
        assert (me["name"], me["groups"], me["via"], me["scopes"]) == (
            "ana",
            ["editors"],
            "app",
            ["read", "write", "decide"],
        )
        start = {"agent": "publish", "args": ["x"], "id": "p"}
        assert (await web.post(f"{base}/api/runs", json=start, headers=as_("eve", **PAGE))).status_code == 403
        assert (
            await web.post(f"{base}/api/runs", json=start, headers=as_("ana"))
        ).status_code == 403  # it could be forged
        assert (await web.post(f"{base}/api/runs", json=start, headers=as_("ana", **PAGE))).status_code == 201
        question = await hf.get("p").wait_for_question()
        decision = {"decision": "approve", "digest": question.digest}
        done = await web.post(f"{base}/api/approvals/{question.id}", json=decision, headers=as_("ana", **PAGE))
        assert done.json()["approval"]["decided_by"] == "ana"
        kinds = []
        headers = as_("ana", Accept="text/event-stream")
        async with web.stream("GET", f"{base}/api/runs/p/events", headers=headers) as stream:
            async for line in stream.aiter_lines():
                if line.startswith('data: {"position'):
                    kinds.append(json.loads(line[6:])["kind"])
                if line == "event: end":
                    break
        assert kinds[0] == "approval.asked" and kinds[-1] == "run.completed"
        assert (await web.get("/own")).json() == {"runs": 1}
        (deed,) = await hf.audit(action="approve")
        assert (deed.by, deed.via) == ("ana", "app")
        foreign = as_("ana", **PAGE, Origin="https://evil.example")
        assert (await web.post(f"{base}/api/runs", json=start, headers=foreign)).status_code == 403
        _, secret = await hf.create_token("bot", scopes=["read"])
        mine = {"Authorization": f"Bearer {secret}"}
        assert (await web.get(f"{base}/api/me", headers=mine)).json()["name"] == "bot"
        assert (await web.post(f"{base}/session", json={"token": secret}, headers=PAGE)).status_code == 401


async def test_served_alone_it_opens_its_client(tmp_path):
    """By any server of ASGI; with tokens, and with sessions where it is told how it is reached."""
    url = f"sqlite:{tmp_path}/runs.db"
    async with holdfast.open(url) as hf:
        _, secret = await hf.create_token("ana")
    app = holdfast.open(url).asgi(url="https://agents.example.com")
    async with asyncio.timeout(40), serving(app) as address, httpx2.AsyncClient(base_url=address) as web:
        assert (await web.get("/healthz")).status_code == 200
        assert (await web.get("/api/runs", headers={"Authorization": f"Bearer {secret}"})).status_code == 200
        own = {"Origin": "https://agents.example.com", **PAGE}
        begun = await web.post("/session", json={"token": secret}, headers=own)
        assert begun.status_code == 201 and begun.headers["set-cookie"].startswith("__Host-holdfast_session=")
        cookie = begun.headers["set-cookie"].partition(";")[0]
        assert (await web.get("/api/me", headers={"Cookie": cookie})).json()["via"] == "session"
    async with holdfast.open(url) as hf:  # it was closed
        assert len(await hf.tokens()) == 1


async def test_an_async_auth_and_wrong_answers(tmp_path):
    """What is no actor is a fault of the application, told as one; None is nobody."""

    async def auth(request):
        return {"a": holdfast.Actor("ana"), "n": None, "w": 5}[request.headers["x-who"]]

    app = inside(holdfast.open(f"sqlite:{tmp_path}/runs.db"), auth=auth)
    with TestClient(app) as web:
        path = "/agents/here/api/me"
        assert web.get(path, headers={"x-who": "a"}).json()["name"] == "ana"
        assert web.get(path, headers={"x-who": "n"}).status_code == 401
        assert web.get(path, headers={"x-who": "w"}).status_code in (422, 500)


def test_a_client_that_is_not_open_is_told(tmp_path):
    """The error says where it is opened."""
    app = fastapi.FastAPI()
    app.mount("/a", holdfast.open(f"sqlite:{tmp_path}/runs.db").asgi())
    with pytest.raises(holdfast.BadArguments, match="open the client first"):
        TestClient(app).get("/a/healthz")


@pytest.mark.parametrize("scopes", ["read", ["read", "all"]])
async def test_what_a_person_may_is_told_as_some_of_the_scopes(tmp_path, scopes):
    async with holdfast.open(f"sqlite:{tmp_path}/runs.db") as hf:
        known = Embedded(hf, lambda _: (holdfast.Actor("ana"), scopes))
        with pytest.raises(TypeError, match=r"give some of .*, such as \(actor, \['read'\]\)"):
            await known(Request({"type": "http", "method": "GET", "headers": [], "path": "/", "query_string": b""}))

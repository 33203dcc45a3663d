"""The first hour of somebody with a FastAPI application that starts runs and carries them."""

import httpx2
import pytest
from tests.first_hours.conftest import until

pytest.importorskip("fastapi", reason="`make lock` and the dev group bring it")

APP = """
import asyncio, contextlib, holdfast
from fastapi import FastAPI, HTTPException

@holdfast.step
async def summarise(text: str) -> str:
    with open("summarised", "a") as ledger:
        ledger.write(text + "\\n")
    return text.upper()

@holdfast.agent
async def report(text: str) -> str:
    short = await summarise(text)
    decision = await holdfast.approve("Send it?", show=short)
    return f"sent {short}" if decision else "kept"

@contextlib.asynccontextmanager
async def lifespan(app):
    async with holdfast.open("sqlite:app.db", agents=[report]) as app.state.hf:
        yield

app = FastAPI(lifespan=lifespan)

@app.post("/reports/{id}", status_code=202)
async def start(id: str, text: str):
    run = await app.state.hf.start(report, text, id=id)
    return {"id": run.id, "new": run.created}

@app.get("/reports/{id}")
async def look(id: str):
    try:
        return await app.state.hf.get(id).info()
    except holdfast.UnknownRun as error:
        raise HTTPException(404, str(error))

@app.get("/questions")
async def questions() -> list[holdfast.Approval]:
    return await app.state.hf.approvals()

@app.post("/questions/{id}")
async def decide(id: str, by: str, yes: bool):
    hf = app.state.hf
    return await (hf.approve(id, by=by) if yes else hf.deny(id, by=by))
"""


def test_an_application_that_is_killed_between_question_and_answer(user):
    """A request starts a run once; what waits for a person outlives the process; no row of the store is shown."""
    user.writes("app.py", APP)

    def serve():
        server = user.starts("python", "-m", "uvicorn", "app:app", "--port", "0")
        address = "http://" + server.says("http://").partition("http://")[2].split()[0]
        return server, httpx2.Client(base_url=address, timeout=30)

    server, web = serve()
    for new in (True, False):
        assert web.post("/reports/a", params={"text": "otters"}).json() == {"id": "a", "new": new}
    assert web.get("/reports/b").status_code == 404
    (question,) = until(lambda: web.get("/questions").json(), "the question")
    assert question["shown"] == "OTTERS" and "row" not in question and "_row" not in question
    web.close()
    server.kill()

    server, web = serve()
    assert web.post(f"/questions/{question['id']}", params={"by": "ana", "yes": True}).json()["decision"] == "approved"
    until(lambda: web.get("/reports/a").json()["status"] == "completed", "the end")
    web.close()
    assert user.lines("summarised") == ["otters"]
    assert "sent OTTERS" in user.types("holdfast", "--db", "sqlite:app.db", "show", "a")

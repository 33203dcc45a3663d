"""Everything that /openapi.json lets one ask, asked of a real server with real runs in it: what comes back is as it says.

Requests are made from the description by schemathesis: right ones, wrong ones, and those at the edges of what is allowed. No answer
may be a fault of the server's, or of a kind, a shape or a status that the description does not have.
"""

import asyncio
import re
import sys
from pathlib import Path

import pytest
from tests.http.site import AGENTS, served
from tests.http.test_events import many, rounds, writer
from tests.http.test_lists import talk

import holdfast
from holdfast.http.paths import PATHS

# Left out: that something wrong was let through, where a query has numbers as texts; and that something right was refused, where
# only the store knows what is right.
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,ignored_auth,unsupported_method,allow_header_conformance"
)
SCHEMATHESIS = str(Path(sys.executable).with_name("schemathesis"))


async def filled(site):
    """Runs of every sort, with what belongs to them."""
    hf = site.hf
    await hf.run(many, 30, "Otters", id="many")
    await hf.run(writer, 70_000, id="large")
    await hf.run(rounds, 3, id="rounds")
    await hf.run(talk, "user-1", ["hi", "there"], id="talk")
    await site.start("publish", "x", id="asks", labels={"team": "night"})
    await site.start("listener", 2, id="waits")
    await site.start("broken", id="broken")
    await site.until("broken", "failed")
    await hf.get("many").fork(by="ana", id="forked")
    await hf.schedule("daily", "twice", holdfast.Schedule("0 7 * * mon", args={"n": 1}))
    await site.until("asks", "waiting")
    return [(await hf.get("asks").approvals())[0].id, "many", "asks", "waits", "broken", "forked", "user-1", "daily"]


async def asked(site, folder, *how):
    """Ask; returns how it ended, and what was printed.

    One at a time: Python 3.11 does not parse in several threads at once, as the maker of requests would.
    """
    program = [
        SCHEMATHESIS, "run", f"{site.address}/openapi.json", "--header", f"Authorization: {site.web.headers['authorization']}",
        "--checks", CHECKS, "--request-timeout", "60", "--continue-on-failure", "--no-color", "--workers", "1", *how,
    ]  # fmt: skip
    output = {"stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.STDOUT}
    process = await asyncio.create_subprocess_exec(*program, cwd=folder, **output)
    told, _ = await process.communicate()
    return process.returncode, told.decode()


def names(ids):
    """Have requests name what is there."""
    named = ", ".join(f'"{each}"' for each in ids)
    return f'"path.id" = [{named}]\n"path.name" = [{named}]\n"path.seq" = ["0", "1", "2"]\n'


async def asks(url, folder, *how, named):
    """Ask a server on a store with real runs in it; it must answer as the description says."""
    async with served(url, agents=[*AGENTS, many, rounds, talk, writer]) as site:
        ids = await filled(site)
        waits = '[parameters]\n"query.timeout" = 0.1\n'  # for the end of a run, which would take all the time there is
        (folder / "schemathesis.toml").write_text(waits + (names(ids) if named else ""))
        code, told = await asked(site, folder, *how)
        assert code == 0, told
        assert int(re.search(r"Tested: (\d+)", told)[1]) > len(PATHS), told
        assert (await site.get("/api/runs?limit=1"))["position"] > 0  # it serves all the same


@pytest.fixture(autouse=True)
def key(tmp_path, monkeypatch):
    """A key of the server's, so that it can send bundles."""
    monkeypatch.setenv("HOLDFAST_KEYS", str(tmp_path / "keys"))
    holdfast.Keys().new("server")


@pytest.mark.slow
@pytest.mark.by_day("what-is-there")
@pytest.mark.parametrize("named", [False, True], ids=["anything", "what-is-there"])
async def test_whatever_is_asked_is_answered_as_the_description_says(tmp_path, named):
    """A few of each path; by night it is thousands."""
    url = f"sqlite:{tmp_path}/runs.db?durability=process"
    await asks(url, tmp_path, "--phases", "fuzzing", "--max-examples", "4", named=named)


@pytest.mark.long
@pytest.mark.nightly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("named", [False, True], ids=["anything", "what-is-there"])
async def test_whatever_is_asked_for_minutes_is_answered_so_too(store_url, tmp_path, named):
    await asks(store_url, tmp_path, "--max-time", "180", named=named)

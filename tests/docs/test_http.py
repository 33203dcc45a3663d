"""The story of the guide about HTTP, typed into a real shell with a real curl."""

import re
import shutil
import socket

import pytest
from starlette.testclient import TestClient
from tests.docs.pages import between, block, module, page
from tests.examples.story import Shell, until

PAGE = "docs/guide/http.md"
needs_curl = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed: its examples were not run")


@pytest.fixture
def shell(tmp_path):
    (tmp_path / "report.py").write_text(block(PAGE, "guide: serving"))
    started = Shell(tmp_path)
    yield started
    started.close()


def commands():
    """Each command of the page with the lines that it shows."""
    found = []
    for line in between(page(PAGE), "serving").replace("```console", "").replace("```", "").strip().splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


@needs_curl
def test_the_story_is_what_one_sees(shell, tmp_path):
    """A run is started, decided by the token's owner, waited for and followed, as the page says."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])

    def ready():
        logs = [tmp_path / name for name in ("worker.log", "server.log")]
        return all(log.exists() and "Serving" in log.read_text() for log in logs)

    for command, shown in commands():
        if command.startswith("ask --json '{\"agent"):
            until(ready)
        if "approvals?" in command:
            until(lambda: "q-" in shell.type('ask "http://127.0.0.1:8010/api/approvals"'.replace("8010", port)))
        typed = command.replace("holdfast serve", f"holdfast serve --port {port}").replace(":8010", f":{port}")
        printed = shell.type(typed)
        for line in shown:
            wanted = re.escape(line).replace("…", ".*") if line.endswith("…") else re.escape(line)
            assert re.search(f"^{wanted}$", printed, re.MULTILINE), (
                f"$ {command}\nprints no such line: {line}\nbut: {printed}"
            )


def test_the_mounted_application_runs(tmp_path, monkeypatch):
    """As the page has it, with the cookie of its own."""
    monkeypatch.chdir(tmp_path)
    app = module(PAGE, "guide: mounted").app
    with TestClient(app, cookies={"session": "secret of ana"}) as web:
        assert web.get("/agents/api/me").json()["name"] == "ana"
        assert '<base href="/agents/">' in web.get("/agents/runs").text
    with TestClient(app) as web:
        assert web.get("/agents/api/me").status_code == 401

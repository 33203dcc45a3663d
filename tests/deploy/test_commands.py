"""Commands, options and variables of the deployment files are those that the command line has."""

import asyncio
import json
import re
import shlex
import urllib.request

import click
import pytest
from tests.deploy.files import DEPLOY, ROOT, commands, option, servers

import holdfast
from holdfast.cli import main

PAGES = [
    DEPLOY / "README.md",
    DEPLOY / "systemd" / "README.md",
    ROOT / "docs" / "operations.md",
    DEPLOY / "compose.yaml",
]
DEPLOYED = [path for path in [ROOT / "Dockerfile", *DEPLOY.rglob("*")] if path.is_file() and path.suffix != ".pyc"]


def parsed(words):
    """The options of `holdfast WORDS`, as click reads them; it refuses what the command does not have."""
    assert words[0].endswith("holdfast"), words
    with main.make_context("holdfast", list(words[1:])) as context:
        name, command, rest = main.resolve_command(context, list(words[1:]))
        with command.make_context(name, rest, parent=context) as found:
            return name, found.params


@pytest.mark.parametrize("where", commands())
def test_each_command_is_one_that_the_command_line_has(where):
    """A worker with a port for probes, and a grace that is said or the default."""
    name, params = parsed(commands()[where])
    assert name == "worker"
    assert params["port"] == 9464
    assert len(params["apps"]) == 1


@pytest.mark.parametrize("where", servers())
def test_each_server_is_one_that_the_command_line_has(where):
    """With its port; a container listens for all, which needs a token, and a machine's service for itself."""
    name, params = parsed(servers()[where])
    assert (name, params["port"]) == ("serve", 8010)
    assert params["host"] == ("127.0.0.1" if where.endswith(".service") else "0.0.0.0")


def test_an_option_that_is_not_there_is_noticed():
    """The check itself fails on an unknown option and on an unknown command."""
    with pytest.raises(click.UsageError, match="no-such"):
        parsed(["holdfast", "worker", "app.py", "--no-such"])
    with pytest.raises(click.UsageError, match="servee"):
        parsed(["holdfast", "servee"])


def test_every_variable_is_one_that_the_code_reads():
    """HOLDFAST_... in a deployment file is a variable of the package."""
    known = {name for path in (ROOT / "src").rglob("*.py") for name in re.findall(r"HOLDFAST_[A-Z]+", path.read_text())}
    for path in [*DEPLOYED, *PAGES]:
        assert set(re.findall(r"HOLDFAST_[A-Z]+", path.read_text())) <= known, path.name


def console_lines(path):
    """Commands in the page: lines of console blocks, and comments of YAML, that call holdfast."""
    text = path.read_text().replace("\\\n", "")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL) if path.suffix == ".md" else [text]
    lines = [line.lstrip("#$ ") for block in blocks for line in block.splitlines()]
    found = [re.search(r"(?:^|^docker compose exec worker |/bin/)holdfast (.+)", line) for line in lines]
    return [command[1] for command in found if command]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_pages_are_ones_the_command_line_has(path):
    """Every `holdfast ...` line of a console block can be read by the command line, and each page has some."""
    lines = console_lines(path)
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        assert parsed(["holdfast", *words])[0] == words[0]


@pytest.mark.by_day("postgres")
def test_the_command_of_the_compose_file_serves_the_agents_beside_it(store_url, terminal):
    """The worker as deployed, with the example's agents, carries a run to its end, is ready, and drains with exit code 0."""
    words = [word.replace("/app/", f"{DEPLOY}/app/") for word in commands()["compose.yaml"][1:]]
    words = [word.replace("=9464", "=0").replace("=0.0.0.0", "=127.0.0.1") for word in words]
    assert option(words, "port") == "0"
    terminal.env["HOLDFAST_URL"] = store_url

    async def run():
        async with holdfast.open(store_url) as hf:
            return await hf.run("welcome", "ana")

    worker = terminal.start(*words)
    at = re.search(r"http://\S+:\d+", worker.until("Health and metrics at"))[0]
    worker.until("Serving welcome")
    assert asyncio.run(run()) == "hello ana"
    for path in ("/healthz", "/readyz"):
        with urllib.request.urlopen(at + path, timeout=20) as answer:
            assert answer.status == 200
    with urllib.request.urlopen(at + "/metrics", timeout=20) as answer:
        text = answer.read().decode()
    assert "holdfast_store_up 1.0" in text
    assert "holdfast_commit_operations_count 0.0" not in text
    assert 'holdfast_step_seconds_count{outcome="completed"} 1.0' in text
    assert terminal.run("runs", "--stuck")[1].startswith("No run is stuck in")
    worker.signal(15)
    assert worker.wait() == 0


def test_the_server_of_the_compose_file_begins_with_a_token(store_url, terminal):
    """As deployed it is refused until somebody has a token; then it answers whoever has one, and stops with exit code 0."""
    words = [word.replace("=8010", "=0") for word in servers()["compose.yaml"][1:]]
    terminal.env["HOLDFAST_URL"] = store_url
    code, told = terminal.run(*words)
    assert (code, "holdfast token NAME" in told) == (2, True)
    secret = terminal.run("token", "ana", "--json")[1].split('"secret": "')[1].split('"')[0]
    server = terminal.start(*words)
    at = re.search(r"http://\S+:\d+", server.until("Serving"))[0].replace("0.0.0.0", "127.0.0.1")
    request = urllib.request.Request(f"{at}/api/runs", headers={"Authorization": f"Bearer {secret}"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert json.load(answer)["runs"] == []
    with urllib.request.urlopen(f"{at}/readyz", timeout=20) as answer:
        assert answer.status == 200
    server.signal(15)
    assert server.wait() == 0

"""Two ways to the command line: `cli` calls it in this process, `terminal` (for all tests) starts real ones."""

import json
import sys

import pytest
from click.testing import CliRunner
from tests.cli.terminal import FLEET, person  # noqa: F401 - a fixture

from holdfast.cli import main


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Call a command in an empty folder; `cli.json` reads its answer as JSON."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOLDFAST_URL", raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    fleet = sys.modules.get("command_agents")
    if fleet is not None:
        monkeypatch.setattr(fleet, "FOLDER", tmp_path)

    def call(*words):
        return CliRunner().invoke(main, [str(word) for word in words], prog_name="holdfast")

    def start(agent, *words):
        return call("run", f"{FLEET}:{agent}", *words)

    def as_json(*words):
        result = call(*words, "--json")
        assert result.exit_code in (0, 1), result.output
        return json.loads(result.stdout)

    call.run, call.json, call.folder = start, as_json, tmp_path
    return call

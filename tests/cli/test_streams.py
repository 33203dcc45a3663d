"""Streams on the command line: `show` names them, `tail --stream` prints one, and only its text goes into a pipe."""

from __future__ import annotations

import asyncio
import json

import pytest
from click.testing import CliRunner

import holdfast
from holdfast.cli import main


@holdfast.step(retry=holdfast.Retry(2, first="1ms"))
async def speaks() -> None:
    async with holdfast.stream("answer") as out:
        await out.write("otters\x1b[31m\n")
        if holdfast.this_step().attempt == 1:
            raise ConnectionError("gone")
        await out.write("hold hands")


@holdfast.agent(name="cli-speaking")
async def speaking() -> None:
    async with holdfast.stream("log") as out:
        await out.write("begins")
    await speaks()


@pytest.fixture
def url(tmp_path):
    url = f"sqlite:{tmp_path / 'runs.db'}"

    async def prepare():
        async with holdfast.open(url, agents=[speaking]) as hf:
            await (await hf.start(speaking, id="o")).result()

    asyncio.run(prepare())
    return url


def told(url, *arguments):
    result = CliRunner().invoke(main, ["--db", url, *arguments])
    assert result.exit_code == 0, result.output
    return result


def test_show_names_streams_with_their_sizes(url):
    """The picture and the JSON of a run have each stream: how large it is, and how it stands."""
    shown = told(url, "show", "o").stdout
    assert "stream answer: 34 bytes, ended, attempt 2" in shown
    assert "stream log: 6 bytes, ended" in shown
    assert "stream log: begins" in shown
    found = json.loads(told(url, "show", "o", "--json").stdout)["streams"]
    assert [(each["name"], each["size_bytes"], each["ended"]) for each in found] == [
        ("answer", 34, True),
        ("log", 6, True),
    ]


def test_tail_prints_a_stream(url):
    """Into a pipe goes the text as it is; what is void is told beside it. --after goes on from an offset."""
    text = "otters\x1b[31m\n"
    result = told(url, "tail", "o", "--stream", "answer")
    assert result.stdout == text + text + "hold hands"
    assert result.stderr == "[what is above is void (failed); it begins anew:]\n"
    behind = [json.loads(line) for line in told(url, "tail", "o", "--stream", "answer", "--json").stdout.splitlines()]
    assert [chunk["kind"] for chunk in behind] == ["data", "restart", "data", "end"]
    after = str(behind[1]["offset"])
    assert told(url, "tail", "o", "--stream", "answer", "--after", after).stdout == text + "hold hands"
    assert told(url, "tail", "o", "--stream", "log", "--no-follow").stdout == "begins"


def test_a_stream_needs_its_run(url):
    """Without a run there is no stream, and a run that is not there is named."""
    result = CliRunner().invoke(main, ["--db", url, "tail", "--stream", "answer"])
    assert result.exit_code == 2
    assert "name the run" in result.stderr
    result = CliRunner().invoke(main, ["--db", url, "tail", "nobody", "--stream", "answer"])
    assert result.exit_code != 0
    assert "there is no run 'nobody'" in result.stderr

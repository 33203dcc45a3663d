"""What people see: every command on a store where everything that can be written tries to forge what is shown."""

import asyncio
import io
import json
import logging
import re
import signal
import sys
from pathlib import Path

import apsw
import pyte
import pytest
from click.testing import CliRunner
from tests.cli.terminal import PATIENCE_S, person  # noqa: F401 - a fixture
from tests.security import forger
from tests.security.forger import EVIL, FORGED, NAME, SHORT

import holdfast
from holdfast.cli import main
from holdfast.words.harmless import _PLAIN, harmless, pieces

FORGER = Path(forger.__file__)
COLUMNS = 80

# Every command, with words that make it show what is stored. What is missing here fails a test.
WORDS = {
    "run": [["run", f"{FORGER}:gives", EVIL, "--id", "new"], ["run", f"{FORGER}:fails", EVIL, "--id", "failed"],
            ["run", f"{FORGER}:fails", EVIL, "--label", SHORT], ["run", f"{FORGER}:{SHORT}"], ["run", f"./{SHORT}.py:x"]],
    "start": [["start", "gives", EVIL, "--id", "later"], ["start", NAME, EVIL], ["start", "gives", "--arg", f"{SHORT}=1"]],
    "worker": [["worker", f"{SHORT}.py"]],
    "serve": [["serve", "--deadline", SHORT], ["serve", "--host", SHORT], ["serve", "--url", SHORT], ["serve", "--oidc", SHORT]],
    "dev": [["dev", SHORT], ["dev", f"{SHORT}.py"]],
    "demo": [["demo", SHORT]],
    "runs": [["runs"], ["runs", "--counts"], ["runs", "--stuck"], ["runs", "--search", EVIL], ["runs", "--agent", NAME]],
    "show": [["show", "evil.bundle"],
             ["show", "asks"], ["show", "failed"], ["show", "done"], ["show", "asks", "--events"], ["show", "asks", "--audit"],
             ["show", "paused"], ["show", "cancelled"], ["show", "numbers"], ["show", EVIL], ["show", "asks", "--last", SHORT]],
    "tail": [["tail", "--no-follow"], ["tail", "asks", "--no-follow"], ["tail", "done", "--stream", "answer", "--no-follow"]],
    "schedules": [["schedules"], ["schedules", "evil"], ["schedules", SHORT], ["schedules", "evil", "--trigger"],
                  ["schedules", "x", "--agent", NAME, "--every", SHORT], ["schedules", "x", "--agent", "gives", "--cron", EVIL],
                  ["schedules", "x", "--agent", "gives", "--every", "1h", "--args", EVIL], ["schedules", "evil", "--delete"],
                  ["schedules", "x", "--agent", "gives", "--cron", "0 7 * * *", "--tz", EVIL]],
    "notify": [["notify"], ["notify", "evil"], ["notify", SHORT], ["notify", "evil", "--test"],
               ["notify", "evil", "--replay", SHORT],
               ["notify", SHORT, "--to", "mailto:a@b.c", "--kind", "run"], ["notify", "x", "--to", EVIL, "--kind", EVIL],
               ["notify", "evil", "--delete"]],
    "triggers": [["triggers"], ["triggers", "evil"], ["triggers", "evil", NAME], ["triggers", "evil", "long"], ["triggers", SHORT],
                 ["triggers", "evil", SHORT], ["triggers", "evil", "--replay", SHORT], ["triggers", "evil", "--replay", NAME],
                 ["triggers", "evil", "--dismiss", NAME],
                 ["triggers", SHORT, "--replay-dead"], ["triggers", SHORT, "--delete"], ["triggers", "evil", "--delete"]],
    "conversations": [["conversations"], ["conversations", "talk"], ["conversations", SHORT]],
    "doctor": [["doctor"]],
    "steps": [["steps", "asks"], ["steps", "failed"], ["steps", "done", "0"], ["steps", "asks", SHORT], ["steps", EVIL]],
    "snapshot": [["snapshot", "asks"], ["snapshot", "failed"], ["snapshot", "paused"], ["snapshot", "numbers"],
                 ["snapshot", SHORT]],
    "state": [["state", "asks"], ["state", EVIL], ["state", "done", "--at", "0"]],
    "completion": [["completion", SHORT]],
    "approvals": [["approvals", "evil.bundle"], ["approvals", SHORT],
                  ["approvals"], ["approvals", "--all"], ["approvals", "--for", SHORT], ["approvals", "--run", SHORT],
                  ["approvals", "--link", SHORT], ["approvals", "--link", "ana", "--base-url", SHORT]],
    "approve": [["approve", "asks", "--by", SHORT, "--note", EVIL], ["approve", "decided", "--by", "bo"], ["approve", EVIL],
                ["approve", "asks", "--by", "cy", "--data", json.dumps({"text": EVIL, SHORT: EVIL})]],
    "deny": [["deny", "shows", "--by", SHORT, "--note", EVIL, "--digest", SHORT], ["deny", "numbers"]],
    "answer": [["answer", "numbers", EVIL]],
    "delegate": [["delegate", "asks", "--to", SHORT, "--note", EVIL, "--by", SHORT]],
    "pause": [["pause", "numbers", "--by", SHORT, "--reason", EVIL], ["pause", "--label", f"who={SHORT}"]],
    "resume": [["resume", "numbers", "--by", SHORT]],
    "cancel": [["cancel", "shows", "--reason", EVIL, "--by", SHORT], ["cancel", "shows", "--grace", SHORT]],
    "retry": [["retry", "failed", "--by", SHORT], ["retry", "asks"], ["retry", "failed", "--at", EVIL]],
    "fork": [["fork", "done", "--by", SHORT, "--id", "forked"], ["fork", "asks", "--at", EVIL], ["fork", SHORT],
             ["fork", "asks", "--replace", f"{SHORT}=1"], ["fork", "asks", "--replace", EVIL], ["fork", "done", "--id", EVIL]],
    "forks": [["forks", "done"], ["forks", SHORT]],
    "send": [["send", "asks", SHORT, EVIL], ["send", SHORT, "x"]],
    "publish": [["publish", SHORT, EVIL], ["publish", "a", EVIL, "--key", SHORT], ["publish", "a", "--key", EVIL]],
    "prune": [["prune", "--older-than", SHORT], ["prune", "--older-than", "9d", "--agent", NAME, "--label", f"a={SHORT}"]],
    "delete": [["delete", SHORT], ["delete", "asks"]],
    "token": [["token", SHORT, "--group", SHORT], ["token", "eve", "--only", f"a={SHORT}"],
              ["token", "--list"], ["token", "--revoke", SHORT]],
    "replay": [["replay", "asks", "--code", FORGER], ["replay", "failed", "--code", FORGER], ["replay", SHORT, "--code", FORGER],
               ["replay", "asks", "--code", FORGER, "--break", SHORT], ["replay", "asks", "--code", f"{SHORT}.py"],
               ["replay", "asks", "--code", FORGER, "--full"], ["replay", "evil.bundle", "--code", FORGER]],
    "check": [["check", FORGER], ["check", FORGER, "evil.bundle"], ["check", f"{SHORT}.py"], ["check", FORGER, "--run", SHORT]],
    "rehearse": [["rehearse", "done", "--code", FORGER], ["rehearse", "asks", "failed", "--code", FORGER],
                 ["rehearse", SHORT, "--code", FORGER], ["rehearse", "done", "--code", FORGER, "--prompt", f"{SHORT}={SHORT}"]],
    "diff": [["diff", "asks", "failed"], ["diff", "done", "decided", "--all"], ["diff", SHORT, "asks"]],
    "audit": [["audit"], ["audit", "--by", SHORT], ["audit", SHORT]],
    "export": [["export", SHORT], ["export", "asks", "--to", f"none/{SHORT}"], ["export", "asks", "--to", "x", "--move", SHORT],
               ["export", "asks", "--to", "asks.bundle", "--key", SHORT], ["export", "asks", "--to", "asks.bundle"]],
    "import": [["import", SHORT], ["import", "evil.bundle", "--db", "sqlite:new.db"]],
    "receipt": [["receipt", SHORT], ["receipt", "asks", "--to", f"none/{SHORT}"]],
    "key": [["key", "new", SHORT], ["key", "show", SHORT], ["key", "trust", SHORT], ["key", "add", SHORT], ["key", "list"]],
    "backup": [["backup", f"{SHORT.replace('/', '')}.db"], ["backup", f"none/{SHORT}"]],
    "restore": [["restore", SHORT, "--db", "sqlite:new.db"]],
    "cells": [["cells", "list"], ["cells", "list", "--db", f"cells:{SHORT}"],
              ["cells", "move", SHORT, "--to", SHORT, "--db", "cells:x"], ["cells", "add", SHORT, SHORT, "--db", "cells:x"],
              ["cells", "check", "--db", f"cells:{SHORT}"], ["cells", "slot", SHORT, "--db", "cells:x"]],
}  # fmt: skip
EXACT = [("run", "new"), ("tail", "--stream")]  # what goes into a pipe is the value, for programs


@holdfast.on.webhook("evil", verify=holdfast.Verify.hmac("env:EVIL", header="X-Evil", prefix=SHORT), retry=1)
def evil(delivery):
    raise ValueError(delivery.text())


async def filled(url, folder):
    """A store where every text is evil, and a bundle from it."""
    agents = [forger.asks, forger.shows, forger.numbers, forger.fails, forger.gives, forger.child]
    async with asyncio.timeout(40), holdfast.open(url, agents=[*agents, evil]) as hf:
        for id in (NAME, "long"):
            await hf._receive("evil", "webhook", id, {SHORT: EVIL}, (EVIL * (9 if id == "long" else 1)).encode())
        labels = {"who": SHORT, SHORT: "x"}
        runs = [await hf.start(agent, EVIL, id=agent.name, labels=labels) for agent in agents[:3]]
        await runs[0].send("word", EVIL)
        for agent, name in ((forger.fails, "failed"), (forger.gives, "done"), (forger.shows, "decided"),
                            (forger.numbers, "paused"), (forger.numbers, "cancelled")):  # fmt: skip
            runs.append(await hf.start(agent, EVIL, id=name, labels=labels))
        await runs[3].wait("failed")
        await runs[4].wait("completed")
        while len(found := await hf.approvals()) < 6:
            await asyncio.sleep(0.01)
        questions = {each.run: each for each in found}
        edit = {"text": f"{EVIL} edited", SHORT: 1}
        await hf.approve(questions["asks"], by=SHORT, note=EVIL, data=edit)
        await hf.delegate(questions["asks"].id, to=SHORT, by=NAME, note=EVIL)
        await hf.deny(questions["decided"], by=SHORT, note=EVIL)
        await hf.get("decided").wait("completed")
        await hf.get("paused").pause(reason=EVIL, by=SHORT)
        await hf.get("cancelled").cancel(reason=EVIL, by=SHORT)
        await hf.get("cancelled").wait("cancelled")
        await hf.create_token(NAME, groups=[SHORT])
        await hf.schedule("evil", forger.gives, holdfast.Schedule(every="1h", args={"text": EVIL}))
        await hf.notify("mailto:a@example.com", "run.failed", name="evil", agent=EVIL, labels={EVIL: EVIL})
        await hf.get_notification("evil").test()
        await hf.get("numbers").send(SHORT, EVIL)
        while len(await hf.deliveries(status="dead")) < 2:
            await asyncio.sleep(0.01)
        keys = holdfast.Keys(folder / "keys")
        keys.new("ana")
        await hf.get("asks").export(folder / "evil.bundle", keys=keys)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("evil") / "evil.db"
    asyncio.run(filled(f"sqlite:{path}", path.parent))
    with apsw.Connection(str(path)) as db:  # by whoever can write the store: no client takes such an id or agent
        db.execute("UPDATE runs SET agent = ?, version = ? WHERE id = 'paused'", (NAME, NAME))
        db.execute("UPDATE deliveries SET error = ?, attempts = 3, status = 'dead'", (EVIL,))
        db.execute("UPDATE schedules SET agent = ?, last_run = ?", (NAME, NAME))
        db.execute("CREATE TEMP TABLE copied AS SELECT * FROM runs WHERE id = 'cancelled'")
        db.execute("UPDATE copied SET id = ?, uid = 'u', root_id = ?, status = 'failed'", (NAME, NAME))
        db.execute("INSERT INTO runs SELECT * FROM copied")
    return path


@pytest.fixture
def store(made, tmp_path, monkeypatch):
    """A copy of its own, and nothing left in this process of what a command changes."""
    (tmp_path / "evil.db").write_bytes(made.read_bytes())
    (tmp_path / "evil.bundle").write_bytes(made.with_name("evil.bundle").read_bytes())
    monkeypatch.setenv("HOLDFAST_KEYS", str(made.parent / "keys"))
    monkeypatch.chdir(tmp_path)
    for name, value in (("HOLDFAST_URL", "sqlite:evil.db"), ("COLUMNS", str(COLUMNS)), ("TERM", "xterm")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    return tmp_path


class Tty(io.StringIO):
    """What a command thinks is a terminal."""

    encoding = "utf-8"

    def isatty(self):
        return True


def at_a_terminal(words, monkeypatch):
    """What a command writes there."""
    screen = Tty()
    with monkeypatch.context() as patch:
        for name in ("stdout", "stderr"):
            patch.setattr(sys, name, screen)
        with pytest.raises(SystemExit):
            main.main([str(word) for word in words], prog_name="holdfast")
    return screen.getvalue()


def checked(raw, words):
    """Nothing but text, line ends and colours; each line on the screen as it was written; nothing forged at the left edge."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", raw.replace("\r\n", "\n"))
    odd = {c for c in plain if not c.isprintable() and c != "\n"}
    assert not odd, (words, odd)
    assert harmless(plain, keep="\n") == plain, words
    screen = pyte.Screen(COLUMNS, raw.count("\n") + len(raw) // COLUMNS + 2)
    pyte.Stream(screen).feed(raw.replace("\r\n", "\n").replace("\n", "\r\n"))
    rows = [row.rstrip() for row in screen.display[: screen.cursor.y + 1]]
    assert (screen.title, screen.icon_name) == ("", ""), words
    left = list(rows)
    for line in plain.split("\n"):
        whole, line = left.pop(0), line.rstrip()
        while whole != line:  # a command goes on in the next row
            assert line.startswith(whole) and left, (words, whole, line)
            assert "holdfast " in line, (words, line)
            whole += left.pop(0)
    assert not any(row.startswith(FORGED) for row in rows), (words, rows)
    return rows


def test_no_command_is_forgotten():
    assert set(WORDS) == set(main.commands)
    assert all(words[0] == name for name, lines in WORDS.items() for words in lines)


@pytest.mark.parametrize("command", [name for name in WORDS if name != "demo"])
def test_on_a_terminal_and_in_a_pipe(command, store, monkeypatch):
    """What was stored or typed steers no terminal, begins no line, and is not taken for markup; errors too."""
    told = ""
    for words in WORDS[command]:
        raw = at_a_terminal(words, monkeypatch)
        told += raw
        if command == "run" and "new" in words:  # the result, at the left edge, with its own lines
            assert harmless(re.sub(r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", raw), keep="\n\t") == re.sub(
                r"\x1b\[[\d;?]*[a-zA-Z]|\r", "", raw
            )
        elif command == "run":
            assert not re.search(
                r"\x1b(?!\[[\d;?]*[mKAhlGJ])|[\x00-\x09\x0b\x0c\x0e-\x1a\x80-\x9f\u202e\u200b]", raw
            ), raw
        elif "--stream" in words:
            assert harmless(raw, keep="\n\t") == raw
        else:
            checked(raw, words)
        piped = CliRunner().invoke(main, [str(word) for word in words], prog_name="holdfast")
        exact = any(words[0] == name and word in words for name, word in EXACT)
        output = piped.stderr if exact else piped.output
        assert harmless(output, keep="\n") == output, words
        assert not any(line.startswith(FORGED) for line in output.split("\n")), (words, output)
    if command not in ("pause", "resume", "cancel", "retry", "delete"):
        assert "\\x1b" in told or "\\r" in told, told  # it was there, and is seen


@pytest.mark.parametrize(
    "command", ["runs", "show", "approvals", "audit", "conversations", "tail", "token", "triggers"]
)
def test_json_is_exact_and_harmless(command, store, monkeypatch):
    """The same values, in marks of JSON."""
    words = {"show": ["show", "asks"], "conversations": ["conversations", "talk"], "tail": ["tail", "asks", "--no-follow"],
             "token": ["token", "--list"], "triggers": ["triggers", "evil", NAME]}.get(command, [command])  # fmt: skip
    raw = at_a_terminal([*words, "--json"], monkeypatch)
    assert harmless(raw.replace("\ufe0f", ""), keep="\n").replace(" ", "") == raw.replace("\xa0", "").replace(" ", "")
    found = [json.loads(line) for line in raw.splitlines()] if command == "tail" else json.loads(raw)
    values = list(leaves(found))
    assert (NAME if command == "token" else SHORT if command in ("runs", "audit") else EVIL) in values


def leaves(value):
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    else:
        yield value


def test_the_picture(store, monkeypatch):
    """An SVG is XML without controls."""
    at_a_terminal(["show", "asks", "--svg", "out.svg"], monkeypatch)
    text = Path("out.svg").read_text()
    assert harmless(text.replace("\xa0", " "), keep="\n") == text.replace("\xa0", " ")
    assert "http://evil" not in re.sub(r">[^<]*<", "><", text)


def test_a_real_terminal(store, terminal, person):  # noqa: F811
    """In front of it: what is to be decided, and what a run writes while it is drawn."""
    terminal.env["HOLDFAST_URL"] = f"sqlite:{store / 'evil.db'}"
    for words in (["approvals", "--list"], ["show", "asks"]):
        sits = person(*words, columns=COLUMNS)
        sits.leaves()
        checked(sits.raw, words)
    ana = person("approve", "asks", "--by", "dan", columns=COLUMNS)
    ana.sees("Approve this?")
    ana.types("n")
    ana.leaves()
    rows = checked(ana.raw.replace("n\r\n", "\r\n", 1) if "n\r\n" in ana.raw else ana.raw, ["approve"])
    assert any(re.match(r"  [│|]  .*pay 9999 to", row) for row in rows), "\n".join(rows)
    runs = person("run", f"{FORGER}:asks", EVIL, "--id", "drawn", columns=COLUMNS)
    runs.sees("waits")
    runs.process.send_signal(signal.SIGINT)
    runs.leaves()
    assert not re.search(r"\x1b(?!\[[\d;?]*[mKAhlGJ])|\x1b\[1;1H|\x1b\[2J|[\x80-\x9f\u202e\u200b]", runs.raw)


def test_logs(caplog):
    """A record of ours is one line, with whatever handlers."""
    from holdfast.words.harmless import logger

    with caplog.at_level(logging.WARNING, "holdfast"):
        try:
            raise ValueError(EVIL)
        except ValueError:
            logger("holdfast").exception("run %s: %s", "r", EVIL)
    formatted = logging.Formatter("%(message)s").format(caplog.records[-1])
    assert harmless(formatted, keep="\n") == formatted
    assert caplog.records[-1].getMessage().count("\n") == 0


def test_nothing_else_prints():
    """All that the command line prints goes through the screen: so says its source."""
    for path in (Path(holdfast.__file__).parent / "cli").glob("*.py"):
        text = path.read_text()
        if path.name != "screen.py":
            assert not re.search(r"\bConsole\(|from rich.text|rich\.print", text), path
        if path.name not in ("screen.py", "output.py", "group.py"):
            assert not re.search(r"(?<!\.)\bprint\(|sys\.std(out|err)\.write|click\.s?echo\(f", text), path


def test_what_needs_no_second_look_is_shown_as_it_is():
    """The quick way for plain text says of each character what the careful way says."""
    plain = [c for c in map(chr, range(sys.maxunicode + 1)) if _PLAIN.match(c)]
    assert len(plain) > 1_000
    assert [c for c in plain if "".join(pieces(f"a{c}")) != f"a{c}"] == []

"""`holdfast notify`: who is told, made and steered at a terminal; what went out and what did not."""

import asyncio

from tests.receivers import Receiver

import holdfast

STORE = "sqlite:holdfast.db"


@holdfast.agent
async def nothing() -> None: ...


def worked(holds):
    """Let a worker work until this is so."""

    async def main():
        async with holdfast.open(STORE, agents=[nothing]) as hf:
            while not holds(await hf.get_notification("chat").info()):
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_made_steered_and_sent_again(cli, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setenv("HOLDFAST_NOTIFY_NETWORKS", "127.0.0.0/8 ::1")
    status = {"now": 410}
    with Receiver(lambda _: status["now"]) as receiver:
        made = cli.json(
            "notify", "chat", "--to", receiver.url, "--kind", "run.failed", "--kind", "run.stuck", "--format", "slack"
        )
        assert (made["name"], made["kinds"], made["deliveries"]) == ("chat", ["run.failed", "run.stuck"], [])
        assert "hidden" not in str(made)
        assert "is sent by the next worker" in cli("notify", "chat", "--test").stdout
        worked(lambda info: info.dead == 1)
        (listed,) = cli.json("notify")["notifications"]
        assert (listed["dead"], listed["waiting"]) == (1, 0)
        assert "chat" in cli("notify").stdout
        shown = cli("notify", "chat").stdout
        assert "Sent: 0, waiting: 0, dead: 1." in shown
        assert "localhost answered 410: nobody is there any more" in shown
        assert "hidden" not in shown
        status["now"] = 200
        assert "it is tried again" in cli("notify", "chat", "--replay", "all").stdout
        worked(lambda info: info.done == 1)
        (message,) = cli.json("notify", "chat")["deliveries"]
        assert "it went out before" in cli("notify", "chat", "--replay", message["id"]).stdout
        assert "No message is dead" in cli("notify", "chat", "--replay", "all").stdout
        assert cli.json("notify", "chat", "--pause")["state"] == "paused"
        assert "active" in cli("notify", "chat", "--resume").stdout
        assert "is deleted" in cli("notify", "chat", "--delete").stdout
        deeds = cli.json("audit")["audit"]
        assert {deed["subject"] for deed in deeds} == {"notification chat"}
        lines = cli("audit").stdout.splitlines()[1:]
        assert len(lines) == len(deeds) == 6 and all("notification chat" in line for line in lines)
        assert f"notification.test {message['id']}" in lines[1], "the message that died"
        assert cli.json("notify")["notifications"] == []
        assert "Nobody is told of anything" in cli("notify").stdout


def test_what_is_refused(cli):
    cli("notify", "x", "--to", "mailto:a@b.c", "--kind", "run.failed")
    for words, told in (
        (["nobody"], "there is no notification 'nobody'"), (["x", "--pause", "--resume"], "give one of"),
        (["--test"], "name the notification"), (["x", "--kind", "run.failed"], "are for --to"),
        (["x", "--to", "https://x.y/", "--kind", "run.failed", "--secret", "whsec_x"], "by the variable"),
        (["x", "--to", "https://x.y/", "--secret", "env:X"], "say of what it is told"),
        (["x", "--replay", "m"], "has no message 'm'"),
    ):  # fmt: skip
        refused = cli("notify", *words)
        assert refused.exit_code != 0
        assert told in " ".join(refused.stderr.split()), (words, refused.stderr)

"""`holdfast conversations`, and what a history says of them."""

import asyncio

import holdfast


@holdfast.agent
async def talker(text: str) -> int:
    async with holdfast.conversation("user-42", busy="refuse") as talk:
        await talk.add(text, {"role": "bot", "text": text.upper()})
        return len(await talk.messages(last=3))


def talk(url, *texts):
    async def main():
        async with holdfast.open(url, agents=[talker]) as hf:
            for text in texts:
                await hf.run(talker, text, id=text)

    asyncio.run(main())


def test_conversations(cli):
    """They are listed, one is shown with who said what, and one that is not there or is not named is refused."""
    talk("sqlite:holdfast.db", "hello", "again")
    (listed,) = cli.json("conversations")["conversations"]
    assert (listed["id"], listed["messages"], listed["run"], listed["waiting"]) == ("user-42", 4, None, 0)
    assert "user-42" in cli("conversations").stdout
    shown = cli.json("conversations", "user-42", "--last", "3")["messages"]
    assert [(each["position"], each["run"]) for each in shown] == [(1, "hello"), (2, "again"), (3, "again")]
    assert shown[0]["value"] == {"role": "bot", "text": "HELLO"}
    assert '{"role": "bot", "text": "AGAIN"}' in cli("conversations", "user-42").stdout
    assert "there is no conversation 'nobody'" in cli("conversations", "nobody").stderr
    assert "name the conversation" in cli("conversations", "--delete").stderr
    assert "Deleted 4 messages" in cli("conversations", "user-42", "--delete").stdout
    assert "No conversations" in cli("conversations").stdout


def test_histories(cli):
    """`show` and `tail` tell what a run read and said, without repeating it."""
    talk("sqlite:holdfast.db", "hello")
    for told in (cli("show", "hello").stdout, cli("tail", "hello", "--no-follow").stdout):
        assert "conversation user-42: entered, 0 messages" in told
        assert "conversation user-42: added 2 messages" in told
        assert "conversation user-42: read 2 messages from 0 on" in told

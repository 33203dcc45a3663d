"""`holdfast token`: made, shown once, listed, revoked."""

import asyncio

import pytest

import holdfast


def test_a_token_is_printed_once_and_alone(cli):
    """Standard output has nothing but the secret, which the store then knows; the list does not have it."""
    made = cli("token", "ana", "--group", "it", "--read-only")
    secret = made.stdout.strip()
    assert "Token" in made.stderr
    assert "may read until 20" in made.stderr

    async def known():
        async with holdfast.open(f"sqlite:{cli.folder}/holdfast.db") as hf:
            return await hf.token_of(secret)

    token = asyncio.run(known())
    assert (token.name, token.groups, token.scopes) == ("ana", ("it",), ("read",))
    listed = cli("token", "--list")
    assert token.id in listed.stdout
    assert secret not in listed.stdout
    (data,) = cli.json("token", "--list")["tokens"]
    assert (data["id"], data["groups"], data["revoked_at"]) == (token.id, ["it"], None)
    assert "secret" not in data


def test_a_token_is_revoked(cli):
    """By name or id; the list says since when, and a name that is not there is an error."""
    made = cli.json("token", "ana")
    assert made["token"]["scopes"] == ["read", "write", "decide"]
    assert f"Token {made['token']['id']} of ana is refused" in cli("token", "--revoke", "ana").stdout
    assert "revoked 2" in cli("token", "--list").stdout
    assert cli("token", "--revoke", "bob").exit_code == 2


@pytest.mark.parametrize("words", [(), ("ana", "--list"), ("--list", "--revoke", "x"), ("--list", "--read-only")])
def test_words_that_do_not_go_together(cli, words):
    """They are bad usage, and make no token."""
    assert cli("token", *words).exit_code == 2
    assert not (cli.folder / "holdfast.db").exists()

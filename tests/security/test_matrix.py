"""The matrix of the server: every path that it serves, asked by everybody who may and may not. Made from the table of paths.

A path that is added is in it by itself, and so is a kind of caller that is added to `CALLERS`: a function that makes its
credential, and one that says, of a row of the table, which refusal it must get; None is any answer but a refusal of who asks.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.http.site import Served, served

from holdfast.http import tries
from holdfast.http.paths import PATHS
from holdfast.http.routes import Endpoint

REFUSALS = {401: "unauthorized", 403: "forbidden"}
Must = Callable[[Endpoint], int | None]


@dataclass(frozen=True)
class Caller:
    """Somebody who asks: how the credential is made, and the status of what is refused, of each row."""

    headers: Callable[[Served], Awaitable[dict[str, str]]]
    must: Must


def is_open(row: Endpoint) -> bool:
    """Does this path need no credential? What is sent may have its own proof."""
    return row.needs is None


def nobody(row: Endpoint) -> int | None:
    return None if is_open(row) else 401


def with_scopes(*scopes: str) -> Must:
    return lambda row: None if is_open(row) or row.needs == "any" or row.needs in scopes else 403


def bearer(secret: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


async def none(_: Served) -> dict[str, str]:
    return {}


async def garbled(_: Served) -> dict[str, str]:
    return bearer("holdfast_aaaaaaaa_" + "a" * 43)


async def of_another_scheme(_: Served) -> dict[str, str]:
    return {"Authorization": "Basic YW5hOmFuYQ=="}


async def with_a_wrong_secret(site: Served) -> dict[str, str]:
    token, _ = await site.hf.create_token("ana")
    return bearer(f"holdfast_{token.id}_{'a' * 43}")


async def expired(site: Served) -> dict[str, str]:
    token, secret = await site.hf.create_token("ana", expires="1ms")
    while await site.hf.good_token(token.id) is not None:
        pass
    return bearer(secret)


async def revoked(site: Served) -> dict[str, str]:
    token, secret = await site.hf.create_token("ana")
    await site.hf.revoke_token(token.id)
    return bearer(secret)


def token_for(*scopes: Any) -> Callable[[Served], Awaitable[dict[str, str]]]:
    async def made(site: Served) -> dict[str, str]:
        _, secret = await site.hf.create_token("ana", scopes=scopes)
        return bearer(secret)

    return made


async def limited(site: Served) -> dict[str, str]:
    _, secret = await site.hf.create_token("ana", only={"team": "night"})
    return bearer(secret)


CALLERS = {
    "nobody": Caller(none, nobody),
    "garbled": Caller(garbled, nobody),
    "basic": Caller(of_another_scheme, nobody),
    "wrong": Caller(with_a_wrong_secret, nobody),
    "expired": Caller(expired, nobody),
    "revoked": Caller(revoked, nobody),
    "read": Caller(token_for("read"), with_scopes("read")),
    "write": Caller(token_for("write"), with_scopes("write")),
    "decide": Caller(token_for("decide"), with_scopes("decide")),
    "read-write": Caller(token_for("read", "write"), with_scopes("read", "write")),
    "all": Caller(token_for("read", "write", "decide"), with_scopes("read", "write", "decide")),
    "limited": Caller(limited, lambda row: 403 if row.about == "all" and not is_open(row) else None),
}


@pytest.mark.parametrize("who", CALLERS)
async def test_each_path_is_for_whom_its_row_says(tmp_path, monkeypatch, who):
    """Refused is refused on every path, before anything else is looked at; nobody else is refused for who asks."""
    monkeypatch.setattr(tries, "WRONG_MOST", 10_000)  # that there is an end to wrong tokens is shown elsewhere
    async with served(f"sqlite:{tmp_path}/runs.db?durability=process") as site:
        caller = CALLERS[who]
        headers = await caller.headers(site)
        for row in PATHS:
            path = re.sub(r"{\w+}", "none", row.path)
            for method in [row.method] + (["HEAD"] if row.method == "GET" else []):
                answer = await site.bare.request(method, path, headers=headers | {"Content-Type": "application/json"})
                must, at = caller.must(row), f"{method} {path}: {answer.status_code} {answer.text}"
                if must is not None:
                    assert answer.status_code == must, at
                    assert method == "HEAD" or answer.json()["error"]["code"] == REFUSALS[must], at
                    assert must != 401 or answer.headers["www-authenticate"].startswith("Bearer"), at
                elif not is_open(row):
                    assert answer.status_code not in REFUSALS, at
                assert answer.status_code < 500 or answer.status_code == 503, at
        assert await site.hf.runs() == []  # whoever asked, nothing was begun

"""Values that nothing fits, in every part of every request: each is refused or taken, and none is a fault of the server."""

import asyncio
import contextlib
import json
import re
from urllib.parse import quote

import pytest
from pydantic import TypeAdapter
from tests.http.site import served

from holdfast.http.connections import Limits
from holdfast.http.paths import PATHS

TEXTS = (
    "", " ", "\0", "a\0b", "\ud800", "x\udfff", "\u202e", "\N{COLLISION SYMBOL}", "x" * 5_000, "0001-01-01",
    "0001-01-01T00:00:00+14:00", "9999-12-31", "9999-12-31T23:59:59.999999-14:00", "1e400", "-1", "0", str(2**63), "9" * 400, "NaN",
    "inf", "1e308d", "0 0 31 2 *", "../../x", "__proto__", "a=b", "a=\0",
)  # fmt: skip
NUMBERS = (-1, 0, 1.5, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, -62_135_596_800, 253_402_300_799)
DEEP = 5_000
PARTS = (
    None,
    True,
    [],
    {},
    ["\ud800"],
    ["\0"],
    [2**63],
    {"\ud800": "\ud800"},
    {"a\0": "\0"},
    {"a": 10**400},
    {"usd": 1e308},
)
RAW = ("NaN", "-Infinity", "1e999", "[" * DEEP + "]" * DEEP, '{"a":' * DEEP + "1" + "}" * DEEP, '"\\ud800"')
WHOLE = {  # one document for each path that is taken, so that what is odd in a part of it is looked at
    "/api/runs": {"agent": "twice", "args": [1]},
    "/api/runs/bulk": {"action": "pause", "ids": ["none"]},
    "/api/runs/{id}/send": {"topic": "word", "value": 1},
    "/api/approvals/{id}": {"decision": "approve", "digest": "0" * 64},
    "/api/schedules/{name}": {"agent": "twice", "cron": "0 7 * * *", "args": {"n": 1}},
    "/api/schedules/{name}/backfill": {"start": "2026-01-01", "end": "2026-01-02"},
    "/api/events": {"name": "word", "value": 1},
    "/api/notifications/{name}": {"url": "https://example.invalid/", "kinds": ["run.failed"]},
}
WITH = {"/api/compare": {"a": "there", "b": "there"}, "/api/search": {"q": "x"}}
ALONE = {"Content-Type": "application/json", "Connection": "close"}  # one that is kept may be closed by then
PLACES = {"id": "there", "name": "there", "seq": "1", "step": "1", "delivery": "none"}


def quoted(text):
    return quote(text, safe="", errors="surrogatepass")


def schemas(kind):
    """The names that a document of this type has, and those in its parts."""
    schema = TypeAdapter(kind).json_schema()
    own = schema.get("properties") or {}
    if not own:  # one of several
        for each in schema["$defs"].values():
            own |= each.get("properties", {})
    return list(own), list(schema.get("$defs", {}).get("Fits", {}).get("properties", {}))


def requests():
    """Every request, as its method, its path with its query, and its document."""
    for each in PATHS:
        whole = WHOLE.get(each.path, {})
        path = re.sub(r"\{(\w+)\}", lambda found: PLACES[found[1]], each.path)
        document = None if each.method == "GET" or each.body is bytes else json.dumps(whole)
        for name in re.findall(r"\{(\w+)\}", each.path):
            start, _, rest = each.path.partition(f"{{{name}}}")
            for text in filter(None, TEXTS):
                odd = start + quoted(text) + rest
                yield each.method, re.sub(r"\{(\w+)\}", lambda found: PLACES[found[1]], odd), document
        given = WITH.get(each.path, {})
        for name in TypeAdapter(each.query).json_schema().get("properties", {}):
            for text in TEXTS:
                asked = "&".join(f"{key}={quoted(value)}" for key, value in (given | {name: text}).items())
                yield each.method, f"{path}?{asked}", document
        if each.body is not None and each.body is not bytes:
            yield from ((each.method, path, odd) for odd in documents(each.body, whole))


def documents(kind, whole):
    """Documents with something odd in one place each."""
    yield from RAW
    names, filters = schemas(kind)
    odd = [json.dumps(value) for value in (*TEXTS, *NUMBERS, *PARTS)] + list(RAW)
    for name in names:
        rest = "".join(f", {json.dumps(key)}: {json.dumps(value)}" for key, value in whole.items() if key != name)
        for value in odd:
            yield f"{{{json.dumps(name)}: {value}{rest}}}"
    for name in filters:
        for value in odd:
            yield f'{{"action": "pause", "filter": {{"agent": "nobody", {json.dumps(name)}: {value}}}}}'.replace(
                '"agent": "nobody", "agent"', '"agent"'
            )


@pytest.mark.nightly
@pytest.mark.timeout(900)
async def test_no_value_is_a_fault_of_the_server(store_url):
    """Years 1 and 9999, halves of characters, NUL, numbers without end, and documents that are nested for ever."""
    faults, turns = {}, asyncio.Semaphore(8)
    patient = Limits(
        head=600, body=600, send=600
    )  # a connection that is kept is not closed while others have the processor
    async with served(store_url, limits=patient) as site:
        await site.hf.start("twice", 1, id="there")
        await site.web.post("/api/schedules/there", json=WHOLE["/api/schedules/{name}"])
        await site.web.post("/api/notifications/there", json=WHOLE["/api/notifications/{name}"])

        async def ask(method, path, document):
            async with turns:
                body = None if document is None else document.encode("utf-8", "surrogatepass")
                answer = await site.web.request(method, path, content=body, headers=ALONE)
            if answer.status_code >= 500:
                with contextlib.suppress(ValueError):
                    if answer.json()["error"]["code"] == "cannot_sign":  # without a key there is no bundle
                        return
                faults[method, path[:120], str(document)[:160]] = answer.text[:200]

        asked = list(requests())
        for nth in range(0, len(asked), 200):
            await asyncio.gather(*(ask(*each) for each in asked[nth : nth + 200]))
    assert len(asked) > 5_000
    assert not faults, f"{len(faults)} of {len(asked)}: {list(faults.items())[:10]}"

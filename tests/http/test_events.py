"""Events over HTTP: histories from the end and in part, the feed of all runs, and the values that events hold."""

import asyncio
import json

import httpx2
import pytest
from tests.http.site import AGENTS, double, followed, on_a_server, served

import holdfast
from holdfast.store.journal import Journals

# Where the store's part of the work differs; the other scenes are played on PostgreSQL at night.
POSTGRES_BY_DAY = {"test_the_events_of_all_runs_are_read_and_followed"}


@holdfast.agent
async def many(n: int, text: str = "") -> list[int]:
    await holdfast.note(text or "begins")
    return [await double(number) for number in range(n)]


@holdfast.step
async def write(letters: int) -> str:
    return "ö" * letters


@holdfast.agent
async def writer(letters: int) -> int:
    return len(await write(letters))


@holdfast.agent
async def rounds(n: int) -> int:
    begun = await holdfast.restore(0)
    for each in range(begun, n):
        await holdfast.checkpoint(each)
    return n


SERVED = [*AGENTS, many, writer, rounds]


async def test_a_history_is_read_from_its_end_and_in_part(store_url):
    """The last events before a place, by kind, by family, by call, by a text of theirs; in order, and each with all it says."""
    async with served(store_url, agents=SERVED) as site:
        await site.hf.run(many, 5, "Otters hold hands", id="m")
        whole = (await site.get("/api/runs/m/events"))["events"]
        assert [each["seq"] for each in whole] == list(range(7))

        async def seqs(query):
            found = await site.get(f"/api/runs/m/events?{query}")
            assert all(each in whole for each in found["events"])
            return [each["seq"] for each in found["events"]], found["next"]

        assert await seqs("before=7&limit=2") == ([5, 6], 7)
        assert await seqs("before=3&limit=2") == ([1, 2], 3)
        assert await seqs("before=2&after=1") == ([1], 2)
        assert await seqs("before=0") == ([], 0)
        assert await seqs("kinds=run") == ([6], 7)
        assert await seqs("kinds=note&kinds=run.completed") == ([0, 6], 7)
        assert await seqs("kinds=step&limit=2&after=2") == ([2, 3], 4)
        assert await seqs("kinds=step&before=100&limit=2") == ([4, 5], 6)
        assert await seqs("key=double%233") == ([4], 5)
        assert (await seqs("q=OTTERS HOLD"))[0] == [0]
        assert (await seqs("q=double&kinds=step&before=3"))[0] == [1, 2]
        first, last = whole[1], whole[-1]
        assert (first["preview"], first["size"], first["epoch"], first["dropped"]) == ("0", 1, 1, None)
        assert last["preview"] is None or last["size"] is not None
        for query in ("before=-1", "kinds=none", "kinds=run.", f"q={'x' * 1001}", "dropped=perhaps", "after=8"):
            told = await site.get(f"/api/runs/m/events?{query}", 422)
            assert told["error"]["code"] == "bad_arguments", query
        before = {"Accept": "text/event-stream"}
        assert (await site.web.get("/api/runs/m/events?before=3", headers=before)).status_code == 422


@on_a_server
async def test_what_a_retry_took_out_is_shown_when_asked_for(site):
    run = site.hf.get(await site.start("broken", id="b"))
    await site.until("b", "failed")
    await run.retry(by="ana")
    await asyncio.sleep(0)
    await site.until("b", "failed")
    await run.retry(by="ana", at=0)
    await site.until("b", "failed")
    shown = (await site.get("/api/runs/b/events?dropped=true"))["events"]
    hidden = (await site.get("/api/runs/b/events"))["events"]
    assert [each["seq"] for each in shown] == list(range(len(shown)))
    assert {each["seq"] for each in hidden} == {each["seq"] for each in shown if each["dropped"] is None}
    assert len(hidden) < len(shown)


async def test_values_are_shown_up_to_a_size_and_downloaded_whole(store_url):
    """A large value is a file with a name of ours, which no browser shows; what is not there is said."""
    async with served(store_url, agents=SERVED) as site:
        for run, letters in (("small", 3), ("spilled", 100_000), ("large", 1_200_000)):
            await site.hf.run(writer, letters, id=run)
            found = await site.get(f"/api/runs/{run}/events/0")
            event, is_large = found["event"], letters > 1_000_000
            assert (event["kind"], event["key"], found["cut"]) == ("step.completed", "write#0", is_large)
            assert found["value"] == (None if is_large else "ö" * letters)
            assert event["size"] > letters
            assert event["preview"].startswith(("'ööö", '"ööö')) and len(event["preview"]) <= 160
            assert event in (await site.get(f"/api/runs/{run}/events"))["events"]
            file = await site.web.get(f"/api/runs/{run}/events/0/value")
            assert json.loads(file.content) == "ö" * letters and len(file.content) == event["size"]
            assert file.headers["content-type"] == "application/octet-stream"
            assert file.headers["content-disposition"] == f'attachment; filename="{run}-0.json"'
        for path in ("/7", "/-1", "/x", "/99999999999999999999", "/7/value", "/x/value"):
            told = await site.get(f"/api/runs/small/events{path}", 422)
            assert told["error"]["code"] == "bad_arguments", path
        await site.get("/api/runs/none/events/0", 404)
        await site.get("/api/runs/none/events/0/value", 404)


@on_a_server
async def test_checkpoints_are_listed(site):
    await site.hf.serve(rounds)
    await site.hf.run(rounds, 3, id="r")
    found = (await site.get("/api/runs/r/checkpoints"))["checkpoints"]
    assert [(each["era"], each["seq"]) for each in found] == [(1, 0), (2, 1), (3, 2)]
    assert (await site.get("/api/runs/r/events/1"))["value"] == 1
    await site.get("/api/runs/none/checkpoints", 404)


async def test_the_events_of_all_runs_are_read_and_followed(store_url):
    """Page by page and live, with positions that mean the same to any server; by kind, by family, by run."""
    async with served(store_url, agents=SERVED) as site:
        for n in range(3):
            await site.hf.run("twice", n, id=f"t{n}")
        assert [
            each.run async for each in site.hf.events(follow=False)
        ]  # waits for transactions that other tests have open
        whole = await site.get("/api/events")
        assert [(each["run"], each["kind"]) for each in whole["events"]] == [
            (f"t{n}", kind) for n in range(3) for kind in ("step.completed", "run.completed")
        ]
        assert whole["next"] == whole["events"][-1]["position"]
        some = await site.get("/api/events?limit=2")
        rest = await site.get(f"/api/events?after={some['next']}")
        assert some["events"] + rest["events"] == whole["events"]
        ends = await site.get("/api/events?kinds=run&run=t1")
        assert [(each["run"], each["kind"]) for each in ends["events"]] == [("t1", "run.completed")]
        for query in ("kinds=none", "after=-1", "after=99999999999999999999", "run=%20", "limit=0", "before=1"):
            told = await site.get(f"/api/events?{query}", 422)
            assert told["error"]["code"] == "bad_arguments", query

        seen = []
        async for place, document in followed(site.web, "/api/events?kinds=run.completed", some["next"]):
            seen.append((document["run"], place))
            assert place == document["position"]
            if document["run"] == "t2":
                await site.hf.run("twice", 9, id="t9")
            if document["run"] == "t9":
                break
        assert [run for run, _ in seen] == ["t1", "t2", "t9"]


@on_a_server
async def test_readers_of_all_runs_share_one_reader_of_the_store(site, monkeypatch):
    """Each of many gets all that comes, and the store is read no oftener than for a few."""
    # Fewer than the strangers that one address may have at a time: they come at once, before their tokens are looked at.
    read, reads, readers = Journals.feed_lines, [], 150

    async def counted(*args, **named):
        reads.append(args)
        return await read(*args, **named)

    monkeypatch.setattr(Journals, "feed_lines", counted)
    start = (await site.get("/api/events"))["next"]

    async def reader(web):
        found = []
        async for _, document in followed(web, f"/api/events?after={start}"):
            found.append(document["position"])
            if document["kind"] == "run.completed" and document["run"] == "t19":
                break
        return found

    async def following():
        told = (await site.web.get("/metrics")).text
        return float(
            next(line.split()[-1] for line in told.splitlines() if line.startswith("holdfast_http_followers "))
        )

    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(base_url=site.address, headers=site.web.headers, timeout=30, limits=limits) as web:
        tasks = [asyncio.create_task(reader(web)) for _ in range(readers)]
        while await following() < readers:
            await asyncio.wait(tasks, timeout=0.05, return_when=asyncio.FIRST_EXCEPTION)
            assert not [task.exception() for task in tasks if task.done()]
        for n in range(20):
            await site.hf.run("twice", n, id=f"t{n}")
        got = await asyncio.gather(*tasks)
    assert len(got[0]) == 40 and all(each == got[0] for each in got)
    assert len(reads) < 4 * readers  # two each until they have caught up; each by itself would read 20 times at least


@pytest.mark.parametrize("text", ["x" * 100, '"' + "\\u00f6" * 900, '{"a": "\\\\u0041\\ud83d', '["\\u202e\\u0007'])
def test_a_beginning_is_shown_in_one_line(text):
    from holdfast.values.codec import beginning

    shown = beginning(text[:1000], 160)
    assert len(shown) <= 160 and shown.isprintable()
    assert "ö" in shown or "00f6" not in text


@on_a_server
async def test_a_nul_is_refused_wherever_it_stands_in_the_query(site):
    for query in ("action=%00&action=b", "action=a&action=%00", "by=%00"):
        assert "NUL" in (await site.get(f"/api/audit?{query}", 422))["error"]["message"]


@on_a_server
async def test_a_number_of_the_query_is_written_in_digits(site):
    """What Python alone reads as a number is none in the description of the API."""
    for wrong in ("1_0", "%2B5", "+5", "%205", "5%20", "%D9%A1", "0x5", "", "1e", "nan", "inf"):
        for path in ("/api/events?after=", "/api/runs?limit=", "/api/runs?cost="):
            refused = await site.get(f"{path}{wrong}", 422)
            assert refused["error"]["code"] == "bad_arguments" and "in digits" in refused["error"]["message"], (
                path,
                wrong,
            )
    for right in ("/api/events?after=0", "/api/runs?limit=10", "/api/runs?cost=0.5", "/api/runs?cost=1e-3"):
        await site.get(right)

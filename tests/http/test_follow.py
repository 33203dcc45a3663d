"""Following over HTTP: everything once and in order, shared by many, and with nothing kept for who is slow."""

import asyncio
import json
import os
import random

import pytest
from tests.http.site import followed, messages, on_a_server, served

import holdfast
from holdfast.http import follow
from holdfast.http.follow import Followers, Source, Tail


class Growing:
    """A history that the test lets grow. It counts who waits for more of it."""

    def __init__(self):
        self.items, self.over, self.reads, self._grown = [], False, 0, asyncio.Event()

    def grow(self, *items, over=False):
        self.items += items
        self.over = over
        self._grown.set()
        self._grown = asyncio.Event()

    async def read(self, after, follow):
        self.reads += follow
        while True:
            for item in self.items[after : after + 50]:
                after += 1
                yield after, item
            if after < len(self.items):
                await asyncio.sleep(0)
                continue
            if self.over or not follow:
                return
            await self._grown.wait()


def told(pieces):
    """The ids in what was sent."""
    return [int(line[4:]) for line in b"".join(pieces).split(b"\n") if line.startswith(b"id: ")]


async def read_all(followers, source, after=0, slowness=0.0, chance=None):
    pieces = []
    async for _, piece in followers.follow(source, after):
        pieces.append(piece)
        for _ in range(chance.randrange(5) if chance and chance.random() < slowness else 0):
            await asyncio.sleep(0)
    return told(pieces)


async def test_many_followers_share_one_reader():
    """Fifty that have caught up cost one reading of what comes; when the last is gone nothing is read any more."""
    growing, followers = Growing(), Followers()
    growing.grow(*range(10))
    source = Source("a", growing.read)
    reading = [asyncio.ensure_future(read_all(followers, source)) for _ in range(50)]
    for n in range(10, 20):
        await asyncio.sleep(0.001)
        growing.grow(n)
    growing.grow(over=True)
    assert await asyncio.gather(*reading) == [list(range(1, 21))] * 50
    assert growing.reads == 1
    assert followers._tails == {}


@pytest.mark.parametrize("seed", range(20))
async def test_slow_and_late_followers_miss_nothing(seed, monkeypatch):
    """Whatever the pace of each, each gets every message once and in order, also when the shared tail is far too short."""
    monkeypatch.setattr(follow, "_TAIL_BYTES", 200)

    chance = random.Random(seed)
    growing, followers = Growing(), Followers()
    source = Source("a", growing.read)
    reading, places = [], []
    for _ in range(300):
        if chance.random() < 0.1:
            places.append(chance.randint(0, len(growing.items)))
            reading.append(asyncio.ensure_future(read_all(followers, source, places[-1], chance.random(), chance)))
        growing.grow(*range(chance.randrange(4)))
        for _turn in range(chance.randrange(3)):
            await asyncio.sleep(0)
        if len(reading) > 3 and chance.random() < 0.02:
            reading[0].cancel()
    growing.grow(over=True)
    for place, got in zip(places, await asyncio.gather(*reading, return_exceptions=True), strict=True):
        if not isinstance(got, asyncio.CancelledError):
            assert got == list(range(place + 1, len(growing.items) + 1))
    assert followers._tails == {}


class TwoGrowing:
    """Two histories that are read as one. Each reader gets a number of its own for each place, as from several databases."""

    def __init__(self, chance):
        self.items, self.over, self.chance, self._grown = ([], []), False, chance, asyncio.Event()
        self.places = {0: (0, 0)}

    def grow(self, which, item):
        self.items[which].append(item)
        self.stir()

    def stir(self):
        self._grown.set()
        self._grown = asyncio.Event()

    def alike(self, one, other):
        return self.places[one] == self.places[other]

    async def read(self, after, follow):
        seen = list(self.places[after])
        while True:
            grown = self._grown
            ends = [len(each) for each in self.items]
            for _ in range(self.chance.randrange(4)):
                await asyncio.sleep(0)  # others read what came meanwhile, and are given their numbers first
            found = [which for which in (0, 1) for _ in range(seen[which], ends[which])]
            self.chance.shuffle(found)
            for which in found:
                seen[which] += 1
                self.places[number := max(self.places) + 1] = (seen[0], seen[1])
                yield number, [which, seen[which]]
            if not found:
                if self.over or not follow:
                    return
                await grown.wait()


@pytest.mark.parametrize("seed", range(20))
async def test_followers_whose_places_are_their_own_miss_nothing(seed, monkeypatch):
    """Whoever else follows, each gets everything once, under numbers that grow; it may leave and come back."""
    monkeypatch.setattr(follow, "_TAIL_BYTES", 400)
    chance = random.Random(seed)
    growing, followers = TwoGrowing(chance), Followers()
    source = Source("a", growing.read, growing.alike)

    async def reader():
        got, after = [], 0
        while not (growing.over and growing.places[after] == tuple(map(len, growing.items))):
            pieces, leaves_after = followers.follow(source, after), chance.randrange(1, 12)
            async for _, piece in pieces:
                for line in piece.decode().splitlines():
                    if line.startswith("id: "):
                        assert int(line[4:]) > after
                        after = int(line[4:])
                    elif line.startswith("data: "):
                        got.append(tuple(json.loads(line[6:])))
                leaves_after -= 1
                if not leaves_after:
                    break
            await pieces.aclose()
        return got

    reading = [asyncio.ensure_future(reader()) for _ in range(6)]
    for n in range(200):
        growing.grow(chance.randrange(2), n)
        for _turn in range(chance.randrange(4)):
            await asyncio.sleep(0)
    growing.over = True
    growing.stir()
    for got in await asyncio.gather(*reading):
        assert len(got) == len(set(got))
        assert sorted(got) == [(which, n) for which in (0, 1) for n in range(1, len(growing.items[which]) + 1)]
    assert followers._tails == {}


async def test_a_tail_is_bounded():
    """However much comes, and however little of it is taken, it keeps no more than so many bytes."""
    growing = Growing()
    tail = Tail(Source("a", growing.read), 0)
    growing.grow(*["x" * 1000] * 1000, over=True)
    while not tail.over:
        await asyncio.sleep(0)
    assert sum(len(message) for _, message in tail._kept) <= follow._TAIL_BYTES
    assert await tail.behind(0) is None
    place, pieces = tail.start, []
    while piece := (await tail.behind(place))[1]:
        pieces.append(piece)
        place = told(pieces)[-1]
    assert told(pieces) == list(range(tail.start + 1, 1001))
    await tail.close()


@on_a_server
async def test_a_history_is_followed_from_any_place(site):
    """From each id on come exactly the events behind it, then the end; one who has seen the end is told not to come back."""
    run = await site.start("listener", 3, id="l")
    live = asyncio.ensure_future(_all(followed(site.web, "/api/runs/l/events")))
    for word in "abc":
        await site.post("/api/runs/l/send", {"topic": "word", "value": word})
    await site.until(run, "completed")
    events = (await site.get("/api/runs/l/events"))["events"]
    whole = [(event["seq"] + 1, event) for event in events]
    assert await live == [*whole, (None, "end")]
    for place in range(len(whole)):
        assert await _all(followed(site.web, "/api/runs/l/events", place)) == [*whole[place:], (None, "end")]
    last = {"Accept": "text/event-stream", "Last-Event-ID": str(len(whole))}
    assert (await site.web.get("/api/runs/l/events", headers=last)).status_code == 204


@on_a_server
async def test_a_stream_is_followed_from_any_place(site):
    """Text with all sorts of characters comes whole from every offset; the offset is the id."""
    words = ["one ", "zwei\n\n", "três\r\n", "\u2028id: 9\n", "🙂", "\ud800", "end"]
    await site.start("talker", words, id="t")
    live = asyncio.ensure_future(_all(followed(site.web, "/api/runs/t/streams/answer")))
    await site.post("/api/runs/t/send", {"topic": "go", "value": ""})
    text = "".join(words)

    def data(found):
        return "".join(chunk["data"] for place, chunk in found if place is not None)

    assert data(await live) == text
    for place in range(len(text) + 1):
        found = await _all(followed(site.web, f"/api/runs/t/streams/answer?after={place}"))
        assert data(found) == text[place:]
        assert [place for place, _ in found[-2:]] == [len(text) + 1, None]
    page = await site.get("/api/runs/t/streams/answer?after=4")
    assert "".join(chunk["data"] for chunk in page["chunks"]) == text[4:]


@on_a_server
async def test_a_stream_is_followed_from_text_to_text(site):
    """The end of a text is one more message; the follower hears of the end when the run is over, and not before."""
    await site.start("reciter", 2, id="r")
    live = followed(site.web, "/api/runs/r/streams/answer")
    for verse in ("one", "two"):
        await site.post("/api/runs/r/send", {"topic": "verse", "value": verse})
        heard = [(await anext(live))[1] for _ in range(2)]
        assert [chunk["data"] or chunk["kind"] for chunk in heard] == [verse, "end"]
    assert await _all(live) == [(None, "end")]


@on_a_server
async def test_places_that_are_none(site):
    """A Last-Event-ID that is no number or beyond the end is refused before anything is sent; so is an unknown run."""
    await site.start("listener", 1, id="l")
    for seen in ("x", "-1", "1.5", "", "9" * 30, "²"):
        headers = {"Accept": "text/event-stream", "Last-Event-ID": seen.encode()}
        refused = await site.web.get("/api/runs/l/events", headers=headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (422, "bad_arguments")
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "99"}
    assert "has a history of 0" in (await site.web.get("/api/runs/l/events", headers=headers)).text
    assert "has come to 0" in (await site.web.get("/api/runs/l/streams/answer", headers=headers)).text
    assert (await site.web.get("/api/runs/nobody/events", headers=headers)).status_code == 404


@on_a_server
async def test_a_run_that_goes_on_after_its_end_is_followed_again(site):
    """One that failed is over; retried, a follower that comes back gets what came since."""
    run = await site.start("broken", id="b")
    await site.until(run, "failed")
    first = await _all(followed(site.web, "/api/runs/b/events"))
    assert [event["kind"] for place, event in first if place] == ["run.failed"]
    await site.post("/api/runs/b/retry")
    await site.until(run, "failed")
    second = await _all(followed(site.web, "/api/runs/b/events", first[-2][0]))
    assert [event["kind"] for place, event in second if place] == ["run.retried", "run.failed"]


@on_a_server
async def test_who_is_no_longer_allowed_follows_no_longer(site, monkeypatch):
    """Signs of life come while nothing happens, and with a revoked token the stream ends with the reason."""
    monkeypatch.setattr(follow, "_SIGN_OF_LIFE_S", 0.02)
    await site.start("listener", 1, id="l")
    token, secret = await site.hf.create_token("ana", scopes=["read"])
    headers = {"Accept": "text/event-stream", "Authorization": f"Bearer {secret}"}
    async with site.web.stream("GET", "/api/runs/l/events", headers=headers) as answer:
        lines = answer.aiter_lines()
        while await anext(lines) != ":":
            pass
        await site.hf.revoke_token(token.id)
        rest = [line async for line in lines]
    assert "event: problem" in rest
    assert '"code":"unauthorized"' in rest[-2]


@on_a_server
async def test_followers_are_counted_and_bounded(site, monkeypatch):
    """One too many is refused with when to come back; who leaves makes room."""
    monkeypatch.setattr(follow, "MOST_FOLLOWERS", 1)
    await site.start("listener", 1, id="l")
    headers = {"Accept": "text/event-stream"}
    async with site.web.stream("GET", "/api/runs/l/events", headers=headers) as answer:
        lines = answer.aiter_lines()
        await anext(lines)
        refused = await site.web.get("/api/runs/l/events", headers=headers)
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "5")
        assert "holdfast_http_followers 1.0" in (await site.web.get("/metrics")).text
    while "holdfast_http_followers 0.0" not in (await site.web.get("/metrics")).text:
        await asyncio.sleep(0.01)


async def _all(found):
    return [each async for each in found]


@holdfast.step
async def wait_for(path: str) -> str:
    while not await asyncio.to_thread(os.path.exists, path):
        await asyncio.sleep(0.02)
    return "there"


@holdfast.agent
async def waiter(path: str) -> str:
    return await wait_for(path)


async def test_open_calls_come_beside_a_history(store_url, tmp_path):
    """What runs now is told to who looks and to who follows, without a place of its own; when it is over that is told too."""
    async with served(store_url, agents=[waiter]) as site:
        await site.start("waiter", str(tmp_path / "go"), id="w")
        seen = []
        async with asyncio.timeout(30):
            headers = {"Accept": "text/event-stream"}
            async with site.web.stream("GET", "/api/runs/w/events", headers=headers) as answer:
                async for fields in messages(answer.aiter_lines()):
                    seen.append(fields)
                    if fields.get("event") == "open" and json.loads(fields["data"]):
                        assert "id" not in fields
                        (call,) = json.loads(fields["data"])
                        shown = await site.get("/api/runs/w")
                        assert shown["open"] == [call] and shown["now"] >= call["began"]
                        assert (call["key"], call["name"], call["attempt"]) == ("wait_for#0", "wait_for", 1)
                        (tmp_path / "go").touch()
        assert [each.get("event") for each in seen if each.get("event") != "open"] == [None, None, "end"]
        assert (await site.get("/api/runs/w"))["open"] == []


async def test_a_board_has_one_reader_and_the_last_word():
    """Whoever comes later is told the last word at once; when all are gone nobody reads."""
    followers, words, reads = Followers(), asyncio.Queue(), []

    async def read():
        reads.append(1)
        while True:
            yield await words.get()

    source = Source("a", Growing().read, beside=("open", read))
    async with followers.beside(source) as one:
        words.put_nowait([1])
        assert await one.newer(0) == (1, b"event: open\ndata: [1]\n\n")
        async with followers.beside(source) as other:
            assert other is one and await other.newer(0) == await one.newer(0)
        words.put_nowait([])
        assert (await one.newer(1))[1].endswith(b"[]\n\n")
    assert reads == [1] and not followers._boards
    async with followers.beside(Source("b", Growing().read)) as none:
        assert none is None

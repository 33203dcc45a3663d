"""Files that a worker looks for: each path with each content once, when it is whole, whatever lies beside it."""

import asyncio
import hashlib
import logging
import os
import time
from pathlib import Path

import pytest

import holdfast
from holdfast.worker import files

pytestmark = [pytest.mark.slow, pytest.mark.by_day("watched")]


@holdfast.agent
async def reads(path: str, digest: str) -> str:
    return await content(path)


@holdfast.step
async def content(path: str) -> str:
    return Path(path).read_text()  # noqa: ASYNC240 - a few bytes


def inbox(pattern, **options):
    @holdfast.on.files(pattern, **{"settle": "0.1s", **options})
    def found(delivery: holdfast.Delivery) -> holdfast.Start:
        assert delivery.body == b""
        return holdfast.Start(reads, delivery.headers["path"], delivery.headers["digest"])

    return found


@pytest.fixture
def url(tmp_path):
    return f"sqlite:{tmp_path / 'runs.db'}?durability=process"


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in"


@pytest.fixture(params=["watched", "polled"], autouse=True)
def heard(request, monkeypatch):
    """With news of the operating system, and without."""
    if request.param == "polled":
        monkeypatch.setattr(files, "watcher", lambda: None)
        monkeypatch.setattr(files, "_POLL_EVERY_S", 0.05)
    return request.param


async def ended(hf, count, limit_s=20.0):
    """Wait until so many runs have ended, and no delivery waits; what they returned, by what they were given."""
    end = time.monotonic() + limit_s
    while len(found := await hf.runs(limit=1000, status="completed")) < count:
        assert time.monotonic() < end, [info.id for info in found]
        await asyncio.sleep(0.02)
    return sorted([await hf.get(info.id).result() for info in found])


async def looked(hf):
    """Wait until the worker has looked at all files again."""
    each = next(each for each in hf._worker.rounds if each.what == "files")
    (folder,) = each._folders.values()
    folder.scan_at = 0.0
    each.wake()
    while folder.scan_at == 0.0 or folder.waiting:
        await asyncio.sleep(0.01)


async def test_each_path_with_each_content_is_found_once(folder, url):
    (folder / "a.txt").write_text("one")  # it came while nobody watched
    (folder / "deep/er").mkdir(parents=True)
    (folder / "deep/er/b.txt").write_text("two")
    (folder / "c.pdf").write_text("another kind")
    (folder / ".hidden.txt").write_text("not whole")
    trigger = inbox(f"{folder}/**/*.txt")
    async with holdfast.open(url, agents=[trigger]) as hf:
        assert await ended(hf, 2) == ["one", "two"]
        (folder / "new").mkdir()
        (folder / "new/d.txt").write_text("three")
        (folder / "a.txt").write_text("one, changed")
        assert await ended(hf, 4) == ["one", "one, changed", "three", "two"]
        (info, *_) = await hf.triggers()
        assert (info.kind, info.config) == ("files", {"pattern": f"{folder}/**/*.txt", "settle_ms": 100})
        os.utime(folder / "a.txt")  # it looks otherwise, and is the same
        await looked(hf)
        assert len(await hf.deliveries()) == 4
    (folder / "deep/er/b.txt").rename(folder / "e.txt")  # another path
    (folder / "f.txt").write_text("while nobody watched")
    async with holdfast.open(url, agents=[trigger]) as hf:
        assert "while nobody watched" in await ended(hf, 6)
        await looked(hf)
        told = {d.headers["name"]: d for d in [await hf.delivery(i.trigger, i.id) for i in await hf.deliveries()]}
        assert told.keys() == {"a.txt", "deep/er/b.txt", "new/d.txt", "e.txt", "f.txt"}
        headers = told["f.txt"].headers
        assert headers["path"] == str(folder / "f.txt") and headers["size"] == "20"
        assert headers["digest"] == f"sha256:{hashlib.sha256(b'while nobody watched').hexdigest()}"


async def test_what_was_found_is_known_for_longer_than_its_delivery(folder, url):
    """Deliveries are forgotten after a month. A file that still lies there is not found anew, nor is its content read."""
    (folder / "a.txt").write_text("one")
    trigger = inbox(f"{folder}/*.txt")
    async with holdfast.open(url, agents=[trigger]) as hf:
        await ended(hf, 1)
        assert await hf.store.prune_deliveries(hf.store.clock.now() + 1) == 1
    read = []

    def digest_of(place, mark):
        read.append(place)
        return real(place, mark)

    real, files.digest_of = files.digest_of, digest_of
    try:
        async with holdfast.open(url, agents=[trigger]) as hf:
            await looked(hf)
            assert await hf.deliveries() == [] and read == []
            (folder / "b.txt").write_text("two")
            await ended(hf, 2)
            assert read == [str(folder / "b.txt")]
    finally:
        files.digest_of = real


def test_a_file_is_taken_when_it_has_not_changed_for_a_while(folder):
    """Time is given here: what is looked at and when."""
    looks = files.Folder(inbox(f"{folder}/*.txt", settle="2s").spec)
    looks.known = {}
    file = folder / "a.txt"
    file.write_text("0")
    looks.note(looks.scan(), 100.0)
    looks.note(looks.scan(), 101.9)
    assert looks.settled(101.9) == [] and looks.next_look() == 0.0
    with file.open("a") as more:
        more.write("1")
    looks.hear(str(file))
    looks.note(looks.look(looks.heard), 101.95, {"a.txt"})
    assert looks.settled(103.9) == []
    ((path, mark),) = looks.settled(103.95)
    assert path == "a.txt" and files.digest_of(str(file), mark) == f"sha256:{hashlib.sha256(b'01').hexdigest()}"
    file.write_text("written while it is read")
    assert files.digest_of(str(file), mark) is None
    file.unlink()
    looks.note(looks.scan(), 110.0)
    assert looks.settled(200.0) == []


async def test_what_is_no_file_or_cannot_be_had_is_passed_over_and_told(folder, url, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    (tmp_path / "secret.txt").write_text("secret")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/a.txt").write_text("elsewhere")
    (folder / "folder").symlink_to(tmp_path / "elsewhere")
    (folder / "loop").symlink_to(folder)
    (folder / "named.txt").mkdir()
    os.mkfifo(folder / "pipe.txt")
    os.close(os.open(os.fsencode(folder) + b"/\xff.txt", os.O_CREAT))
    (folder / "good.txt").write_text("good")
    async with holdfast.open(url, agents=[inbox(f"{folder}/**/*.txt")]) as hf:
        assert await ended(hf, 1) == ["good"]
        await looked(hf)
        assert len(await hf.deliveries()) == 1
    assert "link.txt over: it is a link, and links are not followed" in caplog.text
    assert "its name is not UTF-8" in caplog.text


async def test_a_file_that_fails_to_be_read_is_tried_again(folder, url, caplog, monkeypatch):
    (folder / "a.txt").write_text("closed")
    real, closed = files.digest_of, [True]

    def digest_of(place, mark):
        if closed:
            raise PermissionError(13, "Permission denied")
        return real(place, mark)

    monkeypatch.setattr(files, "digest_of", digest_of)
    async with holdfast.open(url, agents=[inbox(f"{folder}/*.txt")]) as hf:
        while "it cannot be read (Permission denied)" not in caplog.text:
            await asyncio.sleep(0.01)
        assert await hf.deliveries() == []
        closed.clear()
        assert await ended(hf, 1) == ["closed"]


async def test_a_file_that_vanishes_is_forgotten_or_a_dead_letter(folder, url):
    @holdfast.on.files(f"{folder}/*.txt", settle="0.1s", retry=1)
    def found(delivery):
        Path(delivery.headers["path"]).unlink()
        return holdfast.Start(reads, Path(delivery.headers["path"]).read_text(), "")

    async with holdfast.open(url, agents=[found]) as hf:
        (folder / "quick.txt").write_text("gone before it is whole")
        (folder / "quick.txt").unlink()
        (folder / "a.txt").write_text("gone when it is mapped")
        while not (dead := await hf.deliveries(status="dead")):
            await asyncio.sleep(0.02)
        assert [info.error.partition(":")[0] for info in dead] == ["FileNotFoundError"]


async def test_a_folder_that_is_not_there_yet_is_waited_for(tmp_path, url, caplog):
    async with holdfast.open(url, agents=[inbox(f"{tmp_path}/later/*.txt")]) as hf:
        while "there is no such folder yet" not in caplog.text:
            await asyncio.sleep(0.01)
        (tmp_path / "later").mkdir()
        (tmp_path / "later/a.txt").write_text("late")
        assert await ended(hf, 1) == ["late"]


async def test_two_workers_find_a_file_once(folder, url):
    trigger = inbox(f"{folder}/*.txt")
    async with holdfast.open(url, agents=[trigger]) as one, holdfast.open(url, agents=[trigger]):
        for number in range(20):
            (folder / f"{number}.txt").write_text(f"{number}")
        assert len(await ended(one, 20)) == 20
        await looked(one)
        assert len(await one.deliveries()) == 20


async def test_a_file_larger_than_what_is_read_at_once(folder, url):
    with (folder / "big.txt").open("wb") as file:
        file.truncate(3 * files._PIECE + 5)

    @holdfast.on.files(f"{folder}/*.txt", settle="0.1s")
    def found(delivery):
        return holdfast.Start(reads, __file__, delivery.headers["digest"], labels={"size": delivery.headers["size"]})

    async with holdfast.open(url, agents=[found]) as hf:
        await ended(hf, 1)
        (run,) = await hf.runs()
        assert run.labels == {"size": str(3 * files._PIECE + 5)}


def test_a_file_may_be_of_any_time():
    for modified, told in [
        (-1_000_000_000, "1969-12-31T23:59:59+00:00"),
        (10**21, "9999-12-31"),
        (-(10**21), "0001-01-01"),
    ]:
        headers = files.told_of("/in/a.txt", "a.txt", "sha256:0", f"5-{modified}--7")
        assert headers["modified"].startswith(told) and headers["size"] == "5"


async def test_a_file_that_cannot_be_taken_holds_up_no_other(folder, url, caplog, monkeypatch):
    real = files.told_of

    def told_of(place, name, digest, mark):
        if name == "a.txt":
            raise LookupError("nobody knows why")
        return real(place, name, digest, mark)

    monkeypatch.setattr(files, "told_of", told_of)
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(name)
    async with holdfast.open(url, agents=[inbox(f"{folder}/*.txt")]) as hf:
        assert await ended(hf, 1) == ["b.txt"]
    assert caplog.text.count("a.txt over: it cannot be taken (LookupError: nobody knows why)") == 1


def test_paths_that_are_too_long_or_too_deep_are_passed_over_and_told(folder, caplog):
    (folder / "a.txt").write_text("a")
    long = folder.joinpath(*["x" * 250] * 8)
    deep = folder.joinpath(*["y"] * 400)
    for each in (long, deep):
        each.mkdir(parents=True)
        (each / "b.txt").write_text("b")
    looks = files.Folder(inbox(f"{folder}/**/*.txt").spec)
    assert list(looks.scan()) == ["a.txt"]
    assert not looks.hear(str(deep / "b.txt"))
    assert "at most 2000 can be kept; move it up" in caplog.text
    assert "it lies in more than 200 folders; move it up" in caplog.text

"""Files of a store on a computer that others use too: another account reads nothing and leads nothing elsewhere."""

import asyncio
import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import holdfast
from holdfast.errors import StoreUnavailable

NOBODY = 65_534
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to act as another account")


@holdfast.agent
async def asks(secret: str) -> str:
    return secret if await holdfast.approve("Go on?") else ""


@pytest.fixture(params=[0o000, 0o002, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture
def shared():
    """A folder of the system's temporary one, in which every account may make files."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o1777)
        yield Path(folder)


def modes(folder):
    return {path.name.split(".lock")[0]: stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


async def test_files_are_for_their_account_alone(tmp_path, umask):
    """Whatever the umask: the file, its logs, its backup, locks and sockets are 0600, the folder of workers 0700."""
    tmp_path.chmod(0o777)

    async with holdfast.open(f"sqlite:{tmp_path}/x.db", agents=[asks]) as hf:
        run = await hf.start(asks, "s3cret", id="r")
        await run.wait_for_question()
        await hf.backup(tmp_path / "copy.db")
        found = modes(tmp_path)
    assert len(found) >= 7, found
    assert {"x.db", "x.db-wal", "x.db-shm", "copy.db", "x.db-workers"} <= found.keys()
    assert {mode for name, mode in found.items() if name != "x.db-workers"} == {0o600}, found
    assert found["x.db-workers"] == 0o700


async def test_a_file_that_was_opened_to_a_group_stays_so(tmp_path):
    """Whoever may read and write the file may do so with what lies beside it: workers of two accounts share a store."""
    path = tmp_path / "x.db"
    path.touch()
    path.chmod(0o660)

    async with holdfast.open(f"sqlite:{path}", agents=[asks]) as hf:
        run = await hf.start(asks, "s3cret", id="r")
        await run.wait_for_question()
        found = modes(tmp_path)
    assert found.pop("x.db-workers") == 0o770
    assert set(found.values()) == {0o660}, found


@AS_ROOT
@pytest.mark.parametrize("trap", ["folder", "link"])
def test_a_folder_of_workers_made_by_another_account_is_refused(shared, trap):
    """In a folder that all may write, another account was there first: nothing is written, and the error says what to do."""
    mine, theirs = shared / "x.db-workers", shared / "elsewhere"
    plant = {"folder": "os.mkdir(mine)", "link": "os.mkdir(theirs, 0o777); os.symlink(theirs, mine)"}[trap]
    code = f"import os; os.setuid({NOBODY}); mine, theirs = {str(mine)!r}, {str(theirs)!r}; {plant}"
    subprocess.run([sys.executable, "-c", code], check=True)

    async def main():
        async with holdfast.open(f"sqlite:{shared}/x.db", agents=[asks]):
            pass

    with pytest.raises(StoreUnavailable, match=r"x\.db-workers.*remove it"):
        asyncio.run(main())
    assert list((theirs if trap == "link" else mine).iterdir()) == []


@AS_ROOT
@pytest.mark.parametrize("name", ["x.db", "x.db-wal", "x.db-shm", "x.db-journal", "x.db as a link"])
@pytest.mark.parametrize("mode", [0o1777, 0o777], ids=oct)
def test_a_file_that_another_account_has_put_there_is_refused(shared, name, mode):
    """Where all may write, what another account made would be open to it for ever: nothing is written to it."""
    shared.chmod(mode)
    file = shared / name.partition(" ")[0]
    plant = "os.close(os.open({!r}, os.O_CREAT, 0o666))"
    plant = (
        plant.format(str(file))
        if " " not in name
        else plant.format(str(shared / "y")) + f"; os.symlink('y', {str(file)!r})"
    )
    subprocess.run([sys.executable, "-c", f"import os; os.setuid({NOBODY}); os.umask(0); {plant}"], check=True)

    async def main():
        async with holdfast.open(f"sqlite:{shared}/x.db", agents=[asks]):
            pass

    with pytest.raises(StoreUnavailable, match=rf"{file.name}' belongs to another account.*remove it"):
        asyncio.run(main())
    assert file.stat().st_size == 0
    file.unlink()
    asyncio.run(main())


@AS_ROOT
def test_another_account_reads_nothing(shared):
    """Though it may enter the folder, it opens none of the files."""
    read = (
        f"import os, pathlib; os.setgid({NOBODY}); os.setuid({NOBODY})\n"
        f"for path in sorted(pathlib.Path({str(shared)!r}).glob('x*')):\n"
        "    try: path.read_bytes() if path.is_file() else list(path.iterdir()); print('READ', path)\n"
        "    except PermissionError: print('refused', path.name)\n"
    )
    before = os.umask(0)

    async def main():
        async with holdfast.open(f"sqlite:{shared}/x.db", agents=[asks]) as hf:
            run = await hf.start(asks, "s3cret", id="r")
            await run.wait_for_question()
            return await asyncio.to_thread(subprocess.check_output, [sys.executable, "-c", read], text=True)

    try:
        said = asyncio.run(main())
    finally:
        os.umask(before)
    assert said.count("refused") == 4
    assert "READ" not in said

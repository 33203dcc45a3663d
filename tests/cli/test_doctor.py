"""`holdfast doctor` on stores in trouble, and looking at stores that cannot be written."""

import random
import shutil
import subprocess

import pytest
from tests.cli.terminal import FLEET


@pytest.fixture
def mounted(tmp_path):
    """Mount a folder of the test; it is let go of at the end."""
    folders = []

    def mount(folder, *words):
        folder.mkdir(exist_ok=True)
        done = subprocess.run(["mount", *words, str(folder)], capture_output=True, check=False)
        if done.returncode:
            pytest.skip("nothing can be mounted (are you root?)")
        if folder not in folders:
            folders.append(folder)
        return folder

    yield mount
    for folder in reversed(folders):
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_doctor_tells_of_a_store_in_postgresql(terminal, postgres_url):
    """What server and database it is, how large, how durable; with nothing wrong the exit code is 0."""
    assert terminal.run("run", f"{FLEET}:twice", "1", "--id", "a", "--db", postgres_url)[0] == 0
    code, told = terminal.run("doctor", "--db", postgres_url)
    assert (code, "nothing is wrong" in told) == (0, True), told
    assert "PostgreSQL" in told
    assert "1 completed" in told
    assert "0 alive" in told


def test_doctor_tells_of_a_disk_that_is_full(cli, mounted):
    """How much is left, before and after nothing is, and what to do."""
    disk = mounted(cli.folder / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs")
    cli.run("twice", 1, "--id", "a", "--db", f"sqlite:{disk / 'a.db'}")
    subprocess.run(["dd", "if=/dev/zero", f"of={disk / 'fill'}"], capture_output=True, check=False)
    found = cli("doctor", "--db", f"sqlite:{disk / 'a.db'}")
    assert found.exit_code == 1, found.output
    assert "left" in found.stdout
    assert "Make room" in found.stdout


def test_doctor_tells_of_runs_that_failed(cli):
    """How many and which, and what to do with them."""
    cli.run("hopeful", 1, "--id", "b")
    found = cli("doctor")
    assert found.exit_code == 1
    assert "1 run has failed, b" in found.stdout
    assert "holdfast show b" in found.stdout


@pytest.mark.by_day("1")
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_doctor_tells_of_a_damaged_file_in_words(cli, seed):
    """What SQLite found, in a few lines and not as a list of Python, and what to do, whatever else can still be read."""
    for number in range(12):
        cli.run("twice", number, "--id", f"run-{number}")
    file = cli.folder / "holdfast.db"
    size, chance = file.stat().st_size, random.Random(seed)
    with file.open("r+b") as opened:
        for place in range(size // 4 * seed, size, 4096):
            opened.seek(place + 8)
            opened.write(chance.randbytes(2000))
    found = cli("doctor")
    assert found.exit_code == 1, found.output
    assert "the file is damaged" in found.stdout
    assert "['" not in found.output
    assert "holdfast restore" in found.stdout
    assert "Traceback" not in found.output
    assert cli.json("doctor")["problems"][0]["problem"].startswith("the file is damaged")


def test_a_store_in_a_folder_that_cannot_be_written_is_looked_at(cli, mounted):
    """A file on a read-only file system, with its log or without: `runs`, `show` and `doctor` work, changes are refused."""
    there = cli.folder / "there"
    there.mkdir()
    cli.run("twice", 1, "--id", "a", "--db", f"sqlite:{there / 'a.db'}")
    shutil.copytree(there, cli.folder / "kept")
    mounted(there, "--bind", str(there))
    mounted(there, "-o", "remount,ro,bind")
    look(cli, f"sqlite:{there / 'a.db'}")
    assert sorted(each.name for each in there.iterdir()) == sorted(
        each.name for each in (cli.folder / "kept").iterdir()
    )


def test_a_file_that_cannot_be_written_is_looked_at(cli):
    """A backup that nobody may change."""
    cli.run("twice", 1, "--id", "a")
    file = cli.folder / "holdfast.db"
    if subprocess.run(["chattr", "+i", str(file)], capture_output=True, check=False).returncode:
        pytest.skip("a file cannot be made unchangeable here")
    try:
        before = file.read_bytes()
        look(cli, "sqlite:holdfast.db")
        assert file.read_bytes() == before
    finally:
        subprocess.run(["chattr", "-i", str(file)], check=True)


def look(cli, url):
    assert [each["id"] for each in cli.json("runs", "--db", url)["runs"]] == ["a"]
    assert "completed" in cli("show", "a", "--db", url).stdout
    healthy = cli("doctor", "--db", url)
    assert healthy.exit_code == 0, healthy.output
    assert url in healthy.stdout
    assert "can only be looked at" in healthy.stdout
    refused = cli("delete", "a", "--db", url)
    assert refused.exit_code != 0
    assert "cannot be changed" in refused.output

"""docs/operations.md: its tables are made from the code, its numbers are measured, its backup works under load."""

import asyncio
import re
import subprocess
import time

import pytest
from tests.chaos.server import programs
from tests.docs.pages import ROOT, between, module, page

import holdfast
from holdfast.http.health import METRICS as SERVER_METRICS
from holdfast.worker.metrics import METRICS, STORE_METRICS

PAGE = "docs/operations.md"

AGENT = """
import asyncio, os, holdfast

@holdfast.step
async def effect(run: str, n: int) -> str:
    while n == 59 and not os.path.exists("copied"):  # the last step of each run comes after the copy
        await asyncio.sleep(0.01)
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(f"{run} {n} {holdfast.idempotency_key()}\\n")
    return f"result {n} " + "x" * 200

@holdfast.agent
async def busy(run: str, steps: int) -> int:
    return sum([len(await effect(run, n)) > 0 for n in range(steps)])
"""


@pytest.mark.parametrize(
    ("mark", "metrics"),
    [("metrics", METRICS), ("server metrics", [each for each in SERVER_METRICS if each not in STORE_METRICS])],
)
def test_the_table_of_metrics_is_made_from_the_code(mark, metrics):
    """Every metric with its kind, labels and meaning, in order."""
    rows = ["| metric | | labels | meaning |", "|---|---|---|---|"]
    for each in metrics:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        rows.append(f"| `{each.name}` | {each.kind} | {labels} | {each.help} |")
    assert between(page(PAGE), mark).strip() == "\n".join(rows)


def test_alerts_are_about_metrics_that_exist():
    """Each name in the table of alerts is one of ours, and most of ours have an alert or a sentence."""
    known = {each.name for each in METRICS}
    alerts = page(PAGE).split("## What to alert on")[1].split("\n## ")[0]
    named = {re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"holdfast_\w+", alerts)}
    assert named <= known
    assert len(named) >= 8


# A row of the table of sizes -> where benchmarks/results.md has the number.
MEASURED = {
    "steps a second, many runs at once": r"\| 500 runs of 20 steps \| ([\d,]+) steps/s",
    "steps a second, one run alone": r"\| 2 \| 1 run of 1000 steps \| ([\d,]+) steps/s",
    "processor time per step, many runs at once": r"\| 500 runs of 20 steps, durability=power \|.*?processor (\d+)",
    "memory of a worker that serves 100,000 waiting runs": r"serves 100,000 waiting runs \| (\d+) MB",
    "room in the store for 100,000 waiting runs": r"start 100,000 runs and park them all \|.*?([\d.]+) MB of file",
    "room in the store for a recorded result of 2 KiB": r"each kept by the agent \| [\d,]+ KiB \| ([\d.]+) x",
    "resume after 10,000 steps": r"resume after 10000 steps: .*? \| ([\d.]+) s",
    "the same with a checkpoint every 100 steps": r"the same with a checkpoint every 100: .*? \| ([\d.]+) ms",
}


def test_what_is_said_of_sizes_was_measured():
    """Each row of the table holds by the numbers of the benchmarks as they are now."""
    table = page(PAGE).split("| what | measured |")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()[2:]]
    assert [what for what, _ in rows] == list(MEASURED)
    for what, said in rows:
        more, bound = re.match(r"(more|less) than ([\d,.]+)", said).groups()
        measured = float(re.search(MEASURED[what], page("benchmarks/results.md"))[1].replace(",", ""))
        bound = float(bound.replace(",", ""))
        assert measured > bound if more == "more" else measured < bound, f"{what}: {said}, measured {measured}"


def copied_file(tmp_path, request):
    """A SQLite store, backed up and restored as the page says."""
    return _copied(f"sqlite:{tmp_path / 'a.db'}", f"sqlite:{tmp_path / 'copy.db'}", tmp_path)


def copied_schema(tmp_path, request):
    """A PostgreSQL store, backed up and restored as the page says."""
    url = request.getfixturevalue("postgres_url")
    return _copied(url, f"{url}_copy", tmp_path)


def _copied(source, copy, tmp_path):
    def back_up():
        code, file = module(PAGE, "operations: backup"), tmp_path / "a.backup"
        runs = asyncio.run(code.back_up(source, file))
        assert asyncio.run(code.put_back(file, copy)) == runs > 0
        assert asyncio.run(code.go_on(copy)) > 0

    return source, copy, back_up


def copied_database(tmp_path, request):
    """A PostgreSQL store, dumped and restored into a database of its own."""
    url = request.getfixturevalue("postgres_url")
    server, schema = url.split("?schema=")
    dump, restored = tmp_path / "dump", f"restored_{schema}"
    elsewhere = f"{server.rpartition('/')[0]}/{restored}"

    def run(program, *words):
        done = subprocess.run([programs() / program, *words], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def back_up():
        run("pg_dump", "--format=custom", f"--schema={schema}", f"--file={dump}", server)
        run("createdb", f"--maintenance-db={server}", restored)
        run("pg_restore", f"--dbname={elsewhere}", dump)

    def clear():
        for _ in range(100):  # the server notices by and by that the sessions of killed workers are gone
            done = subprocess.run(
                [programs() / "dropdb", "--if-exists", f"--maintenance-db={server}", restored], check=False
            )
            if done.returncode == 0:
                return
            time.sleep(0.1)

    request.addfinalizer(clear)
    return url, f"{elsewhere}?schema={schema}", back_up


@pytest.mark.by_day("copied_file")
@pytest.mark.parametrize("kind", [copied_file, copied_schema, copied_database])
def test_a_backup_under_load_goes_on_with_the_same_keys(kind, tmp_path, request, terminal):
    """A copy taken while a worker writes is sound; its runs go on from it, and what runs again has the same key."""
    source, copy, back_up = kind(tmp_path, request)
    (tmp_path / "agents.py").write_text(AGENT)
    terminal.env["EFFECTS"] = str(tmp_path / "effects")
    runs, steps = 20, 60

    async def start():
        async with holdfast.open(source) as hf:
            for n in range(runs):
                await hf.start("busy", f"r{n}", steps, id=f"r{n}")

    async def end(url):
        async with holdfast.open(url) as hf:
            return [await hf.get(f"r{n}").result(timeout=50) for n in range(runs)]

    async def recorded(url):
        async with holdfast.open(url) as hf:
            return len([event async for event in hf.events(kinds="step.completed", follow=False)])

    def effects(name="effects"):
        return [tuple(line.split()) for line in (tmp_path / name).read_text().splitlines()]

    worker = terminal.start("worker", "agents.py", "--db", source, "--lease", 2)
    worker.until("Serving busy")
    asyncio.run(start())
    worker.until("done")
    back_up()  # the worker writes all the while
    terminal.touch("copied")
    assert asyncio.run(end(source)) == [steps] * runs
    worker.kill()
    first = {(run, n): key for run, n, key in effects()}
    kept = asyncio.run(recorded(copy))
    assert 0 < kept < runs * steps
    terminal.env["EFFECTS"] = str(tmp_path / "again")
    second = terminal.start("worker", "agents.py", "--db", copy)
    second.until("Serving busy")
    assert asyncio.run(end(copy)) == [steps] * runs
    second.kill()
    again = {(run, n): key for run, n, key in effects("again")}
    assert len(effects("again")) == len(again) == runs * steps - kept  # what was recorded did not run again
    assert all(first[call] == key for call, key in again.items())


def test_the_page_is_linked():
    """The README leads to it."""
    assert "docs/operations.md" in (ROOT / "README.md").read_text()

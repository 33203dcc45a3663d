"""The first hour of somebody with 5,000 documents to read."""

from collections import Counter

from tests.first_hours.conftest import until

READER = """
import asyncio, holdfast

@holdfast.step(retry=2)
async def read(number: int) -> int:
    with open("read", "a") as ledger:
        ledger.write(f"{number}\\n")
    if number % 1000 == 999:
        raise ValueError(f"document {number} is empty")
    return number

@holdfast.agent
async def library(documents: int) -> str:
    slots, done = asyncio.Semaphore(50), 0

    async def one(number):
        nonlocal done
        async with slots:
            try:
                found = await read(number)
            except (ValueError, holdfast.StepFailed):
                found = None
        done += 1
        if done % 500 == 0:
            await holdfast.progress(done, documents)
        return found

    found = await asyncio.gather(*[one(number) for number in range(documents)])
    return f"{sum(each is not None for each in found)} of {documents}"
"""


def test_five_thousand_documents_and_two_kills(user):
    """What was read stays read over two kills; `show` stays a page; the failures can be found."""
    user.writes("reader.py", READER)
    run = ("holdfast", "run", "reader.py:library", "5000", "--id", "all")
    for enough in (1000, 3000):
        working = user.starts(*run)
        until(lambda least=enough: len(user.lines("read")) > least, f"{enough} documents")
        working.kill()
    assert "4995 of 5000" in user.types(*run)

    bodies = Counter(user.lines("read"))
    assert len(bodies) == 5000
    # Bodies that ran when a process was killed run again, and the five that fail are tried twice.
    assert sum(bodies.values()) <= 5000 + 5 + 2 * 100, sum(bodies.values())
    shown = user.types("holdfast", "show", "all").splitlines()
    assert len(shown) < 200 and any("more like this" in line for line in shown)
    failed = user.types("holdfast", "show", "all", "--failed")
    assert all(f"read(number={number})" in failed for number in (999, 1999, 2999, 3999, 4999))
    assert user.asks("holdfast", "runs")["runs"][0]["progress"]["done"] == 5000

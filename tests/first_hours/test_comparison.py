"""The first hour of somebody who compares: the same work without Holdfast and with it, killed as often."""

from collections import Counter

from tests.first_hours.conftest import until

PLAIN = """
import asyncio, sys

async def fetch(n):
    with open("plain", "a") as ledger:
        ledger.write(f"{n}\\n")
    await asyncio.sleep(0.1)
    return n * n

async def crawl(pages):
    total = 0
    for n in range(pages):
        total += await fetch(n)
    print("total", total)

if __name__ == "__main__":
    asyncio.run(crawl(20))
"""
DURABLE = (
    PLAIN.replace("import asyncio, sys", "import asyncio, holdfast")
    .replace("async def fetch(n)", "@holdfast.step\nasync def fetch(n: int) -> int")
    .replace("async def crawl(pages)", "@holdfast.agent\nasync def crawl(pages: int) -> int")
    .replace('"plain"', '"durable"')
    .replace('    print("total", total)\n', "    return total\n")
    .partition("\nif __name__")[0]
)


def killed_at(user, words, name, places):
    """Run it, and kill it each time it has come so much further."""
    for place in places:
        working = user.starts(*words)
        until(lambda name=name, place=place: len(user.lines(name)) >= place, f"{place} lines")
        working.kill()
    return user.types(*words)


def test_what_kills_cost_without_and_with(user):
    """The plain program does everything again; the durable one repeats at most the step that each kill cut off."""
    user.writes("plain.py", PLAIN)
    user.writes("durable.py", DURABLE)
    places = [3, 8, 13]
    assert "total 2470" in killed_at(user, ("python", "plain.py"), "plain", places)
    run = ("holdfast", "run", "durable.py:crawl", "20", "--id", "c")
    assert "2470" in killed_at(user, run, "durable", places)
    plain, durable = Counter(user.lines("plain")), Counter(user.lines("durable"))
    assert sum(plain.values()) > 20 + 3 and sum(durable.values()) <= 20 + len(places)
    assert set(durable) == set(plain)
    assert user.asks("holdfast", "show", "c")["run"]["status"] == "completed"


def test_changed_code_is_found_before_it_acts(user):
    """A deploy in the middle that calls something else pauses the run, and says which line; put back, it goes on."""
    user.writes("durable.py", DURABLE)
    run = ("holdfast", "run", "durable.py:crawl", "20", "--id", "c")
    working = user.starts(*run)
    until(lambda: len(user.lines("durable")) >= 5)
    working.kill()
    user.writes("durable.py", DURABLE.replace("fetch(n)\n    return", "fetch(n + 1)\n    return"))
    before = len(user.lines("durable"))
    printed, code = user.starts(*run).ends()
    assert code != 0 and "fetch" in printed, printed
    assert len(user.lines("durable")) == before
    user.writes("durable.py", DURABLE)
    user.types("holdfast", "resume", "c")
    assert "2470" in user.types(*run)

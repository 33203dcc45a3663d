"""A research agent: it finds pages on a topic, summarises them in parallel, asks a person, and publishes one report.

Nothing in here knows that it will be killed. The only thing said about crashes is `in_doubt=` at the step whose effect
must not happen twice.
"""

import asyncio
import json
import os
import re
import time
import urllib.parse
import urllib.request

import holdfast

SITE = os.environ.get("DEMO_SITE", "http://127.0.0.1:8765")
LEDGER = os.environ.get("DEMO_LEDGER", "ledger.jsonl")


def request(url: str, data: bytes | None = None, key: str = "") -> str:
    headers = {"Idempotency-Key": key} if key else {}
    with urllib.request.urlopen(urllib.request.Request(url, data, headers)) as answer:
        text: str = answer.read().decode()
        return text


def tally(step: str, about: str) -> None:
    """Note that a body runs: the demo counts these lines."""
    line = json.dumps({"step": step, "about": about, "process": os.getpid(), "at": time.time()})
    with open(LEDGER, "a", encoding="utf-8") as ledger:
        ledger.write(line + "\n")


@holdfast.step
def search(topic: str) -> list[str]:
    tally("search", topic)
    found: list[str] = json.loads(request(f"{SITE}/search?{urllib.parse.urlencode({'q': topic})}"))
    return found


@holdfast.step(retry=5, timeout="30s")
def summarise(url: str) -> str:
    tally("summarise", url.rpartition("/")[2])
    page = request(url)
    title = re.findall(r"<h1>(.*?)</h1>", page)[0]
    first, *_, last = re.split(r"(?<=\.)\s+", re.findall(r"<p>(.*?)</p>", page, re.DOTALL)[0].strip())
    return " ".join(f"{title}: {first} {last}".split())


async def published(text: str) -> str | holdfast.NotDone:
    """Has the report been published under this call's key? Asked when a crash left it in doubt."""
    answer = await asyncio.to_thread(request, f"{SITE}/published/{holdfast.idempotency_key()}")
    path: str | None = json.loads(answer)
    return path or holdfast.NOT_DONE


@holdfast.step(in_doubt=published)
async def publish(text: str) -> str:
    tally("publish", "report.md")
    answer = await asyncio.to_thread(request, f"{SITE}/publish", text.encode(), holdfast.idempotency_key())
    path: str = json.loads(answer)
    return path


@holdfast.agent
async def research(topic: str) -> str:
    urls = await search(topic)
    notes = await asyncio.gather(*[summarise(url) for url in urls])
    if not await holdfast.approve("Publish this report?", show=notes):
        return "kept as a draft"
    return await publish(f"# {topic}\n\n" + "\n".join(f"- {note}" for note in notes) + "\n")

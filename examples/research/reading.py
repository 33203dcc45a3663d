"""What both releases of the research agent do: read pages, ask a model, publish. Each of these is a step."""

import asyncio
import os
import re
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import TypeVar
from urllib.parse import urljoin

import openai

import holdfast

MODEL_URL = os.environ.get("MODEL_URL", "http://127.0.0.1:8711/v1")
AT_ONCE = 4
Item, Result = TypeVar("Item"), TypeVar("Result")


@dataclass
class Page:
    """What a page says, and where it leads."""

    url: str
    title: str
    text: str
    links: list[str]


class _Reader(HTMLParser):
    """Picks the title, the text of <main> and its links out of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.words: dict[str, list[str]] = {"title": [], "main": []}
        self.links: list[str] = []
        self._inside: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside.append(tag)
        if tag == "a" and "main" in self._inside:
            self.links.append(dict(attrs).get("href") or "")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass  # what was never closed

    def handle_data(self, data: str) -> None:
        for part, words in self.words.items():
            if part in self._inside and "a" not in self._inside:
                words.append(data)

    def said(self, part: str) -> str:
        return re.sub(r"\s+", " ", "".join(self.words[part])).strip()


@holdfast.step(retry=holdfast.Retry.tool)
def read(url: str) -> Page:
    with urllib.request.urlopen(url, timeout=30) as answer:
        html = answer.read().decode()
    reader = _Reader()
    reader.feed(html)
    return Page(url, reader.said("title"), reader.said("main"), [urljoin(url, link) for link in reader.links])


@holdfast.resource
async def model() -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=MODEL_URL, api_key="none", max_retries=0) as client:
        yield client


@holdfast.step(retry=holdfast.Retry.model, timeout="5m", effects=False)
async def ask(prompt: str) -> str:
    client = await model()
    answer = await client.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": prompt}], max_tokens=60, temperature=0
    )
    holdfast.spend(
        input_tokens=answer.usage.prompt_tokens, output_tokens=answer.usage.completion_tokens, model="smollm2"
    )
    return answer.choices[0].message.content.strip()


@holdfast.step(retry=5)
def publish(site: str, report: str) -> str:
    headers = {"Idempotency-Key": holdfast.idempotency_key()}  # run again after a crash: the site knows the key
    with urllib.request.urlopen(urllib.request.Request(urljoin(site, "/reports"), report.encode(), headers)) as answer:
        place: str = answer.read().decode()
        return place


async def each(work: Callable[[Item], Awaitable[Result]], items: Iterable[Item]) -> list[Result]:
    """The work done for each item, a few at once; results in the order of the items."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def one(item: Item) -> Result:
        async with turn:
            return await work(item)

    return await asyncio.gather(*map(one, items))


async def crawl(start: str, most: int) -> list[Page]:
    """The pages that links lead to from here, the nearest first."""
    known, pages = [start], list[Page]()
    while wave := known[len(pages) : most]:
        found = await each(read, wave)
        pages += found
        links = dict.fromkeys(link for page in found for link in page.links)
        known += [link for link in links if link not in known]
    return pages


async def note(page: Page) -> str:
    """One sentence about a page."""
    return await ask(f"{page.title}: {page.text}\n\nSummarise the text above in one sentence.")


def joined(notes: Iterable[str]) -> str:
    """The request for a text about all of this."""
    return "\n".join(notes) + "\n\nSummarise the notes above in two sentences."

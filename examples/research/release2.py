"""Release 2: the notes of many pages are too long for one request, so they are joined in sections first."""

from reading import ask, crawl, each, joined, note, publish

import holdfast

SECTION = 8


@holdfast.agent
async def research(start: str, pages: int = 40) -> str:
    found = await crawl(start, pages)
    notes = await each(note, found)
    if holdfast.patched("sections"):  # not in runs that have their report already
        sections = [notes[first : first + SECTION] for first in range(0, len(notes), SECTION)]
        notes = await each(ask, map(joined, sections))
    report = await ask(joined(notes))
    if await holdfast.approve("Publish this report?", show=report):
        return await publish(start, report)
    return "not published"

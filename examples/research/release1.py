"""Release 1: reads pages, takes a note of each, and writes a report, which a person lets out."""

from reading import ask, crawl, each, joined, note, publish

import holdfast


@holdfast.agent
async def research(start: str, pages: int = 40) -> str:
    found = await crawl(start, pages)
    notes = await each(note, found)
    report = await ask(joined(notes))
    if await holdfast.approve("Publish this report?", show=report):
        return await publish(start, report)
    return "not published"

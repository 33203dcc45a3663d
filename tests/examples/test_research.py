"""The research example, killed at every boundary of its journal, with a deploy at the kill: what is recorded is not done again."""

from collections import Counter

import pytest
from tests.examples.research import START, open_coast, part

import holdfast
import holdfast.testing

coast, reading, release1, release2 = (part(name) for name in ("coast", "reading", "release1", "release2"))
PAGES = 5  # two sections; with the 40 of the story there would be ten times as many places to be killed at


@pytest.fixture
def small(monkeypatch):
    """A model that is too small for the notes of five pages, and not for those of three."""
    monkeypatch.setattr(coast, "CONTEXT", 80)
    monkeypatch.setattr(release2, "SECTION", 3)


async def history(run):
    """The keys of the steps on record before the first crash that caught the run at work, and after it."""
    events = [event async for event in run.events(follow=False)]
    crash = next((at for at, event in enumerate(events) if event.kind == "run.interrupted"), len(events))
    done = [
        [event.key for event in part if event.kind == "step.completed"] for part in (events[:crash], events[crash:])
    ]
    return done[0], done[1]


@pytest.mark.nightly
@pytest.mark.timeout(300)
async def test_killed_everywhere_and_deployed_then_it_ends_right_and_pays_once(small, monkeypatch):
    """Release 2 goes on wherever release 1 was killed or failed; a page or an answer that is on record is not asked for again."""
    ends = Counter()
    async for hf in holdfast.testing.crash_everywhere(agents=[release1]):
        with open_coast() as (site, model):
            monkeypatch.setattr(reading, "MODEL_URL", model.url)
            hf.deploy([release2])  # whenever it comes back
            run = await hf.start("research", site.url + START, PAGES, id="atlas")
            refused = (await run.wait("failed", "waiting")).status == "failed"
            if refused:
                await hf.crash()
                await run.retry()
                await run.wait("waiting")
            await hf.approve("atlas", by="ana")
            assert await run.result() == f"{site.url}/reports/1"

            before, after = await history(run)
            names = Counter(key.rpartition("/")[2] for key in before + after)
            assert names == {"read#0": PAGES, "ask#0": PAGES + 2 + 1, "publish#0": 1}
            report = {"ask#0"} if refused else set()  # which release 1 had asked for too, at the same place
            assert {key for key in before if hf.keys[key] != 1} <= report
            assert {key for key in after if hf.keys[key] > 2} <= report
            books = site.books()
            assert (books["pages"]["different"], len(books["reports"])) == (PAGES, 1)
            assert books["pages"]["read"] <= hf.bodies[reading.read]
            assert books["model"]["paid"] + refused <= books["model"]["asked"] <= hf.bodies[reading.ask]
            ends["refused" if refused else "deployed in time"] += 1
            ends["something was at work"] += bool(after)
    assert min(ends.values()) > 10, ends


async def test_a_run_past_the_line_keeps_the_old_side(monkeypatch):
    """A report that release 1 wrote is published by release 2 as it is: no section is asked for."""
    async with holdfast.testing.open(agents=[release1]) as hf:
        with open_coast() as (site, model):
            monkeypatch.setattr(reading, "MODEL_URL", model.url)
            run = await hf.start("research", site.url + START, PAGES, id="few")
            await run.wait("waiting")
            ((question, asked),) = [(each.shown, site.books()["model"]) for each in await hf.approvals()]
            hf.deploy([release2])
            await hf.crash()
            await hf.approve("few", by="ana")
            assert await run.result() == f"{site.url}/reports/1"
            assert site.books()["reports"] == [question]
            assert site.books()["model"] == asked == {"asked": PAGES + 1, "paid": PAGES + 1}


async def test_the_links_lead_to_forty_pages(monkeypatch):
    """Each page is read once, whatever leads to it, and all of it is text of the atlas."""
    with open_coast() as (site, _):
        pages = await reading.crawl(site.url + START, 100)
        assert len({page.title for page in pages}) == len(pages) == site.books()["pages"]["read"] == 40
        entries = part("coast").HERE.joinpath("atlas.md").read_text("utf-8")
        assert [page.title for page in pages if page.text not in entries] == []

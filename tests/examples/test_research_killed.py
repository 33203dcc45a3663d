"""The research example over all 40 pages, with real processes that die of SIGKILL again and again, and a real deploy."""

import asyncio
from contextlib import contextmanager

import pytest
from tests.examples.research import EXAMPLE, START, open_coast, part

import holdfast
from holdfast.testing.provider import Hang

answer = part("coast").answer


class Model:
    """The script of a model that answers so many requests and leaves all later ones without an answer."""

    def __init__(self):
        self.answers = 0

    def __call__(self, request):
        return answer(request) if request.number <= self.answers else Hang()


@contextmanager
def desk(terminal):
    """Where somebody runs the example: the site, the model, and its script."""
    script = Model()
    with open_coast(script=script) as (site, model):
        terminal.env |= {"MODEL_URL": model.url, "HOLDFAST_URL": f"sqlite:{terminal.folder / 'agents.db'}"}
        yield site, model, script


async def answered(folder):
    """How many answers of the model are on record."""
    async with holdfast.open(f"sqlite:{folder / 'agents.db'}") as hf:
        events = hf.get("atlas").events(follow=False)
        return len([event async for event in events if event.kind == "step.completed" and event.data["name"] == "ask"])


@pytest.mark.timeout(300)
def test_killed_again_and_again_over_a_deploy_it_pays_for_each_answer_once(tmp_path, terminal):
    """With four requests in the air at each of three kills, 12 are asked again: nothing that was on record, and no page."""
    with desk(terminal) as (site, model, script):

        def run(release):
            return terminal.start("run", EXAMPLE / f"{release}.py:research", site.url + START, "--id", "atlas")

        def killed_after(answers, release):
            script.answers = model.asked + answers
            process = run(release)
            model.wait_for(asked=script.answers + 4, hanging=4, timeout="60s")
            process.kill()

        for answers in (5, 15):
            killed_after(answers, "release1")
        assert asyncio.run(answered(tmp_path)) == 5 + 15
        script.answers = 1000
        first = run("release1")
        assert first.wait() == 1
        assert "exceeds the available context size" in first.output()
        assert asyncio.run(answered(tmp_path)) == 40
        assert model.asked == 40 + 2 * 4 + 1

        assert terminal.run("retry", "atlas")[0] == 0
        killed_after(1, "release2")  # of five sections
        script.answers = 1000
        second = run("release2")
        second.until("waits for a person")
        assert terminal.run("approve", "atlas", "--by", "ana")[0] == 0
        second.until(f"{site.url}/reports/1")
        assert asyncio.run(answered(tmp_path)) == 40 + 5 + 1
        assert (model.asked, model.paid) == (40 + 5 + 1 + 3 * 4 + 1, 40 + 5 + 1)
        assert site.books()["pages"] == {"different": 40, "read": 40}
        assert len(site.books()["reports"]) == 1

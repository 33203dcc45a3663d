"""Processes that export and import the onboarding example, and die where they are told to."""

from __future__ import annotations

import asyncio
import os
import signal

from tests.examples.onboarding import part

import holdfast
from holdfast.client.edge import open_bundle
from holdfast.store.urls import store_at
from holdfast.words.people import Actor


class Boundaries:
    """Counts the moments between which a process may die: around each commit, each flush of a file and each renaming."""

    def __init__(self, fatal: int | None) -> None:
        self._fatal, self.count = fatal, 0
        for name in ("fsync", "rename"):
            setattr(os, name, self._around(getattr(os, name)))

    def _around(self, function):
        def call(*arguments, **named):
            self._pass()
            result = function(*arguments, **named)
            self._pass()
            return result

        return call

    def before_commit(self, writes):
        self._pass()

    def after_commit(self, writes):
        self._pass()

    def _pass(self):
        self.count += 1
        if self.count == self._fatal:
            os.kill(os.getpid(), signal.SIGKILL)


class Client(holdfast.Client):
    """A client whose store tells these boundaries."""

    def __init__(self, url, boundaries=None, agents=()):
        super().__init__(url, agents=agents, settings=holdfast.Settings(park_grace_s=0.0))
        self._boundaries = boundaries

    def _make_store(self):
        return store_at(self._url, faults=self._boundaries)


def warm_up():
    """In the fork server: what every process would do first, done once."""
    for agent in vars(part("agents")).values():
        if isinstance(agent, holdfast.Agent):
            agent.spec.signature.schema()


def agents(office):
    """The example's agents, which ask this office."""
    module = part("agents")
    module.OFFICE = office
    return [module]


def begin(parent, url, office):
    """Onboard somebody until a person is asked."""

    async def main():
        async with Client(url, agents=agents(office)) as hf:
            run = await hf.start("onboard", "ada", id="ada")
            question = await run.wait_for_question(timeout=20)
            for each in await hf.runs():
                await hf.get(each.id).wait("waiting", timeout=20)
            parent.say(question=question.id)

    asyncio.run(main())


def export(parent, url, file, keys, to, fatal=None):
    """Move the run to a file."""

    async def main():
        boundaries = Boundaries(fatal)
        async with Client(url, boundaries) as hf:
            made = await hf.get("ada").export(file, move=to, keys=keys)
            parent.say(boundaries=boundaries.count, bundle=made.id)

    asyncio.run(main())


def approve(parent, file, keys, question):
    """Decide in the file, without any store."""

    async def main():
        ring = holdfast.Keys(keys)
        async with open_bundle(file, Actor("ana"), "cli:ana", ring.own, ring) as look:
            asked = await look.approval(question)
            decided = await look.approve(asked, by=Actor("ana", via="cli:ana"), data=["staff"])
        parent.say(status=decided.status)

    asyncio.run(main())


def bring(parent, url, file, keys, fatal=None):
    """Import the file; what was refused is said."""

    async def main():
        boundaries = Boundaries(fatal)
        async with Client(url, boundaries) as hf:
            try:
                await hf.import_run(file, keys=keys)
                refused = None
            except holdfast.HoldfastError as error:
                refused = str(error)
            parent.say(boundaries=boundaries.count, refused=refused)

    asyncio.run(main())


def finish(parent, url, office):
    """Carry the run to its end."""

    async def main():
        async with Client(url, agents=agents(office)) as hf:
            parent.say(result=await hf.get("ada").result(timeout=30))

    asyncio.run(main())

"""Forks: a run that goes on from an earlier point, of another run or of its own, and what was done behind that point before.

Look here for which calls of a fork are answered without a body, and which ask first.

A fork has its history up to the point from another run. There stands `run.forked`, which gives the identity of the run
from then on; the identity changes where the event is delivered. What was open at the point begins anew, under that
identity (`Journal`).

Behind the point the other run has gone on, and its steps had effects. A call of the fork that was made there too, by its key and
name, or elsewhere with the same input, is as one in doubt: its body ran, in another life. `effects` says what happens: "new" runs
it with a new idempotency key, "ask" has a person decide, "refuse" fails it. Steps that only read (`@step(effects=False)`), model
requests among them, always run. The same holds for a failed run that is retried from an earlier step; what was done is then what
the retry dropped. All that a run has still to do lies behind the point to which it went back last, so what was said there of
effects decides.

A child of a fork is a fork too, from its beginning: what it does may have been done by the child that the other run had there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, Protocol

from holdfast.engine.attempt import Attempt
from holdfast.engine.host import RUN_IT, Ended
from holdfast.errors import InDoubt, NotStorable, Suspended
from holdfast.runtime import StepSpec
from holdfast.store.forks import USE, Done
from holdfast.store.runs import Origin
from holdfast.values.codec import Shape, preview
from holdfast.values.tagged import read_noting
from holdfast.words.durations import moment
from holdfast.words.forks import fork_again
from holdfast.words.model import Event

_CHILDREN: Final = frozenset({"child.started", "child.spawned"})


class Doubtful(Protocol):
    """The call of a step, as it is looked at before its body runs."""

    key: str
    name: str
    digest: str
    preview: str
    spec: StepSpec
    attempt: Attempt

    def replace(self) -> None:
        """Note for the record that its outcome was put there."""

    def idempotency_key(self) -> str:
        """The key that its body would run with."""

    async def ask_person(self, why: str, text: str, shown: Any) -> Ended:
        """Have a person decide."""


class Former:
    """The past that a run went back from: what was done there, and what is to become of it."""

    __slots__ = ("_alike", "_born", "_done", "_retries", "children", "effects", "origin", "replaced", "said", "salts")

    def __init__(self, origin: dict[str, Any] | None, retries: dict[int, str], replaced: dict[str, str]) -> None:
        self.origin = origin  # data of the last `run.forked`; None: it only went back in its own history
        self._retries = retries  # what was said of effects at each retry from an earlier step, by its place
        said = retries if origin is None else {origin["at"]: origin["effects"], **retries}
        self.effects: str = said[max(said)]  # all that is to be done lies behind where the run went back to last
        self.replaced = replaced  # what calls get instead of what they would do, by key
        self._done: dict[str, Done] = {}
        self._alike: dict[tuple[str, str], Done] = {}  # steps by name and digest of their input, the last of each
        self._born: dict[tuple[str, str], Done] = {}  # and children
        self.children: dict[str, Done] = {}  # by the key of the call that started it
        self.said: dict[
            str, int
        ] = {}  # by conversation: where the first message stands that was added behind the point
        self.salts: dict[str, int] = {}

    def learn(self, found: Iterable[Done]) -> None:
        """Take in what was done, in the order in which it was."""
        for done in found:
            if done.dropped is not None and done.dropped not in self._retries:
                continue
            if done.dropped is not None and self._retries[done.dropped] == "new":
                self.salts[done.key] = done.dropped
            if done.kind == "conversation.added":
                where = done.data["conversation"]
                self.said[where] = min(self.said.get(where, done.data["first"]), done.data["first"])
            elif self.effects == "new":
                continue
            elif done.kind in _CHILDREN:
                self.children[done.key] = done
            elif done.kind == "step.failed" and (done.data.get("error") or {}).get("type") == InDoubt.__name__:
                self._done.setdefault(done.key, done)  # nobody knows, or what was done before it is
            elif done.kind == "step.failed" or (done.kind == "step.cancelled" and not done.data.get("in_doubt")):
                self._done.pop(done.key, None)  # an ordinary failure says that it was not done
            else:
                self._done[done.key] = done

    def settled(self) -> None:
        """Index what was done by its input too, once all is learnt: the code may come to it by another way now."""
        for found, done in ((self._alike, self._done), (self._born, self.children)):
            found.update({(each.data.get("name", ""), each.data.get("digest", "")): each for each in done.values()})

    def anew(self, key: str, digest: str) -> int | None:
        """Tell by what to salt a call that a retry dropped and that must not find what it made then; None: it may."""
        before = self.children.get(key)
        if before is not None and before.dropped is not None and before.data.get("digest") != digest:
            return before.dropped  # with another input it is another child
        return self.salts.get(key)

    def child(self, key: str, digest: str, copies: list[list[Any]]) -> Origin | None:
        """Tell where the child that a call starts comes from; None if the run is no fork."""
        if self.origin is None:
            return None
        before, name = self.children.get(key), key.rpartition("#")[0].rpartition("/")[2]
        if before is None or before.data.get("digest") != digest:
            before = self._born.get((name, digest), before)
        return Origin("" if before is None else before.data["child"], self.effects, self.origin["by"], copies)

    async def settle(self, call: Doubtful) -> Ended:
        """Find the outcome of a call whose body did not run in this life, or that its body must run."""
        text = self.replaced.get(call.key)
        if text is not None:
            return self._given(call, text)
        done = self._done.get(call.key)
        if done is None or done.data.get("name") != call.name:
            done = self._alike.get((call.name, call.digest))
        if done is None or not call.spec.effects:
            return RUN_IT
        told = _told(call, done)
        if self.effects == "refuse":
            return Ended(error=InDoubt(told), final=True)
        shown = {"call": f"{call.name}({call.preview})", "run": done.run, "event": done.seq}
        uses = ""
        if done.kind == "step.completed" and done.key == call.key:  # by which the result is found again
            shown["result"] = done.preview or "a large value"
            uses = f'"{USE}" to go on with the result that is recorded, '
        key = f"with the {'new' if done.dropped is None else 'same'} idempotency key {call.idempotency_key()}"
        text = (
            f'Do {call.name}({call.preview}) again? {told[:1].upper()}{told[1:]}. Answer "run" to do it again, {key}, {uses}'
            '{"result": ...} to go on with another one, "fail" to fail the step.'
        )
        return await call.ask_person(told, text, shown)

    def _given(self, call: Doubtful, text: str) -> Ended:
        call.replace()
        shape = call.spec.signature.returns
        if not self.fits(call.attempt, shape, call.key, text):
            raise Suspended
        value, notes = read_noting(text)
        return Ended(shape.revive(value, notes=notes))

    def fits(self, attempt: Attempt, shape: Shape, key: str, text: str) -> bool:
        """Tell whether a value fits that replaces a result; if not, the run leaves, and says so."""
        value, notes = read_noting(text)
        try:
            shape.revive(value, notes=notes)
        except NotStorable as error:
            life = attempt.life
            life.does_not_fit(
                f"run {life.run.id!r} is a fork, and {preview(text, 60)}, which replaces the result of {key!r}, does not fit its "
                f"type: {error}. Nothing was done. {fork_again(self.origin['of'] if self.origin else life.run.id, key)}"
            )
            return False
        return True

    def carried(self) -> dict[str, Any]:
        """Return what a checkpoint carries, because behind it the events that said so are not seen."""
        return {"origin": self.origin, "retries": list(self._retries.items()), "replace": self.replaced}


def _told(call: Doubtful, done: Done) -> str:
    whose = f"by run {done.run!r}" if done.dropped is None else "before the retry"
    where = f"{whose} at {moment(done.at):%Y-%m-%d %H:%M:%S} UTC (event {done.seq})"
    same = "" if done.data.get("digest") == call.digest else f", with another input ({done.data.get('input', '')})"
    if done.kind != "step.completed":
        return f"it was begun {where}{same}, and whether it had its effect is not known"
    return f"it was done {where}{same}" + (f", with the result {done.preview}" if done.preview else "")


async def recall(attempt: Attempt) -> None:
    """Read what was done behind the point to which this run went back, if it went back to one."""
    journal, winds = attempt.journal, attempt.journal.winds
    before = {} if journal.checkpoint is None else journal.checkpoint.data.get("former") or {}
    if not winds and not before:
        return
    origin, replaced = before.get("origin"), dict(before.get("replace", {}))
    retries = {int(place): policy for place, policy in before.get("retries", ())}
    for wind in winds:
        if wind.kind == "run.forked":
            origin = wind.data
            text = attempt.pen.text_of(wind)
            replaced |= json.loads(text) or {}  # what it has not come to yet, a fork of a fork has from the one before
        else:
            retries[wind.seq] = wind.data["effects"]
    former = Former(origin, retries, replaced)
    former.learn(Done.of(event, origin["of"]) for event in _left(journal.left) if origin is not None)
    former.learn(await attempt.host.store.former(attempt.run.id))
    former.settled()
    attempt.kept.remember(former)
    attempt.identity.begin_anew(former.salts)


def _left(left: dict[str, list[Event]]) -> Iterable[Event]:
    """Bodies and children that were open at the point."""
    kinds = ("step.started", "child.started")
    return (event for events in left.values() for event in events if event.kind in kinds)


def arrive(attempt: Attempt, forked: Event) -> None:
    """Make the run one of its own from here on."""
    become(attempt, forked.data)
    attempt.inbox.mailbox.stand_in(forked.data.get("children", {}))


def become(attempt: Attempt, origin: dict[str, Any]) -> None:
    """Go on as the run that this names."""
    attempt.identity.become(origin["uid"], origin["now"])
    attempt.talks.copy(origin["copies"])
    attempt.renamed()

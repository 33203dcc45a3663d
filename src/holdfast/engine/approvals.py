"""Questions to people: a call whose outcome is what a person decided, days later and perhaps in another process.

The question is a row of the store, written with `approval.asked`. It ends by a signal to this run, however it is ended: a
person, or this run itself when its time is over; of the two the store lets one be first. So there is one way in, and the
run may leave memory meanwhile. While it is in memory, its owner reminds, expires, and says how many must agree to a value
that a person has edited, because only here is the code that knows.

A question that the agent no longer waits for is withdrawn. If a crash came between, the next life finds that out while it
replays, and withdraws it once it is live.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator
from typing import Any

from holdfast.engine.attempt import Attempt, Call, Site, tagged
from holdfast.engine.journal import first_of
from holdfast.engine.parking import Wait
from holdfast.errors import BadArguments, Expired, NotStorable, Suspended
from holdfast.runtime import NO_DEFAULT, Answer, Question
from holdfast.store.approvals import NewApproval
from holdfast.store.blobs import spilled
from holdfast.values.codec import UNTYPED, Unknown, added, digest_of, preview
from holdfast.values.sameness import lost
from holdfast.values.tagged import bare
from holdfast.values.text import spell
from holdfast.words.clock import Timer
from holdfast.words.durations import moment
from holdfast.words.model import Event
from holdfast.words.people import writable

_SOON_MS = 1000  # when the store's clock is a little behind ours


class ApprovalCall(Call):
    """Waits for people."""

    of = "approval"
    __slots__ = ("_approval", "_asked", "_copy", "_needs", "_question", "_reminded", "_shown", "_timer")

    def __init__(self, site: Site, question: Question) -> None:
        attempt = site.attempt
        shown, copy = attempt.pen.stored(question.shown_shape, question.shown, "show")
        needs = question.needed(copy)
        identity = question.shown_shape.identity(copy, "show")
        label, what = f":{question.kind}", digest_of({"question": question.text, "show": identity})
        key = site.key(label)
        hidden = question.shown_shape.hidden(copy, shown)
        if hidden and key not in attempt.journal.begun and key not in attempt.journal.closed:
            raise NotStorable(
                f"show: the default of {hidden!r} cannot be stored, so nobody would see it; show a value without that field"
            )
        super().__init__(attempt, key, label, what, preview(shown))
        self._question, self._shown, self._copy, self._needs = question, shown, copy, needs
        self._approval, self._reminded = "", 0
        self._asked: Event | None = None
        self._timer: Timer | None = None

    @property
    def question(self) -> str:
        return self._question.text

    def weigh(self) -> str:
        return digest_of({"question": self._question.text, "show": bare(self._shown)})

    def thin(self) -> str:
        shape = self._question.shown_shape
        if not shape.telling:
            return self.digest
        return digest_of({"question": self._question.text, "show": shape.lean(self._copy, "show")})

    def wait(self) -> Generator[Any, Any, Any]:
        attempt = self.attempt
        asked = first_of(self.past(), "approval.asked")
        if asked is not None:
            self._compare(asked)
        self.ask()
        if attempt.life.closing:
            yield from attempt.tasks.refusal()
        try:
            if asked is not None and not self.begun:
                self._listen(asked.data["approval"])
            event = yield from attempt.rest(self)
        except asyncio.CancelledError:
            attempt.inbox.mailbox.forget("approval", self._approval, self.future)
            attempt.withdraw(self)
            raise
        finally:
            self._rest()
            attempt.drop(self)
        return self.read(event)

    def _compare(self, asked: Event) -> None:
        """Hold what people were shown against what the code shows now: a decision holds for nothing else.

        Their identities are the same or the journal refuses the call, but a default may have changed, and what was shown
        was shown whole. A field that was added since is no part of that; questions of old, which were stored without
        defaults, cannot be compared.
        """
        before = self.attempt.pen.text_of(asked)
        if not asked.data.get("whole") or before == self._shown:
            return
        shown = UNTYPED.load(self._shown)
        found = lost(UNTYPED.load(before), shown, added(shown, self._copy))
        if found is not None:
            self.attempt.pause(
                f"NondeterminismError: run {self.attempt.run.id!r}: the question {self._question.text!r} showed "
                f"{spell('show', found.path)} = {found.before}, and the code would now show {found.after} there (a default "
                "was changed, or the field is gone). A decision holds for what was shown alone. Nothing was done and nothing was "
                "written. Bring the old value back, then resume the run; or cancel it and start another"
            )

    def _listen(self, approval: str) -> None:
        self._approval = approval
        decided = self.attempt.inbox.mailbox.decided.get(approval)
        if decided is None:
            self.attempt.inbox.mailbox.wait("approval", approval, self.future)
        elif not self.future.done():
            self.future.set_result(decided)

    def begin(self) -> None:
        asked = first_of(self.past(), "approval.asked")
        if asked is not None:  # and listened to since it was asked for
            self._watch(asked)
            return
        question, whole, lean = self._question, self.weigh(), self.thin()
        self.whole, self.lean = ("" if each == self.digest else each for each in (whole, lean))
        self._listen(approval_id(self.attempt, self.key))
        given = self._given(whole)
        if given is not None:
            self._take(given)
            return
        new = NewApproval(self._approval, self.key, question.kind, writable(question.text))
        new.shown, new.digest, new.schema = spilled(self._shown)[0], self.digest, question.schema
        new.recipients, new.expires_ms, new.remind_ms = question.to, question.expires_ms, question.remind_ms
        new.not_by_starter = question.not_by_starter
        new.needs = json.dumps({new.digest: self._needs} if callable(question.needs) else self._needs)
        if question.default is not NO_DEFAULT:
            shape = question.shape if question.kind == "ask" else UNTYPED
            new.fallback = shape.store(question.default, "default")[0]
        more = {"not_by": "starter"} if question.not_by_starter else {}
        data = self._about(expires_ms=question.expires_ms, remind_ms=question.remind_ms, whole=True, **more)
        self.attempt.pen.record("approval.asked", self.key, data, self._shown, approvals=[new], then=self._watch)

    def _given(self, whole: str) -> dict[str, Any] | None:
        """Find the decision that was made when the run was forked; None if there is none, or not for this question.

        That one was for what the other run showed, and one person made it. A question that shows something else, is for
        others, or needs more of them, is put to people.
        """
        former, question = self.attempt.kept.former, self._question
        text = None if former is None else former.replaced.get(self.key)
        if text is None:
            return None
        given: dict[str, Any] = json.loads(text)
        asked = given.get("digest", whole), given.get("to", question.to)  # forks of old do not say
        if asked != (whole, question.to) or question.not_by_starter or (given["yes"] and self._needs > 1):
            return None
        return given

    def _take(self, decision: dict[str, Any]) -> None:
        """Take the decision that was given when the run was forked: nobody is asked."""
        pen = self.attempt.pen
        data = self._about(expires_ms=None, remind_ms=None, whole=True, replaced=True)
        pen.record("approval.asked", self.key, data, self._shown)
        about = {
            "approval": self._approval,
            "key": self.key,
            "question": data["question"],
            "votes": [],
            "replaced": True,
        }
        told = {name: decision[name] for name in ("yes", "decision", "by", "note")}
        pen.record("approval.decided", None, about | told, decision.get("value"))

    def _about(self, **more: Any) -> dict[str, Any]:
        question = self._question
        about = {"approval": self._approval, "question": writable(question.text)[:2000], "to": question.to}
        return self.facts(kind=question.kind, **about, **more)

    # While it is in memory

    def _watch(self, asked: Event) -> None:
        """Wait for a person, the next reminder, or the end of the question's time.

        How long that is was written when it was asked; the code may say something else by now.
        """
        if self.withdrawn or self.future.done():
            return
        self._asked = asked
        self._reminded = sum(event.data["nth"] for event in self.past()[-1:] if event.kind == "approval.reminded")
        self._arm()
        self.attempt.inbox.mailbox.hearers[self._approval] = self._weigh_votes
        self._weigh_votes()

    def _arm(self, at_least: int = 0) -> None:
        if self.withdrawn or self.future.done():
            return
        assert self._asked is not None
        dues, data = [], self._asked.data
        if data["expires_ms"] is not None:
            dues.append(max(self._asked.at + data["expires_ms"], at_least))
        if data["remind_ms"] is not None:
            dues.append(self._asked.at + (self._reminded + 1) * data["remind_ms"])
        self.attempt.parking.waits[self.key] = Wait("person", min(dues, default=None), f"approval:{self._approval}")
        if dues:
            self._timer = self.attempt.arm(min(dues), self._ring)

    def let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _rest(self) -> None:
        self.let_go()
        self.attempt.inbox.mailbox.hearers.pop(self._approval, None)

    def _ring(self) -> None:
        """Remind people, or let the question expire: its timer has fired."""
        if self.withdrawn or self.future.done() or self._asked is None:
            return
        data, late_ms = self._asked.data, self.attempt.host.clock.now() - self._asked.at
        if data["expires_ms"] is not None and late_ms >= data["expires_ms"]:
            _ = self.attempt.bodies.start(self._expire)
            return
        # Reminders that came due while no worker had the run count as one.
        self._reminded = max(self._reminded + 1, late_ms // data["remind_ms"])
        about = self._about(nth=self._reminded)
        self.attempt.pen.record("approval.reminded", self.key, about, then=lambda _: self._arm())

    async def _expire(self) -> None:
        row = await self.attempt.host.store.expire(self._approval)
        if row.status == "open":
            self._arm(self.attempt.host.clock.now() + _SOON_MS)
        else:
            self.attempt.inbox.notice()

    def _weigh_votes(self) -> None:
        if self.attempt.life.live and any(
            _open_vote(event) for event in self.attempt.inbox.mailbox.votes(self._approval)
        ):
            _ = self.attempt.bodies.start(self._weigh)

    async def _weigh(self) -> None:
        """Tell the store how many people must agree to each value that a person entered instead of the one shown."""
        attempt, question = self.attempt, self._question
        row = await attempt.host.store.approval(self._approval)
        for event in attempt.inbox.mailbox.votes(self._approval):
            if row.status != "open" or not _open_vote(event) or event.data["digest"] in json.loads(row.needs):
                continue
            text = attempt.pen.text_of(event)
            try:
                needs = question.needed(question.shape.load(text))
            except NotStorable:
                needs = 1  # the agent will be told that it does not fit
            except Exception as error:
                attempt.pause(
                    f"run {attempt.run.id!r}: how many people {question.text!r} needs could not be told for what "
                    f"{event.data['by']} made of it: {type(error).__name__}: {error}. Mend needs=, then resume the run"
                )
                return
            row = await attempt.host.store.require(self._approval, event.data["digest"], needs, spilled(text)[0])
        attempt.inbox.notice()

    # How it ends

    def read(self, event: Event) -> Answer:
        question, data = self._question, event.data
        given = event.value is not None or event.blob is not None
        answer = Answer(self._copy, at=moment(data.get("at") or event.at))
        if event.kind == "approval.expired":
            answer.expired = True
            if question.kind == "approve":
                answer.yes = bool(question.default) if not given else json.loads(self.attempt.pen.text_of(event))
            elif given:
                answer.value = self.attempt.loaded(question.shape, event, f"the default of {question.text!r}")
            else:
                late = Expired(f"nobody answered {question.text!r} in time")
                raise tagged(late, self.key, event.seq)
            return answer
        answer.yes, answer.by, answer.note = data["yes"], data["by"], data["note"]
        answer.votes = data["votes"]
        if given:
            try:
                # Questions of old were answered when nobody looked for what the type has no field for.
                asked = self._asked or first_of(self.past(), "approval.asked")
                drop = asked is not None and not asked.data.get("whole")
                answer.value = question.shape.load(self.attempt.pen.text_of(event), "data", drop=drop)
            except Unknown as error:
                self.attempt.life.does_not_fit(
                    f"NondeterminismError: run {self.attempt.run.id!r}: what {data['by']} gave for {question.text!r} does not "
                    f"fit its type: {error}. Nothing was done and nothing was written. Bring the field back, then resume the run"
                )
                raise Suspended from None
            except NotStorable as error:
                bad = BadArguments(f"what {data['by']} gave for {question.text!r} does not fit: {error}")
                raise tagged(bad, self.key, event.seq) from None
        return answer

    def abandon(self) -> None:
        self._rest()
        self.attempt.parking.waits.pop(self.key, None)
        coming = [event.data.get("approval") for event in self.attempt.pen.undelivered.values()]
        if self._approval not in coming:
            withdraw(self.attempt, self.key, self._approval)

    def forsake(self) -> None:
        past = self.past()
        if first_of(past, "approval.asked") is not None and first_of(past, "approval.withdrawn") is None:
            self.attempt.inbox.mailbox.forsake(self._approval, self.key)


def _open_vote(event: Event) -> bool:
    return event.kind == "approval.voted" and bool(event.data["yes"]) and event.data["needs"] is None


def approval_id(attempt: Attempt, key: str) -> str:
    """Derive an id from the place in the journal: after a retry of the run the same may have to be asked again."""
    return f"q-{attempt.identity.derived(f'{key}:{attempt.pen.next_seq}')[:16]}"


async def answered(call: Call, approval: str) -> Event:
    """Wait beside the agent's code for the answer to a question; the run may leave memory meanwhile."""
    attempt, mailbox = call.attempt, call.attempt.inbox.mailbox
    decided = mailbox.decided.get(approval)
    if decided is not None:
        return decided
    decision: asyncio.Future[Event] = attempt.life.loop.create_future()
    mailbox.wait("approval", approval, decision)
    with attempt.parking.asleep(call.key, Wait("person", None, f"approval:{approval}")):
        return await decision


def withdraw(attempt: Attempt, key: str, approval: str) -> None:
    """Withdraw a question that no call waits for any more: it disappears from people's lists."""
    attempt.pen.record("approval.withdrawn", key, {"approval": approval}, withdraws=[approval])


def withdraw_forsaken(attempt: Attempt) -> None:
    """The run is live: take back what an earlier life asked, and this one was seen not to wait for."""
    for approval, key in attempt.inbox.mailbox.forsaken():
        withdraw(attempt, key, approval)

"""Loops: before a body begins that would go on with one, a person is asked.

`words/loops.py` says what a loop is. One is found by the outcomes as they are delivered, so that a resumed run knows what it knew;
at a checkpoint it begins anew. The question belongs to the call: yes lets it go on and counting begins anew, no ends the
call with `LoopDetected`.
"""

from __future__ import annotations

from typing import Any

from holdfast.engine.approvals import answered, approval_id
from holdfast.engine.attempt import Attempt, Call
from holdfast.engine.steps import StepCall
from holdfast.errors import LoopDetected
from holdfast.store.approvals import NewApproval
from holdfast.values.codec import UNTYPED
from holdfast.values.tagged import bare
from holdfast.words.loops import Loop, Loops, Step, Tail, place_of
from holdfast.words.model import Event
from holdfast.words.people import writable

LOOP = "loop"
_SHOWN_CHARACTERS = 200


class Watch:
    """Watches the steps of one run."""

    def __init__(self, attempt: Attempt, loops: Loops) -> None:
        self._attempt = attempt
        self.tail = Tail(loops)

    def begin_era(self) -> None:
        """Begin anew at a checkpoint."""
        self.tail = Tail(self.tail.loops)

    def landed(self, call: Call) -> None:
        """Do nothing: what counts is that an outcome was delivered."""

    def saw(self, event: Event) -> None:
        """An outcome was delivered."""
        place, data = place_of(event.key or ""), event.data
        if data.get(LOOP):
            self.tail.forget(place)
        if event.kind == "step.cancelled":
            return
        error = data.get("error") or {}
        value = bare(event.value) if event.value else f"a large value {event.blob}"
        told = f"{error.get('type')}: {error.get('message')}" if error else value
        shown = f"{data['name']}({data['input']}) -> {told[:_SHOWN_CHARACTERS]}"
        step = Step(data["name"], data["digest"], hash((event.kind, told)), shown, self._attempt.journal.delivered)
        self.tail.add(place, step, data.get("asked", 0), model=bool(data.get("spent", {}).get("model_calls")))

    async def let_in(self, call: StepCall) -> LoopDetected | None:
        """Wait for a person if the call goes on with a loop; or why it may not."""
        past = call.so_far
        if past.looped:
            return None
        found = None
        if not past.loop:
            found = self.tail.next(place_of(call.key), call.name, call.digest)
            if found is None:
                return None
            await self._ask(call, found)
        assert past.question is not None
        decided = await answered(call, past.question)
        call.looked_at()
        if decided.data["yes"]:
            return None
        loop = found or self.tail.next(place_of(call.key), call.name, call.digest)
        by, note = decided.data["by"], decided.data["note"]
        told = f"{by} stopped a loop" + (f" ({note})" if note else "") + (f": {loop}" if loop else "")
        return LoopDetected(
            told, calls=[step.shown for step in loop.steps] if loop else (), times=loop.times if loop else 0
        )

    async def _ask(self, call: StepCall, loop: Loop) -> None:
        attempt = self._attempt
        question = approval_id(attempt, call.key)
        text = (
            f"Run {attempt.run.id!r} goes round in circles: {loop}, and {call.name}({call.preview}) would be the next. "
            "Approve to let it go on. If it is denied, the agent is told (LoopDetected)."
        )
        shown = UNTYPED.store([step.shown for step in loop.steps], "loop")[0]
        new = NewApproval(question, call.key, "approve", writable(text), shown, call.digest)
        new.recipients = list(self.tail.loops.to)
        call.so_far.question, call.so_far.loop = question, True
        data: dict[str, Any] = {"of": call.of, "approval": question, "kind": LOOP, "question": new.question[:2000]}
        data["to"], kept = new.recipients, call.keep()
        if kept is not None:
            data["given"] = True  # what may go on is a call with these arguments
        await attempt.pen.durably("approval.asked", call.key, call.facts(**data), kept or shown, approvals=[new])

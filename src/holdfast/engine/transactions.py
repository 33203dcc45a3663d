"""Transactional steps: what the body writes to the store's database is committed with the step's record, or not at all.

In order: the run's pen is held (recorder.py), the transaction begins, the body runs and writes through its connection, the
record gets its number, and what is held up to it is appended by that same transaction. Only then it commits.

Crash points. Before the commit nothing happened, neither the body's writes nor the record: the body runs again. After it
both are there: never again. There is no point in between, so there is no doubt and no intent. A lease that was lost is found
by the append's fence, before the commit, and takes the body's writes with it.

When the database undoes a transaction by itself (a conflict with another one, a connection that is gone, a full disk), the
body runs again: that is not a failure of the step, but it is in the history and does not go on for ever.
"""

from __future__ import annotations

import random
from typing import Any, Final

from holdfast.engine.announcements import Outgoing
from holdfast.engine.host import Ended
from holdfast.engine.limits import Passage
from holdfast.engine.steps import StepCall
from holdfast.errors import BadArguments, LeaseLost, NotStorable, StoreUnavailable, Suspended
from holdfast.runtime import StepContext
from holdfast.store.appends import Append
from holdfast.store.transactions import Joint, Undone, to_its_end

MOST_UNDONE: Final = 20  # times in a row; then it is a failure like any other
_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.01, 2.0


class TransactionCall(StepCall):
    """One call of a step whose body and record are one transaction."""

    __slots__ = ()

    async def _attempt(self, passage: Passage | None = None) -> Ended:
        past = self.so_far
        while True:
            ended = await super()._attempt(passage)
            if not isinstance(ended.error, Undone):
                past.undone = 0
                return ended
            past.undone += 1
            if past.undone > MOST_UNDONE:
                return Ended(error=ended.error.reason)
            wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * 2**past.undone) * random.uniform(0.5, 1)
            await self.put_off(wait_s, ended.error.reason, undone=past.undone)
            await self.until_due()
            past.attempt += 1

    async def _perform(self, context: StepContext) -> Ended:
        attempt, isolation = self.attempt, self.spec.transaction
        assert isolation is not None
        self.so_far.in_doubt = False
        async with attempt.bodies.turn:  # of two transactions of a run the second begins when the first is over
            try:
                if attempt.host.store.shuts_out(isolation):
                    await attempt.pen.hold()
                async with attempt.host.store.transaction(isolation) as transaction:
                    return await self._inside(transaction, context)
            except Undone as error:
                return Ended(error=error)
            except (LeaseLost, StoreUnavailable):
                attempt.pen.let_go(lost=True)
                attempt.life.close("lost")
                raise
            finally:
                context.connection = None  # for a thread that still runs
                attempt.pen.let_go()

    async def _inside(self, transaction: Joint, context: StepContext) -> Ended:
        """Run the body and commit. Whatever is returned before that is rolled back."""
        attempt, longest_s, limit_s = self.attempt, transaction.longest_s, self.spec.timeout_s
        if longest_s is not None:
            limit_s = longest_s if limit_s is None else min(longest_s, limit_s)
        fn, threaded = self._function()
        if threaded and not transaction.in_threads:
            problem = BadArguments(
                f"step {self.name!r} is a plain function, which runs in a thread, but the connection of its transaction "
                f"belongs to the event loop: write it with `async def` and await what it asks of the connection"
            )
            return Ended(error=problem, final=True)
        context.connection = transaction.connection
        outgoing = context.publish
        assert isinstance(outgoing, Outgoing)
        ended = await attempt.host.perform(self._work(fn, threaded, context, limit_s))
        if self.withdrawn:
            raise Suspended  # as in `StepCall._perform`
        outgoing.end()
        ended.doubt = False
        if ended.error is not None:
            if transaction.undid(ended.error):
                ended.error = Undone(ended.error)
            return ended
        try:
            text, copy = attempt.pen.stored(self.spec.signature.returns, ended.value, "result")
        except NotStorable as error:
            return Ended(error=error, final=True)
        await attempt.pen.hold()
        self.so_far.published = outgoing.made
        return await self._commit(transaction, ended, text, copy)

    async def _commit(self, transaction: Joint, ended: Ended, text: str, copy: Any) -> Ended:
        """Give the record its number and commit it, with what is held before it. Once begun, this is not stopped."""
        attempt = self.attempt
        attempt.pen.record(
            "step.completed", self.key, self._ended(), text, then=self._landed, announces=self.so_far.published
        )
        if attempt.life.closing:
            raise Suspended
        self.numbered = True
        appends = attempt.pen.held()
        try:
            at = await to_its_end(transaction.commit(appends))
        except (LeaseLost, StoreUnavailable):
            raise
        except Exception as error:
            self._not_written(len(appends) - 1, appends[-1])
            return Ended(error=error)
        self._copy = copy
        attempt.pen.committed(len(appends), at)
        attempt.pen.let_go()
        return ended

    def _not_written(self, nth: int, record: Append) -> None:
        """Take back the number of a record that was not written; if its waiter is gone, it becomes a cancelled step."""
        (event,) = record.events
        self.tells = "inputs" in event.data
        if not self.withdrawn:
            self.numbered = False
            self.bill.take_back()
            self.attempt.pen.take_back(nth)
            return
        event.kind, event.data, event.value, event.blob = "step.cancelled", self.facts(in_doubt=False), None, None
        record.blobs, record.parts, record.announces = {}, self.attempt.pen.inputs.taken(), ()
        raise Suspended

    def _complete(self, value: Any) -> None:
        """Do nothing: the commit has recorded it."""

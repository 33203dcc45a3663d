"""Activities: where bodies run, on whatever worker takes them."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import functools
from collections.abc import Callable, Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, NoReturn

from temporalio import activity
from temporalio.common import RawValue
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.service import RPCError

from holdfast.backends.temporal import budgets, side, talks
from holdfast.backends.temporal.address import ARRIVE, FED_S, KEEP, SIDE, is_missing
from holdfast.backends.temporal.gaps import LACKS_SIDE, LACKS_STORE
from holdfast.backends.temporal.house import House
from holdfast.backends.temporal.performer import ENDED, GONE, LACKS, LATER, NOT_HERE
from holdfast.backends.temporal.turns import until_turn
from holdfast.declare import NotDone
from holdfast.engine.elsewhere import Desk
from holdfast.engine.host import RUN_IT, Ended, Work
from holdfast.engine.performer import perform
from holdfast.errors import LeaseLost, NotStorable, Unsupported
from holdfast.runtime import RunFacts, StepContext, StepSpec, _here, call_plainly
from holdfast.values import failures
from holdfast.values.codec import checked_size, kept
from holdfast.words.harmless import logger

_log = logger("holdfast")
_BEATS: int = 3  # within the time after which a worker counts as gone
_BENIGN: Final = ApplicationErrorCategory.BENIGN  # to Temporal's log: what a failure means is the engine's to say
_FIRST_BEAT_S: float = 1.0


class Activities:
    """Bodies of steps, as one process runs them."""

    def __init__(self, house: House) -> None:
        self._house = house

    @activity.defn(dynamic=True)
    async def step(self, args: Sequence[RawValue]) -> dict[str, Any]:
        """Run the body of a step, or its probe, or wait for the one that an attempt before began here."""
        info, convert = activity.info(), activity.payload_converter()
        asked: dict[str, Any] = convert.from_payload(args[0].payload, dict)
        name, outcomes = f"{info.workflow_run_id} {asked.get('after', info.activity_id)}", self._house.outcomes
        heart = (
            asyncio.create_task(_beat(info.heartbeat_timeout, self._house.queue)) if info.heartbeat_timeout else None
        )
        try:
            if name not in outcomes:
                if asked.get("once") and "after" in asked:
                    _log.warning(
                        "run %r: the process that ran the body of %r is gone, and in_doubt= decides what becomes of it",
                        info.workflow_id, asked["after"].partition(" ")[0],
                    )  # fmt: skip
                    raise ApplicationError(
                        "that body is not in this process", type=GONE, non_retryable=True, category=_BENIGN
                    )
                outcomes.begin(name, self._begun(asked, info))
            await outcomes.report(name, same=not asked.get("once") and "home" not in asked)
        finally:
            if heart is not None:
                heart.cancel()
        activity.raise_complete_async()  # the server was told

    def _begun(self, asked: dict[str, Any], info: activity.Info) -> Coroutine[Any, Any, dict[str, Any]]:
        """Begin the body of a step, or its probe."""
        body = self._house.bodies.get(asked["home"]) if "home" in asked else None
        spec = body.work.spec if body is not None else self._spec(asked)
        if "beside" in asked and self._house.turns_away(asked["run"]):
            raise ApplicationError("this process has no side", type=NOT_HERE, non_retryable=True, category=_BENIGN)
        if spec is None or ("home" in asked and body is None):
            raise ApplicationError(
                "the body is not in this process", type=NOT_HERE, non_retryable=True, category=_BENIGN
            )
        desk = self._desk(asked, info)
        if self._house.feed is not None:
            self._house.feed.soon(asked["run"])
        context = self._context(asked, info.attempt, _no_stream if desk is None else desk.body)
        if body is None:
            given, named = spec.signature.load(asked["input"])
            fn, where = spec.probe if asked.get("probe") else spec.fn, contextvars.copy_context()
            threaded = spec.threaded and not asked.get("probe")
        else:
            given, named, fn, threaded = body.work.args, body.work.kwargs, body.work.fn, body.work.threaded
            where = body.context.copy()
        assert fn is not None
        work = Work(
            spec, fn, threaded, given, named, context, asked.get("limit_s"), lambda: True, _Threads(self._house), None,  # type: ignore[arg-type]
            None, "", asked.get("failures", 0),
        )  # fmt: skip
        return self._ran(work, asked, where, desk)

    async def _ran(
        self, work: Work, asked: dict[str, Any], where: contextvars.Context, desk: Desk | None
    ) -> dict[str, Any]:
        """Run a body, when its turn has come; returns what it came to, as it travels."""
        if "turn" in asked and self._house.side is not None:
            later = await until_turn(asked["turn"], self._house.side, self._house.late)
            if later is not None:
                raise ApplicationError("its turn is later", later, type=LATER, non_retryable=True, category=_BENIGN)
        where.run(_here.set, None)
        self._house.runs(work.spec, work.context.key)
        ended = await asyncio.create_task(_performed(work), context=where)
        streams = [] if desk is None else [side.told(piece) for piece in await desk.end(ended.error)]
        return self._told(ended, work.spec, work.context, asked, streams)

    @activity.defn(name=KEEP)
    async def keep(self, _: Any, fed: bool = False) -> None:
        """Copy into the feed, if the run is there, what it has recorded: that is in the history, as the input of this."""
        if fed:
            run = activity.info().workflow_id or ""
            if self._house.feed is None:
                raise self._turned_away(run)
            async with asyncio.timeout(FED_S):
                await self._house.feed.copy(run)

    @activity.defn(name=SIDE)
    async def beside(self, asked: dict[str, Any]) -> list[Any]:
        """Ask the database beside the cluster, for the engine of a run."""
        try:
            return await self._beside(asked)
        except LeaseLost as error:
            raise ApplicationError(str(error), type=LeaseLost.__name__, non_retryable=True) from error

    async def _beside(self, asked: dict[str, Any]) -> list[Any]:
        store, run = self._house.side, asked["run"]
        if store is None:
            raise self._turned_away(run)
        if "lines" in asked:
            await side.write(store, side.known(run, *asked["of"]), asked["mark"], asked["lines"])
            return []
        if "rate" in asked:
            return await side.count(store, asked["rate"], asked["given"])
        if "talk" in asked:
            said = await talks.talk(store, run, asked["above"], asked["talk"], self._tell)
            return [] if said is None else [said]
        if "said" in asked:
            found = await store.said(asked["said"], asked["first"], asked["end"])
            return [[row.position, await talks.whole(store, row.value), row.run, row.at] for row in found]
        if "over" in asked:
            await talks.leave_all(store, run, self._tell)
            await budgets.leave_all(store, run)
            return []
        if "purses" in asked:
            return await budgets.purses(store, run, asked["purses"], asked["labels"])
        if "spent_by" in asked:
            return await budgets.spent_by(store, asked["spent_by"], asked["limit"])
        if "more" in asked:
            await budgets.ask_for_more(store, run, asked["more"])
            return []
        if "leave" in asked:
            await budgets.leave(store, run, asked["leave"])
            return []
        if "decide" in asked:
            return [await budgets.decide(store, asked["decide"], self._tell)]
        if "stream" in asked:
            return await side.pieces_of(store, run, asked["stream"], asked["after"])
        return await side.lasts_of(store, run)

    def _turned_away(self, run: str) -> ApplicationError:
        """Leave something to a worker that names the database beside the cluster. That is in its log once, and not each time."""
        self._house.turns_away(run)
        return ApplicationError("this process has no side", category=_BENIGN)

    async def _tell(self, run: str, said: dict[str, Any]) -> bool:
        """Tell another run something; False: it has ended."""
        try:
            await activity.client().get_workflow_handle(run).signal(ARRIVE, said)
        except RPCError as error:
            if is_missing(error):
                return False
            raise
        return True

    def _desk(self, asked: dict[str, Any], info: activity.Info) -> Desk | None:
        if self._house.side is None:
            return None
        mark = f"{info.workflow_run_id} {info.activity_id} {info.attempt}"
        of = side.known(asked["run"], asked["agent"], asked.get("labels", {}), asked.get("parent"), asked["root"])
        return side.desk(self._house.side, of, asked["key"], asked["attempt"], mark)

    def _spec(self, asked: dict[str, Any]) -> StepSpec | None:
        return self._house.step(asked["agent"], asked["step"], asked["place"])

    def _context(self, asked: dict[str, Any], tried: int, stream: Callable[[str], Any]) -> StepContext:
        facts = RunFacts(
            asked["run"], asked["agent"], asked.get("labels", {}), asked.get("parent"), asked["root"], False
        )
        mark = asked["mark"]
        return StepContext(
            asked["key"], lambda: mark, asked["attempt"], facts, self._house.resources, None, [], asked.get("left", {}),
            self._house.now, stream, _ignored, _no_publishing, asked.get("again", False) or tried > 1,
        )  # fmt: skip

    def _told(
        self, ended: Ended, spec: StepSpec, context: StepContext, asked: dict[str, Any], streams: list[side.Line]
    ) -> dict[str, Any]:
        told: dict[str, Any] = {"streams": streams} if streams else {}
        if context.spendings:
            told["spent"] = [[spent.noted(), model] for spent, model in context.spendings]
        error = ended.error
        if error is None and isinstance(ended.value, NotDone) and asked.get("probe"):
            return told | {"undone": True}
        if error is None:
            try:
                text, _ = spec.signature.returns.store(ended.value, "result")
                return told | {"text": checked_size(text, self._house.value_limit_bytes, "result")}
            except NotStorable as problem:
                error, ended = kept(problem, ended.value), Ended(final=True)
        if isinstance(error, _Lacked):
            raise ApplicationError(error.why, type=LACKS, non_retryable=True, category=_BENIGN) from error
        told["error"] = failures.record(error, spec.raises)
        seed = f"{asked['key']}:probe" if asked.get("probe") else asked["key"]
        tried = asked.get("failures", 0) + 1
        told["wait_s"] = None if ended.final else spec.retry.delay_s(tried, error, seed)
        told["doubt"] = ended.doubt
        message = f"{told['error']['type']}: {told['error']['message']}"[:1000]
        # Not from the error itself: that would travel whole, and the server takes a failure that is too large for a crash.
        raise ApplicationError(message, told, type=ENDED, non_retryable=True, category=_BENIGN) from None


class _Threads:
    """Threads of one process, for bodies that are plain functions."""

    def __init__(self, house: House) -> None:
        self._house = house

    async def in_thread(
        self, body: Callable[[], Any], wanted: Callable[[], bool], limit_s: float | None, *, may_repeat: bool
    ) -> asyncio.Future[Any] | None:
        """Call it in a thread; None if it has not returned in time, and may run again."""
        run = functools.partial(contextvars.copy_context().run, call_plainly, body)
        running = asyncio.get_running_loop().run_in_executor(self._house.threads, run)
        running.add_done_callback(lambda late: None if late.cancelled() else late.exception())
        done, _ = await asyncio.wait([running], timeout=limit_s)
        if not done:
            if may_repeat:
                return None
            await asyncio.wait([running])
        return running


async def _performed(work: Work) -> Ended:
    ended = RUN_IT
    while ended is RUN_IT:
        ended = await perform(work)
    return ended


async def _beat(every: timedelta, queue: str) -> None:
    """Say that this process lives and has the body, for as long as its loop turns. Of one that is over at once nothing is said."""
    wait_s = every.total_seconds() / _BEATS
    with contextlib.suppress(RuntimeError):
        await asyncio.sleep(min(wait_s, _FIRST_BEAT_S))
        while True:
            activity.heartbeat(queue)
            await asyncio.sleep(wait_s)


class _Lacked(Unsupported):
    """A body asked for what its ground has not; `why` the run is paused, if it does not do without."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


def _no_stream(name: str) -> NoReturn:
    raise _Lacked(
        f"stream({name!r}): streams need a database of Holdfast's own, and this run is on Temporal. Name one in the URL of the "
        "cluster: ?side=postgresql://...",
        f"uses a stream, {LACKS_SIDE}",
    )


def _no_publishing(request: Any) -> NoReturn:
    raise _Lacked(
        f"publish({request.name!r}): announcements need a database of Holdfast's own, and this run is on Temporal",
        f"uses an announcement, {LACKS_STORE}",
    )


def _ignored(_: dict[str, Any]) -> None:
    """Leave untold how far a body has come: each word would be a signal, and so a workflow task."""

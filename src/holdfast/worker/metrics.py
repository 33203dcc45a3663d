"""The numbers of a worker in the text format of Prometheus, through `prometheus-client` (`holdfast[metrics]`).

`METRICS` is the whole list: name, meaning, and where the numbers come from. Metrics that begin with `holdfast_store_`
or `holdfast_backlog_` are about the whole store and the same from every worker; the others are of this process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Generic, Literal, TypeVar

from holdfast.store.approvals import QuestionAges
from holdfast.store.runs import Census
from holdfast.store.triggers import Tally
from holdfast.worker.measures import Histogram
from holdfast.worker.worker import Worker

if TYPE_CHECKING:
    from prometheus_client import Metric

AGES: Final = ("5m", "1h", "1d", "7d", "older")  # of questions
Labels = tuple[str, ...]
Sample = tuple[Labels, float | Histogram]


@dataclass(frozen=True, slots=True)
class StoreSight:
    """A store at one moment; `census` is None when it did not tell."""

    census: list[Census] | None
    now: int
    questions: QuestionAges | None = field(default=None, kw_only=True)
    deliveries: Sequence[Tally] = field(default=(), kw_only=True)

    def backlog(self) -> dict[str, list[Census]]:
        """Return what is due and not taken, by queue. The default queue is always in it: no backlog is 0, not a gap."""
        if self.census is None:
            return {}
        found: dict[str, list[Census]] = {"default": []}
        for row in self.census:
            waiting = found.setdefault(row.queue, [])
            if row.due and row.status in ("ready", "waiting"):
                waiting.append(row)
        return found

    def lag_s(self) -> float:
        """Return for how long the first delivery that is new has waited."""
        return max((self.now - tally.first_at for tally in self.deliveries if tally.status == "new"), default=0) / 1000

    def age_s(self, row: Census) -> float:
        """Return for how long the first of these runs has been due."""
        return max(self.now - (row.first_due_at or 0), 0) / 1000


@dataclass(frozen=True, slots=True)
class Sight(StoreSight):
    """A worker and its store at one moment."""

    worker: Worker


S_contra = TypeVar("S_contra", bound=StoreSight, contravariant=True)


@dataclass(frozen=True, slots=True)
class Described(Generic[S_contra]):
    """One metric, of a worker or of its store."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels
    samples: Callable[[S_contra], Iterable[Sample]]


def _one(number: Callable[[Worker], float | Histogram]) -> Callable[[Sight], Iterable[Sample]]:
    return lambda sight: [((), number(sight.worker))]


def _running(worker: Worker) -> int:
    return len(worker.attempts) + len(worker.loading)


def _tokens(sight: Sight) -> Iterable[Sample]:
    for agent, spent in list(sight.worker.measures.spent.items()):
        yield (agent, "input"), spent.input_tokens
        yield (agent, "output"), spent.output_tokens


def _backlog_runs(sight: StoreSight) -> Iterable[Sample]:
    return [((queue,), sum(row.due for row in rows)) for queue, rows in sight.backlog().items()]


def _backlog_age(sight: StoreSight) -> Iterable[Sample]:
    return [((queue,), max(map(sight.age_s, rows), default=0)) for queue, rows in sight.backlog().items()]


STORE_METRICS: Final[tuple[Described[StoreSight], ...]] = (
    Described("holdfast_store_up", "gauge", "1 if the store answered when it was last asked for its counts, else 0.", (),
              lambda sight: [((), int(sight.census is not None))]),
    Described("holdfast_store_runs", "gauge", "Unfinished runs in the store.", ("queue", "status"),
              lambda sight: [((row.queue, row.status), row.runs) for row in sight.census or ()]),
    Described("holdfast_store_expired_leases", "gauge",
              "Running runs whose lease is over and which nobody has taken over yet.", ("queue",),
              lambda sight: [((row.queue,), row.due) for row in sight.census or () if row.status == "running"]),
    Described("holdfast_store_stuck_runs", "gauge",
              "Runs that nobody has taken though they have been due, or their lease over, for more than a minute.",
              ("queue", "status"),
              lambda sight: [((row.queue, row.status), row.late) for row in sight.census or () if row.late]),
    Described("holdfast_store_open_questions", "gauge",
              "Questions that wait for a person, by how long they have: up to 5m, 1h, 1d or 7d, or older.", ("age",),
              lambda sight: [] if sight.questions is None
              else [((age,), count) for age, count in zip(AGES, sight.questions.counts, strict=True)]),
    Described("holdfast_store_oldest_question_age_seconds", "gauge",
              "For how long the oldest open question has waited for a person; 0 if there is none.", (),
              lambda sight: [] if sight.questions is None else [((), sight.questions.oldest_ms / 1000)]),
    Described("holdfast_store_deliveries", "gauge", "Deliveries that are new, or dead and wait for a person.",
              ("trigger", "status"),
              lambda sight: [((tally.trigger, tally.status), tally.count) for tally in sight.deliveries]),
    Described("holdfast_store_delivery_lag_seconds", "gauge",
              "For how long the oldest delivery that is new has waited to be applied; 0 if there is none.", (),
              lambda sight: [((), sight.lag_s())]),
    Described("holdfast_backlog_runs", "gauge", "Runs that are due and that no worker has taken yet.", ("queue",),
              _backlog_runs),
    Described("holdfast_backlog_age_seconds", "gauge", "For how long the first run of the backlog has been due.",
              ("queue",), _backlog_age),
)  # fmt: skip

METRICS: Final[tuple[Described[Sight], ...]] = (
    Described("holdfast_claimed_runs_total", "counter", "Runs this worker has claimed.", (),
              _one(lambda worker: worker.measures.claimed)),
    Described("holdfast_taken_over_runs_total", "counter",
              "Claimed runs that another worker had left in the middle: it died, hung or lost its lease.", (),
              _one(lambda worker: worker.measures.taken_over)),
    Described("holdfast_recovered_runs_total", "counter",
              "Runs of dead workers that this one found and made due at once.", (),
              _one(lambda worker: worker.measures.recovered)),
    Described("holdfast_scheduled_runs_total", "counter", "Runs that schedules began through this worker.", (),
              _one(lambda worker: worker.measures.begun)),
    Described("holdfast_missed_runs_total", "counter",
              "Runs that schedules did not begin at their time: it was long over, or the run before went on.", (),
              _one(lambda worker: worker.measures.missed)),
    Described("holdfast_schedule_late_seconds", "histogram",
              "By how much the first run was late, each time this worker began those that schedules had due.", (),
              _one(lambda worker: worker.measures.late)),
    Described("holdfast_deliveries_total", "counter",
              "Deliveries that this worker mapped, by trigger and how that ended: done, failed to be tried again, or dead.",
              ("trigger", "how"), lambda sight: list(sight.worker.measures.deliveries.items())),
    Described("holdfast_delivery_seconds", "histogram",
              "Seconds from when a delivery came until this worker had applied it.", (),
              _one(lambda worker: worker.measures.delivered)),
    Described("holdfast_queue_up", "gauge", "1 if this worker is connected to the broker of the trigger, else 0.",
              ("trigger",), lambda sight: [((name,), int(up)) for name, up in list(sight.worker.measures.connected.items())]),
    Described("holdfast_queue_away_timestamp_seconds", "gauge",
              "Since when this worker cannot reach the broker of the trigger, in seconds since 1970; absent while it is connected.",
              ("trigger",), lambda sight: [((name,), at / 1000) for name, at in list(sight.worker.measures.away.items())]),
    Described("holdfast_queue_lag_messages", "gauge",
              "Messages that wait with the broker of the trigger and that no worker has taken, as this worker last heard; absent "
              "while that is away.",
              ("trigger",), lambda sight: [((name,), lag) for name, lag in list(sight.worker.measures.lag.items())]),
    Described("holdfast_left_runs_total", "counter",
              "Runs that left memory: ended, parked until something comes, released, paused or lost.", ("how",),
              lambda sight: [((how,), count) for how, count in list(sight.worker.measures.left.items())]),
    Described("holdfast_runs_finished_total", "counter",
              "Runs that ended in this worker, by agent and how: completed, failed or cancelled.", ("agent", "status"),
              lambda sight: list(sight.worker.measures.finished.items())),
    Described("holdfast_spent_usd_total", "counter", "Dollars that steps here said they spent.", ("agent",),
              lambda sight: [((agent,), spent.usd) for agent, spent in list(sight.worker.measures.spent.items())]),
    Described("holdfast_spent_tokens_total", "counter", "Tokens that steps here said they spent: input or output.",
              ("agent", "direction"), _tokens),
    Described("holdfast_spent_model_calls_total", "counter", "Calls of models that steps here said they made.", ("agent",),
              lambda sight: [((agent,), spent.model_calls) for agent, spent in list(sight.worker.measures.spent.items())]),
    Described("holdfast_lost_leases_total", "counter",
              "Runs that were dropped because another worker has them or the store could not be reached.", (),
              _one(lambda worker: worker.measures.left["lost"])),
    Described("holdfast_running_runs", "gauge", "Runs in the memory of this worker now.", (), _one(_running)),
    Described("holdfast_running_runs_limit", "gauge", "Runs this worker has in memory at the most.", (),
              _one(lambda worker: worker.settings.concurrency)),
    Described("holdfast_running_steps", "gauge", "Bodies of steps that run in this worker now.", (),
              _one(lambda worker: sum(each.bodies for each in list(worker.attempts.values())))),
    Described("holdfast_step_seconds", "histogram",
              "Seconds each attempt at a step took, by how it ended: completed, failed, in_doubt or stopped.",
              ("outcome",),
              lambda sight: [((how,), histogram) for how, histogram in list(sight.worker.measures.steps.items())]),
    Described("holdfast_commit_seconds", "histogram", "Seconds each commit of this worker's store took.", (),
              _one(lambda worker: worker.measures.commits)),
    Described("holdfast_commit_operations", "histogram", "Writes that went out together in one commit.", (),
              _one(lambda worker: worker.measures.batches)),
    Described("holdfast_heartbeats_total", "counter", "Times the store has prolonged this worker's leases.", (),
              _one(lambda worker: worker.measures.heartbeats)),
    Described("holdfast_heartbeat_age_seconds", "gauge",
              "Seconds since the store last said that the leases are ours; 0 without any run in memory.", (),
              _one(lambda worker: worker.measures.heartbeat_age_s if _running(worker) else 0)),
    Described("holdfast_loop_hang_seconds_total", "counter",
              "Seconds in which code that does not await kept the event loop from turning.", (),
              _one(lambda worker: worker.measures.hung_s)),
    Described("holdfast_draining", "gauge", "1 while this worker stops and takes no new runs, else 0.", (),
              _one(lambda worker: int(worker.draining))),
    *STORE_METRICS,
)  # fmt: skip


class _Collector(Generic[S_contra]):
    """Answers prometheus-client; made for one answer, so that nothing is global."""

    def __init__(self, metrics: Sequence[Described[S_contra]], sight: S_contra) -> None:
        self._metrics, self._sight = metrics, sight

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.metrics_core import (  # noqa: PLC0415 - an optional dependency
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        for each in self._metrics:
            if each.kind == "histogram":
                histogram = HistogramMetricFamily(each.name, each.help, labels=each.labels)
                for labels, value in each.samples(self._sight):
                    assert isinstance(value, Histogram)
                    histogram.add_metric(labels, value.buckets(), value.total)
                yield histogram
            else:
                family = CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily
                numbers = family(each.name, each.help, labels=each.labels)
                for labels, value in each.samples(self._sight):
                    assert not isinstance(value, Histogram)
                    numbers.add_metric(labels, value)
                yield numbers


def exposition(metrics: Sequence[Described[S_contra]], sight: S_contra | None) -> tuple[str, bytes]:
    """The media type and the text; only what concerns the process while there is nothing to see yet.

    `ModuleNotFoundError` when prometheus-client is not installed.
    """
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest  # noqa: PLC0415
    from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4  # noqa: PLC0415

    registry = CollectorRegistry(auto_describe=False)
    if sight is not None:
        registry.register(_Collector(metrics, sight))
    ProcessCollector(registry=registry)
    return CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry)

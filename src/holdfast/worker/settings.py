"""Settings of a worker and a client."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from holdfast.errors import BadArguments
from holdfast.runtime import StepSpec
from holdfast.values.codec import DEFAULT_LIMIT_BYTES
from holdfast.words.calls import KeptAs, checked_inputs
from holdfast.words.model import Event
from holdfast.words.overrides import Override

_NAME: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9_.-]{0,39})?")


class Observer(Protocol):
    """Hears on the loop what the runs carried here do. It must be quick, and must not raise."""

    def recorded(self, event: Event) -> None:
        """An event of a run carried here is durable."""
        ...

    def left(self, run: str, status: str, why: str) -> None:
        """A run left memory without an end: 'waiting' (for what) or 'paused' (the reason)."""
        ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a worker and a client. Times are seconds of real time.

    Attributes:
        concurrency: How many runs a worker has in memory.
        name: Begins the id of the worker, for people.
        version: The release of the code, for people.
        lease_ttl_s: How long a worker has a run without a word of it.
        hang_limit_s: A loop that has not turned for so long keeps its leases no more.
        park_grace_s: How long a run that waits stays in memory.
        stop_grace_s: How long running steps may take when the worker stops.
        deadline_s: How long a client waits for the store with each write or read.
        threads: Threads for steps that are plain functions.
        value_limit_bytes: The largest value that is stored.
        audit_retention_s: Values in the audit that are older are erased; None: they stay.
        root: Serve only this run and its descendants.
        queues: Serve only runs of these queues.
        replace: Other functions instead of steps' bodies and resources, for tests.
        observe: Told of every body that runs.
        observer: Told of every event that is recorded.
        overrides: What frameworks replace in a run, for tests.
        inputs: "full" keeps the whole arguments of every step, "digest" a digest and 120 characters, where neither the step
            nor its agent says which. Unless given, model requests are kept whole and all else by its digest.

    Raises:
        BadArguments: A name, a time or a list cannot be used.

    Example:
        ```python
        settings = holdfast.Settings(concurrency=50, deadline_s=5)
        client = holdfast.open("sqlite:runs.db", settings=settings)
        ```
    """

    concurrency: int = 200
    name: str = ""  # begins the id of the worker, for people
    version: str | None = field(
        default_factory=lambda: os.environ.get("HOLDFAST_CODE_VERSION")
    )  # of the code, for people
    lease_ttl_s: float = 10.0
    hang_limit_s: float = 60.0  # a loop that has not turned for so long keeps its leases no more
    park_grace_s: float = 0.5
    stop_grace_s: float = 30.0
    deadline_s: float = (
        30.0  # for so long what a client writes or reads waits for the store; `hf.deadline` chooses another for a block
    )
    threads: int = 32
    value_limit_bytes: int = DEFAULT_LIMIT_BYTES
    audit_retention_s: float | None = None  # values in the audit that are older are erased; None: they stay
    root: str | None = None  # serve only this run and its descendants
    queues: Sequence[str] | None = None  # serve only runs of these queues
    replace: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    observe: Callable[[StepSpec, str], None] | None = None  # told of every body that runs
    observer: Observer | None = None
    overrides: Callable[[str], Iterable[Override]] | None = (
        None  # what holds in a run, by the id of its root; for tests
    )
    inputs: KeptAs | None = None  # of steps that do not say which, nor do their agents

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise BadArguments(
                f"name={self.name!r}: a worker's name is up to 40 letters, digits, dots, dashes and underscores"
            )
        if not self.deadline_s > 0:
            raise BadArguments(f"deadline_s={self.deadline_s!r}: a write needs some time; math.inf is no limit")
        checked_inputs(self.inputs)
        if isinstance(self.queues, str):
            raise BadArguments(f"queues={self.queues!r}: give a list of names, queues=[{self.queues!r}]")

    @property
    def trust_s(self) -> float:
        """Seconds for which a lease is surely ours after it was asked for: the rest is for slow commits and differing clocks."""
        return self.lease_ttl_s * 0.8

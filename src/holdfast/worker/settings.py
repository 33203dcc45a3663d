"""How a worker behaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.codec import DEFAULT_LIMIT_BYTES
from holdfast.runtime import StepSpec


@dataclass(frozen=True, slots=True)
class Settings:
    """How a worker behaves. Times are seconds of real time."""

    concurrency: int = 200
    lease_ttl_s: float = 10.0
    park_grace_s: float = 0.5
    stop_grace_s: float = 30.0
    threads: int = 32
    value_limit_bytes: int = DEFAULT_LIMIT_BYTES
    root: str | None = None  # serve only this run and its descendants
    replace: Mapping[Any, Callable[..., Any]] = field(default_factory=dict)
    observe: Callable[[StepSpec, str], None] | None = None  # told of every body that runs

    @property
    def trust_s(self) -> float:
        """How long after it was asked for a lease is surely ours: the rest is for slow commits and differing clocks."""
        return self.lease_ttl_s * 0.8

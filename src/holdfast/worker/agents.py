"""The agents that a worker serves: by name, and of each name the versions it has.

A run that was started with a version is carried on only by code of that version; a run without one by the newest, which is
the one that was named last. So two versions of an agent can be served by one process: two functions with the same `name=`.
"""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.errors import BadArguments
from holdfast.runtime import AgentSpec
from holdfast.worker.reach import called_by


class Served:
    """Which code belongs to which run. What is new here waits to be published."""

    def __init__(self, specs: Iterable[AgentSpec]) -> None:
        self._newest: dict[str, AgentSpec] = {}
        self._exact: dict[tuple[str, str | None], AgentSpec] = {}
        self._names: list[str] = []
        self._unpublished: list[AgentSpec] = []
        for spec in specs:
            self._put(spec)
            self._newest[spec.name] = spec
        for spec in list(self._exact.values()):
            self._reach(spec)

    def add(self, spec: AgentSpec) -> bool:
        """Serve this agent, and all that it calls, from now on; False if it is served already."""
        known = self._exact.get((spec.name, spec.version))
        if known is None:
            self._put(spec)
            self._reach(spec)
            return True
        if known.fn is not spec.fn:
            version = "" if spec.version is None else f", version {spec.version!r},"
            raise BadArguments(
                f"two agents are named {spec.name!r}{version}: {known.fn.__module__}.{known.fn.__qualname__} and "
                f"{spec.fn.__module__}.{spec.fn.__qualname__}; give one another name with @agent(name=...), or another "
                "version with @agent(version=...)"
            )
        return False

    def replace(self, spec: AgentSpec) -> None:
        """Serve this agent, and all that it calls, in the place of the one that has its name and version."""
        known = self._exact.pop((spec.name, spec.version), None)
        if known in self._unpublished:
            self._unpublished.remove(known)
        self._put(spec)
        self._newest[spec.name] = spec
        self._reach(spec)

    def _put(self, spec: AgentSpec) -> None:
        key = (spec.name, spec.version)
        if key in self._exact:
            self.add(spec)
            return
        self._exact[key] = spec
        self._newest.setdefault(spec.name, spec)
        self._unpublished.append(spec)
        names = [spec.name] if spec.version is None else [spec.name, f"{spec.name} {spec.version}"]
        self._names += [name for name in names if name not in self._names]

    def _reach(self, spec: AgentSpec) -> None:
        for each in called_by(spec):
            if (each.name, each.version) not in self._exact:
                self._put(each)

    @property
    def names(self) -> list[str]:
        """What is served, as the store knows it: names, and names with a version after a space."""
        return self._names

    def spec_of(self, agent: str, version: str | None = None) -> AgentSpec | None:
        """The code of a run."""
        return self._newest.get(agent) if version is None else self._exact.get((agent, version))

    def unpublished(self) -> list[AgentSpec]:
        """What was added since this was asked, the newest version of a name last."""
        found, self._unpublished = self._unpublished, []
        return sorted(found, key=lambda spec: self._newest[spec.name] is spec)

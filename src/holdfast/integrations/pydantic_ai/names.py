"""Names of steps and scopes, made of what Pydantic AI calls its agents, runs and tool calls."""

from __future__ import annotations

import hashlib
import re
from contextlib import AbstractContextManager
from typing import Any

from pydantic_ai.tools import RunContext

import holdfast


def pinned(ctx: RunContext[Any], call: str) -> AbstractContextManager[None]:
    """The scope of a call, named by where the agent was run."""
    name = f"{scopes_of(ctx)}{scope_part(call)}"
    if len(name) > 200:
        name = f"{name[:160]}:{hashlib.sha256(name.encode()).hexdigest()[:32]}"
    return holdfast.scope(name)


def scopes_of(ctx: RunContext[Any]) -> str:
    """The beginning of the scopes of one run of an agent: its id without the mark that tells it from those of other runs."""
    return f"{scope_part(re.sub('@[0-9a-f]{12}$', '', ctx.run_id or ''))}:"


def scope_part(name: str) -> str:
    """A name as scopes may have it."""
    return name.replace("/", ".").replace("#", "-")


def step_name(name: str) -> str:
    """A name as steps have them."""
    return re.sub(r"^\W+|[^\w.:@-]", "_", name.strip("<>"))[:100] or "agent"

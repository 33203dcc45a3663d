"""What a worker publishes of its agents, so that others can start them by name and have arguments checked at once."""

from __future__ import annotations

import json

from holdfast.runtime import AgentSpec
from holdfast.words.limits import default_texts


def schema_of(spec: AgentSpec) -> str:
    """The agent's parameters as JSON Schema, how its runs are let through, and what they may spend."""
    flow = spec.flow.published(default_texts(spec.signature, spec.flow))
    budget = {} if spec.budget is None else {"x-budget": spec.budget.published()}
    return json.dumps(spec.signature.schema() | {"x-flow": flow} | budget)

"""Agents of Pydantic AI, made durable: `Agent(..., capabilities=[HoldfastDurability()])`."""

from holdfast.integrations.pydantic_ai.capability import (
    HoldfastDurability,
    Streamed,
    Summarise,
    Trim,
    valid_history,
)

__all__ = ["HoldfastDurability", "Streamed", "Summarise", "Trim", "valid_history"]

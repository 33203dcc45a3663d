"""Arguments of a tool as a person has edited them: checked by its schema where they are entered, and by the tool itself."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from pydantic import ValidationError
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import RunContext

import holdfast

_LONGEST_REASON: Final = 1000
_NAMED: Final = frozenset({"properties", "$defs"})  # schemas by name
_NESTED: Final = frozenset({"items", "prefixItems", "anyOf", "oneOf", "additionalProperties"})


def closed(schema: Any) -> Any:
    """A JSON schema in which an object has no other fields than it names, unless it says that it may."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = dict(schema)
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, dict):
            made[key] = {name: closed(each) for name, each in value.items()}
        elif key in _NESTED:
            made[key] = closed(value)
    if "properties" in schema and not {"allOf", "$ref", "patternProperties"} & schema.keys():
        made.setdefault("additionalProperties", False)
    return made


async def refused_by_tool(ctx: RunContext[Any], call: ToolCallPart, edited: dict[str, Any]) -> str | None:
    """Say why the tool does not take arguments that a person edited, if it does not: its own code has the last word."""
    # A run that went on with such an answer before this was looked at goes on as it did.
    if ctx.tool_manager is None or not holdfast.patched(f"holdfast.pydantic_ai.edit:{call.tool_call_id}"):
        return None
    try:
        await ctx.tool_manager.validate_tool_call(
            replace(call, args=edited), approved=True, wrap_validation_errors=False
        )
    except ValidationError as error:
        return "; ".join(
            f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}"
            for each in error.errors(include_url=False)
        )[:_LONGEST_REASON]
    except (ModelRetry, ToolFailed) as error:
        return str(error)[:_LONGEST_REASON]
    return None

"""Documents that fit a schema, so that what is wrong in one comes behind the first check: no table of them is to be kept."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from tests.security.fuzzers.inputs import document, text


def fitting(dice: random.Random, schema: Mapping[str, Any], known: Mapping[str, Sequence[Any]], name: str = "") -> Any:
    """Make a value that fits; one that is known to be right under this name, mostly, where there is one."""
    return _made(dice, schema, schema.get("$defs", {}), known, name)


def _made(dice: random.Random, schema: Any, defs: Any, known: Mapping[str, Sequence[Any]], name: str) -> Any:
    if known.get(name) and dice.random() < 0.8:
        return dice.choice(known[name])
    if "$ref" in schema:
        return _made(dice, defs[schema["$ref"].rpartition("/")[2]], defs, known, name)
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return _made(dice, dice.choice(schema[several]), defs, known, name)
    if "const" in schema or "enum" in schema:
        return schema["const"] if "const" in schema else dice.choice(schema["enum"])
    match schema.get("type"):
        case "object":
            return _object(dice, schema, defs, known)
        case "array":
            return [_made(dice, schema.get("items", {}), defs, known, name) for _ in range(dice.choice([0, 1, 1, 2]))]
        case "integer" | "number":
            least, most = schema.get("minimum", -5), schema.get("maximum", 1000)
            return dice.choice([least, most, min(max(least, 1), most), min(max(least, dice.randint(-3, 300)), most)])
        case "string":
            return "2026-01-01T00:00:00Z" if schema.get("format") == "date-time" else text(dice)
        case "boolean":
            return dice.random() < 0.5
        case "null":
            return None
    return document(dice)


def _object(dice: random.Random, schema: Any, defs: Any, known: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    parts, required = schema.get("properties", {}), schema.get("required", ())
    made = {
        name: _made(dice, part, defs, known, name)
        for name, part in parts.items()
        if name in required or dice.random() < 0.15
    }
    more = schema.get("additionalProperties", False)
    if more is not False and not parts:
        made |= {
            text(dice): _made(dice, {} if more is True else more, defs, known, "") for _ in range(dice.randint(0, 2))
        }
    return made

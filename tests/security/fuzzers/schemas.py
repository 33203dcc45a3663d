"""Schemas as agents publish them, and some that none would, with documents that were sent for them."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

from tests.security.fuzzers.inputs import document, mutated, text
from tests.security.fuzzers.kinds import Kinds
from tests.security.fuzzers.texts import refused

from holdfast.errors import BadArguments, NotStorable
from holdfast.values import tagged
from holdfast.values.codec import shape_of
from holdfast.values.schema import arguments_from_published, check_against, check_value, check_whole, filled

PATTERNS = ("^(a|a)*$", "^(a+)+b$", "(", "\\d{1,1000}", "^a{0,99999}$", "(?=a)", "[", "^\\p{L}+$", "(a?){30}a{30}")
FORMATS = ("date", "date-time", "time", "uuid", "email", "binary", "duration")


class Schemas:
    """A document held against a schema is taken or refused by an error of ours, soon."""

    name = "schemas"

    def __init__(self, seed: int = 0) -> None:
        self.seen: Counter[str] = Counter()
        self._kinds = Kinds(seed, 200)
        warnings.simplefilter("ignore")  # of pydantic, about defaults that no schema can tell

    def make(self, dice: random.Random) -> tuple[Any, Any, Any]:
        """A schema, a document and what was shown."""
        if dice.random() < 0.4:
            kind = self._kinds.one(dice)
            schema = kind.schema()
            value = tagged.read(kind.text(dice) or "null")
        else:
            schema = self._schema(dice, dice.randint(0, 4))
            schema = schema if isinstance(schema, dict) else {"anyOf": [schema]}
            schema["$defs"] = {name: self._schema(dice, 2) for name in "AB"}
            value = self._fitting(dice, schema, 6) if dice.random() < 0.7 else document(dice)
        while dice.random() < 0.4:
            value = mutated(dice, value)
        shown = mutated(dice, value) if dice.random() < 0.5 else document(dice)
        return schema, value, shown

    def _schema(self, dice: random.Random, depth: int) -> Any:
        """One of the words that pydantic writes."""
        ref = {"$ref": f"#/$defs/{dice.choice('ABC')}"}
        if depth == 0:
            return dice.choice([
                ref, ref, {}, True, False, {"type": "integer", "minimum": 0}, {"type": ["string", "null"]},
                {"const": text(dice)},
                {"type": "string", "pattern": dice.choice(PATTERNS)}, {"type": "string", "format": dice.choice(FORMATS)},
                {"enum": [1, "a", None]}, {"type": "number", "exclusiveMaximum": 10, "multipleOf": 0.1}, {"type": "null"},
                {"type": "string", "maxLength": 3}, {"type": "boolean", "default": True},
                {"default": {"a": 1}, "title": text(dice)},
            ])  # fmt: skip
        parts = [self._schema(dice, depth - 1) for _ in range(dice.randint(1, 4))]
        how = dice.random()
        if how < 0.35:
            return {dice.choice(["anyOf", "oneOf", "allOf"]): parts}
        if how < 0.5:
            return {
                "type": "array",
                "items": parts[0],
                "uniqueItems": dice.random() < 0.3,
                "maxItems": dice.choice([2, 99]),
            }
        if how < 0.6:
            return {"type": "array", "prefixItems": parts, "minItems": len(parts)}
        names = dict(zip("abcd", parts, strict=False))
        made: dict[str, Any] = {"type": "object", "properties": names, "required": list(names)[: dice.randint(0, 2)]}
        if dice.random() < 0.5:
            made["additionalProperties"] = dice.choice([False, True, parts[-1]])
        if dice.random() < 0.3:
            made["discriminator"] = {"propertyName": "a", "mapping": {"x": "#/$defs/A"}}
        return made

    def _fitting(self, dice: random.Random, schema: Any, depth: int) -> Any:
        """A document that may fit: so that more is looked at than its first word."""
        if not isinstance(schema, dict) or depth == 0:
            return document(dice, 1)
        for word in ("anyOf", "oneOf", "allOf"):
            if word in schema:
                return self._fitting(dice, dice.choice(schema[word]), depth - 1)
        if "items" in schema or "prefixItems" in schema:
            first = [self._fitting(dice, each, depth - 1) for each in schema.get("prefixItems", ())]
            rest = schema.get("items", True)
            return [
                *first,
                *(self._fitting(dice, rest, depth - 1) for _ in range(dice.choice([0, 1, 3, 40]) if depth > 4 else 1)),
            ]
        if "properties" in schema:
            return {
                name: self._fitting(dice, each, depth - 1)
                for name, each in schema["properties"].items()
                if dice.random() < 0.9
            }
        if "const" in schema or "enum" in schema:
            return schema.get("const", schema.get("enum", [None])[0])
        plain = {"string": "aaaa", "integer": 1, "number": 1.5, "boolean": True, "null": None}
        wanted = schema.get("type")
        return plain.get(wanted, "a") if isinstance(wanted, str) else document(dice, 2)

    def check(self, case: tuple[Any, Any, Any]) -> None:
        schema, value, shown = case
        ours = (BadArguments, NotStorable)
        _, said = refused(check_value, schema, value, "it", by=ours)
        self.seen["refused" if said else "taken"] += 1
        whole = refused(filled, schema, value, by=ours)[0]
        refused(check_whole, schema, value, "it", shown, by=ours)
        refused(check_whole, schema, value, "it", by=ours)
        refused(check_against, schema, value, "agent", by=ours)
        if not said and whole is not None:  # what is filled in has a text
            refused(shape_of(Any).text, whole[0], by=ours)
        args, kwargs = (
            (value, {}) if isinstance(value, list) else ([], value) if isinstance(value, dict) else ([value], {})
        )
        kwargs = {name: each for name, each in kwargs.items() if type(name) is str}  # the client takes no others
        refused(arguments_from_published, schema, args, kwargs, "agent", by=ours)

"""Values of any annotation: what is stored is read back the same, and what nobody has stored is refused."""

from __future__ import annotations

import json
import random
import warnings
from collections import Counter
from typing import Any

from tests.security.fuzzers.inputs import document, mangled, mutated, nested
from tests.security.fuzzers.kinds import Kinds
from tests.security.fuzzers.texts import refused

from holdfast.client.documents import json_bytes
from holdfast.errors import NotStorable
from holdfast.values import tagged
from holdfast.values.codec import Shape, digest, preview, shape_of
from holdfast.values.sameness import difference

FORGED = (
    json.dumps({"$int": "0x" + "f" * 20_000}), '{"$decimal":"1E+999999999"}', '{"$datetime":"0001-01-01T00:00:00+23:59"}',
    '{"$map":[[1]]}',
    '{"$datetime":{"at":"2026-01-01T00:00","zone":"../../etc/passwd"}}', '{"$datetime":{"at":"2026-01-01","fold":7}}',
    '{"$set":[[1]]}',
    '{"$time":{"at":"10:00","name":"x"}}', '{"$complex":[1,2]}', '{"$timedelta":[999999999,86399,9999999]}',
    '{"$of":["A",{"$of":["B",{}]}]}',
    '{"$unset":[["a"],{"a":1}]}', '{"$float":"snan"}', '{"$decimal":"sNaN"}', '{"$bytes":"===="}', '{"\\u0024tuple":[1,2]}',
    "1e999", "-",
    json.dumps({"$set": [n * (2**61 - 1) for n in range(200)]}), "[" * 5000, '{"a":' * 300 + "1" + "}" * 300,
    '{"$date":"9999-12-31"}',
    '{"$frozenset":[{"$float":"nan"},{"$float":"nan"}]}', '{"$uuid":"{}"}', '{"$new":1}', "1" * 5000, '{"$of":1}',
    '{"$unset":[[1],{}]}', '"\\ud800"',
)  # fmt: skip

LONGEST = 1 << 20  # characters of a text


class Codec:
    """Of a number of annotations: values, and texts of values to which something was done."""

    name = "codec"

    def __init__(self, seed: int = 0, most: int = 400) -> None:
        self.seen: Counter[str] = Counter()
        self._kinds = Kinds(seed, most)
        warnings.simplefilter("ignore")  # of pydantic, about values that are not of their type

    def make(self, dice: random.Random) -> tuple[Shape, Any, str]:
        """A shape, a value of it, and a text that is read as if it were one."""
        kind = self._kinds.one(dice)
        text = (self._kinds.one(dice) if dice.random() < 0.2 else kind).text(dice) or "null"
        how = dice.random()
        if how < 0.4:
            text = json.dumps(mutated(dice, json.loads(text)))
        elif how < 0.8:
            for _ in range(dice.randint(1, 3)):
                text = mangled(dice, text)[:LONGEST]  # three times a hundred times as long is more than is ever stored
        elif how < 0.9:
            forged = dice.choice(FORGED)
            text = text.replace("null", forged, 1) if "null" in text and dice.random() < 0.5 else f"[{forged},{text}]"
        else:
            text = json.dumps(nested(dice) if dice.random() < 0.2 else document(dice))
        text = text.encode(errors="replace").decode()  # it comes from bytes, so it has no half of a character
        return shape_of(kind.annotation), kind.make(dice), text

    def check(self, case: tuple[Shape, Any, str]) -> None:
        shape, value, text = case
        self.seen["values stored" if _stored(shape, value) else "values refused"] += 1
        made, said = refused(shape.load, text, by=(NotStorable,))
        self.seen["texts refused" if said else "texts read"] += 1
        if not said:
            _stored(shape, made)
        for reader in (tagged.read, tagged.read_noting, tagged.canonical, tagged.bare):
            refused(reader, text, by=(NotStorable,))
        plain, said = refused(tagged.read, text, by=(NotStorable,))
        if not said:
            json.loads(json_bytes(plain))
            again = tagged.read(tagged.write(plain, around=tagged.AROUND))
            assert "nan" in text or difference(plain, again) is None, "plain data changes when it is written again"
        assert len(digest(text)) == 32
        assert len(preview(text)) <= 120


def _stored(shape: Shape, value: Any) -> bool:
    """Store a value and read it back. Was it taken?"""
    done, said = refused(shape.store, value, by=(NotStorable,))
    if said:
        return False
    text, copy = done
    found = shape.load(text)
    assert text.isascii()
    assert digest(shape.store(found)[0]) == digest(text), "it is stored otherwise the second time"
    assert shape.identity(copy) == shape.identity(found), "it is told from itself"
    if '"nan"' not in text:  # in sets it has no fellow, whose text is compared above
        assert difference(value, copy) is None, "the copy is another value"
        assert difference(copy, found) is None, "it is read back as another value"
    return True

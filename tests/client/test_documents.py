"""Documents: every value becomes JSON that any reader of JSON takes, and two that differ differ there."""

import json
from dataclasses import dataclass
from typing import NoReturn

import pytest
from pydantic import BaseModel

from holdfast.client.documents import json_bytes, unsaid


class _Rate(BaseModel):
    of: float


@dataclass
class _Ratio:
    of: float


def _no_json(word: str) -> NoReturn:
    raise AssertionError(f"{word} is no JSON")


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("around", [lambda n: n, lambda n: {"a": [n]}, lambda n: {n: 1}, lambda n: {1: n, "1": n},
                                    lambda n: _Rate(of=n), _Ratio])  # fmt: skip
def test_a_number_that_json_lacks_is_written_as_it_is_stored(number, around):
    text = json_bytes({"value": around(number)})
    json.loads(text, parse_constant=_no_json)
    assert repr(number) in text.decode()


def test_a_number_that_json_lacks_is_no_text():
    assert json.loads(json_bytes([float("nan"), "nan"])) == [{"$float": "nan"}, "nan"]


def test_an_edit_leaves_the_numbers_that_json_lacks_as_they_were():
    shown = {"a": float("inf"), "b": [10**5000, 1], "c": {"$float": "inf"}, "d": float("inf")}
    edited = json.loads(json_bytes(shown)) | {"d": "inf", "e": {"$float": "nan"}}
    edited["b"].append({"$float": "nan"})
    assert unsaid(edited, shown) == shown | {"b": [10**5000, 1, {"$float": "nan"}], "d": "inf", "e": {"$float": "nan"}}

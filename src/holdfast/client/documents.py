"""Values as JSON has them: the same on the command line and over HTTP."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
from datetime import UTC, datetime
from typing import Any, Final, Literal

from pydantic_core import to_jsonable_python

from holdfast.values.text import key_text

_INT_BITS: Final = 10_000  # Python itself writes and reads no number of more than 4,300 digits


def plain(value: Any) -> Any:
    """A value as JSON can hold it. What JSON has no word for is written as it is stored: see `holdfast.values.tagged`."""
    kind = type(value)
    if kind is str or kind is bool or value is None:
        return value
    if kind is int:
        return value if value.bit_length() <= _INT_BITS else {"$int": hex(value)}
    if kind is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, datetime):
        with contextlib.suppress(OverflowError):  # in UTC it would be before the first year, or after the last
            value = value.astimezone(UTC)
        fraction = "microseconds" if value.microsecond % 1000 else "milliseconds"
        return value.isoformat(timespec=fraction).replace("+00:00", "Z")
    if isinstance(value, dict):
        named = {key_text(key): plain(item) for key, item in value.items()}
        return named if len(named) == len(value) else {"$map": [[plain(key), plain(value[key])] for key in value]}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and kind.__module__.startswith("holdfast."):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    made = to_jsonable_python(value, bytes_mode="base64", fallback=repr)
    return made if isinstance(made, str) else plain(made)


def unsaid(given: Any, shown: Any) -> Any:
    """Give an edit the numbers back that JSON has no word for, where it has left them as `plain` wrote them."""
    if type(given) is dict and type(shown) is dict:
        return {name: unsaid(part, shown[name]) if name in shown else part for name, part in given.items()}
    if type(given) is list and type(shown) is list:
        return [unsaid(part, was) for part, was in zip(given, shown, strict=False)] + given[len(shown) :]
    return shown if type(shown) in (int, float) and type(given) is dict and given == plain(shown) else given


def body_text(body: bytes) -> tuple[str, Literal["utf-8", "base64"]]:
    """Write bytes as JSON can hold them, and say how: as the text that they are, or encoded."""
    try:
        return body.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


def json_bytes(document: Any) -> bytes:
    """Write a document as compact JSON, and as nothing else. Text is not escaped, unless it is such that no UTF-8 can hold it."""
    made = plain(document)
    try:
        return json.dumps(made, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return json.dumps(made, allow_nan=False, separators=(",", ":")).encode()

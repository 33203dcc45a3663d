"""Values as JSON has them: the same on the command line and over HTTP."""

from __future__ import annotations

import dataclasses
import json
from datetime import UTC, datetime
from typing import Any

from pydantic_core import to_jsonable_python


def plain(value: Any) -> Any:
    """A value as JSON can hold it."""
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    if isinstance(value, dict):
        return {key if isinstance(key, str) else str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value) and type(value).__module__.startswith("holdfast."):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return to_jsonable_python(value, bytes_mode="base64", inf_nan_mode="strings", fallback=repr)


def json_bytes(document: Any) -> bytes:
    """A document as compact JSON. Text is not escaped, unless it is such that no UTF-8 can hold it."""
    made = plain(document)
    try:
        return json.dumps(made, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half of a pair of surrogates
        return json.dumps(made, separators=(",", ":")).encode()

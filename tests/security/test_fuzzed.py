"""Durations, URLs and schemas, fuzzed: an error of ours or a value, within a second, whatever is given. By night."""

import os
import time

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from holdfast.durations import seconds
from holdfast.errors import HoldfastError
from holdfast.schema import check_value, check_whole, filled
from holdfast.store.choosing import store_at
from holdfast.urls import redacted

pytestmark = pytest.mark.nightly
EXAMPLES = int(os.environ.get("HOLDFAST_FUZZ", "20000"))
by_night = settings(max_examples=EXAMPLES, deadline=1000, suppress_health_check=list(HealthCheck))
SECRET = "hunter2"

leaves = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("abcd"), inner, max_size=4),
    max_leaves=40,
)
REFS = [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}]
schemas = st.recursive(
    st.sampled_from([
        *REFS, {}, True, False, {"type": "string", "pattern": "^(a|a)*$"}, {"type": "integer"}, {"type": "null"},
        {"type": "number", "minimum": 0}, {"const": 1}, {"enum": ["a", 2]}, {"type": "string", "format": "date"},
    ]),
    lambda inner: st.builds(lambda parts, word: {word: parts}, st.lists(inner, min_size=1, max_size=3),
                            st.sampled_from(["anyOf", "oneOf", "allOf", "prefixItems"]))
    | st.builds(lambda part: {"type": "array", "items": part, "uniqueItems": True}, inner)
    | st.builds(lambda parts, others: {"type": "object", "properties": parts, "additionalProperties": others},
                st.dictionaries(st.sampled_from("abcd"), inner, max_size=3), inner),
    max_leaves=12,
)  # fmt: skip


def told(work, *given):
    """What it says when it refuses; nothing when it does not."""
    try:
        work(*given)
    except HoldfastError as error:
        return str(error)
    return ""


@by_night
@given(schemas, schemas, schemas, values, values)
def test_schemas(schema, one, other, value, shown):
    """A schema that nobody would publish, against a value that nobody would send."""
    if not isinstance(schema, dict):
        return
    whole = {**schema, "$defs": {"A": one, "B": other}}
    began = time.monotonic()
    for work in (
        lambda: check_value(whole, value, "it"),
        lambda: check_whole(whole, value, "it", shown),
        lambda: filled(whole, value),
    ):
        assert len(told(work)) < 5000
    assert time.monotonic() - began < 1


@by_night
@given(st.text(alphabet="0123456789. smhdwa,-+e\u0660\n", max_size=300) | st.integers() | st.floats() | st.text())
def test_durations(duration):
    assert len(told(seconds, duration)) < 400


@by_night
@given(
    st.sampled_from(["postgresql://", "postgres://", "sqlite:", "sqlite://", "", "mysql://", "postgresql:", "//", "POSTGRES://"]),
    st.text(alphabet="uab:/?#[]%@,&=. ", max_size=12), st.text(alphabet="uab/?#[]%,&=. 1:", max_size=12),
    st.text(alphabet="uab:/?#[]%,&=. ", max_size=30),
)  # fmt: skip
def test_urls(scheme, user, around, rest):
    """A password before an @, whatever stands around it, is never shown; what is wrong ends in an error of ours."""
    assume(scheme or not user.startswith("//"))  # which would be a scheme
    url = f"{scheme}u:{user}{SECRET}{around}@{rest}"
    if not url.startswith("sqlite:") or "//" in url[:9]:
        assert SECRET not in redacted(url)
    assert SECRET not in told(store_at, url) or url.startswith("sqlite:")

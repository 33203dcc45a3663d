"""The engine's table of contents: what `execute.assemble` says of an attempt."""

from __future__ import annotations

from holdfast.engine.execute import ARRIVALS
from holdfast.engine.scope import CALLS
from holdfast.runtime import Request
from holdfast.words.model import KINDS


def test_every_kind_of_event_that_arrives_is_taken_by_somebody():
    assert set(ARRIVALS) == {name for name, kind in KINDS.items() if kind.arrives}


def test_every_request_of_a_verb_becomes_a_call():
    import holdfast.runtime

    requests = [
        each
        for each in vars(holdfast.runtime).values()
        if isinstance(each, type) and hasattr(each, "verb") and each is not Request
    ]
    assert set(requests) == set(CALLS)

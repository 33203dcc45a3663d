"""Requests to models, kept whole: each message is written once, and written again if anybody changed it."""

import json
import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from enum import StrEnum
from types import SimpleNamespace

import pytest
from pydantic import BaseModel, model_serializer
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.usage import RequestUsage

from holdfast.integrations.pydantic_ai import records
from holdfast.integrations.pydantic_ai.requests import Written
from holdfast.values.codec import UNTYPED
from holdfast.values.parts import Memory

NOON = datetime(2027, 1, 31, 12, tzinfo=UTC)


class Loud(ToolReturnPart):
    """A part of the user's, which is written as it likes."""

    @model_serializer(mode="wrap")
    def loud(self, handler):
        return {**handler(self), "content": str(self.content).upper()}


class Mood(StrEnum):
    CALM = "calm"


class Words(str):
    """A text that may have more to it."""

    __slots__ = ()


class Bag(dict):
    """A dict that may have more to it."""


class Order(BaseModel):
    item: str


@dataclass
class Place:
    name: str


def params_of(messages, tools=()):
    offered = SimpleNamespace(function_tools=list(tools), output_tools=[])
    return SimpleNamespace(messages=list(messages), model_request_parameters=offered)


def written_anew(params):
    """The text of a request, of which nothing was written before."""
    messages, tools = [records.message(each) for each in params.messages], records.tools_of(params)
    return UNTYPED.text({"messages": messages, "tools": tools} if tools else {"messages": messages}, "inputs")


class Told:
    """Two memories of one run: what one is told of requests that are written anew, the other of those written by messages."""

    def __init__(self):
        self.written, self.memory, self.other, self.calls = Written(), Memory(), Memory(), 0

    def call(self, messages, tools=(), answer=None):
        """Tell a request, which must be the same both ways."""
        params = params_of(messages, tools)
        try:
            text = written_anew(params)
        except Exception as refused:
            with pytest.raises(type(refused)):
                self.written.request(params)
            return
        request = self.written.request(params)
        assert (len(request), request.text()) == (len(text), text)
        told, other = self.memory.tell(request), self.other.tell(text)
        assert json.dumps(told.tree) == json.dumps(other.tree)
        assert list(told.parts.items()) == list(other.parts.items())
        self.calls += 1
        for memory in (self.memory, self.other):
            memory.saw(self.calls, told.tree, answer)


def looked(at, content, args=None, **more):
    """A turn in which a tool was called."""
    said = ToolCallPart("look", {"at": at} if args is None else args, f"call_{at}")
    answer = ModelResponse([said], usage=RequestUsage(input_tokens=1000 + at, details={"cached": at}), timestamp=NOON)
    return [
        answer,
        ModelRequest([ToolReturnPart("look", content, f"call_{at}", timestamp=NOON, **more)], timestamp=NOON),
    ]


@pytest.fixture
def writes(monkeypatch):
    """How often a message was written."""
    count, message = [], records.message
    monkeypatch.setattr(records, "message", lambda each: count.append(each) or message(each))
    return count


def test_each_message_is_written_once_however_long_the_conversation(writes):
    written, memory, messages = Written(), Memory(), [ModelRequest([UserPromptPart("go", timestamp=NOON)])]
    for turn in range(50):
        writes.clear()
        memory.saw(turn, memory.tell(written.request(params_of(messages))).tree)
        assert turn < 3 or writes == messages[-2:]  # a list of few elements is told anew each time
        messages += looked(turn, f"{turn} " * 300)


CHANGES = {  # of a turn: the answer, and the request with the results
    "a text": lambda turn: setattr(turn[1].parts[0], "content", "other"),
    "a name": lambda turn: setattr(turn[0], "model_name", "other"),
    "an argument": lambda turn: turn[0].parts[0].args.update(at="there"),
    "an argument that is equal and another": lambda turn: turn[0].parts[0].args.update(at=True),
    "the name of an argument": lambda turn: turn[0].parts[0].args.update(on=turn[0].parts[0].args.pop("at")),
    "the order of arguments": lambda turn: turn[0].parts[0].args.update(at=turn[0].parts[0].args.pop("at")),
    "an argument deep down": lambda turn: turn[0].parts[0].args["in"]["rooms"].append("cellar"),
    "a part more": lambda turn: turn[0].parts.append(TextPart("and")),
    "a part less": lambda turn: turn[0].parts.clear(),
    "another part": lambda turn: turn[1].parts.__setitem__(0, UserPromptPart("again")),
    "what it cost": lambda turn: setattr(turn[0].usage, "output_tokens", 7),
    "a detail of what it cost": lambda turn: turn[0].usage.details.update(cached=8),
    "a time": lambda turn: setattr(turn[0], "timestamp", NOON + timedelta(seconds=1)),
    "the same time elsewhere": lambda turn: setattr(
        turn[0], "timestamp", NOON.astimezone(timezone(timedelta(hours=1)))
    ),
    "all of it at once": lambda turn: setattr(turn[0], "__dict__", {**vars(turn[0]), "model_name": "other"}),
    "a field by another": lambda turn: (delattr(turn[0], "model_name"), setattr(turn[0], "provider_name", "other")),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_message_that_was_changed_is_written_again(change):
    told, turns = Told(), [ModelRequest([UserPromptPart("go", timestamp=NOON)])]
    for turn in range(1, 6):
        args = {"at": 1, "in": {"rooms": ["hall"]}}
        turns += looked(turn, f"{turn} " * 300, args, metadata={"seen": False})
    told.call(turns)
    told.call(turns)
    before = written_anew(params_of(turns))
    CHANGES[change](turns[5:7])
    told.call(turns)
    told.call(turns)
    assert written_anew(params_of(turns)) != before


def test_a_message_that_holds_what_cannot_be_looked_into_is_written_for_each_request():
    told, order, place, bag, words = Told(), Order(item="kettle"), Place("hall"), Bag(a=1), Words("calm")
    turns = [
        ModelRequest([UserPromptPart("go", timestamp=NOON)]),
        *looked(1, order),
        *looked(2, [place]),
        *looked(3, "x" * 300),
        *looked(4, {"bag": bag, "mood": Mood.CALM}),
        *looked(5, "ours"),
        ModelRequest([UserPromptPart(words, timestamp=NOON)]),
    ]
    turns[10].parts[0].__class__ = Loud
    changes = [
        lambda: None,
        lambda: setattr(order, "item", "cup"),
        lambda: setattr(place, "name", "yard"),
        lambda: bag.update(a=True),
        lambda: setattr(turns[10].parts[0], "content", "theirs"),
        lambda: None,
    ]
    for change in changes:
        change()
        told.call(turns)


def test_what_several_messages_share_changes_in_all_of_them():
    told, args, said = Told(), {"at": [1]}, TextPart("x" * 300)
    turns = [message for at in range(6) for message in looked(at, args, args)]
    for turn in turns[::2]:
        turn.parts.append(said)
    turns.append(turns[0])
    for change in (lambda: None, lambda: args["at"].append(True), lambda: setattr(said, "content", "y" * 300)):
        change()
        told.call(turns)
        told.call(turns)


def test_a_message_is_the_same_whose_fields_were_set_in_another_order(writes):
    written, turns = Written(), looked(1, "x" * 300)
    written.request(params_of(turns))
    writes.clear()
    for message in turns:
        message.__dict__ = dict(reversed(vars(message).items()))
    written.request(params_of(turns))
    assert writes == []


@pytest.mark.parametrize("depth", [100, 150, 190, 195, 200, 250, 3000])
def test_what_is_nested_deeply_is_written_or_refused_as_ever(depth):
    content, told = "x" * 300, Told()
    for _ in range(depth):
        content = [content]
    turns = [message for at in range(4) for message in looked(at, content)]
    told.call(turns)
    told.call(turns)


def test_a_message_that_holds_itself_is_refused_and_not_looked_into_for_ever():
    looping = {}
    looping["self"] = looping
    with pytest.raises(ValueError, match="Circular reference"):
        Written().request(params_of(looked(1, looping)))


def test_what_is_no_field_of_a_message_may_hold_the_message():
    told, turns = Told(), [message for at in range(4) for message in looked(at, "x" * 300)]
    turns[0].ours = [turns[0]]
    told.call(turns)
    told.call(turns)


@pytest.mark.by_day("?")
@pytest.mark.parametrize("seed", range(25))
def test_requests_of_random_conversations_are_told_as_if_each_was_written_anew(seed):
    """Messages come, go, change places and change; tools come and go; answers are in the journal, or not."""
    dice, told, turns, tools = random.Random(seed), Told(), [], []
    for _ in range(40):
        for _ in range(dice.choice([0, 1, 1, 2, 5])):
            turns += [message(dice)]
        if turns and dice.random() < 0.3:
            shaken(dice, dice.choice(turns))
        if len(turns) > 6 and dice.random() < 0.15:
            start = dice.randrange(len(turns))
            del turns[start : start + dice.randrange(len(turns))]
        if dice.random() < 0.1:
            dice.shuffle(turns)
        if dice.random() < 0.2:
            tools = [tool(dice) for _ in range(dice.randrange(4))]
        if turns and dice.random() < 0.1:
            turns.append(dice.choice(turns))
        answer = None
        if turns and dice.random() < 0.5:
            answer = UNTYPED.text({"version": "v", "response": records.message(dice.choice(turns))}, "result")
        told.call(turns, tools, answer)


def words(dice, most=700):
    return "".join(dice.choices('abc é\u2028\\"\n😀', k=dice.choice([0, 3, 30, 255, 257, most])))


NUMBERS = [
    0,
    1,
    True,
    False,
    None,
    1.0,
    1.5,
    -0.0,
    10**20,
    -(2**63),
    10**400,
    1e300,
    math.nan,
    math.inf,
    Decimal("1.10"),
]


def value(dice, depth=0):
    kinds = [lambda: words(dice), lambda: dice.choice(NUMBERS)]
    if depth < 3:
        kinds += [lambda: [value(dice, depth + 1) for _ in range(dice.randrange(6))]]
        kinds += [
            lambda: {dice.choice(["a", "$part", "at", "é"]): value(dice, depth + 1) for _ in range(dice.randrange(4))}
        ]
    return dice.choice(kinds)()


def tool(dice):
    return SimpleNamespace(name=words(dice, 9), description=words(dice), parameters_json_schema={"type": value(dice)})


def message(dice):
    if dice.random() < 0.5:
        parts = [
            dice.choice(
                [
                    lambda: TextPart(words(dice)),
                    lambda: ThinkingPart(words(dice), signature="s"),
                    lambda: ToolCallPart("look", {"at": value(dice)}, "c1", provider_details={"x": value(dice)}),
                    lambda: ToolCallPart("look", words(dice), "c2"),
                ]
            )()
            for _ in range(dice.randrange(4))
        ]
        return ModelResponse(
            parts, usage=RequestUsage(output_tokens=dice.randrange(999)), timestamp=NOON, metadata={"m": value(dice)}
        )
    parts = [
        dice.choice(
            [
                lambda: UserPromptPart(words(dice), timestamp=NOON),
                lambda: UserPromptPart(
                    [
                        words(dice),
                        ImageUrl("https://h/i.png"),
                        BinaryContent(b"\x00" * dice.randrange(400), media_type="image/png"),
                    ],
                    timestamp=NOON,
                ),
                lambda: SystemPromptPart(words(dice), timestamp=NOON),
                lambda: ToolReturnPart("look", value(dice), "c1", timestamp=NOON),
                lambda: ToolReturnPart("look", words(dice), "c2", timestamp=NOON, outcome="retried"),
            ]
        )()
        for _ in range(dice.randrange(4))
    ]
    return ModelRequest(parts, timestamp=NOON, instructions=dice.choice([None, words(dice)]))


def shaken(dice, changed):
    """Change something of a message."""
    part = dice.choice(changed.parts) if changed.parts else None
    inner = getattr(part, "args", None) or getattr(part, "content", None)
    if type(inner) in (dict, list) and inner and dice.random() < 0.8:
        moved(dice, inner)
    elif part is not None and dice.random() < 0.3:
        changed.parts.remove(part)
    elif part is not None and dice.random() < 0.2:
        changed.parts.insert(0, part)
    elif isinstance(part, TextPart | ToolReturnPart):
        part.content = words(dice)
    else:
        changed.run_id = words(dice)


def moved(dice, inner):
    """Change something deep down: a value by another, often an equal one, or the order."""
    names = list(inner) if type(inner) is dict else range(len(inner))
    name = dice.choice(names)
    deeper = inner[name]
    if type(deeper) in (dict, list) and deeper and dice.random() < 0.7:
        moved(dice, deeper)
    elif dice.random() < 0.3:
        inner[name] = (
            {0: False, 1: True, "": None}.get(deeper, deeper) if type(deeper) in (int, str) else value(dice, 2)
        )
    elif type(inner) is list:
        dice.choice([lambda: dice.shuffle(inner), lambda: inner.append(value(dice, 2)), lambda: inner.remove(deeper)])()
    else:
        del inner[name]
        inner[dice.choice([name, "b"])] = deeper if dice.random() < 0.7 else value(dice, 2)

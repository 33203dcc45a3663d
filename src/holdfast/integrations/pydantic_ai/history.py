"""The message history of an agent, kept so that a model can always be given it: every call with a result, and not too long.

`valid_history` gives each tool call that has no result one that says what is known of it. `Trim` and `Summarise` take the
middle out of a long history, never a call without its result. What is taken out stays in the journal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from pydantic_ai.direct import model_request
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
    repair_messages,
)
from pydantic_ai.models import Model

import holdfast
from holdfast import BadArguments
from holdfast.integrations.pydantic_ai import records

NEVER_RAN = "Cancelled before it ran: nothing was done."
CUT_OFF = "Stopped while it ran: it may or may not have happened. Look before you do it again."
UNKNOWN = "Its result is missing: it may or may not have happened. Look before you do it again."

_WORTHWHILE = 4  # messages; to take out fewer would cost more than it saves


def valid_history(messages: Sequence[ModelMessage]) -> list[ModelMessage]:
    """Make messages fit to be sent: each tool call has a result, and no result is without its call.

    A result that is missing is made up, and says what this run knows of the call: that it never ran, or that it may have.

    Example:
        ```python
        from holdfast.integrations.pydantic_ai import valid_history

        assert valid_history([]) == []
        ```
    """
    repaired: list[ModelMessage] = []
    asked_by: str | None = None
    for message in repair_messages(messages):
        if isinstance(message, ModelResponse):
            asked_by = message.run_id
        elif any(_made_up(part) for part in message.parts):
            message = replace(message, parts=[_in_our_words(part, asked_by) for part in message.parts])  # noqa: PLW2901
        repaired.append(message)
    return repaired


def _made_up(part: Any) -> bool:
    """Did the framework make this up? What we have said of a call stays: later runs know less of it."""
    interrupted = isinstance(part, ToolReturnPart) and part.outcome == "interrupted"
    return interrupted and part.content not in (NEVER_RAN, CUT_OFF, UNKNOWN)


def _in_our_words(part: Any, run_id: str | None) -> Any:
    if not _made_up(part):
        return part
    known, call = records.known(), (run_id, part.tool_call_id)
    told = CUT_OFF if call in known.begun else NEVER_RAN if call in known.asked_for else UNKNOWN
    return replace(part, content=told)


# Making it shorter


class Compaction(Protocol):
    """When to take out the middle of a history, which part of it, and what to put there."""

    keep: int
    first: int

    def due(self, messages: Sequence[ModelMessage]) -> bool: ...
    async def text(self, removed: Sequence[ModelMessage]) -> str: ...


@dataclass(frozen=True, kw_only=True)
class Trim:
    """Keep the first messages (the task) and the last ones, once there are more than `above`.

    Attributes:
        keep: How many of the last ones stay.
        first: How many of the first ones stay.
        above: From how many messages on; twice what stays unless given.

    Raises:
        BadArguments: Nothing would stay at one end.

    Example:
        ```python
        from holdfast.integrations.pydantic_ai import HoldfastDurability, Trim

        short = HoldfastDurability(compact=Trim(keep=40))
        ```
    """

    keep: int = 40
    first: int = 1
    above: int = 0

    def __post_init__(self) -> None:
        _check(self.keep, self.first)

    def due(self, messages: Sequence[ModelMessage]) -> bool:
        return len(messages) > (self.above or 2 * (self.first + self.keep))

    async def text(self, removed: Sequence[ModelMessage]) -> str:
        return "[Earlier messages were left out here.]"


@dataclass(frozen=True, kw_only=True)
class Summarise:
    """Have a model summarise all but the first and last messages, once a request takes more than so many tokens.

    Attributes:
        model: The model that summarises.
        above_tokens: From how many tokens on.
        keep: How many of the last messages stay.
        first: How many of the first ones stay.
        prompt: What the model is told.

    Raises:
        BadArguments: Nothing would stay at one end.

    Example:
        ```python
        from holdfast.integrations.pydantic_ai import HoldfastDurability, Summarise

        short = HoldfastDurability(compact=Summarise(model="openai-chat:gpt-5-mini", above_tokens=50_000))
        ```
    """

    model: Model | str
    above_tokens: int
    keep: int = 10
    first: int = 1
    prompt: str = (
        "Below is part of a conversation between a user and an assistant that works with tools. Summarise it for the "
        "assistant, who will go on without it: what was asked, what was found out and done, what is still to do. Keep "
        "names, numbers and identifiers exactly."
    )

    def __post_init__(self) -> None:
        _check(self.keep, self.first)

    def due(self, messages: Sequence[ModelMessage]) -> bool:
        last = next((each for each in reversed(messages) if isinstance(each, ModelResponse)), None)
        return last is not None and last.usage.input_tokens + last.usage.output_tokens > self.above_tokens

    async def text(self, removed: Sequence[ModelMessage]) -> str:
        asked = f"{self.prompt}\n\n<conversation>\n{transcript(removed)}\n</conversation>"
        answer = await model_request(self.model, [ModelRequest(parts=[UserPromptPart(asked)])])
        records.account(answer)
        said = "".join(part.content for part in answer.parts if isinstance(part, TextPart)).strip()
        if not said:
            raise ValueError("the model that was to summarise the conversation gave an empty answer")
        return f"[Earlier messages, summarised:]\n{said}"


def _check(keep: int, first: int) -> None:
    if keep < 1 or first < 1:
        raise BadArguments(f"keep={keep}, first={first}: keep at least one message at each end")


def middle(messages: Sequence[ModelMessage], compaction: Compaction) -> tuple[int, int] | None:
    """The part to take out: it begins after a request and ends before a response, so calls keep their results.

    The note of an earlier compaction stands where this part begins, and is taken out with it.
    """
    starts = range(compaction.first, len(messages))
    start = next((n for n in starts if isinstance(messages[n - 1], ModelRequest)), len(messages))
    ends = range(len(messages) - compaction.keep, start + _WORTHWHILE - 1, -1)
    end = next((n for n in ends if isinstance(messages[n], ModelResponse)), None)
    return None if end is None else (start, end)


def shortened(messages: Sequence[ModelMessage], start: int, end: int, text: str) -> list[ModelMessage]:
    """Return the messages with a note instead of the ones between start and end."""
    before = messages[start - 1]
    note = ModelRequest(
        parts=[UserPromptPart(text, timestamp=before.timestamp or records.EPOCH)],
        timestamp=before.timestamp,
        run_id=before.run_id,
        conversation_id=before.conversation_id,
    )
    return [*messages[:start], note, *messages[end:]]


def with_note(messages: Sequence[ModelMessage], text: str) -> list[ModelMessage]:
    """Return the messages with a word to the model at their end, for one request."""
    *before, last = messages
    assert isinstance(last, ModelRequest)
    note = UserPromptPart(text, timestamp=last.timestamp or records.EPOCH)
    return [*before, replace(last, parts=[*last.parts, note])]


def best_so_far(messages: Sequence[ModelMessage]) -> str:
    """The last thing the agent said; if it only called tools, what they returned last."""
    for message in reversed(messages):
        said = [part.content for part in message.parts if isinstance(part, TextPart) and part.content.strip()]
        if isinstance(message, ModelResponse) and said:
            return "\n\n".join(said)
    returns = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    return "\n".join(f"{part.tool_name}: {part.model_response_str()}" for part in returns[-3:])


def unfinished(messages: Sequence[ModelMessage], why: Exception) -> ModelResponse:
    """An answer made of what there is, which says that it is not whole."""
    text = f"{best_so_far(messages)}\n\n[Not finished: {why}]".strip()
    return ModelResponse(parts=[TextPart(text)], metadata={"holdfast": {"partial": "limit"}}, timestamp=holdfast.now())


def transcript(messages: Sequence[ModelMessage]) -> str:
    """Return the messages as text, for a model that is to read about them and not to answer them."""
    lines = []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolCallPart):
                lines.append(f"assistant calls {part.tool_name}({part.args_as_json_str()})")
            elif isinstance(part, ToolReturnPart):
                lines.append(f"{part.tool_name} returned: {part.model_response_str()}")
            elif isinstance(part, TextPart):
                lines.append(f"assistant: {part.content}")
            elif not isinstance(part, ThinkingPart) and isinstance(content := getattr(part, "content", None), str):
                lines.append(f"user: {content}")
    return "\n".join(lines)

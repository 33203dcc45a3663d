"""Models that answer from a script and count what was paid for."""

from collections import Counter

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel


def turn_of(messages):
    """How many answers the model has given in this conversation."""
    return sum(isinstance(message, ModelResponse) for message in messages)


def returned(messages):
    """What the tools gave back last, by tool."""
    return {part.tool_name: part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)}


def calls(*wanted):
    """An answer that calls tools: (name, arguments) each. Their ids are c0, c1, ..."""
    return ModelResponse(parts=[ToolCallPart(name, given, f"c{n}") for n, (name, given) in enumerate(wanted)])


def says(text):
    return ModelResponse(parts=[TextPart(text)])


class Script:
    """`answer(turn, messages)` is what the model says; `paid` counts the requests that reached it."""

    def __init__(self, answer, before=None):
        self.paid = Counter()
        self._answer, self._before = answer, before
        self.model = FunctionModel(self._request, stream_function=self._stream, model_name="scripted")

    async def _request(self, messages, info):
        self.paid[str(messages[0].parts[0].content), turn_of(messages)] += 1
        if self._before is not None:
            await self._before()
        return self._answer(turn_of(messages), messages)

    async def _stream(self, messages, info):
        answer = await self._request(messages, info)
        for n, part in enumerate(answer.parts):
            if isinstance(part, ToolCallPart):
                yield {n: DeltaToolCall(part.tool_name, part.args_as_json_str(), part.tool_call_id)}
            else:
                for word in part.content.split(" "):
                    yield f"{word} "

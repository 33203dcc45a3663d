"""Models that answer from a script and count what was paid for."""

from collections import Counter

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel

import holdfast


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
    """`answer(turn, messages)` is what the model says.

    `paid` counts the requests that reached it, by run, prompt and turn. `again` are those that came when a later turn of the same
    conversation had been paid for, and so their own answer had been recorded.
    """

    def __init__(self, answer, before=None):
        self.answer, self._before = answer, before
        self.forget()
        self.model = FunctionModel(self._request, stream_function=self._stream, model_name="scripted")

    def forget(self):
        self.paid, self.again = Counter(), []

    async def _request(self, messages, info):
        run, prompt, turn = holdfast.this_run().id, str(messages[0].parts[0].content), turn_of(messages)
        self.paid[run, prompt, turn] += 1
        if (run, prompt, turn + 1) in self.paid:
            self.again.append((run, prompt, turn))
        if self._before is not None:
            await self._before(run, prompt, turn)
        return self.answer(turn, messages)

    async def _stream(self, messages, info):
        answer = await self._request(messages, info)
        for n, part in enumerate(answer.parts):
            if isinstance(part, ToolCallPart):
                yield {n: DeltaToolCall(part.tool_name, part.args_as_json_str(), tool_call_id=part.tool_call_id)}
            else:
                for word in part.content.split(" "):
                    yield f"{word} "

"""The models that the chat can use: one that knows a few words, and a real small one."""

import os
import re

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider


def model_named(name: str) -> Model | str:
    """`scripted`, `local` (examples/models/local.py serves it), or what Pydantic AI calls a model."""
    if name == "scripted":
        return FunctionModel(scripted, model_name="scripted")
    if name == "local":
        url = os.environ.get("MODEL_URL", "http://127.0.0.1:8711/v1")
        return OpenAIChatModel("smollm2", provider=OpenAIProvider(base_url=url, api_key="none"))
    return name


def scripted(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Looks the last order up that was spoken of, and pays it back if the customer wants the money."""
    said = [str(part.content) for each in messages for part in each.parts if isinstance(part, UserPromptPart)]
    spoken_of = re.findall(r"\b\d{3}\b", " ".join(said))
    found = {part.tool_name: part.content for part in messages[-1].parts if isinstance(part, ToolReturnPart)}
    if not spoken_of:
        return _says("Which order is it about?")
    number = int(spoken_of[-1])
    if re.search("leave it|forget", said[-1], re.IGNORECASE):
        return _says(f"All right, nothing was paid back for order {number}.")
    if "refund" in found:
        return _says(f"About order {number}: {found['refund']}")
    if "find_order" not in found:
        return ModelResponse(parts=[ToolCallPart("find_order", {"number": number})])
    order = found["find_order"]
    if not isinstance(order, dict):
        return _says(f"I cannot find order {number}.")
    if "money" in said[-1]:
        return ModelResponse(parts=[ToolCallPart("refund", {"number": number, "amount": order["price"]})])
    return _says(f"Order {number}, {order['what']}, is {order['state']}.")


def _says(text: str) -> ModelResponse:
    return ModelResponse(parts=[TextPart(text)])

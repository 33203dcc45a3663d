"""Tool calls for a model that was never taught them: a server in front of its own.

A request that offers tools becomes one for JSON, either a tool with its arguments or an answer, in a schema that the model's
server holds it to; the model only chooses. When a tool has returned, it is asked for words. All else passes as it is.
"""

import json
import sys
import threading
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]


def worded(request: Json) -> Json:
    """The same request without tools: what was called and returned before is told in words."""
    kept = {
        key: value for key, value in request.items() if key not in ("tools", "tool_choice", "stream", "stream_options")
    }
    names = {
        call["id"]: call["function"]["name"] for each in request["messages"] for call in each.get("tool_calls") or ()
    }
    told = []
    for message in request["messages"]:
        if message["role"] == "tool":
            found = f"This is what {names.get(message['tool_call_id'])} says: {message['content']}"
            told.append({"role": "user", "content": f"{found}\n\nTell me in a sentence."})
        elif not message.get("tool_calls"):
            told.append(message)
    return kept | {"messages": told}


def choosing(request: Json) -> Json:
    """The same request as one to choose: a tool with its arguments, or an answer."""
    tools, plain = [tool["function"] for tool in request["tools"]], worded(request)
    listed = [
        f"- {tool['name']}({', '.join(tool['parameters']['properties'])}): {tool.get('description')}" for tool in tools
    ]
    before = [message["content"] for message in plain["messages"] if message["role"] == "system"]
    advice = [*before, "", "Tools:", *listed, "", "Answer with a tool and its arguments, or with an answer."]
    said = [message for message in plain["messages"] if message["role"] != "system"]
    calls = [_form(tool={"const": tool["name"]}, arguments=_short(tool["parameters"])) for tool in tools]
    answers = [] if request.get("tool_choice") == "required" else [_form(answer={"type": "string", "maxLength": 200})]
    schema = {"name": "choice", "schema": {"anyOf": calls + answers}}
    return plain | {
        "messages": [{"role": "system", "content": "\n".join(advice)}, *said],
        "response_format": {"type": "json_schema", "json_schema": schema},
    }


def chosen(completion: Json) -> Json:
    """What the model chose, as a client expects it: a tool call, or words."""
    (choice,) = completion["choices"]
    try:
        made = json.loads(choice["message"]["content"])
    except ValueError:  # cut off by `max_tokens`
        return completion
    if "tool" in made:
        function = {"name": made["tool"], "arguments": json.dumps(made["arguments"])}
        call = {"id": f"call_{uuid.uuid4().hex[:12]}", "type": "function", "function": function}
        choice["message"] |= {"content": None, "tool_calls": [call]}
        choice["finish_reason"] = "tool_calls"
    else:
        choice["message"]["content"] = made.get("answer", "")
    return completion


def streamed(completion: Json) -> bytes:
    """A whole answer as a stream of one piece."""
    (choice,) = completion.pop("choices")
    calls = [{"index": place, **call} for place, call in enumerate(choice["message"].get("tool_calls") or [])]
    delta = {"role": "assistant", "content": choice["message"]["content"]} | ({"tool_calls": calls} if calls else {})
    usage, head = completion.pop("usage", None), completion | {"object": "chat.completion.chunk"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]},
        {**head, "choices": [], "usage": usage},
    ]
    return b"".join(b"data: %s\n\n" % json.dumps(chunk).encode() for chunk in chunks) + b"data: [DONE]\n\n"


def _short(parameters: Json) -> Json:
    """The same schema with an end to every text: a small model finds none."""
    bounded = {name: {"maxLength": 60, **each} if each.get("type") == "string" else each
               for name, each in parameters["properties"].items()}  # fmt: skip
    return parameters | {"properties": bounded}


def _form(**parts: Json) -> Json:
    return {"type": "object", "properties": parts, "required": list(parts), "additionalProperties": False}


@contextmanager
def calling(model: str, port: int = 0) -> Iterator[str]:
    """Stand in front of the server at this address until the block ends; gives the address to ask instead."""
    server = _Server(("127.0.0.1", port), _Handler)
    server.model = model
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads, block_on_close = False, True
    model: str

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Whoever asked and was killed before the answer is nothing to complain about."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        self._pass(None)

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        request = json.loads(content)
        if not request.get("tools"):
            self._pass(content)
            return
        returned = request["messages"][-1]["role"] == "tool"
        completion = self._pass(json.dumps((worded if returned else choosing)(request)).encode(), read=True)
        if completion is None:
            return
        made = completion if returned else chosen(completion)
        if request.get("stream"):
            self._answer(200, "text/event-stream", streamed(made))
        else:
            self._answer(200, "application/json", json.dumps(made).encode())

    def _pass(self, content: bytes | None, *, read: bool = False) -> Json | None:
        """Ask the model's own server, and pass on what it says as it comes; or only read it, unless it refuses."""
        asked = urllib.request.Request(self.server.model + self.path, content, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(asked) as answer:
                if read:
                    whole: Json = json.load(answer)
                    return whole
                self._answer(200, answer.headers["Content-Type"])
                while piece := answer.read1():
                    self.wfile.write(piece)
        except urllib.error.HTTPError as refusal:
            self._answer(refusal.code, refusal.headers["Content-Type"], refusal.read())
        return None

    def _answer(self, status: int, kind: str, content: bytes = b"") -> None:
        self.send_response(status)  # HTTP/1.0: the end of the connection is the end of the answer
        self.send_header("Content-Type", kind)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

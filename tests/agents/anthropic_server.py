"""A small server that speaks the messages protocol of Anthropic on loopback: texts, streams, and refusals on order."""

from __future__ import annotations

import json
from contextlib import contextmanager

from holdfast.testing.loopback import Loopback


class Refusal:
    """An error as this provider tells it."""

    def __init__(self, status, kind, after=None):
        self.status, self.kind = status, kind
        self.headers = {} if after is None else {"retry-after": str(after)}


class Server:
    """Answers from a list, in the order of arrival; a text is streamed word by word if that is asked for."""

    def __init__(self, script):
        self.requests, self._script = [], iter(script)
        self.server = Loopback(self._serve)

    @property
    def env(self):
        return {"ANTHROPIC_BASE_URL": f"http://127.0.0.1:{self.server.port}", "ANTHROPIC_API_KEY": "any"}

    async def _serve(self, call, reply):
        assert (call.method, call.path) == ("POST", "/v1/messages"), call
        request = json.loads(call.body)
        self.requests.append(request)
        said = next(self._script)
        if isinstance(said, Refusal):
            error = {"type": "error", "error": {"type": said.kind, "message": said.kind}}
            reply.whole(said.status, {"Content-Type": "application/json", **said.headers}, json.dumps(error).encode())
            return
        words = said.split(" ")
        usage = {"input_tokens": len(request["messages"][0]["content"].split()), "output_tokens": len(words)}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"], "content": [],
                   "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}  # fmt: skip
        if not request.get("stream"):
            body = message | {"content": [{"type": "text", "text": said}]}
            reply.whole(200, {"Content-Type": "application/json"}, json.dumps(body).encode())
            return
        events = [
            {"type": "message_start", "message": message | {"stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            *[{"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}}
              for text in (words[0], *(f" {word}" for word in words[1:]))],
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": usage},
            {"type": "message_stop"},
        ]  # fmt: skip
        reply.begin(200, {"Content-Type": "text/event-stream"})
        for event in events:
            reply.chunk(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())
        reply.end()


@contextmanager
def claude(script):
    """A running server."""
    made = Server(script)
    with made.server:
        yield made

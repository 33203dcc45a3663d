"""Senders of webhooks, as their own documentation has them sign: written anew, so that they are no copy of what verifies them."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Any

from holdfast import Verify

NEW, OLD = "n3w-secret-of-the-sender", "0ld-secret-of-the-sender"


@dataclass(frozen=True)
class Scheme:
    """A sender. `signs` is what nobody can change on the way; `id_in` is where its id is: a header, the body, or nowhere."""

    name: str
    verify: Verify
    signs: frozenset[str]
    id_in: str
    header: str
    time_header: str = ""
    id_header: str = ""

    def body(self, id: str, **more: Any) -> bytes:
        told = {"id": id} if self.name == "stripe" else {"event_id": id} if self.name == "slack" else {}
        return json.dumps({**told, "n": 1, **more}).encode()

    def headers(self, id: str, at: int, body: bytes, secret: str = NEW) -> dict[str, str]:
        """What it sends beside this body."""
        sent = {"Content-Type": "application/json", "User-Agent": self.name}
        if self.id_header:
            sent[self.id_header] = id
        if self.time_header:
            sent[self.time_header] = str(at)
        return sent | {self.header: self.signature(id, at, body, secret)}

    def signature(self, id: str, at: int, body: bytes, secret: str) -> str:
        key = secret.encode()
        match self.name:
            case "github":
                return "sha256=" + hmac.new(key, body, hashlib.sha256).hexdigest()
            case "stripe":
                return f"t={at},v1={hmac.new(key, f'{at}.'.encode() + body, hashlib.sha256).hexdigest()},v0=of_old"
            case "slack":
                return "v0=" + hmac.new(key, f"v0:{at}:".encode() + body, hashlib.sha256).hexdigest()
            case "standard":
                made = hmac.new(key, f"{id}.{at}.".encode() + body, hashlib.sha256).digest()
                return f"v1a,{'x' * 86}== v1,{base64.b64encode(made).decode()}"
            case "shop":
                return base64.b64encode(hmac.new(key, body, hashlib.sha256).digest()).decode()
            case "bank":
                return hmac.new(key, body + f"|{at}|{id}".encode(), hashlib.sha512).hexdigest()
            case _:
                return f"Bearer {secret}"


def padded(secret: str) -> str:
    """A secret as base64, as Standard Webhooks has it."""
    return base64.b64encode(secret.encode()).decode()


def in_environment(scheme: Scheme, secret: str) -> str:
    """The secret as the variable of a server has it."""
    return f"whsec_{padded(secret)}" if scheme.name == "standard" else secret


_TWO = ("env:HOOK_NEW", "env:HOOK_OLD")
SCHEMES = [
    Scheme("standard", Verify.standard(*_TWO), frozenset({"id", "time", "body"}), "header", "webhook-signature",
           "webhook-timestamp", "webhook-id"),
    Scheme("github", Verify.github(*_TWO), frozenset({"body"}), "header", "X-Hub-Signature-256",
           id_header="X-GitHub-Delivery"),
    Scheme("stripe", Verify.stripe(*_TWO), frozenset({"id", "time", "body"}), "body", "Stripe-Signature"),
    Scheme("slack", Verify.slack(*_TWO), frozenset({"id", "time", "body"}), "body", "X-Slack-Signature",
           "X-Slack-Request-Timestamp"),
    Scheme("shop", Verify.hmac(*_TWO, header="X-Shop-Hmac", encoding="base64"), frozenset({"body"}), "nowhere",
           "X-Shop-Hmac"),
    Scheme("bank", Verify.hmac(*_TWO, header="X-Mac", signed="{body}|{timestamp}|{id}", timestamp="X-At", id="X-Id",
                               algorithm="sha512"),
           frozenset({"id", "time", "body"}), "header", "X-Mac", "X-At", "X-Id"),
    Scheme("bearer", Verify.bearer(*_TWO), frozenset(), "nowhere", "Authorization"),
    Scheme("courier", Verify.bearer(*_TWO, id="X-Request-Id"), frozenset(), "header", "Authorization",
           id_header="X-Request-Id"),
]  # fmt: skip

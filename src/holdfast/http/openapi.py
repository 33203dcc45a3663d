"""/openapi.json: what `PATHS` says, in the words of OpenAPI 3.1. Nothing is described that is not made from the code."""

from __future__ import annotations

import functools
import json
import re
from typing import Any, Final

from pydantic import TypeAdapter

from holdfast.client.edge import version
from holdfast.http.login import Sight
from holdfast.http.paths import PATHS
from holdfast.http.routes import Endpoint

_REFERENCE: Final = "#/components/schemas/{model}"
_PROBLEM: Final = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message", "hint", "details"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "hint": {"type": "string"},
                "details": {"type": ["object", "null"]},  # by code: what a program does not have to read in the message
            },
            "additionalProperties": False,
        },
        "approval": {"$ref": _REFERENCE.format(model="Approval")},  # of a decision that is stale: as it is now
    },
    "additionalProperties": False,
}
_PLAIN: Final = {
    "/healthz": ("Is the server alive?", "application/json", 503),
    "/readyz": ("Does it answer, and does its store?", "application/json", 503),
    "/metrics": ("Numbers for Prometheus.", "text/plain", 501),
    "/openapi.json": ("This document.", "application/json", None),
    "/": ("The dashboard, for people.", "text/html", None),
    "/api": ("All paths in a table, for people.", "text/html", None),
}
_TEXT: Final = {"type": "string"}
_BEGUN: Final = {
    "type": "object",
    "required": ["name", "seconds"],
    "properties": {"name": _TEXT, "seconds": {"type": "integer"}},
    "additionalProperties": False,
}
_CREDENTIAL: Final = {
    "oneOf": [
        {"type": "object", "required": [name], "properties": {name: _TEXT}, "additionalProperties": False}
        for name in ("code", "link", "look", "token")
    ]
}
_OPEN: Final = "Needs no token."
_FILE: Final = "application/octet-stream"
_SIGNED: Final = "Needs no token, but the signature that its trigger declares."
_SESSION: Final[dict[str, list[str]]] = {"session": []}
_PARTS: Final = {
    "id": "The id.",
    "name": "The name.",
    "step": "The number or the key of the call.",
    "delivery": "The id of the delivery.",
    "seq": "The number of the event.",
}


@functools.cache
def description() -> dict[str, Any]:
    """The whole document."""
    schemas: dict[str, Any] = {"Problem": _PROBLEM}
    paths: dict[str, Any] = {}
    for each in PATHS:
        paths.setdefault(each.path, {})[each.method.lower()] = _operation(each, schemas)
    for path, (says, kind, failing) in _PLAIN.items():
        responses = {"200": {"description": says, "content": {kind: {}}}}
        if failing is not None:
            responses[str(failing)] = {"description": "Not now, and why.", "content": {"application/json": {}}}
        paths[path] = {"get": {"summary": says, "responses": responses, "security": []}}
    paths["/session"] = _session(schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast",
            "version": version(),
            "description": "Runs of durable agents: started, followed, controlled; and what they ask people.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": "__Host-holdfast_session",
                    "description": "Of a page of this server; holdfast_session_PORT without TLS. What is no GET needs Origin and "
                    "`X-Holdfast-Page: 1`.",
                },
            },
        },
        "security": [{"token": []}, _SESSION],
    }


def _session(schemas: dict[str, Any]) -> dict[str, Any]:
    """The path where a browser begins a session and ends it."""
    refused = {"default": {"description": "It was refused, and why.", "content": _problem()}}
    begun = {"description": "It has begun.", "content": {"application/json": {"schema": _BEGUN}}}
    seen = {"description": "Whom a link is for.", "content": {"application/json": {"schema": _schema(Sight, schemas)}}}
    return {
        "post": {
            "summary": "Begin a session, with a token, a code that the server printed, or a link to a question; or look at a link.",
            "operationId": "post_session",
            "requestBody": {"required": True, "content": {"application/json": {"schema": _CREDENTIAL}}},
            "responses": {"200": seen, "201": begun, **refused},
            "security": [],
        },
        "delete": {
            "summary": "End the session.",
            "operationId": "delete_session",
            "responses": {"204": {"description": "It is over."}, **refused},
            "security": [_SESSION],
        },
    }


def _problem() -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REFERENCE.format(model="Problem")}}}


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {_FILE: {}}
    if endpoint.answers is not bytes:
        content = {"application/json": {"schema": _schema(endpoint.answers, schemas)}}
    if endpoint.follows is not None:
        _schema(endpoint.follows, schemas)
        content["text/event-stream"] = {"schema": {"type": "string"}}
    responses: dict[str, Any] = {"200": {"description": endpoint.says, "content": content}}
    for status, (means, document) in endpoint.more.items():
        responses[str(status)] = {"description": means}
        if document is not None:
            responses[str(status)]["content"] = {"application/json": {"schema": _schema(document, schemas)}}
    responses["default"] = {"description": "It was refused, and why.", "content": _problem()}
    made: dict[str, Any] = {
        "summary": endpoint.says,
        "operationId": _name(endpoint),
        "description": _needed(endpoint),
        "parameters": [*_parts(endpoint.path), *_query(endpoint, schemas)],
        "responses": responses,
    }
    if endpoint.needs is None:
        made["security"] = []
    if endpoint.body is bytes:
        made["requestBody"] = {"required": True, "content": {"*/*": {}}}
    elif endpoint.body is not None:
        documents = {"application/json": {"schema": _schema(endpoint.body, schemas, mode="validation")}}
        made["requestBody"] = {"required": True, "content": documents}
    return made


def _needed(endpoint: Endpoint) -> str:
    if endpoint.needs is None:
        return _SIGNED if endpoint.body is bytes else _OPEN
    if endpoint.needs == "any":
        return "Needs any token."
    return f"Needs a token that may {endpoint.needs}{'' if endpoint.also is None else f' and {endpoint.also}'}."


def _name(endpoint: Endpoint) -> str:
    words = [word.strip("{}") for word in endpoint.path.removeprefix("/api/").split("/")]
    return "_".join([endpoint.method.lower(), *words])


def _parts(path: str) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "description": _PARTS[name], "schema": {"type": "string"}}
        for name in re.findall(r"{(\w+)}", path)
    ]


def _query(endpoint: Endpoint, schemas: dict[str, Any]) -> list[dict[str, Any]]:
    made = endpoint.query.model_json_schema(ref_template=_REFERENCE)
    _keep(schemas, made.pop("$defs", {}))
    found = []
    for name, schema in made.get("properties", {}).items():
        schema.pop("title", None)
        described = schema.pop("description", "")
        found.append({"name": name, "in": "query", "required": False, "description": described, "schema": schema})
    if endpoint.follows is not None:
        last = {"name": "Last-Event-ID", "in": "header", "required": False, "schema": {"type": "string"}}
        found.append(last | {"description": "The id of the last message seen; it goes before `after`."})
    return found


def _schema(kind: Any, schemas: dict[str, Any], *, mode: Any = "serialization") -> Any:
    made = TypeAdapter(kind).json_schema(ref_template=_REFERENCE, mode=mode)
    parts = made.pop("$defs", {})
    if "Approval" in parts:  # its row is the store's, and is not told
        parts.pop("ApprovalRow", None)
        parts["Approval"]["properties"].pop("row", None)
    if mode == "validation":
        made, parts = _given(made, parts, schemas)
    _keep(schemas, parts)
    if "title" not in made or "$ref" in made or "oneOf" in made:
        return made
    _keep(schemas, {made["title"]: made})
    return {"$ref": _REFERENCE.format(model=made["title"])}


def _given(made: Any, parts: dict[str, Any], schemas: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Rename what is taken in another shape than it is told in: what has a default may be left out."""
    for name in [name for name in parts if schemas.get(name, parts[name]) != parts[name]]:
        parts[f"{name}Given"] = parts.pop(name) | {"title": f"{name}Given"}
        before, after = (f'"{_REFERENCE.format(model=each)}"' for each in (name, f"{name}Given"))
        made, parts = json.loads(json.dumps([made, parts]).replace(before, after))
    return made, parts


def _keep(schemas: dict[str, Any], more: dict[str, Any]) -> None:
    """Keep schemas by their names. Two that have one name would describe each other's answers."""
    for name, schema in more.items():
        if schemas.setdefault(name, schema) != schema:
            raise ValueError(f"two documents are called {name!r}; rename one of their classes")

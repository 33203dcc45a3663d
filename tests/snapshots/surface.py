"""What others hold on to, as sorted lines of text: found in the package as it is now, wherever in it a thing stands.

No line names a module that is ours alone, so that code may move and the lines stay.
"""

from __future__ import annotations

import ast
import asyncio
import builtins
import dataclasses
import functools
import importlib
import inspect
import re
import tempfile
import tomllib
import typing
from collections.abc import Callable, Iterator
from typing import Any

import apsw
import click
from tests.house import ROOT, classes, lineage, trees

import holdfast
from holdfast.http.openapi import description
from holdfast.words.model import KINDS, Status, WaitsFor

PUBLIC = ("", ".sync", ".testing", ".testing.plugin", ".testing.provider", ".integrations.pydantic_ai")
PROJECT = tomllib.loads((ROOT.parents[1] / "pyproject.toml").read_text("utf-8"))["project"]
Lines = Iterator[str]
PARAGRAPH = "\n\n"


def one_line(text: str) -> str:
    return " ".join(text.split())


# --- public names ---


def exported() -> Iterator[tuple[str, Any]]:
    """Every public name with what it is; those that only the type checker can tell apart are told by it."""
    for suffix in PUBLIC:
        module = importlib.import_module(f"holdfast{suffix}")
        own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__]
        for name in getattr(module, "__all__", own):
            if not name.startswith("_"):
                yield f"holdfast{suffix}.{name}", getattr(module, name)


def members(*, fields: bool = True) -> Iterator[tuple[str, Any]]:
    """Public names, and the public members of those that are classes; with `fields`, those too that have no value: None."""
    for name, value in exported():
        yield name, value
        if name == "holdfast.on":  # the one object whose methods users call without having made it
            value = type(value)
        if not inspect.isclass(value):
            continue
        ours = [base for base in value.__mro__ if base.__module__.partition(".")[0] == "holdfast"]
        found = {each: member for base in reversed(ours) for each, member in vars(base).items()}
        if fields:
            found |= dict.fromkeys(attribute for base in ours for attribute in assigned(base) if attribute not in found)
        for each, member in found.items():
            if each == "__init__" or not each.startswith("_"):
                yield f"{name}.{each}", member


@functools.cache
def assigned(cls: type) -> set[str]:
    """What the methods of a class assign to `self`, and what it annotates: the fields of a dataclass, for example."""
    tree = trees().get(cls.__module__.removeprefix("holdfast."), ast.Module([], []))
    inner = [node for found in tree.body if getattr(found, "name", "") == cls.__name__ for node in ast.walk(found)]
    stored = [node for node in inner if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    names = {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}
    return names | set(inspect.get_annotations(cls))


def signature(member: Any) -> inspect.Signature | None:
    function = getattr(member, "__func__", member)  # of a classmethod
    function = function.fget if isinstance(function, property) else function
    if not inspect.isroutine(function):
        return None
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def public_names() -> Lines:
    """A line for each name, for each way to give a parameter, and for each that may be left out: new ones are new lines."""
    for name, member in members():
        yield name
        yield from (f"{name} = {value!r}" for value in typing.get_args(member) if isinstance(value, str))
        if isinstance(member, property) or (found := signature(member)) is None:
            continue
        given = [each for each in found.parameters.values() if each.name not in ("self", "cls")]
        for place, each in enumerate(given):
            if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD):
                yield f"{name}({place}: {each.name})"
            if each.kind in (each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD):
                yield f"{name}({each.name}=)"
            if each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD) or each.default is not each.empty:
                yield f"{name}({each.name}) may be left out"


def signatures() -> Lines:
    """Whole signatures and fields with their types: these may change."""
    for name, member in members():
        if (found := signature(member)) is not None:
            kind = "property " if isinstance(member, property) else "async " * inspect.iscoroutinefunction(member)
            yield f"{kind}{name}{re.sub(r' at 0x[0-9a-f]+', '', str(found)).replace(chr(39), '')}"
        elif dataclasses.is_dataclass(member) and isinstance(member, type):
            for field in dataclasses.fields(member):
                default = "" if field.default is dataclasses.MISSING else f" = {field.default!r}"
                yield f"{name}.{field.name}: {field.type}{default}"
        elif inspect.isclass(member):
            yield f"class {name}({', '.join(base.__name__ for base in member.__bases__)})"


# --- what stores hold ---


def event_kinds() -> Lines:
    for name, kind in KINDS.items():
        yield name + " closes" * kind.closes + " arrives" * kind.arrives


@functools.cache
def nodes() -> list[tuple[str, ast.AST]]:
    """All that the code is made of, with its part of the package; nothing of what stands inside an f-string."""
    found: list[tuple[str, ast.AST]] = []
    for module, tree in trees().items():
        left: list[ast.AST] = [tree]
        for node in left:
            found.append((module.partition(".")[0], node))
            if not isinstance(node, ast.JoinedStr):
                left += ast.iter_child_nodes(node)
    return found


def texts(*but: str) -> Iterator[str]:
    """Every text in the code, with `{}` for what is filled in; not those of the parts named."""
    for part, node in nodes():
        if part not in but and isinstance(node, ast.Constant | ast.JoinedStr) and (text := template(node)):
            yield text


def persisted_words() -> Lines:
    for text in texts("cli", "store", "http", "demo"):
        if re.fullmatch(r"({})?:[a-z][\w.{}]*", text):
            yield f"label {text}"
        if re.fullmatch(r"\$[a-z]+", text):
            yield f"tag {text}"
    yield from (f"status {word}" for word in typing.get_args(Status))
    yield from (f"waits for {word}" for word in typing.get_args(WaitsFor))
    for file in ROOT.rglob("postgres/migrations/*.sql"):
        yield from (
            f"column {table}.{name}"
            for table, name in re.findall(r"CREATE TABLE (\w+) \((\w+)", file.read_text("utf-8"))
        )
    with tempfile.TemporaryDirectory() as folder:

        async def make() -> None:
            async with holdfast.open(f"sqlite:{folder}/store.db?durability=process"):
                pass

        asyncio.run(make())
        db = apsw.Connection(f"{folder}/store.db")
        rows = "SELECT t.name, c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table'"
        yield from (f"column {table}.{name}" for table, name in db.execute(rows))
        db.close()


# --- what people read ---


def template(node: ast.AST | None) -> str | None:
    """The text that an expression makes, with `{}` for what is filled in; None if it is not made of texts."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join("{}" if isinstance(part, ast.FormattedValue) else str(template(part)) for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        found = template(node.left), template(node.right)
        return None if found == (None, None) else "".join("{}" if part is None else part for part in found)
    return None


def error_texts() -> Lines:
    """Of every exception that is made, in every branch of what it is given, and of what is put together for it before."""
    for function in [
        node for _, node in nodes() if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    ]:
        inner = list(ast.walk(function))
        for call in [node for node in inner if isinstance(node, ast.Call) and error_name(node.func)]:
            given = [*call.args, *(keyword.value for keyword in call.keywords)]
            names = {part.id for each in given for part in ast.walk(each) if isinstance(part, ast.Name)}
            assigned_here = [node for node in inner if isinstance(node, ast.Assign) and len(node.targets) == 1]
            parts = [node.value for node in assigned_here if getattr(node.targets[0], "id", "") in names]
            for each, how in [*((each, "") for each in given), *((each, " in part") for each in parts)]:
                for branch in branches(each):
                    if (text := template(branch)) and " " in text:
                        yield f"{error_name(call.func)}{how}: {one_line(text)}"
    for name, value in exported():
        if inspect.isclass(value) and issubclass(value, BaseException):
            yield f"{name.rpartition('.')[2]} by default: {one_line((value.__doc__ or '').partition(PARAGRAPH)[0])}"


@functools.cache
def is_error(name: str) -> bool:
    """Is this the name of an exception: of Python, of click, or of ours by any of its bases?"""
    ours = [each for known in classes() if known.endswith(f":{name}") for each in lineage(known)]
    bases = [base for each in ours for base in classes()[each].bases]
    names = [name, *(getattr(base, "attr", getattr(base, "id", "")) for base in bases)]
    kinds = [getattr(builtins, each, None) or getattr(click, each, None) for each in names]
    return name.endswith("Error") or any(isinstance(kind, type) and issubclass(kind, BaseException) for kind in kinds)


def error_name(function: ast.expr) -> str:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name if is_error(name) else ""


def branches(node: ast.expr) -> Iterator[ast.expr]:
    if isinstance(node, ast.IfExp):
        yield from branches(node.body)
        yield from branches(node.orelse)
    else:
        yield node


def command_line(command: click.Command | None = None, name: str = "holdfast") -> Lines:
    if command is None:
        module, _, attribute = PROJECT["scripts"]["holdfast"].partition(":")
        command = getattr(importlib.import_module(module), attribute)
    yield f"{name}: {one_line(command.help or '')}"
    context = click.Context(command, info_name=name)
    for parameter in command.params:
        record = parameter.get_help_record(context) or (parameter.make_metavar(context), "")
        yield f"{name} {one_line(' '.join(record))}"
    for each in command.list_commands(context) if isinstance(command, click.Group) else ():
        yield from command_line(command.get_command(context, each), f"{name} {each}")


def http_routes() -> Lines:
    whole = description()
    for path, methods in whole["paths"].items():
        for method, operation in methods.items():
            route = f"{method.upper()} {path}"
            yield f"{route}: {operation['summary']} {operation.get('description', '')}".strip()
            for given in operation.get("parameters", ()):
                yield f"{route} takes {given['in']} {given['name']}: {given['description']} {kind_of(given['schema'])}"
            for status, answer in {"takes": operation.get("requestBody", {}), **operation["responses"]}.items():
                for content, says in answer.get("content", {}).items():
                    yield f"{route} {status} {content} {kind_of(says.get('schema', {}))}".strip()
    for name, schema in whole["components"]["schemas"].items():
        for field, says in schema.get("properties", {}).items():
            must = " required" * (field in schema.get("required", ()))
            yield f"{name}.{field}{must}: {kind_of(says)} {says.get('description', '')}".strip()


def kind_of(schema: dict[str, Any]) -> str:
    """A JSON schema in a few words."""
    if "anyOf" in schema:
        return " | ".join(kind_of(each) for each in schema["anyOf"])
    inner = kind_of(schema["items"]) if isinstance(schema.get("items"), dict) else ""
    found = schema.get("$ref", "").rpartition("/")[2] or schema.get("type", "anything")
    return f"{found} of {inner}" if inner else f"{found} {schema['enum']}" if "enum" in schema else str(found)


def settings_and_metrics() -> Lines:
    for field in dataclasses.fields(holdfast.Settings):
        yield f"setting {field.name}"
    yield from (f"extra holdfast[{extra}]" for extra in PROJECT["optional-dependencies"])
    yield from (f"script {name}" for name in PROJECT["scripts"])
    for text in texts():
        yield from (f"environment {name}" for name in re.findall(r"\bHOLDFAST_[A-Z_]+\b", text))
    for _, node in nodes():
        given = [template(each) for each in node.args[:3]] if isinstance(node, ast.Call) else []
        if len(given) == 3 and re.fullmatch(r"holdfast_[a-z_]+", given[0] or ""):
            yield f"metric {given[0]} {given[1]} {ast.unparse(node.args[3])}: {given[2]}"


# By file. Of those that are kept (True) no line may go: others hold on to it, or a store does.
SNAPSHOTS: dict[str, tuple[Callable[[], Lines], bool]] = {
    "public_names": (public_names, True),
    "signatures": (signatures, False),
    "event_kinds": (event_kinds, True),
    "persisted_words": (persisted_words, True),
    "error_texts": (error_texts, False),
    "command_line": (command_line, False),
    "http_routes": (http_routes, False),
    "settings_and_metrics": (settings_and_metrics, False),
}

"""Makes src/holdfast/sync.pyi, what type checkers see of the sync client, from the async classes: `python -m tests.typing.stub`."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import holdfast

SOURCE = Path(holdfast.__file__).parent
STUB = SOURCE / "sync.pyi"
# The class, where it is, and the parts it is made of.
CLASSES: dict[str, tuple[str, list[tuple[str, str]]]] = {
    "Run": ("client.run", []),
    "Receipt": ("client.run", []),
    "NotificationHandle": ("client.notifications", []),
    "ScheduleHandle": ("client.schedules", []),
    "Transcript": ("client.conversations", []),
    "StepInfo": ("client.history", []),
    "State": ("client.history", []),
    "MessageInfo": ("client.history", []),
    "Snapshot": ("client.history", []),
    "Client": (
        "client.client",
        [
            ("client.announcements", "Announcements"),
            ("client.approvals", "Questions"),
            ("client.bundles", "Bundles"),
            ("client.conversations", "Conversations"),
            ("client.control", "Control"),
            ("client.notifications", "Notifications"),
            ("client.rehearsal", "Rehearsals"),
            ("client.schedules", "Schedules"),
            ("client.tokens", "Tokens"),
            ("client.triggers", "Triggers"),
            ("client.base", "Base"),
        ],
    ),
}
ATTRIBUTES = {
    "Run": "id: str\ncreated: bool",
    "NotificationHandle": "name: str",
    "ScheduleHandle": "name: str",
    "Transcript": "id: str",
}  # that constructors set
CLOSING = '''
def __enter__(self) -> Self: ...
def __exit__(self, *exc: object) -> None: ...
def close(self) -> None:
    """Stop the worker at a safe point, if there is one, and let go of the store. Done by itself when the program ends."""
'''
PRIVATE = {"store"}


def tree_of(module: str) -> ast.Module:
    return ast.parse((SOURCE / f"{module.replace('.', '/')}.py").read_text("utf-8"))


def class_of(module: str, name: str) -> ast.ClassDef:
    return next(node for node in tree_of(module).body if isinstance(node, ast.ClassDef) and node.name == name)


class Plain(ast.NodeTransformer):
    """Annotations as plain code sees them: what is iterated with `async for` is iterated."""

    def visit_Name(self, node: ast.Name) -> ast.Name:
        return ast.Name("Iterator", node.ctx) if node.id == "AsyncIterator" else node


def told(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str | None:
    """Its docstring without the example, which awaits."""
    says = ast.get_docstring(node)
    if says is None:
        return None
    lines = says.partition("\n\nExample:")[0].splitlines()
    indent = "\n" + " " * (node.col_offset + 4)
    return "\n".join(lines) if len(lines) == 1 else (indent.join(lines) + indent).replace(f"{indent}\n", "\n\n")


def function(node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.FunctionDef:
    """The signature and what it says of itself."""
    says = told(node)
    body: list[ast.stmt] = [ast.Expr(ast.Constant(...) if says is None else ast.Constant(says))]
    arguments = node.args
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [each and ast.Constant(...) for each in arguments.kw_defaults]
    plain = ast.FunctionDef(node.name, arguments, body, node.decorator_list, node.returns)
    made: ast.FunctionDef = Plain().visit(ast.fix_missing_locations(plain))
    return made


def is_overload(node: ast.FunctionDef) -> bool:
    return any(isinstance(each, ast.Name) and each.id == "overload" for each in node.decorator_list)


def members(node: ast.ClassDef) -> list[ast.stmt]:
    """The public ones; of an overloaded function its overloads."""
    found: list[ast.stmt] = []
    functions = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
    public = [function(each) for each in functions if not each.name.startswith("_") and each.name not in PRIVATE]
    overloaded = {each.name for each in public if is_overload(each)}
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and not each.target.id.startswith("_"):
            found.append(ast.AnnAssign(each.target, each.annotation, None, each.simple))
    return found + [each for each in public if each.name not in overloaded or is_overload(each)]


def classes() -> list[ast.stmt]:
    made: list[ast.stmt] = []
    for name, (module, parts) in CLASSES.items():
        node = class_of(module, name)
        body = ast.parse(ATTRIBUTES.get(name, "")).body + members(node)
        for part in parts:
            known = {each.name for each in body if isinstance(each, ast.FunctionDef)}
            inherited = members(class_of(*part))
            body += [each for each in inherited if isinstance(each, ast.FunctionDef) and each.name not in known]
        if name == "Client":
            body += ast.parse(CLOSING).body
        bases: list[ast.expr] = [base for base in node.bases if isinstance(base, ast.Subscript)]  # Generic[...]
        says = ast.Expr(ast.Constant(told(node)))
        made.append(ast.ClassDef(name, bases, [], [says, *body], []))
    for entry in tree_of("client.client").body:
        if isinstance(entry, ast.FunctionDef) and entry.name == "open":
            made.append(function(entry))
    return [ast.fix_missing_locations(each) for each in made]


def names(nodes: list[ast.stmt]) -> set[str]:
    return {each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)}


def stub() -> str:
    """The text of the stub."""
    body = classes()
    used = names(body) - set(CLASSES)
    modules = dict.fromkeys(module for module, parts in CLASSES.values() for module in (module, *[p for p, _ in parts]))
    variables: dict[str, ast.stmt] = {}
    imports = {"Iterator": "from collections.abc import Iterator", "Self": "from typing import Self"}
    own: dict[str, str] = {}
    for module in modules:
        for node in ast.walk(tree_of(module)):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.Call)
                and isinstance(node.targets[0], ast.Name)
            ):
                if getattr(node.value.func, "id", "") in ("TypeVar", "ParamSpec"):
                    variables.setdefault(node.targets[0].id, node)
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    imports.setdefault(alias.asname or alias.name, f"from {node.module} import {ast.unparse(alias)}")
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    imports.setdefault(alias.asname or alias.name, f"import {ast.unparse(alias)}")
            elif isinstance(node, ast.ClassDef):
                own.setdefault(node.name, f"from holdfast.{module} import {node.name}")
    needed = sorted(variables.keys() & used)
    used |= names([variables[name] for name in needed]) | {"Iterator", "Self"}
    found = {imports.get(name) or own.get(name) for name in used}
    lines = [
        '"""What type checkers see of the sync client. Made by tests/typing/stub.py: do not edit."""',
        *sorted(line for line in found if line),
        *[ast.unparse(variables[name]) for name in needed],
        *[ast.unparse(node) for node in body],
    ]
    ruff = [sys.executable, "-m", "ruff"]
    text = "\n".join(lines) + "\n"
    for command in (["check", "--fix", "--exit-zero", "--quiet", "--select", "I,F401"], ["format"]):
        line = [*ruff, *command, "--stdin-filename", str(STUB), "-"]
        text = subprocess.run(line, input=text, capture_output=True, text=True, check=True, cwd=SOURCE).stdout
    return text


if __name__ == "__main__":
    STUB.write_text(stub(), "utf-8")

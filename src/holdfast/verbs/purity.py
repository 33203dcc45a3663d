"""Purity: a reducer's function, and what it calls, are read for what is not computing, when it is declared.

Look here when a reducer is refused. The reading is of compiled code: which names it loads, what these are, and on which line. It
follows the user's own plain functions, in whatever module they are, classes that it makes (`__init__`, `__post_init__`, `__new__`)
and functions of `functools.partial`. Changes of what is outside are read from the source, if there is one.

What no reading sees (a clock behind a library or a property) the test kit finds (`holdfast.testing.fold`), and I/O in a running
reducer pauses it, as in any strict agent.
"""

from __future__ import annotations

import ast
import builtins
import dis
import functools
import inspect
import re
import sys
import textwrap
from collections import deque
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from holdfast.errors import BadArguments
from holdfast.values.failures import is_users

# Modules that know the time, chance or the world outside.
_MODULES: Final = frozenset(
    {
        "aiohttp", "asyncio", "ftplib", "getpass", "glob", "holdfast.verbs.announcements",
        "holdfast.verbs.replay", "http", "httpx", "io", "locale", "logging",
        "multiprocessing", "os", "pathlib", "platform", "random", "requests", "secrets", "select", "shutil", "signal", "smtplib",
        "socket", "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time", "urllib", "uuid", "webbrowser",
    }
)  # fmt: skip
_PURE: Final = frozenset(
    {
        "urllib.parse",
        "http.HTTPStatus",
        "uuid.UUID",
        "uuid.uuid3",
        "uuid.uuid5",
        "pathlib.PurePath",
        "pathlib.PurePosixPath",
        *(
            f"os.path.{name}"
            for name in ("basename", "commonpath", "dirname", "isabs", "join", "normpath", "split", "splitext")
        ),
    }
)
_VALUES: Final = frozenset(
    {"uuid", "pathlib", "http", "logging"}
)  # modules whose objects may be constants of a program
_BUILTINS: Final = frozenset({"open", "input", "exec", "eval", "compile", "__import__", "globals", "breakpoint", "id"})
_CHANGES: Final = frozenset(
    {
        "add", "append", "appendleft", "clear", "discard", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "remove",
        "reverse", "rotate", "setdefault", "sort", "update",
    }
)  # fmt: skip
_CLOCKS: Final = frozenset({"now", "utcnow", "today"})
_WRITES: Final = {"STORE_GLOBAL": "changes a global", "DELETE_GLOBAL": "changes a global"}
_MOST: Final = 1_000  # functions


def check_pure(fn: FunctionType) -> None:
    """Refuse a function that can be seen to do more than compute; the text names the line."""
    found = next(_impure(fn), None)
    if found is not None:
        line, what = found
        raise BadArguments(
            f"reducer {fn.__name__!r} is not pure: {line} {what}. It may only compute: give it the time or a number in an event, "
            "and have effects done by a command, such as Do(step, ...)"
        )


def _impure(fn: FunctionType) -> Iterator[tuple[str, str]]:
    seen: set[int] = set()
    waiting = [fn]
    while waiting and len(seen) < _MOST:
        function = waiting.pop()
        if id(function) in seen:
            continue
        seen.add(id(function))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in _codes(function.__code__):
            for line, what, value in _used(function, code, cells):
                if what:
                    generated = code.co_filename.startswith("<")  # by dataclasses, and the like
                    yield (function.__qualname__ if generated else f"{Path(code.co_filename).name}:{line}"), what
                else:
                    waiting += [each for each in _functions(value) if _is_own(each)]
        found = _written_outside(function, cells)
        if found is not None:
            yield found


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions that run if a value is called."""
    if isinstance(value, functools.partial):
        yield from _functions(value.func)
    elif isinstance(value, FunctionType):
        yield inspect.unwrap(value)
    elif isinstance(value, classmethod | staticmethod | MethodType):
        yield from _functions(value.__func__)
    elif isinstance(value, type):
        made = (vars(value).get(name) for name in ("__new__", "__init__", "__post_init__"))
        yield from (each for each in made if isinstance(each, FunctionType))


def _is_own(function: FunctionType) -> bool:
    """Is it the user's, and no library's?"""
    return is_users(function.__code__.co_filename)


def _written_outside(function: FunctionType, cells: dict[str, Any]) -> tuple[str, str] | None:
    """Find where a function changes an object that is not its own: an element, an attribute, or by a method that says so."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    code = function.__code__
    inner = {name for each in _codes(code) for name in each.co_varnames + each.co_cellvars}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        line = first + getattr(node, "lineno", 1) - 1
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGES:
            targets = [node.func]
        for target in targets:
            name = _root(target)
            if name is None or name in inner:
                continue
            value = _content(cells[name]) if name in cells else function.__globals__.get(name)
            if not isinstance(node, ast.Call) or isinstance(value, list | dict | set | bytearray | deque):
                return f"{Path(code.co_filename).name}:{line}", f"changes {name!r}, which is outside"
    return None


def _root(target: ast.expr) -> str | None:
    """The name of the object that an element or attribute is of."""
    inside = False
    while isinstance(target, ast.Subscript | ast.Attribute | ast.Starred):
        target, inside = target.value, True
    return target.id if inside and isinstance(target, ast.Name) else None


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


def _used(function: FunctionType, code: CodeType, cells: dict[str, Any]) -> Iterator[tuple[int, str, Any]]:
    """Every name that code uses: the line, what is wrong with it, and what it is."""
    line, held = code.co_firstlineno, None  # what was loaded last: attributes are of it
    for each in dis.get_instructions(code):
        line = _line(each) or line
        name = each.argval
        if each.opname in _WRITES or (each.opname == "STORE_DEREF" and name in function.__code__.co_freevars):
            yield line, f"{_WRITES.get(each.opname, 'changes a variable outside')}, {name!r}", None
        elif each.opname == "IMPORT_NAME":
            if _is_outside(str(name)):
                yield line, f"imports {name}", None
        elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            held = function.__globals__.get(name, getattr(builtins, str(name), None))
            yield line, _wrong(str(name), held), held
        elif each.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
            held = _content(cells[name])
            yield line, _wrong(str(name), held), held
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            outer, held = held, _attribute(held, str(name))
            if isinstance(outer, type) and issubclass(outer, date | datetime) and name in _CLOCKS:
                yield line, f"reads the clock by {outer.__name__}.{name}", None
            elif held is not None:
                yield line, _wrong(str(name), held), held
        elif each.opname not in ("PUSH_NULL", "CACHE", "RESUME", "NOP", "EXTENDED_ARG", "PRECALL"):
            held = None


def _line(instruction: Any) -> int | None:
    if sys.version_info >= (3, 13):
        found: int | None = instruction.line_number
        return found
    return instruction.starts_line if isinstance(instruction.starts_line, int) else None


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None  # not filled yet


def _attribute(value: Any, name: str) -> Any:
    """An attribute of a module or class. Only our own module makes its attributes when they are asked for."""
    if isinstance(value, ModuleType) and value.__name__ == "holdfast":
        return getattr(value, name, None)
    return vars(value).get(name) if isinstance(value, ModuleType | type) else None


def _wrong(name: str, value: Any) -> str:
    """Tell why this may not be used; empty if it may. A module alone is no harm, what is used of it tells."""
    if value is getattr(builtins, name, builtins):
        return f"uses {name}()" if name in _BUILTINS else ""
    if value is None or isinstance(value, ModuleType):
        return ""
    bound = getattr(value, "__self__", None)
    if bound is not None and not isinstance(bound, type):
        module = bound.__name__ if isinstance(bound, ModuleType) else type(bound).__module__
        own = getattr(value, "__name__", name)
    elif callable(value):
        module, own = getattr(value, "__module__", None) or "", getattr(value, "__qualname__", name)
    else:
        module, own = type(value).__module__, name
        if module in _VALUES:
            return ""
    return f"uses {_public(module)}.{own}" if _is_outside(module) and f"{_public(module)}.{own}" not in _PURE else ""


def _public(module: str) -> str:
    public = module.removeprefix("_").replace("posixpath", "os.path")
    public = re.sub(r"holdfast\.verbs\.(replay|announcements)", "holdfast", public)
    return "os" if public == "posix" else public


def _is_outside(module: str) -> bool:
    public = module.removeprefix("_")
    if public in _PURE:
        return False
    return public in _MODULES or public.partition(".")[0] in _MODULES or public in ("posix", "posixpath", "ntpath")

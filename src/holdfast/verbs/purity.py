"""Purity: a reducer's function, and what it calls, are read for what is not computing, when it is declared.

Look here when a reducer is refused. The reading is of compiled code: which names it loads, what these are, and on which line. It
follows the user's own plain functions, in whatever module they are, classes that it makes (`__init__`, `__post_init__`, `__new__`),
functions of `functools.partial`, and methods and properties of the user's own objects: of globals, of variables around the
function, of what such an object holds, and of the parameters as they are annotated. No user's code is run for it. Changes of what
is outside are read from the source, if there is one.

What no reading sees the test kit finds (`holdfast.testing.fold`): a clock behind a library, behind an object that the function
makes or takes out of a list, or behind an operator. And I/O in a running reducer pauses it, as in any strict agent.
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
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType, UnionType
from typing import Any, Final, NamedTuple, Union, get_args, get_origin, get_type_hints

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
_ATTRIBUTES: Final = frozenset({"LOAD_ATTR", "LOAD_METHOD"})


def check_pure(fn: FunctionType) -> None:
    """Refuse a function that can be seen to do more than compute; the text names the line."""
    found = next(_impure(fn), None)
    if found is not None:
        line, what = found
        raise BadArguments(
            f"reducer {fn.__name__!r} is not pure: {line} {what}. It may only compute: give it the time or a number in an event, "
            "and have effects done by a command, such as Do(step, ...)"
        )


@dataclass(frozen=True, slots=True)
class _Some:
    """An object of one of these classes, of which nothing else is known."""

    classes: tuple[type, ...]


class _Called(NamedTuple):
    """A function that runs, and the objects that its parameters are known to be."""

    function: FunctionType
    known: dict[str, Any]


def _impure(fn: FunctionType) -> Iterator[tuple[str, str]]:
    seen: set[tuple[Any, ...]] = set()
    kept: list[_Called] = []  # so that no id is used again
    waiting = [_Called(fn, _parameters(fn))]
    while waiting and len(seen) < _MOST:
        function, known = waiting.pop()
        place = (id(function), *(each if isinstance(each, _Some) else id(each) for each in known.values()))
        if place in seen:
            continue
        seen.add(place)
        kept.append(_Called(function, known))
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for code in _codes(function.__code__):
            for line, what, value in _used(function, code, cells, known):
                if what:
                    generated = code.co_filename.startswith("<")  # by dataclasses, and the like
                    yield (function.__qualname__ if generated else f"{Path(code.co_filename).name}:{line}"), what
                else:
                    waiting += [_Called(called, known) for called, known in _functions(value) if _is_own(called)]
        found = _written_outside(function, cells, known)
        if found is not None:
            yield found


def _parameters(fn: FunctionType) -> dict[str, Any]:
    """Tell what the parameters of a reducer's function are, as it is annotated."""
    try:
        hints = get_type_hints(fn)
    except Exception:  # noqa: BLE001 - a name that is known only later, or nonsense: the reader of the types tells
        return {}
    found = {name: _classes(hints[name]) for name in _arguments(fn.__code__) if name in hints}
    return {name: _Some(classes) for name, classes in found.items() if classes}


def _classes(hint: Any) -> tuple[type, ...]:
    each = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(kind for kind in each if isinstance(kind, type) and _is_own_class(kind))


def _arguments(code: CodeType) -> tuple[str, ...]:
    return code.co_varnames[: code.co_argcount]


def _functions(value: Any) -> Iterator[_Called]:
    """The functions that run if a value is called."""
    if isinstance(value, functools.partial):
        yield from _functions(value.func)
    elif isinstance(value, FunctionType):
        yield _Called(inspect.unwrap(value), {})
    elif isinstance(value, classmethod | staticmethod):
        yield from _functions(value.__func__)
    elif isinstance(value, MethodType):
        yield from (_bound(function, value.__self__) for function, _ in _functions(value.__func__))
    elif isinstance(value, _Called):
        yield value
    elif isinstance(value, type):
        made = (vars(value).get(name) for name in ("__new__", "__init__", "__post_init__"))
        yield from (_Called(each, {}) for each in made if isinstance(each, FunctionType))
    elif _is_own_class(type(value)):
        yield from _functions(_attribute(value, "__call__"))


def _bound(function: FunctionType, owner: Any) -> _Called:
    """A method, whose first parameter is its object."""
    return _Called(function, dict(zip(_arguments(function.__code__)[:1], [owner], strict=False)))


def _is_own_class(kind: type) -> bool:
    """Is it a class of the user's?"""
    module = sys.modules.get(kind.__module__)
    file = getattr(module, "__file__", None)
    return isinstance(file, str) and is_users(file)


def _is_own(function: FunctionType) -> bool:
    """Is it the user's, and no library's?"""
    return is_users(function.__code__.co_filename)


def _written_outside(function: FunctionType, cells: dict[str, Any], known: dict[str, Any]) -> tuple[str, str] | None:
    """Find where a function changes an object that is not its own: an element, an attribute, or by a method that says so."""
    try:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    code = function.__code__
    inner = {name for each in _codes(code) for name in each.co_varnames + each.co_cellvars}
    inner -= {name for name, value in known.items() if not isinstance(value, _Some)}  # the object of a method
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


def _used(
    function: FunctionType, code: CodeType, cells: dict[str, Any], known: dict[str, Any]
) -> Iterator[tuple[int, str, Any]]:
    """Yield every name that code uses: the line, what is wrong with it, and what it is."""
    line, held = code.co_firstlineno, None  # what was loaded last: attributes are of it
    instructions = list(dis.get_instructions(code))
    known = {name: value for name, value in known.items() if not _is_set(function.__code__, name)}
    for nth, each in enumerate(instructions):
        line = _line(each) or line
        part = nth + 1 < len(instructions) and instructions[nth + 1].opname in _ATTRIBUTES  # is only that used of it?
        name = each.argval
        if each.opname in _WRITES or (each.opname == "STORE_DEREF" and name in function.__code__.co_freevars):
            yield line, f"{_WRITES.get(each.opname, 'changes a variable outside')}, {name!r}", None
        elif each.opname == "IMPORT_NAME":
            if _is_outside(str(name)):
                yield line, f"imports {name}", None
        elif each.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            held = function.__globals__.get(name, getattr(builtins, str(name), None))
            yield line, _wrong(str(name), held), _whole(held, part)
        elif each.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF") and name in cells:
            held = _content(cells[name])
            yield line, _wrong(str(name), held), _whole(held, part)
        elif each.opname in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            held = known.get(name)  # a parameter of the function around
        elif each.opname.startswith("LOAD_FAST"):
            held = known.get(name[-1] if isinstance(name, tuple) else name) if code is function.__code__ else None
        elif each.opname in _ATTRIBUTES:
            outer, held = held, _attribute(held, str(name))
            if isinstance(outer, type) and issubclass(outer, date | datetime) and name in _CLOCKS:
                yield line, f"reads the clock by {outer.__name__}.{name}", None
            elif held is not None:
                yield line, _wrong(str(name), held), _whole(held, part)
        elif each.opname not in ("PUSH_NULL", "CACHE", "RESUME", "NOP", "EXTENDED_ARG", "PRECALL"):
            held = None


def _whole(value: Any, part: bool) -> Any:
    """Tell what runs of a value: of an object of which only an attribute is used not the object itself, as if it were called."""
    runs = isinstance(
        value, FunctionType | MethodType | _Called | type | classmethod | staticmethod | functools.partial
    )
    return None if part and not runs else value


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


@functools.lru_cache(maxsize=1_000)
def _is_set(code: CodeType, name: str) -> bool:
    """Does a function give this variable another value?"""
    return any(
        instruction.opname.startswith(("STORE_FAST", "STORE_DEREF", "DELETE_FAST"))
        and name in (instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,))
        for each in _codes(code)
        for instruction in dis.get_instructions(each)
    )


def _attribute(value: Any, name: str) -> Any:
    """An attribute of a module, a class, or an object of a class of the user's, found without running its code.

    Only our own module makes its attributes when they are asked for.
    """
    if isinstance(value, ModuleType):
        return getattr(value, name, None) if value.__name__ == "holdfast" else vars(value).get(name)
    if isinstance(value, type):
        return inspect.getattr_static(value, name, None) if _is_own_class(value) else vars(value).get(name)
    if isinstance(value, _Some):
        found = [_of_object(each, inspect.getattr_static(each, name, None), value) for each in value.classes]
        return next((each for each in found if isinstance(each, _Called)), None)
    if not _is_own_class(type(value)):
        return None
    return _of_object(type(value), inspect.getattr_static(value, name, None), value)


def _of_object(kind: type, found: Any, owner: Any) -> Any:
    """Tell what an object's attribute is: the function that runs if it is a method or a property, else what the object holds."""
    if isinstance(found, property):
        found = found.fget
    elif isinstance(found, functools.cached_property):
        found = found.func
    elif isinstance(found, MemberDescriptorType):  # a slot
        try:
            return None if isinstance(owner, _Some) else found.__get__(owner, kind)
        except AttributeError:
            return None
    if isinstance(found, FunctionType):
        function = inspect.unwrap(found)
        return _bound(function, owner) if isinstance(function, FunctionType) else None
    if isinstance(found, classmethod):
        return next((_bound(function, kind) for function, _ in _functions(found.__func__)), None)
    if isinstance(found, staticmethod):
        return next(_functions(found), None)
    return found


def _wrong(name: str, value: Any) -> str:
    """Tell why this may not be used; empty if it may. A module alone is no harm, what is used of it tells."""
    if value is getattr(builtins, name, builtins):
        return f"uses {name}()" if name in _BUILTINS else ""
    if value is None or isinstance(value, ModuleType | _Called | _Some):
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

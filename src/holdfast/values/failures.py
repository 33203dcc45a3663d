"""Exceptions as records: what is kept of a failure, and what is raised from it, live and after a restart alike.

A builtin exception comes back as itself. A class that the step lists in `raises` comes back as an instance of that
class, made without calling its `__init__`. Everything else comes back as `StepFailed`. A class is only ever found by
its name in `raises` and among the subclasses of those: a record can import nothing and name nothing else.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import os
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.errors import HoldfastError, LoopDetected, NotStorable, StepFailed, StepTimeout
from holdfast.values.codec import BLOB_BYTES, UNTYPED
from holdfast.words import budget

TRACEBACK_LIMIT_CHARACTERS: Final = 4_000
MESSAGE_LIMIT_CHARACTERS: Final = 4_000

_PACKAGE: Final = Path(__file__).parents[1]
_TIMEOUT: Final = "StepTimeout"
# These steer Python itself (asyncio refuses to carry them), or hold other exceptions that are not recorded.
_NOT_REBUILT: Final = (StopIteration, StopAsyncIteration, BaseExceptionGroup)


def qualified_name(kind: type[BaseException]) -> str:
    """`ValueError`, `payments.Declined`; our own errors by their bare name."""
    bare = kind.__module__ in ("builtins", HoldfastError.__module__)
    return kind.__qualname__ if bare else f"{kind.__module__}.{kind.__qualname__}"


def record(error: BaseException, raises: tuple[type[Exception], ...] = ()) -> dict[str, Any]:
    """Record a failure as plain data, with stored texts where values are kept. Never raises."""
    known: dict[str, Any] | None = getattr(error, "__holdfast_record__", None)
    if known is not None:
        return dict(known)
    kind = type(error)
    declared = next((each for each in raises if isinstance(error, each)), None)
    made: dict[str, Any] = {
        "type": qualified_name(kind),
        "message": _message(error),
        "kind": "other",
        "attempts": 1,
        "args": _text(_arguments(error)),
        "traceback": _traceback(error),
    }
    data = _text(_data(error))
    if data not in (None, "null"):
        made["data"] = data
    if _comes_back(error, made):
        made["kind"] = "builtin"
    elif declared is not None and not isinstance(error, _NOT_REBUILT):
        made["kind"] = "declared"
        made["declared"] = qualified_name(declared)  # the class to fall back on where the subclass is not imported yet
        made["attributes"] = _text({name: value for name, value in vars(error).items() if _text(value) is not None})
    return made


def rebuild(
    record: dict[str, Any], raises: tuple[type[Exception], ...] = (), step: str = "", attempts: int = 1
) -> Exception:
    """The exception to raise for a record. Never raises itself, whatever the record holds."""
    kind, trace = record.get("kind"), str(record.get("traceback", ""))
    if isinstance(record.get("attempts"), int):
        attempts = max(attempts, record["attempts"])
    error: Exception | None = None
    if kind == "builtin":
        error = _builtin(record)
    elif kind == "declared":
        error = _declared(record, raises)
    if error is not None:
        tries = f"after {attempts} attempts" if attempts > 1 else "at its only attempt"
        note = (f"Step {step!r} failed {tries}. " if step else "") + f"It was raised here:\n{trace}"
        vars(error).setdefault("__notes__", []).append(note)  # as add_note does, past a __setattr__ of the class
        return error
    refusal = _REFUSALS.get(str(record.get("type")))
    if refusal is not None:
        return refusal(str(record.get("message", "")), _value(record.get("data")))
    failed = StepTimeout if record.get("type") == _TIMEOUT else StepFailed
    return failed(
        str(record.get("message", "")),
        step=step,
        type=str(record.get("type", "")),
        attempts=attempts,
        data=_value(record.get("data")),
        traceback=trace,
    )


def recorded(record: dict[str, Any], raises: tuple[type[Exception], ...] = ()) -> Exception:
    """The exception to go on with for a record that was made elsewhere; recorded again it is that record."""
    own = next((kind for kind in raises if qualified_name(kind) == record.get("type")), None)
    error = rebuild(record, raises) if own is None else own(record["message"])
    BaseException.__setattr__(error, "__holdfast_record__", record)
    return error


def _loop(message: str, data: Any) -> LoopDetected:
    try:
        return LoopDetected(message, calls=data["calls"], times=data["times"])
    except (KeyError, TypeError):  # written by another version
        return LoopDetected(message)


# Raised instead of a body that was not to begin: no failure of the step, and so as itself.
_REFUSALS: Final = {"BudgetExceeded": budget.rebuilt, "LoopDetected": _loop}


# --- recording ---


def _message(error: BaseException) -> str:
    try:
        message = error.message if isinstance(error, StepTimeout) else str(error)
    except Exception as failure:  # noqa: BLE001 - a broken __str__ must not hide the failure itself
        message = f"(its message cannot be shown: {type(failure).__name__})"
    return _cut(message, MESSAGE_LIMIT_CHARACTERS)


def _cut(text: str, limit: int) -> str:
    """Cut in the middle: what happened stands at the end, where it began at the start. Lone surrogates are escaped."""
    if len(text) > limit:
        head = limit // 4
        text = f"{text[:head]}\n[...]\n{text[len(text) - (limit - head - 7) :]}"
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _data(error: BaseException) -> Any:
    try:
        return getattr(error, "data", None)
    except Exception:  # noqa: BLE001 - a property of the user's
        return None


def _arguments(error: BaseException) -> Any:
    if isinstance(error, OSError) and type(error).__module__ == "builtins":
        return OSError.__reduce__(error)[1]  # with the file names, which `args` does not have
    return error.args


def _text(value: Any) -> str | None:
    """The value as text if it can be stored and is of a reasonable size."""
    try:
        text = UNTYPED.text(value)
    except NotStorable:
        return None
    return text if len(text) <= BLOB_BYTES else None


def _comes_back(error: BaseException, made: dict[str, Any]) -> bool:
    """Is it a builtin that its arguments rebuild, type and message alike? Without arguments, the type must do."""
    if type(error).__module__ != "builtins":
        return False
    again = _builtin(made)
    if again is None or type(again) is not type(error):
        return False
    return made["args"] is None or _message(again) == made["message"]


def _traceback(error: BaseException) -> str:
    """The traceback without the frames of this package, which say nothing about the user's code."""
    try:
        whole = traceback.TracebackException.from_exception(error)
        for part in _chain(whole):
            part.stack[:] = [frame for frame in part.stack if not Path(frame.filename).is_relative_to(_PACKAGE)]
        text = "".join(whole.format())
        if len(text) > TRACEBACK_LIMIT_CHARACTERS:
            text = own_frames(text)  # what is cut then is in the middle, and may be the only line that helps
        return _cut(text, TRACEBACK_LIMIT_CHARACTERS)
    except Exception:  # noqa: BLE001 - formatting runs code of the user's; the failure matters more than its looks
        return ""


def _chain(part: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    waiting = [part]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [each for each in (part.__cause__, part.__context__, *(part.exceptions or ())) if each is not None]


# --- frames ---

_FRAME: Final = re.compile(r'(?P<margin>[ |]*)  File "(?P<file>[^"]+)", line (?P<line>\d+)(?P<where>.*)')
_LIBRARY: Final = re.compile(r"[/\\](site|dist)-packages[/\\]|[/\\]lib[/\\]python3\.\d+[/\\]|^<frozen ")


def is_users(filename: str) -> bool:
    """Is this a file of the user's, and not of Holdfast, of Python or of an installed library?"""
    if _LIBRARY.search(filename):
        return False
    return not str(Path(filename).resolve()).startswith(_libraries())


@functools.cache
def _libraries() -> tuple[str, ...]:
    import sysconfig  # noqa: PLC0415 - only failures need it

    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({str(_PACKAGE) + os.sep, *(sysconfig.get_paths()[name] + os.sep for name in names)})


def own_frames(text: str) -> str:
    """A traceback in which a line stands for those frames of libraries that the user's code led to.

    A stack that has no frame of the user's is left whole: an application may be installed as a library is.
    """
    made: list[str] = []
    stack: list[tuple[re.Match[str], list[str]]] = []
    for line in text.splitlines():
        found = _FRAME.fullmatch(line)
        if found is not None:
            stack.append((found, [line]))
        elif stack and line.startswith((f"{stack[-1][0]['margin']}    ", f"{stack[-1][0]['margin']}  [Previous line ")):
            stack[-1][1].append(line)
        else:
            made += _folded(stack)
            made.append(line)
            stack = []
    made += _folded(stack)
    return "\n".join(made) + ("\n" if text.endswith("\n") else "")


def _folded(stack: list[tuple[re.Match[str], list[str]]]) -> Iterator[str]:
    own = [is_users(frame["file"]) for frame, _ in stack]
    for at, (frame, lines) in enumerate(stack):
        if own[at] or not any(own):
            yield from lines
        elif any(own[:at]) and (at + 1 == len(stack) or own[at + 1]):
            began = next(back for back in range(at, -1, -1) if own[back])
            many = "a frame" if at - began == 1 else f"{at - began} frames"
            place = f"{Path(frame['file']).parent.name}/{Path(frame['file']).name}"
            yield f"{frame['margin']}  [{many} of libraries: {place}, line {frame['line']}{frame['where']}]"


# --- rebuilding ---


def _value(text: Any) -> Any:
    try:
        return UNTYPED.load(text) if isinstance(text, str) else None
    except NotStorable:
        return None


def _builtin(record: dict[str, Any]) -> Exception | None:
    kind, arguments = getattr(builtins, str(record.get("type")), None), _value(record.get("args"))
    if not isinstance(kind, type) or not issubclass(kind, Exception) or issubclass(kind, _NOT_REBUILT):
        return None
    if record.get("args", "") is None:
        arguments = (str(record.get("message", "")),)  # they could not be stored; its message stands for them
    try:
        made = kind(*arguments)
    except Exception:  # noqa: BLE001 - a record may hold any arguments
        return None
    return made if type(made) is kind else None


def _declared(record: dict[str, Any], raises: tuple[type[Exception], ...]) -> Exception | None:
    for name in (record.get("type"), record.get("declared")):
        kind = next((each for each in _with_subclasses(raises) if qualified_name(each) == name), None)
        if kind is not None:
            return _made(kind, record)
    return None


def _with_subclasses(kinds: tuple[type[Exception], ...]) -> Iterator[type[Exception]]:
    waiting, seen = list(kinds), set(kinds)
    while waiting:
        kind = waiting.pop(0)
        yield kind
        fresh = [each for each in type.__subclasses__(kind) if each not in seen]
        seen.update(fresh)
        waiting += fresh


def _builtin_base(kind: Any) -> Any:
    while getattr(builtins, kind.__name__, None) is not kind:
        kind = kind.__base__  # the base that decides the layout, so its `__new__` is the right one
    return kind


def _made(kind: type[Exception], record: dict[str, Any]) -> Exception | None:
    """An instance as the builtin below it makes one: no `__new__`, `__init__` or `__setattr__` of the class runs."""
    arguments, attributes = _value(record.get("args")), _value(record.get("attributes"))
    if not isinstance(arguments, tuple):
        arguments = (str(record.get("message", "")),)
    base = _builtin_base(kind)
    try:
        made: Exception = base.__new__(kind, *arguments)
        with contextlib.suppress(Exception):  # arguments of the class's own, not of the builtin's, stay in `args` alone
            base.__init__(made, *arguments)  # OSError takes its errno and file name here
        BaseException.__setattr__(made, "args", arguments)
        for name, value in attributes.items() if isinstance(attributes, dict) else ():
            if isinstance(name, str) and (name != "__notes__" or isinstance(value, list)):
                vars(made)[name] = value
        str(made)  # an instance that cannot even be printed is of no use to code that catches it
    except Exception:  # noqa: BLE001 - a class may be of a kind that only its own library can make
        return None
    return made

"""Synchronous effects in agent code: `open`, sockets, subprocesses, threads and the like, which nothing records.

Python tells an audit hook of each before it happens. The hook asks two things of most events, whether this kind of event is
an effect and whether agent code runs, and goes on. In agent code it finds the line and reports it; to a strict agent it is
refused: the run is paused, and what is raised no agent can act upon, because its run has left by then.

Left alone is what nobody would call the agent's doing: bodies of steps and other threads, imports, logging, warnings and
tracebacks, data that Python and installed packages read of themselves, and what a finalizer does.

A hook cannot be removed again, so there is one for the process, from the first run on that it carries.
"""

from __future__ import annotations

import _thread
import functools
import os
import sys
import threading
import time
from asyncio.events import _get_running_loop
from types import FrameType
from typing import Any, Final

from holdfast.engine.attempt import Attempt
from holdfast.engine.loop import _PACKAGE, Place, Stirring
from holdfast.engine.scope import Scope
from holdfast.errors import Suspended
from holdfast.runtime import UNSET, Placed, StepContext, _here, around

if sys.platform != "win32":
    import _posixsubprocess

_THREADS: Final = frozenset(("_thread.start_new_thread", "_thread.start_joinable_thread"))
_PROCESS: Final = "a process of multiprocessing"  # of which Python tells no hook
# Audit events that are effects, or depend on the world outside. https://docs.python.org/3/library/audit_events.html
_EFFECTS: Final = frozenset((
    "open", "builtins.input", "time.sleep", "sqlite3.connect", "webbrowser.open",
    "os.chmod", "os.chown", "os.link", "os.listdir", "os.lockf", "os.mkdir", "os.remove", "os.rename", "os.removexattr",
    "os.rmdir", "os.scandir", "os.setxattr", "os.symlink", "os.truncate", "os.utime", "tempfile.mkdtemp", "tempfile.mkstemp",
    "shutil.copyfile", "shutil.copymode", "shutil.copystat", "shutil.copytree", "shutil.chown", "shutil.make_archive",
    "shutil.move", "shutil.rmtree", "shutil.unpack_archive",
    "os.exec", "os.fork", "os.forkpty", "os.kill", "os.killpg", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
    "pty.spawn", "signal.pthread_kill", "subprocess.Popen",
    "socket.bind", "socket.connect", "socket.getaddrinfo", "socket.gethostbyaddr", "socket.gethostbyname",
    "socket.getnameinfo", "socket.sendmsg", "socket.sendto",
    "ftplib.connect", "http.client.connect", "imaplib.open", "nntplib.connect", "poplib.connect", "smtplib.connect",
    "telnetlib.Telnet.open", "urllib.Request", _PROCESS, *_THREADS,
))  # fmt: skip
_MACHINERY: Final = frozenset(("importlib", "zipimport", "logging", "warnings", "traceback"))
# Modules of the standard library that open files, or ask the system, for purposes of their own.
_OWN_PURPOSES: Final = frozenset((
    "asyncio", "bdb", "cProfile", "concurrent", "ctypes", "encodings", "gettext", "inspect", "linecache", "locale",
    "mimetypes", "multiprocessing", "pdb", "pkgutil", "platform", "profile", "pydoc", "random", "secrets", "selectors", "site",
    "sysconfig", "threading", "tokenize", "uuid", "weakref", "zoneinfo",
))  # fmt: skip
# And those of them that start something for their caller: not asyncio, of whose threads the loop tells.
_STARTERS: Final = dict.fromkeys(
    (*_THREADS, "os.fork", "socket.connect", _PROCESS), ("threading", "multiprocessing", "concurrent")
)
_DEVICES: Final = ("/dev/null", "/dev/random", "/dev/urandom", "/proc/self/", "/usr/share/zoneinfo/", "/etc/localtime")
_CHANGES: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


_PACKAGES: Final = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_STANDARD: Final = (os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.realpath(os.__file__)) + os.sep)


@functools.cache  # once
def watch() -> None:
    """Notice effects in agent code, in this process, from now on."""
    sys.addaudithook(_heard)
    if sys.platform != "win32":  # multiprocessing looks it up there; `subprocess` has it already, and tells
        _posixsubprocess.fork_exec = _told_of(_PROCESS, _posixsubprocess.fork_exec)
    if sys.version_info < (3, 13):  # before which it told no hook
        time.sleep = _told_of("time.sleep", time.sleep)
    if sys.version_info < (3, 12):  # nor did this
        start = _told_of("_thread.start_new_thread", _thread.start_new_thread)
        _thread.start_new_thread = threading._start_new_thread = start  # type: ignore[attr-defined]


def _heard(event: str, args: tuple[Any, ...], effects: Any = _EFFECTS, is_ending: Any = sys.is_finalizing) -> None:
    if event in effects and not is_ending():  # known to the end: an interpreter that ends takes a module's names away
        place: Any = _here.get(UNSET)
        if place is UNSET:
            place = around()
        if place is not None and place.__class__ is not StepContext:
            _notice(place, event, args)


def _told_of(event: str, call: Any) -> Any:
    @functools.wraps(call)
    def watched(*args: Any) -> Any:
        _heard(event, args)
        return call(*args)

    return watched


def _notice(place: Any, event: str, args: tuple[Any, ...]) -> None:
    if not getattr(place, "is_scope", False) or (event == "open" and _is_no_effect(*args)):
        return
    scope: Scope = place.at_home()
    attempt = scope.attempt
    if _get_running_loop() is not attempt.life.loop:  # a thread that agent code has set off, which was told of
        return
    if attempt.life.closing and not attempt.spec.strict:  # `finally` blocks may close local things
        return
    line = _line(sys._getframe(2), _STARTERS.get(event, ()))
    if line is None:
        return
    try:
        report(attempt, scope, _in_words(event, args), line, waits=False)
    except Suspended:
        if event in _THREADS:  # Python counts it among the living already, and forgets it for an `Exception` only
            getattr(threading, "_limbo", {}).pop(getattr(args[0], "__self__", None), None)
        raise


def report(attempt: Attempt, scope: Place, what: str, line: str, *, waits: bool = True) -> None:
    """Tell of what agent code is about to do; a strict agent may not."""
    with Placed(None):
        if not attempt.spec.strict:
            attempt.unrecorded.report(scope, what, line, waits=waits)
            return
        attempt.pause(
            f"run {attempt.run.id!r}: agent {attempt.spec.name!r} is strict, and its code was about to do something that "
            f"is not recorded ({what}) at {line or scope.made_at or 'unknown line'}, in task {scope.path or 'root'!r}. It was "
            "not done. It would be done again on every resume: put it into a step, then resume the run"
        )
    raise Suspended


def _is_no_effect(path: object, mode: object = None, flags: object = 0, *_: object) -> bool:
    """Is it a descriptor that is open already, or something that Python and its packages read of themselves?"""
    if isinstance(path, int) or not isinstance(path, str | bytes | os.PathLike):
        return True
    written = isinstance(mode, str) and not set(mode).isdisjoint("wax+")
    changes = written or (not isinstance(mode, str) and isinstance(flags, int) and bool(flags & _CHANGES))
    name = os.fsdecode(path)
    if name.startswith(_DEVICES):
        return True
    return not changes and (name.startswith(_STANDARD) or any(folder in name for folder in _PACKAGES))


def _line(frame: FrameType | None, through: tuple[str, ...]) -> str | None:
    """The line of agent code that does it, perhaps by way of these modules; None if it is none of the agent's doing."""
    nearest = last = ""
    while frame is not None and frame.f_code is not Stirring._step.__code__:
        code, name = frame.f_code, str(frame.f_globals.get("__name__", "")).partition(".")[0]
        file, frame_line = code.co_filename, f"{code.co_filename}:{frame.f_lineno} in {code.co_name}"
        if name in _MACHINERY or code.co_name == "__del__":
            return None
        if name == "asyncio" and code.co_name in ("_run", "_run_once", "run"):  # the loop: a callback of the agent's
            break
        if file != __file__ and not nearest:
            if (name in _OWN_PURPOSES and name not in through) or file.startswith(_PACKAGE):
                return None
            packaged = any(folder in file for folder in _PACKAGES)
            if not (packaged or file.startswith((*_STANDARD, "<"))):
                nearest = frame_line
        if not file.startswith(_PACKAGE):
            last = frame_line
        frame = frame.f_back
    return nearest or last or None


def _in_words(event: str, args: tuple[Any, ...]) -> str:
    if event in _THREADS or event == _PROCESS:
        return "a new process" if event == _PROCESS else "a new thread"
    shown = ", ".join(_short(arg) for arg in args[:2] if not isinstance(arg, FrameType))
    return f"{event}({shown})"


def _short(value: object) -> str:
    """Show only what is safe: no repr of somebody's class, which may do anything, and no socket."""
    if isinstance(value, str | bytes | int | float | None):
        return repr(value if not isinstance(value, str | bytes) else value[:80])
    if isinstance(value, os.PathLike):
        return repr(os.fsdecode(value)[:80])
    return f"[{', '.join(map(_short, value[:4]))}]" if isinstance(value, list | tuple) else "..."

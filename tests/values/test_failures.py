"""Failures: what is recorded of an exception, and what comes back from the record."""

from __future__ import annotations

import asyncio
import builtins
import json
from typing import Any, NoReturn, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.values.samples import relaxed

from holdfast.errors import NotStorable, StepFailed, StepTimeout
from holdfast.values.codec import shape_of
from holdfast.values.failures import own_frames, rebuild, record

UNSTORABLE = object()


class Declined(Exception):
    """Its __init__ takes what its args do not have, and must never run again."""

    def __init__(self, code: int, *, connection: Any = None) -> None:
        super().__init__(f"declined with {code}")
        self.code, self.connection = code, connection


class CardDeclined(Declined):
    pass


class Unrelated(Exception):
    pass


class FileTrouble(OSError):
    pass


class Missing(OSError):
    def __init__(self, name: str) -> None:
        super().__init__(2, f"{name} is gone")


class Tripwire(Exception):
    def __new__(cls, *args: Any) -> Self:
        if args == ("armed",):
            raise AssertionError("__new__ of the class was run")
        return super().__new__(cls, *args)


class Unprintable(Exception):
    def __str__(self) -> str:
        return str(self.args[0].missing)


class WithData(Exception):
    def __init__(self, data: Any) -> None:
        super().__init__("see data")
        self.data = data


class BadProperty(Exception):
    @property
    def data(self) -> Any:
        raise RuntimeError("no")


class Locked(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


def back(error: BaseException, raises: tuple[type[Exception], ...] = (), **options: Any) -> Exception:
    """Through the record, and through the JSON that a store makes of it."""
    return rebuild(json.loads(json.dumps(record(error, raises))), raises, **options)


def raised(error: BaseException) -> BaseException:
    try:
        raise error
    except BaseException as caught:
        return caught


# --- builtins ---


@pytest.mark.parametrize(
    "error",
    [
        ValueError("x"), ValueError(), KeyError("k"), KeyError(("a", 1)), TypeError("a", 2), ZeroDivisionError("by 0"),
        TimeoutError("late"), FileNotFoundError(2, "No such file", "a.txt"), OSError("plain"), ImportError("gone"),
        PermissionError(13, "no", "a", None, "b"), ConnectionResetError(104, "reset"), LookupError({"a": (1,)}),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"), RuntimeError("\ud800"), Exception("plain"),
    ],
)  # fmt: skip
def test_a_builtin_comes_back_as_itself(error: Exception) -> None:
    """Type, arguments and message are the same."""
    made = back(error, step="pay", attempts=3)
    assert type(made) is type(error)
    assert (made.args, str(made)) == (error.args, str(error))
    assert getattr(made, "filename", None) == getattr(error, "filename", None)


@relaxed
@given(
    st.sampled_from(
        sorted(
            name for name, kind in vars(builtins).items() if isinstance(kind, type) and issubclass(kind, BaseException)
        )
    ),
    st.lists(st.text() | st.integers() | st.none(), max_size=3),
)
def test_every_builtin_class_is_rebuilt_or_reported(name: str, args: list[Any]) -> None:
    """Whatever its arguments, the failure comes back as an Exception that carries its message."""
    try:
        error = getattr(builtins, name)(*args)
    except Exception:
        return
    made = back(error)
    assert isinstance(made, Exception)
    assert type(made) is type(error) or (isinstance(made, StepFailed) and made.type == type(error).__name__)
    assert str(made) == str(error).encode("utf-8", "backslashreplace").decode() or isinstance(made, StepFailed)


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError("x")])
def test_what_ends_the_program_is_never_rebuilt(error: BaseException) -> None:
    """A record cannot raise SystemExit, KeyboardInterrupt or a cancellation."""
    made = back(error)
    assert type(made) is StepFailed
    assert made.type.endswith(type(error).__name__)


@pytest.mark.parametrize(
    "error", [ExceptionGroup("several", [ValueError("a"), KeyError("b")]), StopIteration(1), StopAsyncIteration()]
)
def test_groups_and_iteration_ends_are_reported(error: Exception) -> None:
    """A future cannot carry StopIteration, and a group is more than its arguments."""
    made = back(raised(error), raises=(type(error),))
    assert type(made) is StepFailed
    assert made.type == type(error).__name__
    if isinstance(error, ExceptionGroup):
        assert "KeyError: 'b'" in made.traceback


@pytest.mark.parametrize("kind", [ValueError, KeyError])
def test_a_builtin_whose_arguments_cannot_be_stored_keeps_its_message(kind: type[Exception]) -> None:
    """`except ValueError` catches it still; the message stands where the argument was."""
    made = back(kind(UNSTORABLE))
    assert type(made) is kind
    assert "object object" in made.args[0]


# --- declared classes ---


def test_a_declared_class_comes_back_with_its_attributes() -> None:
    """Arguments and storable attributes return; `__init__` is not run; what cannot be stored is left out."""
    made = back(raised(Declined(7, connection=UNSTORABLE)), raises=(Declined,), step="pay")
    assert type(made) is Declined
    assert made.code == 7
    assert str(made) == "declined with 7"
    assert not hasattr(made, "connection")


def test_a_subclass_of_a_declared_class_comes_back_as_itself() -> None:
    """`except CardDeclined` works as it would without Holdfast."""
    assert type(back(CardDeclined(1), raises=(ValueError, Declined))) is CardDeclined


def test_a_subclass_that_is_not_there_comes_back_as_the_declared_class() -> None:
    """After a restart the subclass may not be imported yet; `except Declined` must still catch it."""
    made = record(CardDeclined(1), (Declined,))
    made["type"] = "billing.NotImportedYet"
    again = rebuild(made, (Declined,))
    assert type(again) is Declined
    assert again.code == 1


def test_a_class_that_is_not_declared_is_reported() -> None:
    """Only `raises` decides; a class is not found because it exists."""
    made = back(raised(Unrelated("x")), raises=(Declined,))
    assert type(made) is StepFailed
    assert (made.type, made.message) == (f"{__name__}.Unrelated", "x")
    kept = record(Declined(1), (Declined,))
    assert type(rebuild(kept, ())) is StepFailed
    assert type(rebuild(kept, (Unrelated,))) is StepFailed


def test_a_declared_class_over_oserror_keeps_its_errno() -> None:
    """The builtin below the class fills in what the builtin knows."""
    made = back(FileTrouble(2, "gone"), raises=(FileTrouble,))
    assert type(made) is FileTrouble
    assert (made.errno, made.strerror, str(made)) == (2, "gone", "[Errno 2] gone")
    again = back(Missing("a"), raises=(Missing,))
    assert type(again) is Missing
    assert (again.errno, str(again)) == (2, "[Errno 2] a is gone")


def test_no_code_of_the_class_runs_to_make_it() -> None:
    """Neither `__new__`, `__init__` nor `__setattr__` of a declared class is called."""
    error = Tripwire("x")
    error.args = ("armed",)
    assert back(error, raises=(Tripwire,)).args == ("armed",)
    assert type(back(raised(Locked("x")), raises=(Locked,))) is Locked


def test_a_declared_class_that_cannot_be_rebuilt_is_reported() -> None:
    """An instance that cannot even be printed is of no use, so `StepFailed` comes instead of a second failure."""
    assert type(back(raised(Unprintable(3)), raises=(Unprintable,), step="s")) is StepFailed


def test_arguments_that_cannot_be_stored_leave_the_message() -> None:
    """A declared class still comes back, with its message as its only argument."""
    made = back(Unrelated(UNSTORABLE), raises=(Unrelated,))
    assert type(made) is Unrelated
    assert "object object" in str(made)


# --- what is reported ---


def test_a_reported_failure_has_everything_a_person_needs() -> None:
    """Step, type, message, attempts, data and traceback."""
    made = back(raised(WithData({"status": (402, b"\xff")})), step="pay", attempts=4)
    assert isinstance(made, StepFailed)
    assert (made.step, made.type, made.message, made.attempts) == ("pay", f"{__name__}.WithData", "see data", 4)
    assert made.data == {"status": (402, b"\xff")}
    assert "raise error" in made.traceback
    assert "WithData: see data" in made.traceback
    assert str(made) == f"step 'pay' failed after 4 attempts: {__name__}.WithData: see data"


def test_data_that_cannot_be_stored_or_read_is_left_out() -> None:
    """A failure is recorded whatever its attributes do."""
    assert "data" not in record(WithData(UNSTORABLE))
    assert "data" not in record(BadProperty("x"))
    assert "data" not in record(ValueError("x"))


def test_a_timeout_comes_back_as_a_timeout() -> None:
    """`except TimeoutError` and `except StepFailed` both catch it."""
    made = back(StepTimeout("no answer within 30 s"), step="pay", attempts=2)
    assert type(made) is StepTimeout
    assert isinstance(made, TimeoutError)
    assert isinstance(made, StepFailed)
    assert made.message == "no answer within 30 s"
    assert made.attempts == 2


def test_a_failure_of_a_failure_is_one_failure() -> None:
    """A step that failed inside a child is reported with its own message."""
    made = back(StepFailed("no", step="inner", type="ValueError"), step="outer")
    assert isinstance(made, StepFailed)
    assert "step 'inner' failed" in made.message


# --- tracebacks ---


def test_builtin_and_declared_failures_carry_the_traceback_as_a_note() -> None:
    """Where it was raised, in the process and attempt that failed."""
    for error in (ValueError("x"), Declined(1)):
        (note,) = back(raised(error), raises=(Declined,), step="pay", attempts=2).__notes__
        assert note.startswith("Step 'pay' failed after 2 attempts. ")
        assert "raise error" in note


def test_frames_of_the_package_are_left_out() -> None:
    """A traceback shows the user's code and not ours, in its causes too."""

    def user_code() -> NoReturn:
        try:
            shape_of(int).store("x")
        except NotStorable as error:
            raise ValueError("from user code") from error
        raise AssertionError

    with pytest.raises(ValueError, match="from user code") as caught:
        user_code()
    text = record(caught.value)["traceback"]
    assert "user_code" in text
    assert "NotStorable" in text
    assert "direct cause" in text
    assert "codec.py" not in text


@pytest.mark.parametrize("size", [100, 5_000, 1_000_000])
def test_a_record_is_small_whatever_the_failure(size: int) -> None:
    """Message, traceback and arguments are bounded; the end of the traceback is kept."""
    made = record(raised(RuntimeError("x" * size + "the end")))
    assert len(made["traceback"]) <= 4_000
    assert len(made["message"]) <= 4_000
    assert len(json.dumps(made)) < 100_000
    assert made["message"].endswith("the end")
    assert made["traceback"].rstrip().endswith("the end")


def test_a_deep_recursion_can_be_recorded() -> None:
    """A RecursionError of the user's is a failure like any other."""

    def down(n: int) -> int:
        return down(n + 1)

    with pytest.raises(RecursionError) as caught:
        down(0)
    assert type(back(caught.value)) is RecursionError


def test_a_broken_message_does_not_hide_the_failure() -> None:
    """A `__str__` that raises is reported as such."""
    assert "cannot be shown" in record(Unprintable(3))["message"]


# --- hostile records ---


@pytest.mark.parametrize(
    "forged",
    [
        {},
        {"kind": "builtin"},
        {"kind": "builtin", "type": "eval", "args": '{"$tuple":["1/0"]}'},
        {"kind": "builtin", "type": "SystemExit", "args": '{"$tuple":[1]}'},
        {"kind": "builtin", "type": "BaseException", "args": '{"$tuple":[]}'},
        {"kind": "builtin", "type": "__import__", "args": '{"$tuple":["os"]}'},
        {"kind": "builtin", "type": "ValueError", "args": "not text of ours"},
        {"kind": "builtin", "type": "OSError", "args": '{"$tuple":[2,"x"]}'},
        {"kind": "builtin", "type": f"{__name__}.Unrelated", "args": '{"$tuple":[]}'},
        {"kind": "declared", "type": "os.system", "declared": "subprocess.Popen", "args": '{"$tuple":["true"]}'},
        {"kind": "declared", "type": f"{__name__}.Unrelated", "args": '{"$tuple":[]}'},
        {"kind": 7, "type": [], "message": {}, "data": 3, "traceback": None, "attempts": "x"},
    ],
)
def test_a_forged_record_is_only_ever_reported(forged: dict[str, Any]) -> None:
    """Nothing a record says calls a function, imports a module or makes a class that was not declared."""
    assert type(rebuild(forged, (Declined,))) is StepFailed


def test_forged_attributes_do_no_harm() -> None:
    """Attributes that would break the instance are dropped."""
    made = record(Declined(1), (Declined,)) | {"attributes": '{"$map":[["__notes__",3],[1,2],["code",9]]}'}
    again = rebuild(made, (Declined,))
    assert type(again) is Declined
    assert again.code == 9
    assert len(again.__notes__) == 1


# --- the user's frames ---


def test_a_long_traceback_loses_frames_of_libraries_and_none_of_the_users() -> None:
    """Whatever a library does below it, the line of the user's that led there is kept."""
    code = "def outer(f):\n    return theirs(lambda: inner(f), 30)\n\ndef inner(f):\n    return theirs(f, 40)\n"
    library = "def theirs(f, n):\n    return back(f, n - 1) if n else f()\n\ndef back(f, n):\n    return theirs(f, n)\n"
    names: dict[str, Any] = {}
    exec(compile(library, "/opt/venv/lib/python3.11/site-packages/far/away.py", "exec"), names)
    exec(compile(code, "/app/mine.py", "exec"), names)

    def fail() -> None:
        raise ValueError("the end")

    with pytest.raises(ValueError, match="the end") as caught:
        names["outer"](fail)
    text = record(caught.value)["traceback"]
    assert len(text) <= 4_000
    assert "in outer\n" in text
    assert "in inner\n" in text
    assert "[61 frames of libraries: far/away.py, line 2, in theirs]\n" in text
    assert "[81 frames of libraries: far/away.py, line 2, in theirs]\n" in text
    assert "in fail\n" in text
    assert text.rstrip().endswith("ValueError: the end")


def test_a_stack_of_libraries_alone_is_left_whole() -> None:
    """An application may be installed where libraries are; nothing is left out of what might be its frames."""
    text = (
        'Traceback (most recent call last):\n  File "/v/site-packages/app/a.py", line 1, in a\n    b()\n'
        '  File "/v/site-packages/app/b.py", line 2, in b\n    1 / 0\nZeroDivisionError: division by zero\n'
    )
    assert own_frames(text) == text

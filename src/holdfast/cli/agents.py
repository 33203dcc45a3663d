"""`FILE.py:AGENT` and `pkg.mod:agent`: finding a user's agents, and naming the agents there when they are not found."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from holdfast.cli.view.console import BAD_USAGE, block, console
from holdfast.cli.view.screen import Text
from holdfast.declare import Agent, Step
from holdfast.errors import BadArguments, UnknownAgent
from holdfast.values.failures import is_users
from holdfast.worker.agents import triggers_of


class CodeFailed(click.ClickException):
    """The user's module raised while it was imported; shows the frames of the user's own code."""

    exit_code = BAD_USAGE

    def __init__(self, what: str, error: BaseException) -> None:
        super().__init__(f"{what} could not be imported")
        self.error = error

    def show(self, file: Any = None) -> None:
        on = console(stderr=True)
        on.print(Text(f"Error: {self.message}:", "red"), soft_wrap=True)
        block(on, own_traceback(self.error), margin="")


def own_traceback(error: BaseException) -> str:
    """Write the traceback without the frames of Holdfast, of Python's import machinery and of libraries."""
    whole = traceback.TracebackException.from_exception(error, compact=True)
    own = [frame for frame in whole.stack if is_users(frame.filename)]
    if own:
        whole.stack[:] = own
    else:
        whole.stack.clear()
    whole.__cause__ = whole.__context__ = None
    return "".join(whole.format())


def split(target: str) -> tuple[str, str | None]:
    """Split a target into the module or file, and the agent if one is named."""
    if not Path(target).exists():
        place, colon, name = target.rpartition(":")
        if colon:
            return place, name
    return target, None


def load(place: str) -> ModuleType:
    """Import a file (its folder is put on the path) or a module (the current folder is)."""
    if place.endswith(".py") or os.sep in place:
        return _load_file(Path(place))
    _put_on_path(str(Path.cwd()))
    try:
        found = importlib.util.find_spec(place)
    except ModuleNotFoundError:
        found = None
    except Exception as error:  # the module's package runs when it is looked up
        raise CodeFailed(place, error) from error
    except SystemExit as error:
        raise CodeFailed(place, error) from error
    if found is None:
        near = f"; did you mean {place}.py?" if Path(f"{place}.py").exists() else ""
        raise BadArguments(f"there is no module {place!r} in the current folder or among what is installed{near}")
    return _import(place, place)


def _load_file(path: Path) -> ModuleType:
    if not path.is_file():
        there = sorted(each.name for each in path.parent.glob("*.py")) if path.parent.is_dir() else []
        listed = f"; {path.parent}{os.sep} has {', '.join(there[:10])}" if there else ""
        raise BadArguments(f"there is no file {str(path)!r}{listed}")
    path = path.resolve()
    top, name = path.parent, path.stem
    while (top / "__init__.py").exists():  # a file of a package is imported as its part, so that its own imports work
        top, name = top.parent, f"{top.name}.{name}"
    if not all(part.isidentifier() for part in name.split(".")):
        raise BadArguments(f"{path.name!r} cannot be imported; name it with letters, digits and '_' only")
    before = sys.modules.get(name)
    if before is not None and Path(getattr(before, "__file__", None) or "").resolve() != path:
        raise BadArguments(f"{path.name!r} has the name of the module {name!r}, which is imported already; rename it")
    if before is None and name in sys.stdlib_module_names:
        raise BadArguments(f"{path.name!r} has the name of the module {name!r} of Python itself; rename it")
    _put_on_path(str(top))
    return _import(name, str(path))


def _put_on_path(folder: str) -> None:
    """Put a folder first, so that a file is found before anything else of its name."""
    if folder in sys.path:
        sys.path.remove(folder)
    sys.path.insert(0, folder)


def _import(name: str, shown: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # SystemExit too: a script that calls sys.exit() at its end
        raise CodeFailed(shown, error) from error


def agents_of(module: ModuleType) -> dict[str, Agent[..., Any]]:
    """Find the agents of a module by the names under which it has them; its own before those it imported."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, Agent)}
    return dict(sorted(found.items(), key=lambda entry: entry[1].fn.__module__ != module.__name__))


def load_agent(target: str) -> tuple[ModuleType, Agent[..., Any]]:
    """Load the module and the agent that a target names; the name may be left out where there is one agent only."""
    place, name = split(target)
    if not place:
        raise BadArguments(f"{target!r} names no file; write FILE.py:AGENT or package.module:AGENT")
    module = load(place)
    found = agents_of(module)
    if name is not None:
        return module, _named(module, found, place, name)
    own = {agent.name: agent for agent in found.values() if agent.fn.__module__ == module.__name__} or found
    if len({id(agent) for agent in own.values()}) == 1:
        return module, next(iter(own.values()))
    if not own:
        raise UnknownAgent(f"{place} has no agent; put @holdfast.agent on an async function in it")
    listed = ", ".join(f"{place}:{each}" for each in found)
    raise UnknownAgent(f"{place} has {len(found)} agents; say which one: {listed}")


def _named(module: ModuleType, found: dict[str, Agent[..., Any]], place: str, name: str) -> Agent[..., Any]:
    named = found.get(name) or next((agent for agent in found.values() if agent.name == name), None)
    if named is not None:
        return named
    if not found:
        raise UnknownAgent(f"{place} has no agent at all; put @holdfast.agent on an async function in it")
    there = f"its agents are: {', '.join(found)}"
    what = getattr(module, name, None)
    if isinstance(what, Step):
        raise UnknownAgent(f"{name!r} in {place} is a step, and only agents can be run; {there}")
    if callable(what):
        raise UnknownAgent(f"{name!r} in {place} is a function without @holdfast.agent; {there}")
    near = difflib.get_close_matches(name, found, n=1)
    raise UnknownAgent(f"{place} has no agent {name!r}; " + (f"did you mean {near[0]!r}? {there}" if near else there))


def load_apps(targets: tuple[str, ...]) -> list[ModuleType | Agent[..., Any]]:
    """Load the agents that a worker serves: all of each module or file, or the one that is named."""
    apps: list[ModuleType | Agent[..., Any]] = []
    for target in targets:
        place, name = split(target)
        if name is not None:
            apps.append(load_agent(target)[1])
            continue
        module = load(place)
        if not agents_of(module) and not triggers_of([module]):
            raise UnknownAgent(f"{place} has no agent; put @holdfast.agent on an async function in it")
        apps.append(module)
    return apps

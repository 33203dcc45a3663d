"""The house, measured: `python -m tests.house` prints how the package is built, from its sources and from a few traced walks.

`tests/test_architecture.py` holds some of these numbers, which may only go down. The others are told and not enforced.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

ROOT = Path(__file__).parents[1] / "src" / "holdfast"
PATHS = {path.relative_to(ROOT).with_suffix("").as_posix(): path for path in ROOT.rglob("*.py")}
FILES = {name.removesuffix("__init__").strip("/").replace("/", ".") or "holdfast": PATHS[name] for name in PATHS}
PLAIN_NOUNS = frozenset(["parking", "testing"])
METAPHORS = frozenset(["deeds", "acting", "said", "taking", "hearing", "passing", "joining"])
# The parts of the engine, by the names that others have for them, and the module that owns their state.
PARTS = {
    "attempt": "attempt", "call": "attempt", "kept": "attempt", "life": "life", "identity": "identity", "journal": "journal",
    "gate": "gate", "pen": "recorder", "outflow": "recorder", "tasks": "loop", "task": "loop", "bodies": "bodies",
    "inbox": "inbox", "mailbox": "inbox", "parking": "parking", "control": "control", "unrecorded": "unrecorded",
    "patches": "patches", "streams": "streams", "tail": "streams", "talks": "talks", "talk": "talks", "scope": "scope",
}  # fmt: skip


# --- sources ---


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Every module, parsed."""
    return {module: ast.parse(path.read_text("utf-8")) for module, path in FILES.items()}


def targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    """The modules of the package that an import statement names; `from holdfast import errors` names `errors`."""
    if isinstance(node, ast.ImportFrom):
        full = [f"{node.module}.{alias.name}" for alias in node.names]
        names = [name if name.removeprefix("holdfast.") in FILES else str(node.module) for name in full]
    else:
        names = [alias.name for alias in node.names]
    return [name.removeprefix("holdfast.") for name in names if f"{name}.".startswith("holdfast.")]


def functions(tree: ast.AST) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@functools.cache
def names_only(tree: ast.AST) -> set[int]:
    """Imports under `if TYPE_CHECKING`: they name types and run nothing, so they may look up within a layer."""
    checks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)]
    return {id(inner) for check in checks for inner in ast.walk(check)}


@functools.cache
def inside_functions(tree: ast.AST) -> set[int]:
    return {id(node) for function in functions(tree) for node in ast.walk(function)}


# --- measures ---


def cycles() -> list[list[str]]:
    """Modules that import each other in a circle, wherever the import stands and whatever it is for; the largest first."""
    graph: dict[str, set[str]] = {module: set() for module in FILES}
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                graph[module] |= set(targets(node)) & set(FILES) - {module}
    return sorted((each for each in _components(graph) if len(each) > 1), key=lambda each: (-len(each), each))


def _components(graph: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components: what is reached from a module and reaches it."""

    def reached(start: str, edges: dict[str, set[str]]) -> set[str]:
        found, left = {start}, [start]
        while left:
            new = edges[left.pop()] - found
            found |= new
            left += new
        return found

    back: dict[str, set[str]] = {module: set() for module in graph}
    for module, others in graph.items():
        for other in others:
            back[other].add(module)
    seen: set[str] = set()
    for module in graph:
        if module not in seen:
            component = reached(module, graph) & reached(module, back)
            seen |= component
            yield sorted(component)


@functools.cache
def classes() -> dict[str, ast.ClassDef]:
    """Every class, as `module:Class`."""
    return {
        f"{module}:{node.name}": node
        for module, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


@functools.cache
def imported(module: str) -> dict[str, str]:
    """What a module imports from the package by name: `Class` to `module:Class`."""
    found = {}
    for node in ast.walk(trees()[module]):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("holdfast"):
            for alias in node.names:
                found[alias.asname or alias.name] = f"{node.module}:{alias.name}".removeprefix("holdfast.")
    return found


def lineage(name: str) -> list[str]:
    """A class and those of ours that it is made from."""
    found = [name]
    for each in found:
        module = each.partition(":")[0]
        for base in classes()[each].bases:
            stem = getattr(base.value if isinstance(base, ast.Subscript) else base, "id", "")
            full = imported(module).get(stem, f"{module}:{stem}")
            if full in classes() and full not in found:
                found.append(full)
    return found


def attributes(name: str) -> set[str]:
    """What the objects of a class have: its slots, and what its methods and those of its bases assign to `self`."""
    found: set[str] = set()
    for each in lineage(name):
        for node in ast.walk(classes()[each]):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _is_name(node.value, {"self"}):
                found.add(node.attr)
            elif isinstance(node, ast.Assign) and any(_is_name(target, {"__slots__"}) for target in node.targets):
                found |= {part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)}
    return found


def _is_name(node: ast.AST, names: set[str] | frozenset[str]) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def widest() -> tuple[int, str]:
    return max((len(attributes(name)), name) for name in classes())


def assigning() -> list[str]:
    """Modules that assign to a part of the engine that another module owns."""
    found = set()
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                owner = node.value
                name = (
                    owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
                )
                part = PARTS.get(name.removeprefix("_")) if module.startswith(("engine", "worker", "testing")) else None
                if part is not None and module != f"engine.{part}":
                    found.add(f"{module}:{node.lineno}")
    return sorted(found)


def gerunds() -> list[str]:
    stems = [(module, module.rpartition(".")[2]) for module in FILES]
    return sorted(
        module for module, stem in stems if (stem.endswith("ing") or stem in METAPHORS) and stem not in PLAIN_NOUNS
    )


def runtime_methods() -> list[str]:
    """Of the seam between verbs and engine, properties counted."""
    body = classes()["runtime:Runtime"].body
    return [node.name for node in body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


def statements() -> int:
    return sum(isinstance(node, ast.stmt) for tree in trees().values() for node in ast.walk(tree))


# --- walks ---


class Walk:
    """The calls of our own functions, by file, while something is done; `mark` cuts them into stretches."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.marks: list[tuple[str, int]] = []

    def _called(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(f"{ROOT}/"):
            self.files.append(frame.f_code.co_filename)

    def __enter__(self) -> Self:
        threading.setprofile(self._called)
        sys.setprofile(self._called)
        return self

    def __exit__(self, *exc: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def mark(self, name: str) -> None:
        self.marks.append((name, len(self.files)))

    def between(self, first: str, last: str) -> str:
        """Calls, switches of file and files from a mark to the first of another name behind it."""
        start = next(place for name, place in self.marks if name == first)
        end = next(place for name, place in self.marks if name == last and place >= start)
        return told(self.files[start:end])


def told(files: list[str]) -> str:
    switches = sum(one != other for one, other in zip(files, files[1:], strict=False))
    return f"{len(files)} calls, {switches} switches of file, {len(set(files))} files"


def walks() -> Iterator[tuple[str, str]]:
    """What a step, a replayed step, a question and `holdfast show` pass through."""
    import holdfast

    @holdfast.step
    async def one(number: int) -> int:
        return number + 1

    def make(walk: Walk) -> Any:
        @holdfast.agent
        async def walker(number: int) -> bool:
            lives.append(walk)
            walk.mark(f"begun {len(lives)}")
            await one(number)
            walk.mark(f"one step {len(lives)}")
            await one(number)
            walk.mark(f"two steps {len(lives)}")
            return bool(await holdfast.approve("Go on?", show=number))

        return walker

    lives: list[Walk] = []
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:{folder}/walk.db?durability=process"

        async def main() -> Walk:
            with Walk() as walk:
                agent = make(walk)
                settings = holdfast.Settings(park_grace_s=0.05)
                async with holdfast.open(url, agents=[agent], settings=settings) as hf:
                    run = await hf.start(agent, 1, id="walked")
                    await asyncio.sleep(0.5)  # nobody waits for it: only its own calls are counted
                    walk.mark("parked")
                    await hf.approve("walked", by="ana")
                    await run.result()
            return walk

        walk = asyncio.run(main())
        yield "a live step", walk.between("one step 1", "two steps 1")
        yield "a replayed step", walk.between("one step 2", "two steps 2")
        yield "approve() until parked", walk.between("two steps 1", "parked")
        yield "holdfast show", told(_shown(url).files)


def _shown(url: str) -> Walk:
    from click.testing import CliRunner

    from holdfast.cli import main

    _ = main.commands["show"]  # imported before: the walk is that of the command
    with Walk() as walk:
        CliRunner().invoke(main, ["show", "walked", "--db", url], catch_exceptions=False)
    return walk


def table() -> Iterator[tuple[str, str]]:
    size, name = widest()
    found: dict[str, Callable[[], str]] = {
        "cycles of modules, type-only imports counted": lambda: " + ".join(str(len(each)) for each in cycles()) or "0",
        "attributes of the widest object": lambda: f"{size} ({name})",
        "modules that assign engine state from outside": lambda: str(len(assigning())),
        "modules at the root / in all": lambda: f"{len(list(ROOT.glob('*.py')))} / {len(FILES)}",
        "gerund or metaphor modules": lambda: str(len(gerunds())),
        "methods of Runtime": lambda: str(len(runtime_methods())),
        "statements": lambda: f"{statements():,}",
    }
    for label, measure in found.items():
        yield label, measure()
    yield from walks()


if __name__ == "__main__":
    for label, number in table():
        print(f"{label:48} {number}")  # noqa: T201

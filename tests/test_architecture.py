"""The layers of docs/design.md, held: imports go down only."""

import ast
import functools
from graphlib import CycleError, TopologicalSorter

import pytest
from tests import house
from tests.house import FILES, inside_functions, names_only, targets, trees

# The modules of the store that know a database: SQL, a driver, or what has one. All others are words and work, for any ground.
DATABASE = "store.store store.backup store.migrate store.queries store.sqlite store.postgres store.urls"
# Lowest first. A part is a module or a package with all in it; where two match, the longer name counts.
LAYERS = {
    "words": "errors words values",
    "contracts": "runtime store",
    "verbs": "declare resources logs verbs",
    "doing": f"engine {DATABASE}",
    "services": "worker rehearsal client",
    "edges": "sync client.bridge cli http dashboard integrations backends testing demo",
    "package": "holdfast __main__",  # holdfast/__init__.py, and `python -m holdfast`
}
APART = {  # what a part may not import although its layer is high enough
    "engine": DATABASE,
    "worker": DATABASE,
    **dict.fromkeys(DATABASE.split(), "engine declare resources verbs"),
    "cli": f"engine store {DATABASE} runtime verbs resources",
    "http": f"engine store {DATABASE} runtime verbs resources declare",
    "dashboard": f"engine store {DATABASE} runtime verbs resources declare worker",
    "integrations": f"engine store {DATABASE} worker client",
    "backends": "cli http dashboard integrations testing demo sync client",
}
LIKE_USERS = "demo integrations"  # may `import holdfast`, which is above them: they are written as users write
LAZY = "cli holdfast testing.plugin"  # may import inside functions: starting up must be quick
OPTIONAL = "store.postgres backends http"  # may be imported inside functions, upwards too: not everyone needs them
SELDOM = "rehearsal"  # may be imported inside functions: few clients use it, and all would wait for it

LEVEL = {part: level for level, parts in enumerate(LAYERS.values()) for part in parts.split()}


def part_of(module, parts=None):
    """The part this module belongs to, or "" when it belongs to none."""
    return max(
        (part for part in (parts.split() if parts else LEVEL) if f"{module}.".startswith(f"{part}.")),
        key=len,
        default="",
    )


@functools.cache
def imports():
    """Every import of the package by itself: (module, imported module, line, whether inside a function)."""
    return list(_imports())


def _imports():
    for module, tree in trees().items():
        inner = names_only(tree) | inside_functions(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                assert not getattr(node, "level", 0), f"{module}, line {node.lineno}: a relative import"
                for target in targets(node):
                    yield module, target, node.lineno, id(node) in inner


def test_every_module_has_a_layer():
    assert [module for module in FILES if not part_of(module)] == []


def test_imports_go_down_only():
    wrong = []
    for module, target, line, inside in imports():
        source, part = part_of(module), part_of(target)
        if (inside and part_of(target, OPTIONAL)) or (part == "holdfast" and part_of(module, LIKE_USERS)):
            continue
        if LEVEL.get(part, 99) > LEVEL.get(source, 99) or part in APART.get(source, "").split():
            wrong.append(f"{module}, line {line}: {source} may not import {target}")
    assert not wrong, "\n".join(wrong)


def test_engine_and_worker_need_no_database():
    """What they import, and what that imports, names no driver and no SQL: something smaller may stand below them."""
    reached = [module for module in FILES if part_of(module, "engine worker")]
    for module in reached:
        inner = names_only(trees()[module]) | inside_functions(trees()[module])
        for node in ast.walk(trees()[module]):
            if not isinstance(node, ast.Import | ast.ImportFrom) or id(node) in inner:
                continue
            found = targets(node)
            reached += [target for target in found if target in FILES and target not in reached]
            named = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            assert not {"apsw", "asyncpg"} & {str(name).partition(".")[0] for name in named}, module
    assert [module for module in reached if part_of(module, DATABASE)] == []


def test_no_modules_import_each_other_in_a_circle():
    graph = {module: set() for module in FILES}
    for module, target, _, inside in imports():
        if not inside and target != module:
            graph[module].add(target)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def test_the_package_is_imported_at_the_top_of_files():
    wrong = []
    for module, tree in trees().items():
        inner = inside_functions(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom) and id(node) in inner and not part_of(module, LAZY):
                found = [target for target in targets(node) if not part_of(target, f"{OPTIONAL} {SELDOM}")]
                wrong += [f"{module}, line {node.lineno}: import {target} at the top of the file" for target in found]
    assert not wrong, "\n".join(wrong)


EDGES = "cli http dashboard"


def _is_behind(attribute):
    """Is this private to a client? So is its store, though users may see it."""
    return attribute == "store" or (attribute.startswith("_") and not attribute.startswith("__"))


def test_edges_ask_the_client_and_not_what_is_behind_it():
    """What they need beyond what users are offered is a method of `client.edge.Edge`."""
    wrong = []
    for module, tree in trees().items():
        for node in ast.walk(tree) if part_of(module, EDGES) else ():
            owner = getattr(getattr(node, "value", None), "id", "")
            if isinstance(node, ast.Attribute) and _is_behind(node.attr) and owner not in ("self", "cls", "os"):
                wrong.append(f"{module}, line {node.lineno}: .{node.attr} is behind the client")
    assert not wrong, "\n".join(wrong)


# Doors of the engine, for modules that carry runs or try them.
DOORS = (
    "engine.execute engine.carried engine.host engine.performer engine.elsewhere engine.rehearsal engine.slots engine.turns "
    "engine.loop"
)


def test_the_engine_is_entered_by_its_doors():
    """A worker, and any other ground, knows `begin`, `Carried` and `Host`, and no part of an attempt."""
    inner = [
        f"{module}, line {line}: {target} is inside the engine"
        for module, target, line, _ in imports()
        if not part_of(module, "engine") and part_of(target, "engine") and not part_of(target, DOORS)
    ]
    assert not inner, "\n".join(inner)


# --- prose ---

HIDING = ("The same", "That of", "It", "What", "Who", "How", "Of")  # words before which no actor and no verb was named


def test_docstrings_name_the_thing_or_the_verb_first():
    wrong = []
    for module, tree in trees().items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                words = (ast.get_docstring(node) or "").split()[:2]
                if " ".join(words) in HIDING or (words[:1] and words[0].rstrip(",:;.") in HIDING):
                    wrong.append(f"{module}, line {getattr(node, 'lineno', 1)}: {' '.join(words)} ...")
    assert not wrong, "\n".join(wrong)


# --- numbers that may only go down ---

RATCHETS = {
    "modules in cycles, type-only imports counted": (0, lambda: sum(map(len, house.cycles()))),
    "places that assign engine state of another module": (0, lambda: len(house.assigning())),
    "attributes of the widest object": (24, lambda: house.widest()[0]),
    "methods of Runtime": (16, lambda: len(house.runtime_methods())),
}


@pytest.mark.parametrize("what", RATCHETS)
def test_the_number_only_goes_down(what):
    most, measure = RATCHETS[what]
    now = measure()
    assert now <= most, f"{what}: now {now}, and {most} at most; `python -m tests.house` tells more"
    assert now == most, f"{what}: now {now}: lower the number"

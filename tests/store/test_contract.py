"""The part of the contract below the engine is no larger than what engine and worker call: something small can stand there."""

from __future__ import annotations

import ast

from tests.house import trees

from holdfast.store.contract import CommonStore, EngineStore, OwnStore, WorkerStore
from holdfast.store.store import Store


def asked_of_stores(package: str) -> set[str]:
    """The names that modules of a package use of a store."""
    return {
        node.attr
        for module, tree in trees().items()
        if module.startswith(f"{package}.")
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")).strip("_")
        == "store"
    }


def promised(contract: type) -> set[str]:
    lines = [vars(part) for part in contract.__mro__ if getattr(part, "_is_protocol", False)]
    named = {name for line in lines for name in (*line, *line.get("__annotations__", ()))}
    return {name for name in named if not name.startswith("_")}


def test_the_engine_calls_what_its_contract_names_and_no_more() -> None:
    assert asked_of_stores("engine") == promised(EngineStore)
    assert promised(OwnStore).isdisjoint(promised(CommonStore))


def test_a_worker_calls_what_its_contract_names_and_no_more() -> None:
    assert asked_of_stores("engine") | asked_of_stores("worker") == promised(WorkerStore)


def test_what_is_promised_is_said_at_the_store() -> None:
    """Each method says there what it does, once."""
    methods = {name: getattr(Store, name, None) for name in promised(WorkerStore)}
    assert [name for name, method in methods.items() if callable(method) and not method.__doc__] == []

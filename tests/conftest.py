"""What the whole session shares: fixtures for every folder, and where tests and their processes keep what they make."""

import ast
import asyncio
import functools
import gc
import inspect
import os
import shutil
import sys
import tempfile
import threading
from fnmatch import fnmatchcase

import pytest
from tests.cli.terminal import terminal  # noqa: F401 - a fixture
from tests.commands import commands  # noqa: F401 - a fixture
from tests.disks import small_disk  # noqa: F401 - a fixture
from tests.postgres import own_server, postgres_nothing, postgres_server, postgres_url, store_url  # noqa: F401 - fixtures

# Tests start hundreds of processes, and each would compile the package anew if none may keep what it compiled.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# In memory, if there is room: a killed process leaves the same there as on a disk, and no test waits for one. What a loss of
# power leaves is tested on a record of all writes.
MEMORY = "/dev/shm"
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = MEMORY

HEADS = (
    ("tests/page/",), ("tests/grounds/",), ("tests/processes/",), ("tests/worker/brokers/", "tests/examples/"),
    ("tests/cli/", "tests/rehearsal/"), ("tests/integrations/", "tests/docs/test_models.py"),
    ("tests/test_architecture.py", "tests/snapshots/"),  # which parse the whole package
)  # fmt: skip


def pytest_xdist_auto_num_workers(config):
    """More than processors: tests of several processes wait, for those and for time, as long as they work."""
    return os.cpu_count() * 4


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run an `async def` test in a loop of its own."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}))
    return True


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Leave to `make nightly` the cases that `by_day` does not name: `@pytest.mark.by_day("sqlite-*")`.

    And of a module with `POSTGRES_BY_DAY` the scenes on PostgreSQL that this does not name: above the store all is the same.
    """
    unused = {}
    for item in items:
        scenes = getattr(item.module, "POSTGRES_BY_DAY", None)
        if scenes is not None and "postgres" in item.name and item.originalname not in scenes:
            item.add_marker(pytest.mark.nightly)
        if "postgres" in item.nodeid or not {"postgres_server", "own_server"}.isdisjoint(item.fixturenames):
            item.add_marker(pytest.mark.postgres)
        for mark in item.iter_markers("by_day"):
            named = [pattern for pattern in mark.args if fnmatchcase(item.callspec.id, pattern)]
            if not named:
                item.add_marker(pytest.mark.nightly)
            name = item.nodeid.partition("[")[0]
            unused[name] = unused.get(name, set(mark.args)) - set(named)
    for module in {item.module for item in items if hasattr(item.module, "POSTGRES_BY_DAY")}:
        unused[module.__name__] = module.POSTGRES_BY_DAY - set(vars(module))
    wrong = [f"{name} has no case {pattern!r}" for name, patterns in unused.items() for pattern in patterns]
    if wrong and not any("::" in argument for argument in config.args):
        raise pytest.UsageError("by_day names what is not there: " + "; ".join(wrong))
    yield  # those of the other time are taken out now
    items[:] = _shared_out(items, int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")))


def _shared_out(items, processes):
    """Put what needs the same servers at the head of one process's share.

    A process begins at the head of its share, and others take from the end. So few processes start each kind of server,
    and tests that wait for long begin early.
    """
    items.sort(key=lambda item: item.get_closest_marker("long") is None)
    heads = [[item for item in items if item.nodeid.startswith(folders)] for folders in HEADS[:processes]]
    if processes == 1 or not all(heads):
        return items
    named = {id(item) for head in heads for item in head}
    rest = [item for item in items if id(item) not in named]
    order = []
    for index in range(processes):
        share = (len(items) - len(order)) // (processes - index)
        head = heads[index] if index < len(heads) else []
        filled = max(share - len(head), 0)
        order += head + rest[:filled]
        del rest[:filled]
    return order + rest


@pytest.hookimpl(wrapper=True)
def pytest_collection(session):
    """Collect no garbage among the modules and tests of the session: they stay, and each look at them takes half a second."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item):
    """What a test may leave unawaited is collected while that may be so: later it would be another test's failure."""
    if any("never awaited" in mark.args[0] for mark in item.iter_markers("filterwarnings")):
        gc.collect()


if sys.version_info < (3, 11, 8):
    # Until then all parsers of a process count the depth of their trees in one place. Garbage that is collected within one
    # lets another begin, in this thread or in another: pytest parses to show a failure, and each traceback parses its
    # lines. Then either fails: "SystemError: AST constructor recursion depth mismatch".
    _parse, _one_at_a_time = ast.parse, threading.RLock()

    @functools.wraps(_parse)
    def _parse_alone(*args, **kwargs):
        with _one_at_a_time:
            collects = gc.isenabled()
            gc.disable()
            try:
                return _parse(*args, **kwargs)
            finally:
                if collects:
                    gc.enable()

    ast.parse = _parse_alone

"""`holdfast cells`: as an operator begins a set, adds to it, moves slots and looks at it."""

import json

import pytest
from tests.cells import cell_urls, written  # noqa: F401 - a fixture

from holdfast.backends.cells.slots import slot_of

pytestmark = pytest.mark.slow


def test_a_set_is_begun_extended_and_divided(cli, cell_urls):  # noqa: F811
    db = ("--db", "cells:cells.toml")
    first = cli("cells", "add", "a", cell_urls["a"], *db)
    assert first.output == "cells.toml begins with cell a, which has all 1,024 slots.\n"
    second = cli("cells", "add", "b", cell_urls["b"], *db)
    assert "has no slot yet" in second.output
    assert "holdfast cells move SLOTS --to b --db cells:cells.toml" in second.output
    file = (cli.folder / "cells.toml").read_text()
    moved = cli("cells", "move", "1000-1002", "--to", "b", *db)
    assert moved.exit_code == 0, moved.output
    assert moved.stdout.startswith("Slots 1000-1002: 0 runs from a to b; each away for at most ")
    assert len(moved.stdout.splitlines()) == 1
    again = cli("cells", "move", "999-1000", "--to", "b", *db)  # 1000 is there already
    assert again.exit_code != 0
    assert "Slot 999: 0 runs from a to b; away for " in again.output
    cli("cells", "move", "999", "--to", "a", *db)
    listed = cli.json("cells", "list", *db)
    assert [(cell["name"], len(cell["slots"]), cell["down"]) for cell in listed] == [("a", 1021, ""), ("b", 3, "")]
    shown = cli("cells", "list", *db)
    assert "1000-1002 (3)" in shown.output
    assert (cli.folder / "cells.toml").read_text() == file  # the databases say who owns what
    checked = cli("cells", "check", *db)
    assert (checked.exit_code, checked.stdout) == (
        0,
        "2 cells, 1,024 slots: each has one owner, and nothing is under way.\n",
    )
    assert json.loads(cli("cells", "check", *db, "--json").stdout) == {"mended": [], "wrong": []}


def test_the_slot_of_an_id_is_found(cli, cell_urls):  # noqa: F811
    db = ("--db", "cells:cells.toml")
    cli("cells", "add", "a", cell_urls["a"], *db)
    cli("cells", "add", "b", cell_urls["b"], *db)
    slot = slot_of("acme")
    assert f"acme.17 belongs to slot {slot}, which is in cell a:" in cli("cells", "slot", "acme.17", *db).output
    cli("cells", "move", str(slot), "--to", "b", *db)
    found = cli.json("cells", "slot", "acme.17", *db)
    assert (found["id"], found["slot"], found["cell"]) == ("acme.17", slot, "b")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["list"], "names no cells"),
        (["list", "--db", "postgresql://ann@/main?host=/tmp/x"], "'postgresql://ann@/main?host=/tmp/x' names no cells"),
        (["list", "--db", "cells:none.toml"], "there is no file 'none.toml'"),
        (["add", "a", "--db", "cells:x.toml"], "say which: holdfast cells add NAME"),
        (["add", "a", "sqlite:x.db", "--db", "cells:x.toml"], "A cell is a PostgreSQL database"),
        (["slot", "--db", "cells:x.toml"], "say of which run: holdfast cells slot ID"),
        (["move", "7", "--db", "cells:x.toml"], "say which, and where to"),
        (["move", "7-9999", "--grace", "10", "--to", "b", "--db", "cells:x.toml"], "is no range of slots"),
        (["move", "7-9999", "--grace", "0", "--to", "b", "--db", "cells:x.toml"], "is no range of slots"),
        (["move", "7", "--grace", "soon", "--to", "b", "--db", "cells:x.toml"], "'soon' is not a duration"),
        (["move", "7-9999", "--to", "b", "--db", "cells:x.toml"], "is no range of slots"),
    ],
)
def test_what_cannot_be_done_says_what_to_write(cli, words, says):
    told = cli("cells", *words)
    assert told.exit_code not in (0, 1)
    assert says in " ".join(told.output.split())


def test_a_database_is_added_once(cli, cell_urls):  # noqa: F811
    db = ("--db", "cells:cells.toml")
    cli("cells", "add", "a", cell_urls["a"], *db)
    assert "has a cell 'a' already" in " ".join(cli("cells", "add", "a", cell_urls["b"], *db).output.split())
    assert "are one database" in " ".join(cli("cells", "add", "b", cell_urls["a"], *db).output.split())


def test_nothing_is_settled_with_an_old_file_unless_a_cell_is_lost(cli, cell_urls):  # noqa: F811
    new = written(cli.folder / "new.toml", cell_urls)
    assert cli("cells", "check", "--db", new).exit_code == 0
    old = ("--db", written(cli.folder / "old.toml", {"a": cell_urls["a"]}))
    checked = cli("cells", "check", *old)
    assert checked.exit_code == 1
    assert "which is older than the set: use the newer file" in " ".join(checked.output.split())
    shown = [(cell["name"], len(cell["slots"])) for cell in cli.json("cells", "list", *old)]
    assert shown == [("a", 512), ("b", 512)]
    refused = cli("cells", "settle", "1000", "--to", "a", *old)
    assert refused.exit_code not in (0, 1)
    assert "it lacks cell 'b'" in " ".join(refused.output.split())
    settled = cli("cells", "settle", "1000", "--to", "a", "--lost", "b", *old)
    assert settled.stdout == "Slot 1000 is owned by cell a alone.\n"
    assert "cell 'b' of" in cli("cells", "list", "--db", new).output


def test_a_cell_of_the_file_is_not_lost(cli, cell_urls):  # noqa: F811
    db = ("--db", written(cli.folder / "cells.toml", cell_urls))
    assert cli("cells", "check", *db).exit_code == 0
    refused = cli("cells", "settle", "0-5", "--to", "b", "--lost", "a", *db)
    assert refused.exit_code == 2
    said = " ".join(refused.output.split())
    assert "so it is not lost, and nothing was given up" in said and "was given up as lost for good" not in said
    assert cli("cells", "check", *db).exit_code == 0


def test_a_cell_of_many_ranges_says_how_many_slots_it_has(cli, cell_urls):  # noqa: F811
    odd = ",".join(str(slot) for slot in range(1, 41, 2))
    even = ",".join(str(slot) for slot in range(0, 41, 2)) + ",41-1023"
    shown = cli("cells", "list", "--db", written(cli.folder / "cells.toml", cell_urls, {"a": odd, "b": even}))
    assert " 20 slots " in shown.output and " 1004 slots " in shown.output

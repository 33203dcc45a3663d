"""Runs with much of the same: what is folded, what is asked for, how far they are, and how long that takes to draw."""

import re
import time

import pytest
from tests.cli.terminal import FLEET

from holdfast.cli.view.console import Glyphs
from holdfast.cli.view.draw import Scene, lines, rows
from holdfast.cli.view.tree import History
from holdfast.words.model import Event


@pytest.fixture
def long(terminal):
    """A run in the middle, with a hundred steps of one name and a hundred branches of another."""
    process = terminal.start("run", f"{FLEET}:many", 100, "--id", "m")
    process.until("body: page 0")
    return process


def test_many_calls_of_one_name_are_folded(terminal, long):
    """The first and the last ten are shown, and between them a line that counts the rest, and what failed of it."""
    _, shown = terminal.run("show", "m")
    assert len(re.findall(r"double\(n=\d+\)", shown)) == 20
    assert len(re.findall(r"checked#\d+", shown)) == 20
    assert shown.count("80 more like this\n") == 1
    assert "80 more like this, 4 failed (--failed shows them)" in shown
    assert "double(n=9)" in shown
    assert "double(n=10)" not in shown
    assert "double(n=90)" in shown


def test_what_failed_and_what_came_last_can_be_asked_for(terminal, long):
    """`--failed` shows all of that and nothing else; `--last N` the end of each list."""
    _, failed = terminal.run("show", "m", "--failed")
    assert len(re.findall(r"✗ check\(n=\d+\)", failed)) == 5
    assert "is not good" in failed
    assert "✓" not in failed
    assert "more like this" not in failed
    _, last = terminal.run("show", "m", "--last", 3)
    assert "198 earlier" in last
    assert re.findall(r"checked#\d+", last) == ["checked#97", "checked#98", "checked#99"]


def test_thirty_are_not_folded(terminal):
    """Folding begins with the thirty-first."""
    terminal.touch("go-0")
    for count, folded in ((30, False), (31, True)):
        terminal.run("run", f"{FLEET}:many", count, "--id", f"m{count}")
        _, shown = terminal.run("show", f"m{count}")
        assert ("more like this" in shown) is folded


def test_run_has_a_bar_while_the_run_says_how_far_it_is(terminal, person):
    """Below the name, as `show` has it; it goes when the run has ended."""
    ana = person("run", f"{FLEET}:many", 40, "--id", "m")
    ana.sees("50%  40 of 80, pages")
    ana.sees("page(n=0)")
    terminal.touch("go-0")
    screen, code = ana.leaves()
    assert code == 0
    assert "50%" not in "\n".join(screen)


def test_five_thousand_steps_are_drawn_at_once():
    """Processor time of the whole picture, and of one more frame of a moving one."""
    events = [
        Event(n, "m", n, "step.completed", f"one#{n}/fetch#0", 1_000 + n, {"name": "fetch", "input": f"n={n}", "began": n}, "1")
        for n in range(5_000)
    ]  # fmt: skip
    history = History(events)
    for last_only, most in ((None, 0.5), (40, 0.15)):
        scene = Scene(Glyphs(), 100, {"m": history}, {"m": "running"}, last_only=last_only)
        began = time.process_time()
        assert len(lines(rows(scene, "m", history), 100, Glyphs())) < 100
        assert time.process_time() - began < most

"""What the tests themselves stand on."""

import ast
import gc


class Garbage:
    """Is collected at some moment, and parses then, as whoever formats a traceback does."""

    def __init__(self):
        self.itself = self

    def __del__(self):
        ast.parse("a + b")


def test_garbage_harms_no_parser():
    """It is collected beside the parser, and not within it."""
    text = "def f():\n" + "    x = (a + b * (c - d)) if e else [1, 2, {3: 4}]\n" * 50
    before = gc.get_threshold()
    gc.set_threshold(10)
    try:
        for _ in range(100):
            Garbage()
            assert len(ast.parse(text).body[0].body) == 50
    finally:
        gc.set_threshold(*before)

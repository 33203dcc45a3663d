"""The first hour of a beginner, who has the README and nothing else."""

from tests.docs.pages import block


def test_the_readme_from_top_to_bottom(user):
    """The first program runs as pasted; killed, it goes on; a person decides in another window; and it can be looked at."""
    user.writes("research.py", block("README.md", "readme: research"))
    run = ("holdfast", "run", "research.py:research", "otters", "--id", "otters")
    first = user.starts(*run)
    first.says("search(topic='otters') done")
    first.kill()

    second = user.sits_at(*run[1:])
    second.sees("Publish this?")
    assert "Publish this?" in user.types("holdfast", "approvals", "--list")
    assert "Approved" in user.types("holdfast", "approve", "otters", "--by", "ana", "--note", "good")
    screen, code = second.leaves()
    assert code == 0 and any("published: what otters.example/0 says" in line for line in screen)

    shown = user.types("holdfast", "show", "otters")
    assert "✓ completed" in shown and "interrupted" in shown and "approved by ana (good)" in shown
    assert shown.count("✓ search(") == 1 and shown.count("✓ summarise(") == 3
    assert user.asks("holdfast", "runs")["runs"][0]["status"] == "completed"


def test_the_second_program_of_the_readme(user):
    """A test with a crash in it, as a file."""
    user.writes("approve.py", block("README.md", "readme: approve"))
    assert user.types("python", "approve.py") == "All about otters. The report was written 1 time.\n"


def test_mistakes_of_a_beginner_are_told_in_a_line(user):
    """A wrong file, a wrong agent, a wrong argument: what was found and what to do, and no traceback of ours."""
    user.writes("research.py", block("README.md", "readme: research"))
    wrong = {
        ("holdfast", "run", "reserch.py:research", "otters"): "reserch.py",
        ("holdfast", "run", "research.py:reserch", "otters"): "research",
        ("holdfast", "run", "research.py:research"): "topic",
        ("holdfast", "show", "nobody"): "nobody",
        ("holdfast", "approve", "nobody"): "nobody",
    }
    for words, told in wrong.items():
        printed = user.starts(*words).ends()
        assert printed[1] != 0 and told in printed[0] and "Traceback" not in printed[0], printed


def test_a_failing_step_shows_the_line_of_the_beginner(user):
    """The error is told once, with the line in the user's own file; mended, the run goes on behind what was done."""
    user.writes(
        "shop.py",
        "import holdfast\n\n@holdfast.step\nasync def price(name: str) -> int:\n    open('asked', 'a').write(name)\n"
        "    return 3\n\n@holdfast.step\nasync def order(name: str) -> str:\n    return {}[name]\n\n"
        "@holdfast.agent\nasync def shop(name: str) -> str:\n    return f'{await price(name)} {await order(name)}'\n",
    )
    printed = user.types("holdfast", "run", "shop.py:shop", "tea", "--id", "tea", code=1)
    assert "KeyError: 'tea'" in printed and "shop.py" in printed and "return {}[name]" in printed
    user.writes("shop.py", (user.folder / "shop.py").read_text().replace("{}[name]", "name"))
    assert "3 tea" in user.types("holdfast", "retry", "tea") + user.types(
        "holdfast", "run", "shop.py:shop", "--id", "tea"
    )
    assert user.lines("asked") == ["tea"]

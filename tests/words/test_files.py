"""Patterns of files and keys, as tables of cases."""

import pytest

import holdfast
from holdfast import BadArguments
from holdfast.words.files import file_key, pattern_of
from holdfast.words.triggers import action_key


@pytest.mark.parametrize(
    ("pattern", "folder", "fits", "does_not"),
    [
        ("inbox/*.pdf", "inbox", ["a.pdf"], ["a.txt", "b/a.pdf", ".a.pdf"]),
        ("inbox/**/*.pdf", "inbox", ["a.pdf", "b/a.pdf", "b/c/a.pdf"], [".b/a.pdf", "b/.a.pdf", "a.pdf/x"]),
        ("inbox/**", "inbox", ["a", "b/a"], [".a"]),
        ("inbox/a.pdf", "inbox", ["a.pdf"], ["b.pdf"]),
        ("a.pdf", ".", ["a.pdf"], []),
        ("*.pdf", ".", ["a.pdf"], ["b/a.pdf"]),
        ("/srv/in/[ab]?/x-*.csv", "/srv/in", ["a1/x-.csv"], ["c1/x-.csv", "a/x-.csv"]),
        ("/*.pdf", "/", ["a.pdf"], []),
        ("in/.*/a", "in", [".x/a"], ["x/a"]),
        ("in/**/**/b/*", "in", ["b/x", "a/b/x"], ["b"]),
    ],
)
def test_which_paths_a_pattern_fits(pattern, folder, fits, does_not):
    found = pattern_of(pattern)
    assert found.folder == folder
    assert [path for path in fits if not found.fits(path)] == []
    assert [path for path in does_not if found.fits(path)] == []


def test_folders_that_need_not_be_looked_into():
    shallow, deep = pattern_of("in/*/x.pdf"), pattern_of("in/**/x.pdf")
    assert shallow.goes_into("a") and not shallow.goes_into("a/b") and not shallow.goes_into(".a")
    assert deep.goes_into("a/b/c") and not deep.goes_into("a/.b")


@pytest.mark.parametrize("pattern", [5, "", "inbox/", "a\0b", "in/*/../x", "in/*//x", "in/a**/x", b"bytes"])
def test_a_pattern_that_cannot_be_used_is_told(pattern):
    with pytest.raises(BadArguments, match=r"write it as 'inbox/\*\*/\*.pdf'|behind the first wildcard"):
        holdfast.on.files(pattern)


def test_a_file_is_known_by_its_path_and_its_content():
    keys = {file_key(path, digest) for path in ("a", "b") for digest in ("sha256:" + "1" * 64, "sha256:" + "2" * 64)}
    assert len(keys) == 4
    assert all(action_key("inbox", key, 0) == f"inbox@{key}" for key in keys)

"""The file of a bundle: what is written is read back, and any other bytes are refused before they are believed."""

import hmac
import io
import zlib
from dataclasses import replace

import pytest

from holdfast.errors import BadBundle
from holdfast.values import bundle as files
from holdfast.values.bundle import Manifest

ID, SOURCE, TO = "a" * 32, "b" * 32, "c" * 32
COPY = Manifest(ID, "copy", SOURCE, None, 5, "0.2.0", "ask", None, ())
MOVE = replace(COPY, kind="move", destination=TO, pause="move:1")
SECTIONS = {"runs": (2, b'["a",1]\n["b",null]\n'), "content": (1, b"\0\xffanything")}


class Hmac:
    """A key that needs no library."""

    id, name = "k1", "ana"

    def sign(self, message):
        return hmac.digest(b"secret", message, "sha256")

    def check(self, key, signature, message):
        if key != self.id or not hmac.compare_digest(self.sign(message), signature):
            raise BadBundle("not signed by a trusted key")


KEY = Hmac()


def made(manifest=MOVE, **more):
    return files.packed({"run": "r", "asks": ["\x1b[31m\u202e"]}, manifest, SECTIONS | more, KEY)


def read(content):
    """Everything of a file, checked as a reader does."""
    file = io.BytesIO(content)
    head = files.read_head(file)
    head.check_signed(KEY.check)
    if len(content) < head.ends:
        raise BadBundle("short")
    found = {each.name: files.read_section(file, head, each, None) for each in head.manifest.sections}
    rows = files.read_rows(found["runs"], head.manifest.sections[0])
    decisions = files.read_decisions(file, head)
    for each, message in files.signed_decisions(head, decisions):
        KEY.check(each.signed.key, each.signed.signature, message)
    return head, rows, found["content"], decisions


@pytest.mark.parametrize("manifest", [COPY, MOVE])
def test_it_is_read_as_it_was_written(manifest):
    head, rows, content, decisions = read(made(manifest).content)
    assert (head.summary["run"], rows, content, decisions) == ("r", [["a", 1], ["b", None]], b"\0\xffanything", [])
    assert replace(head.manifest, sections=()) == manifest
    assert head.is_released


def test_a_move_is_released_by_another_signature_in_the_same_place():
    bundle = made()
    before, after = bundle.unreleased, bundle.content
    assert len(before) == len(after)
    assert not read(before)[0].is_released
    assert read(after)[0].is_released
    at = read(before)[0].release_at
    assert before[:at] == after[:at] and before[at + 88 :] == after[at + 88 :]


def test_the_first_two_lines_are_harmless_on_a_terminal():
    first, second = made().content.split(b"\n")[:2]
    assert first == b"holdfast-bundle 1"
    assert second.isascii() and b"\x1b" not in second


def test_no_byte_can_be_changed():
    """Each byte of the file, and each way to cut it short or to make it longer."""
    whole = made().content
    for at in range(len(whole)):
        for bit in (0, 3, 7):
            changed = whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :]
            with pytest.raises(BadBundle):
                read(changed)
        with pytest.raises(BadBundle):
            read(whole[:at])
    for more in (b"\n", b"x", b"{}\n", b"[]\n"):
        with pytest.raises(BadBundle):
            read(whole + more)


def test_decisions_are_for_one_bundle_and_in_order():
    whole = made().content
    for text in (b'{"yes":true}', b'{"yes":false}'):
        head, *_, decisions = read(whole)
        whole += files.new_decision(head, decisions, text, KEY).line
    *_, decisions = read(whole)
    assert [each.content for each in decisions] == [b'{"yes":true}', b'{"yes":false}']
    lines = [each.line for each in decisions]
    body = whole[: -sum(map(len, lines))]
    for wrong in (lines[1], lines[1] + lines[0], lines[0] + lines[0]):
        with pytest.raises(BadBundle):
            read(body + wrong)
    with pytest.raises(BadBundle):
        read(made(COPY).content + lines[0])


def test_a_bomb_is_not_inflated():
    bomb = zlib.compress(bytes(50 << 20), 9)
    manifest = files.packed({}, MOVE, SECTIONS, KEY)
    head = files.read_head(io.BytesIO(manifest.content))
    section = replace(head.manifest.sections[0], stored=len(bomb), sha256=files.hashlib.sha256(bomb).hexdigest())
    fake = replace(head, manifest=replace(head.manifest, sections=(section,)), begins=0)
    with pytest.raises(BadBundle, match="another size"):
        files.read_section(io.BytesIO(bomb), fake, section, None)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1, 2]", "form"), ('{"a":1,"a":2}', "form"), ("[1.50]", "form"), ("NaN", "JSON"), ("[1e999]", "JSON"), ("[", "JSON"),
        ("[" * 100_000, "deep"), ('["\\u0041"]', "form"), ('["é"]', "form"), ("1" * 10_000, "JSON"),
    ],
)  # fmt: skip
def test_json_has_one_form(text, why):
    with pytest.raises(BadBundle, match=why):
        files.read_json(text, "a text")


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"holdfast-bundle 2\n", "version '2'"), (b"SQLite format 3\0", "not a bundle"), (b"", "not a bundle"),
        (b"\n", "not a bundle"),
    ],
)  # fmt: skip
def test_other_files_and_versions_are_told(first, why):
    with pytest.raises(BadBundle, match=why):
        read(first + made().content.partition(b"\n")[2] if first.endswith(b"\n") else first)


def test_sizes_are_bounded_before_anything_is_read():
    huge = files.Section("runs", 1, 1 << 40, 10, "0" * 64)
    with pytest.raises(BadBundle, match="at most"):
        files._check_sizes([huge])
    with pytest.raises(BadBundle, match="rows"):
        files._check_sizes([replace(huge, size=1, rows=2_000_000)])


@pytest.mark.parametrize(
    ("row", "why"), [(b"[" + b"[]," * 1_000_001 + b"[]]\n", "lists"), (b'["' + b"x" * (33 << 20) + b'"]\n', "row")]
)
def test_a_row_that_would_take_much_room_is_not_read(row, why, monkeypatch):
    monkeypatch.setattr(files.json, "loads", None)
    with pytest.raises(BadBundle, match=why):
        files.read_rows(row, files.Section("runs", 1, len(row), 1, "0" * 64))
    packer = files.Rows({"runs": [row]})
    with pytest.raises(BadBundle, match=why):
        packer.sections()


@pytest.mark.parametrize(
    ("tail", "why"),
    [
        (b'{"decision":[' + b"[]," * 2000 + b"[]]}\n", "says more"), (b'{"decision":"' + b"x" * (1 << 20) + b'"}\n', "1 MiB"),
        (b"{}\n" * 1001, "1,000"), (b"\n" * 100_000, "1,000"),
    ],
)  # fmt: skip
def test_what_anybody_wrote_behind_a_bundle_is_not_read_if_it_is_large(tail, why):
    whole = made().content
    head = files.read_head(io.BytesIO(whole))
    with pytest.raises(BadBundle, match=why):
        files.read_decisions(io.BytesIO(whole + tail), head)


def test_no_decision_is_written_that_nobody_could_read():
    head, *_ = read(made().content)
    with pytest.raises(BadBundle, match="1 MiB"):
        files.new_decision(head, [], b"x" * (1 << 20), KEY)
    many = [files.Decision(b"", head.signed, b"{}\n")] * 1000
    with pytest.raises(BadBundle, match="1,000"):
        files.new_decision(head, many, b"x", KEY)

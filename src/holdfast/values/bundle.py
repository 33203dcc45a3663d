"""The file of a bundle: what its bytes mean, and which bytes are refused. Pure: no store, no keys, no clock.

Look here when a file is refused before any row of it was looked at. `store/bundles.py` says what the rows mean.

    line 1    holdfast-bundle 1
    line 2    the summary, for people and programs that read no further: `head -2 FILE`
    line 3    the manifest: what the bundle is, and of each section its name, rows, size, stored size and digest
    line 4    the signature of lines 1 to 3, and so of every byte of the sections
    line 5    the release: of a move, a second signature, written when the source has given the run up
    sections  one behind the other, each compressed, and encrypted if the manifest says so
    decisions one line each, signed by the person who decided; they may be added to a file that is finished

Each JSON text is in one form only (ASCII, no spaces, no name twice): another spelling of the same is refused. So a byte that is
changed anywhere changes what was signed, or is no bundle.

Nothing is read before its size is known and bounded: first the lengths of the lines, then the sizes that the manifest names, then
each section, which is inflated up to the size it declares and no further. The caller looks up the signer before a
section is opened; that a signer is trusted makes no check weaker.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, Final, Protocol

from holdfast.errors import BadBundle
from holdfast.values.text import is_whole, size
from holdfast.words.model import is_run_id

VERSION: Final = 1
MAGIC: Final = b"holdfast-bundle "
KINDS: Final = ("move", "copy")
EFFECTS: Final = ("new", "ask", "refuse")
MOST_STORED: Final = (
    256 << 20
)  # bytes of all sections, as they lie in the file: a store keeps those of a move in one row
MOST_INFLATED: Final = 1 << 30  # bytes of all sections
MOST_ROWS: Final = 1_000_000  # of all sections: a transaction of PostgreSQL has places for so many events
_LINE: Final = 1 << 20  # bytes of a line of the head
_MOST_SECTIONS: Final = 32
_MOST_ROW: Final = 32 << 20  # bytes of a row
_MOST_OPENED: Final = 1_000_000  # lists and objects in a row: an empty one takes thirty times its text when it is read
_MOST_DECIDED: Final = 16 << 20  # bytes of all decisions
_MOST_DECISIONS: Final = 1_000
_MOST_SAID: Final = 1_000  # signs that part values in the line of a decision, which has four
_DEEPEST: Final = 250
_RECEIPT: Final = b"holdfast-receipt 1\n"
_MOST_RECEIPT: Final = 10_000  # bytes of one
_RELEASE: Final = b"release "
_SIGNED: Final = 88  # characters of a signature of 64 bytes; a shorter one is filled up
_UNRELEASED: Final = b"-" * _SIGNED
_NOT_NEEDED: Final = b"not needed"
_HEX: Final = re.compile(r"[0-9a-f]{32}")
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[a-z_]{1,40}")
_ENCODER: Final = json.JSONEncoder(separators=(",", ":"), allow_nan=False)
_OPENING: Final = re.compile(r"[\[{]")


def damaged(what: str) -> BadBundle:
    """An error about a file that is not as it was made, with what to do."""
    return BadBundle(f"{what}. Ask for the file again, and compare `sha256sum FILE` on both sides")


class Signer(Protocol):
    """A key that signs: its id, the name of its owner, and how."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    def sign(self, message: bytes) -> bytes: ...


class Cipher(Protocol):
    """The key of one bundle, with which its sections are encrypted, each by its place."""

    def encrypt(self, place: int, content: bytes) -> bytes: ...
    def decrypt(self, place: int, content: bytes) -> bytes: ...


Check = Callable[
    [str, bytes, bytes], None
]  # (id of a key, signature, message): raises `BadBundle` if it is not by a trusted key


@dataclass(frozen=True, slots=True)
class Section:
    """One section as the manifest has it."""

    name: str
    rows: int
    size: int
    stored: int
    sha256: str


@dataclass(frozen=True, slots=True)
class Manifest:
    """Facts about a bundle that its signature is for."""

    id: str
    kind: str  # 'move' or 'copy'
    source: str  # the store it is from
    destination: str | None  # of a move: the only store that takes it
    made_at: int
    holdfast: str  # the version that wrote it
    effects: str  # of a copy: what becomes of calls that are in doubt
    pause: str | None  # of a move: the request by which its runs were paused, and which is over when they are imported
    sections: tuple[Section, ...]
    sealed: dict[str, str] | None = None  # for whom it is encrypted, and the key for that


@dataclass(frozen=True, slots=True)
class Signed:
    """A line that somebody signed: the key, the name its owner goes by, and the signature."""

    key: str
    by: str
    signature: bytes


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision that was written into a finished bundle: its text, perhaps encrypted, and its signature."""

    content: bytes
    signed: Signed
    line: bytes


@dataclass(frozen=True, slots=True)
class Head:
    """The first five lines of a file, and where its sections begin. Nothing of it is trusted before `check_signed`."""

    summary: dict[str, Any]
    manifest: Manifest
    signed: Signed
    release: bytes | None  # None: of a copy, or not written yet
    text: bytes  # lines 1 to 3
    release_at: int
    begins: int

    @property
    def ends(self) -> int:
        """The offset at which the sections end and decisions begin."""
        return self.begins + sum(section.stored for section in self.manifest.sections)

    @property
    def is_released(self) -> bool:
        """Has the source given up what the file holds? A copy needs no such word."""
        return self.manifest.kind == "copy" or self.release is not None

    def check_signed(self, check: Check) -> None:
        """Raise `BadBundle` unless a trusted key signed the head, and the release if there is one."""
        key, by = self.signed.key, self.signed.by
        check(key, self.signed.signature, to_sign("bundle", key, by, self.text))
        if self.release is not None:
            check(key, self.release, to_sign("release", key, by, self.text))


def to_sign(what: str, key: str, by: str, text: bytes) -> bytes:
    """Write what is signed: what it is ('bundle', 'release', 'decision', 'receipt'), under which name, and of what."""
    return to_line(["holdfast", what, key, by]) + text


# Writing


def to_line(value: Any) -> bytes:
    """Write JSON in its one form, as a line."""
    return _ENCODER.encode(value).encode("ascii") + b"\n"


@dataclass(slots=True)
class Bundle:
    """A bundle as bytes: of a move also as it is before its release."""

    head: bytes
    release: bytes
    body: bytes

    @property
    def unreleased(self) -> bytes:
        """The file before the source has given the run up."""
        return self.head + _RELEASE + _UNRELEASED + b"\n" + self.body

    @property
    def content(self) -> bytes:
        """The whole file."""
        return self.head + _RELEASE + self.release + b"\n" + self.body


def packed(
    summary: dict[str, Any], manifest: Manifest, sections: Mapping[str, tuple[int, bytes]], signer: Signer,
    cipher: Cipher | None = None,
) -> Bundle:  # fmt: skip
    """Make the file: `manifest` without sections, and of each section its rows and its content."""
    described, stored = [], []
    for place, (name, (rows, content)) in enumerate(sections.items()):
        kept = zlib.compress(content, 6)
        if cipher is not None:
            kept = cipher.encrypt(place, kept)
        described.append(Section(name, rows, len(content), len(kept), hashlib.sha256(kept).hexdigest()))
        stored.append(kept)
    whole = replace(manifest, sections=tuple(described))
    _check_sizes(whole.sections)
    head = MAGIC + f"{VERSION}\n".encode() + to_line(summary) + to_line(_written(whole))
    if any(len(line) > _LINE for line in head.splitlines()):
        raise BadBundle(f"the summary would have more than {size(_LINE)}")
    by = (signer.id, signer.name)
    signed = _base64(signer.sign(to_sign("bundle", *by, head)))
    signature = to_line({"key": signer.id, "by": signer.name, "signature": signed})
    release = _NOT_NEEDED
    if manifest.kind == "move":
        release = _base64(signer.sign(to_sign("release", *by, head))).encode().ljust(_SIGNED, b"=")
    return Bundle(head + signature, release, b"".join(stored))


def _written(manifest: Manifest) -> dict[str, Any]:
    sections = [[each.name, each.rows, each.size, each.stored, each.sha256] for each in manifest.sections]
    return {name: getattr(manifest, name) for name in _MANIFEST} | {"sections": sections, "sealed": manifest.sealed}


def new_decision(head: Head, before: Sequence[Decision], content: bytes, signer: Signer) -> Decision:
    """Write a decision behind the decisions that are there already."""
    signature = signer.sign(to_sign("decision", signer.id, signer.name, _decided(head, before, content)))
    told = {"decision": _base64(content), "key": signer.id, "by": signer.name, "signature": _base64(signature)}
    line = to_line(told)
    _check_decided([*(each.line for each in before), line])
    return Decision(content, Signed(signer.id, signer.name, signature), line)


def _decided(head: Head, before: Sequence[Decision], content: bytes) -> bytes:
    """Write what a decision is: the bundle it is for, all that was decided before it, and the decision."""
    past = hashlib.sha256(head.text)
    for each in before:
        past.update(each.line)
    return past.digest() + content


def _check_decided(lines: Sequence[bytes]) -> None:
    """Check the sizes of decisions before any is read, because anybody may write behind a bundle."""
    if len(lines) > _MOST_DECISIONS:
        raise BadBundle(f"more than {_MOST_DECISIONS:,} decisions stand behind its sections")
    if sum(map(len, lines)) > _MOST_DECIDED:
        raise BadBundle(f"more than {size(_MOST_DECIDED)} stand behind its sections")
    for line in lines:
        if len(line) > _LINE:
            raise BadBundle(f"a decision has more than {size(_LINE)}")
        if sum(map(line.count, (b",", b"[", b"{"))) > _MOST_SAID:
            raise BadBundle("a decision says more than decisions say")


def _base64(content: bytes) -> str:
    return base64.b64encode(content).decode()


# Reading


def is_bundle(file: BinaryIO) -> bool:
    """Does a file begin as a bundle does? It is left at its beginning."""
    found = file.read(len(MAGIC)) == MAGIC
    file.seek(0)
    return found


def read_head(file: BinaryIO) -> Head:
    """Read the first five lines; `BadBundle` says what is wrong with them."""
    first = _line(file, "it is not a bundle")
    if not first.startswith(MAGIC):
        raise BadBundle("this is not a bundle: its first line is another one")
    if first != MAGIC + f"{VERSION}\n".encode():
        raise BadBundle(
            f"this bundle has version {_shown(first[len(MAGIC) : -1])}, and this Holdfast reads version {VERSION}; use the "
            "version that wrote it, or a newer one"
        )
    lines = [_line(file, "it ends in the middle of its head") for _ in range(3)]
    summary, told = _object(lines[0], "the summary"), _object(lines[1], "the manifest")
    manifest = _manifest(told)
    signed = _signed(_object(lines[2], "the signature"), "the signature", {"key", "by", "signature"})
    release_at = sum(map(len, (first, *lines))) + len(_RELEASE)
    release = _release(_line(file, "it ends in the middle of its head"), manifest.kind)
    return Head(summary, manifest, signed, release, first + lines[0] + lines[1], release_at, file.tell())


def _line(file: BinaryIO, broken: str) -> bytes:
    line = file.readline(_LINE + 1)
    if not line.endswith(b"\n"):
        raise BadBundle(f"a line of its head has more than {size(_LINE)}") if len(line) > _LINE else damaged(broken)
    return line


def _shown(content: bytes) -> str:
    return ascii(content[:40].decode("latin-1"))


def read_json(text: str, what: str) -> Any:
    """Read JSON that is in its one form; anything else is refused, and so is what is nested deeply."""
    # Brackets inside strings are counted too: then it is looked at more closely, and no harm is done.
    if len(_OPENING.findall(text)) > _DEEPEST and _depth(text) > _DEEPEST:
        raise BadBundle(f"{what} is nested more than {_DEEPEST} deep")
    try:
        value = json.loads(text, parse_constant=_no_number)
        same = _ENCODER.encode(value) == text
    except (ValueError, RecursionError, OverflowError):
        raise BadBundle(f"{what} is no JSON") from None
    if not same:
        raise BadBundle(f"{what} is not in the form in which bundles are written")
    return value


def _no_number(word: str) -> Any:
    raise ValueError(word)


def _depth(text: str) -> int:
    deepest = depth = 0
    inside = escaped = False
    for character in text:
        if inside:
            inside, escaped = character != '"' or escaped, character == "\\" and not escaped
        elif character == '"':
            inside = True
        elif character in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif character in "]}":
            depth -= 1
    return deepest


def text_of(content: bytes, what: str) -> str:
    """Read ASCII, which all JSON of a bundle is."""
    try:
        return content.decode("ascii")
    except UnicodeDecodeError:
        raise BadBundle(f"{what} has what is not ASCII") from None


def _object(line: bytes, what: str) -> dict[str, Any]:
    value = read_json(text_of(line[:-1], what), what)
    if type(value) is not dict:
        raise BadBundle(f"{what} is no object")
    return value


_MANIFEST: Final[dict[str, Callable[[Any], bool]]] = {
    "id": lambda value: type(value) is str and _HEX.fullmatch(value) is not None,
    "kind": lambda value: type(value) is str and value in KINDS,
    "source": lambda value: type(value) is str and _HEX.fullmatch(value) is not None,
    "destination": lambda value: value is None or (type(value) is str and _HEX.fullmatch(value) is not None),
    "made_at": lambda value: is_whole(value, 0),
    "holdfast": lambda value: type(value) is str and 0 < len(value) <= 100,
    "effects": lambda value: type(value) is str and value in EFFECTS,
    "pause": lambda value: value is None or (type(value) is str and 0 < len(value) <= 100),
}


def _manifest(told: dict[str, Any]) -> Manifest:
    if list(told) != [*_MANIFEST, "sections", "sealed"]:
        raise BadBundle("the manifest does not say what a manifest says")
    for name, fits in _MANIFEST.items():
        if not fits(told[name]):
            raise BadBundle(f"{name!r} of the manifest cannot be {_short(told[name])}")
    if (told["kind"] == "move") is not (told["destination"] is not None):
        raise BadBundle("a move names its destination, and a copy none")
    if told["kind"] == "copy" and told["pause"] is not None:
        raise BadBundle("a copy paused nothing")
    sealed = told["sealed"]
    if sealed is not None and not (
        type(sealed) is dict
        and all(type(each) is str and len(each) <= 200 for each in sealed.values())
        and len(sealed) < 9
    ):
        raise BadBundle("'sealed' of the manifest does not say how it is encrypted")
    if type(told["sections"]) is not list or len(told["sections"]) > _MOST_SECTIONS:
        raise BadBundle(f"the manifest lists no sections, or more than {_MOST_SECTIONS}")
    sections = tuple(_section(row) for row in told["sections"])
    if len({section.name for section in sections}) != len(sections):
        raise BadBundle("the manifest lists a section twice")
    _check_sizes(sections)
    return Manifest(**{name: told[name] for name in _MANIFEST}, sections=sections, sealed=sealed)


def _section(row: Any) -> Section:
    if type(row) is list and len(row) == 5:
        name, rows, inflated, stored, digest = row
        named = type(name) is str and _NAME.fullmatch(name) and type(digest) is str and _DIGEST.fullmatch(digest)
        if named and is_whole(rows, 0) and is_whole(inflated, 0) and is_whole(stored, 0):
            return Section(name, rows, inflated, stored, digest)
    raise BadBundle("the manifest describes a section otherwise than manifests do")


def _check_sizes(sections: Sequence[Section]) -> None:
    stored, inflated = sum(each.stored for each in sections), sum(each.size for each in sections)
    if stored > MOST_STORED or inflated > MOST_INFLATED:
        raise BadBundle(
            f"it holds {size(inflated)}, {size(stored)} of it stored; a bundle has at most {size(MOST_INFLATED)}, "
            f"{size(MOST_STORED)} stored"
        )
    if sum(each.rows for each in sections) > MOST_ROWS:
        raise BadBundle(f"it holds more than {MOST_ROWS:,} rows")


def _signed(told: dict[str, Any], what: str, names: set[str]) -> Signed:
    key, by = told.get("key"), told.get("by")
    if set(told) != names or type(key) is not str or type(by) is not str or len(key) > 100 or not 0 < len(by) <= 200:
        raise BadBundle(f"{what} does not say who signed")
    return Signed(key, by, _bytes(told["signature"], what))


def _bytes(text: Any, what: str) -> bytes:
    try:
        content = base64.b64decode(text, validate=True) if type(text) is str else None
    except (binascii.Error, ValueError):
        content = None
    if content is None or _base64(content) != text:
        raise BadBundle(f"{what} is not what base64 writes")
    return content


def _release(line: bytes, kind: str) -> bytes | None:
    told = line.removeprefix(_RELEASE)[:-1]
    if not line.startswith(_RELEASE):
        raise BadBundle("its fifth line is not its release")
    if kind == "copy":
        if told != _NOT_NEEDED:
            raise BadBundle("a copy has no release")
        return None
    if told == _UNRELEASED:
        return None
    if len(told) != _SIGNED:
        raise BadBundle("its release has another length than releases have")
    text = text_of(told, "the release")
    bare = text.rstrip("=")
    return _bytes(bare + "=" * (-len(bare) % 4), "the release")


def read_section(file: BinaryIO, head: Head, section: Section, cipher: Cipher | None) -> bytes:
    """Read one section, up to the size it declares; `BadBundle` if it is not what the manifest says."""
    place = head.manifest.sections.index(section)
    file.seek(head.begins + sum(each.stored for each in head.manifest.sections[:place]))
    stored = file.read(section.stored)
    if len(stored) != section.stored or hashlib.sha256(stored).hexdigest() != section.sha256:
        raise damaged(f"its section {section.name!r} is damaged, or was changed after it was made")
    if cipher is not None:
        stored = cipher.decrypt(place, stored)
    inflating = zlib.decompressobj()
    try:
        content = inflating.decompress(stored, section.size + 1)
    except zlib.error:
        raise BadBundle(f"its section {section.name!r} is not compressed as sections are") from None
    if len(content) != section.size or not inflating.eof or inflating.unused_data:
        raise BadBundle(f"its section {section.name!r} has another size than the manifest says")
    return content


def read_rows(content: bytes, section: Section) -> list[list[Any]]:
    """Read the rows of a section: each line is a JSON list."""
    if section.size and not content.endswith(b"\n"):
        raise BadBundle(f"its section {section.name!r} ends in the middle of a line")
    if content.count(b"\n") != section.rows:
        raise BadBundle(f"its section {section.name!r} has more or fewer rows than the manifest says")
    rows: list[list[Any]] = []
    _check_rows(content, section.name)
    for place, line in enumerate(text_of(content, f"section {section.name!r}").splitlines(), 1):
        row = read_json(line, f"row {place} of {section.name!r}")
        if type(row) is not list:
            raise BadBundle(f"row {place} of {section.name!r} is no list")
        rows.append(row)
    if len(rows) != section.rows:
        raise BadBundle(f"its section {section.name!r} has more or fewer rows than the manifest says")
    return rows


def _check_rows(content: bytes, name: str) -> None:
    """Check that no row takes much more room than its bytes when it is read, or is read again."""
    if len(content) <= _MOST_OPENED:
        return
    begins = 0
    while begins < len(content):
        ends = content.find(b"\n", begins) + 1 or len(content)
        if ends - begins > _MOST_ROW:
            raise BadBundle(f"a row of {name!r} has more than {size(_MOST_ROW)}")
        if not is_modest(content, begins, ends):
            raise BadBundle(f"a row of {name!r} has more than {_MOST_OPENED:,} lists and objects in it")
        begins = ends


def is_modest(content: bytes, begins: int = 0, ends: int | None = None) -> bool:
    """Does JSON take no more room than rows may, when it is read?"""
    ends = len(content) if ends is None else ends
    # Those inside strings are counted too, because most of them are JSON, which is read later.
    return ends - begins <= _MOST_OPENED or (
        ends - begins <= _MOST_ROW
        and content.count(b"[", begins, ends) + content.count(b"{", begins, ends) <= _MOST_OPENED
    )


def read_decisions(file: BinaryIO, head: Head) -> list[Decision]:
    """Read the decisions behind the sections; what is no decision is refused."""
    file.seek(head.ends)
    content = file.read(_MOST_DECIDED + 1)
    if len(content) > _MOST_DECIDED:
        raise BadBundle(f"more than {size(_MOST_DECIDED)} stand behind its sections")
    if content and not content.endswith(b"\n"):
        raise damaged("it ends in the middle of a decision, or has more behind its sections than decisions")
    if content.count(b"\n") > _MOST_DECISIONS:
        raise BadBundle(f"more than {_MOST_DECISIONS:,} decisions stand behind its sections")
    lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
    _check_decided(lines)
    found = []
    for line in lines:
        told = _object(line, "a decision")
        signed = _signed(told, "a decision", {"decision", "key", "by", "signature"})
        found.append(Decision(_bytes(told["decision"], "a decision"), signed, line))
    return found


def signed_decisions(head: Head, decisions: Sequence[Decision]) -> Iterator[tuple[Decision, bytes]]:
    """Give each decision with what its signature is for: this bundle, all decisions before it, and the decision."""
    past = hashlib.sha256(head.text)
    for each in decisions:
        yield each, to_sign("decision", each.signed.key, each.signed.by, past.digest() + each.content)
        past.update(each.line)


# Receipts: the word of a store that a move came to it


@dataclass(frozen=True, slots=True)
class Receipt:
    """The text of a receipt: three lines, of which the last is the signature of the others."""

    bundle: str
    run: str
    source: str
    destination: str
    imported_at: int

    def signed(self, signer: Signer) -> bytes:
        """Write it as a file."""
        text = _RECEIPT + to_line({name: getattr(self, name) for name in _RECEIPT_SAYS})
        signature = signer.sign(to_sign("receipt", signer.id, signer.name, text))
        return text + to_line({"key": signer.id, "by": signer.name, "signature": _base64(signature)})


_RECEIPT_SAYS: Final[dict[str, Callable[[Any], bool]]] = {
    "bundle": _MANIFEST["id"],
    "run": lambda value: type(value) is str and is_run_id(value),
    "source": _MANIFEST["source"],
    "destination": _MANIFEST["source"],
    "imported_at": _MANIFEST["made_at"],
}


def read_receipt(content: bytes) -> tuple[Receipt, Signed, bytes]:
    """Read a receipt, its signature, and the bytes signed, which are to be checked; `BadBundle` unless it is whole."""
    lines = content.splitlines(keepends=True)
    if lines[:1] != [_RECEIPT]:
        raise BadBundle("this is not a receipt: its first line is another one")
    if len(lines) != 3 or len(content) > _MOST_RECEIPT or not content.endswith(b"\n"):
        raise BadBundle("the receipt is not whole: it has three lines")
    told = _object(lines[1], "the receipt")
    if list(told) != list(_RECEIPT_SAYS) or not all(fits(told[name]) for name, fits in _RECEIPT_SAYS.items()):
        raise BadBundle("the receipt does not say what receipts say")
    signed = _signed(_object(lines[2], "the signature"), "the signature", {"key", "by", "signature"})
    return Receipt(**told), signed, to_sign("receipt", signed.key, signed.by, lines[0] + lines[1])


def _short(value: object) -> str:
    return ascii(value)[:60] if isinstance(value, str | int | float | bool | None) else type(value).__name__


@dataclass(slots=True)
class Rows:
    """Sections on their way into a bundle: rows are added, and become lines."""

    _lines: dict[str, list[bytes]] = field(default_factory=dict)

    def add(self, section: str, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows to a section, which is there from then on even if it has none."""
        self._lines.setdefault(section, []).extend(to_line(list(row)) for row in rows)

    def sections(self) -> dict[str, tuple[int, bytes]]:
        """Give each section with its number of rows and its content."""
        found = {name: (len(lines), b"".join(lines)) for name, lines in self._lines.items()}
        for name, (_, content) in found.items():
            _check_rows(content, name)  # nobody could read it
        return found

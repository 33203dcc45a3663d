"""Parts: how the whole input of a call is kept, although each call of a conversation is given all of it again.

Look here for what stands in an event under `inputs`, how it is made (`Memory.tell`) and how it is read (`expanded`, `filled`).
Pure: texts in, trees out.

An input is told by what is new in it. It is the text that the codec writes, parsed, in which these stand for more:

    {"$part": digest}                                    kept in the store once, whichever runs name it
    {"$value": [seq, name, ..]}                          in the value of an event of this run, at that path; -1: its arguments
    {"$list": [piece, ..]}                               a list, told by pieces:
        [seq, from, to]                                      a slice of the list at the same place of the inputs of that event
        [seq, from, to, [name, ..]]                          or of the one at this place
        [seq]   [seq, name, ..]                              one element: the value of that event, or what is in it at that path
        {"+": [..]}                                          new elements; a part, if there are many

None of them can be mistaken for a value: the codec writes no dict of a user's that has one key which begins with a "$".

A text, and a dict that is still over 256 bytes without its own large elements, is a part. Its digest is made of its text, in which
large elements stand as parts: so a part names only parts, means the same in every run, and can be shared. What the run has
recorded already, such as the answer of a model that comes back in the next request, needs no copy, and most of what a call is
given was there in the call before. Lists are therefore told by slices, wherever the new elements stand: a conversation that grows,
loses its middle or gets another beginning costs what is new in it.

Slices name calls before, which may name others. So reading takes time with the number of calls in between; only people
read inputs, and nothing has to be kept twice. A `Memory` is made again from the journal by the same events that made it
before, so a run that was parked goes on as it did.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from holdfast.errors import NotStorable
from holdfast.values.tagged import DEPTH_LIMIT

LEAST: Final = 256  # characters: what is larger is told by a name for it
ARGUMENTS: Final = -1  # instead of the number of an event: the arguments of the run
_LONG: Final = 4  # elements of a list that is worth slices
_SLICED: Final = 20_000  # elements of a list that is looked through for slices; a longer one is a part
_PIECE: Final = 8_192  # characters of new elements that stand in the event itself
_LEAST_SLICE: Final = 48  # characters that a slice must save
_LISTS: Final = 256  # that are remembered, the last ones
_ELEMENTS: Final = 500_000  # of these together
_VALUES: Final = 20_000  # large elements of recorded values that are remembered, the last ones
_MOST_ELEMENTS: Final = 1_000_000  # of a list that is read
_MOST_COPIES: Final = 200_000_000  # of elements, while slices of slices are read
_MOST_CHARACTERS: Final = 256 * 1024 * 1024  # of an input that is read
_IN_A_LIST: Final = 2  # how deep the elements of a list stand in an input that is a dict
_DIGEST: Final = re.compile(r"[A-Za-z0-9_-]{22}")

_encode: Final = json.JSONEncoder(
    ensure_ascii=True, allow_nan=False, check_circular=False, separators=(",", ":")
).encode

Path = tuple[Any, ...]


def digest_of(text: str) -> str:
    """Name a part by its text: 128 bits in 22 characters."""
    return base64.urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=16).digest())[:22].decode()


class Told(NamedTuple):
    """An input as its event has it, and the parts that the store may not have yet."""

    tree: Any
    parts: dict[str, str]


class _Node:
    """One value in an input. `mark` is the text that stands for it inside others: its own, or that of a part.

    Only a value that has large ones in it has `children`: a list of a million numbers is one text.
    """

    __slots__ = ("children", "has_long", "mark", "merkle", "size", "tree")
    mark: str

    def __init__(self, tree: Any, depth: int = 0, made: Sequence[_Node | Element] = ()) -> None:
        """Look at a value. `made`: those in it were looked at before."""
        self.tree, self.has_long, kind = tree, False, type(tree)
        self.children: Sequence[_Node | Element] = []
        if kind is not dict and kind is not list:
            self.merkle = encode_basestring_ascii(tree) if kind is str else _encode(tree)
            self.size = len(self.merkle)
        else:
            inner = list(tree.values()) if kind is dict else tree
            if made or (depth < DEPTH_LIMIT and len(tree) <= _SLICED and any(map(_may_be_large, inner))):
                self._join(made or [_Node(each, depth + 1) for each in inner])
            else:
                self.merkle = _encode(tree)
                self.size = len(self.merkle)
            if self.size > LEAST and kind is list:
                self.has_long = _LONG <= len(tree) <= _SLICED
        self.mark = _mark(self.merkle)

    def _join(self, children: Sequence[_Node | Element]) -> None:
        """Make the text of a value of those in it. None is written a second time, however deep it stands."""
        pieces = [child.mark for child in children]
        self.size = sum([child.size for child in children]) + max(len(children) - 1, 0) + 2
        if type(self.tree) is dict:
            names = list(map(encode_basestring_ascii, self.tree))
            self.merkle = "{" + ",".join([f"{name}:{mark}" for name, mark in zip(names, pieces, strict=True)]) + "}"
            self.size += sum(map(len, names)) + len(names)
        else:
            self.merkle = _listed(pieces)
        if self.size > LEAST:
            self.children = children
            self.has_long = type(self.tree) is dict and any(child.has_long for child in children)

    @property
    def digest(self) -> str:
        return self.mark[10:32]

    @property
    def is_part(self) -> bool:
        return len(self.merkle) > LEAST

    def elements(self) -> Sequence[_Node | Element]:
        """Make the elements of a list nodes, if none of them was large enough before."""
        return self.children or [_Node(each) for each in self.tree]

    def whole(self) -> _Node:
        """The value itself, which an element that was told before must make again."""
        return self


class Element:
    """An element of a list that grows from call to call, such as a message: it is written once, however often it is told.

    `text` writes it, as the codec does for what stands in a list in the input. What is made of that is dropped once the element was
    told, because from then on its mark is enough; should it be needed again, it is written again.
    """

    __slots__ = ("_node", "_text", "has_long", "is_large", "length", "mark", "size")

    def __init__(self, text: Callable[[], str]) -> None:
        self._text, written = text, text()
        self._node: _Node | None = _Node(json.loads(written), _IN_A_LIST)
        self.length, self.is_large = len(written), _may_be_large(self._node.tree)
        self.mark, self.size, self.has_long = self._node.mark, self._node.size, self._node.has_long

    def whole(self) -> _Node:
        return self._node or _Node(json.loads(self._text()), _IN_A_LIST)

    def text(self) -> str:
        """The text of it, written anew."""
        return self._text()

    def was_told(self) -> None:
        """Keep only what an element is known by."""
        self._node = None


class Growing:
    """An input that is a dict, whose first value is a list that grows from call to call."""

    __slots__ = ("_elements", "_head", "_tail")

    def __init__(self, name: str, elements: list[Element], more: str) -> None:
        """Name the list and its elements; `more` is the text of a dict of all else."""
        self._elements, self._head = elements, f"{{{_encode(name)}:["
        self._tail = "]}" if more == "{}" else f"],{more[1:]}"

    def __len__(self) -> int:
        """The length of its text."""
        inner = sum([each.length for each in self._elements]) + max(len(self._elements) - 1, 0)
        return len(self._head) + inner + len(self._tail)

    def text(self) -> str:
        """The text of it, as the codec writes it."""
        return self._head + ",".join([each.text() for each in self._elements]) + self._tail

    def node(self) -> _Node:
        """Make a node of it without looking again at elements that were told."""
        elements = self._elements
        if len(elements) > _SLICED or not any(each.is_large for each in elements):
            return _Node(json.loads(self.text()))
        listed = _Node(elements, _IN_A_LIST - 1, elements)
        if listed.size <= LEAST:
            return _Node(json.loads(self.text()))  # a short list is told by its tree, any other by its elements
        tree = json.loads(self._head + self._tail)
        _, *rest = tree.values()
        return _Node(tree, 0, [listed, *(_Node(each, _IN_A_LIST - 1) for each in rest)])


def _may_be_large(value: Any) -> bool:
    """Can the text of a value be over the limit? An escaped character takes six."""
    return 6 * len(value) + 2 > LEAST if type(value) is str else type(value) in (dict, list) and bool(value)


def _mark(merkle: str) -> str:
    return merkle if len(merkle) <= LEAST else f'{{"$part":"{digest_of(merkle)}"}}'


def _listed(marks: Iterable[str]) -> str:
    return f"[{','.join(marks)}]"


class _List:
    """A list of an earlier call: where it stands, and the marks of its elements."""

    __slots__ = ("forgotten", "marks", "path", "seq")

    def __init__(self, seq: int, path: Path, marks: list[str]) -> None:
        self.seq, self.path, self.marks, self.forgotten = seq, path, marks, False


class Memory:
    """Events of one run, as far as inputs can be told by them. `saw` takes them in order; `tell` tells the next input."""

    __slots__ = ("_index", "_last", "_lists", "_marks", "_pieces", "_places", "_remembered", "_stored")

    def __init__(self) -> None:
        self._places: dict[str, Path] = {}  # of large elements of recorded values, by mark
        self._marks: dict[Path, str] = {}  # and the other way
        self._lists: dict[tuple[int, Path], _List] = {}  # the last ones, in order
        self._last: dict[Path, _List] = {}  # of these the last at each place
        self._remembered = 0  # their elements
        self._index: dict[str, tuple[_List, int]] = {}  # which list has an element, by mark
        self._stored: set[str] = set()  # parts that this run is known to use
        self._pieces: dict[str, list[str]] = {}  # of parts that are new elements of a list: their marks

    # What was recorded

    def saw(self, seq: int, inputs: Any = None, value: str | None = None) -> None:
        """Take in an event: the inputs it has, and its value."""
        if inputs is not None:
            self._remember_lists(seq, inputs, ())
        if value is not None and len(value) > LEAST and not value.startswith('{"$blob":'):
            self._remember_values(_Node(json.loads(value)), (seq,))
            if len(self._places) > _VALUES:
                for mark in list(self._places)[: len(self._places) - _VALUES]:
                    self._marks.pop(self._places.pop(mark), None)

    def _remember_values(self, element: _Node | Element, path: Path) -> None:
        node = element.whole()
        if node.size <= LEAST:
            return
        self._places.setdefault(node.mark, path)
        if self._places[node.mark] == path:
            self._marks[path] = node.mark
        names: Iterable[Any] = node.tree if type(node.tree) is dict else range(len(node.children))
        for name, child in zip(names, node.children, strict=False):
            self._remember_values(child, (*path, name))

    def _remember_lists(self, seq: int, told: Any, path: Path) -> None:
        """Remember the lists of an input that was told, and the parts it names."""
        if type(told) is list:
            for place, each in enumerate(told):
                self._remember_lists(seq, each, (*path, place))
        if type(told) is not dict:
            return
        if len(told) == 1:
            ((name, inner),) = told.items()
            if name == "$part":
                self._stored.add(inner)
                return
            if name == "$value":
                return
            if name == "$list":
                marks = self._marks_of(inner, path)
                if marks is not None:
                    self._remember(_List(seq, path, marks))
                return
        for name, inner in told.items():
            self._remember_lists(seq, inner, (*path, name))

    def _marks_of(self, pieces: list[Any], own: Path | None) -> list[str] | None:
        """Find the marks of a list that was told; None if it names what is not remembered."""
        marks: list[str] = []
        for piece in pieces:
            found: list[str] | None
            if type(piece) is list and _is_slice(piece):
                path = own if len(piece) == 3 else tuple(piece[3])
                base = None if path is None else self._lists.get((piece[0], path))
                found = None if base is None else base.marks[piece[1] : piece[2]]
            elif type(piece) is list:
                mark = self._marks.get(tuple(piece))
                found = None if mark is None else [mark]
            elif type(piece["+"]) is dict:  # a part
                self._stored.add(piece["+"]["$part"])
                found = self._pieces.get(piece["+"]["$part"])
            else:
                each_mark = [self._mark_of(each) for each in piece["+"]]
                found = None if None in each_mark else [mark for mark in each_mark if mark is not None]
            if found is None:
                return None
            marks += found
        return marks

    def _mark_of(self, told: Any) -> str | None:
        """Find the mark of a value that was told; None if it names what is not remembered."""
        try:
            return _mark(self._merkle_of(told))
        except KeyError:
            return None

    def _merkle_of(self, told: Any) -> str:
        if type(told) is list:
            return _listed([_mark(self._merkle_of(each)) for each in told])
        if type(told) is not dict:
            return _encode(told)
        if len(told) == 1:
            ((name, inner),) = told.items()
            if name == "$part":
                self._stored.add(inner)
                return _encode(told)
            if name == "$value":
                return self._marks[tuple(inner)]
            if name == "$list":
                marks = self._marks_of(inner, None)
                if marks is None:
                    raise KeyError(name)
                return _listed(marks)
        return "{" + ",".join([f"{_encode(name)}:{_mark(self._merkle_of(each))}" for name, each in told.items()]) + "}"

    def _remember(self, found: _List) -> None:
        self._lists[found.seq, found.path] = self._last[found.path] = found
        self._remembered += len(found.marks)
        for place, mark in enumerate(found.marks):
            self._index[mark] = (found, place)
        while len(self._lists) > _LISTS or (self._remembered > _ELEMENTS and len(self._lists) > 1):
            oldest = self._lists.pop(next(iter(self._lists)))
            oldest.forgotten = True
            self._remembered -= len(oldest.marks)
            if self._last.get(oldest.path) is oldest:
                del self._last[oldest.path]
        if len(self._index) > 2 * self._remembered + 1000:
            self._index = {mark: at for mark, at in self._index.items() if not at[0].forgotten}

    # What is told next

    def tell(self, given: str | Growing) -> Told:
        """Tell an input, given as the codec's text. Nothing of it is remembered before an event has it (`saw`)."""
        parts: dict[str, str] = {}
        if len(given) <= LEAST:
            return Told(json.loads(given if isinstance(given, str) else given.text()), parts)
        root = _Node(json.loads(given)) if isinstance(given, str) else given.node()
        return Told(self._told(root, parts, ()), parts)

    def _told(self, element: _Node | Element, parts: dict[str, str], path: Path | None = None) -> Any:
        """Tell a value; `path` is where it stands, unless that is inside a list that is told by pieces."""
        node = element.whole()
        if node.size <= LEAST:
            return node.tree
        place = None if path == () else self._places.get(node.mark)
        if place is not None:
            return {"$value": list(place)}
        kind = type(node.tree)
        if kind is list and node.has_long:
            return self._told_list(node.elements(), parts, path)
        if kind is list and node.children and len(node.children) < _LONG:
            return [self._told(child, parts, _inside(path, n)) for n, child in enumerate(node.children)]
        if kind is dict and node.children and (path == () or node.has_long or not node.is_part):
            named = zip(node.tree, node.children, strict=True)
            return {name: self._told(child, parts, _inside(path, name)) for name, child in named}
        return self._part(node, parts)

    def _part(self, node: _Node, parts: dict[str, str]) -> Any:
        """Name a part, and have the store keep it with all parts in it."""
        if not node.is_part:  # it is short, and has parts in it
            for child in node.children:
                if child.size > LEAST:
                    self._part(child.whole(), parts)
            return json.loads(node.merkle)
        if node.digest not in self._stored and node.digest not in parts:
            parts[node.digest] = node.merkle
            for child in node.children:
                if child.size > LEAST:
                    self._part(child.whole(), parts)
        return {"$part": node.digest}

    def _told_list(self, children: Sequence[_Node | Element], parts: dict[str, str], path: Path | None) -> Any:
        pieces, new, place, marks = list[Any](), list[_Node](), 0, [child.mark for child in children]
        while place < len(children):
            found = self._slice(marks, place, path)
            value = None if found is not None else self._value_piece(children[place])
            if found is None and value is None:
                new.append(children[place].whole())
                place += 1
                continue
            if new:
                pieces.append(self._new(new, parts))
                new = []
            if found is None:
                pieces.append(value)
                place += 1
            else:
                base, start, count = found
                pieces.append([base.seq, start, start + count, *([] if base.path == path else [list(base.path)])])
                place += count
        if new:
            pieces.append(self._new(new, parts))
        return {"$list": pieces}

    def _value_piece(self, node: _Node | Element) -> list[Any] | None:
        """Name the place where an element was recorded, if its path cannot be taken for the bounds of a slice."""
        place = self._places.get(node.mark) if node.size > LEAST else None
        return list(place) if place is not None and (len(place) == 1 or type(place[1]) is str) else None

    def _slice(self, marks: list[str], place: int, path: Path | None) -> tuple[_List, int, int] | None:
        """Find the elements from this place on in a list that is remembered, as many as follow there too.

        First at this very place of the last list that stood here; then wherever the first of them stands.
        """
        found: tuple[_List, int, int] | None = None
        most = 0
        before = None if path is None else self._last.get(path)
        candidates = [] if before is None or place >= len(before.marks) else [(before, place)]
        if at := self._index.get(marks[place]):
            candidates.append(at)
        for base, start in candidates:
            if base.forgotten or base.marks[start] != marks[place]:
                continue
            count, end = 1, min(len(marks) - place, len(base.marks) - start)
            while count < end and base.marks[start + count] == marks[place + count]:
                count += 1
            if count > most:
                most, found = count, (base, start, count)
        saved = sum(map(len, marks[place : place + most]))
        return found if saved >= _LEAST_SLICE else None

    def _new(self, nodes: list[_Node], parts: dict[str, str]) -> Any:
        """Tell elements that are new: where they stand; or, if that is much and nothing of it is in the run, as one part."""
        if sum(len(node.mark) for node in nodes) > _PIECE and not any(map(self._is_recorded, nodes)):
            text = _listed([node.mark for node in nodes])
            digest = digest_of(text)
            if digest not in self._stored:
                parts[digest] = text
                for node in nodes:
                    if node.size > LEAST:
                        self._part(node, parts)
            self._pieces[digest] = [node.mark for node in nodes]
            if len(self._pieces) > _LISTS:
                del self._pieces[next(iter(self._pieces))]
            return {"+": {"$part": digest}}
        return {"+": [self._told(node, parts) for node in nodes]}

    def _is_recorded(self, element: _Node | Element) -> bool:
        if element.size <= LEAST:
            return False
        return element.mark in self._places or any(map(self._is_recorded, element.whole().children))


def _inside(path: Path | None, name: Any) -> Path | None:
    return None if path is None else (*path, name)


def _is_slice(piece: list[Any]) -> bool:
    return len(piece) in (3, 4) and type(piece[1]) is int and type(piece[2]) is int


# --- reading ---


def bases(told: Any) -> set[int]:
    """List the events whose inputs an input names."""
    return {piece[0] for pieces in _lists_in(told) for piece in pieces if type(piece) is list and _is_slice(piece)}


def _lists_in(told: Any) -> Iterator[list[Any]]:
    ahead = [told]
    while ahead:
        each = ahead.pop()
        if type(each) is dict and len(each) == 1 and "$list" in each:
            pieces = _checked_pieces(each["$list"])
            yield pieces
            ahead += [piece["+"] for piece in pieces if type(piece) is dict]
        elif type(each) is dict:
            ahead += each.values()
        elif type(each) is list:
            ahead += each


def _checked_pieces(pieces: Any) -> list[Any]:
    if type(pieces) is not list:
        raise _damaged(f"a list is told by {type(pieces).__name__}")
    for piece in pieces:
        if type(piece) is dict and piece.keys() == {"+"} and type(piece["+"]) in (list, dict):
            continue
        if type(piece) is not list or not piece or type(piece[0]) is not int:
            raise _damaged("a piece of a list is neither a slice, nor a value, nor new")
        if not _is_slice(piece):
            if any(type(name) not in (str, int) for name in piece):
                raise _damaged("a value has no place")
            continue
        path = piece[3] if len(piece) == 4 else []
        if (
            not 0 <= piece[1] <= piece[2]
            or type(path) is not list
            or any(type(name) not in (str, int) for name in path)
        ):
            raise _damaged("a slice has no bounds, or no place")
    return pieces


def _damaged(why: str) -> NotStorable:
    return NotStorable(f"the inputs of a call are damaged: {why}")


def expanded(seq: int, told: Any, inputs: Mapping[int, Any]) -> Any:
    """Replace the slices of an input by their elements. `inputs` has the inputs that it names, and all that these name.

    Raises `NotStorable` if one is missing or names a later one, and if there is more than any input has.
    """
    uses: dict[int, int] = {}  # how many inputs that are to be read name this one
    ahead, wanted = [(seq, told)], {seq: told}
    while ahead:
        later, tree = ahead.pop()
        for base in bases(tree):
            if not 0 <= base < later:
                raise _damaged(f"event {later} names the inputs of event {base}, which does not come before it")
            uses[base] = uses.get(base, 0) + 1
            if base not in wanted:
                if base not in inputs:
                    raise NotStorable(f"the inputs of event {base}, which event {later} names, are not there any more")
                wanted[base] = inputs[base]
                ahead.append((base, wanted[base]))
    known: dict[int, Any] = {}
    copies = [0]
    for place in sorted(wanted):
        named = bases(wanted[place])
        known[place] = _expanded(wanted[place], known, copies, ())
        for base in named:
            uses[base] -= 1
            if not uses[base]:
                del known[base]
    return known[seq]


class _Spread(NamedTuple):
    """Elements of a list that are in a part; how many is known when that is read."""

    part: Any


class _Cut(NamedTuple):
    """A slice of a list that has such elements."""

    whole: list[Any]
    start: int
    end: int


def _expanded(told: Any, known: Mapping[int, Any], copies: list[int], path: Path | None, depth: int = 0) -> Any:
    if depth > DEPTH_LIMIT:
        raise _damaged("they are nested too deeply")
    deeper = depth + 1
    if type(told) is list:
        return [_expanded(each, known, copies, _inside(path, n), deeper) for n, each in enumerate(told)]
    if type(told) is not dict:
        return told
    if len(told) != 1 or "$list" not in told:
        return {name: _expanded(each, known, copies, _inside(path, name), deeper) for name, each in told.items()}
    made: list[Any] = []
    for piece in told["$list"]:
        if type(piece) is list and _is_slice(piece):
            where = path if len(piece) == 3 else piece[3]
            if where is None:
                raise _damaged("a slice has no place")
            made += _sliced(known[piece[0]], where, piece[1], piece[2])
        elif type(piece) is list:
            made.append({"$value": piece})
        elif type(piece["+"]) is list:
            made += [_expanded(each, known, copies, None, deeper) for each in piece["+"]]
        else:
            made.append(_Spread(piece["+"]))
    copies[0] += len(made)
    if len(made) > _MOST_ELEMENTS or copies[0] > _MOST_COPIES:
        raise _damaged("a list has more elements than any that was written")
    return made


def _sliced(tree: Any, path: Sequence[Any], start: int, end: int) -> list[Any]:
    for name in path:
        try:
            tree = tree[name]
        except (LookupError, TypeError):
            raise _damaged(f"there is no {name!r} where a slice looks for it") from None
    spread = type(tree) is list and any(type(each) in (_Spread, _Cut) for each in tree)
    if type(tree) is not list or (end > len(tree) and not spread):
        raise _damaged("a slice names what is no list, or is shorter")
    return [_Cut(tree, start, end)] if spread else tree[start:end]


class Needed(NamedTuple):
    """Names of what must be read before an input can be put together: parts by digest, values by event."""

    parts: set[str]
    values: set[int]


_INSIDE: Final = (list, dict, _Spread, _Cut)


def needed(tree: Any, parts: Mapping[str, Any]) -> Needed:
    """List what an expanded input names and `parts`, which were read and parsed, does not have."""
    found = Needed(set(), set())
    ahead, seen = [tree], set[str]()
    while ahead:
        each = ahead.pop()
        if type(each) is _Spread or type(each) is _Cut:
            ahead.append(each[0])
        elif type(each) is list:
            ahead += [inner for inner in each if type(inner) in _INSIDE]
        elif type(each) is dict:
            named = _named(each)
            if named is None:
                ahead += [inner for inner in each.values() if type(inner) in _INSIDE]
            elif named[0] == "$value":
                found.values.add(named[1][0])
            elif named[1] not in parts:
                found.parts.add(named[1])
            elif named[1] not in seen:
                seen.add(named[1])
                ahead.append(parts[named[1]])
    return found


def _named(each: dict[str, Any]) -> tuple[str, Any] | None:
    if len(each) != 1:
        return None
    ((name, inner),) = each.items()
    if name == "$part":
        if type(inner) is not str or not _DIGEST.fullmatch(inner):
            raise _damaged("a part has no digest")
        return name, inner
    if name == "$value":
        if type(inner) is not list or not inner or any(type(part) not in (str, int) for part in inner):
            raise _damaged("a value has no place")
        if type(inner[0]) is not int or inner[0] < ARGUMENTS:
            raise _damaged("a value has no event")
        return name, inner
    return None


def parsed(digest: str, text: str) -> Any:
    """Parse a part that was read, if its text is the one that its digest names."""
    if digest_of(text) != digest:
        raise _damaged(f"the part {digest} is not what its digest says")
    return json.loads(text)


class _Filler:
    """Puts parts and values in place, and counts: a few parts that name each other could stand for more than memory has."""

    def __init__(self, parts: Mapping[str, Any], values: Mapping[int, Any]) -> None:
        self._parts, self._values, self._left = parts, values, _MOST_CHARACTERS
        self._sizes: dict[int, int] = {}

    def fill(self, tree: Any, depth: int = 0) -> Any:
        kind = type(tree)
        if depth > 2 * DEPTH_LIMIT:
            raise _damaged("they are nested too deeply")
        if kind is list:
            made: list[Any] = []
            for each in tree:
                if type(each) is _Spread:
                    made += self._elements(each.part, depth)
                elif type(each) is _Cut:
                    made += self.fill(each.whole, depth + 1)[each.start : each.end]
                else:
                    made.append(self.fill(each, depth + 1))
            self._count(len(made))
            return made
        if kind is not dict:
            self._count(len(tree) if kind is str else 8)
            return tree
        named = _named(tree)
        if named is None:
            self._count(sum(map(len, tree)))
            return {name: self.fill(each, depth + 1) for name, each in tree.items()}
        if named[0] == "$part":
            if named[1] not in self._parts:
                raise NotStorable(f"the part {named[1]} of the inputs is not in the store any more")
            return self.fill(self._parts[named[1]], depth + 1)
        return self._value(named[1])

    def _elements(self, part: Any, depth: int) -> list[Any]:
        found = self.fill(part, depth + 1)
        if type(found) is not list:
            raise _damaged("a part that stands for elements is no list")
        return found

    def _value(self, place: list[Any]) -> Any:
        seq, *path = place
        if seq not in self._values:
            raise NotStorable(f"the value of event {seq}, which the inputs name, is not there any more")
        tree = self._values[seq]
        for name in path:
            try:
                tree = tree[name]
            except (LookupError, TypeError):
                raise _damaged(f"event {seq} has no {name!r} where the inputs look for it") from None
        if id(tree) not in self._sizes:  # `values` keeps it alive
            self._sizes[id(tree)] = len(_encode(tree))
        self._count(self._sizes[id(tree)])
        return tree

    def _count(self, characters: int) -> None:
        self._left -= characters + 1
        if self._left < 0:
            raise _damaged("they are larger than any value that is stored")


def filled(tree: Any, parts: Mapping[str, Any], values: Mapping[int, Any]) -> str:
    """Put parts and values, which were read and parsed, into an expanded input; returns the codec's text."""
    try:
        return _encode(_Filler(parts, values).fill(tree))
    except RecursionError:
        raise _damaged("they are nested too deeply") from None


def parts_in(told: Any) -> set[str]:
    """List the parts that an input names itself; what these name is in their texts."""
    found: set[str] = set()
    ahead = [told]
    while ahead:
        each = ahead.pop()
        if type(each) is dict and len(each) == 1 and "$part" in each:
            found.add(str(each["$part"]))
        elif type(each) is dict:
            ahead += each.values()
        elif type(each) is list:
            ahead += each
    return found

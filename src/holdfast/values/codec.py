"""The codec: a value becomes text and comes back the same.

Look here when a value is refused, is stored otherwise than expected, or when a changed type makes a recorded call diverge.

One text format (`holdfast.values.tagged`), two ways into it. A plain value is written as it is. A value of an annotated type
is first taken apart by pydantic, into plain data with all of its fields, and what is read back goes through the type's
validation. pydantic loses things in silence: secrets become stars, fields of a subclass drop, a tuple becomes a list. So
when a value is first stored it is read back and compared, part by part; if it came back as anything else, it is refused
with the path and the reason.

Three texts. Types change while runs wait, and a call must be recognised all the same. So an input is written in three ways, and
its record has a digest of each. A call is the recorded one if any of the three is equal (`Call.is_of`). Where a type has no
defaults, all are one text and only `digest` is kept.

    text       digest of it   has which fields                                stays the same when
    identity   digest         all that are not at their default               a field with a default is added
    whole      whole_digest   all                                             a default changes, and the code gives the old one
    lean       lean_digest    as `identity`, with less of a member of a union a field with a default is added to that member

For example `Order(item: str, count: int = 1)`. `Order("tea")` has the identity {"item":"tea"} and the whole text
{"item":"tea","count":1}. When the default becomes 2 and the code now says `Order("tea", count=1)`, its identity is another one
and its whole text is the same. The whole text is what is kept, shown and returned, so that a default that changes later
changes nothing that was recorded.

An identity must be readable too, because that is how it is known to lose nothing. Of a union `Card | Cash`, whose members a field
`kind: Literal["cash"] = "cash"` tells apart, pydantic cannot read a `Cash` without its `kind`, so such an identity has every field
at its default: {"number":"4","kind":"cash","limit":0}. To add a field to `Cash` moves it. The lean text has of these
fields only the ones that tell members apart, {"number":"4","kind":"cash"}, and stays. It came last: digests that were
recorded must not move.

Notes. The whole text also has notes that no reader sees but the type: which fields of a pydantic model nobody set
(`model_fields_set`), which member of a union it is (`values/unions.py`), and which fields are at a default that is not of their
type (`str = None`). The type would not read the last as they are, so they are left to it as long as that is its default.
"""

from __future__ import annotations

import contextlib
import difflib
import enum
import functools
import hashlib
import inspect
import json
import re
import typing
from collections import abc, deque
from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Self, Union, get_args, get_origin
from zoneinfo import ZoneInfo

from holdfast.errors import NotStorable
from holdfast.values import tagged
from holdfast.values.exact import exact_check, is_untyped
from holdfast.values.fields import (
    Stranger,
    advice,
    fields_of,
    has_own_validator,
    is_renamed,
    left_away,
    left_over,
    made_fields,
    notes_of,
    restore_notes,
    stranger,
    structures,
)
from holdfast.values.sameness import Added, Difference, difference, lost, twins
from holdfast.values.tagged import AROUND, BLOB_BYTES, DEFAULT_LIMIT_BYTES, DEPTH_LIMIT, Note, Notes, Refused
from holdfast.values.text import ATOMS, annotation_name, cut, segment, short, show, size, spell, type_name
from holdfast.values.unions import alike, by_names, parts_of, telling

__all__ = [
    "BLOB_BYTES", "DEFAULT_LIMIT_BYTES", "DEPTH_LIMIT", "UNTYPED", "Migrate", "Misfit", "Shape", "Unknown",
    "arguments_text", "checked_size", "digest", "hashed", "preview", "schemas", "shape_of",
]  # fmt: skip

Migrate = Callable[[Any], Any]  # plain data of old in, plain data or a value of today out
_NOTED_KIND: Final = '{"$of":['  # a quote inside a string is escaped, so this is nowhere else
_HALF: Final = "\\ud"  # half of a character, as JSON escapes it: of any that has more than 16 bits, and of some others
_PAIR: Final = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_DIGEST: Final = hashlib.sha256(b"holdfast-value-1\n")  # what every digest begins with
LIMITS: Final = (
    "gt",
    "ge",
    "lt",
    "le",
    "multiple_of",
    "max_digits",
    "decimal_places",
)  # of a type, as pydantic calls them
_FOR_RESULTS: Final = "return plain data, a dataclass or a pydantic type"
_FOR_ARGUMENTS: Final = "pass plain data, a dataclass or a pydantic type, or mark the parameter Local[...]"


class Misfit(NotStorable):
    """A value that is not of the annotated type. Callers of arguments make it `BadArguments`; others never see it."""

    def __init__(self, message: str, path: str, found: str, expected: str, reason: str = "") -> None:
        super().__init__(message)
        self.path, self.found, self.expected, self.reason = path, found, expected, reason


class Unknown(Misfit):
    """Plain data has a key for which its type has no field. To go on without it would be to drop it silently."""


class Shape:
    """Stores and reads the values of one annotation."""

    __slots__ = (
        "_adapter", "_by_names", "_declared", "_fits", "_has_notes", "_kinds", "_makes_decimals", "_makes_fields", "_trusted",
        "annotation", "has_defaults", "name", "telling",
    )  # fmt: skip

    def __init__(self, annotation: Any = Any) -> None:
        self.annotation, self.name = annotation, annotation_name(annotation)
        self._fits = exact_check(annotation)
        self._adapter: Any = None
        self.has_defaults = False  # can the two texts differ? Known once there is an adapter
        self._has_notes = self._makes_fields = self._makes_decimals = False
        self._kinds = frozenset[type]()  # members of unions that are noted
        self._by_names: Any = None
        self._declared: dict[
            tuple[Any, Any], bool
        ] = {}  # of fields at their default, by type and name: are they noted?
        self.telling = frozenset[str]()  # fields that tell members of unions apart, and may be at their default
        self._trusted = has_own_validator(annotation)  # with a validator that takes whatever it likes

    def __repr__(self) -> str:
        return f"<shape {self.name}>"

    def store(self, value: Any, where: str = "result", *, argument: bool = False) -> tuple[str, Any]:
        """The value as text, all of it, and the copy that the running code goes on with.

        Raises `NotStorable`; for an argument that is not of its annotated type, `Misfit`.
        """
        if self._fits is not None and self._fits(value):
            text = _written(value, where, argument, tagged.refuse)
            if _HALF in text:
                _check_halves(value, text, where)
            return text, value if type(value) in ATOMS else tagged.read(text)
        return self._typed(value, where, argument, lean=False)

    def text(self, value: Any, where: str = "result", *, argument: bool = False) -> str:
        """Write a value as `store` does, without a copy where none is needed to be sure of the text."""
        if self._fits is not None and self._fits(value):
            text = _written(value, where, argument, tagged.refuse)
            if _HALF in text:
                _check_halves(value, text, where)
            return text
        return self._typed(value, where, argument, lean=False)[0]

    def identity(self, value: Any, where: str = "result", *, argument: bool = False) -> str:
        """The text that tells this value from others: without the fields that are at their default."""
        if self._fits is not None and self._fits(value):
            return _written(value, where, argument, tagged.refuse)
        return self._typed(value, where, argument, lean=True)[0]

    def lean(self, value: Any, where: str = "result", *, argument: bool = False) -> str:
        """Return an identity that has, of fields at their default, only the ones that tell the members of unions apart.

        And the names of members that no field tells apart. An `identity` of such a value has all of them, because without these
        it cannot be read: so it once was, and digests must not move.
        """
        copy = self.store(value, where, argument=argument)[1]
        plain, whole = (_dumped(self._adapter, copy, where, lean) for lean in (True, False))
        for holder, key, default in _left_out(plain, whole):
            if key in self.telling:
                holder[key] = default
        noted = [note for note in notes_of(plain, copy, self._kinds).values() if note.kind and type(note.data) is dict]
        try:
            kinds = {id(note.data): Note(note.data, kind=note.kind) for note in noted}
            text = _written(plain, where, argument, _leaf, kinds)
            self._read_back(text, copy, where, argument, zones=False, kinds=True)
        except NotStorable:
            return self.identity(value, where, argument=argument)
        return text.replace(_NOTED_KIND, '{"$member":[')  # no note, because digests do not have these

    def shown(self, value: Any, identity: str) -> Any:
        """A value that was stored, as plain data for people; `identity` is its text."""
        if self.has_defaults and not (self._fits is not None and self._fits(value)):
            with contextlib.suppress(NotStorable):
                return tagged.read(_written(_dumped(self._adapter, value, "value", False), "value", False, _leaf))
        return tagged.read(identity)

    def _typed(self, value: Any, where: str, argument: bool, *, lean: bool) -> tuple[str, Any]:
        try:
            return self._store(value, where, argument, lean)
        except Misfit as misfit:
            if argument:
                raise
            raise NotStorable(str(misfit)) from misfit.__cause__

    def _store(self, value: Any, where: str, argument: bool, lean: bool) -> tuple[str, Any]:
        try:
            adapter = self.adapter(where)
        except NotStorable:
            if self._fits is None:
                raise
            # A bytearray, which pydantic does not know, or a TypedDict before Python 3.12.
            reason = "a key, or the type of a value, is not as annotated" if type(value) is dict else ""
            raise _misfit(where, value, self.name, argument, reason) from None
        if not self.has_defaults:
            return self._checked(adapter, value, where, argument, False, True)
        try:
            return self._checked(adapter, value, where, argument, lean, not lean)
        except NotStorable as first:
            # A union whose members are told apart by a `kind` field is not read without it; a default that is a secret, or
            # that its type does not take, is not read with it.
            try:
                text, copy = self._checked(adapter, value, where, argument, not lean, not lean)
            except NotStorable as second:
                without, whole = (first, second) if lean else (second, first)
                root = isinstance(without, Misfit) and without.path == where  # for want of a default, perhaps
                raise (whole if root else without) from None
            return (text, copy) if lean else self._filled(adapter, value, where, argument, text, copy)

    def _filled(self, adapter: Any, value: Any, where: str, argument: bool, text: str, copy: Any) -> tuple[str, Any]:
        """The text without defaults, and every default that can be written with it: one that cannot costs no other.

        One that its type does not read as it is (`str = None`) is noted as such.
        """
        plain, whole = (_dumped(adapter, value, where, lean) for lean in (True, False))
        kinds = {id(data): type(made) for data, made in structures(plain, value)}
        of_a_kind = dict[tuple[Any, Any], list[_LeftOut]]()
        for found in _left_out(plain, whole):
            of_a_kind.setdefault((kinds.get(id(found[0])), found[1]), []).append(found)
        declared: Notes = {}

        def put(fields: list[_LeftOut], noted: bool | None = None) -> bool:
            """Can these be put in, noted or not, or each as is known of its kind? Then they are."""
            nonlocal text, copy
            before = dict(declared)
            for holder, key, default in fields:
                holder[key] = default
                if self._declared[kinds.get(id(holder)), key] if noted is None else noted:
                    note = declared.get(id(holder), Note(holder))
                    declared[id(holder)] = note._replace(default=[*note.default, key])
            try:
                notes = notes_of(plain, value, self._kinds) if self._has_notes else {}
                notes |= {at: notes.get(at, each)._replace(default=each.default) for at, each in declared.items()}
                tried = _written(plain, where, argument, _leaf, notes)
                text, copy = tried, self._read_back(tried, value, where, argument)
            except NotStorable:
                declared.clear()
                declared.update(before)
                for holder, key, _ in fields:
                    del holder[key]
                return False
            return True

        # What becomes of a field of one object becomes of it in all objects of that type: most often it is known already. If
        # not, one is tried, then all others at once.
        if of_a_kind.keys() <= self._declared.keys() and put(
            [each for fields in of_a_kind.values() for each in fields]
        ):
            return text, copy
        for kind, (first, *others) in of_a_kind.items():
            with contextlib.suppress(NotStorable):  # a default that cannot be written at all
                _written(first[2], where, argument, _leaf)
                noted = next((noted for noted in (False, True) if put([first], noted)), None)
                if noted is not None:
                    self._declared[kind] = noted
                if others and not (put(others, False) or put(others, True)) and noted is not None:
                    for each in others:
                        _ = put([each], False) or put([each], True)
        return text, copy

    def hidden(self, value: Any, text: str) -> str:
        """The first field of a value that its text does not have because its default cannot be written; "" if there is none."""
        if not self.has_defaults or (self._fits is not None and self._fits(value)):
            return ""
        plain = tagged.read(text)
        found = _left_out(plain, _plain(_dumped(self._adapter, value, "value", False)))
        return str(found[0][1]) if found else left_away(plain, value)

    def load(self, text: str, where: str = "value", *, migrate: Migrate | None = None, drop: bool = False) -> Any:
        """The value of a stored text. Raises `NotStorable` if the text is damaged or no longer fits the annotation.

        Data that does not fit is given to `migrate`, if there is one. `drop`: fields that the type does not know are dropped.
        """
        plain, notes = tagged.read_noting(text)
        try:
            return self.revive(plain, where, drop=drop, notes=notes)
        except NotStorable as misfit:
            if migrate is not None:
                return self._migrated(text, where, migrate)
            if isinstance(misfit, Misfit) and not isinstance(misfit, Unknown):
                raise NotStorable(str(misfit)) from misfit.__cause__
            raise

    def _migrated(self, text: str, where: str, migrate: Migrate) -> Any:
        plain, notes = tagged.read_noting(text)
        noted = [(name, note.data[name]) for note in notes.values() for name in note.default]
        declared = list({(name, tagged.write(each)): (name, each) for name, each in noted}.values())
        try:
            made = migrate(plain)
        except Exception as error:
            raise NotStorable(f"{where}: migrate raised {type_name(type(error))}: {cut(str(error), 200)}") from error
        try:
            is_plain = made is None or type(made) in ATOMS or type(made) in (dict, list, tuple, set, frozenset)
            return self.revive(made, where, notes=_noted_in(made, declared)) if is_plain else self.store(made, where)[1]
        except NotStorable as error:
            raise NotStorable(f"{where}: what migrate returned does not fit either: {error}") from None

    def revive(self, plain: Any, where: str = "value", *, drop: bool = False, notes: Notes | None = None) -> Any:
        """Plain data as a value of the annotated type: what fits is itself, the rest is validated (laxly).

        What the type has no field for is refused (`Unknown`), unless the type says that it is fine, or with `drop`.
        """
        if self._fits is not None and self._fits(plain):
            return plain
        value = self._revive(plain, where, drop, notes or {})
        if self._makes_fields:
            _check_made(plain, value, where)
        if self._makes_decimals:
            tagged.check_decimals(plain, lambda: _dumped(self._adapter, value, where, False), where)
        return value

    def _revive(self, plain: Any, where: str, drop: bool, notes: Notes) -> Any:
        if not notes:
            return self._valid(plain, where, drop)
        if any(note.names for note in notes.values()):
            plain = tagged.by_name(plain, notes)
        value = self._defaulted(plain, where, notes, lambda: self._valid(plain, where, drop))
        if not restore_notes(plain, value, notes):
            return value
        return self._as_noted(plain, where, notes, drop)

    def _defaulted(self, plain: Any, where: str, notes: Notes, read: Callable[[], Any]) -> Any:
        """Plain data as a value: what is noted as a default is left to the type, unless that has another default by now.

        Then it is read as any other field is. If the type does not take it, the data does not fit.
        """
        noted = [(note, dict(note.data)) for note in notes.values() if note.default]
        if not noted:
            return read()
        try:
            for note, whole in noted:
                _keep(note.data, {key: each for key, each in whole.items() if key not in note.default})
            value, today, first = None, dict[tuple[int, Any], Any](), None
            may_be: Added = added(None, None)
            try:
                value = read()
                dumped = _dumped(self._adapter, value, where, False)
                whole_now = _plain(dumped, notes_of(dumped, value, ()))
                left_out, may_be = _left_out(plain, whole_now), added(whole_now, value)
                today = {(id(holder), key): default for holder, key, default in left_out}
            except NotStorable as error:
                first = error
            changed = False
            for note, whole in noted:
                now = {key: today[id(note.data), key] for key in note.default if (id(note.data), key) in today}
                same = {key for key in now if lost(whole[key], now[key], may_be) is None}
                changed = changed or len(same) < len(note.default)
                _keep(note.data, {key: each for key, each in whole.items() if key not in same})
            if not changed:
                return value
            try:
                return read()
            except NotStorable:
                if first is not None and getattr(first, "found", "") != "nothing":  # not for want of a default
                    raise first from None
                raise
        finally:
            for note, whole in noted:
                _keep(note.data, whole)

    def _as_noted(self, plain: Any, where: str, notes: Notes, drop: bool) -> Any:
        """The value of the types that are noted, because it was read as one that has become like them. No other will do."""
        made = self._defaulted(plain, where, notes, lambda: self._by_notes(plain, where, notes, drop))
        other = restore_notes(plain, made, notes)
        if other:
            raise NotStorable(
                f"{where}: was recorded as {cut(other, 200)!r}, and {self.name} does not read it as that any more; "
                "say by migrate= what it has become"
            )
        return made

    def _by_notes(self, plain: Any, where: str, notes: Notes, drop: bool) -> Any:
        strictly = {} if drop else _strictly()
        for aliases in (False, True):
            with contextlib.suppress(Exception):  # of pydantic's core, and of the type's own validators
                if self._by_names is None:
                    self._by_names = by_names(self._adapter.core_schema, _library()[1].SchemaValidator)
                made = self._by_names(plain, notes, strict=False, by_alias=aliases, by_name=True, **strictly)
                fits = strictly or drop or self._trusted or stranger(plain, made, aliases=aliases) is None
                if fits and not restore_notes(plain, made, notes):
                    return made
        return self._valid(plain, where, drop)

    def _valid(self, plain: Any, where: str, drop: bool) -> Any:
        adapter = self._reader(plain, where)
        strictly = {} if drop else _strictly()
        try:
            # By name: an alias may differ between reading and writing, a field's name cannot.
            value = adapter.validate_python(plain, strict=False, by_alias=False, by_name=True, **strictly)
            if strictly:
                return value
        except RecursionError:
            raise NotStorable(f"{where}: is nested too deeply to be read as {self.name}") from None
        except Exception as error:  # noqa: BLE001 - the type's own validators may raise anything
            if not strictly:
                return self._by_alias(plain, where, error, drop=drop)
            return self._revived(plain, where, error)
        return self._known(plain, value, where, drop=drop)

    def _reader(self, plain: Any, where: str) -> Any:
        try:
            return self.adapter(where)
        except NotStorable:
            if typing.is_typeddict(self.annotation) and type(plain) is dict:  # before Python 3.12 pydantic knows none
                known = tuple(self.annotation.__annotations__)
                gone = next((key for key in plain if key not in known), None)
                if gone is not None:
                    raise _unknown(Stranger((), str(gone), known), where, self.name) from None
            raise

    def _revived(self, plain: Any, where: str, refused: Exception) -> Any:
        """Read once more, without the rule that there are no other fields: to know whether these are why, and which."""
        try:
            value = self._adapter.validate_python(plain, strict=False, by_alias=False, by_name=True)
        except Exception as error:  # noqa: BLE001 - as above
            return self._by_alias(plain, where, error, refused=refused)
        return self._known(plain, value, where, refused=refused)

    def _by_alias(
        self, plain: Any, where: str, error: Exception, *, drop: bool = False, refused: Exception | None = None
    ) -> Any:
        """Perhaps a field was renamed, and its alias is the name that it had."""
        try:
            value, whole = self._aliased(plain, drop)
        except Exception:  # noqa: BLE001 - as above
            raise _not_valid(error, plain, where, self.name, refused) from error
        return value if whole else self._known(plain, value, where, aliases=True, drop=drop)

    def _aliased(self, plain: Any, drop: bool) -> tuple[Any, bool]:
        """The value that is read with aliases, and whether pydantic has found a field for all of the data.

        Only the member of a union that has all fields is meant, so that is tried first.
        """
        if not drop and _strictly():
            with contextlib.suppress(Exception):
                return self._adapter.validate_python(
                    plain, strict=False, by_alias=True, by_name=True, **_strictly()
                ), True
        return self._adapter.validate_python(plain, strict=False, by_alias=True, by_name=True), False

    def _known(
        self, plain: Any, value: Any, where: str, *, aliases: bool = False, drop: bool = False,
        refused: Exception | None = None,
    ) -> Any:  # fmt: skip
        """The value, if nothing of the plain data was dropped; else that which is read with aliases, if that has it all."""
        found = None if drop else self._dropped(plain, value, aliases, refused)
        if not aliases and (found is not None or is_renamed(plain, value)):
            with contextlib.suppress(Exception):
                renamed, whole = self._aliased(plain, drop)
                if drop or whole or self._dropped(plain, renamed, True, refused) is None:
                    return renamed
        if found is None:
            return value
        raise _unknown(found, where, self.name)

    def _dropped(self, plain: Any, value: Any, aliases: bool, refused: Exception | None) -> Stranger | None:
        found = None if self._trusted else stranger(plain, value, aliases=aliases)
        if found is None and refused is not None and hasattr(refused, "errors"):
            # Below a validator of its own only pydantic knows what the validator has left of the data.
            errors = refused.errors(include_url=False, include_context=False)
            found = left_over([each["loc"] for each in errors if each["type"] in _NO_FIELD], value, aliases=aliases)
        return found

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the annotation; `{}` where anything goes."""
        adapter = _for_schema(self)
        return {} if adapter is None else dict(adapter.json_schema(by_alias=False, schema_generator=_generator()))

    def _checked(self, adapter: Any, value: Any, where: str, argument: bool, lean: bool, kept: bool) -> tuple[str, Any]:
        """A text that is read as the value: with defaults or without (`lean`), to be kept or to be an identity."""
        # What `==` takes for its default is left out of an identity, and in another zone it is read again.
        zones, noting = kept, self._kinds if kept and self._has_notes else None
        text = _taken_apart(adapter, value, where, argument, lean, noting)
        copy = self._read_back(text, value, where, argument, zones)
        again = _taken_apart(adapter, copy, where, argument, lean, noting)
        if again != text:
            # An int became the float it was annotated as, or the keys took the order of the type: settled, or unstable?
            text, copy = again, self._read_back(again, value, where, argument, zones)
            again = _taken_apart(adapter, copy, where, argument, lean, noting)
            if again != text:
                if tagged.bare(again) != tagged.bare(text):
                    raise NotStorable(f"{where}: {self.name} is written differently each time; check its serializers")
                text = tagged.bare(text)  # a validator of the type's own sets fields now and then
                copy = self._read_back(text, value, where, argument, zones)
        return text, copy

    def _read_back(
        self, text: str, value: Any, where: str, argument: bool, zones: bool = True, kinds: bool = False
    ) -> Any:
        plain, notes = tagged.read_noting(text)
        try:
            # Also without the help of notes, because there are none in an identity; but what they say of defaults must hold.
            notes = notes if kinds else {at: note._replace(kind="") for at, note in notes.items()}
            copy = self.revive(plain, where, notes=notes)
        except Misfit as misfit:
            if misfit.path != where:
                raise
            # Say what the value is, not what pydantic made of it.
            raise _misfit(where, value, self.name, argument, misfit.reason) from misfit
        try:
            found = difference(value, copy, zones=zones)
        except RecursionError:
            raise NotStorable(f"{where}: is nested too deeply to be stored from this depth of calls") from None
        if found:
            raise _lossy(found, value, where, self, argument)
        return copy

    def prepare(self, where: str) -> None:
        """Raise `NotStorable` now if no value of this annotation could ever be stored."""
        if self._fits is None:
            self.adapter(where)

    def promise(self, where: str) -> None:
        """Prepare before all modules are imported: a type that is not defined yet is no reason to raise."""
        try:
            self.prepare(where)
        except NotStorable as problem:
            undefined = ("PydanticUndefinedAnnotation", "class-not-fully-defined")
            if type(problem.__cause__).__name__ in undefined or getattr(problem.__cause__, "code", "") in undefined:
                return
            raise

    def adapter(self, where: str) -> Any:
        """The pydantic adapter of the annotation. Raises `NotStorable` if there is none."""
        if self._adapter is None:
            made = _adapter(self.annotation, self.name, where)
            parts = list(parts_of(made.core_schema))
            self._kinds = alike(parts)
            named = any(map(_is_named_tuple, parts))
            self.has_defaults = named or bool(self._kinds) or any(map(_is_default, parts))
            self.telling = telling(parts) | ({"$of"} if self._kinds else set()) if self.has_defaults else frozenset()
            self._has_notes = self.has_defaults and (
                named or bool(self._kinds) or any(part.get("type") == "model" for part in parts)
            )
            self._makes_fields = any(
                part.get("init") is False for part in parts if part.get("type") == "dataclass-field"
            )
            self._makes_decimals = any(part.get("type") == "decimal" for part in parts)
            self._adapter = made
        return self._adapter


# --- with pydantic ---


@functools.cache
def _strictly() -> dict[str, Any]:
    """The arguments that tell pydantic to refuse what has no field, if it can be told: then nothing need be looked through."""
    known = inspect.signature(_library()[0].TypeAdapter.validate_python).parameters
    return {"extra": "forbid"} if "extra" in known else {}


@functools.cache
def _library() -> tuple[Any, Any]:
    """Pydantic and its core, imported when the first value needs them: plain values never do."""
    import pydantic  # noqa: PLC0415 - slow to import
    import pydantic_core  # noqa: PLC0415 - slow to import

    return pydantic, pydantic_core


def _adapter(annotation: Any, name: str, where: str) -> Any:
    origin = get_origin(annotation) or annotation
    if origin in (abc.Iterable, abc.Collection):
        annotation = abc.Sequence[get_args(annotation)[0] if get_args(annotation) else Any]  # type: ignore[misc]
    try:
        made = _library()[0].TypeAdapter(annotation)
        if not made.pydantic_complete:
            made.rebuild()  # raises what was put off
        return made
    except Exception as error:  # pydantic has several classes for this, and a type's own hook may raise anything
        reason = str(error).splitlines()[0] if type(error).__name__ == "PydanticUserError" else ""
        local = "" if where == "result" else f", or mark the parameter Local[{name}]"
        raise NotStorable(
            f"{where}: {name} is annotated, and values of it cannot be stored; {_instead(annotation)}{local}"
            + (f" ({reason})" if reason else "")
        ) from error


_ROWS = (list, tuple, deque)
_NO_FIELD = ("extra_forbidden", "unexpected_keyword_argument")  # what pydantic calls that in a model, in a dataclass


def _instead(annotation: Any) -> str:
    """Advise what to annotate instead of a type that cannot be stored."""
    kinds = (bool, int, float, complex, str, bytes, dict, list, tuple, set, frozenset)
    plain = next((kind for kind in kinds if isinstance(annotation, type) and issubclass(annotation, kind)), None)
    if plain is None:
        return "annotate plain data, a dataclass or a pydantic type"
    return f"annotate {plain.__name__}, and convert the value with {plain.__name__}(...)"


def _is_default(part: dict[str, Any]) -> bool:
    """Can leaving out defaults make another text because of this? Also if a serializer of the type's own might ask for it."""
    asks = part.get("info_arg") and not str(getattr(part["function"], "__module__", "")).startswith("pydantic.")
    return part.get("type") == "default" or bool(asks)


def _is_named_tuple(part: dict[str, Any]) -> bool:
    return part.get("type") == "named-tuple" or (
        part.get("type") == "call" and hasattr(part.get("function"), "_fields")
    )


def _leaf(value: Any) -> Any:
    """Write what pydantic leaves as an object because only its type can read it: enums, paths, addresses, URLs."""
    if isinstance(value, enum.Enum):
        return value.value
    for plain in (dict, tuple, set, frozenset):
        if isinstance(value, plain):  # a Counter, an OrderedDict, a named tuple: its annotation makes it one again
            return plain(value)
    if isinstance(value, list | deque):
        return list(value)
    if hasattr(value, "get_secret_value"):
        raise Refused(
            f"{type_name(type(value))} is a secret and would be stored as stars; read it inside the step, or open what "
            "needs it as a resource"
        )
    if type(value) is ZoneInfo and value.key:
        return value.key
    if type(value).__module__ == "ipaddress":  # which older releases of pydantic do not know outside of a type
        return str(value)
    try:
        plain_value = _library()[1].to_jsonable_python(value)
    except (ValueError, TypeError):
        raise tagged.refusal(value) from None
    if type(plain_value) is type(value):
        raise tagged.refusal(value)
    return plain_value


def _taken_apart(
    adapter: Any, value: Any, where: str, argument: bool, lean: bool, noting: frozenset[type] | None
) -> str:
    plain = _dumped(adapter, value, where, lean)
    return _written(plain, where, argument, _leaf, None if noting is None else notes_of(plain, value, noting))


def _dumped(adapter: Any, value: Any, where: str, lean: bool) -> Any:
    try:
        return adapter.dump_python(
            value, mode="python", round_trip=True, by_alias=False, exclude_defaults=lean, warnings=False
        )
    except RecursionError:
        raise NotStorable(f"{where}: contains itself or is nested too deeply") from None
    except Exception as error:  # the type's own serializers may raise anything
        reason = str(error)
        if isinstance(error, TypeError) and "unhashable" in reason:
            reason = "models and dataclasses cannot be stored inside a set or as the keys of a dict; use a list"
        elif "ircular reference" in reason or "depth exceeded" in reason:
            reason = f"contains itself or is nested more than {DEPTH_LIMIT} levels deep"
        raise NotStorable(f"{where}: {cut(reason, 300)}") from error


_LeftOut = tuple[dict[Any, Any], Any, Any]


def _left_out(lean: Any, whole: Any) -> list[_LeftOut]:
    """The fields that only the whole data has: the object of the other that lacks each, its name and its value."""
    found, pairs = [], [(lean, whole)]
    while pairs:
        one, other = pairs.pop()
        if isinstance(one, dict) and isinstance(other, dict):
            own = twins(one, other)
            known = set(own.values())
            found += [(one, key, each) for key, each in other.items() if key not in known]
            pairs += [(one[key], other[twin]) for key, twin in own.items()]
        elif isinstance(one, _ROWS) and isinstance(other, (*_ROWS, dict)) and len(one) == len(other):
            # A named tuple may go by its names here and by position there.
            pairs += zip(one, other.values() if isinstance(other, dict) else other, strict=True)
    return found


def _check_made(plain: Any, value: Any, where: str) -> None:
    """Raise `NotStorable` if a dataclass has made something else of a field that it takes from nobody (`init=False`)."""
    for data, made in structures(plain, value):
        kind: Any = type(made)
        for name, hint in made_fields(kind).items():
            if isinstance(data, dict) and name in data:
                recorded = shape_of(hint).revive(data[name], f"{where}.{name}")
                found = difference(recorded, getattr(made, name, None))
                if found is not None:
                    path = spell(where, (segment(name), *found.path))
                    raise NotStorable(
                        f"{path}: {type_name(kind)} takes it from nobody (init=False) "
                        f"and makes {found.after} of it, not {found.before}"
                    )


def added(plain: Any, value: Any) -> Added:
    """Tells of the keys in the plain data of a value which ones are fields at their default: these may be new in its type."""
    made = {id(data): each for data, each in structures(plain, value)}

    def is_added(data: dict[Any, Any], key: Any) -> bool:
        each = made.get(id(data))
        kind: Any = type(each)
        fields = fields_of(kind)
        if fields is None or key not in fields.attributes:
            return False
        return key not in _dumped(shape_of(kind).adapter("value"), each, "value", True)

    return is_added


def _plain(dumped: Any, names: Notes | None = None) -> Any:
    """Make of a value that was taken apart what is read from its text. What cannot be written is no text's value."""

    def leaf(value: Any) -> Any:
        try:
            return _leaf(value)
        except Refused:
            return {"$unwritable": type_name(type(value))}

    plain, notes = tagged.read_noting(_written(dumped, "value", False, leaf, names))
    return tagged.by_name(plain, notes)


def _noted_in(plain: Any, declared: list[tuple[str, Any]]) -> Notes:
    """Notes of the defaults in what was made of data that had these."""
    found: Notes = {}
    parts = [plain] if declared else []
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            same = (name for name, each in declared if name in part and difference(each, part[name]) is None)
            found[id(part)] = Note(part, default=list(dict.fromkeys(same)))
        if isinstance(part, (dict, *_ROWS)):
            parts += part.values() if isinstance(part, dict) else part
    return found


def _keep(data: dict[Any, Any], wanted: dict[Any, Any]) -> None:
    """Make this dict, which notes know by its identity, hold these items in this order."""
    data.clear()
    data.update(wanted)


def arguments_text(arguments: dict[str, Any], where: str, notes: Notes | None = None) -> str:
    """Arguments by name as one text, as a `Signature` joins it from theirs. Each of them may be as deep as any value."""
    return _written(arguments, where, True, tagged.refuse, notes, AROUND)


def _written(value: Any, where: str, argument: bool, other: Any, notes: Notes | None = None, around: int = 0) -> str:
    try:
        return tagged.write(value, other, notes, around=around)
    except Refused as refused:
        advice = f"; {_FOR_ARGUMENTS if argument else _FOR_RESULTS}" if refused.advise else ""
        raise NotStorable(f"{spell(where, reversed(refused.path))}: {refused.reason}{advice}") from None
    except RecursionError:
        raise NotStorable(f"{where}: is nested too deeply to be stored from this depth of calls") from None


def _check_halves(value: Any, text: str, where: str) -> None:
    """Raise `NotStorable` if a string has both halves of a character as two: JSON reads the character."""
    path: tuple[str, ...] | None = None
    if type(value) is str:
        path = () if _PAIR.search(value) else None
    else:
        try:
            copy = tagged.read(text)
        except NotStorable:  # two members of a set have become one
            path = ()
        else:
            with contextlib.suppress(ArithmeticError):  # a signalling nan is not compared
                if copy == value:  # much faster than to look for a difference
                    return
            found = difference(value, copy)
            path = found.path if found else None
    if path is not None:
        raise NotStorable(
            f"{spell(where, path)}: has the two halves of a character (surrogates), which would come back as the character; "
            "join them: text.encode('utf-16', 'surrogatepass').decode('utf-16', 'surrogatepass')"
        )


@functools.cache
def _generator() -> Any:
    """Writes JSON schemas in which it is said of each object whether it may have other fields, as its type has it.

    And of each field that may be left out, what it is then; or, with `x-untold`, that only the type can tell. `x-limits` has
    the bounds of decimals and of times, which JSON's own words have not, or not for a text, or not exactly.
    """
    base = _library()[0].json_schema.GenerateJsonSchema

    class Generator(base):  # type: ignore[misc, valid-type]
        ignored_warning_kinds = base.ignored_warning_kinds | {"non-serializable-default"}

        def model_schema(self, schema: Any) -> Any:
            return _said(super().model_schema(schema), schema["cls"])

        def dataclass_schema(self, schema: Any) -> Any:
            return _said(super().dataclass_schema(schema), schema["cls"])

        def typed_dict_schema(self, schema: Any) -> Any:
            return _said(super().typed_dict_schema(schema), schema.get("cls"))

        def decimal_schema(self, schema: Any) -> Any:
            made = super().decimal_schema(schema)
            for each in made.get("anyOf", ()):  # so that it is told from `float | str`
                if each.get("type") == "string":
                    each.update({"format": "decimal"} | ({"x-infinite": True} if schema.get("allow_inf_nan") else {}))
                if each.get("type") in ("number", "string"):
                    _limited(each, schema)
            return made

        def date_schema(self, schema: Any) -> Any:
            return _limited(super().date_schema(schema), schema)

        def datetime_schema(self, schema: Any) -> Any:
            return _limited(super().datetime_schema(schema), schema)

        def time_schema(self, schema: Any) -> Any:
            return _limited(super().time_schema(schema), schema)

        def timedelta_schema(self, schema: Any) -> Any:
            return _limited(super().timedelta_schema(schema), schema)

        def get_default_value(self, schema: Any) -> Any:
            factory = schema.get("default_factory")
            return factory() if factory in (list, dict, set) else super().get_default_value(schema)

        def default_schema(self, schema: Any) -> Any:
            made = super().default_schema(schema)
            if "default" not in made and ("default" in schema or "default_factory" in schema):
                made["x-untold"] = True
            with contextlib.suppress(
                NotStorable, AttributeError
            ):  # one that cannot be written; a factory of the type's own
                default = self.get_default_value(schema)
                plain = _dumped(UNTYPED.adapter("default"), default, "default", False)
                told = json.loads(_written(plain, "default", False, _leaf, notes_of(plain, default, ())))
                if difference(default, told) is not None or not _is_read(schema["schema"], told):
                    made["x-declared"] = told
            return made

    def _limited(made: dict[str, Any], schema: Any) -> dict[str, Any]:
        limits = {name: schema[name] for name in LIMITS if schema.get(name) is not None}
        if limits:
            made["x-limits"] = _library()[1].to_jsonable_python(limits)
        return made

    def _said(made: dict[str, Any], cls: Any) -> dict[str, Any]:
        if "properties" in made and "additionalProperties" not in made:
            fields = fields_of(cls)
            explicit = (getattr(cls, "__pydantic_config__", None) or {}).get("extra") if fields is None else None
            made["additionalProperties"] = bool(explicit) if fields is None else not fields.closed
        return made

    return Generator


_PLAIN: Final = {"str": str, "int": int, "float": float, "bool": bool, "none": type(None)}


def _is_read(schema: dict[str, Any], default: Any) -> bool:
    """Is it certain that what JSON has of a default is read as the default itself? A `Decimal = "30"` is not."""
    kind = schema.get("type")
    if kind == "nullable":
        return default is None or _is_read(schema["schema"], default)
    if kind == "list" and type(default) is list:
        return all(_is_read(schema.get("items_schema", {"type": "any"}), each) for each in default)
    return type(default) is _PLAIN.get(str(kind)) or kind == "any" or (kind == "dict" and default == {})


def schemas(shapes: list[Shape]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The JSON schemas of several shapes, with the definitions they share; `{}` for what has no schema."""
    adapters = [_for_schema(shape) for shape in shapes]
    inputs = [(at, "validation", adapter) for at, adapter in enumerate(adapters) if adapter is not None]
    if not inputs:
        return [{} for _ in shapes], {}
    made, rest = _library()[0].TypeAdapter.json_schemas(
        inputs, by_alias=False, schema_generator=_generator()
    )  # together, so that equal names do not collide
    found: dict[Any, dict[str, Any]] = {at: own for (at, _), own in made.items()}
    return [found.get(at, {}) for at in range(len(shapes))], rest.get("$defs", {})


def _for_schema(shape: Shape) -> Any:
    """The adapter of a shape that has a JSON schema, or None."""
    if is_untyped(shape.annotation):
        return None
    shape.prepare("the annotation")
    try:
        adapter = shape.adapter("the annotation")
        adapter.json_schema(schema_generator=_generator())
    except (NotStorable, _library()[0].PydanticInvalidForJsonSchema):  # a bytearray, a callable
        return None
    return adapter


# --- refusals ---


def _spoken(value: Any) -> str:
    return f"{type_name(type(value))} {short(value)}" if type(value) in ATOMS and value is not None else short(value)


def _misfit(path: str, value: Any, expected: str, argument: bool, reason: str = "") -> Misfit:
    verb = "found" if argument or not path.startswith("result") else "returned"
    message = f"{path}: {verb} {_spoken(value)} where {expected} is annotated" + (f": {reason}" if reason else "")
    return Misfit(message, path, _spoken(value), expected, reason)


def _unknown(found: Stranger, where: str, name: str) -> Unknown:
    path = spell(where, found.path)
    told = f"{path}: {found.owner or name} has no field {short(found.key)}; {advice(found.key, found.known)}"
    return Unknown(told, spell(where, (*found.path, segment(found.key))), short(found.key), name, told)


def _lossy(found: Difference, value: Any, where: str, shape: Shape, argument: bool) -> NotStorable:
    path, change = spell(where, found.path), f"{found.before} would come back as {found.after}"
    if not found.kinds:
        return NotStorable(f"{path}: {change}; its type does not store all of it")
    if found.path:
        message = f"{path}: {change}; annotate exactly its type, or convert it first"
    elif get_origin(shape.annotation) in (Union, UnionType):
        message = f"{path}: {change}; a field with a Literal as its type tells the members of a union apart"
    else:
        return _misfit(path, value, shape.name, argument, tagged.remedy(value))
    return Misfit(message, path, found.before, found.after)


def _not_valid(error: Exception, plain: Any, where: str, name: str, refused: Exception | None = None) -> NotStorable:
    """Say what does not fit. `refused` is the error of the stricter rule, which also names what there is no field for."""
    listed = getattr(error, "errors", None)
    if not callable(listed):
        return NotStorable(f"{where}: {name} refused the value: {type_name(type(error))}: {cut(str(error), 200)}")
    first = listed(include_url=False, include_context=False)[0]
    path, at = [], plain
    for key in first["loc"]:
        # pydantic also puts the names of union members and validators there, which lead nowhere in the value.
        try:
            at = at[key]
        except (LookupError, TypeError):
            if first["type"] != "missing":
                continue
        path.append(segment(key))
    found = "nothing" if first["type"] == "missing" else _spoken(first["input"])
    spelled, reason = spell(where, path), cut(first["msg"], 200)
    message = f"{spelled}: found {found} where {name} is annotated: {reason}"
    if first["type"] == "missing" and hasattr(refused, "errors"):
        message += _renamed(first["loc"], refused)
    return Misfit(message, spelled, found, reason if path else name, "" if path else reason)


def _renamed(missing: tuple[Any, ...], refused: Any) -> str:
    """Name the keys given beside a missing field: the field may have had one of these names."""
    beside = [each for each in refused.errors(include_url=False) if each["loc"][:-1] == missing[:-1]]
    lacking, strange = (
        [str(each["loc"][-1]) for each in beside if each["type"] in kinds] for kinds in (("missing",), _NO_FIELD)
    )
    told = []
    for key in strange:
        near = lacking if len(lacking) == len(strange) == 1 else difflib.get_close_matches(key, lacking, 1, 0.6)
        told.append(f"{short(key)} (now {near[0]!r}, perhaps)" if near else short(key))
    return f"; there is no field for what it has instead: {cut(', '.join(told), 1000)}" if told else ""


# --- shapes and texts ---


@functools.lru_cache(maxsize=2048)
def _cached_shape(annotation: Any, _text: str) -> Shape:
    return Shape(annotation)


def shape_of(annotation: Any) -> Shape:
    """The shape of an annotation; nothing is resolved or imported before the first value needs it."""
    try:
        # `A | B == B | A`, but their order matters to validation: so the text is part of the cache's key.
        return UNTYPED if is_untyped(annotation) else _cached_shape(annotation, str(annotation))
    except TypeError:  # cannot be hashed
        return Shape(annotation)


UNTYPED: Final = Shape(Any)


def digest(text: str) -> str:
    """32 hex digits, the same for equal values in every process: dicts count by content, not by the order of keys."""
    with contextlib.suppress(NotStorable):  # not a text of ours: its own characters identify it
        text = tagged.canonical(text)
    return hashed(text)


def digest_of(texts: dict[str, str]) -> str:
    """The digest of a few texts by their names."""
    return hashed(tagged.in_order(texts))


def hashed(canonical: str) -> str:
    """The digest of a text that is known to be canonical."""
    made = _DIGEST.copy()
    made.update(canonical.encode() if canonical.isascii() else canonical.encode("utf-8", "surrogatepass"))
    return made.hexdigest()[:32]


def preview(text: str, limit: int = 120) -> str:
    """The value in one line for people, cut to `limit` characters. Control characters come out escaped."""
    if len(text) <= BLOB_BYTES:
        with contextlib.suppress(NotStorable):
            return cut(show(tagged.read(text), limit), limit)
    return cut(text if text.isprintable() else text.encode("unicode_escape").decode("ascii"), limit)


_ESCAPES: Final = re.compile(r"\\\\|(?:\\u[0-9a-fA-F]{4})+")  # a backslash that stands for itself, or characters


def beginning(text: str, limit: int) -> str:
    """Show a value of which only the beginning of its text is there in one line for people, cut to `limit` characters."""
    readable = _ESCAPES.sub(_character, text.removesuffix("\\"))
    return cut(readable if readable.isprintable() else readable.encode("unicode_escape").decode("ascii"), limit)


def _character(escapes: re.Match[str]) -> str:
    """Read a row of escapes as the characters they stand for, if people can see them."""
    meant = str(json.loads(f'"{escapes[0]}"'))
    return meant if meant.isprintable() and meant != "\\" else escapes[0]


class Limit(int):
    """A largest size that a setting can raise, and what people are told of that."""

    raised: str

    def __new__(cls, size: int, raised: str) -> Self:
        made = super().__new__(cls, size)
        made.raised = raised
        return made


def checked_size(text: str, limit: int = DEFAULT_LIMIT_BYTES, where: str = "result") -> str:
    """The text itself, if it is not too large. It is ASCII, so characters are bytes."""
    if len(text) > limit:
        first = f"{limit.raised}, or " if isinstance(limit, Limit) else ""
        found, most = size(len(text)), size(limit)
        if found == most:
            found, most = f"{len(text):,} bytes", f"{limit:,} bytes"
        raise NotStorable(
            f"{where}: {found} is more than the limit of {most}; "
            f"{first}put it into a file or an object store and keep its address"
        )
    return text


def kept(error: NotStorable, value: Any) -> NotStorable:
    """The error with what can be kept of a result that cannot be stored: its body ran, and was perhaps paid for."""
    with contextlib.suppress(Exception):  # a value of any type, with methods of any kind
        plain = tagged.plainest(value)
        if len(tagged.write(plain)) <= BLOB_BYTES:
            error.data = plain
    return error

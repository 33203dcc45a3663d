"""Arguments: how a call of an agent or step becomes text, an identity, and copies to call the function with.

Arguments are recorded by parameter name, all of them, so a default that changes later changes no call that was made.
What tells one call from another is the text without arguments that are left at their default or equal it: adding a
parameter with a default changes no identity. The head of `codec.py` tells of the three digests that follow from this.

A parameter marked `Local[T]` is passed as it is and is no part of the record. Type hints are resolved at the first call, when
every module has been imported.
"""

from __future__ import annotations

import contextlib
import copy
import enum
import functools
import inspect
import itertools
import json
import shlex
import sys
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final, NamedTuple, NoReturn, Self

from holdfast.errors import BadArguments, NotStorable
from holdfast.values import tagged
from holdfast.values.codec import Misfit, Shape, added, digest, hashed, preview, schemas, shape_of
from holdfast.values.exact import is_untyped
from holdfast.values.hints import Local, base_of, is_local, is_unpacked, local_name, resolved, signature_of
from holdfast.values.sameness import lost
from holdfast.values.tagged import Notes
from holdfast.values.text import ATOMS, cut, near, short, show

__all__ = ["Bound", "Input", "Local", "Signature"]

_EMPTY: Final = inspect.Parameter.empty
_ONLY_POSITION: Final = inspect.Parameter.POSITIONAL_ONLY
_POSITION: Final = inspect.Parameter.POSITIONAL_OR_KEYWORD
_ONLY_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_REST: Final = inspect.Parameter.VAR_POSITIONAL
_EXTRA: Final = inspect.Parameter.VAR_KEYWORD


@dataclass(eq=False)
class Parameter:
    """A parameter, and what is known of it before any call."""

    name: str
    kind: Any
    default: Any
    shape: Shape
    local: bool
    hint: str
    label: str  # the name as it stands in a record
    default_text: str | None = None  # the default's identity, if it can be stored as annotated
    default_whole: str | None = None  # its text, if it can be written at all
    default_shown: str = ""  # `depth=3`
    declared: Shape | None = None  # what the default is written by, if it is not of its annotation (`str = None`)

    @functools.cached_property
    def fixed(self) -> bool:
        """Is the default one that nobody can change?"""
        return _is_fixed(self.default)

    def left(self) -> str | None:
        """Return the text of the default as it is now, because it may be an object that code changes."""
        if self.fixed or self.default_whole is None:
            return self.default_whole
        return (self.declared or self.shape).text(self.default, self.name, argument=True)

    def copied(self, text: str | None = None) -> Any:
        """Return a copy of the default, which the function may change; the default itself if it cannot be written."""
        text = None if self.fixed else text or self.left()
        return self.default if text is None else (self.declared or self.shape).load(text, self.name)

    def read(self, plain: Any, where: str, notes: Notes, declared: Container[str]) -> Any:
        """The value of a recorded argument. What was `declared` as a default, and still is, is the default itself."""
        shape, notes = self.shape, tagged.within(plain, notes)  # only its own, because there may be many
        if where in declared:
            text = self.left()
            now = None if text is None else tagged.read(text)
            if text is not None and lost(plain, now, added(now, self.default)) is None:
                return self.default
            # As it is, only its own type would take it.
            shape = shape_of(type(self.default)) if is_untyped(shape.annotation) else shape
        return shape.revive(plain, where, notes=notes)

    def __str__(self) -> str:
        stars = {_REST: "*", _EXTRA: "**"}.get(self.kind, "")
        hint = f": {self.hint}" if self.hint else ""
        known = short(self.default) if self.default_text is None else preview(self.default_text, 60)
        return f"{stars}{self.name}{hint}" + ("" if self.default is _EMPTY else f" = {known}")


def _is_fixed(value: Any) -> bool:
    if type(value) in (tuple, frozenset):
        return all(map(_is_fixed, value))
    return type(value) in ATOMS or isinstance(value, enum.Enum)


class _Parts(NamedTuple):
    """The parameters, sorted by what may be passed how."""

    positional: list[Parameter]
    by_name: list[Parameter]  # parameters that may be passed by keyword, in order
    rest: Parameter | None
    extra: Parameter | None
    taken: frozenset[str]  # names that stand in the record for something other than a keyword of `**extra`
    sortable: bool  # do the names sort as their JSON does?
    plain: bool  # may all of them, and nothing else, be passed by position?
    optional: list[tuple[int, Parameter]]  # parameters that may be left out, and after how many others by position
    in_order: list[Parameter]  # all of them
    objects: list[Parameter]  # those with a default that a function could change, so that it gets a copy


class _Argument:
    """One argument of a call. `text` is its identity; None for local ones and for the default itself.

    A default that can be changed is told from others by what it is, as any value is, unless it is `left` out.
    """

    __slots__ = ("_whole", "parameter", "text", "value", "where")

    def __init__(self, parameter: Parameter, value: Any, where: str, left: bool = False) -> None:
        self.parameter, self.value, self.where = parameter, value, where
        self.text: str | None = None
        self._whole: str | None = None
        if value is parameter.default and (left or parameter.fixed or parameter.default_text is None):
            return
        if not parameter.local:
            self.text = parameter.shape.identity(value, where, argument=True)

    def whole(self) -> str | None:
        """The text of the argument that is recorded."""
        if self._whole is None:
            shape = self.parameter.shape
            if self.text is None:
                self._whole = self.parameter.left()
            else:
                self._whole = shape.text(self.value, self.where, argument=True) if shape.has_defaults else self.text
        return self._whole

    def lean(self) -> Self:
        """Identify the argument without the defaults that its identity has only so that it can be read."""
        made = copy.copy(self)
        if self.text is not None and self.text != self.parameter.default_text and self.parameter.shape.telling:
            made.text = self.parameter.shape.lean(self.fresh(), self.where, argument=True)
        return made

    def fresh(self) -> Any:
        """A copy of the argument as it was when it was held: of all of it, because an identity lacks what only equals a default."""
        if self.parameter.local or type(self.value) in ATOMS:
            return self.value
        text = self.whole()
        if self.text is None:
            return self.parameter.copied(text)
        return self.value if text is None else self.parameter.shape.load(text, self.where)

    def shown(self) -> str:
        if self.text is None and (self._whole is None or self.parameter.fixed):
            return self.parameter.default_shown if self.value is self.parameter.default else ""
        if type(self.value) in ATOMS:
            value = self.value
        elif self._whole is not None:
            value = tagged.read(self._whole)
        else:
            assert self.text is not None
            value = self.parameter.shape.shown(self.value, self.text)
        return f"{self.where}={show(value, 120)}"


class Input(NamedTuple):
    """The arguments of a run, as they are now: their record, the text that tells it from others, and its digest."""

    text: str
    identity: str
    digest: str
    lean: str = ""  # as `Bound.lean`

    @property
    def whole(self) -> str:
        """The digest of the record, if it is another text."""
        return "" if self.text == self.identity else digest(self.text)


_NO_KEYWORDS: Final[Mapping[str, _Argument]] = {}


class Bound:
    """The arguments of one call: `text` is their record, `identity` tells the call from others.

    `args` and `kwargs` are copies to call the function with.
    """

    __slots__ = ("_canonical", "_parts", "_text", "_whole", "by_keyword", "by_position", "identity", "varies")

    def __init__(self, parts: _Parts, by_position: list[_Argument], by_keyword: Mapping[str, _Argument]) -> None:
        self._parts, self.by_position, self.by_keyword = parts, by_position, by_keyword
        self._text = self._whole = ""
        varies = bool(parts.optional)
        pieces = []
        for argument in by_position:
            text, parameter = argument.text, argument.parameter
            varies = varies or text is None or parameter.shape.has_defaults
            if text is not None and text != parameter.default_text and parameter.kind is not _REST:
                pieces.append(parameter.label + text)
        if parts.rest is not None and len(by_position) > len(parts.positional) and not parts.rest.local:
            rest = by_position[len(parts.positional) :]
            pieces.append(_rest(parts.rest, [argument.text for argument in rest]))
        for argument in by_keyword.values():
            varies = varies or argument.text is None or argument.parameter.shape.has_defaults
            if argument.text is not None and argument.text != argument.parameter.default_text:
                pieces.append(f"{tagged.quote(argument.where)}:{argument.text}")
        self.varies = varies  # can the record and the identity be two texts? Seldom, so nothing else is asked first
        self.identity, self._canonical = _joined(parts, pieces)

    def hold(self) -> Self:
        """Keep the values as they are now, whatever the caller makes of them later."""
        if self.varies:
            for argument in (*self.by_position, *self.by_keyword.values()):
                if argument.parameter.shape.has_defaults or argument.text is None:
                    argument.whole()
        return self

    @property
    def text(self) -> str:
        """All arguments as they are recorded, in the order of the parameters: those at their default too."""
        if not self._text:
            if self.varies:
                pieces, declared = self._recorded()
                self._text, self._whole = _joined(self._parts, pieces)
                if declared:
                    self._text = f'{{"$default":[{json.dumps(declared)},{self._text}]}}'
            else:
                self._text = self.identity
        return self._text

    @property
    def whole(self) -> str:
        """The digest of the record, if it is another text than the identity."""
        if self.text == self.identity:
            return ""
        return hashed(self._whole) if self._whole else digest(self.text)

    @property
    def lean(self) -> str:
        """The digest of an identity that has no defaults but those by which members of unions are told apart, if it is another.

        Adding a field with a default to such a member changes the digest, but not this one.
        """
        given, named = self.by_position, self.by_keyword
        if not self.varies or not any(argument.parameter.shape.telling for argument in (*given, *named.values())):
            return ""
        made = Bound(self._parts, [each.lean() for each in given], {name: each.lean() for name, each in named.items()})
        return "" if made.identity == self.identity else made.digest

    def _recorded(self) -> tuple[list[str], list[str]]:
        """Return the arguments as recorded, and the names of arguments at a default that is not of its annotation."""
        parts, count = self._parts, len(self._parts.positional)
        rest = self.by_position[count:]
        given = {argument.parameter.name: argument for argument in self.by_position[:count]}
        given |= self.by_keyword
        pieces, declared = [], []
        for parameter in parts.in_order:
            if parameter.local:
                continue
            if parameter.kind is _REST:
                pieces += [_rest(parameter, [argument.whole() for argument in rest])] if rest else []
            elif parameter.kind is _EXTRA:
                more = [argument for argument in self.by_keyword.values() if argument.parameter is parameter]
                pieces += [f"{tagged.quote(argument.where)}:{argument.whole()}" for argument in more]
            else:
                argument = given.get(parameter.name)
                text = parameter.default_whole if argument is None else argument.whole()
                pieces += [] if text is None else [parameter.label + text]
                is_default = argument is None or argument.text is None
                declared += [parameter.name] if is_default and parameter.declared and text is not None else []
        return pieces, declared

    @property
    def input(self) -> Input:
        """The input of a run that is called so. Made at once, because the caller may change its values later."""
        return Input(self.text, self.identity, self.digest, self.lean)

    @property
    def args(self) -> tuple[Any, ...]:
        """Fresh copies at each access, so that a second attempt is not handed what the first one changed."""
        return tuple([argument.fresh() for argument in self.by_position])

    @property
    def kwargs(self) -> dict[str, Any]:
        """Fresh copies at each access."""
        return {name: argument.fresh() for name, argument in self.by_keyword.items()} if self.by_keyword else {}

    @property
    def digest(self) -> str:
        """The identity of the arguments: `codec.digest(self.identity)`."""
        return hashed(self._canonical) if self._canonical else digest(self.identity)

    @property
    def preview(self) -> str:
        """`topic='otters', depth=3`, cut to 120 characters; those at their default at the end."""
        if len(self.identity) > tagged.BLOB_BYTES:
            return cut(self.identity, 120)
        shown = [argument.shown() for argument in self.by_position]
        if self.by_keyword:
            shown += [argument.shown() for argument in self.by_keyword.values()]
        if self._parts.optional:
            count = len(self.by_position)
            for place, parameter in self._parts.optional:
                if place >= count and parameter.name not in self.by_keyword:
                    shown.append(parameter.default_shown)
        return cut(", ".join(filter(None, shown)), 120)


def _joined(parts: _Parts, pieces: list[str]) -> tuple[str, str]:
    """The pieces as one object, and the same with its names in order.

    That is empty where it must be parsed: unless names sort as their JSON does, and nothing inside has keys.
    """
    text = "{" + ",".join(pieces) + "}"
    if '"$' in text:
        if len(pieces) == 1 and pieces[0].startswith('"$'):  # **{"$name": ..} alone would look like a tag
            name, end = json.JSONDecoder().raw_decode(pieces[0])
            text = f'{{"$map":[[{tagged.quote(name)},{pieces[0][end + 1 :]}]]}}'
        else:
            tagged.check_joined(text)
    if not parts.sortable or text.count("{") != 1:
        return text, ""
    return text, text if len(pieces) <= 1 else "{" + ",".join(sorted(pieces)) + "}"


def _rest(parameter: Parameter, texts: list[str | None]) -> str:
    return f"{parameter.label}[{','.join(map(str, texts))}]"


class Signature:
    """The parameters and the result of a function, as far as they are stored.

    With `skip_self` the first parameter is left aside: calls are bound without it, and copies come without it.
    `what` names the function in messages, for example "agent 'research'". With `stored` (agents) a call is read back
    from its record, perhaps elsewhere, so a value for a `Local` parameter would be lost: it is refused.
    """

    def __init__(self, fn: Callable[..., Any], skip_self: bool = False, what: str = "", stored: bool = False) -> None:
        self.fn, self.skip_self, self.stored = fn, skip_self, stored
        self.what = what or repr(getattr(fn, "__name__", type(fn).__name__))

    def __str__(self) -> str:
        shown = list(map(str, self.parameters))
        kinds = [parameter.kind for parameter in self.parameters]
        if _ONLY_KEYWORD in kinds and _REST not in kinds:
            shown.insert(kinds.index(_ONLY_KEYWORD), "*")
        if _ONLY_POSITION in kinds:
            shown.insert(kinds.count(_ONLY_POSITION), "/")
        return f"({', '.join(shown)})"

    @functools.cached_property
    def _python(self) -> inspect.Signature:
        found = signature_of(self.fn)
        return found.replace(parameters=list(found.parameters.values())[1:]) if self.skip_self else found

    @functools.cached_property
    def _hints(self) -> dict[str, Any]:
        return resolved(self.fn, self.what)

    @functools.cached_property
    def parameters(self) -> list[Parameter]:
        """The parameters of the function, in order."""
        return [self._parameter(found) for found in self._python.parameters.values()]

    def _parameter(self, found: inspect.Parameter) -> Parameter:
        hint = self._hints.get(found.name, Any)
        local = is_local(hint)
        shape = shape_of(Any if local or is_unpacked(hint) else hint)
        shown = local_name(hint) if local else "" if hint is Any else shape.name
        made = Parameter(found.name, found.kind, found.default, shape, local, shown, f"{tagged.quote(found.name)}:")
        if found.default is not _EMPTY and not local:
            with contextlib.suppress(NotStorable):  # a sentinel: recognised by identity only
                try:
                    made.default_text = shape.identity(found.default, found.name, argument=True)
                    made.default_whole = shape.text(found.default, found.name, argument=True)
                except NotStorable:  # `x: str = None`: by identity too, but there is something to record
                    declared = shape_of(type(found.default))
                    made.default_text, made.declared = None, declared
                    made.default_whole = declared.text(found.default, found.name, argument=True)
                made.default_shown = f"{found.name}={show(tagged.read(made.default_whole), 120)}"
        return made

    @functools.cached_property
    def _parts(self) -> _Parts:
        def of(*kinds: Any) -> list[Parameter]:
            return [parameter for parameter in self.parameters if parameter.kind in kinds]

        rest, extra = next(iter(of(_REST)), None), next(iter(of(_EXTRA)), None)
        taken = frozenset(parameter.name for parameter in self.parameters if parameter is not extra)
        sortable = extra is None and all(parameter.name.isascii() for parameter in self.parameters)
        positional = of(_ONLY_POSITION, _POSITION)
        plain = len(positional) == len(self.parameters)
        places = {parameter.name: place for place, parameter in enumerate(positional)}
        left_out = [parameter for parameter in self.parameters if parameter.default_whole is not None]
        optional = [(places.get(parameter.name, sys.maxsize), parameter) for parameter in left_out]
        by_name = of(_POSITION, _ONLY_KEYWORD)
        objects = [parameter for parameter in left_out if not parameter.fixed]
        return _Parts(positional, by_name, rest, extra, taken, sortable, plain, optional, self.parameters, objects)

    @property
    def names(self) -> tuple[list[str], list[str], bool]:
        """Names that may be given by name, those by position, and whether keywords of any other name are taken."""
        parts = self._parts
        by_name, positional = ([each.name for each in parts.by_name], [each.name for each in parts.positional])
        return by_name, positional, parts.extra is not None

    @functools.cached_property
    def returns(self) -> Shape:
        """The shape of the result."""
        return shape_of(self._hints.get("return", Any))

    def promise(self) -> None:
        """Raise `NotStorable` now if no result could ever be stored, as far as the annotation tells that already."""
        try:
            hint = resolved(self.fn, self.what).get("return", Any)
        except BadArguments:  # a name that is not defined yet
            return
        try:
            shape_of(hint).promise("result")
        except NotStorable as problem:
            raise NotStorable(f"{self.what}: {problem}") from problem.__cause__

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """The arguments of a call, checked and written. Raises `BadArguments` or `NotStorable`."""
        return self.identify(args, kwargs).hold()

    def identify(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Bound:
        """Bind a call that is perhaps recorded: its record and copies are made only once it is held (`hold`)."""
        parts = self._parts
        if parts.plain and len(args) == len(parts.positional) and not (kwargs or self.stored):
            try:
                each = zip(parts.positional, args, strict=True)
                return Bound(
                    parts, [_Argument(parameter, value, parameter.name) for parameter, value in each], _NO_KEYWORDS
                )
            except Misfit as misfit:
                raise self._unfit(misfit) from misfit
        by_position, by_keyword = self._arranged(args, kwargs)
        if self.stored:
            self._refuse_local([*by_position, *((*found, name) for name, found in by_keyword.items())])
        try:
            given = [_Argument(parameter, value, where) for parameter, value, where in by_position]
            named = {name: _Argument(parameter, value, name) for name, (parameter, value) in by_keyword.items()}
        except Misfit as misfit:
            raise self._unfit(misfit) from misfit
        if parts.objects:
            self._take_objects(given, named)
        return Bound(parts, given, named)

    def _take_objects(self, given: list[_Argument], named: dict[str, _Argument]) -> None:
        """Pass the defaults that a function could change as arguments, because of these it gets copies."""
        filled = {argument.parameter.name for argument in given}
        for parameter in self._parts.objects:
            if parameter.name in filled or parameter.name in named:
                continue
            if parameter.kind is not _ONLY_POSITION:
                named[parameter.name] = _Argument(parameter, parameter.default, parameter.name, left=True)
                continue
            for each in self._parts.positional[len(given) :]:  # what stands before it must be passed by position too
                given.append(_Argument(each, each.default, each.name, left=True))
                filled.add(each.name)
                if each is parameter:
                    break

    def _refuse_local(self, arguments: list[tuple[Parameter, Any, str]]) -> None:
        for parameter, value, where in arguments:
            if parameter.local and value is not parameter.default:
                raise BadArguments(
                    f"{self.what}: {where} is {parameter.hint}, but the arguments of an agent are stored and outlive "
                    "this process. Open it as a @holdfast.resource, or mark a step's parameter Local instead"
                )

    def _arranged(
        self, args: Sequence[Any], kwargs: Mapping[str, Any]
    ) -> tuple[list[tuple[Parameter, Any, str]], dict[str, tuple[Parameter, Any]]]:
        """Assign values to parameters: as Python would, but in the order of the parameters."""
        positional, by_name, rest = self._parts[:3]
        by_position = [(parameter, value, parameter.name) for parameter, value in zip(positional, args, strict=False)]
        if len(args) > len(positional):
            if rest is None:
                self._mismatch(args, kwargs)
            more = enumerate(args[len(positional) :])
            by_position += [(rest, value, f"{rest.name}[{at}]") for at, value in more]
        by_keyword: dict[str, tuple[Parameter, Any]] = {}
        filled = {parameter.name for parameter, _, _ in by_position}
        for parameter in by_name:
            if parameter.name in kwargs:
                by_keyword[parameter.name] = parameter, kwargs[parameter.name]
        for parameter in (*positional, *by_name):
            if parameter.default is _EMPTY and parameter.name not in filled and parameter.name not in by_keyword:
                self._mismatch(args, kwargs)
        if len(by_keyword) < len(kwargs) or (by_keyword and not filled.isdisjoint(by_keyword)):
            self._take_extra(args, kwargs, by_keyword)
        return by_position, by_keyword

    def _take_extra(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], by_keyword: dict[str, tuple[Parameter, Any]]
    ) -> None:
        try:
            self._python.bind(*args, **kwargs)
        except TypeError:
            self._mismatch(args, kwargs)
        extra, taken = self._parts.extra, self._parts.taken
        assert extra is not None
        for name, value in kwargs.items():
            if name in by_keyword:
                continue
            if name in taken:
                raise BadArguments(
                    f"{self.what}: the keyword {name!r} has the name of another parameter; arguments are recorded by "
                    f"name, so rename one of them"
                )
            by_keyword[name] = extra, value

    def _mismatch(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> NoReturn:
        reason = ""
        try:
            self._python.bind(*args, **kwargs)
        except TypeError as error:
            reason = f": {cut(str(error), 300)}"
        known = self._python.parameters
        meant = near(next((name for name in kwargs if name not in known), ""), known)
        if meant:
            reason += f"; expected {meant!r}, perhaps"
        named = (f"{cut(name, 60)}={short(value)}" for name, value in itertools.islice(kwargs.items(), 100))
        got = ", ".join([*map(short, args[:100]), *named])
        raise BadArguments(f"{self.what} takes {self}; got ({cut(got, 200)}){reason}")

    def _unfit(self, misfit: Misfit) -> BadArguments:
        return BadArguments(f"{self.what}: {misfit}")

    def load(self, text: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments of a stored input, for the call. Raises `BadArguments` if they no longer fit the function."""
        try:
            return self._called(*self._values(text))
        except Misfit as misfit:
            raise self._unfit(misfit) from misfit

    def _values(self, text: str) -> tuple[dict[str, Any], Notes]:
        values, notes = tagged.read_noting(text)
        if type(values) is not dict or not all(type(name) is str for name in values):
            raise BadArguments(f"{self.what}: a stored input is an object of arguments by name, not {short(values)}")
        return values, notes

    def _more(self, values: dict[str, Any]) -> list[Any] | None:
        rest = self._parts.rest
        more = values.get(rest.name) if rest else None
        if more is not None and type(more) is not list:
            raise BadArguments(f"{self.what}: {rest and rest.name}: found {short(more)}, expected a list")
        return more

    def recorded(self, text: str, live: Bound) -> Bound:
        """A call as it is made now, but with the arguments of a stored input. What that does not have is as it is now.

        Raises `BadArguments` or `NotStorable` if they no longer fit the function.
        """
        (values, notes), parts = self._values(text), self._parts
        declared = _declared(values, notes)
        if parts.rest is not None:
            values |= {f"{parts.rest.name}[{at}]": each for at, each in enumerate(self._more(values) or ())}
            values.pop(parts.rest.name, None)

        def before(argument: _Argument) -> Any:
            if argument.where not in values or argument.parameter.local:
                return argument.value if argument.text is None else argument.fresh()
            return argument.parameter.read(values.pop(argument.where), argument.where, notes, declared)

        args = [before(argument) for argument in live.by_position]
        kwargs = {name: before(argument) for name, argument in live.by_keyword.items()}
        for parameter in parts.positional[len(args) :] + parts.by_name:  # parameters left at their default
            if parameter.kind is _ONLY_POSITION:
                args.append(before(_Argument(parameter, parameter.default, parameter.name)))
            elif parameter.name in values and not parameter.local:
                kwargs[parameter.name] = before(_Argument(parameter, parameter.default, parameter.name))
        if values:
            raise BadArguments(f"{self.what} takes {self}; the stored input has {short(next(iter(values)))} as well")
        return self.bind(args, kwargs)

    def _called(self, values: dict[str, Any], notes: Notes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        positional, by_name, rest, extra, taken = self._parts[:5]
        more, declared = self._more(values), _declared(values, notes)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for parameter in (*positional, *(each for each in by_name if each.kind is _ONLY_KEYWORD)):
            given = parameter.name in values and not parameter.local
            if not given and parameter.default is _EMPTY:
                why = "Local, which a stored input cannot hold" if parameter.local else "missing in the stored input"
                raise BadArguments(f"{self.what} takes {self}; {parameter.name!r} is {why}")
            value = parameter.default
            if given:
                value = parameter.read(values[parameter.name], parameter.name, notes, declared)
            if value is parameter.default and not parameter.local:
                value = parameter.copied()
            # What stands before positional-only or rest arguments must be passed by position too, default or not.
            if parameter.kind is _ONLY_POSITION or (more and parameter.kind is _POSITION):
                args.append(value)
            elif given or value is not parameter.default:
                kwargs[parameter.name] = value
        if rest and more:
            args += [rest.read(value, f"{rest.name}[{at}]", notes, ()) for at, value in enumerate(more)]
        for name in [name for name in values if name not in taken]:
            if extra is None:
                raise BadArguments(f"{self.what} takes {self}; the stored input has {short(name)} as well")
            kwargs[name] = extra.read(values[name], name, notes, ())
        return tuple(args), kwargs

    def parse(self, strings: Sequence[str], named: Mapping[str, str]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments typed on a command line. Raises `BadArguments` that names parameter, found and expected."""
        known = {parameter.name for parameter in self._parts.by_name}
        keywords = {name if name in known else name.replace("-", "_"): text for name, text in named.items()}
        by_position, by_keyword = self._arranged(strings, keywords)
        args = tuple(self._typed_in(parameter, text, where) for parameter, text, where in by_position)
        if len(strings) == 1 and args == tuple(strings):
            refuse_object(self.what, strings[0], by_position[0][2], known)
        return args, {name: self._typed_in(parameter, text, name) for name, (parameter, text) in by_keyword.items()}

    def _typed_in(self, parameter: Parameter, text: str, where: str) -> Any:
        if parameter.local:
            raise BadArguments(f"{self.what}: {where} is {parameter.hint}, which cannot be given from outside")
        first: Misfit | None = None
        for candidate in _readings(text, parameter.shape):
            try:
                return parameter.shape.revive(candidate, where)
            except Misfit as misfit:
                first = first or misfit
        assert first is not None
        reason = f" ({first.reason or first.expected})" if first.path == where else f": {first}"
        raise BadArguments(f"{self.what}: {where}: found {short(text)}, expected {parameter.hint}{reason}") from first

    def schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments as one object; `x-positional` and `x-rest` say what may come by position."""
        return {**self._schema}

    @functools.cached_property
    def _schema(self) -> dict[str, Any]:
        stored = [parameter for parameter in self.parameters if not parameter.local]
        for parameter in stored:
            parameter.shape.prepare(parameter.name)
        made, definitions = schemas([parameter.shape for parameter in stored])
        out: dict[str, Any] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
        for parameter, own in zip(stored, made, strict=True):
            if parameter.kind is _EXTRA:
                out["additionalProperties"] = own or True
            elif parameter.kind is _REST:
                out["properties"][parameter.name] = {"type": "array", "items": own}
                out["x-rest"] = parameter.name
            elif parameter.default is _EMPTY:
                out["properties"][parameter.name] = own
                out["required"].append(parameter.name)
            else:
                out["properties"][parameter.name] = {**own, **_published_default(parameter)}
        positional = [parameter.name for parameter in self._parts.positional if not parameter.local]
        if positional != list(out["properties"]):
            out["x-positional"] = positional
        return {**out, "$defs": definitions} if definitions else out


def _declared(values: dict[str, Any], notes: Notes) -> Sequence[str]:
    """The names of recorded arguments that are defaults which are not of their annotation."""
    note = notes.get(id(values))
    return note.default if note is not None else ()


def _published_default(parameter: Parameter) -> dict[str, Any]:
    """Write a default into a schema. One that JSON has no word for stands there as it is stored."""
    if parameter.declared and parameter.default_whole is not None:
        return {"x-declared": json.loads(parameter.default_whole)}
    if parameter.default_whole is None or parameter.default_text is None:
        return {}
    whole, identity = tagged.bare(parameter.default_whole), parameter.default_text
    # A quote inside a string is escaped, so this is a tag.
    found = {"x-default" if '{"$' in whole else "default": json.loads(whole)}
    if whole != parameter.default_whole:  # it also has notes
        found["x-default"] = json.loads(parameter.default_whole)
    return found if identity == whole or '{"$' in identity else {**found, "x-identity": json.loads(identity)}


def _readings(text: str, shape: Shape) -> Iterator[Any]:
    """Values that a typed text may mean, the likeliest first."""
    base = base_of(shape.annotation)
    if base is not str:
        if base is Decimal:
            yield text  # as JSON it would be a float first, and lose digits
        with contextlib.suppress(ValueError, RecursionError):
            yield json.loads(text, parse_constant=_no_constant)
    yield text


def refuse_object(what: str, text: str, where: str, known: Container[str]) -> None:
    """Refuse one text that is an object of arguments by name, as other programs take them: nothing is guessed."""
    found: Any = None
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(text) if text.lstrip().startswith("{") else None
    if found and all(name in known for name in (*found, where)):
        named = [word for name, value in found.items() for word in ("--arg", f"{name}={_as_typed(value)}")]
        raise BadArguments(
            f"{what}: {where}: found {short(text)}, an object with the names of parameters. Give each by its name: "
            f"{shlex.join(named)}. If that text itself is meant: {shlex.join(('--arg', f'{where}={text}'))}"
        )


def _as_typed(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)

"""Keys of plain data for which a type has no field: named, unless the type says that they are fine."""

import dataclasses
from typing import Annotated, Any

import pydantic
import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    field_validator,
    model_validator,
)
from typing_extensions import TypedDict

from holdfast.errors import NotStorable
from holdfast.values import codec
from holdfast.values.codec import Unknown, shape_of


@dataclasses.dataclass
class Access:
    days: int = 30
    note: str = ""


class Holder(BaseModel):
    access: Access = Access()
    count: int = 1


class Ignoring(BaseModel):
    model_config = ConfigDict(extra="ignore")
    access: Access = Access()


class Allowing(BaseModel):
    model_config = ConfigDict(extra="allow")
    count: int = 1


@pydantic.dataclasses.dataclass(config=ConfigDict(extra="ignore"))
class IgnoringToo:
    count: int = 1


class Renames(BaseModel):
    days: int = 30

    @model_validator(mode="before")
    @classmethod
    def _old_name(cls, data: Any) -> Any:
        return {"days": data["day"]} if isinstance(data, dict) and "day" in data else data


class RenamesInside(BaseModel):
    access: Access = Access()

    @field_validator("access", mode="before")
    @classmethod
    def _old_name(cls, data: Any) -> Any:
        return {"days": data["day"]} if isinstance(data, dict) and "day" in data else data


class Aliased(BaseModel):
    days: int = Field(30, validation_alias=AliasChoices("days", "day"))


class AliasedAndNeeded(BaseModel):
    days: int = Field(validation_alias=AliasChoices("days", "day"))


class AliasedIgnoring(Aliased):
    model_config = ConfigDict(extra="ignore")


class AliasedAllowing(Aliased):
    model_config = ConfigDict(extra="allow")


class AliasedValidated(Aliased):
    @model_validator(mode="before")
    @classmethod
    def _same(cls, data: Any) -> Any:
        return data


class Validated(BaseModel):
    rows: list[Access] = []

    @field_validator("rows", mode="before")
    @classmethod
    def _none(cls, data: Any) -> Any:
        return data or []


class Record(TypedDict):
    access: Access


class Listed(RootModel[list[Access]]):
    pass


Renamed = Annotated[Access, BeforeValidator(lambda data: {"days": data["day"]} if "day" in data else data)]


@pytest.fixture(params=["with extra=", "without"], autouse=True)
def _pydantic(request, monkeypatch):
    """Before 2.12 pydantic could not be told to refuse other fields in one call; then every value is looked through."""
    if request.param == "without":
        monkeypatch.setattr(codec, "_strictly", dict)


@pytest.mark.parametrize(
    ("annotation", "plain", "told"),
    [
        (Access, {"day": 1}, "Access has no field 'day'; did you mean 'days'? (the fields are: days, note)"),
        (Holder, {"access": {"day": 1}}, "value.access: tests.values.test_fields.Access has no field 'day'"),
        (Holder, {"access": {"days": 1}, "x": 2}, "Holder has no field 'x'; the fields are: access, count"),
        (list[Access] | None, [{}, {"day": 2}], "value[1]: "),
        (dict[str, Access], {"a": {"day": 1}}, "value.a: "),
        (tuple[Access, ...], ({"day": 1},), "value[0]: "),
        (Ignoring, {"x": 1, "access": {"day": 2}}, "value.access: "),
        (AliasedAndNeeded, {"day": 3, "x": 1}, "has no field 'x'"),
        (Record, {"access": {}, "other": 1}, "has no field 'other'"),
        (Listed, [{"day": 1}], "value[0]: "),
        (Access | Holder, {"x": 2}, "has no field 'x'"),
    ],
)
def test_a_key_without_a_field_is_refused(annotation, plain, told):
    """With its place, the type, and the field that is nearest."""
    with pytest.raises(Unknown) as refused:
        shape_of(annotation).revive(plain)
    assert told in str(refused.value)
    shape_of(annotation).revive(plain, drop=True)


@pytest.mark.parametrize(
    ("annotation", "plain", "value"),
    [
        (Ignoring, {"x": 1}, Ignoring()),
        (IgnoringToo, {"x": 1}, IgnoringToo()),
        (Allowing, {"x": 1}, Allowing(x=1)),
        (Renames, {"day": 3}, Renames(days=3)),
        (RenamesInside, {"access": {"day": 3}}, RenamesInside(access=Access(3))),
        (Aliased, {"day": 3}, Aliased(days=3)),
        (AliasedIgnoring, {"day": 3, "x": 1}, AliasedIgnoring(days=3)),
        (AliasedAllowing, {"day": 3, "x": 1}, AliasedAllowing(days=3, x=1)),
        (list[AliasedValidated], [{"day": 3}], [AliasedValidated(days=3)]),
        (AliasedAndNeeded, {"day": 3}, AliasedAndNeeded(days=3)),
        (Renamed, {"day": 4}, Access(4)),
        (dict[int, Access], {"1": {}}, {1: Access()}),
        (Access | Holder, {"count": 2}, Holder(count=2)),
    ],
)
def test_a_type_may_say_that_other_keys_are_fine(annotation, plain, value):
    """By `extra=`, by a validator that sees the data first, or by the aliases of a field."""
    assert shape_of(annotation).revive(plain) == value


@pytest.mark.parametrize(
    ("annotation", "plain", "told"),
    [
        (Validated, {"rows": [{"days": 1}, {"day": 2}]}, r"rows\[1\]: .*Access has no field 'day'"),
        (
            list[Annotated[Access, BeforeValidator(lambda data: data)]],
            [{"day": 2}],
            r"\[0\]: .*Access has no field 'day'",
        ),
    ],
)
def test_a_validator_of_a_field_speaks_for_no_keys_of_the_types_below(annotation, plain, told):
    """If what it has left of the data has a key without a field, that is not dropped, as far as pydantic tells."""
    if codec._strictly():
        with pytest.raises(Unknown, match=told):
            shape_of(annotation).revive(plain)
    shape_of(annotation).revive(plain, drop=True)


def test_of_a_long_key_only_the_beginning_is_told():
    class Strict(BaseModel):
        name: str

    for annotation in (Access, Strict):
        with pytest.raises(NotStorable) as caught:
            shape_of(annotation).revive({"n" * 50_000: 1})
        assert len(str(caught.value)) < 1000


def test_a_field_that_was_renamed_is_named_as_the_record_has_it():
    """Beside the one that is missing: the name in the record, and what it may be called today."""

    @dataclasses.dataclass
    class Note:
        heading: str
        body_text: str = ""

    @dataclasses.dataclass
    class Page:
        notes: list[Note]

    told = (
        r" .* instead: 'title' \(now 'heading', perhaps\)" if codec._strictly() else ""
    )  # older versions do not say it
    with pytest.raises(NotStorable, match=rf"notes\[0\].heading: found nothing{told}"):
        shape_of(Page).load('{"notes":[{"title":"x"}]}')
    with pytest.raises(NotStorable, match=r"Field required$"):
        shape_of(Note).load('{"body_text":"x"}')


def test_data_that_does_not_fit_is_migrated():
    """And only that: what fits is read as it is."""
    shape = shape_of(Access)

    def migrate(plain: Any) -> Any:
        return {"days": plain["day"]}

    assert shape.load('{"day":4}', migrate=migrate) == Access(4)
    assert shape.load('{"days":5}', migrate=migrate) == Access(5)
    assert shape.load('{"day":6}', migrate=lambda plain: Access(plain["day"])) == Access(6)
    with pytest.raises(NotStorable, match=r"what migrate returned does not fit either: .*'day'"):
        shape.load('{"day":4}', migrate=lambda plain: plain)
    with pytest.raises(NotStorable, match="migrate raised KeyError: 'day'"):
        shape.load('{"dayz":4}', migrate=migrate)

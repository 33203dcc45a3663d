"""Forms without a server behind them: what nobody touches is read as it was given, and an edit changes what was edited."""

import json

import pytest
from tests.page.browser import Visitor
from tests.page.scene import bare

pytestmark = pytest.mark.slow

# Make a form of JSON, do something in it, and read it: what is sent, what is wrong, what is shown.
FORM = """async ([schema, value, fills, click]) => {
  const { form } = await import('/static/js/form.js');
  const { parse, write } = await import('/static/js/json.js');
  const given = value === null ? undefined : parse(value, { exact: true });
  const made = form(parse(schema, { exact: true }), given, { was: given });
  document.body.replaceChildren(made.element);
  for (const [name, typed] of Object.entries(fills)) {
    const field = [...made.element.querySelectorAll('[aria-label]')].find((each) => each.getAttribute('aria-label') === name);
    field.value = typed;
    field.dispatchEvent(new Event('input', { bubbles: true }));
  }
  if (click) [...made.element.querySelectorAll('button')].find((each) => each.textContent === click).click();
  const { value: read, errors } = made.read();
  return { sent: write(read), kept: read === given, errors: errors.map((each) => each.message), told: made.element.innerText,
    values: [...made.element.querySelectorAll('input, textarea')].map((each) => each.value) };
}"""
OBJECT = {
    "type": "object", "required": ["at", "days"],
    "properties": {
        "at": {"type": "string", "format": "date-time"}, "days": {"type": "integer", "minimum": 1, "maximum": 2**70},
        "rate": {"type": "number"}, "note": {"type": "string"}, "groups": {"type": "array", "items": {"enum": ["a", "b", "c"]}},
        "ids": {"type": "array", "items": {"type": "integer"}}, "plan": {"enum": ["x", "y"]},
        "late": {"type": "boolean", "default": True},
        "constructor": {"type": "string"}, "of": {"type": "object", "properties": {"n": {"type": "number"}}},
        "rows": {"type": "array", "items": {"type": "object", "properties": {"n": {"type": "number"}}}},
    },
}  # fmt: skip
VALUE = (
    '{"zz":"outside","days":9007199254740993,"at":"2026-11-17T07:00:00.123456+01:00","note":"a\\r\\nb","rate":1.0,"groups":["c","a",'
    '"other"],"ids":[12345678901234567890,1],"plan":"neither","of":{"m":-0.0,"n":1e-07},"rows":[{"n":2.50,"x":1e400}],"toString":"keep",'
    '"__proto__":{"pay":"mallory"}}'
)


@pytest.fixture(scope="module")
def read(browser, tmp_path_factory):
    with bare(tmp_path_factory.mktemp("forms")) as place:
        visitor = Visitor(browser, place.address, None)
        page = visitor.goto("/sign-in", "#token")

        def made(schema, value, fills=None, click=None):
            return page.evaluate(FORM, [json.dumps(schema), value, fills or {}, click])

        made.page = page
        yield made
        visitor.leave()


def test_what_nobody_touches_is_read_as_it_was_given(read):
    made = read(OBJECT, VALUE)
    assert made["kept"] and made["sent"] == VALUE and made["errors"] == []


@pytest.mark.parametrize(
    ("name", "typed", "before", "after"),
    [
        ("Note", "c", '"a\\r\\nb"', '"c"'),
        ("Days", "9007199254740995", "9007199254740993", "9007199254740995"),
        ("Rate", "2.0", '"rate":1.0', '"rate":2.0'),
        ("At", "2026-11-17T06:00:01", '"2026-11-17T07:00:00.123456+01:00"', '"2026-11-17T06:00:01.000Z"'),
        ("N", "3", '"n":1e-07', '"n":3'),
    ],
)
def test_an_edit_changes_what_was_edited_and_nothing_else(read, name, typed, before, after):
    made = read(OBJECT, VALUE, {name: typed})
    assert made["sent"] == VALUE.replace(before, after, 1)
    assert made["errors"] == []


def test_a_choice_more_keeps_the_order_and_what_was_not_offered(read):
    assert read(OBJECT, VALUE, click="b")["sent"] == VALUE.replace('["c","a","other"]', '["c","a","other","b"]')
    assert read(OBJECT, VALUE, click="c")["sent"] == VALUE.replace('["c","a","other"]', '["a","other"]')


def test_all_that_is_decided_is_shown(read):
    told = read(OBJECT, VALUE)["told"]
    for part in (
        "outside",
        "other",
        "neither",
        "keep",
        "mallory",
        "1e400",
        "12345678901234567890",
        "07:00:00.123456+01:00",
    ):
        assert part in told, part


def test_what_was_edited_must_fit(read):
    assert read(OBJECT, VALUE, {"Days": "0"})["errors"] == ["at least 1"]
    assert read(OBJECT, VALUE, {"Days": str(2**70 + 1)})["errors"] == [f"at most {2**70}"]
    assert read(OBJECT, VALUE, {"Days": "1.5"})["errors"] == ["it is a whole number"]
    assert read(OBJECT, VALUE, {"Rate": "1e400"})["errors"] == ["it is larger than any number with a fraction can be"]
    assert read(OBJECT, None)["errors"] == ["at is needed", "days is needed"]


DECIMAL = {"anyOf": [{"type": "number", "minimum": 0}, {"type": "string", "format": "decimal"}]}
PRICED = {
    "type": "object",
    "properties": {
        "total": DECIMAL, "prices": {"type": "array", "items": DECIMAL},
        "rates": {"type": "object", "additionalProperties": DECIMAL},
    },
}  # fmt: skip


def test_the_default_of_a_decimal_is_in_its_field(read):
    schema = {
        "type": "object",
        "properties": {"d": DECIMAL | {"x-default": {"$decimal": "12.50"}}, "n": {"type": "integer"}},
    }
    found = read(schema, None)
    assert (found["sent"], found["values"]) == ('{"d":"12.50"}', ["12.50", ""])


def test_a_decimal_keeps_every_digit_that_was_typed(read):
    """It is sent as a text: as a number it would be a float to whoever reads it."""
    value = '{"total":"1234567890123456.10","prices":["9.90"],"rates":{"eur":"1.10"}}'
    assert read(PRICED, value)["kept"] and '"9.90"' not in read(PRICED, value)["told"]
    made = read(PRICED, value, {"Total": "1234567890123456.17", "eur": "99.50"})
    assert made["sent"] == value.replace("456.10", "456.17").replace("1.10", "99.50") and made["errors"] == []
    assert read(PRICED, value, {"Total": "99.5 EUR"})["errors"] == ["99.5 EUR is no number"]
    assert read(PRICED, value, {"Total": "-0.01"})["errors"] == ["at least 0"]
    assert read(PRICED, '{"total":12.5}')["kept"]
    assert read({}, "[5]", {"What is decided, as JSON": "99.5 EUR"})["errors"] == [
        "it is no JSON: a text stands in quotes, and a number has nothing behind it"
    ]


def test_what_is_entered_has_the_form_of_its_format(read):
    key = "12345678-1234-5678-1234-567812345678"
    for form, good, bad in (
        ("time", ["08:15", "23:59:59.5Z"], ["25:99", "8 am"]),
        ("duration", ["PT3H", "P1DT30M", "3:00:00", "2 days"], ["3 hours", "P"]),
        ("uuid", [key, key.replace("-", "")], [key[:-1]]), ("email", ["ana@example.org"], ["ana"]),
    ):  # fmt: skip
        schema = {"type": "object", "properties": {"x": {"type": "string", "format": form}}}
        assert [read(schema, '{"x":"old"}', {"X": each})["errors"] for each in good] == [[] for _ in good]
        assert all(read(schema, '{"x":"old"}', {"X": each})["errors"][0].startswith("it is a") for each in bad)
        assert read(schema, '{"x":"old"}')["kept"]


def test_a_field_says_beforehand_what_it_takes(read):
    """In the words that it would be refused with."""
    fields = {
        "above": {"type": "number", "exclusiveMinimum": 0, "maximum": 50}, "lasts": {"type": "string", "format": "duration"},
        "both": {"type": "integer", "minimum": 1, "maximum": 9}, "code": {"type": "string", "minLength": 1, "maxLength": 1},
    }  # fmt: skip
    value = '{"above": 2, "lasts": "PT1H30M", "both": 3, "code": "a"}'
    told = read({"type": "object", "properties": fields}, value)["told"]
    for words in ("more than 0, at most 50", "a duration, such as PT3H", "1 to 9", "at most 1 character\n"):
        assert words in f"{told}\n"
    assert read({"type": "object", "properties": fields}, value, {"Above": "0"})["errors"] == ["more than 0"]
    assert read({"type": "object", "properties": fields}, value, {"Code": ""})["errors"] == ["at least 1 character"]


def test_a_moment_without_a_zone_stays_without_one(read):
    schema = {"type": "string", "format": "date-time"}
    assert read(schema, '"2026-11-17T07:00:00"')["sent"] == '"2026-11-17T07:00:00"'
    assert (
        read(schema, '"2026-11-17T07:00:00"', {"What is decided": "2026-11-17T08:00"})["sent"]
        == '"2026-11-17T08:00:00"'
    )
    assert read(schema, '"when it rains"')["sent"] == '"when it rains"'


def test_a_value_of_another_kind_than_its_control_is_shown_as_json(read):
    schema = {"type": "object", "properties": {"n": {"type": "number", "default": 30}}}
    for value in ("null", '"pay mallory"', "[1]", '{"n":"30"}', '{"n":null}'):
        made = read(schema, value)
        assert made["kept"] and made["sent"] == value


def test_a_dictionary_of_single_values_has_a_row_for_each(read):
    value = '{"amount":12.0,"order_id":"A-5521","account":12345678901234567890,"paid":false,"toString":null}'
    assert read({"type": "object"}, value)["kept"]
    assert read({}, value)["kept"]
    made = read({"type": "object"}, value, {"amount": "10.0"})
    assert made["sent"] == value.replace("12.0", "10.0")
    assert "order_id" in made["told"]
    assert read({"type": "object"}, value, click="yes")["sent"] == value.replace("false", "true")
    assert read({"type": "object"}, value, click="Edit as JSON")["sent"] == value
    assert read({"type": "object"}, value, {"amount": "ten"})["errors"] == ["ten is no number"]
    assert read({"type": "object"}, '{"a":{"b":1.0}}', {"What is decided, as JSON": '{"a": 12345678901234567891}'})[
        "sent"
    ] == ('{"a":12345678901234567891}')


def test_characters_that_cannot_be_seen_are_told_beside_their_field(read):
    schema = {"type": "object", "properties": {"note": {"type": "string"}}}
    assert (
        "pay ⟨U+202E⟩allorym⟨U+202C⟩ now" in read(schema, json.dumps({"note": "pay \u202eallorym\u202c now"}))["told"]
    )
    assert "a⟨U+200B⟩b" in read({}, json.dumps(["a\u200bb"], ensure_ascii=False))["told"]
    assert "cannot be seen" not in read(schema, json.dumps({"note": "Größe 👩‍👩‍👧\r\n"}))["told"]


SCHEDULED = {
    "type": "object", "required": ["name"],
    "properties": {"name": {"type": "string"}, "days": {"type": "integer", "default": 30}, "mode": {"const": "dry-run"}},
}  # fmt: skip
LISTED = {
    "type": "object",
    "properties": {"items": {"type": "array", "items": {"type": "object", "properties": SCHEDULED["properties"]}}},
}


@pytest.mark.parametrize(
    ("schema", "bare", "whole"),
    [
        (SCHEDULED, '{"name":"eve"}', '{"name":"eve","days":30,"mode":"dry-run"}'),
        (LISTED, '{"items":[{"name":"eve"}]}', '{"items":[{"name":"eve","days":30,"mode":"dry-run"}]}'),
    ],
)
def test_a_field_that_is_not_in_the_value_is_shown_as_not_set(read, schema, bare, whole):
    """A default or a constant of the schema is no part of what is decided, until somebody sets it."""
    untouched, set_ = read(schema, bare), read(schema, whole)
    assert untouched["kept"] and untouched["told"].count("not set") == 2
    assert "not set; its default is 30" in untouched["told"]
    assert "not set" not in set_["told"] and "30" in set_["values"] and "30" not in untouched["values"]
    edited = read(schema, bare, {"Name": "bob"})
    assert edited["sent"] == bare.replace("eve", "bob") and edited["errors"] == []
    assert read(schema, bare, click="Set it")["sent"] == bare.replace('"eve"', '"eve","days":30')


def test_a_field_is_called_by_its_own_name_and_one_that_is_none_can_be_set(read):
    place = {"title": "Address", "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    ref = {"$ref": "#/$defs/Address"}
    schema = {
        "type": "object", "$defs": {"Address": place},
        "properties": {"home": ref, "second": {"anyOf": [ref, {"type": "null"}]}},
    }  # fmt: skip
    value = '{"home":{"city":"Graz"},"second":null}'
    made = read(schema, value)
    assert made["kept"] and made["told"].split() == ["Home", "City", "Second", "noneSet", "it"]
    assert read(schema, value, click="Set it")["errors"] == ["city is needed"]


def test_a_list_that_is_none_is_an_empty_one_when_it_is_set(read):
    tags = {"anyOf": [{"type": "array", "items": {"type": "string"}}, {"type": "null"}], "default": None}
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "tags": tags}}
    assert read(schema, '{"name":"eve"}', click="Set it")["sent"] == '{"name":"eve","tags":[]}'


# Draw a value as a person who is asked about it sees it.
DRAW = """async ([schema, value]) => {
  const { form } = await import('/static/js/form.js');
  const { parse } = await import('/static/js/json.js');
  const { value: drawn } = await import('/static/js/parts.js');
  const { styled } = await import('/static/js/sheets.js');
  const given = parse(value, { exact: true });
  const made = schema === null ? drawn(given, { open: true, exact: true }) : form(parse(schema), given, { was: given }).element;
  document.body.replaceChildren(styled(made, 'questions'));
  while (made.hidden) await new Promise(requestAnimationFrame); // until its styles are there
}"""
ACTIONS = {"type": "object", "properties": {"actions": {"type": "array", "items": {"enum": ["pay", "ship", "refund"]}}}}
COMMENT = {"type": "object", "properties": {"comment": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}
FLAG = {"type": "object", "properties": {"flag": {"enum": ["yes", True, "none", None, 1, "1"]}}}
TAGS = {"type": "object", "properties": {"to": {"type": "array", "items": COMMENT["properties"]["comment"]}}}


@pytest.mark.parametrize(
    ("schema", "values"),
    [
        (ACTIONS, [{"actions": each} for each in (["pay"], ["pay"] * 3, ["pay", "ship"], ["ship", "pay"], ["pay", "ship", "pay"])]),
        (COMMENT, [{"comment": each} for each in (None, "", "none", " ")]),
        (FLAG, [{"flag": each} for each in ("yes", True, "none", None, 1, "1")]),
        (TAGS, [{"to": each} for each in ([], [None], [""], ["null"], ["a b"], ["a", "b"], ["a  b"], ["a\nb"], [" a b"])]),
        (None, [[{"to": "eve", "n": n}, {"to": "bob", "n": 5}] for n in (100, "100", None, "null", True, "true", "1  0", "1 0")]),
        (None, [[{"a": "1", "b": "2"}, each] for each in ({"a\nb": "PAY"}, {"a": "undefined", "b": "undefined"})]),
        (None, ["a:\n  - b", "a:\n- b", "a:\n\n- b", "# a", "## a", "a", "a\n", "```\na\n```", "```\na", "", "a  b", "a b"]),
    ],
)  # fmt: skip
def test_values_that_differ_look_different(read, schema, values):
    drawn = []
    for value in values:
        read.page.evaluate(DRAW, [schema and json.dumps(schema), json.dumps(value)])
        picture = read.page.locator("body").screenshot(animations="disabled")
        assert picture not in drawn, (value, values[drawn.index(picture)])
        drawn.append(picture)


def test_choices_of_different_types_do_not_read_the_same(read):
    for value in FLAG["properties"]["flag"]["enum"]:
        read.page.evaluate(DRAW, [json.dumps(FLAG), json.dumps({"flag": value})])
        words = read.page.locator(".pick-pill").all_inner_texts()
        assert sorted(words) == sorted(['"yes"', "yes", '"none"', "none", "1", '"1"'])


@pytest.mark.parametrize("pattern", ["^(a+)+$", "^(([a-z])+.)+[A-Z]([a-z])+$"])
def test_no_pattern_of_a_schema_stops_the_page(read, pattern):
    """There are some that a browser never comes to the end of: the server looks, in time that grows with the text alone."""
    schema = {"type": "object", "properties": {"x": {"type": "string", "pattern": pattern}}}
    made = read(schema, json.dumps({"x": "a" * 45 + "!"}), {"X": "a" * 46 + "!"})
    assert made["errors"] == [] and f"it fits {pattern}" in made["told"]

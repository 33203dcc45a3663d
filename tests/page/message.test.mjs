// What a message says.
import assert from "node:assert/strict";
import test from "node:test";
import { ambiguous, parsed, sentAs } from "../../src/holdfast/http/static/js/views/run/message.js";
import { write } from "../../src/holdfast/http/static/js/json.js";

test("what is typed is sent as it is told", () => {
  const told = [
    ["go on", '"go on"', "It is sent as a text."], ['"42"', '"42"', "It is sent as a text, without its quotes."],
    ["42", "42", 'It is sent as a number, not as a text. A text is written "42", with quotes.'], [" 4.0 ", "4.0", 'It is sent as a number, not as a text. A text is written "4.0", with quotes.'],
    ["true", "true", 'It is sent as yes or no, not as a text. A text is written "true", with quotes.'], ['{"a": 1}', '{"a":1}', "It is sent as an object with 1 field."],
    ["[1, 2]", "[1,2]", "It is sent as a list of 2 items."], ["null", "null", 'It is sent as null, not as a text. A text is written "null", with quotes.'], ["", "null", "Nothing is written: null is sent."],
  ];
  for (const [text, sent, words] of told) assert.deepEqual([write(parsed(text)), sentAs(text)], [sent, words]);
});

test("an object with a name that comes twice is not sent, because one of the two would be lost", () => {
  for (const text of ['{"a": 1, "a": 2}', '[{"b": {"a": 1, "c": [], "\\u0061": 2}}]']) assert.match(ambiguous(text), /"a" is there twice/);
  for (const text of ['{"a": {"a": 1}, "b": [{"a": "a"}, {"a": ":"}]}', '["a", "a"]', '"{\\"a\\": 1, \\"a\\": 2}"', '{"a": 1, "a": 2', "a: 1, a: 2", "", "null"]) assert.equal(ambiguous(text), null, text);
});

// What is decided, in a few words for a button.
import assert from "node:assert/strict";
import test from "node:test";
import { parse } from "../../src/holdfast/http/static/js/json.js";
import { brief, plain, typeOf } from "../../src/holdfast/http/static/js/schema.js";

const of = (properties) => ({ type: "object", properties });

test("a count comes before its noun, any other number behind its name", () => {
  assert.equal(brief(of({ days: { type: "integer" }, amount: { type: "number" } }), { days: 14, amount: 12.5 }), "14 days, amount 12.5");
  assert.equal(brief(of({ account: { type: "integer" } }), parse('{"account": 12345678901234567890}')), "account 12345678901234567890");
});

test("names of every object are not those of a value", () => {
  assert.equal(brief(of({ constructor: { enum: ["a"] }, toString: { type: "string" } }), {}), "");
});

test("what would be cut is not said at all", () => {
  assert.equal(brief(of({ amount: { type: "number" } }), { amount: 12.5 }, 5), "");
});

test("money on a button has every digit, and its sign", () => {
  const usd = (text) => brief(of({ usd: { type: "number" } }), parse(`{"usd": ${text}}`, { exact: true }));
  for (const [text, told] of [["2.999", "$2.999"], ["0.104", "$0.104"], ["-5.0", "-$5.0"], ["3", "$3"], ["1e21", "$1e21"]]) assert.equal(usd(text), told);
});

test("a title is said, and of a value with parts of parts nothing else", () => {
  const order = of({ title: { type: "string" }, items: { type: "array" }, priority: { enum: ["low", "high"] }, tags: { type: "array" }, weight: { type: "number" } });
  const value = { title: "Kettles", items: [{ name: "kettle" }], priority: "low", tags: ["a", "b"], weight: 2.5 };
  assert.equal(brief(order, value), "Kettles");
  assert.equal(brief(order, { ...value, title: undefined }), "");
  assert.equal(brief(order, { ...value, items: [] }), "Kettles, low, a, b, weight 2.5");
  assert.equal(brief(of({ note: { type: "string" }, weight: { type: "number" } }), { note: "soon", weight: 2 }), "weight 2");
});

test("a decimal has its default like any other number", () => {
  const decimal = [{ type: "number" }, { type: "string", format: "decimal" }], own = { anyOf: decimal, "x-default": { $decimal: "12.50" } };
  assert.equal(typeOf({ type: "integer", default: 2 }), "int = 2");
  assert.equal(typeOf(own), "decimal = 12.50");
  assert.equal(plain(own, own).default, "12.50");
  assert.equal(typeOf({ anyOf: [...decimal, { type: "null" }], default: null }), "decimal | None = null");
});

// Numbers as they were written: those that a browser would round, or write otherwise, come back as they came.
import assert from "node:assert/strict";
import test from "node:test";
import { Exact, isNumber, parse, same, write } from "../../src/holdfast/http/static/js/json.js";

const LARGE = '{"account":12345678901234567890,"amount":9007199254740993,"small":-9007199254740993,"huge":' + "9".repeat(320) + ',"far":1e400,"zero":-0,"cold":-0.0}';
const ODD = '[1.0,0.0,1e-07,1e+16,1E5,100,0.1,-3,2.50,1e16,null,true,"1.0"]';

test("a number that a browser would round keeps its digits", () => {
  assert.equal(write(parse(LARGE)), LARGE);
  const read = parse(LARGE);
  assert.equal(String(read.account), "12345678901234567890");
  assert.equal(`${read.far}`, "1e400");
  assert.ok(isNumber(read.account) && read.account instanceof Exact && read.account > 1e18);
});

test("other numbers are plain, unless every one is to come back as it was written", () => {
  assert.deepEqual(parse(ODD), JSON.parse(ODD));
  assert.equal(write(parse(ODD, { exact: true })), ODD);
  assert.equal(String(parse("1.0", { exact: true })), "1.0");
  assert.equal(parse("[3, 0.5]", { exact: true })[0], 3);
});

test("texts and names are never numbers, whatever they look like", () => {
  const text = '{"12345678901234567890":"9007199254740993","a\\"b":"\\\\","c":"\\",12345678901234567890,","__proto__":{"d":12345678901234567890}}';
  const read = parse(text);
  assert.equal(write(read), text);
  assert.equal(read["12345678901234567890"], "9007199254740993");
  assert.equal(Object.getPrototypeOf(read), Object.prototype);
  const long = JSON.stringify(['"\\'.repeat(300_000), "x".repeat(3_000_000)]);
  assert.equal(write(parse(`[${long},12345678901234567890]`)), `[${long},12345678901234567890]`);
});

test("what is no JSON is refused, with large numbers too", () => {
  for (const text of ["", "01", "012345678901234567890", "12345678901234567890 1", "[12345678901234567890,]", "1.", "+1", "-", "[12345678901234567890", '"12345678901234567890', "{12345678901234567890:1}", "1e", "--1", ".5"]) {
    assert.throws(() => parse(text), SyntaxError, text);
    assert.throws(() => parse(text, { exact: true }), SyntaxError, text);
  }
});

test("values are the same if their texts are", () => {
  assert.ok(same(parse("[12345678901234567890]"), parse(" [ 12345678901234567890 ]")));
  assert.ok(!same(parse("12345678901234567890"), parse("12345678901234567891")));
  assert.ok(!same(parse("1.0", { exact: true }), parse("1", { exact: true })));
  assert.ok(same(undefined, undefined) && !same(undefined, null));
  assert.ok(!same(-0, 0));
});

test("lines are indented as JSON.stringify does it", () => {
  assert.equal(write(parse('{"a":[12345678901234567890]}'), 2), '{\n  "a": [\n    12345678901234567890\n  ]\n}');
  assert.equal(write(undefined), undefined);
});

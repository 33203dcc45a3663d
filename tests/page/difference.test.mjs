import assert from "node:assert/strict";
import { test } from "node:test";
import { both, compared, lines, paid, readable, share, words } from "../../src/holdfast/http/static/js/difference.js";

test("what both have is said once, in order", () => {
  assert.deepEqual(compared(["a", "b", "c"], ["a", "x", "c"]), [["=", ["a"]], ["-", ["b"]], ["+", ["x"]], ["=", ["c"]]]);
  assert.deepEqual(compared([], ["x"]), [["+", ["x"]]]);
});

test("pieces put together are the texts again", () => {
  const one = "Surge adds up to two metres in a storm.", other = "A storm adds up to two metres, and an hour.";
  const [left, right] = words(one, other);
  assert.equal(left.map(([text]) => text).join(""), one);
  assert.equal(right.map(([text]) => text).join(""), other);
  assert.deepEqual(right.filter(([, differs]) => differs).map(([text]) => text.trim()), ["A storm", ", and an hour"]);
});

test("equal texts have no difference", () => {
  assert.deepEqual(words("the same", "the same"), [[["the same", false]], [["the same", false]]]);
});

test("long runs of equal lines are folded", () => {
  const one = Array.from({ length: 30 }, (_, nth) => `line ${nth}`), other = [...one];
  other[20] = "another";
  const made = lines(one.join("\n"), other.join("\n"));
  assert.deepEqual(made.slice(0, 5), [["…", 17], ["=", "line 17"], ["=", "line 18"], ["=", "line 19"], ["-", "line 20"]]);
});

test("names of a value are compared in one order", () => {
  assert.equal(readable({ b: 1, a: [{ d: 1, c: 2 }] }), readable({ a: [{ c: 2, d: 1 }], b: 1 }));
  assert.equal(readable("text"), "text");
});

test("texts that are too long to compare by word still come out whole", () => {
  const one = Array.from({ length: 5000 }, (_, nth) => `a${nth}`), other = Array.from({ length: 5000 }, (_, nth) => `b${nth}`);
  assert.deepEqual(compared(["x", ...one], ["x", ...other]).map(([sign, items]) => [sign, items.length]), [["=", 1], ["-", 5000], ["+", 5000]]);
});

test("a fork paid for the calls behind the point where it began, although the same came of them", () => {
  const calls = [{ seq: 0, usd: 0.5, ms: 900 }, { seq: 4, usd: 0.25, ms: 2000 }, { seq: 6, usd: 0, ms: null }];
  assert.deepEqual(paid(calls, 4), { reused: 1, again: 2, usd: 0.25, ms: 2000 });
  assert.deepEqual(paid(calls, 9), { reused: 3, again: 0, usd: 0, ms: 0 });
});

test("a difference that rounds to nothing is told as none", () => {
  assert.equal(share(13_104, 13_101), "the same");
  assert.equal(share(0, 0), "the same");
  assert.equal(share(0, 4), "");
  assert.equal(share(200, 199), "−0.5%");
  assert.equal(share(1000, 1099.9), "+10%");
});

test("values that differ are never written alike", () => {
  const values = [5, "5", [5], ["5"], null, "null", [], "[]", {}, "{}", [[5]], { a: 1 }, "a: 1", { a: [1] }, { a: "1" }, { a: ["1"] }, { a: [] }, { a: "" }, { a: null }, { a: {} }, { "a: 1\nb": 2 }, { a: 1, b: 2 }, [1, 2], ["1, 2"], { a: [1, 2] }, { a: ["1, 2"] }, { a: "1, 2" }];
  for (const [nth, one] of values.entries()) {
    for (const other of values.slice(nth + 1)) {
      const [left, right] = both(one, other);
      assert.notEqual(left, right, JSON.stringify([one, other]));
    }
  }
});

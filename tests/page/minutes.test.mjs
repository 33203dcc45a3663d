import assert from "node:assert/strict";
import { test } from "node:test";
import { minutesOf, toldOf } from "../../src/holdfast/http/static/js/views/fleet/past.js";

const NOON = Date.UTC(2026, 6, 14, 12, 0, 30);
const minute = (ago, steps) => ({ at: new Date(NOON - 30_000 - ago * 60_000).toISOString(), steps, ended: 1, failed: 0 });

test("a minute of which nothing is told was one of nothing, so what was done long ago is not done now", () => {
  const made = minutesOf([minute(19, 500), minute(17, 300)], NOON);
  assert.equal(made.length, 60);
  assert.deepEqual(made.map((each) => each.steps).slice(-20), [0, 500, 0, 300, ...Array(16).fill(0)]);
});

test("the last minute is the one before this one; if it has not been told yet, the one before that", () => {
  assert.equal(minutesOf([minute(2, 7), minute(1, 9)], NOON).at(-1).steps, 9);
  assert.equal(minutesOf([minute(3, 5), minute(2, 7)], NOON).at(-1).steps, 7);
  assert.equal(minutesOf([minute(3, 5)], NOON).at(-1).steps, 0);
});

test("a number of a minute says which minute it is of, and that workers told it", () => {
  const [before, last] = minutesOf([minute(2, 7)], NOON + 60_000).slice(-2);
  assert.deepEqual([before, last].map((each) => each.steps), [0, 0]);
  assert.deepEqual([Date.parse(new Date(before.at).toISOString()), last.at], [NOON - 30_000 - 60_000, NOON - 30_000]);
  const noon = new Date(2026, 6, 14, 12, 0).getTime();
  assert.equal(toldOf({ at: noon }), "from 12:00, as workers told");
});

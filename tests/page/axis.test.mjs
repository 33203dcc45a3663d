import assert from "node:assert/strict";
import { test } from "node:test";
import { axis, FOLD, folds, label, TEAR, ticks, union } from "../../src/holdfast/http/static/js/views/run/axis.js";

const MINUTE = 60_000, HOUR = 60 * MINUTE;

test("spans that touch are one", () => {
  assert.deepEqual(union([[5, 9], [1, 3], [3, 4], [8, 12], [20, 20]]), [[1, 4], [5, 12]]);
});

test("a wait is folded if it is longer than a minute and than a tenth of all work", () => {
  assert.deepEqual(folds(0, 3 * HOUR, [[0, MINUTE], [2 * HOUR, 3 * HOUR]]), [{ from: MINUTE, to: 2 * HOUR }]);
  assert.deepEqual(folds(0, 2 * MINUTE, [[0, MINUTE], [MINUTE + 50_000, 2 * MINUTE]]), [], "50 s are not folded");
  const day = 24 * HOUR; // an hour is less than a tenth of a day of work
  assert.deepEqual(folds(0, day + HOUR, [[0, day / 2], [day / 2 + HOUR, day + HOUR]]), []);
});

test("what waits now is folded up to now, and what waited before the first step", () => {
  assert.deepEqual(folds(0, 5 * HOUR, [[HOUR, HOUR + 1000]]), [{ from: 0, to: HOUR }, { from: HOUR + 1000, to: 5 * HOUR }]);
});

test("a tear is never folded", () => {
  const tears = [{ from: 1000, to: HOUR }];
  assert.deepEqual(folds(0, HOUR + 1000, [[0, 1000], [HOUR, HOUR + 1000]], tears), []);
});

test("a fold has its width and a tear is never narrower than can be seen", () => {
  const made = axis({ width: 900, from: 0, to: 2 * HOUR, folds: [{ from: MINUTE, to: HOUR }], tears: [{ from: HOUR + 500, to: HOUR + 501 }] });
  assert.deepEqual(made.parts.map((part) => part.sort), ["flow", "fold", "flow", "tear", "flow"]);
  assert.equal(made.parts[1].wide, FOLD);
  assert.equal(made.parts[3].wide, TEAR);
  assert.ok(Math.abs(made.ends - 900) < 1e-6);
});

test("a pixel is the moment that it was made of", () => {
  const made = axis({ width: 1000, from: 5000, to: 5000 + HOUR, folds: [{ from: 6000, to: 1_000_000 }], tears: [{ from: 2_000_000, to: 2_000_900 }] });
  for (const moment of [5000, 5500, 6000, 30_000, 1_500_000, 2_000_450, 3_000_000, 5000 + HOUR]) {
    assert.ok(Math.abs(made.time(made.x(moment)) - moment) < 1, `${moment} came back as ${made.time(made.x(moment))}`);
  }
  assert.equal(made.x(0), 0, "what was before is at the edge");
  assert.ok(Math.abs(made.x(9e12) - made.ends) < 1e-6);
});

test("time never goes backwards on paper", () => {
  const made = axis({ width: 640, from: 0, to: 10 * HOUR, folds: [{ from: 10, to: HOUR }, { from: 2 * HOUR, to: 9 * HOUR }], tears: [{ from: HOUR, to: HOUR + 5 }] });
  let before = -1;
  for (let moment = 0; moment <= 10 * HOUR; moment += HOUR / 7) {
    const x = made.x(moment);
    assert.ok(x >= before, `${x} after ${before}`);
    before = x;
  }
});

test("short flows can be seen, and the others make room", () => {
  const made = axis({ width: 500, from: 0, to: 10 * HOUR, folds: [{ from: 5, to: HOUR }] });
  assert.equal(made.parts[0].wide, 30);
  assert.ok(Math.abs(made.ends - 500) < 1e-6);
});

test("an axis that has no room grows", () => {
  const tears = Array.from({ length: 40 }, (_, nth) => ({ from: nth * 1000 + 500, to: nth * 1000 + 510 }));
  const made = axis({ width: 300, from: 0, to: 40_000, tears });
  assert.ok(made.ends >= 40 * TEAR + 41 * 30 - 1e-6);
});

test("an axis of no time is one moment wide", () => {
  const made = axis({ width: 300, from: 1000, to: 1000 });
  assert.equal(made.x(1000), 0);
  assert.ok(Number.isFinite(made.time(150)));
});

test("ticks stand on round moments and keep apart", () => {
  const { step, at } = ticks({ from: 1234, to: 61_234, wide: 600 }, { zone: 0 });
  assert.equal(step, 10_000);
  assert.deepEqual(at, [10_000, 20_000, 30_000, 40_000, 50_000, 60_000]);
  assert.deepEqual(ticks({ from: 5, to: 5, wide: 0 }).at, []);
});

test("a tick says the hour, however close the ticks are", () => {
  const at = new Date(2026, 6, 14, 14, 18, 46, 400).getTime();
  assert.deepEqual([100, 1000, MINUTE, 24 * HOUR].map((step) => label(at, step)), ["14:18:46.400", "14:18:46", "14:18", "Tue 14 Jul"]);
});

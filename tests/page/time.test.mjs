// Spans, moments and the server's clock.
import assert from "node:assert/strict";
import test from "node:test";
import { age, clock, day, exact, inUtc, learn, left, moment, ms, now, seconds, span, spoken, stand, when } from "../../src/holdfast/http/static/js/time.js";

test("spans are said as the command line says them", () => {
  const said = [[0, "0 ms"], [880, "880 ms"], [999.4, "999 ms"], [999.6, "1.0 s"], [1234, "1.2 s"], [59_949, "59.9 s"], [59_950, "1 min"], [90_000, "90 s"], [119_600, "2 min"], [240_000, "4 min"], [7_500_000, "2 h 5 min"], [7_200_000, "2 h"], [172_800_000, "2 days"], [-5, "0 ms"]];
  for (const [span, words] of said) assert.equal(spoken(span), words);
});

test("moments are told in UTC if that is asked for", () => {
  inUtc(true);
  const at = "2026-07-14T14:02:41.200Z";
  assert.equal(clock(at), "14:02:41");
  assert.equal(clock(at, true), "14:02:41.200");
  assert.equal(day(at), "Tue 14 Jul");
  assert.equal(moment(at), "2026-07-14 14:02:41");
  assert.equal(exact(at), "2026-07-14 14:02:41 UTC");
  assert.equal(exact(null), "");
  inUtc(false);
});

test("ages are counted on the server's clock, half the way of the answer later", () => {
  learn(new Date(Date.now() + 3_600_000).toISOString(), 200);
  assert.ok(Math.abs(now() - Date.now() - 3_600_100) < 50);
  learn(new Date(Date.now() + 3_600_000).toISOString(), 200, 5000); // and later by how long it lay there
  assert.ok(Math.abs(now() - Date.now() - 3_605_100) < 50);
  assert.equal(age(now() - 240_000), "4 min");
  assert.equal(left(now() + 7_200_000), "2 h");
  assert.match(when(now()), /^\d\d:\d\d:\d\d$/);
  assert.match(when(now() - 3 * 86_400_000), /^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d$/);
});

test("time stands while nothing is known of the server", () => {
  stand(true);
  const then = now();
  const until = Date.now() + 3;
  while (Date.now() < until);
  assert.equal(now(), then);
  stand(false);
  assert.ok(now() > then);
});

test("spans are read as people write them", () => {
  for (const [text, found] of [["30s", 30_000], ["1h30m", 5_400_000], ["2 days", 172_800_000], ["100ms", 100], ["1 hour, 5 mins", 3_900_000], ["7d", 604_800_000]]) assert.equal(span(text), found, text);
  for (const text of ["", "5", "h", "1x", "7 moons"]) assert.equal(span(text), null, text);
  assert.equal(seconds(41_000), "41 s");
  assert.equal(ms("no"), null);
  assert.equal(ms(5), 5);
});

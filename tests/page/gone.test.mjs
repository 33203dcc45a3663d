// Workers that are gone, in words.
import assert from "node:assert/strict";
import test from "node:test";
import { goneWords, silence } from "../../src/holdfast/http/static/js/views/fleet/past.js";
import { clock, now } from "../../src/holdfast/http/static/js/say.js";

test("a worker that was killed has its time, and its runs are told whether or not another has them", () => {
  const at = Date.UTC(2026, 10, 17, 19, 51, 38), killed = (more, left) => goneWords({ how: "dead", at, moved: 0, ...more }, left).replace(`found dead at ${clock(at)}`, "killed");
  assert.equal(killed({}, 2), "killed; 2 runs wait for another worker");
  assert.equal(killed({ moved: 2, after_ms: 1200 }, 0), "killed; 2 runs went on within 1.2 s");
  assert.equal(killed({ moved: 2, after_ms: 1200 }, 1), "killed; 2 runs went on within 1.2 s, 1 waits for another worker");
  assert.equal(killed({}, 0), "killed; it carried no run just then");
  assert.equal(killed({}, null), "killed", "what is not known is not said");
  assert.equal(goneWords({ how: "drained", at, moved: 1 }, 0), "1 run handed over");
});

test("where no worker answers it is said when the last was found gone, not that there was no sign since then", () => {
  const ago = (ms) => new Date(Date.now() - ms).toISOString();
  assert.match(silence([{ at: ago(40_000), how: "dead" }, { at: ago(90_000), how: "drained" }], []), /^No worker answers: the last was found dead at \d\d:\d\d:\d\d, 40\.\d s ago; $/);
  assert.match(silence([{ at: ago(90_000), how: "drained" }], [{ seen_at: ago(40_000) }]), /^No worker answers: the last beat of one was at \d\d:\d\d:\d\d, 40\.\d s ago; $/);
  assert.match(silence([{ at: ago(0), how: "lease" }], []), /^No worker answers: the last stopped answering before \d\d:\d\d:\d\d; $/, "a time of no length is not measured");
  assert.equal(silence([], []), "No worker is alive; ");
});

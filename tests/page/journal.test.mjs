import assert from "node:assert/strict";
import { test } from "node:test";
import { folds } from "../../src/holdfast/http/static/js/views/run/axis.js";
import { Journal, outcome } from "../../src/holdfast/http/static/js/views/run/journal.js";
import { reason, sentence, worked } from "../../src/holdfast/http/static/js/views/run/rows.js";

const T0 = Date.UTC(2026, 6, 14, 14, 2, 0);
const at = (seconds) => T0 + seconds * 1000;

/** A journal of events [kind, key, data, seconds, epoch]. */
function folded(...events) {
  const journal = new Journal();
  events.forEach(([kind, key, data = {}, seconds = 0, epoch = 1, more = {}], seq) => journal.add({ seq, kind, key, data, at: new Date(at(seconds)).toISOString(), epoch, ...more }));
  return journal;
}
const step = (name, more = {}) => ({ name, input: "x=1", asked: 0, attempts: 1, ...more });

test("an event is taken in once", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 2]);
  journal.add({ seq: 0, kind: "step.completed", key: "a#0", data: step("a"), at: new Date(at(9)).toISOString() });
  assert.equal(journal.events, 1);
  assert.equal(journal.call("a#0").ended, at(2));
});

test("each failed attempt has its time, its error and its wait", () => {
  const journal = folded(
    ["step.completed", "z#0", step("z", { began: at(0) }), 10],
    ["step.retrying", "a#0", { name: "a", input: "", asked: 1, attempt: 1, wait_ms: 5000, error: { type: "E", message: "503" } }, 12],
    ["step.retrying", "a#0", { name: "a", input: "", asked: 1, attempt: 2, wait_ms: 4000, error: { type: "E", message: "504" }, pauses: "openai" }, 20],
    ["step.completed", "a#0", { name: "a", input: "", asked: 1, attempts: 3, began: at(24) }, 25]);
  const call = journal.call("a#0");
  assert.deepEqual(call.tries.map((each) => [each.n, each.began - T0, each.ended - T0, each.how, each.error]), [[1, 10_000, 12_000, "failed", "E: 503"], [2, 17_000, 20_000, "failed", "E: 504"]]);
  assert.deepEqual([call.state, call.attempts, call.began - T0, call.start - T0], ["done", 3, 24_000, 10_000]);
  assert.deepEqual(call.worked(at(99)).map(([from, to]) => to - from), [2000, 3000, 1000]);
});

test("a tear is as long as nothing was recorded, and names both workers", () => {
  const journal = folded(
    ["step.completed", "a#0", step("a", { began: at(0), worker: "fox-2" }), 2],
    ["run.interrupted", null, { owner: "fox-2", epoch: 1, by: "heron-1", how: "dead" }, 3, 2],
    ["step.completed", "b#0", step("b", { began: at(3), asked: 1, worker: "heron-1" }), 5, 2]);
  const [tear] = journal.tears;
  assert.deepEqual([tear.from - T0, tear.to - T0, tear.owner, tear.by, tear.how, tear.readBack], [2000, 3000, "fox-2", "heron-1", "dead", 1]);
  assert.deepEqual(journal.carriers.map((each) => [each.owner, each.from - T0, each.to - T0, each.ends]), [["fox-2", 0, 2000, "killed"], ["heron-1", 3000, 5000, "now"]]);
  assert.deepEqual(journal.across(tear).map((call) => call.key), ["b#0"]);
});

test("a step that had begun when its process went is in doubt, and what came of it is told", () => {
  const journal = folded(
    ["step.started", "pay#0", { name: "pay", input: "", asked: 0, attempt: 1 }, 1],
    ["run.interrupted", null, { owner: "fox-2" }, 3, 2],
    ["step.completed", "pay#0", { name: "pay", input: "", asked: 0, attempts: 1 }, 4, 2]);
  const call = journal.call("pay#0");
  assert.deepEqual(call.tries.map((each) => [each.how, each.began - T0, each.ended - T0]), [["unknown", 1000, 1000]]);
  assert.equal(call.probed, true);
  assert.match(call.remarks[0].text, /its probe found it done/);
  assert.deepEqual(journal.tears[0].doubt, ["pay#0"]);
  const again = folded(
    ["step.started", "pay#0", { name: "pay", input: "", asked: 0, attempt: 1 }, 1],
    ["run.interrupted", null, { owner: "fox-2" }, 3, 2],
    ["step.started", "pay#0", { name: "pay", input: "", asked: 0, attempt: 2 }, 4, 2]).call("pay#0");
  assert.deepEqual([again.state, again.attempts, again.tries[0].how], ["running", 2, "unknown"]);
});

test("what the worker said of a call becomes an attempt that was lost with its process", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 2]);
  journal.showOpen([{ key: "one#0/b#0", name: "b", input: "y", attempt: 1, began: new Date(at(1)).toISOString() }]);
  assert.deepEqual([journal.call("one#0/b#0").state, journal.branch("/one#0").items.length], ["running", 1]);
  journal.add({ seq: 1, kind: "run.interrupted", key: null, data: { owner: "fox-2", by: "owl" }, at: new Date(at(4)).toISOString(), epoch: 2 });
  journal.showOpen([]);
  assert.deepEqual(journal.branch("/one#0").items.map((call) => call.state), ["waiting"], "nothing runs in between");
  journal.add({ seq: 2, kind: "step.completed", key: "one#0/b#0", data: step("b", { began: at(4), asked: 1 }), at: new Date(at(6)).toISOString(), epoch: 2 });
  assert.deepEqual(journal.tears[0].lost, ["one#0/b#0"]);
  assert.deepEqual(journal.branch("/one#0").items.map((call) => call.state), ["done"]);
  assert.deepEqual(journal.call("one#0/b#0").tries.map((each) => [each.how, each.began - T0, each.ended - T0]), [["lost", 1000, 2000]]);
});

test("what runs now comes and goes, and is not there twice once it is recorded", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 2]);
  journal.showOpen([{ key: "b#0", name: "b", input: "", attempt: 2, began: at(2) }]);
  journal.add({ seq: 1, kind: "step.completed", key: "b#0", data: step("b", { began: at(2) }), at: at(5) });
  assert.deepEqual(journal.items.map((call) => call.name), ["a", "b"]);
  journal.showOpen([]);
  assert.deepEqual(journal.items.map((call) => [call.name, call.state]), [["a", "done"], ["b", "done"]]);
});

test("what a retry took out is a call of its own, and its events are counted", () => {
  const journal = folded(
    ["step.failed", "a#0", step("a", { began: at(0), error: { type: "E", message: "no" } }), 1, 1, { dropped: 2 }],
    ["run.failed", null, { error: { type: "E", message: "no" } }, 1, 1, { dropped: 2 }],
    ["run.retried", null, { by: "ana", cut: 0 }, 5],
    ["step.completed", "a#0", step("a", { began: at(6) }), 7, 2]);
  assert.deepEqual([journal.call("a#0").state, journal.call("a#0", 2).state, journal.dropped], ["done", "failed", 2]);
  assert.deepEqual(journal.retries, [{ seq: 2, by: "ana", cut: 0, count: 2 }]);
});

test("why a call was made is the outcome before it", () => {
  const journal = folded(
    ["step.completed", "a#0", step("a", { began: at(0) }), 2],
    ["step.started", "b#0", { name: "b", asked: 1, attempt: 1 }, 3],
    ["step.completed", "b#0", step("b", { began: at(3), asked: 1 }), 4]);
  assert.equal(journal.because(journal.call("a#0")), null);
  assert.equal(journal.because(journal.call("b#0")), 0);
  assert.equal(journal.askedAt(journal.call("b#0")), at(2));
});

test("a question has who was asked, who decided, and whether it was changed", () => {
  const journal = folded(
    ["approval.asked", ":approve#0", { name: ":approve", input: "", asked: 0, kind: "approve", approval: "q-1", question: "Publish?", to: ["group:editors"] }, 0],
    ["approval.voted", null, { approval: "q-1", key: ":approve#0", by: "bo", yes: true, changed: true }, 4],
    ["approval.decided", null, { approval: "q-1", key: ":approve#0", by: "ana", yes: true, decision: "approved", note: "fine" }, 9, 1, { preview: "{'usd': 2}" }]);
  const { question, state, ended, name } = journal.call(":approve#0");
  assert.deepEqual([question.id, question.to, question.by, question.decision, question.changed, question.note, question.gave], ["q-1", ["group:editors"], "ana", "approved", "bo", "fine", "{'usd': 2}"]);
  assert.deepEqual([state, ended - T0, name], ["done", 9000, "Publish?"]);
  assert.equal(outcome(question), "approved, with bo's change");
  const { question: more } = folded(
    ["approval.asked", null, { key: "budget", kind: "budget", approval: "q-1", question: "More?", to: [], digest: "a" }, 0],
    ["approval.decided", null, { approval: "q-1", key: "budget", by: "ana", yes: true, decision: "approved", digest: "b" }, 9]).call("budget");
  assert.equal(outcome(more), "approved, with a change");
});

test("ten thousand events are folded in less than a second of a processor", () => {
  const events = Array.from({ length: 10_000 }, (_, seq) => ({ seq, kind: "step.completed", key: `fetch#${seq}`, data: step("fetch", { began: at(seq) }), at: new Date(at(seq + 1)).toISOString(), epoch: 1, preview: "'ok'" }));
  const journal = new Journal(), began = process.cpuUsage();
  for (const event of events) journal.add(event);
  const took = process.cpuUsage(began).user / 1000;
  assert.equal(journal.calls, 10_000);
  assert.ok(took < 800, `${took.toFixed(0)} ms`);
});

test("a run that was torn before its first record began when a worker took it", () => {
  const journal = new Journal();
  journal.startedAt = at(1);
  journal.add({ seq: 0, kind: "run.interrupted", key: null, data: { owner: "fox", epoch: 1, by: "owl", how: "dead" }, at: at(5), epoch: 2 });
  assert.deepEqual([journal.tears[0].from - T0, journal.tears[0].to - T0], [1000, 5000]);
  assert.deepEqual(journal.carriers.map((each) => [each.owner, each.from - T0, each.ends]), [["fox", 1000, "killed"], ["owl", 5000, "now"]]);
});

test("what ran last is known although nobody said it any more when the process was gone", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 2]);
  journal.showOpen([{ key: "b#0", name: "b", input: "", attempt: 1, began: at(1) }, { key: "c#0", name: "c", input: "", attempt: 1, began: at(1) }]);
  journal.add({ seq: 1, kind: "step.completed", key: "c#0", data: step("c", { began: at(1) }), at: at(3), epoch: 1 });
  journal.showOpen([]);
  journal.add({ seq: 2, kind: "run.interrupted", key: null, data: { owner: "fox", by: "owl" }, at: at(9), epoch: 2 });
  assert.deepEqual(journal.tears[0].lost, ["b#0"]);
  journal.showOpen([{ key: "b#0", name: "b", input: "", attempt: 1, began: at(9) }]);
  assert.deepEqual(journal.call("b#0").tries.map((each) => each.how), ["lost"], "while it runs again its lost attempt is there");
});

test("word of a step that runs is a sign of its process, which was there when it was a second old", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 2],
    ["run.interrupted", null, { owner: "fox", epoch: 1, by: "owl", how: "dead", open: [{ key: "b#0", attempt: 1, began: at(7.5) }] }, 9, 2]);
  assert.deepEqual([journal.tears[0].from - T0, journal.tears[0].to - T0, journal.tears[0].lost], [8500, 9000, ["b#0"]]);
  assert.deepEqual(journal.carriers.map((each) => [each.owner, each.to - T0]), [["fox", 8500], ["owl", 9000]]);
});

test("the last sign that was recorded with a tear holds, for the gap and for who carried it", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 2],
    ["run.interrupted", null, { owner: "fox", epoch: 1, by: "owl", how: "dead", seen: at(8), open: [{ key: "b#0", attempt: 1, began: at(2.5) }] }, 9, 2]);
  assert.deepEqual([journal.tears[0].from - T0, journal.tears[0].to - T0], [8000, 9000]);
  assert.deepEqual(journal.carriers.map((each) => [each.owner, each.to - T0]), [["fox", 8000], ["owl", 9000]]);
});

test("who is gone carried it until its last sign, as what was cut off with it", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 2]);
  journal.showOpen([{ key: "b#0", name: "b", input: "", attempt: 1, began: at(2) }]);
  journal.showOpen([], at(4.5));
  assert.deepEqual([journal.carriers[0].to, [...journal.each()].find((call) => call.key === "b#0").tries[0].ended], [at(4.5), at(4.5)]);
});

test("a step of a worker that is gone ends at its last sign, also if nobody has taken over, and goes on when it was not gone", () => {
  const journal = folded(["step.started", "a#0", step("a", { worker: "fox", attempt: 1 }), 2], ["step.retrying", "b#0", { name: "b", input: "", asked: 0, attempt: 1, wait_ms: 10, error: { type: "E", message: "no" } }, 2.5]);
  const [a, b] = [journal.call("a#0"), journal.call("b#0")], told = (call) => [call.state, call.began, ...(call.tries ?? []).map((each) => [each.how, each.began, each.ended, each.tear ?? null])];
  const running = [{ key: "b#0", name: "b", input: "", attempt: 2, began: at(3) }], failed = ["failed", at(2), at(2.5), null];
  journal.showOpen(running);
  assert.deepEqual([told(a), told(b).slice(0, 2)], [["running", at(2)], ["running", at(3)]]);
  failed[1] = b.tries[0].began;
  journal.showOpen([], at(4));
  assert.deepEqual(told(a), ["waiting", null, ["unknown", at(2), at(4), null]]);
  assert.deepEqual(told(b), ["waiting", null, failed, ["lost", at(3), at(4), null]]);
  assert.match(sentence(a, at(60)), /cut off: its worker is gone/);
  assert.deepEqual(worked(journal, at(60)).filter(([, to]) => to > at(4)), [], "nobody worked after it");
  journal.showOpen(running);
  assert.deepEqual([told(a), told(b)], [["running", at(2)], ["running", at(3), failed]]);
  journal.showOpen([], at(4));
  journal.add({ seq: 2, kind: "run.interrupted", key: null, data: { owner: "fox", by: "owl", seen: at(4) }, at: at(9), epoch: 2 });
  assert.deepEqual([journal.tears[0].doubt, told(a).at(-1)], [["a#0"], ["unknown", at(2), at(4), 2]]);
});

test("nobody carries a run that is paused, and who has it now is told before it records anything", () => {
  const events = [["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 2], ["run.paused", null, { by: "ana" }, 3], ["run.resumed", null, { by: "ana" }, 600]];
  const told = (carriers) => carriers.map((each) => [each.owner, each.from - T0, each.to - T0, each.ends]), fox = ["fox", 0, 3000, "left"];
  const paused = folded(...events), info = { status: "running", worker: "owl", epoch: 2, life: [["work", 3000], ["paused", 597_000], ["work", 4000]] };
  assert.deepEqual(told(paused.carriers), [fox]);
  assert.deepEqual(told(paused.carried(info, at(605))), [fox, ["owl", 601_000, 605_000, "now"]]);
  assert.deepEqual(told(paused.carried({ ...info, worker_gone: true }, at(605))), [fox]);
  assert.deepEqual(told(folded(...events, ["step.completed", "b#0", step("b", { began: at(601), worker: "owl" }), 606, 2]).carried(info, at(607))), [fox, ["owl", 601_000, 606_000, "now"]]);
  assert.deepEqual(told(new Journal().carried({ ...info, epoch: 1, life: [["ready", 10], ["work", 4000]] }, at(9))), [["owl", 5000, 9000, "now"]], "it has no event yet");
  const called = folded(["run.pausing", null, { by: "ana" }, 3], ["run.resumed", null, { by: "ana" }, 4]);
  assert.deepEqual(told(called.carriers), [[null, 3000, 4000, "now"]], "a pause that was called off had a process");
});

test("who tries again has the run from the beginning of the attempt", () => {
  const retrying = (attempt, seconds, epoch) => ["step.retrying", "b#0", { name: "b", input: "", asked: 1, attempt, wait_ms: 60_000, error: { type: "E", message: "no" } }, seconds, epoch];
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 1], retrying(1, 5, 1), retrying(2, 70, 2));
  assert.deepEqual(journal.carriers.map((each) => [each.epoch, each.from - T0, each.to - T0]), [[1, 0, 5000], [2, 65_000, 70_000]]);
});

/** A step that is tried twice, and the run that is retried eighteen minutes later. */
const RETRIED = [
  ["step.completed", "a#0", step("a", { began: at(0) }), 1],
  ["step.retrying", "b#0", { name: "b", input: "", asked: 1, attempt: 1, wait_ms: 800, error: { type: "E", message: "no" } }, 1.5, 1, { dropped: 4 }],
  ["step.failed", "b#0", step("b", { began: at(2.3), asked: 1, attempts: 2, error: { type: "E", message: "no" } }), 3, 2, { dropped: 4 }],
  ["run.failed", null, { error: { type: "E", message: "no" } }, 3, 2, { dropped: 4 }],
  ["run.retried", null, { by: "ana", cut: 2 }, 1083, 2],
  ["step.retrying", "b#0", { name: "b", input: "", asked: 1, attempt: 1, wait_ms: 800, error: { type: "E", message: "no" } }, 1083.6, 3],
  ["step.failed", "b#0", step("b", { began: at(1084.4), asked: 1, attempts: 2, error: { type: "E", message: "no" } }), 1084.9, 4],
];

test("an attempt behind a retry began behind it, and what ran before it is work too", () => {
  const journal = folded(...RETRIED), [again] = journal.call("b#0").tries, [before] = journal.call("b#0", 4).tries;
  assert.deepEqual([again.began - T0, again.ended - T0], [1_083_000, 1_083_600]);
  assert.deepEqual([before.began - T0, before.ended - T0], [1000, 1500]);
  assert.equal(journal.askedAt(journal.call("b#0")), at(1083));
  assert.equal(journal.calls, 2);
  assert.deepEqual(journal.carriers.map((each) => [each.epoch, each.to - T0]), [[1, 1500], [2, 3000], [3, 1_083_600], [4, 1_084_900]], "nobody carried it until then");
  const [wait, ...others] = folds(at(0), at(1085), worked(journal, at(1085)));
  assert.deepEqual([wait.from - T0, wait.to - T0, others], [3000, 1_083_000, []]);
  assert.deepEqual(reason(journal, wait), { why: "again", text: "until it was retried" });
});

test("nobody carried a fork between what it shares and its own beginning, also in the epoch that it has from there", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 2, 5], ["run.forked", null, { of: "base", at: 1, by: "ana" }, 600, 5],
    ["step.completed", "b#0", step("b", { began: at(601), worker: "owl" }), 603, 5]);
  assert.deepEqual(journal.carriers.map((each) => [each.owner, each.from - T0, each.to - T0]), [["fox", 0, 2000], ["owl", 601_000, 603_000]]);
});

test("an attempt that failed behind a tear began behind it", () => {
  const journal = folded(
    ["step.completed", "a#0", step("a", { began: at(0), worker: "fox" }), 1],
    ["run.interrupted", null, { owner: "fox", epoch: 1, by: "owl" }, 600, 2],
    ["step.retrying", "b#0", { name: "b", input: "", asked: 1, attempt: 1, wait_ms: 800, error: { type: "E", message: "no" } }, 601, 2]);
  assert.deepEqual(journal.call("b#0").tries.map((each) => [each.began - T0, each.ended - T0]), [[600_000, 601_000]]);
});

test("what was cut off is there while nobody goes on, and until the one who took over says what runs", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 2]);
  journal.showOpen([{ key: "x-0:model/x.model#0", name: "x.model", input: "hello", attempt: 1, began: at(2) }]);
  journal.showOpen([], at(3));
  const shown = () => [...journal.each()].filter((call) => call.key === "x-0:model/x.model#0").map((call) => [call.name, call.input, call.state, call.began, (call.tries ?? []).map((each) => [each.how, each.began - T0, each.ended - T0])]);
  const cut = [["model", "hello", "waiting", null, [["lost", 2000, 3000]]]];
  assert.deepEqual(shown(), cut);
  journal.add({ seq: 1, kind: "run.interrupted", key: null, data: { owner: "fox", by: "owl", open: [{ key: "x-0:model/x.model#0", attempt: 1, began: at(2) }] }, at: at(9), epoch: 2 });
  journal.showOpen([]);
  assert.deepEqual(shown(), cut);
  journal.showOpen([{ key: "x-0:model/x.model#0", name: "x.model", input: "hello", attempt: 1, began: at(9) }]);
  assert.deepEqual(shown(), [["model", "hello", "running", at(9), [["lost", 2000, 3000]]]]);
  journal.add({ seq: 2, kind: "step.completed", key: "x-0:model/x.model#0", data: step("x.model", { began: at(9), asked: 1 }), at: at(12), epoch: 2 });
  journal.showOpen([]);
  assert.deepEqual(shown(), [["model", "x=1", "done", at(9), [["lost", 2000, 3000]]]]);
});

test("results that are read back are those of steps, children, people and messages, since the checkpoint", () => {
  const journal = folded(["step.completed", "a#0", step("a", { began: at(0) }), 1], ["note", "n#0", { text: "hm", asked: 1 }, 1], ["child.started", "c#0", { child: "x", asked: 1 }, 1], ["child.ended", null, { child: "x", status: "completed" }, 2],
    ["approval.asked", ":ask#0", { approval: "q", kind: "ask", question: "?", asked: 2 }, 2], ["approval.voted", ":ask#0", { approval: "q", by: "ana", yes: true }, 3], ["approval.decided", null, { approval: "q", by: "bo", yes: true, decision: "approved" }, 3],
    ["run.interrupted", null, { owner: "fox", by: "owl", seen: at(4) }, 5]);
  assert.equal(journal.tears[0].readBack, 3);
  assert.equal(journal.calls, 3, "a step, a child and a question");
});

test("a call that runs is a call, before the journal knows it", () => {
  const journal = new Journal();
  assert.deepEqual([journal.calls, journal.thinks], [0, false]);
  journal.showOpen([{ key: "model#0", name: "model", input: "", attempt: 1, began: at(1) }]);
  assert.deepEqual([journal.calls, journal.thinks], [1, true]);
  journal.showOpen([]);
  assert.deepEqual([journal.calls, journal.thinks], [0, false]);
});

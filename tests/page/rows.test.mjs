import assert from "node:assert/strict";
import { test } from "node:test";
import { Call, Journal } from "../../src/holdfast/http/static/js/views/run/journal.js";
import { atOnce, brief, cutOff, filter, nested, noRows, reason, rowSentence, rowsOf, spanOf, worked } from "../../src/holdfast/http/static/js/views/run/rows.js";

const T0 = new Date(2026, 6, 14, 14, 2, 0).getTime();
const at = (seconds) => T0 + seconds * 1000;
const done = (key, from, to, more = {}) => ["step.completed", key, { name: key.split("/").at(-1).split("#")[0], input: "", asked: 0, attempts: 1, began: at(from), ...more }, to];

function folded(...events) {
  const journal = new Journal();
  events.forEach(([kind, key, data = {}, seconds = 0], seq) => journal.add({ seq, kind, key, data, at: at(seconds), epoch: 1 }));
  return journal;
}
const view = (more = {}) => ({ closed: new Set(), opened: new Set(), over: false, dropped: false, since: 0, fits: null, nested: null, now: at(1000), ...more });
const shown = (rows) => rows.map((row) => `${"  ".repeat(row.depth)}${row.name ?? row.call.name}${row.note ? ` ${row.note}` : ""}`);

test("rows stand in the order in which calls began, not in which they ended", () => {
  const journal = folded(done("b#0", 5, 6), done("a#0", 0, 9));
  assert.deepEqual(shown(rowsOf(journal, view())), ["a", "b"]);
});

test("tasks of one name are one branch, and a task with one call is that call", () => {
  const journal = folded(done("read#0/note#0", 0, 2), done("read#1/note#0", 0, 4), done("read#2/note#0", 1, 3), done("read#2/save#0", 3, 4));
  assert.deepEqual(shown(rowsOf(journal, view())), ["read 3 at once", "  note", "  note", "  read#2", "    note", "    save"]);
  assert.equal(atOnce([[0, 2], [2, 4]], 2), "2, one by one");
});

test("more than fifty calls of one name are one row, and those that matter below it", () => {
  const events = Array.from({ length: 60 }, (_, nth) => done(`fetch#${nth}`, nth, nth + 1));
  events.push(["step.retrying", "fetch#60", { name: "fetch", asked: 0, attempt: 1, wait_ms: 1000, error: { type: "E" } }, 80]);
  events.push(["step.completed", "fetch#60", { name: "fetch", asked: 0, attempts: 2, began: at(81) }, 99]);
  const [row] = rowsOf(folded(...events), view());
  assert.deepEqual([row.sort, row.note, row.calls.length], ["many", "61", 61]);
  const opened = rowsOf(folded(...events), view({ opened: new Set([row.key]) }));
  assert.deepEqual(shown(opened).slice(0, 4), ["fetch 61", "  tried again 1 of 61", "    fetch", "  slowest of all"]);
});

test("the time of a row is found once, however many calls it stands for and however often it is said", () => {
  const journal = folded(...Array.from({ length: 400 }, (_, nth) => done(`read#${nth % 4}/fetch#${nth}`, nth, nth + 1)));
  const start = Object.getOwnPropertyDescriptor(Call.prototype, "start");
  let looked = 0;
  Object.defineProperty(Call.prototype, "start", { ...start, get() { looked += 1; return start.get.call(this); } });
  const rows = rowsOf(journal, view());
  assert.deepEqual(shown(rows), ["read 4 at once", ...[0, 1, 2, 3].flatMap((nth) => [`  read#${nth}`, "    fetch 100"])]);
  looked = 0;
  assert.deepEqual(rows.map((row) => spanOf(row, at(1000))), [[at(0), at(400)], ...[0, 1, 2, 3].flatMap((nth) => Array(2).fill([at(nth), at(397 + nth)]))]);
  assert.deepEqual(rows.slice(0, 3).map((row) => rowSentence(row, at(1000))), ["read, 4 at once, 7 min", "read#0, 7 min", "fetch, 100 calls, 7 min in all"]);
  assert.equal(looked, 0);
  Object.defineProperty(Call.prototype, "start", start);
});

test("a row goes on as long as one of its calls does", () => {
  const journal = folded(...Array.from({ length: 4 }, (_, nth) => done(`read#${nth % 2}/fetch#${nth}`, nth, nth + 1)), ["step.started", "read#1/save#0", { name: "save", input: "", asked: 0, attempt: 1 }, 6]);
  const [all, first] = rowsOf(journal, view());
  assert.deepEqual([spanOf(all, at(9)), spanOf(all, at(99)), spanOf(first, at(99))], [[at(0), at(9)], [at(0), at(99)], [at(0), at(3)]]);
});

test("fifty calls of one name are fifty rows", () => {
  assert.equal(rowsOf(folded(...Array.from({ length: 50 }, (_, nth) => done(`fetch#${nth}`, nth, nth + 1))), view()).length, 50);
});

test("a tear stands between what began before it and what began after", () => {
  const journal = folded(done("a#0", 0, 2), ["run.interrupted", null, { owner: "fox", by: "owl" }, 3], done("b#0", 3, 5));
  const rows = rowsOf(journal, view());
  assert.deepEqual(rows.map((row) => (row.tears ?? []).length), [0, 1]);
});

test("the sentence of a call tells all that happened to it", () => {
  const journal = folded(
    ["step.retrying", "a#0", { name: "a", input: "x", asked: 0, attempt: 1, wait_ms: 1000, error: { type: "E", message: "503" } }, 1],
    ["step.completed", "a#0", { name: "a", input: "x", asked: 0, attempts: 2, began: at(2) }, 4]);
  assert.equal(rowSentence(rowsOf(journal, view())[0], at(9)), "a x, attempt 1 failed: E: 503, done in 2.0 s");
  const doubt = folded(
    ["step.started", "pay#0", { name: "pay", input: "", asked: 0, attempt: 1 }, 1],
    ["run.interrupted", null, { owner: "fox" }, 3],
    ["step.completed", "pay#0", { name: "pay", input: "", asked: 0, attempts: 1 }, 4]);
  assert.match(rowSentence(rowsOf(doubt, view())[0], at(9)), /^pay, in doubt at \d\d:02:01, found done by its probe, not run again, done, its outcome was not known/);
});

test("what a filter asks for is shown with what it stands in", () => {
  const journal = folded(done("read#0/note#0", 0, 2, { input: "otters" }), done("read#1/note#0", 0, 40, { input: "kelp" }), done("send#0", 41, 42));
  assert.deepEqual(shown(rowsOf(journal, view({ fits: filter("kelp") }))), ["note"]);
  assert.deepEqual(shown(rowsOf(journal, view({ fits: filter("> 5 s") }))), ["note"]);
  assert.deepEqual(shown(rowsOf(journal, view({ fits: filter("note") }))), ["read 2 at once", "  note", "  note"]);
  assert.equal(filter("  "), null);
  assert.deepEqual(shown(rowsOf(journal, view({ fits: filter("attempt>1") }))), []);
});

test("what was waited for through a fold is named", () => {
  const journal = folded(
    ["approval.asked", ":approve#0", { name: ":approve", input: "", asked: 0, kind: "approve", approval: "q-1", question: "Publish?", to: ["group:editors"] }, 0],
    ["timer.set", ":timeout#0", { name: ":timeout", asked: 0, ms: 9_000_000 }, 0],
    ["approval.decided", null, { approval: "q-1", key: ":approve#0", by: "ana", yes: true, decision: "approved" }, 7200],
    ["timer.set", ":sleep#0", { name: ":sleep", asked: 1, ms: 3_600_000 }, 7200]);
  assert.deepEqual(reason(journal, { from: at(1), to: at(7000) }), { why: "person", text: "for editors" });
  assert.deepEqual(reason(journal, { from: at(7201), to: at(9000) }), { why: "clock", text: "asleep" });
  assert.deepEqual(worked(journal, at(9000)), []);
});

test("ten thousand calls are rows in less than half a second of a processor", () => {
  const journal = folded(...Array.from({ length: 10_000 }, (_, nth) => done(`${["fetch", "note", "save"][nth % 3]}#${nth}`, nth, nth + 1)));
  const began = process.cpuUsage();
  const rows = rowsOf(journal, view());
  const took = process.cpuUsage(began).user / 1000;
  assert.equal(rows.length, 3);
  assert.ok(took < 500, `${took.toFixed(0)} ms`);
});

test("arguments are told as people say them", () => {
  assert.equal(brief("url='kelp.org', times=2"), "kelp.org, 2");
  assert.equal(brief("query='\"sea otters, sleep\"'"), '"sea otters, sleep"');
  assert.equal(brief("items=[{'a': 'b=c'}]"), "[{'a': 'b=c'}]");
  assert.equal(brief(""), "");
});

test("where there is no row it is said why, and no filter is named that nobody wrote", () => {
  const journal = folded(["conversation.entered", null, { conversation: "ana" }, 1], ["conversation.read", ":conversation.messages#0", { conversation: "ana", asked: 1 }, 1]);
  assert.equal(journal.calls, 0);
  assert.deepEqual(rowsOf(journal, view()), []);
  assert.equal(noRows(view()), "It has made no call yet.");
  assert.equal(noRows(view({ over: true })), "It made no call.");
  assert.equal(noRows(view({ fits: filter("dive") })), "No call fits the filter.");
});

test("a run that a process has is at work, although it has recorded nothing yet", () => {
  const journal = new Journal();
  journal.startedAt = at(0);
  assert.deepEqual(worked(journal, at(90), new Map(), true), [[at(0), at(90)]]);
});

test("a call that was cut off counts at once, and nobody claims to know what its first try did", () => {
  const done1 = done("a#0", 0, 1), torn = ["run.interrupted", null, { owner: "fox", by: "owl", seen: at(9), open: [{ key: "b#0", attempt: 1, began: at(2) }, { key: "a#0", attempt: 1, began: at(0) }] }, 10];
  const journal = folded(done1, torn), [tear] = journal.tears, told = () => cutOff(journal, tear).map(({ calls, strong, dim }) => [calls.map((call) => call.key), strong, dim]);
  const middle = [[["b#0"], "call was in the middle", "what was begun of it, and what that did, is not known; it runs again with the same idempotency key"]];
  journal.showOpen([]);
  assert.deepEqual(told(), middle, "before its worker tells of it");
  journal.showOpen([{ key: "b#0", name: "b", input: "", attempt: 1, began: at(10) }]);
  assert.deepEqual(told(), middle, "while it runs again");
  journal.add({ seq: 2, kind: "step.completed", key: "b#0", data: { name: "b", input: "", asked: 1, attempts: 1, began: at(10) }, at: at(14), epoch: 2 });
  journal.showOpen([]);
  assert.deepEqual(told(), middle, "when it has ended");
  const quiet = folded(done1, ["run.interrupted", null, { owner: "fox", by: "owl", seen: at(2) }, 3]);
  assert.deepEqual(cutOff(quiet, quiet.tears[0]).map(({ calls, strong }) => [calls, strong]), [[[], "calls are known to have been in the middle"]]);
});

test("a child that was cancelled is said to be, and is not drawn as one that is done", () => {
  const journal = folded(["child.started", "tile#0", { name: "tile", input: "", asked: 0, child: "tile-1" }, 1], ["child.ended", null, { child: "tile-1", status: "cancelled" }, 4]);
  const [row] = rowsOf(journal, view());
  assert.equal(rowSentence(row, at(9)), "tile, child run tile-1, cancelled after 3.0 s");
  assert.deepEqual(["waiting", "done", "failed", "cancelled"].map((state) => nested({ state })), ["nested", "nested", "nested.bad", "left"]);
});

// Runs and amounts in words.
import assert from "node:assert/strict";
import test from "node:test";
import { advice, callName, command, cost, count, dollars, flat, happens, lastSign, isMine, lived, many, people, progress, rested, stands, tokens, word, worker } from "../../src/holdfast/http/static/js/say.js";
import { did } from "../../src/holdfast/http/static/js/deeds.js";
import { now } from "../../src/holdfast/http/static/js/time.js";

const run = (more) => ({ id: "r", agent: "atlas", status: "running", waits_for: null, labels: {}, created_at: now() - 1000, ...more });
const ago = (ms) => new Date(now() - ms).toISOString();

test("amounts", () => {
  assert.deepEqual([0, 5, 1.674, 1234.5, 0.004, 0.0123456, 0.05].map(dollars), ["$0.00", "$5.00", "$1.67", "$1,234.50", "$0.004", "$0.01235", "$0.05"]);
  assert.deepEqual([0, 999, 57658, 1e6].map(count), ["0", "999", "57,658", "1,000,000"]);
  assert.deepEqual([many(1, "run"), many(2, "run"), many(1204, "step")], ["1 run", "2 runs", "1,204 steps"]);
  assert.deepEqual([950, 1500, 31_000, 2_400_000].map(tokens), ["950", "1.5k", "31k", "2.4M"]);
  assert.equal(cost({ usd: 0.5, input_tokens: 10, output_tokens: 2, unpriced: 1 }), "$0.50, 12 tokens, 1 model call of unknown price");
  assert.equal(progress({ done: 4, total: 7, text: "writes" }), "4 of 7, writes");
});

test("a run stands in one of a dozen ways, by what it waits for", () => {
  const ways = [
    [{}, "running"], [{ worker: "fox", worker_gone: true, waits_for: "worker" }, "interrupted"], [{ status: "waiting", waits_for: "message" }, "waiting"], [{ status: "waiting", waits_for: "person" }, "asks"],
    [{ status: "waiting", waits_for: "person", doing: { kind: "question", name: "in_doubt" } }, "in doubt"],
    [{ status: "waiting", waits_for: "retry" }, "retrying"], [{ doing: { kind: "retry" } }, "retrying"], [{ status: "ready", waits_for: "worker" }, "no worker"],
    [{ status: "ready" }, "ready"], [{ status: "paused" }, "paused"], [{ status: "completed" }, "completed"], [{ status: "failed" }, "failed"],
    [{ status: "cancelled" }, "cancelled"], [{ stopping: "pausing" }, "pausing"],
  ];
  for (const [more, said] of ways) assert.equal(word(stands(run(more))), said);
});

test("what happens is a sentence", () => {
  const said = (more) => flat(happens(run(more)));
  assert.equal(said({ doing: { kind: "step", name: "write_section", count: 2, since: ago(71_000) } }), "write_section · 2 at once, 71 s");
  assert.match(said({ status: "waiting", waits_for: "retry", doing: { kind: "retry", name: "summarise", attempt: 3, of: 8, next_at: new Date(now() + 41_000).toISOString(), error: "503 overloaded", count: 1 } }), /^summarise · attempt 4 of 8 in 4[01] s · 503 overloaded$/);
  assert.equal(said({ status: "failed", error: "ValueError: no good\nat all" }), "ValueError: no good at all");
  assert.equal(said({ status: "failed", failure: { type: "ValueError", message: "no good" } }), "ValueError: no good");
  assert.equal(said({ status: "paused", reason: "the code does not fit" }), "the code does not fit");
  assert.equal(said({ status: "ready", waits_for: "worker", version: "1" }), "waits for a worker with version 1 of atlas");
  assert.equal(said({ status: "waiting", waits_for: "message", doing: { kind: "message", name: "go", since: ago(2000), count: 1 } }), "waits for message go · 2.0 s");
  assert.equal(said({ status: "waiting", waits_for: "person" }), "waits for a person");
  const gone = (more) => said({ worker: "fox-2557ebe586a364e3", worker_gone: true, updated_at: ago(2000), ...more });
  assert.equal(gone({}), "its worker fox is gone · another worker takes it over; its last sign was 2.0 s ago");
  assert.equal(gone({ waits_for: "worker" }), "its worker fox is gone · it waits for a worker with its code; its last sign was 2.0 s ago");
  const asks = (input, name) => said({ status: "waiting", waits_for: "person", doing: { kind: "question", name, input, count: 1 } });
  assert.equal(asks("Pay ACME GmbH & Co. KG?", "approve"), "Pay ACME GmbH & Co. KG?");
  assert.equal(asks("Did pay(to='ACME & Co. KG') happen? Nobody knows.", "in_doubt"), "Did pay(to='ACME & Co. …", "what is cut says so");
  assert.match(said({ status: "waiting", waits_for: "timer", doing: { kind: "timer", next_at: new Date(now() + 7_200_000).toISOString(), count: 1 } }), /^sleeps until .* · 2 h left$/);
});

test("questions are for people and groups", () => {
  const me = { name: "ana", groups: ["it-admins"] };
  assert.equal(people(["ana", "group:it-admins", "bo"], me), "you, group:it-admins, bo");
  assert.equal(people([], me), "anybody");
  assert.ok(isMine(["group:it-admins"], me) && isMine([], me) && !isMine(["bo"], me));
});

test("a copied command quotes what a shell would read", () => {
  assert.equal(command("holdfast", "show", "a; rm -rf 'x'", "$(id)"), `holdfast show 'a; rm -rf '\\''x'\\''' '$(id)'`);
});

test("a worker is called by its name, and by a few digits more beside one of the same name", () => {
  assert.deepEqual(["fox-2557ebe586a364e3", "0a8d14b49b39dd7e", "desk-7", null].map((id) => worker(id)), ["fox", "0a8d14b4", "desk-7", null]);
  assert.equal(worker("fox-2557ebe586a364e3", "fox-42b513d5b0ea4f2c"), "fox-2557");
});

test("how long a run worked counts what it does now, and time without a process is no wait", () => {
  const told = (more, since) => { const life = lived(run(more), since); return [life.worked, life.waited, life.gone, rested(life)]; };
  assert.deepEqual(told({ status: "running", worked_ms: 140, life: [["work", 140]] }, 2000), [2140, 0, 0, "without a wait"]);
  assert.deepEqual(told({ status: "running", worked_ms: 5000, life: [["work", 3000], ["torn", 1200], ["work", 2000]] }, 1000), [6000, 0, 1200, "no process for 1.2 s"]);
  assert.deepEqual(told({ status: "running", worker_gone: true, worked_ms: 3000, life: [["work", 3000]] }, 1500), [3000, 0, 1500, "no process for 1.5 s"]);
  assert.deepEqual(told({ status: "waiting", worked_ms: 3000, life: [["work", 3000], ["person", 60_000]] }, 60_000), [3000, 120_000, 0, "waited 2 min"]);
  assert.deepEqual(told({ status: "completed", finished_at: ago(9), worked_ms: 3000, life: [["work", 3000], ["wait", 5000], ["torn", 1000]] }, 9000), [3000, 5000, 1000, "waited 5.0 s, no process for 1.0 s"]);
  assert.deepEqual(told({ status: "running", worked_ms: 3000, life: [["work", 2000], ["paused", 60_000], ["ready", 1000], ["work", 1000]] }), [3000, 1000, 0, "waited 1.0 s, stopped for 1 min"], "who is paused, or failed until it is retried, waits for nothing");
  assert.equal(lived(run({ worked_ms: null })), null);
});

test("words for programs are not shown to people", () => {
  assert.equal(advice({ code: "unknown_run", hint: "GET /api/runs lists those there are." }), "It may have been deleted. Runs has those there are.");
  assert.equal(advice({ code: "run_paused", hint: "POST /api/runs/{id}/resume lets it go on." }), "Resume lets it go on.");
  assert.equal(advice({ code: "of_tomorrow", hint: "GET /api/things lists those there are." }), "");
  assert.equal(advice({ code: "store_unavailable", hint: "Try again in a moment." }), "Try again in a moment.");
  assert.equal(advice({ code: "offline" }), "");
  assert.deepEqual([":approve", ":ask", ":sleep", "fetch"].map(callName), ["approval", "question", "sleep", "fetch"]);
  assert.deepEqual(["create_link", "start", "of_tomorrow"].map(did), ["made a link to decide for", "started", "of tomorrow"]);
});

test("the last sign of a worker that is gone is where the run was torn", () => {
  const gone = { worker_gone: true, updated_at: ago(240_000), life: [["work", 236_000], ["torn", 4000]] };
  assert.equal(lastSign(gone, 10_000), 6000);
  assert.match(flat(happens(run(gone))), /its last sign was 4\.0 s ago$/);
  assert.equal(lastSign({ ...gone, worker_gone: false }, 10_000), null);
  assert.equal(lastSign({ worker_gone: true, life: [] }, 10_000), null);
});

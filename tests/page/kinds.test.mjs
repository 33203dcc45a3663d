// Questions in words: whom one is for now, who has said what, how many more must agree, how it ended.
import assert from "node:assert/strict";
import test from "node:test";
import { counted, forWhom, otherwise, verdict, voices } from "../../src/holdfast/http/static/js/views/approvals/kinds.js";

const BEGAN = Date.now() - 3_600_000;
const at = (second) => new Date(BEGAN + second * 1000).toISOString();
const item = (more) => ({ kind: "approve", key: ":approve#0", status: "open", to: ["ana", "ben", "group:bosses"], votes: [], delegations: [], changes: [], needs: 2, shown: 1, data: 1, default: false, expires_at: at(5), decision: null, decided_by: null, decided_at: null, note: "", ...more });
const yes = (by, second) => ({ by, yes: true, note: "", at: at(second) });

test("who has passed it on is not among those it is for, and who got it is", () => {
  const passed = item({ delegations: [{ by: "ana", to: "carl", note: "", at: at(1) }] });
  assert.equal(forWhom(passed, { name: "ana", groups: [] }), "ben, group:bosses, carl");
  assert.equal(forWhom(passed, { name: "carl", groups: [] }), "ben, group:bosses, you");
  assert.equal(forWhom(item({ delegations: [...passed.delegations, { by: "carl", to: "ana", note: "", at: at(2) }] }), null), "ben, group:bosses, ana");
  assert.equal(forWhom(item({ to: [], delegations: passed.delegations }), null), "anybody but ana");
  assert.equal(forWhom(item({ to: [] }), null), "anybody");
  assert.equal(forWhom(item({ to: ["group:ana", "ana"] }), { name: "ana", groups: ["ana"] }), "group:ana, you"); // a group may have the name of a person
});

test("voices are in the order in which they came, each once", () => {
  const said = voices(item({ votes: [yes("ana", 3), yes("ben", 9)], changes: [{ by: "eve", at: at(1), digest: "d", value: 2 }, { by: "ana", at: at(3), digest: "e", value: 3 }], delegations: [{ by: "carl", to: "ben", note: "", at: at(5) }], status: "decided", decision: "approved", decided_by: "ben", decided_at: at(9) }), { name: "ben" });
  assert.deepEqual(said.map((each) => `${each.by} ${each.says}`), ["eve changed it", "ana changed it, and agreed to that", "carl passed it on to you", "ben agreed to the change, and so decided it"]);
  assert.deepEqual(voices(item({ votes: [yes("ana", 3)] }), null).map((each) => each.says), ["agreed"]);
  assert.deepEqual(voices(item({ kind: "ask", status: "decided", decision: "answered", decided_by: "bo", decided_at: at(4) }), null).map((each) => each.says), ["answered"]);
});

test("how many agree, and how many more must", () => {
  assert.equal(counted(item({ votes: [yes("ana", 3)] })), "1 of 2 agrees; 1 more must.");
  assert.equal(counted(item({ needs: 4, votes: [yes("ana", 3), yes("ben", 4)] })), "2 of 4 agree; 2 more must.");
  assert.equal(counted(item({ needs: null })), "0 agree; the run will say how many must.");
  assert.equal(counted(item({ needs: 1 })), "");
});

test("how it ended is said of who did it", () => {
  assert.match(verdict(item({ status: "decided", decision: "approved", decided_by: "ana", decided_at: at(3), data: 2 })), /^ana approved it .* ago, with a change\.$/);
  assert.match(verdict(item({ status: "decided", decision: "denied", decided_by: "ana", decided_at: new Date().toISOString() })), /^ana denied it just now\.$/);
  const both = { status: "decided", decision: "approved", decided_by: "ana", decided_at: at(9), votes: [yes("ben", 3), yes("ana", 9)] };
  assert.match(verdict(item(both)), /^ben and ana approved it [^,]* ago\.$/);
  assert.match(verdict(item({ ...both, data: 2, changes: [{ by: "ben", at: at(3), digest: "d", value: 2 }] })), /^ben and ana approved it .* ago, with ben's change\.$/);
  assert.equal(verdict(item({ status: "expired" })), "Nobody decided it in time: denied held.");
  assert.equal(verdict(item({ status: "withdrawn" })), "It was withdrawn: the agent no longer waits for it.");
});

test("who answers does not agree", () => {
  const answered = (kind, data) => voices(item({ kind, data, votes: [yes("ana", 3)], status: "decided", decision: "answered", decided_by: "ana", decided_at: at(3) }), null).map((each) => each.says).join();
  assert.equal(answered("ask", "by the window"), "answered");
  assert.deepEqual(["run", "fail", { result: 1 }].map((each) => answered("in_doubt", each)), ["had it run", "had it fail", "gave its result"]);
});

test("what holds if nobody answers may be nothing, which is no error", () => {
  const asked = (more) => item({ kind: "ask", needs: 1, default: null, has_default: false, ...more });
  assert.equal(otherwise(asked()), "the agent gets an error");
  assert.equal(otherwise(asked({ has_default: true })), "null");
  assert.equal(otherwise(asked({ has_default: true, default: "anywhere" })), '"anywhere"');
  assert.equal(verdict(asked({ status: "expired" })), "Nobody decided it in time: the agent gets an error.");
  assert.equal(verdict(asked({ status: "expired", has_default: true })), "Nobody decided it in time: null held.");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { Journal } from "../../src/holdfast/http/static/js/views/run/journal.js";
import { promptName, turnsOf } from "../../src/holdfast/http/static/js/views/run/turns.js";

const T0 = Date.UTC(2026, 6, 14, 14, 2, 0);
const at = (seconds) => T0 + seconds * 1000;
const AGENT = "answer-0/clerk-0";

function folded(...events) {
  const journal = new Journal();
  events.forEach(([kind, key, data = {}, seconds = 0, epoch = 1], seq) => journal.add({ seq, kind, key, data, at: at(seconds), epoch }));
  return journal;
}
const model = (nth, from, to) => ["step.completed", `${AGENT}:model/clerk.model#${nth}`, { name: "clerk.model", input: "", asked: 0, attempts: 1, began: at(from) }, to];
const tool = (id, name, from, to, epoch = 1) => ["step.completed", `${AGENT}:${id}/${name}#0`, { name, input: "", asked: 0, attempts: 1, began: at(from) }, to, epoch];
const asked = (id, seconds) => ["approval.asked", `${AGENT}:${id}/:approve#0`, { name: ":approve", kind: "approve", approval: `q-${id}`, question: "May it?", asked: 0 }, seconds];
const decided = (id, seconds) => ["approval.decided", null, { approval: `q-${id}`, key: `${AGENT}:${id}/:approve#0`, by: "ana", yes: true, decision: "approved" }, seconds];
const said = (turns) => turns.map((each) => Object.keys(each).find((name) => ["call", "tool", "question", "message", "tear", "fold"].includes(name)));

test("what a tool did stands behind the permission for it", () => {
  const turns = turnsOf(folded(model(0, 0, 2), asked("c1", 3), decided("c1", 60), tool("c1", "refund", 61, 62), model(1, 62, 64)));
  assert.deepEqual(said(turns), ["call", "question", "tool", "call"]);
  const wish = turns[0].tools.get("c1");
  assert.deepEqual([wish.apart, wish.step.name, wish.question.question.by], [true, "refund", "ana"]);
});

test("what a tool did at once stands beside the wish for it", () => {
  const turns = turnsOf(folded(model(0, 0, 2), tool("c0", "find_order", 2, 3), model(1, 3, 5), asked("c1", 6), decided("c1", 60), tool("c1", "refund", 61, 62)));
  assert.deepEqual(said(turns), ["call", "call", "question", "tool"]);
  assert.deepEqual([turns[0].tools.get("c0").apart, turns[0].tools.has("c1"), turns[1].tools.get("c1").apart], [false, false, true]);
});

test("what a tool did after a process was gone stands behind the tear", () => {
  const turns = turnsOf(folded(model(0, 0, 2), ["run.interrupted", null, { owner: "fox", by: "owl" }, 9, 2], tool("c0", "find_order", 10, 11, 2)));
  assert.deepEqual(said(turns), ["call", "tear", "tool"]);
});

test("what a model answered after a process was gone stands behind the tear, wherever it was first asked", () => {
  const lost = { key: `${AGENT}:model/clerk.model#1`, attempt: 1, began: at(3) };
  const turns = turnsOf(folded(model(0, 0, 2), ["run.interrupted", null, { owner: "fox", by: "owl", seen: at(5), open: [lost] }, 9, 2], model(1, 10, 12), asked("c1", 13)));
  assert.deepEqual(said(turns), ["call", "tear", "call"]);
  assert.ok(turns[2].tools.has("c1"));
});

test("a question that nobody has decided is beside the wish, and the tool was not called", () => {
  const turns = turnsOf(folded(model(0, 0, 2), asked("c1", 3)));
  assert.deepEqual(said(turns), ["call"]);
  assert.deepEqual([turns[0].tools.get("c1").step, turns[0].tools.get("c1").apart], [null, false]);
});

test("what a model is given is not said to be the agent's own words", () => {
  assert.equal(promptName(["system-prompt", "user-prompt"]), "The model is given");
  assert.equal(promptName(["retry-prompt"]), "The model is asked again");
});

// Addresses.
import assert from "node:assert/strict";
import test from "node:test";
import { viewOf } from "../../src/holdfast/http/static/js/router.js";

test("every address of the page means a view", () => {
  const found = [
    ["", "home", {}], ["runs", "runs", {}], ["runs/", "runs", {}], ["runs/a-1", "run", { id: "a-1" }], ["runs/a/journal", "run", { id: "a", tab: "journal" }],
    ["runs/a/streams", "run", { id: "a", tab: "streams", stream: null }], ["runs/a/streams/x%2Fy", "run", { id: "a", tab: "streams", stream: "x/y" }],
    ["approvals", "approvals", { id: null }], ["approvals/q-1", "approvals", { id: "q-1" }], ["compare", "compare", {}], ["fleet/host:1/x", "fleet", { worker: "host:1/x" }],
    ["agents/a.b", "agents", { name: "a.b" }], ["schedules", "schedules", { name: null }], ["conversations/c%201", "conversations", { id: "c 1" }], ["audit", "audit", {}], ["sign-in", "sign-in", {}],
  ];
  for (const [path, view, params] of found) assert.deepEqual(viewOf(path), { view, params }, path);
});

test("what means nothing is lost, and a half escape stops nothing", () => {
  for (const path of ["nothing", "runs/a/nothing", "runs/%E0%A4%A", "a/b/c"]) assert.equal(viewOf(path).view, "lost", path);
});

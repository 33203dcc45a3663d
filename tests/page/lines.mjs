// Folds journals, and prints each as lines, as `tests/page/test_journal.py` does with the tree of the command line.
import { readFileSync } from "node:fs";
import { inOrder, Journal } from "../../src/holdfast/http/static/js/views/run/journal.js";

function* lines(items, depth) {
  for (const call of inOrder(items)) {
    const sort = call.sort === "model" && call.name !== "model" ? "step" : call.sort; // the command line tells only requests of agents
    const remarks = (call.remarks ?? []).map((each) => `${each.tone}: ${each.text}`);
    const timed = ["step", "model", "child", "timer", "question"].includes(sort) && call.began !== null && call.ended !== null && !call.probed;
    yield JSON.stringify([depth, sort, call.state, call.name, call.input, call.attempts, call.child, call.dropped !== null, timed ? call.ended - call.began : null, remarks]);
    if (call.items) yield* lines(call.items, depth + 1);
  }
}

const told = {};
for (const [run, events] of Object.entries(JSON.parse(readFileSync(0, "utf8")))) {
  const journal = new Journal();
  for (const event of events) journal.add(event);
  told[run] = { lines: [...lines(journal.items, 0)], tears: journal.tears.length, next: journal.next };
}
process.stdout.write(JSON.stringify(told));

// The filter of runs.
import assert from "node:assert/strict";
import test from "node:test";
import { asked, inWords, meant, parse, withWord, write } from "../../src/holdfast/http/static/js/filter.js";
import { ms, now } from "../../src/holdfast/http/static/js/time.js";

test("a line is read, and written again as it was", () => {
  for (const line of ["agent:atlas,tile status:failed", "label:desk=nature waits:person", "attempt>3 cost>1 age>1h began:7d root:no", 'label:title="two words" otters', "otters holding"]) assert.equal(write(parse(line)).replaceAll('"', ""), line.replaceAll('"', ""));
});

test("words become what the API is asked", () => {
  assert.deepEqual(asked(parse("agent:a,b status:failed label:x=1 label:y=2 waits:person queue:mail version:1 attempt>3 cost>1.5")),
    { agent: ["a", "b"], status: ["failed"], label: ["x=1", "y=2"], waits_for: ["person"], queue: ["mail"], version: "1", attempt: 4, cost: 1.5, root: true });
  assert.deepEqual(asked(parse("otters hold")), { search: "otters hold" });
  assert.deepEqual(asked(parse("root:no")), {});
  assert.deepEqual(asked([]), { root: true });
  const { since } = asked(parse("began:7d"));
  assert.ok(Math.abs(now() - ms(since) - 604_800_000) < 2000);
  assert.ok(Math.abs(now() - ms(asked(parse("age>1h")).until) - 3_600_000) < 2000);
});

test("what is wrong is said, and asked for nothing", () => {
  for (const line of ["status:odd", "status:failed,odd", "label:desk", "waits:godot", "attempt>x", "cost>x", "age>soon", "began:yesterday", "root:maybe", "stuck:maybe", "needs:maybe", "agent:,", 'status:""', 'cost>""']) {
    const [token] = parse(line);
    assert.ok(token.wrong, line);
    assert.equal(asked(parse(`agent:atlas ${line}`)), null, line);
  }
  assert.deepEqual(parse("attempt:3"), [{ text: "attempt:3" }]);
  assert.deepEqual(parse("constructor:1"), [{ text: "constructor:1" }]);
});

test("a filter that nothing fits is told in words", () => {
  assert.equal(inWords(parse("agent:atlas waits:person")), "No run of agent atlas, that waits for a person");
  assert.equal(write(withWord(parse("agent:a otters"), "agent", ["b"])), "otters agent:b");
});

test("who writes a label as if it were a word is told how it is written", () => {
  assert.equal(meant(parse("status:failed team:night")), "status:failed label:team=night");
  assert.equal(meant(parse("status:failed otters")), null);
  assert.equal(asked(parse("team:night")).search, "team:night", "it is looked for all the same");
});

test("a value with a comma is one value in quotes, and stays so", () => {
  assert.deepEqual(asked(parse('label:"q=a,b" label:x=1,y="2 3"')).label, ["q=a,b", "x=1", "y=2 3"]);
  assert.deepEqual(parse(write(parse('label:"q=a,b",z=1'))), parse('label:"q=a,b",z=1'));
  assert.match(parse("label:q=a,b")[0].wrong, /in quotes if it has a comma/);
});

// Rows of a timeline: the calls of a journal in the order in which they began, what stands for many, and each in one sentence.
// Nothing here touches the page.

import { isOpen } from "./journal.js";
import { clock, count, many, ms, spoken, worker } from "../../say.js";
import { span as parsed } from "../../time.js";

const MANY = 50; // more calls of one name in one place are one row
const FEW = 2, SLOWEST = 3;
const ROWS = new Set(["step", "model", "timer", "child", "question", "branch"]);
const TIMERS = { ":sleep": "sleep", ":timeout": "timeout", ":receive.timeout": "wait for a message, at most" };

/**
 * The rows of a run, flat. `view` is {closed, opened: sets of keys, over, dropped, since, fits, nested, now}: branches are open unless
 * closed; what stands for many and child runs are closed unless opened; `nested` has {journal, over} of child runs by id.
 */
export function rowsOf(journal, view) {
  const made = [], extents = new Map();
  level(journal.items, { journal, view, made, extents, depth: 0, inner: null, over: view.over, prefix: "" });
  place(made, journal.tears);
  return made;
}

/** Tell tears where they stand: before the first row at the top that began after them. */
function place(rows, tears) {
  let next = 0;
  for (const row of rows) {
    if (row.depth > 0 || row.start === null) continue;
    while (next < tears.length && tears[next].to <= row.start) (row.tears ??= []).push(tears[next++]);
    if (next >= tears.length) return;
  }
  if (rows.length && next < tears.length) rows[rows.length - 1].behind = tears.slice(next);
}

function level(items, at) {
  const { view, made } = at;
  const found = items.filter((call) => isShown(call, at)).sort((one, other) => startOf(one, at.extents) - startOf(other, at.extents) || one.first - other.first);
  const likes = found.map(likeness), alike = new Map(), entries = [];
  found.forEach((call, nth) => {
    const calls = alike.get(likes[nth]);
    if (calls) calls.push(call);
    else alike.set(likes[nth], [call]);
  });
  found.forEach((call, nth) => {
    const like = likes[nth], calls = alike.get(like);
    if (!like || !(calls.length > MANY || (call.sort === "branch" && calls.length > 1))) entries.push((...place) => one(call, at, ...place));
    else if (call === calls[0]) entries.push(() => (calls.length > MANY ? stack(calls, like, at) : together(calls, like, at)));
  });
  if (at.depth === 0 && at.inner === null) {
    for (const retry of at.journal.retries) {
      if (retry.count) entries.push((nth, of) => made.push({ key: `dropped/${retry.seq}`, sort: "dropped", depth: 0, nth, of, start: null, retry, expanded: Boolean(view.dropped), inner: null }));
    }
  }
  entries.forEach((put, nth) => put(nth + 1, entries.length));
}

function one(given, at, nth, of) {
  const call = alone(given, at), { made, view } = at;
  const key = at.prefix + keyOf(call);
  const row = { key, sort: call.sort, call, depth: at.depth, nth, of, start: startOf(call, at.extents), extent: call.items && extentOf(call, at.extents), inner: at.inner, journal: at.journal };
  if (call.sort === "branch") {
    row.expanded = !view.closed.has(key);
    row.note = at.journal._agents.has(call.key) ? "agent" : "";
    made.push(row);
    if (row.expanded) level(call.items, { ...at, depth: at.depth + 1 });
  } else if (call.child !== null) {
    row.expanded = view.opened.has(key);
    made.push(row);
    const inside = row.expanded ? view.nested?.get(call.child) : null;
    if (inside) level(inside.journal.items, { ...at, journal: inside.journal, over: inside.over, depth: at.depth + 1, inner: call.child, prefix: `${call.child}!` });
  } else made.push(row);
  return row;
}

/** Branches of one name: tasks that were started together, mostly. */
function together(calls, like, at) {
  const { made, view } = at, first = calls[0];
  const key = `${at.prefix}${at.depth}${like}${first.key}`;
  const row = { key, sort: "branch", call: null, group: calls, name: baseOf(first), depth: at.depth, nth: 1, of: 1, start: startOf(first, at.extents), extent: extent(calls, at.extents), inner: at.inner, journal: at.journal, expanded: !view.closed.has(key) };
  row.note = atOnce(calls.map((call) => [startOf(call, at.extents), endOf(call, view.now, at.extents)]), calls.length);
  made.push(row);
  if (row.expanded) calls.forEach((call, nth) => one(call, { ...at, depth: at.depth + 1 }, nth + 1, calls.length));
}

/** Many calls of one name: one row with a density, and below it those that matter. */
function stack(calls, like, at) {
  const { made, view } = at, leaves = calls[0].items ? calls.flatMap(leavesOf).filter((call) => isShown(call, at)) : calls;
  const key = `${at.prefix}${at.depth}${like}`;
  const row = { key, sort: "many", call: null, calls: leaves, name: calls[0].sort === "branch" ? baseOf(calls[0]) : calls[0].name, depth: at.depth, nth: 1, of: 1, start: startOf(calls[0], at.extents), extent: extent(leaves, at.extents), inner: at.inner, journal: at.journal, expanded: view.opened.has(key) };
  row.model = leaves.some((call) => call.sort === "model");
  row.running = leaves.filter(isOpen).length;
  row.failed = leaves.filter((call) => call.state === "failed").length;
  row.note = `${count(leaves.length)}${row.running > 1 ? `, ${row.running} at once` : ""}`;
  made.push(row);
  if (!row.expanded) return;
  const took = (call) => (call.ended ?? view.now) - (call.began ?? call.last);
  const again = leaves.filter((call) => call.attempts > 1 || call.tries), going = leaves.filter(isOpen), failed = leaves.filter((call) => call.state === "failed");
  const slow = [...leaves].filter((call) => call.began !== null).sort((a, b) => took(b) - took(a)).slice(0, SLOWEST);
  const groups = [["run now", going, String(going.length)], ["failed", failed, `${count(failed.length)} of ${count(leaves.length)}`], ["tried again", again, `${count(again.length)} of ${count(leaves.length)}`], ["slowest", slow, "of all"]];
  for (const [name, members, note] of groups) {
    if (!members.length) continue;
    const own = `${key}/${name}`, all = view.opened.has(`${own}/rest`);
    made.push({ key: own, sort: "some", name, note, depth: at.depth + 1, nth: 1, of: 1, start: null, call: null, inner: at.inner, expanded: !view.closed.has(own), journal: at.journal });
    if (view.closed.has(own)) continue;
    const shown = all || name === "slowest" ? members : members.slice(0, FEW);
    shown.forEach((call, nth) => made.push({ key: `${own}/${at.prefix}${keyOf(call)}`, sort: call.sort, call, depth: at.depth + 2, nth: nth + 1, of: members.length, start: startOf(call, at.extents), inner: at.inner, journal: at.journal }));
    if (shown.length < members.length) made.push({ key: `${own}/rest`, sort: "rest", name: `${count(members.length - shown.length)} more`, depth: at.depth + 2, nth: 1, of: 1, start: null, call: null, inner: at.inner, journal: at.journal });
  }
}

const keyOf = (call) => (call.dropped === null ? (call.key ?? String(call.seq)) : `${call.key}~${call.dropped}`);
const baseOf = (call) => call.name.replace(/#\d+$/, "").replace(/, run \d+$/, "");

function likeness(call) {
  if (call.sort === "branch") return `/${baseOf(call)}`;
  return call.sort === "step" || call.sort === "model" || call.sort === "timer" || (call.sort === "child" && call.child) ? `${call.sort} ${call.name}` : null;
}

/** A branch with one call in it is shown as that call. */
function alone(call, at) {
  if (call.sort !== "branch") return call;
  const nth = call.items.findIndex((each) => isShown(each, at));
  return call.items.some((each, other) => other > nth && isShown(each, at)) ? call : alone(call.items[nth], at);
}

const leavesOf = (call) => (call.items ? call.items.flatMap(leavesOf) : [call]);

function isShown(call, at) {
  const { view } = at;
  if (!ROWS.has(call.sort)) return false;
  if (call.dropped !== null && !view.dropped) return false;
  if (view.since && call.seq < view.since) return false;
  if (call.sort === "branch") return call.items.some((each) => isShown(each, at));
  if (call.sort === "timer" && call.name !== ":sleep" && call.ended === null && at.over) return false; // an unreached deadline
  return !view.fits || view.fits(call, view.now);
}

/** When a call first began. `extents` has what is known of branches. */
function startOf(call, extents) {
  return call.items ? extentOf(call, extents).from : (call.start ?? Infinity);
}

function endOf(call, now, extents) {
  if (call.items) return until(extentOf(call, extents), now);
  return call.ended ?? (isOpen(call) ? now : (call.last ?? call.began ?? now));
}

/** From the first beginning of some calls to their last end, and whether one of them goes on: {from, to, goes}. */
function extent(calls, extents) {
  let from = Infinity, to = -Infinity, goes = false;
  for (const call of calls) {
    const inner = call.items ? extentOf(call, extents) : null;
    from = Math.min(from, inner ? inner.from : startOf(call));
    to = Math.max(to, inner ? inner.to : endOf(call, -Infinity));
    goes ||= inner ? inner.goes : endOf(call, Infinity) === Infinity;
  }
  return { from, to, goes };
}

/** That of a branch, which is long to find and needed often: it is kept as long as its rows are. */
function extentOf(branch, extents = new Map()) {
  if (!extents.has(branch)) extents.set(branch, extent(branch.items, extents));
  return extents.get(branch);
}

const until = ({ to, goes }, now) => (goes ? Math.max(to, now) : to);

/** The time of a row from its first beginning to its last end. */
export function spanOf(row, now) {
  if (row.span !== undefined) return row.span ?? [Infinity, -Infinity];
  return row.extent ? [row.extent.from, until(row.extent, now)] : [startOf(row.call), endOf(row.call, now)];
}

/** How many of these spans lay over each other at the most, in words. */
export function atOnce(spans, of) {
  const edges = spans.flatMap(([from, to]) => [[from, 1], [Math.max(to, from), -1]]).sort((one, other) => one[0] - other[0] || one[1] - other[1]);
  let now = 0, most = 0;
  for (const [, by] of edges) most = Math.max(most, (now += by));
  if (most <= 1) return `${count(of)}, one by one`;
  return most === of ? `${count(of)} at once` : `${count(of)}, ${count(most)} at once`;
}

// Words

/** What a call is called, and with what: [name, input]. */
export function named(call) {
  if (call.sort === "timer") {
    const long = call.due !== null && call.began !== null ? spoken(Math.max(call.due - call.began, 0)) : "";
    return [TIMERS[call.name] ?? call.name.replace(/^:/, ""), long];
  }
  return [call.name, call.sort === "question" ? "" : brief(call.input ?? "")];
}

/** Arguments as people say them: `url='kelp.org', times=2` is `kelp.org, 2`. What is in brackets stays as it is. */
export function brief(input) {
  const bare = input.replace(/^[A-Za-z_]\w*=(?=\S)/, "");
  if (/[[{(]/.test(bare)) return bare;
  return bare.replace(/, [A-Za-z_]\w*=(?=\S)/g, ", ").replace(/(^|, )(['"])((?:(?!\2)[^\\])*)\2(?=, |$)/g, "$1$3");
}

/** How long it took, or takes: of its last attempt; nothing for what has no time of its own. */
export function took(row, now) {
  if (row.sort === "some" || row.sort === "rest" || row.sort === "dropped") return "";
  if (row.long !== undefined) return spoken(row.long);
  if (row.group || row.calls || row.span || row.call.items) {
    const [from, to] = spanOf(row, now);
    return Number.isFinite(from) && to >= from ? spoken(to - from) : "";
  }
  const { call } = row;
  if (call.began === null) return "";
  if (call.ended !== null) return spoken(Math.max(call.ended - (call.probed && call.tries?.length ? call.tries[0].began : call.began), 0));
  return isOpen(call) ? spoken(Math.max(now - call.began, 0)) : "";
}

/** What came of an attempt that nobody could say anything of: the words behind the tear. */
export function resolved(call) {
  const { question } = call;
  if (question?.kind === "in_doubt") {
    if (!question.decision) return ["nobody knows; ", "a person is asked"];
    const said = { approved: "it did not happen, run it", answered: "it happened", denied: "it failed" }[question.decision] ?? question.decision;
    return [`${question.by ?? "nobody"}: `, said];
  }
  if (call.probed) return ["found done by its probe, ", "not run again"];
  if (call.state === "failed") return ["", "failed"];
  if (call.state === "cancelled") return ["", "no longer waited for"];
  return ["", call.ended === null && call.state !== "running" ? "" : "ran again"];
}

/** A call in one sentence, as a reader of screens hears it. */
export function sentence(call, now) {
  const [name, input] = named(call), parts = [input ? `${name} ${input}` : name];
  if (call.sort === "question") parts[0] = `question: ${call.name}`;
  if (call.sort === "child") parts.push(`child run ${call.child}`);
  for (const each of call.tries ?? []) {
    if (each.how === "failed") parts.push(`attempt ${each.n} failed: ${each.error}`);
    else if (each.how === "lost") parts.push(`lost with its process at ${clock(each.ended)}${call.began === null ? "" : ", ran again"}`);
    else parts.push(`in doubt at ${clock(each.ended)}`, resolved(call).join(""));
  }
  parts.push(stateWords(call, now));
  for (const each of call.remarks ?? []) if (each.tone !== "bad") parts.push(each.text);
  if (call.dropped !== null) parts.push("taken out by the retry");
  return parts.filter(Boolean).join(", ");
}

function stateWords(call, now) {
  const long = call.began === null ? null : spoken(Math.max((call.ended ?? now) - call.began, 0));
  if (call.sort === "question") return call.question?.decision ? `${call.question.decision}${call.question.by ? ` by ${call.question.by}` : ""} after ${long}` : call.state === "cancelled" ? "withdrawn" : `waits for ${long}`;
  if (call.state === "done") return long && !call.probed ? `done in ${long}` : "done";
  if (call.state === "failed") return `failed: ${call.remarks?.filter((each) => each.tone === "bad").at(-1)?.text ?? "without a word"}`;
  if (call.state === "running") return `runs for ${long}`;
  if (call.state === "doubt") return "in doubt";
  if (call.state === "cancelled") return call.child ? `cancelled after ${long}` : "no longer waited for";
  if (call.held) return `waits for its turn${call.held.data.rate ? ` of ${call.held.data.rate}` : ""}`;
  if (call.tries?.at(-1)?.tear === null) return "cut off: its worker is gone";
  if (call.tries?.at(-1)?.how === "lost") return "runs again";
  if (call.tries?.length && call.due) return `attempt ${call.attempts} at ${clock(call.due)}`;
  return call.due ? `waits until ${clock(call.due)}` : "waits";
}

/** How a child run is drawn. */
export const nested = ({ state }) => ({ failed: "nested.bad", cancelled: "left" })[state] ?? "nested";

/** A row in one sentence. */
export function rowSentence(row, now) {
  if (row.text) return row.text;
  if (row.sort === "dropped") return `${many(row.retry.count, "event")} were taken out by ${row.retry.by ? `${row.retry.by}'s` : "a"} retry`;
  if (row.sort === "rest") return row.name;
  if (row.sort === "some") return `${row.name} ${row.note}`;
  if (row.sort === "many") return `${row.name}, ${many(row.calls.length, "call")}${row.failed ? `, ${row.failed} failed` : ""}${row.running ? `, ${row.running} run now` : ""}, ${took(row, now)} in all`;
  if (row.sort === "branch") return `${row.name ?? row.call.name}${row.note ? `, ${row.note}` : ""}, ${took(row, now)}`;
  return sentence(row.call, now);
}

/** What is said where there is no row; `view` as for the rows. */
export function noRows(view) {
  if (view.fits) return "No call fits the filter.";
  if (view.since) return "No call was made since the checkpoint.";
  return view.over ? "It made no call." : "It has made no call yet.";
}

/** A tear in one sentence. */
export function tearSentence(tear) {
  const who = tear.owner ? `${worker(tear.owner, tear.by)} was gone` : "its process was gone";
  return `interruption: ${who}, ${worker(tear.by, tear.owner) ?? "another"} went on within ${spoken(tear.to - tear.from)}`;
}

/** What became of calls at a tear: [{calls, strong, dim, kind}]. Nothing is claimed of what left no trace. */
export function cutOff(journal, tear) {
  const doubt = tear.doubt.map((key) => journal.call(key)).filter(Boolean), again = journal.across(tear).filter((call) => !tear.doubt.includes(call.key)), one = again.length === 1;
  const known = tear.lost.length > 0, made = [];
  if (again.length) made.push({ calls: again, strong: known ? `${one ? "call was" : "calls were"} in the middle` : `${one ? "call" : "calls"} had no result yet`, dim: `what was begun of ${one ? "it" : "them"}, and what that did, is not known; ${one ? "it runs" : "they run"} again with the same idempotency key`, kind: "" });
  if (doubt.length) made.push({ calls: doubt, strong: doubt.length === 1 ? "was in doubt" : "were in doubt", dim: [...new Set(doubt.map((call) => resolved(call).join("")))].filter(Boolean).join("; "), kind: "doubt" });
  return made.length ? made : [{ calls: [], strong: "calls are known to have been in the middle", dim: "a step that had run for less than a second leaves no trace before it ends", kind: "" }];
}

/** What is waited for through a fold: {why, text}. */
export function reason(journal, fold) {
  let best = null, most = 0;
  for (const call of journal.each()) {
    if (call.dropped !== null || call.began === null || !["question", "timer", "child", "step", "model"].includes(call.sort)) continue;
    const from = call.sort === "step" || call.sort === "model" ? (call.state === "doubt" ? call.last : call.due && call.tries ? call.tries.at(-1).ended : Infinity) : call.began;
    const shared = Math.min(call.ended ?? Infinity, fold.to) - Math.max(from, fold.from);
    const weight = shared * (call.sort === "question" ? 1.02 : call.sort === "timer" && call.name !== ":sleep" ? 0.5 : 1); // a deadline is not what is waited for
    if (shared > (fold.to - fold.from) * 0.4 && weight > most) [best, most] = [call, weight];
  }
  const paused = journal.marks.find((mark) => mark.key === "run.paused" && mark.began <= fold.from + 1000 && mark.began >= fold.from - 120_000);
  if (paused) return { why: "pause", text: "paused" };
  if (!best && journal.marks.some((mark) => mark.key === "run.retried" && mark.began > fold.from && mark.began <= fold.to)) return { why: "again", text: "until it was retried" };
  if (!best) return { why: "clock", text: "waits" };
  if (best.sort === "question") return { why: "person", text: best.question?.to?.length ? `for ${best.question.to.map((each) => each.replace(/^group:/, "")).join(", ")}` : "for a person" };
  if (best.sort === "child") return { why: "child", text: `for ${best.name}` };
  if (best.sort === "timer") return { why: "clock", text: best.name === ":sleep" ? "asleep" : "for a message" };
  return best.state === "doubt" ? { why: "person", text: "for a person" } : { why: "again", text: `before ${best.name} is tried again` };
}

// Filter

/** A text such as `fetch > 5 s failed attempt>1` as a test of calls; null for an empty one. */
export function filter(text) {
  const tests = [];
  const rest = String(text ?? "")
    .replace(/\battempts?\s*>\s*(\d+)/gi, (_, number) => (tests.push((call) => call.attempts > Number(number)), " "))
    .replace(/([<>])\s*(\d+(?:\.\d+)?\s*[a-z]+)/gi, (whole, sign, long) => {
      const limit = parsed(long);
      if (limit === null) return whole;
      tests.push((call, now) => call.began !== null && (sign === ">" ? endOf(call, now) - call.start > limit : endOf(call, now) - call.start < limit));
      return " ";
    });
  for (const word of rest.toLowerCase().split(/\s+/).filter(Boolean)) {
    if (["failed", "running", "waiting", "cancelled", "done"].includes(word)) tests.push((call) => call.state === word || (word === "failed" && (call.tries ?? []).some((each) => each.how === "failed")));
    else if (word === "lost" || word === "doubt") tests.push((call) => (call.tries ?? []).some((each) => each.how === (word === "lost" ? "lost" : "unknown")));
    else tests.push((call) => `${call.name} ${call.input ?? ""} ${call.key ?? ""} ${(call.remarks ?? []).map((each) => each.text).join(" ")}`.toLowerCase().includes(word));
  }
  return tests.length ? (call, now) => tests.every((fits) => fits(call, now)) : null;
}

/**
 * Spans in which bodies ran, with those of child runs that are not known from inside: [from, to]. What a process carries now may be at
 * work, although the journal does not know of it yet.
 */
export function worked(journal, now, children = new Map(), carried = false) {
  const since = journal.lastAt ?? journal.startedAt, spans = carried && since !== null ? [[since, now]] : [];
  for (const call of journal.each()) {
    if (call.child !== null) {
      if (call.dropped !== null) continue; // how long it worked is told of the run that took its place
      const row = children.get(call.child), from = call.began, to = call.ended ?? now;
      // A child that mostly waited is a wait; one of which nobody knows is work.
      if (!row || row.worked_ms === undefined || row.worked_ms * 2 > Math.min(ms(row.finished_at) ?? now, to) - from) spans.push([from, to]);
    } else call.worked(now, spans);
  }
  return spans;
}

// Rows of a huge run, from what the server folded: a row with a density for each group of calls, and below it those that matter.
// Densities come in as many pieces as were asked for, whatever the number of calls.

/** Rows as the timeline draws them. `span`, `text` and `buckets` stand for the calls, which the page does not have. */
export function outlineRows(model, view) {
  const made = [];
  grouped(model.outline, 0, made, model, view);
  return made;
}

function grouped(told, depth, made, model, view) {
  told.groups.forEach((group, nth) => {
    const span = [ms(group.began), ms(group.ended) ?? view.now], open = view.opened.has(group.key), more = group.count > 1 || group.kind === "branch";
    const row = {
      key: group.key, sort: group.kind === "branch" ? "branch" : group.count > 1 ? "many" : group.kind, name: group.name, note: group.count > 1 ? `${count(group.count)}${group.running > 1 ? `, ${count(group.running)} at once` : ""}` : "",
      depth, nth: nth + 1, of: told.groups.length, start: span[0], span, model: group.kind === "model", running: group.running, failed: group.failed, call: null, inner: null, journal: model.journal, fold: true, opens: group.key, expanded: more ? open : undefined,
      buckets: { from: ms(told.began), to: ms(told.ended) ?? view.now, counts: group.density ?? [], failures: group.failures ?? [] },
      text: `${group.name}, ${many(group.count, "call")}${group.failed ? `, ${count(group.failed)} failed` : ""}${group.running ? `, ${count(group.running)} run now` : ""}, ${spoken(span[1] - span[0])} in all`,
    };
    made.push(row);
    if (!open || !more) return;
    const inside = model.outline.under?.get(group.key);
    if (group.kind === "branch" && inside) grouped(inside, depth + 1, made, model, view);
    for (const [name, calls, note] of [["tried again", group.again, `${count(group.attempts - group.count)} more attempts`], ["slowest", group.slowest, "of all"]]) {
      if (!calls?.length || group.kind === "branch") continue;
      const own = `${group.key}/${name}`, closed = view.closed.has(own);
      made.push({ key: own, sort: "some", name, note, depth: depth + 1, nth: 1, of: 1, start: null, call: null, inner: null, journal: model.journal, expanded: !closed, text: `${name} ${note}` });
      if (closed) continue;
      for (const each of calls) made.push({ key: `${own}/${each.seq}`, at: each.key, sort: "step", name: group.name, note: each.key.split("/").pop().replace(/^[^#]*/, ""), depth: depth + 2, nth: 1, of: calls.length, start: null, span: null, call: null, inner: null, journal: model.journal, attempts: each.attempts, long: each.ms, text: `${group.name} ${each.key}, ${spoken(each.ms)}${each.attempts > 1 ? `, ${each.attempts} attempts` : ""}` });
    }
  });
}

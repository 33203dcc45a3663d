// A run's events as what it did: events in, calls out, one event at a time. Nothing here touches the page or the network.
//
// The tree of a key is that of `holdfast show`: `deepen#0/summarise#1` is a call `summarise` in the branch `deepen#0`. A test
// folds the same journals with both and compares them. Beside the tree stands what a picture needs and a terminal does not:
// attempts with their times, tears, and who carried the run when.
//
// A call is kept in about 200 bytes: no event and no value is kept, and what few calls have (attempts before the last, remarks)
// is null until it is there.

import { errorLine, isAgain, isQuiet, isRequest, says as said, told } from "../../events.js";
import { deciders } from "../../say.js";
import { ms, spoken } from "../../time.js";

const REPLACED = "replaced when the run was forked";
const STATES = { completed: "done", failed: "failed", cancelled: "cancelled", running: "running" };
const NOT_OUTCOMES = new Set([
  "run.interrupted", "run.pausing", "run.paused", "run.resumed", "run.retried", "run.completed", "run.failed", "run.cancelled",
  "step.started", "step.held", "step.progress", "step.retrying", "timer.set", "child.started", "approval.asked", "approval.reminded",
  "approval.withdrawn", "budget.low", "conversation.asked", "conversation.withdrawn", "patched", "foreign",
]);
const RESULTS = new Set(["step.completed", "step.failed", "step.cancelled", "child.ended", "approval.decided", "approval.expired", "message.received"]); // outcomes that people count
const BODIES = new Set(["step", "model"]), CALLS = new Set([...BODIES, "timer", "child", "question"]);
const OF_A_STEP = new Set(["in_doubt", "loop"]); // questions that are about a step
const CUTS = new Set(["run.retried", "run.forked"]), TAKEN_UP = new Set([...CUTS, "run.interrupted", "run.resumed"]);
const OLD_MS = 1000; // a worker tells of a body when it is so old (worker/calls.py), so what it told of ran at least so long
const ANNOUNCED = "holdfast:event:";

/** One thing that a run did, or a branch (an asyncio task or a scope) of such things. */
export class Call {
  constructor(sort, name, key, seq) {
    this.sort = sort; // step, model, timer, child, question, branch, message, note, progress, plan, checkpoint, patch, warning, mark
    this.name = name;
    this.key = key;
    this.state = "done"; // done, failed, running, waiting, cancelled, doubt, said
    this.first = seq; // the number of its first event
    this.seq = seq; // and of its last
    this.input = "";
    this.began = null; // the last attempt; of a call without a body, the call
    this.ended = null;
    this.last = null; // when its last event was recorded
    this.due = null;
    this.asked = null; // how many outcomes the agent had seen when it made the call
    this.attempts = 1;
    this.result = null; // in a line
    this.tries = null; // attempts before the last: [{n, began, ended, how, error, wait, pauses}]
    this.remarks = null; // lines below it: [{text, tone}]
    this.items = null; // of a branch
    this.up = null; // the branch that it is in
    this.child = null; // the id of the run that it is
    this.dropped = null; // the number of the retry that took it out of the history
    this.spent = null;
    this.held = null; // {at, until, rate, paused}: it waits for its turn, and nothing was recorded of it since
    this.waits = null; // spans [from, to, rate] in which it was held
    this.question = null; // {id, to, by, decision, changed, note, votes}
    this.probed = false; // found done without a body
  }

  remark(text, tone = "plain") {
    (this.remarks ??= []).push({ text, tone });
  }

  /** Add the spans in which a body of it ran, as far as that is known; `now` for what has not ended. */
  worked(now, spans = []) {
    if (!BODIES.has(this.sort)) return spans;
    for (const each of this.tries ?? []) spans.push([each.began, each.ended]);
    if (this.began !== null && !this.probed && (this.ended !== null || this.state === "running")) spans.push([this.began, this.ended ?? (this.dropped === null ? now : this.last)]);
    return spans;
  }

  /** When it first began. */
  get start() {
    return this.tries?.length ? Math.min(this.tries[0].began, this.began ?? Infinity) : (this.began ?? this.last);
  }
}

/** By their last record, so that all above an interruption was recorded before it; what is still open comes last. */
export function inOrder(items) {
  return [...items].sort((one, other) => isOpen(one) - isOpen(other) || one.seq - other.seq);
}

export function isOpen(call) {
  const doubt = call.state === "doubt" && call.sort !== "warning";
  return call.ended === null && call.dropped === null && (doubt || call.state === "running" || call.state === "waiting");
}

export class Journal {
  constructor() {
    this.items = []; // the calls at the top
    this.marks = []; // what cut across everything: interruptions, pauses, retries
    this.tears = []; // [{seq, from, sign, to, owner, by, how, epoch, lost: [calls], doubt: [calls], readBack, since}]
    this.carriers = []; // [{owner, epoch, from, to, ends: "killed"|"left"|"now"}]
    this.checkpoints = []; // [{seq, era, at}]
    this.flags = []; // [{sort: "message"|"note"|"low"|"foreign"|"control", seq, at, text}]
    this.spendings = []; // [at, usd] of each event that spent
    this.partial = false; // it begins in the middle, so nobody knows how many outcomes were before
    this.next = 0; // the number behind the last event
    this.events = 0;
    this.modelCalls = 0;
    this.dropped = 0; // events that retries took out
    this.retries = []; // [{seq, by, cut, count}]
    this.cuts = []; // [{seq, at}] of retries and forks: what comes behind one was asked for behind it, whatever it had seen
    this.progress = null;
    this.plan = null; // {done, total, text, items}
    this.startedAt = null; // when a worker first took the run, if that is known: its row says it, not its events
    this.firstAt = null;
    this.lastAt = null;
    this.ended = null; // {kind, at, error} once the run is over
    this.changes = 0; // grows with every event
    this.outcomesAt = []; // when the nth outcome was recorded, and its number
    this.outcomesSeq = [];
    this._calls = new Map();
    this._branches = new Map();
    this._agents = new Set(); // branches that are runs of agents of Pydantic AI
    this._children = new Map();
    this._standIns = new Map();
    this._questions = new Map();
    this._going = new Set(); // bodies that have begun, as far as the journal says
    this._open = new Map(); // calls that the worker said are open
    this._passing = []; // of these, the ones the journal does not know
    this._last = new Map(); // calls that were open when that was last said, and of which nothing was recorded since
    this._lost = new Map(); // attempts that were lost with their process, by the key of a call that has no record since
    this._cutOff = []; // calls of the journal that are shown as cut off, until it says what became of them: [call, began]
    this._readBack = 0; // results since the last checkpoint
    this._taken = 0; // when the run was last taken up again: no body that was going before goes on
  }

  /** The call of a key, as it is now; or the one that a retry took out. */
  call(key, dropped = null) {
    return this._calls.get(name(key, dropped)) ?? this._open.get(key) ?? null;
  }

  /** The branch of a path. */
  branch(path) {
    return this._branches.get(path) ?? null;
  }

  get children() {
    return [...this._children.keys()];
  }

  /** How many calls it made, with those that run now; what it said of itself is no call. */
  get calls() {
    let made = 0;
    for (const call of this.each()) made += CALLS.has(call.sort) && call.dropped === null;
    return made;
  }

  /** Does a call of a model run? */
  get thinks() {
    return [...this.each()].some((call) => call.sort === "model" && call.state === "running" && isOpen(call));
  }

  childCall(id) {
    return this._children.get(id) ?? null;
  }

  questionCall(id) {
    return this._questions.get(id) ?? null;
  }

  /** Take in one event; they come in order. One that is known already is passed over. */
  add(event) {
    if (event.seq < this.next) return null;
    this._uncut();
    const seen = seenOf(event), { at, data } = seen;
    this.events += 1;
    this.changes += 1;
    this.firstAt ??= at;
    if (seen.dropped !== null) {
      this.dropped += 1;
      const retry = this.retries.find((each) => each.seq === seen.dropped);
      if (retry) retry.count += 1;
      else this.retries.push({ seq: seen.dropped, by: null, cut: null, count: 1 });
    }
    this._carried(seen);
    this.next = event.seq;
    const take = TAKERS[event.kind];
    const call = take ? take(this, seen) : null;
    this.next = event.seq + 1;
    if (seen.dropped === null && !NOT_OUTCOMES.has(event.kind)) {
      this.outcomesAt.push(at);
      this.outcomesSeq.push(event.seq);
      this._readBack = event.kind === "checkpoint" ? 0 : this._readBack + RESULTS.has(event.kind);
    }
    if (data.spent?.usd && seen.dropped === null) this.spendings.push([at, data.spent.usd]);
    this.lastAt = Math.max(this.lastAt ?? at, at);
    return call;
  }

  /** Note an event whose call is told by an outline: who carries the run, and how far it is, without the call itself. */
  pass(event) {
    if (event.seq < this.next) return;
    const seen = seenOf(event);
    this._carried(seen);
    this.events += 1;
    this.changes += 1;
    this.next = event.seq + 1;
    this.lastAt = Math.max(this.lastAt ?? seen.at, seen.at);
    this._last.delete(seen.key);
    this._forget(seen.key);
  }

  /** When the agent asked for a call, as far as that is known: the moment of the last outcome that it had seen. */
  askedAt(call) {
    if (call.asked === null || this.partial) return null;
    const seen = call.asked > 0 ? (this.outcomesAt[call.asked - 1] ?? null) : (this.startedAt ?? this.firstAt);
    return seen === null ? null : Math.max(seen, this.cuts.findLast((cut) => cut.seq < call.first)?.at ?? 0);
  }

  /** The calls that were known to run, or had been asked for and had no outcome, when the run was torn: they run after it, with the same keys. */
  across(tear) {
    const found = [];
    for (const call of this.each()) {
      if (!BODIES.has(call.sort) || call.dropped !== null) continue;
      const isAsked = call.asked !== null && call.asked <= tear.outcomes && call.seq > tear.seq && (call.ended === null || call.ended >= tear.to);
      if (isAsked || tear.lost.includes(call.key)) found.push(call);
    }
    return found.sort((one, other) => one.seq - other.seq);
  }

  /** The number of the outcome because of which a call was made; null for the first. */
  because(call) {
    return call.asked > 0 && !this.partial ? (this.outcomesSeq[call.asked - 1] ?? null) : null;
  }

  /**
   * Show what the worker says runs now, until the next time this is called: [{key, name, input, attempt, began}]. If the worker is
   * gone, with its last `sign`, and when another has just taken over, what was cut off is shown in the place of that.
   */
  showOpen(open, sign = 0) {
    this._uncut();
    for (const [siblings, call] of this._passing) siblings.splice(siblings.indexOf(call), 1);
    this._passing = [];
    // When a process is gone nobody says what runs any more. What ran last is remembered until the journal tells of it.
    for (const [key, call] of this._open) if (call.ended === null) this._last.set(key, { key, name: call.name, input: call.input, began: call.began, attempt: call.attempts });
    this._open.clear();
    for (const each of open) {
      const known = this._calls.get(name(each.key, null));
      if (known) {
        if (known.ended !== null) continue;
        known.state = "running";
        known.began = ms(each.began);
        if (each.attempt) known.attempts = each.attempt;
        this._open.set(each.key, known);
        continue;
      }
      const call = new Call("step", each.name, each.key, this.next);
      call.input = each.input ?? "";
      call.state = "running";
      call.began = ms(each.began);
      call.attempts = each.attempt ?? 1;
      const lost = this._lost.get(each.key);
      if (lost && lost.began < call.began) call.tries = [lost];
      this._pass(call);
      this._open.set(each.key, call);
    }
    if (sign && this.carriers.length) this.carriers.at(-1).to = sign;
    if (sign) for (const call of [...this._calls.values()].filter((each) => each.state === "running" && BODIES.has(each.sort) && isOpen(each) && !this._open.has(each.key))) this._cutShort(call, sign);
    const isTorn = this.tears.at(-1)?.seq === this.next - 1;
    const cut = sign ? [...this._last.values()].map((each) => this._cut(each, sign)) : isTorn ? this.tears.at(-1).lost.map((key) => this._lost.get(key)) : [];
    for (const each of cut) {
      if (this._calls.has(name(each.key, null)) || this._open.has(each.key)) continue;
      const call = new Call("step", each.name, each.key, this.next);
      call.input = each.input;
      call.state = "waiting";
      call.attempts = each.n;
      call.tries = [each];
      this._pass(call);
    }
    this.changes += 1;
  }

  /** Show for now that a call of the journal was cut off with its process, by its last sign. */
  _cutShort(call, sign) {
    const began = call.began ?? sign;
    (call.tries ??= []).push({ n: call.attempts, began, ended: Math.max(sign, began), how: this._going.has(call) ? "unknown" : "lost", error: null, wait: 0, tear: null });
    this._cutOff.push([call, call.began]);
    call.state = "waiting";
    call.began = null;
  }

  _uncut() {
    for (const [call, began] of this._cutOff) {
      call.tries.pop();
      if (!call.tries.length) call.tries = null;
      call.state = "running";
      call.began = began;
    }
    this._cutOff = [];
  }

  /** Show a call that the journal does not know, for now. */
  _pass(call) {
    if (isRequest(call.key, call.name)) call.sort = call.name = "model";
    else if (call.name === "model") call.sort = "model";
    const siblings = this._siblings(call.key, call);
    siblings.push(call);
    this._passing.push([siblings, call]);
  }

  /** An attempt that was lost with its process, from what the worker had said of it. */
  _cut(told, ended, tear = null) {
    const known = told.name === undefined ? (this._last.get(told.key) ?? this._open.get(told.key)) : told;
    const { name: called = told.key.split("/").at(-1).replace(/#\d+$/, ""), input = "" } = known ?? {};
    return { key: told.key, name: called, input, n: told.attempt ?? told.attempts ?? 1, began: ms(told.began), ended, how: "lost", error: null, wait: 0, tear };
  }

  /** Show the runs that it has started as they are, also those of whose end it never heard: by id {status, finished_at}. */
  showChildren(rows) {
    for (const [child, call] of this._children) {
      const row = rows.get(child);
      if (!row || call.ended !== null) continue;
      call.state = STATES[row.status] ?? "waiting";
      call.ended = ms(row.finished_at);
    }
    this.changes += 1;
  }

  /** All calls, those of branches too, in no order. */
  *each(items = this.items) {
    for (const call of items) {
      yield call;
      if (call.items) yield* this.each(call.items);
    }
  }

  // Placing

  /** The list that a key's call belongs to; its branches are made as they are needed. */
  _siblings(key, call) {
    const parts = key.split("/"), era = parts[0].startsWith("@") ? parts[0] : "";
    const path = parts.slice(era && parts.length > 1 ? 1 : 0, -1);
    let items = this.items, place = era, up = null;
    for (const part of path) {
      const colon = part.lastIndexOf(":"), agent = colon >= 0 ? part.slice(0, colon) : "";
      let shown = part;
      if (colon >= 0 && (part.endsWith(":model") || this._agents.has(`${place}/${agent}`))) {
        place = `${place}/${agent}`;
        shown = agentName(agent);
        this._agents.add(place);
      } else place = `${place}/${part}`;
      let branch = this._branches.get(place);
      if (!branch) {
        branch = new Call("branch", shown, place, this.next);
        branch.items = [];
        branch.up = up;
        this._branches.set(place, branch);
        items.push(branch);
      }
      branch.seq = this.next;
      items = branch.items;
      up = branch;
    }
    if (call) call.up = up;
    return items;
  }

  _call(event, sort) {
    const key = event.key ?? "", { data } = event;
    let call = this._calls.get(name(key, event.dropped));
    if (!call) {
      call = new Call(sort, data.name ?? "", key, event.seq);
      call.input = data.input ?? "";
      call.dropped = event.dropped;
      if (sort === "step" && isRequest(key, call.name)) call.sort = call.name = "model";
      this._calls.set(name(key, event.dropped), call);
      this._forget(key);
      this._siblings(key, call).push(call);
    } else this._siblings(key, null);
    this._last.delete(key);
    if (call.asked === null && data.asked !== undefined) call.asked = data.asked;
    if (call.held !== null) {
      call.remark(`waited ${spoken(Math.max(Math.min(call.held.data.at, event.at) - call.held.at, 0))} ${turn(call.held.data)}`);
      (call.waits ??= []).push([call.held.at, Math.min(call.held.data.at, event.at), call.held.data.rate ?? ""]);
      call.held = null;
    }
    call.seq = event.seq;
    call.last = event.at;
    if (data.spent) {
      call.spent = added(call.spent, data.spent);
      if (event.dropped === null) this.modelCalls += data.spent.model_calls ?? 0;
      if (data.spent.model_calls && call.sort === "step") call.sort = "model";
    }
    return call;
  }

  /** What the worker said of a call that the journal knows now is not shown any more. */
  _forget(key) {
    this._open.delete(key);
    const at = this._passing.findIndex(([, call]) => call.key === key);
    if (at < 0) return;
    const [[siblings, call]] = this._passing.splice(at, 1);
    siblings.splice(siblings.indexOf(call), 1);
  }

  _top(event, sort, text, state = "said") {
    const call = new Call(sort, text, null, event.seq);
    call.state = state;
    call.began = call.last = event.at;
    call.dropped = event.dropped;
    this.items.push(call);
    return call;
  }

  _tell(event, sort, text) {
    const call = event.key === null ? this._top(event, sort, "") : this._call(event, sort);
    call.sort = sort;
    call.name = text;
    call.state = "said";
    call.began = event.at;
    call.input = "";
    return call;
  }

  _flag(sort, event, text) {
    if (event.dropped === null) this.flags.push({ sort, seq: event.seq, at: event.at, text });
  }

  /** Who carries the run: the first event of each claim names its worker, and every event its epoch. */
  _carried(event) {
    const { data, epoch } = event, tear = event.kind === "run.interrupted";
    const last = this.carriers[this.carriers.length - 1];
    const worker = tear ? (data.by ?? null) : (data.worker ?? null);
    if (tear && !last && this.startedAt !== null) this.carriers.push({ owner: data.owner ?? null, epoch: data.epoch ?? null, from: this.startedAt, to: this.lastAt ?? this.startedAt, ends: "killed" });
    if (tear && last && last.ends !== "killed") {
      last.ends = "killed";
      last.to = this.lastAt ?? last.to;
      last.owner ??= data.owner ?? null;
    }
    if (CUTS.has(event.kind) || (event.kind === "run.resumed" && last?.ends === "left")) {
      if (last) last.ends = "left";
      return; // nobody carried it: its last owner had left, and a person came
    }
    if (epoch === 0 || (epoch === null && !worker && !tear && !last)) return; // nobody carried it
    if (last?.ends === "now" && !tear && (epoch === null ? !worker || worker === last.owner : epoch === last.epoch)) {
      last.to = Math.max(last.to, event.at);
      last.owner ??= worker;
      if (event.kind === "run.paused") last.ends = "left";
      return;
    }
    if (last && last.ends === "now") last.ends = "left";
    const began = tear ? event.at : Math.min(event.at, data.began || event.at);
    const before = last ? last.to : null;
    this.carriers.push({ owner: worker, epoch, from: before === null ? began : Math.max(began, before), to: event.at, ends: event.kind === "run.paused" ? "left" : "now" });
  }

  /** Who carried the run, with who has it now, also if that one has not recorded anything; `info` was read `at` this moment. */
  carried(info, at) {
    const last = this.carriers.at(-1);
    if (info.status !== "running" || info.worker_gone || (last?.ends === "now" && last.epoch === (info.epoch ?? last.epoch))) return this.carriers;
    const [kind, span] = info.life?.at(-1) ?? [], from = kind === "work" ? at - span : at;
    return [...this.carriers, { owner: info.worker ?? null, epoch: info.epoch ?? null, from: Math.max(from, last?.to ?? from), to: at, ends: "now" }];
  }

  /** How bodies that were going when the process went ended: nobody knows more than the journal does. */
  _tear(event) {
    const { data } = event, open = [...(data.open ?? new Map([...this._last, ...this._open]).values())].filter((each) => ms(each.began) !== null && ms(each.began) < event.at);
    // The last sign of the process, as who took over recorded it; in older journals what it recorded, or began.
    const sign = data.seen ?? Math.min(open.reduce((last, each) => Math.max(last, signOf(each)), 0), event.at), from = data.seen ?? Math.max(this.lastAt ?? this.startedAt ?? (sign || event.at), sign);
    const killed = this.carriers[this.carriers.length - 2];
    if (killed?.ends === "killed") killed.to = Math.max(killed.to, from);
    const tear = {
      seq: event.seq, from, sign, to: Math.max(event.at, from), owner: data.owner ?? null, by: data.by ?? null, how: data.how ?? null, epoch: data.epoch ?? null,
      lost: [], doubt: [], outcomes: this.outcomesAt.length, readBack: this._readBack, since: this.checkpoints.length ? this.checkpoints[this.checkpoints.length - 1].era : null,
    };
    for (const call of this._going) {
      this._broke(call, from, "unknown", tear);
      tear.doubt.push(call.key);
    }
    this._going.clear();
    // The worker had said that these ran, and the journal does not know of it: they run again, and are the same calls.
    for (const each of open) {
      const isOver = (this._calls.get(name(each.key, null))?.ended ?? null) !== null; // it ended before its worker told so
      if (isOver || tear.doubt.includes(each.key)) continue;
      this._lost.set(each.key, this._cut(each, from, event.seq));
      tear.lost.push(each.key);
    }
    this._last.clear();
    this.tears.push(tear);
  }

  _broke(call, at, how, tear) {
    (call.tries ??= []).push({ n: call.attempts, began: call.began ?? at, ended: at, how, error: null, wait: 0, tear: tear.seq });
  }

  /** What is known of an attempt of this call that was lost with its process, from what the worker had said. */
  _recall(call, began) {
    const lost = this._lost.get(call.key);
    if (!lost || call.dropped !== null || began === null || lost.began >= began) return;
    this._lost.delete(call.key);
    if (!(call.tries ?? []).some((each) => each.tear === lost.tear)) (call.tries ??= []).push(lost);
  }
}

const seenOf = ({ seq, kind, key, at, data, epoch, dropped, preview }) => ({ seq, kind, key: key ?? null, at: ms(at), data: data ?? {}, epoch: epoch ?? null, dropped: dropped ?? null, preview: preview ?? null });
const signOf = (told) => ms(told.began) + OLD_MS;
const name = (key, dropped) => (dropped === null ? key : `${key}\u0000${dropped}`);

/** What a body that is held waits for: the words behind 'waits'. */
export function turn(data) {
  return `for its turn${data.rate ? ` of ${data.rate}` : ""}${data.paused ? ", which is paused" : ""}`;
}

/** Read progress, or a plan, from the data of its event. */
function progressOf(data) {
  if (!data.items) return { done: data.done, total: data.total ?? null, text: data.text ?? "" };
  return { done: data.items.filter(([, done]) => done).length, total: data.items.length, text: data.items.find(([, done]) => !done)?.[0] ?? "" };
}

function agentName(agent) {
  const dash = agent.lastIndexOf("-"), shown = agent.slice(0, Math.max(dash, 0)), nth = agent.slice(dash + 1);
  if (!shown || !/^\d+$/.test(nth) || nth === "0") return shown || agent;
  return `${shown}, run ${Number(nth) + 1}`;
}

function added(sum, more) {
  if (sum === null) return more;
  const made = { ...sum };
  for (const each of ["usd", "input_tokens", "output_tokens", "model_calls", "unpriced", "steps"]) if (more[each]) made[each] = (made[each] ?? 0) + more[each];
  if (more.models) made.models = [...new Set([...(made.models ?? []), ...more.models])];
  return made;
}

// Steps

function stepStarted(journal, event) {
  const call = journal._call(event, "step"), { data } = event;
  if (call.state === "running" && call.began !== null) call.remark(`whether attempt ${call.attempts} had its effect was not known; it ran again`, "warn");
  call.state = "running";
  call.began = event.at;
  call.attempts = data.attempt ?? 1;
  if (event.dropped === null) journal._going.add(call);
  journal._recall(call, event.at);
}

function stepProgress(journal, event) {
  if (event.dropped === null) journal.progress = progressOf(event.data);
}

function stepHeld(journal, event) {
  const call = journal._call(event, "step");
  call.held = { at: event.at, data: event.data };
  call.state = "waiting";
  call.due = event.data.at;
}

function stepRetrying(journal, event) {
  const call = journal._call(event, "step"), { data } = event, n = data.attempt ?? 1;
  call.remark(said(event), "bad");
  const known = journal._going.delete(call) || call.state === "running";
  const before = call.tries?.[call.tries.length - 1];
  // When an attempt began is not in this event: the end of the wait before it, or the moment it was asked for.
  const due = before ? before.ended + before.wait : (journal.askedAt(call) ?? event.at);
  const began = known && call.began !== null ? call.began : Math.min(Math.max(due, journal._taken), event.at);
  const carrier = journal.carriers.at(-1);
  if (carrier?.from === event.at && event.dropped === null) carrier.from = Math.max(began, journal.carriers.at(-2)?.to ?? began); // this is the first that it recorded
  journal._recall(call, event.at);
  (call.tries ??= []).push({ n, began, ended: event.at, how: "failed", error: errorLine(data.error), wait: data.wait_ms ?? 0, pauses: data.pauses ?? null });
  call.state = "waiting";
  call.due = event.at + (data.wait_ms ?? 0);
  call.attempts = n + 1;
}

function stepEnded(journal, event) {
  const call = journal._call(event, "step"), { data } = event, wasAsked = call.state === "doubt";
  journal._going.delete(call);
  if (!data.began && call.began !== null && !wasAsked && event.kind === "step.completed") call.remark("its outcome was not known; its probe found it done, so it was not done again", "warn");
  if (!data.began && event.kind === "step.completed" && !data.replaced) call.probed = true;
  call.began = data.began || call.began;
  if (call.probed && call.tries?.length) call.began = event.at;
  call.ended = event.at;
  call.attempts = data.attempts ?? call.attempts;
  call.due = null;
  if (data.began) journal._recall(call, data.began);
  if (data.replaced) call.remark(REPLACED);
  if (event.kind === "step.completed") {
    call.state = "done";
    call.result = event.preview;
  } else if (event.kind === "step.failed") {
    call.state = "failed";
    call.remark(errorLine(data.error), "bad");
  } else {
    call.state = "cancelled";
    if (data.in_doubt) call.remark("its body had begun; whether it had its effect is not known", "warn");
  }
  return call;
}

// People

function asked(journal, event) {
  const { data } = event;
  if (OF_A_STEP.has(data.kind)) {
    const call = journal._call(event, "step");
    call.state = "doubt";
    call.remark(said(event), "warn");
    call.question = { id: data.approval, kind: data.kind, again: isAgain(data), to: data.to ?? [], at: event.at };
    return;
  }
  let call;
  if (event.key === null) {
    call = journal._top(event, "question", "");
    call.key = data.key ?? "";
    journal._calls.set(name(data.key ?? "", null), call);
  } else call = journal._call(event, "question");
  call.name = said(event);
  call.state = "waiting";
  call.began = event.at;
  call.question = { id: data.approval ?? "", digest: data.digest, kind: data.kind, to: data.to ?? [], at: event.at };
  journal._questions.set(data.approval ?? "", call);
  if (data.to?.length) call.remark(`for ${data.to.join(", ")}`);
  if (data.not_by === "starter") call.remark("not by who started the run");
}

function questionOf(journal, event) {
  return journal._questions.get(event.data.approval ?? "") ?? journal._calls.get(name(event.key ?? event.data.key ?? "", null)) ?? null;
}

function toldOf(journal, event) {
  const call = questionOf(journal, event);
  if (!call) return null;
  call.remark(said(event));
  if (call.question && event.kind !== "approval.withdrawn") (call.question.marks ??= []).push([event.at, event.kind, said(event)]);
  if (event.kind === "approval.voted" && call.question) voted(call.question, event.data);
  if (event.kind === "approval.withdrawn" && call.sort === "question") {
    call.state = "cancelled";
    call.ended = event.at;
  }
  return call;
}

function voted(question, { by, digest, changed = digest && question.digest && digest !== question.digest }) {
  if (changed) Object.assign(question, { changed: by, digest });
}

/** How a question ended, behind the name of who decided it. */
export const outcome = ({ by, decision, changed }) => (decision === "expired" ? "nobody decided in time" : decision) + (changed && decision === "approved" ? `, with ${changed === by ? "a" : `${changed}'s`} change` : "");

function decided(journal, event) {
  const { data } = event, call = questionOf(journal, event), text = said(event);
  if (!call) return journal._top(event, "note", text);
  if (call.question) Object.assign(call.question, { by: deciders(data) || null, decision: event.kind === "approval.expired" ? "expired" : (data.decision ?? null), note: data.note ?? "", decidedAt: event.at, gave: data.yes ? (event.preview ?? "") : "" });
  if (call.question && data.decision === "approved") voted(call.question, data);
  if (call.sort === "question") {
    const good = event.kind === "approval.decided" && data.yes;
    call.state = good ? "done" : "failed";
    call.ended = event.at;
    call.seq = event.seq;
    call.result = text + (event.preview && good ? `: ${event.preview}` : "");
    if (data.replaced) call.remark(REPLACED);
  } else {
    call.remark(event.preview ? `${text}: ${event.preview}` : text, "warn");
    call.last = event.at;
  }
  return call;
}

// Other calls

function timer(journal, event) {
  const call = journal._call(event, "timer"), { data } = event;
  if (event.kind === "timer.set") {
    call.state = "waiting";
    call.began = event.at;
    call.due = data.until ?? event.at + (data.ms ?? 0);
  } else {
    call.state = "done";
    call.ended = event.at;
  }
}

function childBegun(journal, event) {
  const call = journal._call(event, "child");
  call.state = "waiting";
  call.began = event.at;
  call.child = event.data.child;
  journal._children.set(event.data.child, call);
}

function childEnded(journal, event) {
  const call = journal._children.get(event.data.child);
  if (!call) return null;
  call.state = STATES[event.data.status] ?? "cancelled";
  call.ended = event.at;
  call.result = event.preview;
  call.seq = event.seq;
  if (event.data.replaced) call.remark(REPLACED);
  return call;
}

function note(journal, event) {
  const call = journal._tell(event, "note", said(event));
  journal._flag("note", event, call.name);
}

function progress(journal, event) {
  if (event.dropped === null && event.kind === "plan") journal.plan = { ...progressOf(event.data), items: event.data.items ?? [] };
  else if (event.dropped === null) journal.progress = progressOf(event.data);
  journal._tell(event, event.kind, said(event));
}

function talk(journal, event) {
  journal._tell(event, "note", told(event));
}

function checkpoint(journal, event) {
  const call = journal._call(event, "checkpoint");
  call.name = said(event);
  call.began = event.at;
  call.result = event.preview;
  if (event.dropped === null) journal.checkpoints.push({ seq: event.seq, era: event.data.era ?? null, at: event.at });
}

// What has no key

function low(journal, event) {
  journal._top(event, "note", said(event));
  journal._flag("low", event, said(event));
}

function message(journal, event) {
  const topic = String(event.data.topic ?? ""), call = journal._top(event, "message", topic.startsWith(ANNOUNCED) ? topic.slice(ANNOUNCED.length).split(" ")[0] : topic);
  call.result = event.preview;
  journal._flag("message", event, told(event));
  return call;
}

function patched(journal, event) {
  if (!isQuiet(event)) journal._top(event, "patch", String(event.data.patch ?? ""));
}

function foreign(journal, event) {
  const call = journal._top(event, "warning", said(event), "doubt");
  call.remark("it is done again whenever the run resumes; put it into a step", "warn");
  journal._flag("foreign", event, said(event));
}

function mark(journal, event) {
  if (event.kind === "run.failed") {
    if (event.dropped === null) {
      journal.ended = { kind: event.kind, at: event.at, error: event.data.error ?? null, seq: event.seq };
      return null; // how the run ended is said above the tree
    }
  }
  if (TAKEN_UP.has(event.kind)) journal._taken = event.at;
  if (CUTS.has(event.kind)) journal.cuts.push({ seq: event.seq, at: event.at });
  if (event.kind === "run.interrupted") journal._tear(event);
  else if (event.kind !== "run.failed") journal._flag("control", event, told(event));
  if (event.kind === "run.retried") {
    const found = journal.retries.find((each) => each.seq === event.seq);
    if (found) Object.assign(found, { by: event.data.by ?? null, cut: event.data.cut ?? null });
    else journal.retries.push({ seq: event.seq, by: event.data.by ?? null, cut: event.data.cut ?? null, count: 0 });
    journal.ended = null;
  }
  const text = told(event, { error: !isTold(journal, event) });
  const call = journal._top(event, "mark", text, event.kind === "run.failed" ? "failed" : "said");
  call.key = event.kind; // which mark it is
  journal.marks.push(call);
  if (event.kind === "run.forked") standIn(journal, event.data.children ?? {});
  if (event.data.instead && Object.keys(event.data.instead).length) {
    const [what, replaced] = text.split("; replaced: ");
    call.name = what;
    journal.marks.push(journal._top(event, "mark", `replaced: ${replaced}`));
  }
  return call;
}

function standIn(journal, children) {
  for (const [known, own] of Object.entries(children)) {
    const before = journal._standIns.get(known) ?? known, call = journal._children.get(before);
    journal._children.delete(before);
    journal._standIns.set(known, own);
    if (call) {
      call.child = own;
      journal._children.set(own, call);
    }
  }
}

/** Does a step in the tree say the error that a retry took out with it? */
function isTold(journal, event) {
  const { error } = event.data;
  for (const source of error?.from ?? []) {
    const call = source.child ? null : journal._calls.get(name(source.key, event.dropped));
    if (call?.remarks?.length && errorLine(error).endsWith(call.remarks[call.remarks.length - 1].text)) return true;
  }
  return false;
}

function over(journal, event) {
  if (event.dropped === null) journal.ended = { kind: event.kind, at: event.at, error: null, seq: event.seq };
}

const TAKERS = {
  "run.interrupted": mark, "run.pausing": mark, "run.paused": mark, "run.resumed": mark, "run.retried": mark, "run.forked": mark, "run.cancelling": mark,
  "run.unwinding": mark, "run.failed": mark, "run.completed": over, "run.cancelled": over,
  "step.started": stepStarted, "step.held": stepHeld, "step.progress": stepProgress, "step.retrying": stepRetrying,
  "step.completed": stepEnded, "step.failed": stepEnded, "step.cancelled": stepEnded,
  "timer.set": timer, "timer.fired": timer, "message.received": message,
  "child.started": childBegun, "child.spawned": childBegun, "child.ended": childEnded,
  "approval.asked": asked, "approval.reminded": toldOf, "approval.delegated": toldOf, "approval.voted": toldOf, "approval.withdrawn": toldOf,
  "approval.decided": decided, "approval.expired": decided, "budget.low": low,
  "conversation.entered": talk, "conversation.refused": talk, "conversation.read": talk, "conversation.added": talk,
  "announcement.published": talk, "announcement.awaited": talk, patched, note, progress, plan: progress, checkpoint,
  "stream.opened": talk, "stream.closed": talk, "stream.read": talk, foreign,
};

// A run as the page knows it: read once, then followed. Views draw from it and never ask the server for what it has.

import { read } from "../../api.js";
import { path } from "../../dom.js";
import { Journal } from "./journal.js";
import { follow } from "../../live.js";
import { FINISHED, lastSign } from "../../say.js";
import { get, set } from "../../store.js";
import { ms, now } from "../../time.js";

const PAGE = 1000, LAST = 200, SLICE_MS = 5, AGAIN_MS = 1500, SETTLE_MS = 4000, OUTLINE_MS = 5000, KEPT = 50, TEARS = 20;
const HUGE = 5000; // events; above it the server folds, and the page reads only what is looked at
const RARE = ["run", "approval", "budget", "checkpoint", "foreign", "message", "note", "timer", "child", "plan", "progress"]; // what is read of a huge run besides its outline

export class Run {
  constructor(id, changed) {
    Object.assign(this, { id, changed, info: null, arguments: null, streams: [], journal: new Journal(), children: new Map(), nested: new Map(), approvals: [], problem: null, whole: false, outline: null, closed: false, ended: false });
    this.last = 0; // events of the end of a huge run, which are shown until it is folded
    this.values = new Map(); // the last values that were read, by number
    this.following = null;
    this.timer = 0;
    this.outlining = null;
    this.due = 0;
  }

  now() {
    return now();
  }

  get over() {
    return FINISHED.has(this.info?.status);
  }

  /** Is anything known of what it did? Until then nothing is said of it, not even that there is nothing. */
  get known() {
    return this.whole || this.outline !== null || this.journal.events > 0;
  }

  url(...parts) {
    return path("api", "runs", this.id, ...parts);
  }

  /** Read the run and its journal, and follow it from there. */
  async begin() {
    const leaving = new AbortController(), first = read(this.page(0), { signal: leaving.signal }); // few runs are huge, so it is not waited for
    const answer = await read(this.url());
    if (this.closed) return;
    if (!answer.ok) {
      this.problem = answer.error;
      return this.changed("problem");
    }
    this.told(answer.data);
    this.changed("info");
    if ((this.info.events ?? 0) > HUGE) {
      leaving.abort();
      await this.huge();
    } else await this.pages(this.anew(), { first });
    if (this.closed) return;
    this.whole = true;
    this.showOpen(answer.data.open);
    this.changed("events");
    this.followOn();
    this.family();
    this.settle();
  }

  /** Take in what the server says of the run itself. */
  told(data) {
    this.info = data.run;
    this.infoAt = this.now();
    this.journal.startedAt = ms(data.run.started_at);
    this.arguments = data.arguments ?? this.arguments;
    this.streams = data.streams ?? this.streams;
    this.problem = null;
  }

  showOpen(open) {
    if (open && !this.over) this.journal.showOpen(open, this.info.worker_gone ? (lastSign(this.info, this.infoAt) ?? ms(this.info.updated_at)) : 0);
    else if (this.over) this.journal.showOpen([]);
  }

  /** A journal that has nothing yet. What was drawn stays until it has something. */
  anew() {
    const journal = new Journal();
    journal.startedAt = ms(this.info.started_at);
    return journal;
  }

  /** Read a huge run: its end at once, and then all of it, as the server folds it meanwhile. */
  async huge() {
    const end = this.journal.events ? null : this.end(), folded = this.readOutline();
    await end;
    if (!(await folded)) return this.closed ? undefined : this.pages(this.anew());
    this.changed("events");
    const journal = this.anew();
    await this.pages(journal, { kinds: RARE });
    await this.mend(journal);
    journal.next = Math.max(journal.next, this.outline.events); // what the outline has is not told again
  }

  async end() {
    const answer = await read(this.url("events", { before: this.info.events, limit: LAST }));
    if (this.closed || this.outline || !answer.ok) return;
    const journal = this.anew();
    journal.partial = true;
    await this.fold(journal, answer.data.events);
    this.last = answer.data.events.length;
    this.show(journal);
  }

  show(journal) {
    this.journal = journal;
    this.changed("events");
  }

  /** The path of a page of its events; the outline tells no call that a retry took out. */
  page(after, kinds = null) {
    return this.url("events", { after, limit: PAGE, kinds, dropped: kinds ? null : "true" });
  }

  /** Read all events, or those of some kinds; `first` is the first page, if it was asked for already. */
  async pages(journal, { kinds = null, first = null } = {}) {
    let after = 0;
    for (;;) {
      const answer = await ((!after && first) || read(this.page(after, kinds)));
      if (this.closed) return;
      if (!answer.ok) {
        this.problem = answer.error;
        return this.changed("problem");
      }
      await this.fold(journal, answer.data.events);
      const isLast = answer.data.events.length < PAGE;
      if (isLast) journal.next = Math.max(journal.next, answer.data.next ?? 0);
      if (isLast || !after) this.show(journal); // the beginning is shown at once, and all of it when it is there
      if (isLast) return;
      after = answer.data.next;
    }
  }

  /** Fold in pieces, so that the page stays quick while a long journal comes. */
  async fold(journal, events) {
    let began = performance.now();
    for (const event of events) {
      journal.add(event);
      if (performance.now() - began < SLICE_MS) continue;
      await new Promise((then) => setTimeout(then));
      began = performance.now();
    }
  }

  async readOutline(under = null) {
    const answer = await read(this.url("outline", { buckets: 240, under }));
    if (!answer.ok || this.closed) return false;
    if (under === null) this.outline = { ...answer.data, under: this.outline?.under ?? new Map() };
    else this.outline.under.set(under, answer.data);
    return true;
  }

  /** Of a huge run only some events are read: what stood before a tear is looked up, and who carried it is told by its tears. */
  async mend(journal) {
    const { tears } = journal, began = ms(this.info.started_at) ?? ms(this.info.created_at);
    await Promise.all(tears.slice(-TEARS).map(async (tear) => {
      const answer = await read(this.url("events", { before: tear.seq, limit: 1 }));
      if (answer.ok && answer.data.events.length) tear.from = Math.max(ms(answer.data.events[0].at), tear.sign);
      tear.readBack = null;
    }));
    journal.carriers = [...tears, null].map((tear, nth) => ({ owner: tear?.owner ?? tears[nth - 1]?.by ?? this.info.worker, epoch: tear?.epoch ?? null, from: tears[nth - 1]?.to ?? began, to: tear?.from ?? ms(this.info.finished_at) ?? journal.lastAt ?? began, ends: tear ? "killed" : "now" }));
  }

  outlineSoon() {
    this.outlining ??= setTimeout(async () => {
      this.outlining = null;
      if (!document.hidden && !this.closed && (await this.readOutline())) this.changed("events");
    }, OUTLINE_MS);
  }

  followOn() {
    this.following = follow("subject", this.url("events"), {
      after: this.journal.next,
      types: ["open"],
      tells: (data, type) => {
        if (type !== "open") this.hear(data);
        else {
          this.showOpen(data.open ?? data);
          this.soon(AGAIN_MS); // nobody says what runs any more when a process is gone
        }
        this.changed("live");
      },
      over: async (why, error) => {
        if (why === "problem") this.problem = error;
        this.ended = true;
        set({ line: { ...get("line"), how: "ended" } });
        await this.refresh();
        if (why === "end" && this.ended && this.info.status === "failed") this.watch();
      },
    });
  }

  hear(event) {
    if (event.kind === "run.retried") return this.reopen(); // what it took out is told by the pages alone
    if (this.outline && !RARE.includes(event.kind.split(".")[0])) this.journal.pass(event);
    else this.journal.add(event);
    if (!this.outline && this.whole && this.journal.events > HUGE) return this.reopen(); // from now on the server folds it
    if (event.kind.startsWith("child.")) this.family();
    if (this.outline) this.outlineSoon();
    this.soon(event.kind.startsWith("run.") ? 0 : AGAIN_MS);
  }

  /** Read the run again soon; however many events come, at most once in a while. */
  soon(wait) {
    const at = performance.now() + wait;
    if (this.timer && this.due <= at) return;
    clearTimeout(this.timer);
    this.due = at;
    this.timer = setTimeout(() => {
      this.timer = 0;
      this.refresh();
    }, wait);
  }

  async refresh() {
    const answer = await read(this.url());
    if (this.closed || !answer.ok) return;
    this.told(answer.data);
    this.showOpen(answer.data.open);
    this.changed("info");
    if (this.ended && !this.over) return this.reopen();
    this.settle();
  }

  /** A run leaves memory, and is taken again, without an event: it is asked how it stands until it rests. */
  settle() {
    if (["running", "ready"].includes(this.info.status) && !document.hidden) this.soon(SETTLE_MS);
  }

  /** After its end: somebody may retry it. Its own stream is over, so the feed of all runs is followed for that. */
  async watch() {
    const last = await read(this.url("events", { before: this.journal.next, limit: 1 }));
    if (this.closed || !this.ended) return;
    this.following = follow("subject", path("api", "events", { run: this.id, kinds: "run" }), {
      after: last.ok ? (last.data.events[0]?.position ?? 0) : 0,
      tells: (event) => event.kind === "run.retried" && event.seq >= this.journal.next && this.reopen(),
    });
  }

  reopen() {
    this.following?.close();
    Object.assign(this, { ended: false, whole: false });
    this.outline?.under.clear();
    set({ line: { ...get("line"), how: "live" } });
    this.begin();
  }

  /** The runs that it has started, as they are. */
  async family() {
    if (!this.journal.children.length) return;
    const answer = await read(path("api", "runs", { parent: this.id, limit: 200 }));
    if (!answer.ok || this.closed) return;
    this.children = new Map(answer.data.runs.map((run) => [run.id, run]));
    this.journal.showChildren(this.children);
    this.changed("events");
  }

  /** Read the journal of a child run, to show it in its place. */
  async open(child) {
    if (this.nested.has(child)) return;
    const nested = { journal: new Journal(), over: FINISHED.has(this.children.get(child)?.status) };
    this.nested.set(child, nested);
    let after = 0;
    for (;;) {
      const answer = await read(path("api", "runs", child, "events", { after, limit: PAGE }));
      if (!answer.ok || this.closed) break;
      for (const event of answer.data.events) nested.journal.add(event);
      if (answer.data.events.length < PAGE || nested.journal.events > HUGE) break;
      after = answer.data.next;
    }
    this.changed("events");
  }

  /** The value of an event, with the event itself; the last fifty are kept. */
  async value(seq, run = this.id) {
    const key = `${run} ${seq}`, known = this.values.get(key);
    if (known) return known;
    const answer = await read(path("api", "runs", run, "events", seq));
    if (!answer.ok) return { error: answer.error };
    this.values.set(key, answer.data);
    if (this.values.size > KEPT) this.values.delete(this.values.keys().next().value);
    return answer.data;
  }

  /** A call with its arguments and result. */
  async step(key, run = this.id) {
    const answer = await read(path("api", "runs", run, "steps", key));
    return answer.ok ? answer.data : { error: answer.error };
  }

  close() {
    this.closed = true;
    clearTimeout(this.timer);
    clearTimeout(this.outlining);
    this.following?.close();
    set({ line: { ...get("line"), how: "live" } });
  }
}

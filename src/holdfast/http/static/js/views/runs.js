// Runs: what needs a person, states with counts, a filter that stands in the address, and a table that lives without jumping.

import { h, path, put, swap } from "../dom.js";
import { read } from "../api.js";
import { asked, inWords, meant, parse, quoted, STATUSES, withWord, write } from "../filter.js";
import { follow } from "../live.js";
import { button, choice, copied, ghosts, icon, problem, strand } from "../parts.js";
import { count, many, word } from "../say.js";
import { get, has, may, set } from "../store.js";
import { bulkBar } from "./runs/bulk.js";
import { needsBox } from "./runs/needs.js";
import { card, line } from "./runs/rows.js";

const PAGE = 100;
const CHUNK = 10; // rows that come into the page, and leave it, together
const BEYOND = 500; // pixels below and above what can be seen, in which rows are there already
const HIGH = 47; // of a row, until it was there
const LATELY = "run,approval,child,step.retrying,step.failed,progress,plan,timer.set,budget,conversation.entered,message.received".split(",");
const HEADS = [["State"], ["Run"], ["What happens"], ["Life"], ["Progress"], ["Spent", "num"], ["Duration", "num"]];

const listed = (query) => read(path("api", "runs", query));

export function open(context) {
  const list = new List(context);
  list.begin();
  return { element: list.element, close: () => list.close(), changed: (next) => list.changed(next) };
}

class List {
  constructor(context) {
    Object.assign(this, { context, rows: new Map(), chunks: [], pages: [], chosen: new Set(), all: false, news: new Set(), anchor: null, timers: [], asking: 0, counts: null, following: null });
    this.read();
    this.head = h("div.head");
    this.needs = h("div");
    this.states = h("div.states", { role: "tablist", "aria-label": "State" });
    this.query = h("div.query", { role: "group", "aria-label": "Filter" });
    this.trouble = h("div");
    this.newer = h("div.newer");
    this.body = h("div.rows");
    this.foot = h("footer.foot");
    this.many = h("div");
    const filters = h("div.filters", this.states);
    this.element = h("div.runs-view", this.head, this.needs,
      context.narrow ? [filters, this.query, this.trouble, this.newer, this.body, this.foot] : h("section.panel.list", filters, this.query, this.trouble, this.newer, this.body, this.foot), this.many);
    this.scrolled = () => (this.frame ||= requestAnimationFrame(() => this.#show()));
    for (const each of ["scroll", "resize"]) addEventListener(each, this.scrolled, { passive: true });
    this.#keys();
  }

  // What the address says

  read() {
    const { query } = this.context;
    const status = query.get("status") ?? "all";
    this.tab = query.get("needs") ? "needs" : STATUSES.includes(status) ? status : "all";
    this.text = query.get("q") ?? "";
    if (status !== "all" && this.tab === "all") this.text += ` status:${status}`; // one that has no tab
    for (const word of ["agent", "label", "queue", "version"]) for (const value of query.getAll(word)) this.text += ` ${word}:${quoted(value)}`;
    if (query.get("waits_for")) this.text += ` waits:${query.get("waits_for")}`;
    this.text = this.text.trim();
    this.tokens = parse(this.text);
    this.wrong = this.tokens.find((each) => each.wrong);
    this.order = query.get("order") ?? "newest";
    this.tree = query.get("view") === "tree";
  }

  changed(context) {
    if (context.narrow !== this.context.narrow) return false;
    this.context = context;
    this.read();
    this.begin();
    return true;
  }

  go(changes) {
    const now = { q: this.text, status: STATUSES.includes(this.tab) ? this.tab : null, needs: this.tab === "needs" ? "yes" : null, order: this.order === "newest" ? null : this.order, view: this.tree ? "tree" : null, ...changes };
    this.context.go(path("runs", now));
  }

  filter() {
    const query = asked(this.tokens);
    if (this.tree) delete query.root;
    if (this.tab === "needs") return { ...query, root: undefined, needs: true };
    if (STATUSES.includes(this.tab)) query.status = [this.tab];
    return { ...query, order: this.order === "newest" ? undefined : this.order };
  }

  // Reading

  begin() {
    if (this.closed) return; // the slot of the stream is another view's by now
    clearTimeout(this.again);
    this.following?.close();
    this.following = null;
    this.timers.forEach(clearInterval);
    this.rows.clear();
    this.chunks = [];
    this.pages = [];
    this.news.clear();
    this.chosen.clear();
    this.all = false;
    this.reading = this.end = false;
    this.asking += 1;
    if (this.wrong) this.counts = null;
    if (this.tokens.length) swap(this.needs); // it is of all runs, and no filter holds for it
    this.#drawHead();
    this.#drawStates();
    this.#drawQuery();
    this.#drawMany();
    swap(this.trouble);
    swap(this.newer);
    swap(this.foot);
    if (this.wrong) return void swap(this.body, problem({ code: "bad_filter", message: `${this.wrong.text} cannot be read: ${this.wrong.wrong}.` }));
    swap(this.body, ghosts());
    this.more();
    this.#count();
    this.timers = [setInterval(() => this.#tick(), 1000), setInterval(() => this.#refresh(), 4000)];
  }

  close() {
    this.closed = true;
    this.asking += 1; // what is still asked for comes too late
    this.following?.close();
    clearTimeout(this.again);
    clearTimeout(this.waiting);
    this.timers.forEach(clearInterval);
    for (const each of ["scroll", "resize"]) removeEventListener(each, this.scrolled);
    cancelAnimationFrame(this.frame);
  }

  async more() {
    if (this.reading || this.end) return;
    const own = ++this.asking;
    this.reading = true;
    const after = this.pages.at(-1)?.next ?? null;
    const answer = await listed({ ...this.filter(), limit: PAGE, after });
    if (own !== this.asking) return;
    this.reading = false;
    if (!answer.ok) return this.#failed(answer.error, () => (this.pages.length ? this.more() : this.begin()));
    swap(this.trouble);
    const { runs, next, position } = answer.data;
    const first = !this.pages.length;
    this.pages.push({ after, ids: runs.map((each) => each.id), next });
    this.end = !next;
    if (first) {
      swap(this.body);
      if (!runs.length) return this.#nothing(position);
      this.place = this.context.narrow ? put(h("ul.cards"), []) : this.#table();
      this.body.append(this.place);
      this.#follow(position);
    }
    this.#add(runs);
    this.#drawFoot();
  }

  #failed(error, again) {
    if (!this.pages.length) swap(this.body);
    swap(this.trouble, problem(error, again));
  }

  #table() {
    const every = h("input", { type: "checkbox", "aria-label": "Choose all that are shown", onclick: () => {
      for (const id of this.rows.keys()) every.checked ? this.chosen.add(id) : this.chosen.delete(id);
      this.all = false;
      this.#drawChosen();
    } });
    this.every = every;
    return h("table.runs", h("thead", h("tr", h("th.pick", { scope: "col" }, may("write") && every), HEADS.map(([text, kind]) => h("th", { scope: "col", class: kind }, text)))));
  }

  // Rows are put into chunks. Those near to what is seen are in the page; in the place of the others there is room.
  #add(runs) {
    const fresh = (this.tree ? ordered(runs) : runs.map((run) => [run, 0])).filter(([run]) => !this.rows.has(run.id));
    for (let at = 0; at < fresh.length; at += CHUNK) {
      const chunk = { element: h(this.context.narrow ? "li.chunk" : "tbody"), entries: fresh.slice(at, at + CHUNK).map(([run, depth]) => ({ run, depth, row: null })), isShown: false };
      chunk.high = chunk.entries.length * HIGH;
      for (const entry of chunk.entries) this.rows.set(entry.run.id, entry);
      this.chunks.push(chunk);
    }
    this.#show();
  }

  #show() {
    this.frame = 0;
    if (!this.chunks.length) return;
    // All of the layout is read first.
    let top = this.place.getBoundingClientRect().top;
    for (const chunk of this.chunks) if (chunk.isShown) chunk.high = chunk.element.offsetHeight || chunk.high;
    const near = this.chunks.map((chunk) => {
      const from = top;
      top += chunk.high;
      return (from < innerHeight + BEYOND && top > -BEYOND) || (chunk.isShown && chunk.element.contains(document.activeElement));
    });
    if (this.chunks.every((chunk, nth) => chunk.isShown === near[nth]) && this.laid === this.chunks.length) return;
    this.laid = this.chunks.length;
    for (const room of this.place.querySelectorAll(":scope > .room")) room.remove();
    this.chunks.forEach((chunk, nth) => (near[nth] ? this.#fill(chunk) : this.#empty(chunk)));
    let before = this.place.tHead ?? null, room = 0;
    const stand = (element) => {
      const next = before ? before.nextSibling : this.place.firstChild;
      if (next !== element) this.place.insertBefore(element, next);
      before = element;
    };
    this.chunks.forEach((chunk, nth) => {
      if (!chunk.isShown) room += chunk.high;
      if (room && (chunk.isShown || nth === this.chunks.length - 1)) room = void stand(this.#room(room)) ?? 0;
      if (chunk.isShown) stand(chunk.element);
    });
    if (near.at(-1) && !this.end) this.more();
  }

  #room(high) {
    const height = { style: { height: `${Math.round(high)}px` } };
    return this.context.narrow ? h("li.room", height) : h("tbody.room", h("tr", h("td", { colspan: 8, ...height })));
  }

  #fill(chunk) {
    if (chunk.isShown) return;
    chunk.isShown = true;
    const make = this.context.narrow ? card : line;
    const made = chunk.entries.map((entry) => {
      entry.row = make(entry.run, { chosen: this.chosen.has(entry.run.id), depth: entry.depth, pick: (id, event) => this.pick(id, event.shiftKey), opens: (id) => this.context.go(path("runs", id)) });
      entry.row.dim(Boolean(entry.gone));
      return entry.row.element;
    });
    swap(chunk.element, this.context.narrow ? h("ul", made) : made);
  }

  #empty(chunk) {
    if (!chunk.isShown) return;
    chunk.isShown = false;
    chunk.element.remove();
    for (const entry of chunk.entries) entry.row = null;
  }

  // Living

  #follow(position) {
    const kinds = LATELY.map((each) => `kinds=${each}`).join("&");
    if (position == null || !has("feed")) return;
    this.following = follow("subject", `api/events?${kinds}`, { after: position, tells: (event) => this.#heard(event), over: (_, error) => error && swap(this.trouble, problem(error, () => this.begin())) });
  }

  #heard(event) {
    (this.dirty ??= new Set()).add(event.run);
    if (event.kind === "run.failed" && this.rows.has(event.run)) this.context.say(`${event.run} failed`);
    if (event.kind === "run.interrupted" && this.rows.has(event.run)) this.context.say(`${event.run} was interrupted and went on`);
    this.waiting ??= setTimeout(() => {
      this.waiting = null;
      this.#refresh();
    }, Math.max(300, this.slow ?? 0));
  }

  // Pages with runs of which something was heard are read again; rows change where they stand.
  async #refresh() {
    if (this.refreshing || this.reading || document.hidden || !this.pages.length) return;
    this.refreshing = true;
    const dirty = this.dirty ?? new Set();
    this.dirty = null;
    const began = performance.now();
    const seen = new Set(this.chunks.filter((each) => each.isShown).flatMap((each) => each.entries.map((entry) => entry.run.id)));
    const wanted = this.pages.filter((page, at) => at === 0 || page.ids.some((id) => seen.has(id) && (dirty.has(id) || !this.rows.get(id)?.run.finished_at)));
    const own = this.asking;
    for (const page of wanted.slice(0, 3)) {
      const answer = await listed({ ...this.filter(), limit: PAGE, after: page.after });
      if (own !== this.asking) break;
      if (answer.ok) this.#merge(page, answer.data.runs);
      else if (answer.status !== 0) swap(this.trouble, problem(answer.error, () => this.begin()));
      if (answer.ok) swap(this.trouble);
    }
    this.slow = (performance.now() - began) * 2;
    this.refreshing = false;
    if (dirty.size) this.#count();
  }

  #merge(page, runs) {
    if (!this.rows.size && runs.length) return this.begin(); // nothing fitted until now
    const found = new Set();
    for (const run of runs) {
      found.add(run.id);
      const entry = this.rows.get(run.id);
      if (!entry) {
        if (page === this.pages[0]) this.news.add(run.id);
        continue;
      }
      entry.run = run;
      entry.gone = false;
      entry.row?.dim(false);
      entry.row?.update(run);
    }
    const last = runs.at(-1);
    for (const id of page.ids) {
      const entry = this.rows.get(id);
      const pushed = last && runs.length === PAGE && entry.run.created_at <= last.created_at; // newer ones took its place
      if (found.has(id) || pushed) continue;
      entry.gone = true;
      entry.row?.dim(true);
    }
    for (const id of [...this.news]) if (page === this.pages[0] && !found.has(id)) this.news.delete(id);
    swap(this.newer, this.news.size > 0 && h("button.news", { onclick: () => { this.begin(); scrollTo(0, 0); } }, icon("up"), many(this.news.size, "new run")));
    this.#drawMany();
  }

  #tick() {
    if (document.hidden || get("line").how === "lost") return;
    for (const entry of this.rows.values()) entry.row?.tick();
  }

  async #count() {
    if (this.wrong) return;
    if (this.counting > performance.now()) return void (this.later ??= setTimeout(() => { this.later = null; this.#count(); }, 2000));
    this.counting = performance.now() + 2000;
    const { status: _status, order: _order, needs: _needs, ...filter } = { ...asked(this.tokens), ...(this.tree && { root: undefined }) };
    const [counts, needs, few] = await Promise.all([read(path("api", "counts", filter)), this.tokens.length ? {} : read("api/needs?limit=4"),
      this.tokens.length && filter.root ? read(path("api", "counts", { ...filter, root: undefined })) : null]);
    if (counts.ok) {
      // The list behind the tab has children too, so they count.
      this.counts = { ...counts.data, needs: needs.ok ? needs.data.runs : few?.ok ? few.data.needs : counts.data.needs };
      this.#drawStates();
      this.#drawHead();
      this.#drawFoot();
    }
    if (needs.ok && !this.tokens.length && !this.needs.contains(document.activeElement)) swap(this.needs, needsBox(needs.data));
  }

  // Drawing

  #drawHead() {
    const { narrow } = this.context;
    const counts = this.counts?.counts;
    const told = counts && !this.tokens.length ? `${count(counts.running)} running, ${count(counts.waiting)} waiting` : "";
    if (this.headTold === told + this.tree && this.head.childElementCount) return;
    this.headTold = told + this.tree;
    const start = may("write") && button(narrow ? "" : "Start a run", { name: "plus", kind: narrow ? "square" : "primary", href: "agents", title: narrow ? "Start a run" : undefined });
    swap(this.head, narrow ? [h("div", h("h1", "Runs"), h("p.dim", told)), start] : [
      h("div.head-line", h("h1", "Runs"), h("p.dim", told)),
      h("div.acts", choice([["table", "Table"], ["tree", "Tree"]], this.tree ? "tree" : "table", (id) => this.go({ view: id === "tree" ? "tree" : null }), "Show as"), start)]);
  }

  /** How many runs a tab has; null as long as nobody has counted. */
  #sum(tab = this.tab) {
    if (!this.counts) return null;
    const { counts, needs } = this.counts;
    return tab === "needs" ? needs : tab === "all" ? Object.values(counts).reduce((total, each) => total + each, 0) : counts[tab];
  }

  #drawStates() {
    const tabs = [["all", "All"], ["needs", "Needs a person"], ...STATUSES.map((id) => [id, word(id)[0].toUpperCase() + word(id).slice(1)])];
    const had = this.states.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const typed = this.tab === "all" ? this.tokens.filter((each) => each.word === "status").flatMap((each) => each.values) : [];
    const chosen = typed.length === 1 ? typed[0] : typed.length ? null : this.tab;
    swap(this.states, tabs.map(([id, text]) => h("button.state-tab", { role: "tab", data: { id }, "aria-selected": String(id === chosen), class: id === "needs" && this.#sum(id) ? "ask-ink" : "",
      onclick: () => this.go({ q: write(withWord(this.tokens, "status", [])), status: STATUSES.includes(id) ? id : null, needs: id === "needs" ? "yes" : null }) }, text, h("span", this.counts && count(this.#sum(id) ?? 0)))));
    if (had) this.states.querySelector(`[data-id="${had}"]`)?.focus();
  }

  #drawQuery() {
    const { narrow } = this.context;
    const set_ = (tokens) => this.go({ q: write(tokens) });
    const field = h("input", { "aria-label": "Filter runs", autocomplete: "off", spellcheck: "false", autocapitalize: "none", list: "filters", placeholder: narrow ? "Filter" : this.tokens.length ? "" : "agent:atlas  label:desk=nature  waits:person  attempt>3  cost>1",
      onkeydown: (event) => {
        if (event.key === "Enter" && field.value.trim()) {
          const tokens = parse(field.value);
          this.#remember(write([...this.tokens, ...tokens]));
          set_([...this.tokens, ...tokens]);
        } else if (event.key === "Backspace" && !field.value && this.tokens.length) set_(this.tokens.slice(0, -1));
      } });
    this.field = field;
    const orders = { newest: "newest first", oldest: "oldest first", updated: "latest change first" };
    const had = this.query.contains(document.activeElement);
    swap(this.query, icon("filter"), this.tokens.map((each, at) => h("span.token", { class: each.wrong ? "wrong" : "", title: each.wrong ?? undefined }, each.word ? [h("span.dim", `${each.word}${each.sign}`), each.values.join(",")] : each.text,
      h("button", { "aria-label": `Take ${each.text} away`, onclick: () => set_(this.tokens.filter((_, other) => other !== at)) }, icon("cross")))),
      field, h("datalist", { id: "filters" }, get("filters").map((each) => h("option", { value: each }))),
      h("button.dim.nowrap.only-wide", { title: "Change the order", onclick: () => { const all = Object.keys(orders); const next = all[(all.indexOf(this.order) + 1) % all.length]; this.go({ order: next === "newest" ? null : next }); } }, orders[this.order] ?? orders.newest), h("kbd.only-wide", { "aria-hidden": "true" }, "f"));
    if (had) field.focus();
  }

  #remember(text) {
    set({ filters: [text, ...get("filters").filter((each) => each !== text)].slice(0, 12) });
  }

  #drawFoot() {
    const shownRows = this.rows.size;
    if (!shownRows) return void swap(this.foot);
    const total = this.end ? shownRows : Math.max(this.#sum() ?? 0, shownRows);
    swap(this.foot, h("span.dim", `1 – ${count(shownRows)} of ${this.end || this.counts?.exact ? "" : "about "}${count(total)}`), !this.end && h("span.dim", "rows are read as you scroll"));
  }

  async #nothing(position) {
    if (this.tokens.length || this.tab !== "all") {
      const without = this.tokens.length ? { q: write(this.tokens.slice(0, -1)) } : { status: null, needs: null };
      const state = this.tab === "all" ? [] : this.tab === "needs" ? [{ word: "needs", sign: ":", values: ["yes"] }] : withWord([], "status", [this.tab]);
      swap(this.body, h("section.empty", h("h2", "Nothing fits"), h("p.dim", `${inWords([...state, ...this.tokens])}.`), h("div.empty-acts", meant(this.tokens) && button(`Look for ${meant(this.tokens)}`, { kind: "primary", onclick: () => this.go({ q: meant(this.tokens) }) }), button("Take the last condition away", { onclick: () => this.go(without) }))));
      return this.#follow(position);
    }
    const agents = await read("api/agents");
    if (this.closed) return;
    const served = agents.ok ? agents.data.agents.filter((each) => each.served).map((each) => each.name) : [];
    const life = { status: "running", life: [["work", 6], ["torn", 0], ["work", 5], ["person", 4], ["work", 3]] };
    swap(this.body, h("section.empty", h("div.empty-strand", strand(life, { width: 260, label: "An example of a run: killed, carried on, asked a person, went on" })),
      h("h2", "Start one, then kill it"),
      h("p.dim", "A run appears here the moment it is started, from anywhere.", served.length ? " It goes on although its process is killed, from where it was." : ""),
      served.length ? null : [h("pre", "holdfast run FILE.py:AGENT ARGUMENTS --id first &\nkill -9 $!\nholdfast run FILE.py:AGENT ARGUMENTS --id first"), h("p.dim", "The file is yours, with an agent in it; the README of Holdfast begins with one.")],
      h("div.empty-acts", may("write") && served.length > 0 && button("Start a run here", { name: "plus", kind: "primary", href: "agents" }),
        served.length ? h("span.dim", "workers serve ", served.slice(0, 4).map((name, nth) => [nth ? ", " : "", h("a.link", { href: path("agents", name) }, name)]), served.length > 4 ? ` and ${served.length - 4} more` : "") : [h("span.dim", "no worker serves an agent yet: "), h("code", "holdfast worker FILE.py")])));
    this.again = setTimeout(() => this.rows.size || this.begin(), 4000);
  }

  // Choosing

  pick(id, range = false) {
    const ids = [...this.rows.keys()];
    const yes = !this.chosen.has(id);
    const from = range && this.anchor !== null ? ids.indexOf(this.anchor) : ids.indexOf(id);
    const to = ids.indexOf(id);
    for (const each of ids.slice(Math.min(from, to), Math.max(from, to) + 1)) yes || range ? this.chosen.add(each) : this.chosen.delete(each);
    this.anchor = id;
    this.all = false;
    this.#drawChosen();
  }

  #drawChosen() {
    for (const [id, entry] of this.rows) entry.row?.choose(this.chosen.has(id));
    if (this.every) {
      this.every.checked = this.chosen.size > 0 && this.chosen.size === this.rows.size;
      this.every.indeterminate = this.chosen.size > 0 && this.chosen.size < this.rows.size;
    }
    this.#drawMany();
  }

  #drawMany() {
    if (!this.chosen.size) {
      document.body.classList.remove("choosing");
      return void swap(this.many);
    }
    document.body.classList.add("choosing");
    const runs = [...this.chosen].map((id) => this.rows.get(id)?.run).filter(Boolean);
    const sum = this.#sum() ?? 0;
    const none = () => {
      this.chosen.clear();
      this.all = false;
      this.#drawChosen();
    };
    const { order: _order, ...filter } = this.filter();
    const told = JSON.stringify([[...this.chosen], this.all, sum, runs.map((run) => run.status)]);
    if (told === this.manyTold && this.many.childElementCount) return;
    this.manyTold = told;
    swap(this.many, bulkBar({ chosen: runs, all: this.all ? { total: sum, filter } : null, total: sum, none, chooseAll: () => { this.all = true; this.#drawMany(); }, done: () => { none(); this.begin(); } }));
  }

  // Keys

  #keys() {
    const at = () => document.activeElement?.closest("[data-row]")?.dataset.row;
    this.context.keys({
      f: () => this.field?.focus(),
      x: () => (at() ? this.pick(at()) : false),
      "Shift+X": () => (at() ? this.pick(at(), true) : false),
      y: () => (at() ? copied(at(), "The id") : false),
      n: () => this.#needing(1),
      "Shift+N": () => this.#needing(-1),
      Escape: () => {
        if (!this.chosen.size) return false;
        this.chosen.clear();
        this.#drawChosen();
      },
    });
  }

  #needing(by) {
    const rows = [...this.element.querySelectorAll(".needs li a.strong")];
    const next = rows[(rows.indexOf(document.activeElement) + by + rows.length) % rows.length];
    next?.focus();
  }
}

// Children stand under their parents, if both are there.
function ordered(runs) {
  const here = new Set(runs.map((run) => run.id));
  const below = new Map();
  for (const run of runs) {
    const above = run.parent && here.has(run.parent) ? run.parent : null;
    below.set(above, [...(below.get(above) ?? []), run]);
  }
  const walk = (parent, depth) => (below.get(parent) ?? []).flatMap((run) => [[run, depth], ...walk(run.id, depth + 1)]);
  return walk(null, 0);
}


// Approvals: the inbox, and one question beside it; on a phone one after the other. They are always read together, so they are one file.

import { h, path, retext, swap } from "../dom.js";
import { read, write } from "../api.js";
import { both, diff, outlined } from "../difference.js";
import { same, write as json } from "../json.js";
import { ask, button, choice, copied, facts, ghosts, glyph, icon, problem, runLink, strand, toast, tree, unfold, unshown, value as shownValue, who } from "../parts.js";
import { brief, has, money, typeOf } from "../schema.js";
import { agreed, deciders, exact, many, ms, now, seconds, spoken } from "../say.js";
import { get, looks, may, on, set } from "../store.js";
import { styled } from "../sheets.js";
import { cut, poses } from "../text.js";
import { ago, changeOf, changer, counted, ended, forWhom, held, isChanged, kindOf, lookOf, otherwise, saidBy, verdict, voices } from "./approvals/kinds.js";

let kept = null; // what was typed when a session ended: {id, by, digest, note, mine}
const DID = { approve: "Approved", deny: "Denied", answer: "Answered", delegate: "Passed on" };

export function open(context) {
  let { params, narrow } = context;
  let lists = null;
  let shown = null; // the Question that is open
  let own = 0;
  const alone = Boolean(get("me")?.question); // a link of one question opens that, and nothing beside it
  const element = h("div.approvals");
  const left = h("div.inbox-place", ghosts(6));
  const right = h("div.question-place");
  const offs = [];
  const letters = (map) => offs.push(context.keys(map));

  const back = h("span"); // the way to the list, which says how many wait
  const counts = () => swap(back, get("mine") > 0 ? `${get("mine")} for you` : "Approvals");

  const draw = () => {
    if (narrow || alone) {
      if (params.id) swap(element, right);
      else swap(element, h("div.head", h("div", h("h1", "Approvals"), h("p.dim", lists ? (!may("decide") ? `${many(lists.others.length, "question")} open` : lists.mine.length ? `${many(lists.mine.length, "waits", "wait")} for you` : "nothing waits for you") : ""))), left);
    } else swap(element, h("div.two", left, right));
  };

  const list = async () => {
    if (alone) return;
    const [mine, open_, past] = await Promise.all([read("api/approvals?mine=true&limit=200"), read("api/approvals?limit=200"), read("api/approvals?status=decided&status=expired&status=withdrawn&limit=30")]);
    if (!open_.ok) return swap(left, problem(open_.error, list));
    const own_ = new Set(mine.ok ? mine.data.approvals.map((each) => each.id) : []);
    const all = open_.data.approvals.map((each) => ({ ...each, mine: own_.has(each.id) })).sort(urgent);
    const decided = (past.ok ? past.data.approvals : []).sort((one, other) => ms(other.decided_at ?? other.expires_at ?? other.asked_at) - ms(one.decided_at ?? one.expires_at ?? one.asked_at));
    const [waits, others] = [true, false].map((yes) => all.filter((each) => (each.mine && !agreed(each, get("me"))) === yes));
    lists = { mine: waits, others, decided };
    set({ mine: waits.length });
    counts();
    const scrolled = left.firstElementChild?.scrollTop;
    const focused = left.contains(document.activeElement) ? document.activeElement.dataset.row : null;
    swap(left, inbox(lists, params.id));
    if (scrolled) left.firstElementChild.scrollTop = scrolled;
    if (focused) [...left.querySelectorAll("[data-row]")].find((each) => each.dataset.row === focused)?.focus();
    if (!narrow && !params.id) {
      const first = lists.mine[0] ?? lists.others[0];
      if (first) one(first.id);
      else swap(right, h("article.question.none", h("div.empty", h("h1", "Nothing waits for a person"), h("p.dim", "Questions of agents, steps in doubt, budgets and loops appear here the moment they are asked."))));
    }
    if (narrow && !params.id) draw();
  };

  const one = async (id) => {
    const mine = ++own;
    shown?.close();
    shown = null;
    swap(right, waiting());
    mark(id);
    const [answer, yours, { form }] = await Promise.all([read(path("api", "approvals", id), { exact: true }), alone ? {} : read(path("api", "approvals", { mine: true, limit: 1000 })), import("../form.js")]);
    if (mine !== own) return;
    if (!answer.ok) return swap(right, h("article.question", h("div.q-scroll", h("div.q-wide", problem(answer.error.code === "unknown_approval" ? { ...answer.error, message: "There is no such question.", hint: "It may have been deleted with its run. Approvals has those that are open." } : answer.error, () => one(id))))));
    show({ ...answer.data.approval, mine: !yours.ok || yours.data.approvals.some((each) => each.id === answer.data.approval.id) }, form);
  };

  const show = (item, form) => {
    shown?.close();
    shown = new Question(item, { narrow, form, say: context.say, keys: letters, back: alone ? null : back, done: (now_, how) => {
      toast(now_.status === "open" && how === "approve" ? `You agreed. ${counted(now_)}` : (DID[how] ?? "Done"));
      list();
      show(now_, form);
    } });
    context.title(item.question.slice(0, 60));
    swap(right, shown.element);
    mark(item.id);
  };

  const mark = (id) => {
    for (const each of left.querySelectorAll(".inbox-item")) id === each.dataset.row ? each.setAttribute("aria-current", "true") : each.removeAttribute("aria-current");
  };

  const look = async () => {
    const id = shown?.item.id;
    const answer = id && (await read(path("api", "approvals", id), { exact: true }));
    if (answer?.ok && shown?.item.id === id) shown.renew(answer.data.approval);
  };
  const heard = on(["asked"], () => (list(), look()));
  const ended_ = on(["ended"], () => shown?.end());
  const ticking = setInterval(() => {
    for (const each of element.querySelectorAll("[data-ages]")) retext(each, AGES.get(each)());
  }, 1000);
  const looking = alone && setInterval(() => document.hidden || !shown?.open || look(), 3000); // nobody tells such a token what happens

  counts();
  draw();
  list();
  if (params.id) one(params.id);
  return {
    element: styled(element, "questions"),
    close() {
      heard();
      ended_();
      clearInterval(ticking);
      clearInterval(looking);
      shown?.close();
    },
    redraw(next) {
      narrow = next.narrow;
      const focused = document.activeElement;
      shown?.redraw(narrow);
      draw();
      list();
      if (element.contains(focused)) focused.focus(); // what is moved loses it
      return true;
    },
    changed(next) {
      const before = params.id;
      params = next.params;
      if (narrow || alone) draw();
      if (params.id && params.id !== before) one(params.id);
      else if (!params.id) list();
      if (!params.id) context.title();
      return true;
    },
  };
}

// What ends first comes first; then what was asked first.
function urgent(one, other) {
  const left = (each) => ms(each.expires_at) ?? Infinity;
  return left(one) - left(other) || ms(one.asked_at) - ms(other.asked_at);
}

// The list of questions: for you, for others, decided.

/** The list; `chosen` is the id of the one that is open. */
function inbox({ mine, others, decided }, chosen) {
  const group = (title, look, items) => [h("header.inbox-head", h("h2", title, h("span.badge", { class: look }, items.length))), h("ul", items.map((each) => entry(each, chosen)))];
  return h("section.inbox", { "aria-label": "Questions" },
    mine.length ? group("For you", "ask", mine) : may("decide") && [h("header.inbox-head", h("h2", "For you")), h("p.inbox-none.dim", "Nothing waits for you.")],
    others.length > 0 ? group(may("decide") ? "For others" : "Open", "", others) : !may("decide") && [h("header.inbox-head", h("h2", "Open")), h("p.inbox-none.dim", "Nothing waits for a person.")],
    decided.length > 0 && [h("header.inbox-head", h("h2", "Decided")), h("ul.decided", decided.map(past))]);
}

function entry(item, chosen) {
  const ends = ms(item.expires_at);
  return h("li", h("a.inbox-item", { href: path("approvals", item.id), data: { row: item.id }, "aria-current": item.id === chosen ? "true" : undefined },
    glyph(lookOf(item)),
    h("div.inbox-what", h("p.strong", saidBy(item)[0]), h("p.dim.cut", item.path.join(" › "), " · ", hint(item)),
      h("p.inbox-meta", aging("span.dim", () => `asked ${ago(item.asked_at)}`), item.needs > 1 && h("span.dim", `${item.votes.filter((each) => each.yes).length} of ${item.needs} agree`),
        ends !== null && aging("span", () => until(ends), { class: ends - now() < 6 * 3_600_000 ? "ask-ink" : "dim" }),
        item.mine ? agreed(item, get("me")) && h("span.dim", "you agreed") : h("span.dim", `for ${forWhom(item, null)}`)))));
}

// A list has no room for large values. What an agent itself calls so reads the same here, and only here: a question alone is whole.
const isCut = (data) => data !== null && typeof data === "object" && Object.keys(data).join() === "$cut";

function hint(item) {
  const kind = kindOf(item);
  if (kind === "in_doubt") return "it happened, run it, or fail";
  if (kind === "again") return "use its result, do it again, or fail";
  if (kind === "budget") return "more budget";
  if (kind === "loop") return "go on or stop";
  if (kind === "ask") return item.schema?.title ?? item.schema?.type ?? "an answer";
  if (item.data == null) return "yes or no";
  if (isCut(item.data)) return "a large value";
  const few = brief(item.schema, item.data, 60);
  if (few) return few;
  return cut(typeof item.data === "string" ? item.data.replace(/\s+/g, " ") : json(item.data), 80);
}

function past(item) {
  return h("li", h("a", { href: path("approvals", item.id), data: { row: item.id } }, h("span.strong.cut", saidBy(item)[0]),
    h("p.dim.cut", h("span", { class: `said-${item.decision ?? "none"}` }, ended(item)), item.decided_by && ` by ${deciders(item)}`, changeOf(item), item.note && `: ${item.note}`),
    aging("span.dim.at", () => ago(item.decided_at ?? item.expires_at ?? item.asked_at))));
}

// One question: where it comes from, what is decided, your change, who said what, what happened before, and the bar that decides.

/** A question that is open in the page, as the server tells it alone: whole, with every number exact. `back` is what stands before it on
 * a phone; `form` makes forms; `done` is called when it was decided. */
class Question {
  constructor(item, { narrow, back, done, form, keys, say }) {
    Object.assign(this, { item, narrow, back, done, say, makes: form, kind: kindOf(item), shows: "form", note: "", rests: "", theirs: null, compare: null });
    this.by = get("me").name;
    const typed = kept?.id === item.id && kept.by === this.by && kept;
    kept = null;
    this.mine = typed?.digest === item.digest ? typed.mine : item.data;
    if (typed) this.note = typed.note;
    this.head = h("header.q-head");
    this.top = h("div.q-trouble");
    this.shown = h("section.q-shown", { onclick: () => this.#seen(), onmore: () => this.#seen() });
    this.change = h("section.q-change");
    this.past = h("section.q-past", { hidden: true });
    this.acts = h("div.q-acts", { role: "group", "aria-label": "Decide" });
    this.said = h("section.q-said");
    this.columns = h("div.q-cols");
    this.element = h("article.question", { "aria-label": "Question" }, h("div.q-scroll", h("div.q-wide", this.head, this.top, this.columns)), this.acts);
    this.#drawColumns();
    this.#drawHead();
    this.#drawShown();
    this.#drawSaid();
    this.#drawActs();
    this.#drawPast();
    const letter = (name) => () => { const found = this.acts.querySelector(`[data-key="${name}"]`); if (!found || found.disabled) return false; found.click(); };
    keys({ ...Object.fromEntries([..."adpr"].map((each) => [each, letter(each)])), e: () => (this.form ? this.form.focus() : false), y: () => copied(this.item.id, "The id") });
  }

  close() {
    this.closed = true;
    this.shut?.();
    if (!get("me")) kept = { id: this.item.id, by: this.by, digest: this.item.digest, note: this.note, mine: this.mine };
  }

  /** Draw it for another width, or with other words for times. What was typed, and what was shown, stays as it is. */
  redraw(narrow) {
    this.narrow = narrow;
    this.#drawColumns();
    this.#drawHead();
    this.#drawSaid();
    this.#drawActs();
    this.#drawPast();
  }

  #drawColumns() {
    const column = (...inside) => h("div.q-col", inside);
    swap(this.columns, this.narrow ? column(this.shown, this.change, this.said, this.past) : [column(this.shown, this.past), column(this.change, this.said)]);
  }

  get again() {
    return this.kind === "again";
  }

  get open() {
    return this.item.status === "open";
  }

  get decidable() {
    return this.open && may("decide") && this.item.mine !== false && !this.passed && !this.outlived && !this.over;
  }

  /** How the reader passed it on, if nobody has passed it back. */
  get passed() {
    const { name, groups } = get("me"), own = [name, ...(groups ?? []).map((each) => `group:${each}`)];
    const last = this.item.delegations.findLast((each) => each.by === name || own.includes(each.to));
    return last && !own.includes(last.to) ? last : null;
  }

  /** Is this looked at by a link that was for another value? Then it decides nothing any more. */
  get outlived() {
    return Boolean(get("me").shown) && get("me").shown !== this.item.digest;
  }

  // Top

  #drawHead() {
    const { item, narrow } = this;
    const me = this.decidable || !this.open ? get("me") : null; // it is nobody's "you" who cannot decide it
    const [first, rest] = saidBy(item);
    const odd = item.to.filter(poses), ends = ms(item.expires_at);
    swap(this.head,
      narrow && this.back && h("a.back", { href: "approvals" }, icon("left"), this.back),
      h("p.q-path", item.path.map((each, at) => [at > 0 && icon("right"), h("span", each)]), looks() ? runLink(item.run, { text: item.root }) : h("span.mono", item.root)),
      h("h1", first), rest && h("p.q-rest.mid", rest),
      h("div.q-meta", h("span", h("span.dim", "asked "), aged(item.asked_at)),
        h("span", h("span.dim", "for "), forWhom(item, me), item.not_by?.length > 0 && h("span.dim", `, not ${item.not_by.join(", ")}`), odd.length > 0 && h("span.chip.stop", icon("warn"), "letters of two alphabets")),
        this.open ? h("span", h("span.dim", "if nobody decides: "), otherwise(item)) : h("span", h("span", { class: `said-${item.decision ?? "none"}` }, ended(item)), item.decided_by && ` by ${deciders(item)}`, item.decided_at && h("span.dim", " ", aged(item.decided_at))),
        this.open && ends !== null && h("span.q-left", icon("clock"), aging("time", () => until(ends), { title: exact(ends) }))));
  }

  // What is decided

  #drawShown() {
    const { item, kind } = this;
    const schema = item.schema;
    const writes = this.decidable && (kind === "ask" || (item.editable && item.kind === "approve"));
    const title = { ask: "Your answer", in_doubt: "What is known", again: "What is known", budget: "How much more", loop: "The calls that repeat" }[kind] ?? "What you decide";
    if (writes) {
      const start = kind === "ask" ? (this.mine ?? undefined) : this.mine;
      this.form = this.makes(schema ?? {}, start, { was: kind === "ask" ? undefined : item.shown, changed: () => this.#edited(), label: title });
      if (kind !== "ask") this.#edited();
    } else if (!this.open) this.#drawChange();
    const body = () => {
      if (item.kind === "in_doubt") return this.#doubt();
      if (kind === "loop") return h("ol.q-loop", (Array.isArray(item.shown) ? item.shown : [item.shown]).map((each) => h("li", h("code", typeof each === "string" ? each : json(each)))));
      if (writes && this.shows === "form") return this.form.element;
      const now_ = kind === "ask" && !this.open ? item.data : writes ? this.mine : item.data;
      if (now_ == null) return h("p.dim", kind === "ask" ? "Nothing is shown with it." : "Nothing is shown with it: yes or no.");
      return this.shows === "json" ? h("div.json", tree(now_, { open: true })) : shownValue(now_, { open: true, exact: true });
    };
    const plain = typeof (this.mine ?? item.data) === "string" && !writes;
    swap(this.shown, h("header.sub", h("h2", title), h("span.gap"), item.kind !== "in_doubt" && kind !== "loop" && !plain && item.data !== null && choice([["form", writes ? "Form" : "Value"], ["json", "JSON"]], this.shows, (id) => { this.shows = id; this.#drawShown(); }, "Show as")), body());
  }

  #doubt() {
    const { item, again } = this;
    const { call, run, event, result } = item.shown;
    const [, which, key] = [...item.question.matchAll(/(\w*) idempotency key (?:is )?(hf_[0-9a-f]{8,})\b/g)].at(-1) ?? []; // what anybody may have written stands before it
    return facts(
      [again ? "Call" : "Called with", h("code", again ? call : item.shown)],
      again && ["It ran", "in ", runLink(run), `, event ${event}`], result !== undefined && ["Recorded result", h("code", result)],
      this.began && ["It began", exact(this.began.at)], this.cut && ["Cut off", exact(this.cut.data.seen ?? this.cut.at), h("p.dim", `Its process was last heard of then, and found gone ${exact(this.cut.at)}.`)],
      ["Asked", exact(item.asked_at)], ["Step", h("code.mono", item.key)],
      key && ["Idempotency key", h("code.mono", key), " ", h("button.link", { onclick: () => copied(key, "The key") }, "copy"), h("p.dim", !again ? "Look for it where the call went: who keeps such keys knows whether it arrived." : which === "new" ? "It is new: nobody has seen it, and only doing it again uses it." : "It had this key before: who keeps such keys answers as then.")]);
  }

  // What is decided may be too large to be drawn at once. Until all of it was on the page, nobody can agree to it.
  #seen() {
    if (!this.unfolding && this.behind !== unshown(this.shown)) this.#drawActs();
  }

  #showAll() {
    this.unfolding = true;
    unfold(this.shown);
    this.unfolding = false;
    this.#drawActs();
  }

  #edited() {
    const { value, errors } = this.form.read({ typing: this.kind === "ask" });
    this.errors = errors;
    this.mine = value;
    this.compare?.();
    this.#drawChange();
    this.#drawActs();
  }

  get changed() {
    return this.kind !== "ask" && this.form && !same(this.mine, this.item.data);
  }

  #drawChange() {
    const { item } = this;
    const base = item.editable && this.form ? this.mine : item.data;
    const differs = item.kind === "approve" && !same(item.shown, base);
    const digest = h("p.q-digest.dim", icon("lock"), h("span", `You decide ${this.changed ? "your change, in place of" : "exactly this,"} `, h("code", item.digest.slice(0, 11)), ". If somebody changes it first, yours is refused."));
    if (!this.decidable || (this.kind !== "approve" && this.kind !== "budget")) return swap(this.change, this.decidable && this.kind !== "ask" ? digest : isChanged(item) && [h("h2", "The change"), diff(...both(item.shown, item.data))]);
    if (!differs) return swap(this.change, digest);
    const agreed = item.votes.filter((each) => each.yes).map((each) => each.by);
    const before = this.changed && agreed.length ? `${agreed.join(" and ")}'s yes was for the value before; yours begins a new count.` : this.changed ? "A change begins a new count." : `${changer(item)} changed it.`;
    const need = item.needs === null ? "The run will say how many must agree." : item.needs > 1 ? `${item.needs} must agree to it.` : "One yes is enough, and yours is one.";
    swap(this.change, h("header.sub", h("h2", this.changed ? "Your change" : "The change"), h("span.gap"), this.changed && h("button.link", { onclick: () => this.#undo() }, "undo")),
      diff(...both(item.shown, base)), h("p.q-note", icon("warn"), h("span", before, " ", need)), digest);
  }

  #undo() {
    this.mine = this.item.data;
    this.#drawShown();
    this.#edited();
  }

  // Who has said what

  #drawSaid(item = this.item) {
    const rows = voices(item, get("me"));
    if (!rows.length) return swap(this.said, item.needs > 1 && [h("h2", "Who has said what"), h("p.dim", `Nobody yet; ${item.needs} must agree.`)]);
    swap(this.said, h("h2", "Who has said what"), h("ul.votes", rows.map((each) => h("li", who(each.by), h("span", each.says), h("span.dim", aged(each.at)), each.note && h("q", each.note)))),
      this.open && counted(item) && h("p.dim", counted(item)));
  }

  // What happened before

  async #drawPast() {
    const { item, narrow } = this;
    if (!looks()) return;
    const last = (limit, kinds) => read(path("api", "runs", item.run, "events", { before: 1_000_000_000, limit, kinds }));
    const [{ told }, run, events] = await Promise.all([import("../events.js"), read(path("api", "runs", item.run)), last(this.open ? 60 : 1000)]);
    if (!run.ok) return;
    if (this.kind === "in_doubt") {
      const found = (await last(1000, ["step.started", "run.interrupted"])).data?.events ?? [];
      this.began = found.findLast((each) => each.key === item.key && ms(each.at) <= ms(item.asked_at));
      this.cut = this.began && found.find((each) => !each.key && each.seq > this.began.seq);
      this.#drawShown();
    }
    this.rests = run.data.run.status === "paused" ? " The run is paused: the store keeps what is decided until somebody resumes it." : "";
    if (this.rests) this.#drawActs();
    const calls = events.ok ? events.data.events.filter((each) => ["step.completed", "step.failed", "run.interrupted", "message.received", "child.ended"].includes(each.kind) && ms(each.at) <= ms(item.asked_at)).slice(-3) : [];
    this.past.hidden = !calls.length && !run.data.run.life?.length;
    swap(this.past, h("header.sub", h("h2", "What happened before"), h("span.gap"), h("a.link", { href: path("runs", item.run) }, "The whole run")),
      run.data.run.life?.length > 0 && h("div.q-life", strand(run.data.run, { width: narrow ? Math.min(innerWidth - 48, 560) : 600 })),
      calls.length > 0 && h("ol.before", calls.map((each) => {
        const torn = each.kind === "run.interrupted";
        const took = each.data?.began ? spoken(ms(each.at) - each.data.began) : "";
        return h("li", { class: torn ? "tear" : each.kind === "step.failed" ? "failed" : "" }, icon(torn ? "tear" : each.kind === "step.failed" ? "cross" : "check"),
          torn ? h("span", "its process was gone; another went on") : each.data?.name ? h("span.cut", h("code", each.data.name), h("span.dim", ` ${cut(String(each.data.input ?? ""), 60)} → `), each.preview ?? "") : h("span.cut", told(each)), h("span.dim.at", took));
      })));
  }

  // Deciding

  #drawActs() {
    if (!this.open) return swap(this.acts, h("div", aging("p.dim", () => `${verdict(this.item)} Nothing is left to decide.${this.rests}`)));
    if (!may("decide")) return swap(this.acts, h("div", h("p.dim", "Your token may look and not decide.")));
    if (!this.decidable) return swap(this.acts, h("div", aging("p.dim", () => this.#notYours())));
    const { narrow } = this;
    this.behind = unshown(this.shown);
    const voted = this.voted;
    const wrong = this.kind !== "ask" && this.errors?.[0];
    const bad = wrong || this.behind > 0 || voted;
    const buttons = this.#choices().map(({ text, kind, key, name, does, needs }) => button(text, { kind, key: narrow ? undefined : key, name, onclick: does, disabled: this.unknown || Boolean(this.compare) || (needs && Boolean(bad)) }));
    const why = this.behind > 0 ? h("p.q-why", icon("warn"), h("span", "Not all of what you decide is on the page yet. ", h("button.link", { onclick: () => this.#showAll() }, "Show all of it"))) :
      wrong ? h("p.q-why", icon("warn"), h("span", missing(wrong), " ", h("button.link", { onclick: () => this.shown.querySelector("[aria-invalid]")?.focus() }, "Go there"))) :
      this.compare ? h("p.q-why", icon("warn"), h("span", "It was changed: look at that first.")) :
      voted ? h("p.q-why", icon("check"), h("span", "You agreed ", aged(voted.at), `. ${counted(this.item)}`)) :
      this.rests && h("p.q-why", icon("pause"), h("span", this.rests));
    const passes = button("Pass on…", { key: narrow ? undefined : "p", kind: narrow ? "plain" : "", onclick: () => this.#passOn() });
    if (narrow) return swap(this.acts, h("div", why, h("div.q-quick", button(this.note ? "Change the note" : "Add a note", { name: "note", kind: "plain", onclick: () => this.#noted() }), passes), h("div.q-buttons", { data: { of: String(buttons.length) } }, buttons)));
    if (!this.field) this.field = h("input.text", { placeholder: "Note, for the agent and the audit", "aria-label": "Note", maxlength: 2000, oninput: () => { this.note = this.field.value; } });
    if (this.field.value !== this.note) this.field.value = this.note;
    const had = document.activeElement === this.field;
    swap(this.acts, h("div", why, h("div.q-by", who(get("me").name), this.field), h("div.q-buttons", passes, buttons)));
    if (had) this.field.focus();
  }

  /** Your yes to what is shown now, if you have said it. */
  get voted() {
    return this.kind !== "ask" && !this.changed && this.item.votes.find((each) => each.yes && each.by === get("me").name);
  }

  #notYours() {
    const { item } = this;
    const { name } = get("me");
    if (this.outlived) {
      const last = item.changes?.at(-1);
      return `Your link decides no more: ${last ? `${last.by} changed the value ${ago(last.at)}` : "the value was changed"}, and it was for what was shown before. Ask whoever sent it for another.`;
    }
    const { passed } = this;
    if (this.over) return "Your link is used up, or was ended. Open it again to read what became of the question.";
    if (item.not_by?.includes(name)) return `It is for ${forWhom(item, null)}, and not for you, who started it.`;
    return passed ? `You passed it on to ${passed.to} ${ago(passed.at)}. It is for ${forWhom(item, null)} now.` : `It is for ${forWhom(item, null)}, not for you.`;
  }

  #choices() {
    const { item, kind } = this;
    const sure = (title, decision, more = {}) => () => this.#confirm(title, decision, more);
    const first = { kind: "primary", key: "a", name: "check" }, offers = has(item.shown, "result");
    if (kind === "ask") return [{ text: "Answer", ...first, does: () => this.#answer() }];
    if (this.again) return [
      { text: "Fail the step…", kind: "danger", key: "d", does: sure("Fail the step?", { decision: "answer", value: "fail" }, { yes: "Fail the step", says: "The agent gets an error. What was done before stays done.", kind: "primary danger" }) },
      { text: "Do it again…", key: "r", does: sure("Do it again?", { decision: "answer", value: "run" }, { yes: "Do it again", says: "The body runs once more, with the idempotency key that is shown." }) },
      { text: "Give a result…", ...(!offers && first), does: () => this.#happened("Give a result") },
      ...(offers ? [{ text: "Use the recorded result", ...first, does: sure("Use the recorded result?", { decision: "answer", value: "use" }, { yes: "Use it", says: "The body does not run. The agent gets:", body: [h("code", item.shown.result)] }) }] : []),
    ];
    if (kind === "in_doubt") return [
      { text: "Fail the step…", kind: "danger", key: "d", does: sure("Fail the step?", { decision: "answer", value: "fail" }, { yes: "Fail the step", says: "The agent gets an error. Whether it happened stays unknown.", kind: "primary danger" }) },
      { text: "It did not, run it…", key: "r", does: sure("It did not happen: run it?", { decision: "answer", value: "run" }, { yes: "Run it", says: "The body runs again, with the same idempotency key." }) },
      { text: "It happened…", ...first, does: () => this.#happened("It happened") },
    ];
    const data = this.changed ? { data: this.mine } : {};
    const what = brief(item.schema, this.form ? this.mine : item.data, this.narrow ? 34 : 44);
    if (kind === "budget") {
      const more = Number(this.mine?.usd) ? `Give ${money(this.mine.usd)} more` : `Give ${what || "more"}`;
      return [{ text: "No more…", kind: "danger", key: "d", does: sure("No more?", { decision: "deny" }, { yes: "No more", says: "No further step begins, and the agent is told.", kind: "primary danger" }) },
        { text: more, ...first, needs: true, does: sure(`${more}?`, { decision: "approve", ...data }, { yes: more }) }];
    }
    if (kind === "loop") return [{ text: "Stop it…", kind: "danger", key: "d", does: sure("Stop it?", { decision: "deny" }, { yes: "Stop it", says: "The agent is told that it goes round in circles.", kind: "primary danger" }) },
      { text: "Go on", ...first, needs: true, does: sure("Let it go on?", { decision: "approve" }, { yes: "Go on", says: "Counting begins anew." }) }];
    return [{ text: "Deny…", kind: "danger", key: "d", does: sure("Deny it?", { decision: "deny" }, { yes: "Deny", notes: "Why? The agent gets this.", kind: "primary danger" }) },
      { text: what ? `Approve ${what}` : "Approve", ...first, needs: true, does: sure(what ? `Approve ${what}?` : "Approve it?", { decision: "approve", ...data }, { yes: "Approve" }) }];
  }

  async #answer() {
    const { value, errors } = this.form.read();
    if (value === undefined && !errors.length) errors.push({ path: [], message: "an answer is needed" });
    if (errors.length) return void this.form.show(errors);
    await this.#confirm("Send this answer?", { decision: "answer", value }, { yes: "Answer", body: [shownValue(value, { open: true, exact: true })] });
  }

  async #happened(title) {
    const schema = this.item.schema ?? {}, type = typeOf(schema);
    const result = this.makes(schema, undefined, { layout: "stacked", label: "Its result" });
    await this.#confirm(title, null, { yes: title, body: [h("p.dim", "The step is done with this result; it does not run again."), h("p", h("span.strong", "Its result "), h("span.dim.mono", type)), result.element], makes: () => {
      const { value, errors } = result.read();
      if (value === undefined && type !== "any" && !errors.length) errors.push({ path: [], message: `a result is needed: ${type}` });
      if (errors.length) {
        result.show(errors);
        return null;
      }
      return { decision: "answer", value: { result: value === undefined ? null : value } };
    } });
  }

  async #noted() {
    const field = h("textarea.text", { rows: 3, value: this.note, "aria-label": "Note", maxlength: 2000 });
    const kept = await ask({ title: "Note, for the agent and the audit", body: [field], yes: "Keep it", does: () => true });
    if (kept) this.note = field.value;
    this.#drawActs();
  }

  async #passOn() {
    const to = h("input.text", { autocomplete: "off", autocapitalize: "none", "aria-label": "To whom", placeholder: "a name, or group:name" });
    await this.#confirm("Pass it on", null, { yes: "Pass on", verb: "passes on", body: [h("label", "To whom", to), h("p.dim", "From then on it is theirs, and no longer yours to decide. You cannot take it back: only they can pass it on to you. Holdfast does not know all people, so it does not check the name; if nobody has it, a token can be made for it.")], makes: () => {
      if (!to.value.trim()) {
        to.setAttribute("aria-invalid", "true");
        to.focus();
        return null;
      }
      return { decision: "delegate", to: to.value.trim() };
    } });
  }

  // A sheet says what, on whose behalf and with which note; only its own button, or Enter in it, decides.
  async #confirm(title, decision, { yes, says, body = [], notes, kind = "primary", verb = "decides", makes = () => decision }) {
    const { item } = this;
    const field = h("input.text", { value: this.note, "aria-label": notes ?? "Note", placeholder: notes ?? "Note, for the agent and the audit", maxlength: 2000 });
    const wrong = h("div");
    const first = saidBy(item)[0];
    const agrees = decision?.decision === "approve", edits = agrees && this.changed;
    const shut = (this.shut = () => { // it was for what is not to be decided any more
      this.note = field.value;
      field.closest("dialog")?.close();
    });
    const answer = await ask({
      title, yes, kind,
      body: [h("p.mid", first), says && h("p.dim", says), body, agrees && item.data !== null && (edits ? diff(...both(item.data, this.mine)) : isChanged(item) ? [h("p.strong", `${changer(item)} changed this:`), diff(...both(item.shown, item.data))] : h("pre.q-three", cut(outlined(item.data), 2000))),
        h("p.q-sure", who(get("me").name), h("span.dim", edits ? " puts this in place of " : ` ${verb} `), h("code.dim", item.digest.slice(0, 11))), field, wrong],
      does: async () => {
        const made = makes();
        if (!made) return false;
        this.note = field.value;
        this.shut = null; // what is sent is waited for
        let sent = await write(path("api", "approvals", item.id), { ...made, digest: item.digest, note: this.note }, "POST", { exact: true });
        if (sent.error?.code === "unknown") {
          const tells = (message, hint) => swap(wrong.isConnected ? wrong : this.top, problem({ code: "unknown", message, hint }));
          tells("It is not known whether this was decided; looking.", sent.error.message);
          sent = await this.#looked();
          if (!sent) return tells("It was not decided: the question is as it was.", "Try again."), (this.shut = shut), false;
          if (!wrong.isConnected) this.#settled({ ...sent, how: made.decision }); // the sheet was closed meanwhile
        }
        if (sent.status === 422 || sent.status === 400) {
          swap(wrong, problem(sent.error));
          this.shut = shut;
          const at = sent.error.details?.path;
          if (at && this.form) this.form.show([{ path: at, message: sent.error.message }]);
          return false;
        }
        return { ...sent, how: made.decision };
      },
    });
    this.shut = null;
    if (answer) await this.#settled(answer);
  }

  async #settled(answer) {
    if (answer.ok) return this.done({ ...answer.data.approval, mine: answer.how !== "delegate" }, answer.how);
    await this.#refused(answer);
  }

  // The answer to a decision was lost: ask until the server says what became of the question. Nothing is decided meanwhile, and null is
  // that nothing was.
  async #looked() {
    const { item } = this, { name } = get("me");
    this.unknown = true;
    this.#drawActs();
    let found;
    while (!(found = await read(path("api", "approvals", item.id), { exact: true })).status && !this.closed) await new Promise((then) => setTimeout(then, 1000));
    this.unknown = false;
    this.#drawActs();
    const now_ = found.data?.approval;
    if (!now_) return found;
    const own = told(now_) !== told(item) && (now_.decided_by === name || [...now_.votes, ...now_.delegations].some((each) => each.by === name));
    if (!own && now_.status === "open" && now_.digest === item.digest) return null;
    return own ? found : { ok: false, data: found.data, error: { code: now_.status === "open" ? "stale" : "already_decided" } };
  }

  // What the server says instead. Nothing that was typed is lost.
  async #refused(answer) {
    const { code, message, hint, details } = answer.error;
    const latest = answer.data?.approval ?? (await read(path("api", "approvals", this.item.id), { exact: true })).data?.approval ?? null;
    if (code === "already_decided") {
      const now_ = { ...this.item, ...(latest ?? { ...details, status: "decided" }), mine: this.item.mine };
      const twice = now_.status === "open"; // it was this person's own yes, a second time
      const changed = !twice && latest && isChanged(latest) && latest.decision === "approved";
      this.#tell("people", twice ? `You have agreed already. ${counted(now_)}` : () => verdict(now_),
        twice ? "A person counts once; what is missing is the yes of somebody else." : "What you sent came after that, so it was not counted.", changed && diff(...both(latest.shown, latest.data)), !twice && latest?.note && h("q", latest.note), !twice && this.#typed());
      this.#learn(now_);
      return this.say(twice ? "You have agreed already" : verdict(now_));
    }
    if (code === "stale" && latest) return this.#overtaken(latest, " Nothing was decided.");
    if (code === "not_allowed") {
      const typed = this.#typed();
      this.item.mine = false;
      this.#learn(latest ?? this.item);
      return this.#tell("lock", `It is not yours: it is for ${forWhom(this.item, null)}.`, message, typed);
    }
    if (code === "expired") return this.#tell("clock", `The time was over: ${held(this.item)}.`, message);
    swap(this.top, problem({ code, message, hint }));
  }

  // Somebody else has put another value in the place of what is shown here: the reader takes that, or keeps what was typed.
  #overtaken(latest, more = "") {
    const by = changer(latest);
    this.theirs = latest.digest;
    this.shut?.();
    const take = (value) => {
      this.item = { ...latest, mine: this.item.mine };
      this.mine = value;
      this.compare = null;
      swap(this.top);
      this.#drawHead();
      this.#drawShown();
      if (this.form) this.#edited();
      this.#drawSaid();
      this.#drawActs();
    };
    const value = (title, of) => h("section", h("h3", title), same(of, this.item.data) ? h("pre.q-three", outlined(of)) : diff(...both(this.item.data, of), title));
    const values = h("div.q-values");
    const takes = h("div.q-take");
    this.compare = () => {
      swap(values, value("Shown to you", this.item.data), value(`${by}'s`, latest.data), this.changed && value("Yours", this.mine));
      swap(takes, button(`Look at ${by}'s`, { kind: "small primary", onclick: () => take(latest.data) }), this.changed && button("Keep mine", { kind: "small", onclick: () => take(this.mine) }));
    };
    this.compare();
    this.#drawSaid(latest);
    this.#drawActs();
    this.#tell("warn", `${by} changed it while you looked.${more}`, values, takes);
  }

  /** Something happened to it: take what is new, without touching what is typed. */
  renew(item) {
    if (item.status === "open" && this.open && item.digest !== this.item.digest) {
      if (item.digest !== this.theirs) this.#overtaken(item); // it is told once, whatever else comes
      return;
    }
    if (told(item) === told(this.item)) return;
    const typed = this.#typed(), could = this.decidable;
    if (item.status !== "open" && this.open) this.#tell("people", () => verdict(item), typed);
    this.#learn(item);
    if (could && this.open && !this.decidable) this.#tell("people", () => this.#notYours(), typed);
  }

  /** The link by which this is looked at is no more: nothing is known from here on, and nothing can be decided. */
  end() {
    if (!this.open || this.over) return;
    const typed = this.#typed();
    this.over = true;
    this.#learn(this.item);
    this.#tell("lock", this.#notYours(), typed);
  }

  // What the reader has entered, where the form for it is no more.
  #typed() {
    return this.form && !same(this.mine, this.item.data) && [h("p.dim", "You had entered:"), h("pre.q-three", outlined(this.mine))];
  }

  // What others did, above all else.
  #tell(name, first, ...more) {
    swap(this.top, h("div.q-told", { role: "alert" }, icon(name), h("div", aging("p.strong", typeof first === "string" ? () => first : first), more.map((each) => (typeof each === "string" ? h("p.dim", each) : each)))));
    this.top.scrollIntoView({ block: "nearest" });
  }

  #learn(item) {
    const { votes, delegations, needs } = item;
    this.item = { ...this.item, ...(item.status === "open" ? { votes, delegations, needs } : { ...item, mine: this.item.mine }) };
    if (!this.decidable) this.shut?.();
    if (!this.open || (this.form && !this.decidable)) {
      this.form = this.compare = null;
      this.mine = this.item.data;
      this.#drawShown();
    }
    this.#drawHead();
    this.#drawSaid();
    this.#drawActs();
  }
}

// Words that time changes, as they are at each tick.
const AGES = new WeakMap();
const aging = (tag, words, props = {}) => {
  const made = h(tag, { ...props, data: { ages: "" } }, words());
  AGES.set(made, words);
  return made;
};
const aged = (at) => aging("time", () => ago(at), { title: exact(at) });
const until = (at) => {
  const rest = at - now();
  return rest > 0 ? `${rest < 600_000 ? seconds(rest) : spoken(rest)} left` : "the time is over";
};

// What people have done to a question.
const told = (item) => [item.status, item.digest, item.needs, item.votes.length, item.delegations.length].join();

// What is wrong with a value, by the name of its field.
const missing = ({ path: [...at], message }) => (!at.length || message.startsWith(at.at(-1)) ? message : `${at.at(-1)}: ${message}`);

const waiting = () => h("article.question", h("div.q-scroll", h("div.q-wide", ghosts(5))));

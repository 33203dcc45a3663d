// A run: its head, and its sides. What is chosen is in the URL: the tab, a call or an event, true time, the filter.

import { h, path, swap } from "../dom.js";
import { inOrder } from "./run/journal.js";
import { choice, copied, ghosts, icon, problem, tabs, unread } from "../parts.js";
import { count, flat, happens, stands, word } from "../say.js";
import { styled } from "../sheets.js";
import { on } from "../store.js";
import { details } from "./run/details.js";
import { head } from "./run/head.js";
import { Run } from "./run/model.js";
import { filter, rowSentence } from "./run/rows.js";
import { legend, timeline } from "./run/timeline.js";

const TABS = ["timeline", "conversation", "journal", "data", "streams", "audit"];
const OF_CALLS = new Set(["timeline", "conversation"]);
const DAY = 86_400_000, APART_MS = 100;
const talks = (model) => model.journal.modelCalls > 0 || (model.info?.spent?.model_calls ?? 0) > 0;

export function open(context) {
  let { params, query } = context;
  const { narrow, go, say } = context;
  const { id } = params;
  const view = { closed: new Set(), opened: new Set(), fits: null, since: 0, dropped: false, trueTime: query.get("time") === "true", zoom: 1, offset: 0, chosen: query.get("at") };
  let tab = params.tab ?? "timeline", body = null, side = null, sheet = null, frame = 0, last = 0, later = 0, chosenFirst = query.has("at"), known = null, closed = false;

  const acts = {
    choose, toggle, go, fork: (call) => top.fork(call), markdown,
    where: (to, what) => go(to === "streams" ? path("runs", id, "streams", what) : to === "timeline" ? path("runs", id, { at: what }) : path("runs", id, to, { at: what })),
    at: (chosen_) => go(path("runs", id, tab, chosen_), { replace: true }),
    rowOf: (key) => body?.rows?.find((row) => row.key === key) ?? null,
  };
  const model = new Run(id, (why) => changed(why));
  const top = head(model, acts), nav = h("div.run-nav"), main = h("div.run-main", ghosts(8)), element = styled(h("div.run", top.element, nav, main), "run");
  const find = h("input", { placeholder: "Filter calls: name, error, > 5 s", "aria-label": "Filter calls", value: query.get("only") ?? "", oninput: () => narrowed(find.value) });
  if (query.get("only")) view.fits = filter(query.get("only"));
  context.title(id);
  model.begin();
  const beat = setInterval(() => {
    if (document.hidden || !model.info || model.over) return;
    model.settle();
    soon();
  }, 1000);
  const off = on(["line"], () => soon());

  // Drawing: at most once in a frame; and what comes by itself once the run was read, however much it is, ten times a second

  function changed(why) {
    if (why === "live") {
      const tears = model.journal.tears.length;
      if (known !== null && tears > known) say(`${id} was interrupted and goes on`);
      known = tears;
    } else if (model.whole) known ??= model.journal.tears.length;
    if (model.whole) soon();
    else schedule();
  }

  function soon() {
    later ||= setTimeout(schedule, Math.max(APART_MS - (performance.now() - last), 0));
  }

  function schedule() {
    frame ||= requestAnimationFrame(draw);
  }

  function draw() {
    clearTimeout(later);
    frame = later = 0;
    last = performance.now();
    body?.measure?.(); // what is read of the layout is read before anything is written
    if (model.problem && !model.info) return void swap(element, h("div.head", h("h1.mono", id)), problem(model.problem, () => { swap(element, top.element, nav, main); model.begin(); }));
    if (!model.info) return;
    if (!chosenFirst && model.whole) first();
    top.draw();
    drawNav();
    drawBody();
    if (model.problem) swap(nav, problem(model.problem, () => model.reopen()));
  }

  /** What is chosen when the URL does not say: the failure, the open question, or a tear of the last day. */
  function first() {
    chosenFirst = true;
    if (narrow || tab !== "timeline") return;
    const { journal, info } = model;
    if (info.status === "failed") {
      const key = journal.ended?.error?.from?.find((each) => !each.child)?.key ?? [...journal.each()].filter((call) => call.state === "failed" && call.dropped === null && call.key).at(-1)?.key;
      if (key) return void (view.chosen = key);
    }
    const open = [...journal.each()].find((call) => call.question && !call.question.decision && call.ended === null && call.dropped === null);
    const tear = journal.tears.at(-1);
    if (open) view.chosen = open.key;
    else if (tear && model.now() - tear.to < DAY) view.chosen = String(tear.seq);
  }

  let navStamp = "";
  function drawNav() {
    const items = [["timeline", "Timeline"], ...(talks(model) ? [["conversation", "Conversation"]] : []), ["journal", "Journal", count(model.info.events ?? model.journal.next)], ["data", "Data"], ["streams", "Streams", model.streams.length ? String(model.streams.length) : undefined], ["audit", "Audit"]];
    const stamp = JSON.stringify([items, tab, view.trueTime, Boolean(model.outline)]);
    if (stamp === navStamp) return;
    navStamp = stamp;
    const tools = tab === "timeline" && !narrow ? h("div.tools", model.outline ? null : h("div.mini-find", icon("filter"), find), choice([["folded", "Folded"], ["true", "True time"]], view.trueTime ? "true" : "folded", (to) => time(to === "true"), "Time")) : null;
    const focused = document.activeElement === find;
    swap(nav, tabs(items, tab, (to) => go(to === "timeline" ? path("runs", id) : path("runs", id, to)), "Parts of the run"), tools);
    const list = nav.firstChild, chosen = narrow && list.querySelector("[aria-selected=true]"); // it may be out of sight
    if (chosen) list.scrollLeft = chosen.offsetLeft - list.offsetLeft + (chosen.offsetWidth - list.clientWidth) / 2;
    if (focused) find.focus();
  }

  // The parts of a run that are not its timeline are read when they are first looked at.
  const PARTS = {
    conversation: async () => withSide((await import("./run/talk.js")).talk(model, acts)),
    journal: async () => (await import("./run/history.js")).history(model, query, acts),
    data: async () => (await import("./run/data.js")).data(model),
    streams: async () => (await import("./run/streams.js")).streams(model, params.stream, acts),
    audit: async () => ({ element: (await import("./audit.js")).deeds({ run: id }), draw() {}, close() {} }),
    phone: async () => (await import("./run/phone.js")).phone(model, view, acts),
    timeline: async () => withSide(timeline(model, view, acts), true),
  };
  let bodyOf = "";
  function drawBody() {
    const wanted = tab === "timeline" && narrow ? "phone" : tab;
    if (OF_CALLS.has(tab) && !model.known && !body) return; // what is there tells that it is being read
    if (bodyOf !== wanted) {
      bodyOf = wanted;
      body?.close();
      side?.close();
      body = side = null;
      PARTS[wanted]().then((made) => {
        if (bodyOf !== wanted || closed) return void made.close();
        body = made;
        swap(main, body.element);
        schedule();
      }, () => swap(main, unread(() => { bodyOf = ""; schedule(); })));
    }
    body?.draw();
    side?.draw(view.chosen);
    drawSheet();
  }

  function withSide(made, isTimeline = false) {
    const panel = isTimeline ? h("section.panel.tl-panel", made.element, made.foot ?? null, legend()) : made.element;
    if (narrow) return made;
    side = details(model, view.chosen, acts);
    return Object.assign(Object.create(made), { element: h("div.run-body", panel, side.element), draw: (...given) => made.draw(...given), close: () => made.close() });
  }

  function drawSheet() {
    if (!narrow || tab !== "timeline" || !view.chosen) {
      sheet?.element.remove();
      sheet?.inside.close();
      sheet = null;
      return;
    }
    if (!sheet) {
      const inside = details(model, view.chosen, acts), before = document.activeElement;
      const close = () => choose(null);
      const made = h("div.sheet", { role: "dialog", "aria-label": "Details", onclick: (event) => event.target === event.currentTarget && close() }, h("div.sheet-in", h("button.sheet-grip", { onclick: close, "aria-label": "Close" }), inside.element));
      sheet = { element: made, inside, before };
      document.body.append(made);
      made.querySelector(".sheet-grip").focus();
    }
    sheet.inside.draw(view.chosen);
  }

  // Choosing

  function choose(at) {
    chosenFirst = true;
    view.chosen = at;
    context.title(at ? `${id}, ${/^\d+$/.test(at) ? `event ${at}` : at}` : id);
    if (tab === "timeline") go(path("runs", id, { at, time: view.trueTime ? "true" : null, only: find.value.trim() || null }), { replace: at === null });
    else schedule();
  }

  function toggle(row) {
    if (row.sort === "dropped") view.dropped = !view.dropped;
    else if (row.sort === "rest") view.opened.add(row.key);
    else {
      const set = row.sort === "many" || row.sort === "child" || row.fold ? view.opened : view.closed;
      if (set.has(row.key)) set.delete(row.key);
      else set.add(row.key);
      if (row.call?.child && view.opened.has(row.key)) model.open(row.call.child);
      if (row.sort === "branch" && row.opens && !model.outline.under?.has(row.opens)) model.readOutline(row.opens).then(schedule);
    }
    schedule();
  }

  function time(trueTime) {
    view.trueTime = trueTime;
    go(path("runs", id, { at: view.chosen, time: trueTime ? "true" : null, only: find.value.trim() || null }), { replace: true });
    schedule();
  }

  function narrowed(text) {
    view.fits = filter(text);
    window.history.replaceState(null, "", new URL(path("runs", id, { at: view.chosen, time: view.trueTime ? "true" : null, only: text.trim() || null }), document.baseURI));
    schedule();
  }

  function tear(by) {
    const { tears } = model.journal;
    if (!tears.length) return false;
    const at = tears.findIndex((each) => String(each.seq) === view.chosen);
    choose(String(tears[at < 0 ? (by > 0 ? 0 : tears.length - 1) : Math.min(Math.max(at + by, 0), tears.length - 1)].seq));
  }

  function failure(by) {
    const rows = (body?.rows ?? []).filter((row) => row.call && (row.call.state === "failed" || row.call.tries?.some((each) => each.how === "failed")));
    if (!rows.length) return false;
    const at = rows.findIndex((row) => row.call.key === view.chosen), row = rows[(at + by + rows.length) % rows.length];
    choose(row.call.key);
    body.reveal?.(row);
  }

  function branch(open) {
    const row = body?.active;
    if (tab !== "timeline" || !row || row.expanded === undefined || row.expanded === open) return false;
    toggle(row);
  }

  /** The view as Markdown, for an issue: a sentence, the tree as `holdfast show` orders it, and a link. */
  function markdown() {
    const { info, journal } = model, now = model.now(), made = [`**${id}** ${word(stands(info))}: ${flat(happens(info))}`, ""];
    const walk = (items, depth) => {
      for (const call of inOrder(items)) {
        if (call.dropped !== null) continue;
        made.push(`${"  ".repeat(depth)}- ${call.items ? call.name : ["step", "model", "timer", "child", "question"].includes(call.sort) ? rowSentence({ call, sort: call.sort }, now) : call.name}`);
        if (call.items && made.length < 400) walk(call.items, depth + 1);
      }
    };
    walk(journal.items, 0);
    copied([...made.slice(0, 400), "", location.href].join("\n"), "The run as Markdown");
  }

  const onTimeline = (does) => (...given) => (tab === "timeline" && body ? does(...given) : false);
  context.keys({
    j: () => (body?.move ? body.move(1) : false), k: () => (body?.move ? body.move(-1) : false),
    ArrowDown: onTimeline((event) => (event.target.closest("[role=tree]") ? body.move?.(1) : false)), ArrowUp: onTimeline((event) => (event.target.closest("[role=tree]") ? body.move?.(-1) : false)),
    Enter: onTimeline((event) => (event.target.closest("[role=treeitem]") ? event.target.closest("[role=treeitem]").click() : false)),
    ArrowRight: () => branch(true), ArrowLeft: () => branch(false),
    "[": () => tear(-1), "]": () => tear(1), f: () => failure(1), "Shift+F": () => failure(-1),
    t: onTimeline(() => time(!view.trueTime)),
    "+": onTimeline(() => body.zoom?.(view.zoom * 2)), "=": onTimeline(() => body.zoom?.(view.zoom * 2)), "-": onTimeline(() => body.zoom?.(view.zoom / 2)), 0: onTimeline(() => body.zoom?.(1)),
    "Shift+C": onTimeline(() => { view.since = view.since ? 0 : (model.journal.checkpoints.at(-1)?.seq ?? 0); schedule(); }),
    "Shift+Y": markdown, y: () => copied(id, "The id"), r: () => top.again() ?? undefined, ".": () => top.more(),
    Escape: () => (view.chosen ? (choose(null), undefined) : false),
    ...Object.fromEntries(TABS.map((name, nth) => [String(nth + 1), () => (name === "conversation" && !talks(model) ? false : go(name === "timeline" ? path("runs", id) : path("runs", id, name)))])),
  });

  return {
    element,
    /** The URL has changed within this run. */
    changed(next) {
      if (next.params.id !== id) return false;
      ({ params, query } = next);
      const to = params.tab ?? "timeline";
      view.trueTime = query.get("time") === "true";
      if (to === "timeline") view.chosen = query.get("at");
      else if (to !== tab) view.chosen = to === "journal" ? null : query.get("at");
      if (to === tab && tab === "streams") body?.draw(params.stream);
      tab = to;
      schedule();
      return true;
    },
    close() {
      closed = true;
      clearInterval(beat);
      cancelAnimationFrame(frame);
      clearTimeout(later);
      off();
      model.close();
      body?.close();
      side?.close();
      sheet?.element.remove();
      sheet?.inside.close();
    },
  };
}

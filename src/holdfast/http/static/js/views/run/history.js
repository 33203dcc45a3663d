// The journal of a run, one line for each event. Rows are windowed, and read where one looks: the place of an event is its number.

import { read } from "../../api.js";
import { h, path, swap } from "../../dom.js";
import { KINDS, told, toneOf } from "../../events.js";
import { write as json } from "../../json.js";
import { copied, icon, problem, tree, value } from "../../parts.js";
import { clock, count, day, exact, many, ms } from "../../say.js";
import { windowOn } from "./window.js";

const ROW = 28, PAGE = 200, PAGES = 24, BEYOND = 10;
const FAMILIES = [...new Set(KINDS.map((kind) => kind.split(".")[0]))];

export function history(model, query, acts) {
  const at = query.get("at");
  const list = h("div.ev-rows", { role: "list", "aria-label": "Events" }), side = h("aside.panel.side.ev-side", { "aria-label": "Event" }), total = h("span.dim");
  const words = h("input", { type: "search", placeholder: "Filter: text, key or name", "aria-label": "Filter events", value: query.get("q") ?? "", oninput: () => filtered() });
  const kind = h("select.text.ev-kind", { "aria-label": "Kind", onchange: () => filtered() }, h("option", { value: "" }, "all kinds"), FAMILIES.map((each) => h("option", { value: each, selected: each === query.get("kind") }, each)));
  const scroller = h("div.ev-scroll", { tabIndex: -1, onscroll: () => (frame ||= requestAnimationFrame(scrolled)) }, list);
  const dropped = h("input", { type: "checkbox", checked: query.has("dropped"), onchange: () => filtered() });
  const drop = h("label.ev-drop", { hidden: true }, dropped, "taken out too"); // without a filter all is there
  const element = h("div.run-body", h("section.panel.ev-panel", h("header.ev-tools", h("div.mini-find", icon("filter"), words), kind, drop, h("span.gap"), total), scroller), side);
  const rows = windowOn(list, { high: ROW });
  let top = 0, high = 0; // of what is in sight
  let pages = new Map(), loading = new Set(), found = null, chosen = at === null ? null : Number(at), frame = 0, timer = 0, shown = null, version = 0, over = false;

  const length = () => (found ? found.length : (model.info?.events ?? model.journal.next));

  function draw() {
    drop.hidden = !found;
    total.textContent = found ? `${many(found.length, "event")}${over ? "" : " and more"}` : many(length(), "event");
    list.style.setProperty("height", `${length() * ROW}px`);
    paint();
  }

  /** Read where one looks, before anything is written. */
  function measure() {
    [top, high] = [scroller.scrollTop, scroller.clientHeight];
  }

  function scrolled() {
    frame = 0;
    measure();
    paint();
  }

  function paint() {
    const first = Math.max(Math.floor(top / ROW) - BEYOND, 0), last = Math.min(first + Math.ceil(high / ROW) + 2 * BEYOND, length());
    rows.show(first, last, (nth) => {
      const event = found ? found[nth] : pages.get(Math.floor(nth / PAGE))?.[nth % PAGE];
      if (!event && !found) load(Math.floor(nth / PAGE));
      return { key: nth, stamp: event ? `${event.seq} ${event.dropped} ${event.seq === chosen}` : "", make: () => row(event) };
    });
    if (found && last >= found.length - BEYOND && !over) more();
  }

  function row(event) {
    if (!event) return h("div.ev-row.ghosted", { role: "listitem" }, h("i.ghost"));
    return h("button.ev-row", { role: "listitem", class: `tone-${toneOf(event)}${event.dropped != null ? " dropped" : ""}${event.seq === chosen ? " chosen" : ""}`, data: { seq: event.seq, row: "1" }, "aria-current": event.seq === chosen ? "true" : undefined, onclick: () => pick(event.seq) },
      h("span.ev-seq", count(event.seq)), h("span.ev-at", { title: exact(event.at) }, clock(ms(event.at), true)), h("span.ev-kind-name", event.kind), h("span.ev-key.cut", event.key ?? ""), h("span.ev-says.cut", told(event)));
  }

  async function load(page) {
    const upTo = length();
    if (loading.has(page) || pages.get(page)?.upTo >= upTo) return; // the last page may have grown since it was read
    loading.add(page);
    const answer = await read(path("api", "runs", model.id, "events", { after: page * PAGE, limit: PAGE, dropped: "true" }));
    loading.delete(page);
    if (!answer.ok) return void swap(total, problem(answer.error));
    const own = Object.assign([], { upTo });
    for (const event of answer.data.events) own[event.seq - page * PAGE] = event;
    pages.set(page, own);
    if (pages.size > PAGES) pages.delete(pages.keys().next().value);
    paint();
    if (shown === null && chosen !== null) show();
  }

  function filtered() {
    clearTimeout(timer);
    timer = setTimeout(() => {
      version += 1;
      where();
      found = words.value.trim() || kind.value || dropped.checked ? [] : null;
      over = false;
      scroller.scrollTop = top = 0;
      if (found) more();
      draw();
    }, 200);
  }

  const where = () => acts.at({ at: chosen, q: words.value.trim() || null, kind: kind.value || null, dropped: dropped.checked ? "true" : null });

  let reading = false;
  async function more() {
    if (reading || over || !found) return;
    reading = true;
    const own = version, after = found.length ? found.at(-1).seq + 1 : 0;
    const answer = await read(path("api", "runs", model.id, "events", { after, limit: PAGE, q: words.value.trim() || null, kinds: kind.value || null, dropped: dropped.checked ? "true" : null }));
    reading = false;
    if (own !== version) return more();
    if (!answer.ok) return void swap(total, problem(answer.error));
    found.push(...answer.data.events.filter((event) => event.seq >= after));
    over = answer.data.events.length < PAGE;
    draw();
  }

  function pick(seq) {
    chosen = seq;
    where();
    paint();
    show();
  }

  async function show() {
    shown = chosen;
    if (chosen === null) return void swap(side, h("p.dim", "Choose an event to see all that it says."));
    const answer = await model.value(chosen);
    if (shown !== chosen) return;
    if (answer.error) {
      const event = found?.find((each) => each.seq === chosen) ?? pages.get(Math.floor(chosen / PAGE))?.[chosen % PAGE];
      if (!event) return void swap(side, problem(answer.error));
      return void swap(side, headOf(event), h("div.json", tree(event)));
    }
    const { event } = answer;
    swap(side, headOf(event), h("h2.side-title", told(event)), answer.value == null ? null : h("section", h("h3", "Value"), value(answer.value)), h("section", h("header.sub", h("h3", "Event"), h("span.gap"), h("button.quiet", { title: "Copy the event as JSON", "aria-label": "Copy the event as JSON", onclick: () => copied(json(event, 2), "The event") }, icon("copy"))), h("div.json", tree(event))));
  }

  const headOf = (event) => h("header.side-head", h("span.side-sort", icon("note"), event.kind), h("span.dim.mono", `seq ${event.seq}`), h("span.dim", day(event.at)), event.key ? h("button.link", { onclick: () => acts.where("timeline", event.key) }, "in the timeline") : null);

  show();
  if (words.value || kind.value || dropped.checked) filtered();
  queueMicrotask(() => {
    draw();
    measure();
    if (chosen !== null) scroller.scrollTop = Math.max(chosen * ROW - high / 2, 0);
    scrolled();
  });
  return {
    element,
    draw,
    measure,
    move(by) {
      const nth = found ? found.findIndex((event) => event.seq === chosen) : (chosen ?? -1), next = Math.min(Math.max(nth + by, 0), length() - 1), event = found ? found[next] : { seq: next };
      if (!event) return;
      const place = next * ROW;
      if (place < top + ROW || place > top + high - 2 * ROW) scroller.scrollTop = Math.max(place - high / 2, 0);
      measure();
      pick(event.seq);
      rows.of(next)?.focus({ preventScroll: true });
    },
    close() {
      cancelAnimationFrame(frame);
      clearTimeout(timer);
      pages = new Map();
      loading = new Set();
    },
  };
}

// Parts of pages: each is a function from plain data to an element, and keeps nothing.

import { h, path, put, s, swap } from "./dom.js";
import { icon } from "./icons.js";
import { isNumber, same, write } from "./json.js";
import { cut, isId } from "./text.js";
import { advice, dollars, exact, flat, many, ms, tone, word } from "./say.js";
import { strand } from "./strand.js";
import { back } from "./api.js";
import { get } from "./store.js";

export { icon, strand };

// States

const SHAPES = {
  run: [["circle.ring", { cx: 7, cy: 7, r: 5.2 }], ["circle.full", { cx: 7, cy: 7, r: 2.7 }]],
  wait: [["circle.ring", { cx: 7, cy: 7, r: 5.2 }], ["path.ring", { d: "M7 4.4V7l1.7 1.2" }]],
  ready: [["circle.ring.dashed", { cx: 7, cy: 7, r: 5.2 }]],
  done: [["path.ring.thick", { d: "M2.8 7.6 5.8 10.6 11.4 4" }]],
  bad: [["circle.full", { cx: 7, cy: 7, r: 5.9 }], ["path.on", { d: "M4.9 4.9l4.2 4.2M9.1 4.9l-4.2 4.2" }]],
  off: [["circle.ring", { cx: 7, cy: 7, r: 5.2 }], ["path.ring", { d: "M3.6 10.4l6.8-6.8" }]],
  ask: [["rect.full", { x: 1.6, y: 1.6, width: 10.8, height: 10.8, rx: 3.2 }], ["path.on", { d: "M5.3 5.5c0-1 .8-1.6 1.7-1.6s1.7.6 1.7 1.5c0 1.2-1.7 1.3-1.7 2.6M7 10h0" }]],
  doubt: [["path.full", { d: "M7 .9 13.1 7 7 13.1.9 7z" }], ["path.on", { d: "M7 4.2v3.4M7 9.8h0" }]],
  retry: [["path.ring", { d: "M11.6 7a4.6 4.6 0 1 1-1.5-3.4M11.8 1.8v2.6H9.2" }]],
  stop: [["rect.full", { x: 1.6, y: 1.6, width: 10.8, height: 10.8, rx: 2.4 }], ["path.on", { d: "M5.4 4.8v4.4M8.6 4.8v4.4" }]],
};

/** The shape of a state: never a colour alone. */
export const glyph = (how) => s(`svg.glyph.${tone(how)}`, { viewBox: "0 0 14 14", "aria-hidden": "true" }, SHAPES[tone(how)].map(([tag, props]) => s(tag, props)));

/** A shape and a word. */
export const standing = (how, said) => h(`span.standing.${tone(how)}`, glyph(how), h("span", said ?? word(how)));

/** A sentence made of pieces, as `say.happens` gives them. */
export const sentence = (pieces) => pieces.map(([text, look]) => (look === "code" ? h("code", text) : look ? h(`span.${look === "bad" ? "bad-ink" : look}`, text) : text));
sentence.text = flat;

// Controls

/** A button, or a link that looks like one: `button("Pause", {name: "pause", onclick})`. `key` is shown; app's keys act on it. */
export function button(text, { name, kind = "", key, onclick, title, href, disabled, type = "button" } = {}) {
  const inside = [name && icon(name), text && h("span", text), key && h("kbd.only-wide", { "aria-hidden": "true" }, key)];
  const props = { class: `button ${kind}`, title, "aria-label": text ? undefined : title, data: key ? { key } : undefined };
  if (href !== undefined) return h("a", { ...props, href }, inside);
  return h("button", { ...props, type, onclick, disabled }, inside);
}

/** Tabs: items are [id, text, badge?]. */
export const tabs = (items, chosen, pick, label) =>
  h("div.tabs", { role: "tablist", "aria-label": label, onkeydown: roving("[role=tab]") }, items.map(([id, text, badge]) =>
    h("button.tab", { role: "tab", tabIndex: id === chosen ? 0 : -1, "aria-selected": String(id === chosen), data: { id }, onclick: () => pick(id) },
      text, badge != null && h("span.badge", badge))));

/** One of a few: items are [id, text]. */
export const choice = (items, chosen, pick, label) =>
  h("div.choice", { role: "radiogroup", "aria-label": label, onkeydown: roving("[role=radio]") }, items.map(([id, text]) =>
    h("button", { role: "radio", tabIndex: id === chosen ? 0 : -1, "aria-checked": String(id === chosen), data: { id }, onclick: () => pick(id) }, text)));

/** Arrow keys move between the items of a list, as they do in the system's own. */
const roving = (selector) => (event) => {
  const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (!by) return;
  const all = [...event.currentTarget.querySelectorAll(selector)];
  const next = all[(all.indexOf(document.activeElement) + by + all.length) % all.length];
  if (!next) return;
  event.preventDefault();
  event.stopPropagation();
  next.focus();
};

/** A word with a background: look is ask, kelp, doubt, stop, bad or nothing. */
export const chip = (text, look = "", name) => h("span.chip", { class: look }, name && icon(name), text);

/** A key, or several one after the other. */
export const kbd = (...keys) => keys.map((key) => h("kbd", key));

/** A person, with a first letter in a colour of their own. */
export const who = (name) => h("span.who", { data: { hue: name === get("me")?.name ? "0" : hue(name) } }, h("b", { "aria-hidden": "true" }, [...name][0]?.toUpperCase() ?? "?"), h("span", name));
const hue = (name) => String([...name].reduce((sum, each) => (sum * 31 + each.codePointAt(0)) % 9973, 7) % 4);

/** A button that copies a text, and says so. */
export const copier = (text, label = "Copy") => h("button.quiet", { title: label, "aria-label": label, onclick: () => copied(text, label) }, icon("copy"));

export async function copied(text, what = "It") {
  try {
    await navigator.clipboard.writeText(text);
    toast(`${what.replace(/^Copy /, "").replace(/^./, (c) => c.toUpperCase())} is in the clipboard`);
  } catch {
    ask({ title: "Copy this", body: [h("textarea.text", { rows: 4, readOnly: true, value: text, "aria-label": "Text to copy" })], yes: "Done", no: null });
  }
}

/** A moment: relative or short, with the whole of it in its title. */
export const moment = (at, text) => h("time", { datetime: at == null ? "" : new Date(ms(at)).toISOString(), title: exact(at) }, text);

/** A link to a run, if it is a run's id; only ids of the right form become links. */
export const runLink = (id, { text, at } = {}) => (isId(id) ? h("a.mono", { href: path("runs", id, at === undefined ? {} : { at }), title: id }, text ?? id) : h("span.mono", id));

// Small pictures

/** A bar: `share` from 0 to 1, with a mark at `soft`. */
export const meter = (share, { soft, look = "", label } = {}) =>
  h("span.meter", { class: look, role: "img", "aria-label": label }, h("i", { style: { "--share": `${Math.min(Math.max(share, 0), 1) * 100}%` } }), soft ? h("u", { style: { "--at": `${soft * 100}%` } }) : null);

/** A plan: one piece for each item, [{text, state}], state being done, doing or open. */
export function pieces(items) {
  const next = items.findIndex((each) => each.state !== "done");
  return h("span.pieces", { role: "img", "aria-label": `${items.filter((each) => each.state === "done").length} of ${items.length} done` },
    items.slice(0, 40).map((each, at) => h("i", { class: each.state === "done" ? "done" : at === next ? "next" : "", title: each.text })));
}

export const cost = (usd) => (usd ? dollars(usd) : h("span.dim", "–"));

/** Names and values: facts(["Began", "14:02"], …); null is left out. */
export const facts = (...pairs) => h("dl.facts", pairs.filter(Boolean).map(([name, ...value]) => h("div", h("dt", name), h("dd", value))));

/** A table: heads are texts or [text, class]; rows are lists of cells. */
export const table = (heads, rows, { kind = "plain", label } = {}) =>
  h(`table.${kind}`, { "aria-label": label },
    h("thead", h("tr", heads.map((each) => (Array.isArray(each) ? h("th", { scope: "col", class: each[1] }, each[0]) : h("th", { scope: "col" }, each))))),
    h("tbody", rows.map((cells) => (cells instanceof Node ? cells : h("tr", cells.map((cell, at) => (cell instanceof Node && cell.tagName === "TD" ? cell : h("td", { class: Array.isArray(heads[at]) ? heads[at][1] : "" }, cell))))))));

// Values

const DEEPEST = 32;
const MOST_ITEMS = 200;
const LONGEST = 400;
const LONGEST_LINE = 10_000;
const MOST_AT_ONCE = 2_000; // values of a tree that is open

/** A text of which the beginning is shown if it is long, with a way to all of it and back. */
export function folded(kind, text, most = 280) {
  const whole = String(text ?? ""), made = h(kind);
  const show = (all) => swap(made, whole.length <= most ? whole : [all ? whole : cut(whole, most), " ", h("button.link", { "aria-expanded": String(all), onclick: () => show(!all) }, all ? "less" : "more")]);
  show(false);
  return made;
}

/** What stands for something that is not on the page yet, and puts it there. `unshown` counts those that are left. */
export const rest = (text, shows) => h("button.link", { data: { more: "" }, onclick: shows }, text);

/** How much of what is in an element has to be asked for before it can be read. */
export const unshown = (element) => element.querySelectorAll("[data-more]").length;

/** Put all of it on the page. */
export function unfold(element) {
  for (let found; (found = element.querySelector("[data-more]")); ) found.click();
}

const isBranch = (value) => value !== null && typeof value === "object" && !isNumber(value);

/** A value as a tree, two levels of it open; with `open` all, as far as a page can draw that at once. What is cut has a way to the rest. */
export function tree(value, { open = false, depth = 0, left = { values: MOST_AT_ONCE } } = {}) {
  if (value == null) return h("span.v.none", "null");
  if (typeof value === "string") return longText(value, open ? LONGEST_LINE : LONGEST);
  if (!isBranch(value)) return h("span.v.plain", String(value));
  const list = Array.isArray(value);
  const entries = list ? value.map((each, at) => [String(at), each]) : Object.entries(value);
  if (!entries.length) return h("span.v.none", list ? "[]" : "{}");
  if (depth >= DEEPEST) return longText(write(value), open ? LONGEST_LINE : LONGEST, (text) => text);
  const told = many(entries.length, list ? "item" : "field");
  if (open && left.values <= 0) {
    const more = rest(told, () => more.replaceWith(tree(value, { open, depth })));
    return more;
  }
  const inside = h("ul");
  const rows = (from) => entries.slice(from, from + MOST_ITEMS).map(([key, each]) => h("li", h("span.k", list ? h("span.dim", key) : key), tree(each, { open, depth: depth + 1, left })));
  const fill = (from) => {
    left.values -= Math.min(entries.length - from, MOST_ITEMS);
    put(inside, rows(from));
    if (entries.length > from + MOST_ITEMS) {
      const more = h("li", rest(`${entries.length - from - MOST_ITEMS} more`, () => { more.remove(); fill(from + MOST_ITEMS); }));
      inside.append(more);
    }
  };
  let filled = open || depth < 2;
  if (filled) fill(0);
  return h("details.tree", { open: filled, ontoggle: (event) => { if (event.target.open && !filled) { filled = true; fill(0); } } }, h("summary", h("span.dim", told)), inside);
}

function longText(text, most, as = JSON.stringify) {
  const quoted = as(text);
  if (quoted.length <= most) return h("span.v.text", quoted);
  const made = h("span.v.text", quoted.slice(0, most), "… ");
  made.append(rest(`${text.length.toLocaleString("en")} characters`, () => swap(made, quoted)));
  return made;
}

/** A value as people read it: a text as text, a list of like objects as a table, all else as a tree. With `exact` a text is shown as it is,
 * for those who decide about it. */
export function value(given, { open = false, exact = false } = {}) {
  if (typeof given === "string") return exact ? verbatim(given) : prose(given);
  if (Array.isArray(given) && given.length > 1 && given.length <= 100 && given.every((each) => isBranch(each) && !Array.isArray(each))) {
    const keys = Object.keys(given[0]);
    const alike = keys.length && keys.length <= 6 && given.every((each) => same(Object.keys(each), keys) && !Object.values(each).some(isBranch));
    if (alike) return h("div.scrolls", table(keys.map((key) => [key, "exact"]), given.map((each) => keys.map((key) => tree(each[key], { open })))));
  }
  return h("div.json", tree(given, { open }));
}

// A line of a text; of one so long that it stops the browser, the beginning and a way to the rest.
function row(tag, text) {
  if (text.length <= LONGEST_LINE) return h(tag, text);
  const made = h(tag, text.slice(0, LONGEST_LINE), "… ");
  made.append(rest(`${(text.length - LONGEST_LINE).toLocaleString("en")} more characters in this line`, () => swap(made, text)));
  return made;
}

const MOST_LINES = 2_000;

/** A text as it is: every line, empty or not, with every blank in it. */
export function verbatim(text) {
  const lines = text.split("\n");
  const made = h("div.verbatim");
  const fill = (from) => {
    put(made, lines.slice(from, from + MOST_LINES).map((each) => row("p", each)));
    if (lines.length > from + MOST_LINES) {
      const more = rest(`${(lines.length - from - MOST_LINES).toLocaleString("en")} more lines`, () => { more.remove(); fill(from + MOST_LINES); });
      made.append(more);
    }
  };
  fill(0);
  return text ? made : h("div.json", tree(text));
}

/** A text with its headings, lists and code set apart; nothing in it is ever read as markup. */
export function prose(text) {
  const made = h("div.prose");
  let code = null;
  for (const each of String(text).split("\n")) {
    const fence = /^\s*```\s*(\S{0,20})\s*$/.exec(each); // a line that says more is no fence: all of a text is shown
    if (fence && !(code && fence[1])) {
      if (code) code = null;
      else made.append((code = h("pre", fence[1] && h("span.dim", `${fence[1]}\n`))));
    } else if (code) code.append(row("span", each), "\n");
    else if (/^#{1,6} /.test(each)) made.append(row("p.title", each.replace(/^#+ /, "")));
    else if (/^\s*([-*•]|\d+[.)]) /.test(each)) made.append(row("p.item", each.trim()));
    else if (each.trim()) made.append(row("p", each));
  }
  return made;
}

// What floats

/** Ask in a dialog. The answer is what `yes` gives: a value, or false to keep it open; null if it was closed. */
export function ask({ title, body = [], yes = "Yes", no = "Back", kind = "primary", does = () => true, label }) {
  const before = document.activeElement;
  return new Promise((answer) => {
    let result = null;
    const form = h("form", { novalidate: true, onsubmit: async (event) => {
      event.preventDefault();
      accept.disabled = true;
      const given = await does();
      accept.disabled = false;
      if (given === false) return;
      result = given;
      made.close();
    } });
    const accept = button(yes, { kind, type: "submit" });
    put(form, [h("h2", title), h("div.dialog-body", body), h("footer.dialog-acts", no && button(no, { onclick: () => made.close() }), accept)]);
    const made = h("dialog.dialog", { "aria-label": label ?? title }, form);
    made.addEventListener("close", () => {
      made.remove();
      if (before?.isConnected) before.focus();
      answer(result);
    });
    document.body.append(made);
    made.showModal();
    const field = made.querySelector("[data-first]") ?? (matchMedia("(max-width: 760px)").matches ? null : made.querySelector("input, textarea, select")); // a phone's keyboard would cover the buttons
    (field ?? accept).focus();
  });
}

/** One line at the bottom, gone after six seconds. Never for errors: these stay where they belong. */
export function toast(text) {
  document.querySelector(".toast")?.remove();
  const made = h("div.toast", { role: "status" }, text);
  document.body.append(made);
  setTimeout(() => made.remove(), 6000);
}

/** A menu under a button: items are [text, function or href, {danger}] and null for a line. */
export function menu(opener, items) {
  document.querySelector(".menu")?.remove();
  const close = () => {
    made.remove();
    removeEventListener("pointerdown", outside, true);
    opener.setAttribute("aria-expanded", "false");
  };
  const outside = (event) => { if (!made.contains(event.target) && !opener.contains(event.target)) close(); };
  const made = h("div.menu", { role: "menu", onkeydown: (event) => {
    if (event.key === "Escape") { close(); opener.focus(); event.stopPropagation(); } else roving("[role=menuitem]")(event);
  } }, items.map((each) => {
    if (!each) return h("hr");
    const [text, does, { danger, said } = {}] = each;
    const props = { role: "menuitem", class: danger ? "danger" : "", tabIndex: -1 };
    return typeof does === "string" ? h("a", { ...props, href: does, onclick: close }, text) : h("button", { ...props, onclick: () => { close(); does(); } }, text, said && h("span.dim", said));
  }));
  opener.after(made);
  if (made.getBoundingClientRect().left < 8) made.classList.add("from-left"); // there is no room on that side
  opener.setAttribute("aria-expanded", "true");
  addEventListener("pointerdown", outside, true);
  made.querySelector("[role=menuitem]")?.focus();
  return close;
}

// What is there while nothing else is

/** Grey lines of the real height, after 150 ms; never a spinner. */
export const ghosts = (rows = 8, kind = "") =>
  h("div.ghosts", { class: kind, "aria-busy": "true", "aria-label": "Loading" }, [62, 48, 70, 55, 66, 44, 58, 71].slice(0, rows).map((wide) =>
    h("div.ghost-row", [4, 10, wide - 20, 8].map((each) => h("i.ghost", { style: { width: `${each}%` } })))));

/** A part of the page that could not be read: it is read again when the server answers. */
export function unread(again) {
  const made = problem({ code: "offline", message: "This part of the page could not be read.", hint: "The server did not answer. It is read as soon as it does." }, again);
  back(() => made.isConnected && again());
  return made;
}

/** An error where it happened: its message, its hint, its code, and a way to try again, unless the store will never have it. */
export const problem = (error, again) =>
  h("div.problem", { role: "alert" }, icon("warn"), h("div", { title: error.code }, h("p", error.message), advice(error) && h("p.dim", advice(error))), again && error.code !== "unsupported" && button("Try again", { kind: "small", onclick: again }));

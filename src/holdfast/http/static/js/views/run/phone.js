// A run on a phone: downwards, with tears and folds as strips across the page. The strips also stand between messages.

import { axis, folds } from "./axis.js";
import { h, s, swap } from "../../dom.js";
import { isOpen, outcome } from "./journal.js";
import { icon } from "../../icons.js";
import { day, many, minute, ms, spoken, worker } from "../../say.js";
import { between, edge, lying, moved, path } from "./torn.js";
import { named, noRows, outlineRows, reason, resolved, rowSentence, rowsOf, spanOf, tearSentence, took, worked } from "./rows.js";

const SIGNS = { step: "step", model: "model", timer: "clock", question: "person", child: "child", branch: "branch", many: "stack", dropped: "undo" };
const MOST = 200;

/** A torn strip across: who was gone, and who went on within how long. */
export function across(tear, onclick) {
  const top = lying(edge(6, 0, 2400, { seed: tear.seq, tooth: 7 })), bottom = top.map(([x, y]) => [x, y + 33]);
  const gone = tear.how === "lease" ? "stopped answering" : tear.how === "dead" ? "was killed" : "was gone";
  return h(onclick ? "button.across" : "div.across", { onclick, "aria-label": tearSentence(tear), role: onclick ? undefined : "separator" },
    s("svg", { viewBox: "0 0 2400 46", preserveAspectRatio: "xMinYMid slice", "aria-hidden": "true" }, s("path.gap", { d: between(top, bottom) }), s("path.rip", { d: path(top) }), s("path.rip", { d: path(bottom) })),
    h("span", { "aria-hidden": "true" }, icon("tear"), h("b", `${worker(tear.owner, tear.by) ?? "its process"} ${gone}`), h("span.across-on", `${worker(tear.by, tear.owner) ?? "another"} went on within ${spoken(tear.to - tear.from)}`)));
}

/** A pleated strip: how long it waited, and for what. */
export const pleated = (fold, carried = false) => h("div.dw-fold", icon(fold.why), h("span", h("b", spoken(fold.to - fold.from)), ` ${fold.text}`), carried ? null : h("span.dim", "no process"));

/** The folds of a run: what is waited for, and whether a process held it. */
export function foldsOf(model) {
  const { journal, info } = model, now = model.now(), from = Math.min(ms(info.created_at) ?? Infinity, journal.firstAt ?? now), to = ms(info.finished_at) ?? now;
  return folds(from, to, worked(journal, to, model.children, info.status === "running" && !info.worker_gone), journal.tears).map((fold) => ({ ...fold, ...reason(journal, fold) }));
}

export function phone(model, view, acts) {
  const element = h("section.panel.dw-panel");

  function draw() {
    const now = model.now();
    Object.assign(view, { now, over: Boolean(model.info.finished_at), nested: model.nested });
    const rows = model.outline ? outlineRows(model, view) : rowsOf(model.journal, { ...view, closed: new Set() }).filter((row) => row.depth === 0 && !(row.call?.sort === "timer"));
    let last = 0; // what a row of an outline is opened to stays below it
    const items = [
      ...rows.map((row) => ({ at: (last = row.start === null ? (row.depth ? last : 0) : spanOf2(row, now)[0]), row })),
      ...model.journal.tears.map((tear) => ({ at: tear.to, tear })),
      ...(model.outline ? [] : foldsOf(model)).map((fold) => ({ at: fold.from + 1, fold })),
    ].sort((one, other) => one.at - other.at);
    const made = [];
    let date = "";
    for (const { at, row, tear, fold } of items.slice(-MOST)) {
      if (tear) made.push(across(tear, () => acts.choose(String(tear.seq))));
      else if (fold) made.push(pleated(fold));
      else {
        if (at && day(at) !== date) made.push(h("h3.dw-day", (date = day(at))));
        made.push(rowOf(row, now));
      }
    }
    if (items.length > MOST) made.unshift(h("p.dim.dw-more", `${many(items.length - MOST, "row")} before; the journal has them all`));
    if (!rows.length) made.push(h("p.dim.dw-more", noRows(view)));
    if (!view.over) made.push(h("div.dw-now", { class: model.info.status === "running" ? "" : "still" }, h("i"), model.info.status === "running" ? "now" : model.info.status));
    swap(element, h("div.dw", made));
  }

  const spanOf2 = (row, now) => (row.call || row.group || row.calls || row.span ? spanOf(row, now) : [0, 0]);

  function rowOf(row, now) {
    const { call } = row, [name, input] = call && !call.items ? named(call) : [row.name ?? call?.name ?? rowSentence(row, now), row.note ?? ""];
    const doubt = call?.tries?.some((each) => each.how === "unknown"), state = call?.state ?? "group", open = call ? isOpen(call) : row.running > 0;
    return h("button.dw-row", { class: `is-${open ? "running" : state} sort-${row.sort}`, "aria-label": rowSentence(row, now), onclick: () => (row.sort === "dropped" || row.expanded !== undefined && model.outline ? acts.toggle(row) : acts.choose(row.at ?? (call && !call.items ? call.key : row.key))) },
      h("span.sort", icon(SIGNS[row.sort] ?? "note")),
      h("span.dw-what", h("span.cut", h(row.sort === "question" || row.sort === "dropped" ? "span.strong" : "code.strong", name), input && h("span.dim", ` ${input}`)),
        (row.group || call?.items) && small(row, now),
        call?.question?.decision ? h("span.dim", call.question.by ? h("b", call.question.by) : null, ` ${outcome(call.question)}`) : null,
        doubt ? h("span.doubt-ink", `in doubt; ${resolved(call).join("")}`) : null,
        state === "failed" ? h("span.bad-ink.cut", call.remarks?.at(-1)?.text ?? "failed") : call?.tries?.length && !doubt ? again(call) : null),
      h("span.dw-took", h("span", took(row, now)), row.start === null ? null : h("span.dim", minute(row.start))));
  }

  /** Why it was begun more than once. */
  function again({ tries, attempts }) {
    const lost = tries.some((each) => each.how === "lost"), failed = tries.some((each) => each.how === "failed");
    return h(failed ? "span.stop-ink" : "span.dim", [failed && many(attempts, "attempt"), lost && "cut off, and ran again"].filter(Boolean).join(", "));
  }

  // The calls of a branch, small.
  function small(row, now) {
    const calls = (row.group ?? row.call.items).flatMap(leaves).filter((call) => call.began !== null).slice(0, 14), wide = 236, high = calls.length * 6 + 1;
    const [from, to] = spanOf(row, now), tears = model.journal.tears.filter((tear) => tear.from >= from && tear.to <= to);
    const ax = axis({ width: wide, from, to, tears: tears.map((tear) => ({ ...tear })) });
    const made = s("svg.dw-small", { viewBox: `0 0 ${wide} ${high}`, "aria-hidden": "true", preserveAspectRatio: "none" });
    calls.forEach((call, nth) => {
      const bar = (kind, began, ended) => made.append(s(`rect.${kind}`, { x: ax.x(began), y: nth * 6 + 1, width: Math.max(ax.x(ended) - ax.x(began), 2), height: 4, rx: 1 }));
      for (const each of call.tries ?? []) bar(each.how === "failed" ? "failed" : "lost", each.began, each.ended);
      bar(call.state === "running" ? "running" : call.state === "failed" ? "failed" : call.sort === "model" ? "model" : call.sort === "question" ? "asked" : "step", call.began, call.ended ?? now);
    });
    for (const tear of tears) {
      const left = edge(ax.x(tear.from) + 6, -1, high + 1, { seed: tear.seq, tooth: 4, rough: 0.8 }), right = moved(left, 7);
      made.append(s("path.gap", { d: between(left, right) }), s("path.rip", { d: path(left) }), s("path.rip", { d: path(right) }));
    }
    return made;
  }
  const leaves = (call) => (call.items ? call.items.flatMap(leaves) : ["step", "model", "question", "child"].includes(call.sort) ? [call] : []);

  return { element, draw, close() {} };
}

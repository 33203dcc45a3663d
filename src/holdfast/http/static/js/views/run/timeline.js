// The timeline: tree and lanes on one grid. It is drawn from a model and keeps nothing but what is on the screen.
//
// Only rows that can be seen are in the page, and only those that have changed are drawn anew. So the axis of a run that goes on reaches
// a little further than now: until now is there, what has ended stays where it is. Paper (pleats, lines of time, tears) is drawn below
// and above the rows. No layout is read after something was written.

import { axis, folds, label, TEAR, ticks } from "./axis.js";
import { h, s, swap } from "../../dom.js";
import { isOpen, outcome } from "./journal.js";
import { icon } from "../../icons.js";
import { clock, count, day, dollars, many, ms, spoken, worker } from "../../say.js";
import { between, edge, moved, path } from "./torn.js";
import { windowOn } from "./window.js";
import { named, nested, noRows, outlineRows, reason, resolved, rowSentence, rowsOf, spanOf, tearSentence, took, worked } from "./rows.js";

const ROW = 26, PIECE = 780, PAD = 4, HEAD = 53, MOST_ROWS = 56, BEYOND = 8, END = 24, UNDER_TEAR = 9, DAY_WIDE = 80, FURTHER = 0.01;
const SIGNS = { step: "step", model: "model", timer: "clock", question: "person", child: "child", branch: "branch", many: "stack", some: "filter", dropped: "undo" };
const FLAGS = { checkpoint: "pin", message: "message", note: "note", low: "money", foreign: "warn", control: "flag" };
const px = (number) => `${Math.round(number * 2) / 2}px`;

/**
 * `model` is {info, journal, children, nested, now()}; `view` is {closed, opened, fits, since, dropped, trueTime, zoom, offset, chosen};
 * `acts` has choose(at) and toggle(row).
 */
export function timeline(model, view, acts) {
  const lane = h("div.tl-measure"), head = h("div.tl-head"), list = h("div.tl-rows", { role: "tree", "aria-label": "What the run did" });
  const under = h("div.tl-paper"), over = h("div.tl-paper.over"), line = h("i.nowline"), none = h("p.tl-none.dim");
  const element = h("div.tl", lane, head, list, under, over, h("div.tl-paper.now", line), none), foot = h("p.windowed", { hidden: true });
  const shown = windowOn(list, { high: ROW, pad: PAD }), lines = ["marks", "axis", "carry", "spend"].map((name) => ({ element: h(`div.tl-line.${name}`), drawn: "" }));
  let width = 0, rows = [], ax = null, laid = "", ends = 0, folded = [], stamp = 0, active = null, top = 0, seen = [0, 0], heard = false, before = null, known = "", papered = "", span = [0, 0];
  swap(head, lines.map((each) => each.element));

  const watch = new ResizeObserver(() => {
    if (lane.clientWidth && lane.clientWidth !== width) {
      width = lane.clientWidth;
      measure();
      draw();
    }
  });
  watch.observe(lane);
  const scrolled = () => {
    if (heard) return;
    heard = true;
    requestAnimationFrame(() => {
      heard = false;
      measure();
      if (look()) paint();
    });
  };
  addEventListener("scroll", scrolled, { passive: true });
  addEventListener("resize", scrolled, { passive: true });
  list.addEventListener("focusin", (event) => {
    active = event.target.closest("[data-at]")?.dataset.at ?? active;
  });
  element.addEventListener("wheel", (event) => {
    if (view.zoom === 1 || Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
    event.preventDefault();
    shift(event.deltaX);
  }, { passive: false });

  /** Lay out anew what has changed, and draw it. */
  function draw() {
    if (!width) return;
    const { journal, info } = model, now = model.now();
    view.now = now;
    view.over = Boolean(info.finished_at);
    view.nested = model.nested;
    const made = `${journal.changes} ${view.fits === null} ${view.since} ${view.dropped} ${view.over} ${[...view.closed]} ${[...view.opened]} ${[...model.nested.values()].map((each) => each.journal.changes)}`;
    if (model.outline) rows = outlineRows(model, view);
    else if (made !== known || view.fits) rows = rowsOf(journal, view); // else only time has gone on
    known = made;
    layOut(journal, info, now);
    drawHead(now);
    list.style.setProperty("height", `${rows.length * ROW + 2 * PAD}px`);
    none.textContent = rows.length ? "" : noRows(view);
    none.hidden = rows.length > 0;
    foot.hidden = !model.outline && !model.last;
    if (model.outline) swap(foot, h("span", `${many(model.outline.events ?? info.events, "event")}, of which ${many(rows.length, "row")} are drawn`), h("span.dim", "calls of one name in one place are one row; open a row to see those that matter"));
    else if (model.last) swap(foot, h("span", `the last ${count(model.last)} of ${many(info.events, "event")}`), h("span.dim", "the calls of all are being folded"));
    look();
    paint();
  }

  /** Lay out time anew, if now has come to the end of the axis or something else than now is another. */
  function layOut(journal, info, now) {
    const from = Math.min(ms(info.created_at) ?? journal.firstAt ?? now, journal.firstAt ?? Infinity);
    ends = Math.max(ms(info.finished_at) ?? now, journal.lastAt ?? 0);
    const began = view.since ? (journal.checkpoints.find((each) => each.seq === view.since)?.at ?? from) : from;
    const tears = journal.tears.filter((tear) => tear.to > began);
    folded = view.trueTime || model.outline ? [] : folds(began, ends, worked(journal, ends, model.children, info.status === "running" && !info.worker_gone), tears).map((fold) => ({ ...fold, ...reason(journal, fold) }));
    const next = JSON.stringify([width, view.zoom, began, view.over && ends, folded, tears.map((tear) => [tear.from, tear.to])]);
    if (next === laid && ends <= ax.to) return;
    laid = next;
    const isStill = view.over || folded.at(-1)?.to === ends; // a wait that is folded has its width, however long it becomes
    ax = axis({ width: END + (width - END) * view.zoom, from: began, to: isStill ? ends : ends + (ends - began) * FURTHER, folds: folded, tears, end: END });
    view.offset = Math.min(Math.max(view.offset, 0), Math.max(ax.width - width, 0));
    stamp += 1;
  }

  const at = (moment) => ax.x(moment) - view.offset;

  function shift(by) {
    const offset = Math.min(Math.max(view.offset + by, 0), Math.max(ax.width - width, 0));
    if (offset === view.offset) return;
    view.offset = offset;
    stamp += 1;
    drawHead(model.now());
    paint();
  }

  /** Read where the rows are, before anything is written. */
  function measure() {
    top = list.getBoundingClientRect().top;
  }

  /** Find which rows can be seen; says whether that has changed. */
  function look() {
    const first = Math.max(Math.floor((-top - PAD) / ROW) - BEYOND, 0);
    const last = Math.min(Math.max(Math.ceil((innerHeight - top) / ROW) + BEYOND, first + 20), first + MOST_ROWS, rows.length);
    const changed = first !== seen[0] || last !== seen[1];
    seen = [first, last];
    return changed;
  }

  function paint() {
    const [first, last] = seen, now = model.now();
    shown.show(first, last, (nth) => ({ key: rows[nth].key, stamp: stampOf(rows[nth], now), make: () => rowElement(rows[nth], now) }));
    const reach = shown.of(active) ? active : (rows.find(isChosen)?.key ?? rows[first]?.key);
    for (const [key, { element: made }] of shown.each()) made.tabIndex = key === reach ? 0 : -1;
    drawPaper();
  }

  const isChosen = (row) => (row.at ? view.chosen === row.at : row.call ? view.chosen === row.call.key && (row.call.dropped === null) : view.chosen === row.key);

  /** All that a row is drawn from. What runs is drawn from now, too. */
  function stampOf(row, now) {
    const { call } = row, where = [stamp, isChosen(row), row.depth, row.nth, row.of, row.expanded, row.note, row.tears?.length];
    if (row.text) return JSON.stringify([where, row.text, model.outline?.now]);
    if (!call || call.items) return JSON.stringify([where, row.journal?.changes, row.retry?.count, took(row, now)]);
    return JSON.stringify([where, call.name, call.seq, call.state, call.began, call.ended, call.last, call.due, call.attempts, call.tries, call.waits, call.question, call.remarks?.length, isOpen(call) && now]);
  }

  // The head: marks, time, who carried it, what it spent. A line is drawn anew when what it is drawn from is another.

  function drawHead(now) {
    const { journal, info } = model, usd = info.spent?.usd ?? 0, isNow = info.status === "running" && !info.worker_gone, tears = journal.tears.filter((tear) => tear.to > ax.from);
    const draws = [
      [[tears.length, journal.flags.length, journal.checkpoints.length, view.chosen], () => [h("div.tl-cell"), h("div.tl-lane", tears.map((tear) => h("i.stem", { style: { left: px(middle(tear)) } })), pills(tears), flags(journal))]],
      [[view.trueTime, Boolean(model.outline)], () => [h("div.tl-cell.dim", model.outline ? "folded by the server" : view.trueTime ? "true time" : folded.length ? "waits are folded" : "no long waits", view.zoom > 1 && `, ${view.zoom}×`), h("div.tl-lane", moments(tears))]],
      [[journal.carriers.length, journal.carriers.at(-1), tears.length, info.status, info.worker, info.epoch, isNow && px(at(now)), px(at(ends))], () => [h("div.tl-cell", "carried by"), h("div.tl-lane", h("i.hold-line", { style: { width: px(Math.max(Math.min(at(ends), width), 0)) } }), carriers(journal, info, now))]],
      [[usd, journal.spendings.length, px(at(ends))], () => [h("div.tl-cell", "spent", h("b", dollars(usd))), h("div.tl-lane", spending(journal))]],
    ];
    draws.forEach(([from, make], nth) => {
      const next = JSON.stringify([stamp, from]);
      if (lines[nth].drawn === next) return;
      lines[nth].drawn = next;
      swap(lines[nth].element, make());
    });
  }

  const middle = (tear) => (at(tear.from) + at(tear.to)) / 2;
  const isIn = (x, room = 0) => x >= -room && x <= width + room;

  function pills(tears) {
    const groups = [];
    for (const tear of tears) {
      const x = middle(tear), last = groups[groups.length - 1];
      if (!isIn(x)) continue;
      if (last && x - last.x < 110) {
        last.all.push(tear);
        last.x = (last.x + x) / 2;
      } else groups.push({ x, all: [tear] });
    }
    groups.forEach((group, nth) => {
      const next = groups[nth + 1], lack = next ? 154 - (next.x - group.x) : 0;
      if (lack > 0) {
        group.x -= lack / 2;
        next.x += lack / 2;
      }
    });
    return groups.map(({ x, all }) => {
      const isOne = all.length === 1, chosen = all.findIndex((tear) => String(tear.seq) === view.chosen);
      const next = all[(chosen + 1) % all.length]; // of several, a press goes through them
      return h("button.pill", {
        class: chosen >= 0 ? "chosen" : "", style: { left: px(Math.min(Math.max(x, 72), width - 78)) }, onclick: () => acts.choose(String(next.seq)),
        "aria-label": isOne ? tearSentence(all[0]) : `${all.length} interruptions`, data: { tear: all[0].seq },
      }, icon("tear"), isOne ? `went on within ${spoken(all[0].to - all[0].from)}` : `${all.length} interruptions`);
    });
  }

  function flags(journal) {
    const all = [...journal.flags, ...journal.checkpoints.map((each) => ({ ...each, sort: "checkpoint", text: `checkpoint ${each.era ?? ""}` }))].sort((one, other) => one.at - other.at);
    const groups = [];
    for (const each of all) {
      const x = at(each.at), last = groups[groups.length - 1];
      if (!isIn(x) || each.at < ax.from) continue;
      if (last && x - last.x < 13) last.all.push(each);
      else groups.push({ x, all: [each] });
    }
    return groups.map(({ x, all }) => {
      const first = all[0], text = all.length > 1 ? `${many(all.length, "mark")}: ${all.slice(0, 4).map((each) => each.text).join("; ")}` : `${first.text}, ${clock(first.at)}`;
      return h("button.flag", { class: `${first.sort}${all.some((each) => String(each.seq) === view.chosen) ? " chosen" : ""}`, style: { left: px(x) }, title: text, "aria-label": text, onclick: () => acts.choose(String(first.seq)) }, icon(FLAGS[first.sort]));
    });
  }

  function moments(tears) {
    const made = [], taken = tears.map((tear) => [middle(tear) - 6, middle(tear) + 6]);
    const fits = (from, to) => from >= 0 && to <= Math.min(width, ax.ends - view.offset + END) - 2 && taken.every(([start, end]) => to < start || from > end);
    const put = (element, from, to) => {
      made.push(element);
      taken.push([from - 4, to + 4]);
    };
    let last = "";
    for (const part of ax.parts) {
      const x = part.x - view.offset, center = x + part.wide / 2;
      if (part.sort === "fold" && isIn(center)) {
        const text = spoken(part.to - part.from);
        put(h("span.fold-text", { style: { left: px(center) }, title: `${text} ${part.text}` }, icon(part.why), text), center - 34, center + 34);
      }
      if (part.sort !== "flow") continue;
      const name = day(part.from), left = Math.max(x, 0);
      if (name === last || !fits(left, left + DAY_WIDE) || x > width) continue;
      put(h("span.day", { style: { left: px(left) } }, name), left, left + DAY_WIDE);
      last = day(part.to);
    }
    if (!ax.parts.some((part) => part.sort === "flow") && fits(0, 140)) put(h("span.tick", { style: { left: px(0) } }, `${day(ax.from)}, ${clock(ax.from)}`), 0, 140); // all of it is one wait
    for (const part of ax.parts) {
      if (part.sort !== "flow") continue;
      const { step, at: found } = ticks(part, { apart: 62 });
      for (const moment of found) {
        const x = at(moment), long = step < 1000 ? 84 : 50;
        if (isIn(x) && fits(x, x + long)) put(h("span.tick", { style: { left: px(x) } }, label(moment, step)), x, x + long);
      }
    }
    return made;
  }

  function carriers(journal, info, now) {
    const made = [], carried = journal.carried(info, model.infoAt), last = carried.at(-1);
    for (const each of carried) {
      const isNow = each === last && info.status === "running" && !info.worker_gone;
      const spliced = journal.tears.some((tear) => Math.abs(tear.to - each.from) < 1);
      const from = at(each.from) - (spliced ? UNDER_TEAR : 0), to = at(isNow ? now : each.to) + (each.ends === "killed" ? UNDER_TEAR : 0);
      if (to < 0 || from > width || each.to < ax.from) continue;
      const owner = each.owner ?? (isNow ? info.worker : null) ?? "";
      made.push(h("span.carrier", { class: `${isNow ? "now" : each.ends === "killed" ? "killed" : ""}${spliced ? " spliced" : ""}`, style: { left: px(from), width: px(Math.max(to - from, 3)) }, title: `${owner}${each.epoch === null ? "" : `, epoch ${each.epoch}`}, ${clock(each.from)} to ${isNow ? "now" : clock(each.to)}` }, to - from > 44 ? worker(owner) : ""));
    }
    for (const tear of journal.tears) if (isIn(at(tear.to))) made.push(h("span.replay", { style: { left: px(at(tear.to)) }, title: tear.readBack === null ? "results were read back" : `${many(tear.readBack, "result")} read back` }));
    for (const part of ax.parts) {
      const isCarried = part.sort === "fold" && carried.some((each) => each.from < part.to - 1000 && (each === last && info.status === "running" ? now : each.to) > part.from + 1000);
      if (part.sort === "fold" && !isCarried && isIn(part.x - view.offset, 70)) made.push(h("span.nobody", { style: { left: px(part.x - view.offset + part.wide / 2) } }, "no process"));
    }
    return made;
  }

  function spending(journal) {
    const paid = journal.spendings, total = paid.reduce((sum, [, usd]) => sum + usd, 0);
    if (!total) return null;
    const high = 26, room = 22, end = at(ends).toFixed(1);
    let sum = 0, line = `M${-view.offset} ${high}`, last = null;
    const step = () => (line += `H${last}V${(high - (sum / total) * room).toFixed(1)}`);
    for (const [moment, usd] of paid) {
      const x = Math.round(at(moment) * 2) / 2;
      if (last !== null && x !== last) step(); // once for all that was spent in one place
      sum += usd;
      last = x;
    }
    step();
    line += `H${end}`;
    return s("svg.spend-line", { width, height: high, role: "img", "aria-label": `${dollars(total)} spent` }, s("path.area", { d: `${line}L${end} ${high}Z` }), s("path.line", { d: line }));
  }

  // Rows

  function rowElement(row, now) {
    const chosen = isChosen(row), key = row.call?.key ?? row.key, open = row.call ? isOpen(row.call) : row.running > 0 || (row.group && row.extent.goes && !view.over);
    const made = h("div.tl-row", {
      role: "treeitem", "aria-level": String(row.depth + 1), "aria-posinset": String(row.nth ?? 1), "aria-setsize": String(row.of ?? 1), "aria-selected": String(chosen), "aria-expanded": row.expanded === undefined ? undefined : String(row.expanded),
      "aria-label": (row.tears ?? []).map((tear) => `after an ${tearSentence(tear)}: `).join("") + rowSentence(row, now), tabIndex: -1, data: { at: row.key },
      class: `${chosen ? "chosen " : ""}${row.inner ? "inner " : ""}${row.sort === "rest" ? "rest " : ""}${row.call && row.call.dropped !== null ? "dropped" : ""}`,
      onclick: (event) => {
        active = row.key;
        if (row.expanded !== undefined && (event.target.closest(".twist") || row.sort === "some" || row.sort === "dropped")) acts.toggle(row);
        else if (row.sort === "rest") acts.toggle(row);
        else if (row.expanded !== undefined && chosen) acts.toggle(row);
        else acts.choose(row.at ?? (row.call && row.sort !== "branch" ? key : row.key));
      },
    });
    if (row.sort === "rest") return made.append(h("div.tl-cell", { style: { "--depth": row.depth } }, h("span.link", row.name)), h("div.tl-lane")), made;
    const [name, input] = row.call ? (row.call.items ? [row.call.name, row.note] : named(row.call)) : row.sort === "dropped" ? [rowSentence(row, now), ""] : [row.name, row.note];
    const tries = row.attempts ?? ((row.call?.tries ?? []).length ? row.call.attempts : 0), words = ["question", "timer", "some", "dropped"].includes(row.sort);
    made.append(
      h("div.tl-cell", { class: `sort-${row.sort} ${row.call?.state === "running" || (!row.call && open) ? "is-running" : ""} ${row.call ? `is-${row.call.state}` : ""}`, style: { "--depth": row.depth } },
        row.expanded === undefined ? null : h("span.twist", icon(row.expanded ? "down" : "right")),
        h("span.sort", icon(SIGNS[row.sort] ?? "note")),
        h("span.tl-name.cut", { title: input ? `${name} ${input}` : name }, h(words ? "span" : "code", name), input ? h("span.dim", ` ${input}`) : null),
        tries > 1 ? h("span.tries", { title: `${tries} attempts` }, `${tries}×`) : null,
        h("span.tl-took", { class: row.call?.sort === "question" && open ? "ask-ink" : row.call?.state === "running" || (!row.call && open) ? "running" : row.call?.state === "failed" ? "bad-ink" : "" }, took(row, now))),
      h("div.tl-lane", bars(row, now)));
    return made;
  }

  function bar(kind, from, to, title, more = 0) {
    const left = at(from), wide = Math.max(at(to) - left, 3) + more;
    if (left > width || left + wide < 0) return null;
    const clipped = Math.max(left, -20);
    return h(`span.bar.${kind}`, { style: { left: `${clipped.toFixed(1)}px`, width: `${Math.min(left + wide - clipped, width - clipped + 20).toFixed(1)}px` }, title });
  }
  /** Words beside a bar: behind it, or before it where there is no room. */
  function beside(start, moment, ...inside) {
    if (!isIn(at(moment))) return null;
    const long = inside.reduce((sum, each) => sum + (each?.textContent ?? each ?? "").length, 0) * 6.3, x = at(moment) + 8;
    return h("span.beside", { style: x + long < width ? { left: px(x) } : at(start) < long + 20 ? { left: px(Math.max(at(start), 0) + 8) } : { right: px(width - at(start) + 8) } }, inside);
  }

  function bars(row, now) {
    const { call } = row;
    if (row.sort === "some" || row.sort === "dropped" || row.span === null) return [];
    const lone = row.buckets && { question: "asked", timer: "slept", child: "nested", step: "did", model: "thought" }[row.sort]; // one call, as the server tells it
    if (lone) return [bar(row.failed ? "missed" : row.running && /did|thought/.test(lone) ? `going.${lone}` : lone, ...spanOf(row, now), "")];
    if (row.sort === "many" || row.buckets) return [density(row)];
    if (!call || call.items) {
      const [from, to] = spanOf(row, now);
      return Number.isFinite(from) ? [bar("bracket", from, to, "")] : [];
    }
    const until = call.ended ?? (isOpen(call) ? now : (call.last ?? now)), title = `${clock(call.began ?? until, true)} to ${call.ended === null ? "now" : clock(call.ended, true)}`;
    if (call.sort === "question") {
      const { question } = call;
      return [
        bar("asked", call.began, until, `${clock(call.began)} to ${call.ended === null ? "now" : clock(call.ended)}`),
        (question?.marks ?? []).map(([moment, kind, text]) => (isIn(at(moment)) ? h("i.vote", { class: kind.split(".")[1], style: { left: px(at(moment)) }, title: text }) : null)),
        question?.decision ? beside(call.began, until, question.by ? h("b", question.by) : null, ` ${outcome(question)}`) : null,
      ];
    }
    if (call.sort === "timer") return [bar("slept", call.began, until, call.due ? `until ${clock(call.due)}` : "")];
    if (call.sort === "child") return [bar(nested(call), call.began, until, call.child)];
    return stepBars(row, call, until, title, now);
  }

  function stepBars(row, call, until, title, now) {
    const kind = call.sort === "model" ? "thought" : "did", made = [], tries = call.tries ?? [];
    const asked = row.journal.askedAt(call), start = call.start;
    if (asked !== null && start !== null && at(start) - at(asked) > 6 && call.dropped === null) made.push(bar("wished", asked, start, `asked for at ${clock(asked)}, began ${spoken(start - asked)} later`));
    for (const [from, to, rate] of call.waits ?? []) made.push(bar("held", from, to, `waited for its turn${rate ? ` of ${rate}` : ""}`));
    if (call.held) made.push(bar("held", call.held.at, Math.min(now, call.held.data.at), `waits for its turn${call.held.data.rate ? ` of ${call.held.data.rate}` : ""}`));
    tries.forEach((each, nth) => {
      const next = tries[nth + 1]?.began ?? (call.began !== null && call.began > each.ended ? call.began : null);
      if (each.how === "failed") {
        made.push(bar("missed", each.began, each.ended, each.error));
        const again = next ?? Math.min(call.due ?? now, Math.max(now, each.ended));
        if (again > each.ended && (next !== null || isOpen(call))) made.push(bar("backoff", each.ended, again, `again after ${spoken(each.wait)}`));
      } else if (each.how === "lost") made.push(bar("lost", each.began, each.ended, "was in the middle when its process was gone", each.tear === null ? 0 : UNDER_TEAR));
      else made.push(bar("unknown", each.began, each.ended, "nobody could say whether it had happened", each.tear === null ? 0 : UNDER_TEAR));
    });
    const doubt = tries.some((each) => each.how === "unknown");
    if (call.question) {
      const to = call.question.decidedAt ?? (call.ended === null ? now : call.ended);
      made.push(bar("asked", call.question.at, to, `asked ${call.question.to.join(", ") || "anybody"}`));
    }
    if (call.probed) made.push(bar("probed", call.ended, call.ended, "its probe looked"));
    else if (call.began !== null && !(doubt && call.ended !== null && call.began < tries.at(-1).ended)) {
      if (call.ended !== null) made.push(bar(call.state === "failed" ? "missed" : call.state === "cancelled" ? "left" : kind, call.began, call.ended, title));
      else if (call.state === "running" && !view.over && !(doubt && call.began <= tries.at(-1).began)) made.push(bar(`going.${kind}`, call.began, until, title));
    }
    if (doubt) {
      const [first, strong] = resolved(call);
      if (first || strong) made.push(beside(call.start, until, first, h("b", strong)));
    }
    return made;
  }

  // How many ended in each small piece of time, and where some failed: as many calls as there are take as much room as one.
  function density(row) {
    const each = 5, [from, to] = spanOf(row, model.now()), left = Math.max(at(from), 0), right = Math.min(at(to), width);
    const columns = Math.max(Math.ceil((right - left) / each), 1), ended = new Float64Array(columns), failed = new Uint8Array(columns);
    const put = (moment, number, bad) => {
      const nth = Math.min(Math.floor((at(moment) - left) / each), columns - 1);
      if (nth < 0) return;
      ended[nth] += number;
      if (bad) failed[nth] = 1;
    };
    if (row.buckets) {
      const { from: began, to: until, counts, failures } = row.buckets, long = (until - began) / Math.max(counts.length, 1);
      counts.forEach((number, nth) => put(began + (nth + 0.5) * long, number, failures[nth]));
    } else for (const call of row.calls) put(call.ended ?? to, call.ended === null ? 0 : 1, call.state === "failed" || call.tries?.some((tried) => tried.how === "failed"));
    const most = Math.max(1, ...ended);
    let fill = "", bad = "";
    ended.forEach((number, nth) => {
      const x = nth * each;
      if (number) fill += `M${x} 20v${(-Math.max((number / most) * 17, 1.2)).toFixed(1)}h${each - 0.7}V20Z`;
      if (failed[nth]) bad += `M${x} 0h${each - 0.7}v3.6h${0.7 - each}Z`;
    });
    const made = s("svg.density", { width: Math.max(columns * each, 5), height: 20, role: "img", "aria-label": row.note }, s(`path${row.model ? ".model" : ""}`, { d: fill }), s("path.missed", { d: bad }));
    made.style.setProperty("left", px(left));
    return made;
  }

  // Paper

  function drawPaper() {
    // Of a long list only a piece of the paper is drawn, longer than what can be seen, so that few scrolls need another.
    const high = rows.length * ROW + 2 * PAD + HEAD, isLong = rows.length > MOST_ROWS * 2;
    const from = isLong ? Math.max(Math.floor((seen[0] * ROW) / PIECE) * PIECE - PIECE, 0) : 0, to = isLong ? Math.min(from + 3 * PIECE + MOST_ROWS * ROW, high) : high;
    span = [Math.max(Math.floor((from - HEAD) / ROW), 0), Math.min(Math.ceil(to / ROW), rows.length)];
    line.hidden = view.over || !isIn(at(ends));
    line.style.setProperty("left", px(at(ends)));
    const crossed = rows.slice(...span).map(({ call, inner }) => inner ?? call?.tries?.map((each) => each.tear)); // what tears are drawn through
    const next = JSON.stringify([stamp, from, to, view.chosen, model.journal.marks.length, crossed]);
    if (next === papered) return;
    papered = next;
    const below = s("svg.tl-under", { width, height: to - from, "aria-hidden": "true" }), above = s("svg.tl-over", { width, height: to - from, "aria-hidden": "true" });
    const tall = to - from;
    let grid = "";
    for (const part of ax.parts) {
      const x = part.x - view.offset;
      if (x > width || x + part.wide < 0) continue;
      if (part.sort === "fold") {
        below.append(s("rect.pleat-back", { x, y: 0, width: part.wide, height: tall }));
        for (let nth = 0; nth <= 4; nth += 1) below.append(s(`path.pleat${nth % 4 ? ".soft" : ""}`, { d: `M${Math.round(x + (part.wide / 4) * nth) + 0.5} 0V${tall}` }));
      } else if (part.sort === "flow") for (const moment of ticks(part, { apart: 62 }).at) if (isIn(at(moment))) grid += `M${Math.round(at(moment)) + 0.5} 0V${tall}`;
    }
    below.append(s("path.grid", { d: grid }));
    let control = "";
    for (const mark of model.journal.marks) if (mark.dropped === null && mark.key !== "run.interrupted" && mark.began >= ax.from && isIn(at(mark.began))) control += `M${Math.round(at(mark.began)) + 0.5} 0V${tall}`;
    below.append(s("path.control", { d: control }));
    for (const tear of model.journal.tears) if (tear.to > ax.from) drawTear(above, tear, -1 - from, high + 1 - from, from, 13.5 - from);
    drawInner(above, from);
    swap(under, below);
    swap(over, above);
    for (const each of [under, over]) each.style.setProperty("top", `${HEAD + from}px`);
  }

  function drawTear(above, tear, top, bottom, from, carried) {
    const x = at(tear.from), wide = Math.max(at(tear.to) - x, TEAR), chosen = String(tear.seq) === view.chosen ? ".chosen" : "";
    if (x > width || x + wide < 0) return;
    const left = edge(x + wide * 0.22, top, bottom, { seed: tear.seq }), right = moved(left, wide * 0.56), fresh = before !== null && !before.has(tear.seq) ? ".fresh" : "";
    above.append(s(`path.gap${chosen}${fresh}`, { d: between(left, right) }), s(`path.rip${chosen}${fresh}`, { d: path(left) }), s(`path.rip${chosen}${fresh}`, { d: path(right) }));
    if (carried !== null) above.append(s("path.held", { d: `M${x - 2} ${carried}H${x + wide + 2}` }));
    for (let nth = span[0]; nth < span[1]; nth += 1) {
      const { call } = rows[nth];
      const through = call?.tries?.find((each) => each.tear === tear.seq);
      if (through && rows[nth].journal.tears.includes(tear)) above.append(s(`path.held${through.how === "unknown" ? ".doubt" : ""}`, { d: `M${x - 1} ${HEAD + PAD + nth * ROW + 13 - from}H${x + wide + 1}` }));
    }
  }

  /** The tears of a child run cut its own rows and no others. */
  function drawInner(above, from) {
    const ranges = new Map();
    for (let nth = span[0]; nth < span[1]; nth += 1) {
      const { inner } = rows[nth];
      if (inner) ranges.set(inner, [ranges.get(inner)?.[0] ?? nth, nth]);
    }
    for (const [run, [first, last]] of ranges) {
      for (const tear of model.nested.get(run)?.journal.tears ?? []) drawTear(above, tear, HEAD + PAD + first * ROW + 2 - from, HEAD + PAD + (last + 1) * ROW - 2 - from, from, null);
    }
  }

  return {
    element,
    foot,
    measure,
    draw() {
      draw();
      before = new Set(model.journal.tears.map((tear) => tear.seq)); // one that comes while one looks is drawn from top to bottom, once
    },
    get rows() {
      return rows;
    },
    get active() {
      return rows.find((row) => row.key === active) ?? rows.find(isChosen) ?? null;
    },
    /** Bring a row into sight and give it the focus. */
    reveal(row, { focus = true } = {}) {
      const nth = rows.indexOf(row);
      if (nth < 0) return;
      active = row.key;
      const place = list.getBoundingClientRect().top + PAD + nth * ROW;
      if (place < 110 || place > innerHeight - 80) scrollBy({ top: place - innerHeight / 2, behavior: "instant" });
      measure();
      look();
      paint();
      if (focus) shown.of(row.key)?.focus({ preventScroll: true });
    },
    move(by) {
      const nth = rows.findIndex((row) => row.key === active);
      const next = rows[nth < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(nth + by, 0), rows.length - 1)];
      if (next) this.reveal(next);
    },
    /** Make it so many times as wide, around a moment. */
    zoom(to) {
      const center = ax.time(view.offset + width / 2);
      view.zoom = Math.min(Math.max(to, 1), 256);
      measure();
      draw();
      shift((view.zoom === 1 ? 0 : ax.x(center) - width / 2) - view.offset);
    },
    shift,
    close() {
      watch.disconnect();
      removeEventListener("scroll", scrolled);
      removeEventListener("resize", scrolled);
    },
  };
}

/** What the bars mean. */
export function legend() {
  const key = (kind, text) => h("span.key", h(`span.bar.${kind}`), text);
  return h("div.legend", { role: "note", "aria-label": "What the bars mean" }, key("did", "step"), key("thought", "model"), key("going.thought", "runs"), key("asked", "waits for a person"), key("missed", "attempt failed"), key("lost", "lost with its process"), key("unknown", "in doubt"), key("nested", "child run"));
}

// The timeline of a huge run, from what the server folded: a row with a density for each group of calls, and tears over all.

import { axis, TEAR, ticks } from "./axis.js";
import { h, s, swap } from "../../dom.js";
import { icon } from "../../icons.js";
import { clock, count, day, dollars, many, minute, ms, spoken } from "../../say.js";
import { between, edge, moved, path } from "./torn.js";
import { tearSentence } from "./rows.js";

const ROW = 26, PAD = 4, HEAD = 53, END = 24;
const px = (number) => `${Math.round(number * 2) / 2}px`;
const SIGNS = { model: "model", child: "child", timer: "clock", question: "person", branch: "branch" };

export function outline(model, view, acts) {
  const lane = h("div.tl-measure"), head = h("div.tl-head"), list = h("div.tl-rows", { role: "tree", "aria-label": "What the run did, in groups" }), under = h("div.tl-paper"), over = h("div.tl-paper.over");
  const element = h("div.tl", lane, head, list, under, over), foot = h("p.windowed");
  let width = 0, rows = [], ax = null, active = null, timer = 0;
  const watch = new ResizeObserver(() => {
    if (lane.clientWidth && lane.clientWidth !== width) {
      width = lane.clientWidth;
      draw();
    }
  });
  watch.observe(lane);
  const at = (moment) => ax.x(moment);

  function rowsOf(told, depth, made) {
    for (const group of told.groups) {
      const key = group.key ?? group.name, open = view.opened.has(key);
      made.push({ key, sort: group.count > 1 ? "many" : (group.kind ?? "step"), group, depth, expanded: open, fold: true, told });
      if (!open) continue;
      const inside = model.outline.under?.get(key);
      if (inside?.groups?.length) rowsOf(inside, depth + 1, made);
      for (const [name, calls] of [["tried again", group.again], ["slowest", group.slowest]]) {
        if (!calls?.length) continue;
        made.push({ key: `${key}/${name}`, sort: "some", name, note: name === "slowest" ? "of all" : `${calls.length} shown`, depth: depth + 1 });
        for (const call of calls) made.push({ key: `${key}/${name}/${call.seq}`, sort: "one", call, name: group.name, depth: depth + 2, of: call.key });
      }
    }
    return made;
  }

  function draw() {
    if (!width || !model.outline) return;
    const { journal, info } = model, told = model.outline, to = ms(info.finished_at) ?? model.now(), from = Math.min(ms(told.began) ?? ms(info.created_at), ms(info.created_at));
    rows = rowsOf(told, 0, []);
    ax = axis({ width, from, to, tears: journal.tears, end: END });
    const high = rows.length * ROW + 2 * PAD;
    swap(head,
      h("div.tl-line.marks", h("div.tl-cell"), h("div.tl-lane", journal.tears.map((tear) => h("i.stem", { style: { left: px(middle(tear)) } })), pills())),
      h("div.tl-line.axis", h("div.tl-cell.dim", "folded by the server"), h("div.tl-lane", moments())),
      h("div.tl-line.carry", h("div.tl-cell", "carried by"), h("div.tl-lane", h("i.hold-line", { style: { width: px(at(to)) } }), journal.carriers.map((each, nth) => h("span.carrier", { class: nth === journal.carriers.length - 1 && info.status === "running" ? "now" : each.ends, style: { left: px(at(each.from)), width: px(Math.max(at(nth === journal.carriers.length - 1 && info.status === "running" ? to : each.to) - at(each.from), 3)) }, title: each.owner ?? "" }, each.owner ?? "")))),
      h("div.tl-line.spend", h("div.tl-cell", "spent", h("b", dollars(info.spent?.usd ?? 0))), h("div.tl-lane")));
    list.style.setProperty("height", `${high}px`);
    swap(list, rows.map(rowElement));
    const svg = s("svg.tl-over", { width, height: high + HEAD, "aria-hidden": "true" }), below = s("svg", { width, height: high + HEAD, "aria-hidden": "true" });
    let grid = "";
    for (const part of ax.parts) if (part.sort === "flow") for (const moment of ticks(part, { apart: 62 }).at) grid += `M${Math.round(at(moment)) + 0.5} 0V${high + HEAD}`;
    below.append(s("path.grid", { d: grid }));
    for (const tear of journal.tears) {
      const x = at(tear.from), wide = Math.max(at(tear.to) - x, TEAR), chosen = String(tear.seq) === view.chosen ? ".chosen" : "", left = edge(x + wide * 0.22, -1, high + HEAD, { seed: tear.seq }), right = moved(left, wide * 0.56);
      svg.append(s(`path.gap${chosen}`, { d: between(left, right) }), s(`path.rip${chosen}`, { d: path(left) }), s(`path.rip${chosen}`, { d: path(right) }), s("path.held", { d: `M${x - 2} 13.5H${x + wide + 2}` }));
    }
    if (!model.over) svg.append(s("path.nowline", { d: `M${Math.round(at(to)) + 0.5} 0V${high + HEAD}` }), s("circle.nowdot", { cx: Math.round(at(to)) + 0.5, cy: 2, r: 2.5 }));
    swap(under, below);
    swap(over, svg);
    swap(foot, h("span", `${many(told.events ?? info.events, "event")}, of which ${many(rows.length, "row")} are drawn`), h("span.dim", "calls of one name in one place are one row; open a row to see those that matter"));
    if (!model.over && !timer) {
      timer = setTimeout(async () => {
        timer = 0;
        if (!document.hidden && (await model.readOutline())) draw();
      }, 10_000);
    }
  }

  const middle = (tear) => (at(tear.from) + at(tear.to)) / 2;
  const pills = () => model.journal.tears.slice(-8).map((tear) => h("button.pill", { type: "button", class: String(tear.seq) === view.chosen ? "chosen" : "", style: { left: px(Math.min(Math.max(middle(tear), 72), width - 78)) }, onclick: () => acts.choose(String(tear.seq)), "aria-label": tearSentence(tear) }, icon("tear"), `went on after ${spoken(tear.to - tear.from)}`));

  function moments() {
    const made = [];
    let free = 62;
    made.push(h("span.day", { style: { left: "0px" } }, day(ax.from)));
    for (const part of ax.parts) {
      if (part.sort !== "flow") continue;
      const { step, at: found } = ticks(part, { apart: 62 });
      for (const moment of found) {
        const x = at(moment);
        if (x < free || x > width - 50) continue;
        made.push(h("span.tick", { style: { left: px(x) } }, step < 60_000 ? clock(moment) : step < 86_400_000 ? minute(moment) : day(moment)));
        free = x + 54;
      }
    }
    return made;
  }

  function rowElement(row, nth) {
    const { group } = row, running = group?.running > 0, chosen = view.chosen === (row.of ?? row.key);
    const said = row.sort === "some" ? `${row.name} ${row.note}` : row.sort === "one" ? `${row.name} ${row.of}, ${row.call.ms ? spoken(row.call.ms) : `${row.call.attempts} attempts`}` : `${group.name}, ${many(group.count, "call")}${group.failed ? `, ${group.failed} failed` : ""}${running ? `, ${group.running} run now` : ""}`;
    const took = row.sort === "one" ? (row.call.ms ? spoken(row.call.ms) : "") : group ? spoken((ms(group.ended) ?? model.now()) - ms(group.began)) : "";
    return h("div.tl-row", {
      role: "treeitem", "aria-level": String(row.depth + 1), "aria-label": said, "aria-expanded": row.expanded === undefined ? undefined : String(row.expanded), "aria-selected": String(chosen), tabIndex: (active ?? rows[0].key) === row.key ? 0 : -1, class: chosen ? "chosen" : "", data: { at: row.key }, style: { top: `${PAD + nth * ROW}px` },
      onclick: async () => {
        active = row.key;
        if (row.sort === "one") return acts.choose(row.of);
        if (row.expanded === undefined) return;
        acts.toggle(row);
        if (!row.expanded && group.key && !model.outline.under?.has(group.key) && (await model.readOutline(group.key))) draw();
      },
    },
      h("div.tl-cell", { class: `sort-${row.sort} ${running ? "is-running" : ""}`, style: { "--depth": row.depth } }, row.expanded === undefined ? null : h("span.twist", icon(row.expanded ? "down" : "right")), h("span.sort", icon(row.sort === "many" ? "stack" : row.sort === "some" ? "filter" : (SIGNS[row.sort] ?? "step"))),
        h("span.tl-name.cut", row.sort === "some" ? h("span", row.name) : h("code", row.name ?? group.name), h("span.dim", ` ${row.note ?? row.of ?? `${count(group.count)}${group.running > 1 ? `, ${group.running} at once` : ""}`}`)), row.call?.attempts > 1 ? h("span.tries", `${row.call.attempts}×`) : null, h("span.tl-took", { class: running ? "running" : "" }, took)),
      h("div.tl-lane", group ? density(row) : null));
  }

  /** Densities come in as many buckets as there are, whatever the number of calls; a bucket is a piece of the time of the whole. */
  function density({ group, told }) {
    const began = ms(told.began), ended = ms(told.ended) ?? model.now(), buckets = group.density ?? [], each = (ended - began) / Math.max(buckets.length, 1), most = Math.max(1, ...buckets);
    const columns = new Map();
    buckets.forEach((number, nth) => {
      if (number) columns.set(Math.floor(at(began + (nth + 0.5) * each) / 4), (columns.get(Math.floor(at(began + (nth + 0.5) * each) / 4)) ?? 0) + number);
    });
    const high = Math.max(most, ...columns.values());
    let fill = "";
    for (const [column, number] of columns) fill += `M${column * 4} 20v${(-Math.max((number / high) * 17, 1.2)).toFixed(1)}h3.4V20Z`;
    return s("svg.density", { width, height: 20, role: "img", "aria-label": many(group.count, "call") }, s(`path${group.kind === "model" ? ".model" : ""}`, { d: fill }), group.failed ? s("path.missed", { d: `M${at(ms(group.ended) ?? ended) - 4} 0h4v3.6h-4Z` }) : null);
  }

  return {
    element, foot, draw,
    rows: [],
    get active() {
      return rows.find((row) => row.key === active) ?? null;
    },
    move(by) {
      const nth = rows.findIndex((row) => row.key === active), next = rows[Math.min(Math.max(nth + by, 0), rows.length - 1)];
      if (!next) return;
      active = next.key;
      draw();
      list.children[rows.indexOf(next)]?.focus();
    },
    close() {
      watch.disconnect();
      clearTimeout(timer);
    },
  };
}

// Two runs beside each other: calls aligned by key, the same beginning folded, where they part, and what differs since.

import { read } from "../api.js";
import { paid, share, words } from "../difference.js";
import { h, path, swap } from "../dom.js";
import { write as json } from "../json.js";
import { button, chip, choice, copied, ghosts, icon, moment, problem, runLink, standing, strand } from "../parts.js";
import { callName, count, day, dollars, FINISHED, many, minute, ms, now, spoken, stands, tokens } from "../say.js";
import { styled } from "../sheets.js";
import { cut } from "../text.js";

const PAGE = 200, LONG = 1200;
const SIGNS = { same: ["=", "the same"], differs: ["≠", "differs"], edit: ["✎", "edited"], gone: ["−", "only in A"], new: ["+", "only in B"] };

export function open(context) {
  const { query, go, narrow } = context, a = query.get("a") ?? "", b = query.get("b") ?? "";
  const body = h("div.cmp-view", ghosts(8)), element = styled(h("div.compare", body), "compare");
  let all = query.get("all") === "true", rows = [], next = null, answer = null, alike = [], sameOpen = false, closed = false, timer = 0;
  context.title(`${a} and ${b}`);
  const to = (changes) => path("compare", { a, b, all: all ? "true" : null, ...changes });
  context.keys({ s: () => go(to({ a: b, b: a })) });

  if (!a || !b) swap(body, chooser());
  else load();

  function chooser() {
    const one = h("input.text.mono", { "aria-label": "Run A", value: a, data: { first: "1" } }), other = h("input.text.mono", { "aria-label": "Run B", value: b });
    return [h("div.head", h("h1", "Compare two runs")), h("form.panel.cmp-choose", { onsubmit: (event) => { event.preventDefault(); if (one.value.trim() && other.value.trim()) go(path("compare", { a: one.value.trim(), b: other.value.trim() })); } }, h("label", h("span", "A"), one), h("label", h("span", "B"), other), button("Compare", { name: "compare", kind: "primary", type: "submit" }))];
  }

  async function load(after = null, limit = PAGE) {
    const found = await read(path("api", "compare", { a, b, after, limit, differences: all ? null : "true" }));
    if (closed) return;
    clearTimeout(timer);
    if (answer && !found.ok && after === null) return again();
    if (!found.ok) return void swap(body, chooser(), problem(found.error, () => load()));
    answer = found.data;
    rows = after === null ? answer.rows : [...rows, ...answer.rows];
    next = answer.next ?? null;
    draw();
    again();
    if (after === null && answer.shared) same();
  }

  /** While one of them goes on, what is shown is read again. */
  function again() {
    if (!FINISHED.has(answer.a.status) || !FINISHED.has(answer.b.status)) timer = setTimeout(() => (document.hidden ? again() : load(null, Math.min(Math.max(rows.length, PAGE), 1000))), 2000);
  }

  /** The calls with which both begin. */
  async function same() {
    const found = await read(path("api", "compare", { a, b, limit: Math.min(answer.shared, PAGE) }));
    if (closed || !found.ok) return;
    alike = found.data.rows.filter((row) => row.same).slice(0, answer.shared);
    draw();
  }

  /** Which of the two is a fork of the other: [its letter, the other's, where it was forked]. */
  function forkOf({ a: one, b: other }) {
    return other.forked?.run === one.id ? ["B", "A", other.forked] : one.forked?.run === other.id ? ["A", "B", one.forked] : null;
  }

  function draw() {
    const { a: one, b: other, shared, parts } = answer, fork = forkOf(answer)?.[2] ?? null;
    const title = fork ? "A run and its fork" : one.agent === other.agent ? `Two runs of ${one.agent}` : "Two runs";
    const shown = rows.filter((row) => all || !row.same);
    swap(body,
      h("div.head", h("div", h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "runs" }, "Runs"), icon("right"), h("span", "Compare")), h("h1", title)),
        h("div.acts", choice([["differences", "Differences"], ["all", "All calls"]], all ? "all" : "differences", (id) => { all = id === "all"; go(to({}), { replace: true }); load(); }, "Show"), narrow ? null : button("Swap", { name: "loop", onclick: () => go(to({ a: b, b: a })) }), narrow ? null : button("Copy link", { name: "linked", onclick: () => copied(location.href, "The link") }))),
      h("section.panel.cmp-top", side(one, "A"), side(other, "B"), h("dl.deltas", deltas(one, other))),
      h("section.panel.cmp", { "aria-label": "Calls" },
        h("div.cmp-head", h("span", "Call"), h("span"), h("span", "A ", h("span.dim.mono", one.id)), h("span", "B ", h("span.dim.mono", other.id))),
        shared ? sameFold(shared) : null, parting(parts, fork),
        shown.map((row) => rowOf(row, fork)),
        !shown.length ? h("p.cmp-none", parts ? "Nothing differs behind it." : "Every call is the same: name, input and result.") : null,
        next === null ? null : h("p.foot", h("span"), button("More calls", { kind: "small", onclick: () => load(next) }))),
      result(one, other));
  }

  const side = (run, letter) => h("div.cmp-run", h("span.letter", letter), h("div.cmp-id", runLink(run.id), h("p.dim", `${run.agent}${run.version ? `@${run.version}` : ""} · `, moment(run.created_at, `${day(run.created_at)}, ${minute(run.created_at)}`))), run.life ? strand(run, { width: narrow ? 150 : 230 }) : null, standing(stands(run)));

  function deltas(one, other) {
    const sum = (run) => (run.spent?.input_tokens ?? 0) + (run.spent?.output_tokens ?? 0), took = (run) => run.worked_ms ?? (ms(run.finished_at) ?? now()) - ms(run.created_at);
    const tears = (run) => run.interruptions ?? 0;
    return [
      delta(one.worked_ms === undefined ? "Took" : "Worked", took(one), took(other), spoken), delta("Spent", one.spent?.usd ?? 0, other.spent?.usd ?? 0, dollars), delta("Tokens", sum(one), sum(other), tokens), delta("Steps", one.steps ?? 0, other.steps ?? 0, count),
      h("div.delta", h("dt", "Interruptions"), h("dd", h("span", count(tears(one))), icon("right"), h("b", count(tears(other)))), h("dd.under.dim", tears(one) + tears(other) ? "no recorded result was lost" : "none")),
    ];
  }

  function delta(name, one, other, text) {
    const said = share(one, other);
    return h("div.delta", h("dt", name), h("dd", h("span", text(one)), icon("right"), h("b", text(other))), h("dd.under", { class: said.startsWith("−") ? "kelp-ink" : "dim" }, said));
  }

  function sameFold(shared) {
    const inside = h("div.cmp-same-in", { hidden: !sameOpen }, alike.map((row) => rowOf(row, null)), alike.length && shared > alike.length ? h("p.cmp-none", `${many(shared - alike.length, "call")} more`) : null);
    const fold = h("button.cmp-same", { "aria-expanded": String(sameOpen), onclick: () => {
      sameOpen = !sameOpen;
      inside.hidden = !sameOpen;
      fold.setAttribute("aria-expanded", String(sameOpen));
    } }, icon("right"), h("span", h("b", `${many(shared, "call")} ${shared === 1 ? "is" : "are"} the same`), h("span.dim", names())));
    return [fold, inside];
  }

  function names() {
    const found = [...new Set(alike.map(nameOf))].slice(0, 4), fork = forkOf(answer);
    return [found.length ? ` ${found.join(", ")}` : "", fork && alike.length ? `: ${whoPaid(fork)}` : ""].join("");
  }

  /** What a fork has from its run, and what it did again and paid for, although the same came of it. */
  function whoPaid([own, from, { seq }]) {
    const { reused, again, usd, ms: long } = paid(alike.map((row) => row[own.toLowerCase()]), seq), cost = `${usd ? `${dollars(usd)} and ` : ""}${spoken(long)}`;
    if (!again) return `${own} has ${from}'s results and paid nothing for them`;
    return `${reused ? `${own} has the results of ${reused} from ${from} and paid nothing for them; ${again} ${again === 1 ? "was" : "were"}` : `${own} has none of ${from}'s results; ${again === 1 ? "it was" : "they were"}`} made again, for ${cost}`;
  }

  const isReused = (letter, part) => part && letter === forkOf(answer)?.[0] && part.seq < forkOf(answer)[2].seq;

  function parting(parts, fork) {
    if (!parts) return null;
    return h("div.part", h("span.part-line"), h("span.part-text", icon("fork"), "here they part: ", fork?.by ? [h("b", fork.by), ` forked before event ${fork.seq}, `] : null, h("code.mono", { title: parts.key }, parts.key.replace(/(^|\/):([\w.]+)/g, (_, before, name) => before + callName(`:${name}`))), h("span.dim", ` ${parts.why ?? ""}`)), h("span.part-line"));
  }

  function rowOf(row, fork) {
    const edited = row.b?.edited || row.a?.edited || (!row.same && fork && row.key === answer.parts?.key && row.a && row.b && row.a.input === row.b.input), how = row.same ? "same" : !row.a ? "new" : !row.b ? "gone" : edited ? "edit" : "differs";
    const other = row.a && row.b && row.a.input !== row.b.input, input = other ? "" : (row.a?.input ?? row.b?.input ?? ""), [left, right] = row.a && row.b && !row.same ? words(cut(valueOf(row.a), LONG), cut(valueOf(row.b), LONG)) : [[[valueOf(row.a), false]], [[valueOf(row.b), false]]];
    return h("div.cmp-row", { class: `is-${how}`, tabIndex: 0, data: { row: "1" }, title: row.key },
      h("div.cmp-call", h(row.kind === "question" ? "span.strong" : "code.strong", { title: row.name }, nameOf(row)), h("span.dim.cut", inputOf(row, input)), other ? h("span.stop-ink.cmp-input", "another input") : null),
      h("span.cmp-sign", { title: SIGNS[how][1], "aria-label": SIGNS[how][1], role: "img" }, SIGNS[how][0]), half(row.a, left, "del", row, "A", other), half(row.b, right, "ins", row, "B", other));
  }

  const inputOf = ({ kind }, input) => (kind === "timer" ? input.replace(/^\{"ms": (\d+)\}$/, (_, long) => spoken(Number(long))) : input);
  /** How a call stands that has not ended; in a run that is over nothing waits or runs any more. */
  const statusOf = ({ status }, { kind }, run) => (!FINISHED.has(run.status) || !["waiting", "running"].includes(status) ? status : kind === "timer" ? "over before its time" : "did not end");
  const nameOf = (row) => (row.name.startsWith(":") ? callName(row.name) : row.name);
  const valueOf = (part) => (part ? (part.error ?? part.preview ?? "") : "");

  function half(part, pieces, tag, row, letter, other) {
    if (!part) return h("div.cmp-half.gone", { data: { of: letter } }, h("span.dim", "not called"));
    return h("div.cmp-half", { data: { of: letter } }, other ? h("p.dim", "called with ", h("code", inputOf(row, part.input))) : null, h("div.cmp-value", { class: part.error ? "bad-ink" : "" }, h("code", pieces.map(([text, differs]) => (differs && text.trim() ? h(tag, text) : text)))),
      h("div.cmp-meta.dim", isReused(letter, part) ? h("span", `from ${letter === "A" ? "B" : "A"}, not paid again`) : part.ms == null ? (part.status && part.status !== "completed" ? h("span", statusOf(part, row, answer[letter.toLowerCase()])) : null) : h("span", spoken(part.ms)), part.usd && !isReused(letter, part) ? h("span", dollars(part.usd)) : null, part.attempts > 1 ? h("span.stop-ink", `${part.attempts} attempts`) : null, part.torn_ms ? chip(`went on after ${spoken(part.torn_ms)}`, "", "tear") : null, h("a.link", { href: path("runs", letter === "A" ? answer.a.id : answer.b.id, { at: row.key }) }, "show")));
  }

  function result(one, other) {
    const section = h("section.panel.cmp-result");
    if (!FINISHED.has(one.status) || !FINISHED.has(other.status)) return null;
    Promise.all([read(path("api", "runs", one.id, "result"), { exact: true }), read(path("api", "runs", other.id, "result"), { exact: true })]).then(([left, right]) => {
      if (closed) return;
      const text = (found, run) => (found.ok ? (typeof found.data.result === "string" ? found.data.result : json(found.data.result)) : (run.error ?? run.status)) ?? "null";
      const [first, second] = words(cut(text(left, one), 6000), cut(text(right, other), 6000)), told = (pieces, tag) => pieces.map(([piece, differs]) => (differs && piece.trim() ? h(tag, piece) : piece));
      swap(section, h("header.sub", h("h2", "Result"), h("span.dim", text(left, one) === text(right, other) ? "the same" : "differs")), h("div.cmp-texts", h("p", h("span.letter", "A"), h("span", told(first, "del"))), h("p", h("span.letter", "B"), h("span", told(second, "ins")))));
    });
    return section;
  }

  return { element, close: () => { closed = true; clearTimeout(timer); } };
}

// The panel beside the timeline: a call, a tear, a question, one event, or the run itself.

import { h, path, s, swap } from "../../dom.js";
import { told } from "../../events.js";
import { write as json } from "../../json.js";
import { isOpen, outcome } from "./journal.js";
import { button, copied, facts, icon, moment, problem, runLink, standing, tree, value, who } from "../../parts.js";
import { bytes, clock, cost, count, dollars, isMine, many, ms, people, spoken, tokens, worker } from "../../say.js";
import { get, has, may } from "../../store.js";
import { distinct } from "../../text.js";
import { between, edge, moved, path as line } from "./torn.js";
import { brief, cutOff, named, resolved, took } from "./rows.js";

const SORTS = { step: "Step", model: "Model call", timer: "Wait", question: "Question", child: "Child run", branch: "Branch" };
const SHAPES = { done: "completed", failed: "failed", running: "running", waiting: "waiting", cancelled: "cancelled", doubt: "doubt" };
const HOW = { failed: "failed", lost: "lost with its process", unknown: "nobody could say", done: "done", running: "runs", probed: "found done by its probe", cancelled: "no longer waited for" };

/** The panel for what is chosen; `acts` has choose, fork and where(tab, at). */
export function details(model, chosen, acts) {
  const panel = h("aside.panel.side", { "aria-label": "Details" });
  let closes = () => {}, shows = null, stamp = "";
  const fill = (label, inside) => {
    panel.setAttribute("aria-label", label);
    swap(panel, inside);
  };

  function draw(at) {
    const found = find(model, at);
    const now = stampOf(model, found);
    if (shows === at && stamp === now) {
      if (found.call && isOpen(found.call)) swap(panel.querySelector(".side-now"), stateLine(found.call, { call: found.call, sort: found.call.sort }, model.now()));
      return;
    }
    const same = shows === at;
    [shows, stamp] = [at, now];
    if (!same) {
      closes();
      closes = () => {};
    }
    if (found.tear) fill("Interruption", tearPanel(model, found.tear, acts));
    else if (found.call) {
      const { inside, close } = callPanel(model, found, acts);
      closes();
      closes = close;
      fill(SORTS[found.call.sort] ?? "Call", inside);
    } else if (found.row) fill("Calls", manyPanel(model, found.row, acts));
    else if (found.step) fill("Call", stepPanel(model, found.step, acts));
    else if (found.seq !== undefined) fill("Event", eventPanel(model, found.seq, acts));
    else fill("The run", overview(model, acts));
  }
  draw(chosen);
  return { element: panel, draw, close: () => closes() };
}

function find(model, at) {
  if (at == null || at === "") return {};
  const { journal } = model;
  if (/^\d+$/.test(at)) {
    const tear = journal.tears.find((each) => each.seq === Number(at));
    if (tear) return { tear };
    for (const call of journal.each()) if (call.seq === Number(at) && call.key && !call.items && call.sort !== "mark") return { call, run: model.id, journal };
    return { seq: Number(at) };
  }
  const own = journal.call(at);
  if (own) return { call: own, run: model.id, journal };
  for (const [run, nested] of model.nested) {
    const call = nested.journal.call(at);
    if (call) return { call, run, journal: nested.journal };
  }
  return model.outline && at.includes("#") && !at.includes("/tried again/") && !at.includes("/slowest/") ? { step: at } : { row: at };
}

function stampOf(model, found) {
  if (found.call) return `${found.call.seq} ${found.call.state} ${found.call.began} ${model.streams.length}`;
  if (found.tear) return `${found.tear.seq} ${model.journal.events}`;
  if (found.step) return found.step;
  return found.seq !== undefined ? `${found.seq}` : JSON.stringify([planOf(model), model.info?.status, model.info?.updated_at, model.outline ? model.outline.now : found.row && model.journal.changes]);
}

const head = (sign, name, seq, link) =>
  h("header.side-head", h("span.side-sort", icon(sign), name), seq == null ? null : h("span.dim.mono", `seq ${seq}`),
    h("button.quiet", { title: "Copy a link to this", "aria-label": "Copy a link to this", onclick: () => copied(link(), "The link") }, icon("linked")));

const linkTo = (run, at) => () => new URL(path("runs", run, { at }), document.baseURI).href;

// A call

function callPanel(model, { call, run, journal }, acts) {
  const now = model.now(), [name, input] = named(call), row = { call, sort: call.sort };
  const inside = [
    head(call.sort === "model" ? "model" : { timer: "clock", question: "person", child: "child" }[call.sort] ?? "step", SORTS[call.sort] ?? "Call", call.seq, linkTo(run, call.key)),
    h("h2.side-title", call.sort === "question" ? call.name : [h("code", name), input && h("span.dim", ` ${input}`)]),
    h("p.side-line", h("span.side-now", stateLine(call, row, now)), call.spent && cost(call.spent) ? h("span.dim", spentLine(call.spent)) : null),
  ];
  let close = () => {};
  if (call.sort === "question" || call.question) inside.push(questionPart(model, call, acts));
  const stream = isOpen(call) && run === model.id ? openStream(model, call) : null;
  if (stream) {
    const section = h("section.stream");
    let live = null, over = false;
    close = () => {
      over = true;
      live?.close();
    };
    import("./streams.js").then(({ streamText }) => {
      if (over) return;
      live = streamText(model, stream);
      swap(section, h("header", h("h3", "Stream ", h("code", stream)), live.words, button("Follow", { kind: "small", onclick: () => acts.where("streams", stream) })), live.element);
    });
    inside.push(section);
  }
  if (call.child) inside.push(childPart(model, call));
  if (call.tries?.length || call.attempts > 1) inside.push(attempts(call, now));
  const remarks = (call.remarks ?? []).filter((each) => each.tone !== "bad" && !call.question);
  if (remarks.length) inside.push(h("ul.remarks", remarks.map((each) => h("li", { class: each.tone }, each.text))));
  if (call.ended !== null && ["step", "model", "child", "question"].includes(call.sort)) inside.push(resultPart(model, call, run));
  const because = journal.because(call);
  inside.push(facts(
    ["Key", h("code.mono.cut", { title: call.key }, call.key)],
    call.began === null ? null : [call.attempts > 1 ? "Last try began" : "Began", moment(call.began, clock(call.began, true)), journal.askedAt(call) !== null && call.start - journal.askedAt(call) > 1000 ? h("span.dim", ` asked for ${spoken(call.start - journal.askedAt(call))} before`) : null],
    call.ended === null ? null : ["Ended", moment(call.ended, clock(call.ended, true))],
    because === null ? null : ["Because of", h("button.link", { onclick: () => acts.choose(String(because)) }, `seq ${because}`)],
    call.question?.kind === "in_doubt" ? [call.question.again ? "Ran before" : "In doubt", "asks a person"] : call.tries?.some((each) => each.how === "unknown") ? ["In doubt", resolved(call).join("")] : null,
    call.waits?.length ? ["Waited for", call.waits.map(([from, to, rate]) => `its turn${rate ? ` of ${rate}` : ""}, ${spoken(to - from)}`).join("; ")] : null,
    call.dropped === null ? null : ["Taken out", "by a retry, ", h("button.link", { onclick: () => acts.choose(String(call.dropped)) }, `seq ${call.dropped}`)]));
  inside.push(h("footer.side-foot", may("write") && has("forks") && call.dropped === null && run === model.id ? button("Fork from here…", { name: "fork", kind: "small", onclick: () => acts.fork(call) }) : null, h("span.gap"), button("Journal here", { kind: "small", onclick: () => acts.where("journal", call.seq) })));
  return { inside, close };
}

function stateLine(call, row, now) {
  if (call.sort === "question") return call.question?.decision ? standing(call.state === "done" ? "completed" : "failed", `${call.question.decision} after ${took(row, now)}`) : standing(call.state === "cancelled" ? "cancelled" : "person", call.state === "cancelled" ? "withdrawn" : `waits for ${took(row, now)}`);
  const long = took(row, now);
  if (call.state === "done") return standing("completed", call.probed ? "found done by its probe" : long ? `done in ${long}` : "done");
  if (call.state === "running") return standing("running", `runs for ${long}`);
  if (call.state === "waiting" && call.tries?.length) return standing("retry", call.due > now ? `again in ${spoken(call.due - now)}` : `attempt ${call.attempts} is due`);
  if (call.state === "waiting" && call.held) return standing("waiting", `waits for its turn${call.held.data.rate ? ` of ${call.held.data.rate}` : ""}`);
  if (call.state === "waiting" && call.sort === "timer") return standing("waiting", call.due ? `until ${clock(call.due)}` : "waits");
  return standing(SHAPES[call.state] ?? "waiting", call.state === "cancelled" ? "no longer waited for" : call.state === "failed" ? `failed${long && ` after ${long}`}` : undefined);
}

function spentLine(spent) {
  const sum = (spent.input_tokens ?? 0) + (spent.output_tokens ?? 0);
  return [spent.usd ? dollars(spent.usd) : "", sum ? `${tokens(sum)} tokens` : "", spent.models?.join(", ") ?? "", !spent.usd && spent.unpriced ? "price unknown" : ""].filter(Boolean).join(" · ");
}

function openStream(model, call) {
  const open = model.streams.filter((each) => !each.ended);
  return (open.find((each) => call.key.includes(each.name) || (call.input ?? "").includes(each.name)) ?? (open.length === 1 && call.state === "running" ? open[0] : null))?.name ?? null;
}

function attempts(call, now) {
  const all = [...(call.tries ?? [])];
  if (call.began !== null && (!all.length || call.began > all.at(-1).began || call.probed)) {
    all.push({ n: call.attempts, began: call.probed ? call.ended : call.began, ended: call.ended, how: call.probed ? "probed" : call.state === "done" ? "done" : call.state === "failed" ? "failed" : call.state === "cancelled" ? "cancelled" : "running", error: call.state === "failed" ? (call.remarks?.at(-1)?.text ?? "") : null });
  }
  return h("section", h("h3", "Attempts"), h("ol.attempts", all.map((each) => h("li", { class: each.how },
    h("b", String(each.n)), h("div", h("div.attempt-line", h("span", HOW[each.how] ?? each.how), h("span.dim.nowrap", each.how === "probed" ? clock(each.began) : `${clock(each.began)} · ${spoken((each.ended ?? now) - each.began)}`)),
      each.error && h("p.bad-ink", each.error), each.wait ? h("p.dim", `waited ${spoken(each.wait)}${each.pauses ? `; ${each.pauses} was paused for everybody` : ""}`) : null)))));
}

function resultPart(model, call, run) {
  const into = h("div.result", h("span.dim", call.result ?? "")), said = h("span.dim");
  const section = h("section", h("header.sub", h("h3", call.state === "failed" ? "Error" : call.sort === "question" ? "Decision" : "Result"), said, h("span.gap")), into);
  model.value(call.seq, run).then((found) => {
    if (found.error) return void swap(into, found.error.code === "not_found" || found.error.code === "http_404" ? h("div.json", call.result ?? "–") : problem(found.error));
    const { event } = found, failed = event.data?.error;
    if (failed) return void swap(into, h("pre.trace", failed.traceback ?? `${failed.type}: ${failed.message}`));
    const size = event.size ?? null;
    said.textContent = size === null ? "" : bytes(size);
    const header = section.querySelector("header");
    if (found.value != null) {
      const text = typeof found.value === "string" ? found.value : json(found.value, 2);
      header.append(h("button.quiet", { title: "Copy the result", "aria-label": "Copy the result", onclick: () => copied(text, "The result") }, icon("copy")));
    }
    if (size !== null) header.append(h("a.quiet", { href: path("api", "runs", run, "events", call.seq, "value"), title: "Download the result", "aria-label": "Download the result", download: true }, icon("out")));
    swap(into, found.cut ? h("p.dim", `The first of ${bytes(size ?? 0)}; the whole is in the download.`) : null, found.value == null ? h("div.json", h("span.v.none", "null")) : value(found.value));
  });
  return section;
}

function childPart(model, call) {
  const row = model.children.get(call.child);
  return h("section", h("h3", "Run"), h("p.child-line", runLink(call.child), row ? standing(row.status) : null), row?.spent?.usd ? h("p.dim", `${dollars(row.spent.usd)} spent, ${many(row.steps ?? 0, "step")}`) : null);
}

function questionPart(model, call, acts) {
  const { question } = call, me = get("me"), asks = !question.decision && may("decide") && isMine(question.to, me);
  return h("section.asked-part", h("h3", "Question ", h("code.mono", question.id)),
    call.sort === "question" ? null : h("p", `${question.again ? "Its body ran before, behind the point from which this run goes on" : "What happened could not be known"}; a person is asked.`),
    h("p.dim", `for ${people(question.to, me)}`),
    question.decision ? h("p", question.by ? who(question.by) : null, h("span", ` ${outcome(question)}`), question.decidedAt ? h("span.dim", ` ${clock(question.decidedAt)}`) : null) : null,
    question.note ? h("blockquote", question.note) : null,
    (question.marks ?? []).length ? h("ul.remarks", question.marks.map(([at, , text]) => h("li", text, h("span.dim", ` ${clock(at)}`)))) : null,
    h("div", button(asks ? "Decide…" : "Show it", { name: "person", kind: asks ? "small primary" : "small", href: path("approvals", question.id) })));
}

// A tear

function splice(tear) {
  const wide = 320, mid = 146, gap = 28, top = 18, bottom = 62;
  const left = edge(mid, top, bottom, { seed: tear.seq, tooth: 5 }), right = moved(left, gap);
  const text = (x, y, anchor, said, name = "") => s(`text${name}`, { x, y, "text-anchor": anchor }, said);
  return s("svg.splice", { viewBox: `0 0 ${wide} 64`, role: "img", "aria-label": `${tear.owner ?? "a process"} until ${clock(tear.from)}, ${tear.by ?? "another"} from ${clock(tear.to)}` },
    s("path.strip", { d: between([[0.5, top], [0.5, bottom]], left) }), s("path.strip.new", { d: between(right, [[wide - 0.5, top], [wide - 0.5, bottom]]) }),
    s("path.rip", { d: line(left) }), s("path.rip", { d: line(right) }), s("path.held", { d: `M0 40.5H${wide}` }),
    text(12, 34, "start", worker(tear.owner, tear.by) ?? "a process", ".name"), text(wide - 12, 34, "end", worker(tear.by, tear.owner) ?? "another", ".name"), text(12, 55, "start", clock(tear.from, true)), text(wide - 12, 55, "end", clock(tear.to, true)),
    text(mid + gap / 2, 11, "middle", spoken(tear.to - tear.from), ".name"));
}

function tearPanel(model, tear, acts) {
  const { journal } = model, nth = journal.tears.indexOf(tear), now = model.now();
  const noticed = { dead: "its lock: the process was dead", lease: "its lease: it had not been renewed" }[tear.how];
  const callLine = (call) => h("button.call-line", { onclick: () => acts.choose(call.key) }, h("code", call.name), h("span.dim.cut", brief(call.input ?? "")), h("span.dim.nowrap", took({ call, sort: call.sort }, now)));
  const item = (number, strong, dim, calls = [], kind = "") => h("li", { class: kind }, h("b", count(number)), h("div", h("span.strong", strong), dim && h("p.dim", dim), calls.slice(0, 6).map(callLine), calls.length > 6 ? h("p.dim", `and ${count(calls.length - 6)} more`) : null));
  return [
    head("tear", "Interruption", tear.seq, linkTo(model.id, String(tear.seq))),
    h("h2.side-title", h("span.nowrap", { title: tear.owner }, worker(tear.owner, tear.by) ?? "Its process"), tear.how === "lease" ? " stopped answering. " : tear.how === "dead" ? " was killed. " : " was gone. ", h("span.nowrap", { title: tear.by }, worker(tear.by, tear.owner) ?? "Another"), " went on within ", h("span.nowrap", `${spoken(tear.to - tear.from)}.`)),
    splice(tear),
    h("ul.ledger",
      tear.readBack === null ? null : item(tear.readBack, tear.readBack === 1 ? "result was read back" : "results were read back", tear.since === null ? "none was run again or paid twice" : `since checkpoint ${tear.since}; none was run again or paid twice`),
      cutOff(journal, tear).map(({ calls, strong, dim, kind }) => item(calls.length, strong, dim, calls, kind))),
    facts(
      tear.seq ? ["Last record", h("button.link.mono", { onclick: () => acts.where("journal", tear.seq - 1) }, `event ${tear.seq - 1}`)] : null,
      ["Last sign", clock(tear.from, true)],
      ["Taken over", clock(tear.to, true), h("span.dim", `, event ${tear.seq}`)],
      noticed ? ["Noticed by", noticed] : null,
      tear.owner ? ["Worker", h("a.link", { href: path("fleet", tear.owner) }, tear.owner), tear.epoch === null ? null : h("span.dim", `, epoch ${tear.epoch}`)] : null),
    h("p.dim.fine", "When the process ended is not recorded. It was there at its last sign, a record, word of a step that ran or a heartbeat, and may have worked on for a while; so the gap is the longest that it can have been gone."),
    h("footer.side-foot", button("Previous", { name: "left", kind: "small", key: "[", disabled: nth <= 0, onclick: () => acts.choose(String(journal.tears[nth - 1].seq)) }), button("Next", { kind: "small", key: "]", disabled: nth >= journal.tears.length - 1, onclick: () => acts.choose(String(journal.tears[nth + 1].seq)) }), h("span.gap"), button("Journal here", { kind: "small", onclick: () => acts.where("journal", tear.seq) })),
  ];
}

// One event, many calls, and nothing

function eventPanel(model, seq, acts) {
  const into = h("div.result", h("p.dim", "…"));
  model.value(seq).then((found) => {
    if (found.error) return void swap(into, problem(found.error));
    const { event } = found;
    swap(into, h("h2.side-title", told(event)), facts(["Kind", h("code", event.kind)], ["At", moment(event.at, clock(ms(event.at), true))], event.key ? ["Call", h("button.link", { onclick: () => acts.choose(event.key) }, h("code.mono", event.key))] : null),
      found.value != null ? h("section", h("h3", "Value"), value(found.value)) : null, Object.keys(event.data ?? {}).length ? h("section", h("h3", "Data"), h("div.json", tree(event.data))) : null);
  });
  return [head("note", "Event", seq, linkTo(model.id, String(seq))), into, h("footer.side-foot", h("span.gap"), button("Journal here", { kind: "small", onclick: () => acts.where("journal", seq) }))];
}

/** A call of a huge run, which the page does not have. */
function stepPanel(model, key, acts) {
  const into = h("div.result", h("p.dim", "…"));
  model.step(key).then((found) => {
    if (found.error) return void swap(into, problem(found.error));
    const { step } = found, long = ms(step.ended_at) === null ? null : ms(step.ended_at) - ms(step.began_at);
    swap(into, h("h2.side-title", h("code", step.name), h("span.dim", ` ${brief(step.input ?? "")}`)), h("p.side-line", standing(step.status, long === null ? undefined : `${step.status} in ${spoken(long)}`), step.attempts > 1 ? h("span.stop-ink", `${step.attempts} attempts`) : null),
      step.failures?.length ? h("ul.remarks", step.failures.map((each) => h("li.bad", each))) : null, step.error ? h("p.bad-ink", step.error) : found.result === null ? null : h("section", h("h3", "Result"), value(found.result)),
      facts(["Key", h("code.mono.cut", { title: key }, key)], ["Began", moment(step.began_at, clock(step.began_at, true))], step.worker ? ["Worker", h("span.mono", step.worker)] : null));
  });
  return [head("step", "Call", null, linkTo(model.id, key)), into, h("footer.side-foot", h("span.gap"), button("Journal", { kind: "small", onclick: () => acts.where("journal", "") }))];
}

function manyPanel(model, key, acts) {
  const row = acts.rowOf(key);
  if (!row || row.buckets) return row ? groupPanel(model, row, key) : overview(model, acts);
  const calls = row.calls ?? row.group ?? row.call?.items ?? [], now = model.now();
  const leaves = calls.flatMap((call) => (call.items ? [...model.journal.each(call.items)].filter((each) => !each.items) : [call]));
  const spans = leaves.filter((call) => call.began !== null && call.ended !== null).map((call) => call.ended - call.began).sort((one, other) => one - other);
  const spent = leaves.reduce((sum, call) => sum + (call.spent?.usd ?? 0), 0), failed = leaves.filter((call) => call.state === "failed").length;
  return [
    head(row.sort === "many" ? "stack" : "branch", row.sort === "many" ? "Calls of one name" : "Branch", null, linkTo(model.id, key)),
    h("h2.side-title", h("code", row.name ?? row.call.name), h("span.dim", ` ${row.note ?? ""}`)),
    facts(["Calls", count(leaves.length)], ["In all", took(row, now)], spans.length ? ["Median", spoken(spans[spans.length >> 1])] : null, spans.length ? ["Slowest", spoken(spans.at(-1))] : null, failed ? ["Failed", h("span.bad-ink", count(failed))] : null, leaves.some(isOpen) ? ["Run now", count(leaves.filter(isOpen).length)] : null, spent ? ["Spent", dollars(spent)] : null),
  ];
}

const groupPanel = (model, row, key) => [head(row.sort === "branch" ? "branch" : "stack", "Calls of one name", null, linkTo(model.id, key)), h("h2.side-title", h("code", row.name), h("span.dim", ` ${row.note}`)), facts(["In all", spoken(row.span[1] - row.span[0])], row.failed ? ["Failed", h("span.bad-ink", count(row.failed))] : null, row.running ? ["Run now", count(row.running)] : null)];

function overview(model, acts) {
  const { info } = model, plan = planOf(model), labels = Object.entries(info.labels ?? {});
  return [
    h("header.side-head", h("span.side-sort", icon("list"), "The run")),
    plan.length ? h("section", h("h3", "Plan"), h("ol.plan", plan.slice(0, 40).map((each, at) => h("li", { class: each.state === "done" ? "done" : at === plan.findIndex((one) => one.state !== "done") ? "next" : "" }, each.text)))) : null,
    model.arguments && Object.keys(model.arguments).length ? h("section", h("h3", "Arguments"), h("div.json", tree(model.arguments))) : null,
    labels.length ? h("section", h("h3", "Labels"), facts(...labels.map(([name, text]) => [distinct(name), h("span.mono", text)]))) : null,
    info.budget ? h("section", h("h3", "Budget"), facts(...Object.entries(info.budget).filter(([name, limit]) => typeof limit === "number" && name !== "soft").map(([name, limit]) => [name === "usd" ? "money" : name.replace("_", " "), name === "usd" ? dollars(limit) : name === "wall" ? spoken(limit * 1000) : count(limit)]))) : null,
    facts(["Agent", h("span.mono", `${info.agent}${info.version ? `@${info.version}` : ""}`)], info.queue ? ["Queue", h("span.mono", info.queue)] : null, info.priority !== undefined ? ["Priority", String(info.priority)] : null, info.worker ? ["Worker", h("a.link.mono", { href: path("fleet", info.worker) }, info.worker)] : null, info.forked ? ["Forked from", runLink(info.forked.run), h("span.dim", ` at ${info.forked.seq}${info.forked.by ? ` by ${info.forked.by}` : ""}`)] : null, ["Events", count(info.events ?? model.journal.events)]),
    info.forked ? h("footer.side-foot", h("span.gap"), button("Compare", { name: "compare", kind: "small", href: path("compare", { a: info.forked.run, b: info.id }) })) : null,
  ];
}

/** The items of the plan: [{text, state}]. */
export function planOf(model) {
  if (model.info?.items?.length) return model.info.items;
  return (model.journal.plan?.items ?? []).map(([text, done]) => ({ text, state: done ? "done" : "open" }));
}

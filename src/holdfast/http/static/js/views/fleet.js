// The fleet: workers as lanes, queues, rates, versions that runs wait for, and the store. It is read again every five seconds.

import { read } from "../api.js";
import { h, path, s, swap } from "../dom.js";
import { chip, choice, ghosts, icon, meter, problem, runLink, sentence, standing } from "../parts.js";
import { age, bytes, clock, count, happens, many, minute, ms, now, seconds, spoken, stands, worker as workerName } from "../say.js";
import { styled } from "../sheets.js";
import { goneWords, minutesOf, silence, toldOf } from "./fleet/past.js";
import { between, edge, moved, path as line } from "./run/torn.js";

const EVERY_MS = 5000, MOST = 200, HIGH = 38, HOUR = 3_600_000, STUB = 28; // px of dots before the end of a life whose beginning is not known
const SPANS = [["15", "15 min", "15 min"], ["60", "1 h", "hour"], ["1440", "1 d", "day"]];
const hash = (text) => [...text].reduce((sum, each) => (Math.imul(sum, 31) + each.codePointAt(0)) | 0, 7) >>> 0;

export function open(context) {
  const { params, narrow } = context;
  const element = styled(h("div.fleet", h("div.head", h("h1", "Fleet")), ghosts(8)), "fleet");
  let told = null, running = null, span = 60, timer = 0, closed = false, width = 0, worker = params.worker, watch = null;
  const lane = h("div.lane-box");
  if (!narrow) {
    watch = new ResizeObserver(() => {
      if (!lane.clientWidth || lane.clientWidth === width) return;
      width = lane.clientWidth;
      if (told) drawLanes();
    });
    watch.observe(lane);
  }
  context.title(worker ?? "");
  load();

  async function load() {
    clearTimeout(timer);
    if (!document.hidden || !told) {
      const answer = await read("api/fleet");
      if (closed) return;
      if (answer.ok) {
        const lost = answer.data.lost.some((each) => each.how !== "drained"), runs = lost ? await read(path("api", "runs", { status: "running", limit: MOST })) : null;
        if (closed) return;
        told = answer.data;
        running = runs?.ok && runs.data.runs.length < MOST ? runs.data.runs : null;
        draw();
      } else if (!told) return void swap(element, h("div.head", h("h1", "Fleet")), problem(answer.error, load));
    }
    timer = setTimeout(load, EVERY_MS);
  }

  /** Those that say that they are there; of one that hangs the numbers are old. */
  const living = () => told.workers.filter((each) => each.state !== "hangs");

  /** How many runs of a worker that is gone nobody has taken over yet; null if that is not known. */
  const leftBy = (each) => running?.filter((run) => run.worker === each.id).length ?? null;

  // One sentence that is true

  function summary() {
    const gone = told.lost.filter((each) => now() - ms(each.at) < HOUR && each.how !== "drained"), waits = told.lost.filter((each) => each.after_ms != null).map((each) => each.after_ms);
    const lacking = told.versions.reduce((sum, each) => sum + each.runs, 0);
    if (!living().length) {
      const due = Math.max(lacking, told.queues.reduce((sum, each) => sum + (each.due ?? 0), 0));
      return h("span.stop-ink", silence(told.lost, told.workers), due ? `${many(due, "run")} ${due === 1 ? "is due and waits" : "are due and wait"} for one` : "nothing is due");
    }
    const killed = gone.filter((each) => each.how === "dead").length, still = gone.length - killed, was = (number) => (number === 1 ? "was" : "were");
    const lost = [killed && `${many(killed, "worker")} ${was(killed)} killed`, still && `${killed ? still : many(still, "worker")} stopped answering`].filter(Boolean).join(", ");
    if (gone.length) return `${lost} in the last hour${waits.length ? `; every run went on within ${spoken(Math.max(...waits))}` : ""}`;
    if (lacking) return `${many(told.workers.length, "worker")} alive; ${many(lacking, "run")} ${lacking === 1 ? "waits" : "wait"} for code that nobody serves`;
    return `${many(told.workers.length, "worker")} alive, nobody was killed in the last hour`;
  }

  function draw() {
    if (worker) return void drawWorker();
    const { queues, rates, versions, store } = told, minutes = minutesOf(told.minutes, now()), last = minutes.at(-1), carried = living().reduce((sum, each) => sum + (each.running ?? 0), 0), limit = living().reduce((sum, each) => sum + (each.limit ?? 0), 0);
    const due = queues.reduce((sum, each) => sum + (each.due ?? 0), 0), waiting = queues.reduce((sum, each) => sum + (each.waiting ?? 0), 0), oldest = queues.filter((each) => each.oldest_due_at).sort((one, other) => ms(one.oldest_due_at) - ms(other.oldest_due_at))[0];
    const { failed } = last, usual = minutes.slice(0, -5).reduce((sum, each) => sum + each.failed, 0) / (minutes.length - 5);
    const perSecond = living().some((each) => each.steps_1m != null) ? living().reduce((sum, each) => sum + (each.steps_1m ?? 0), 0) / 60 : living().length ? last.steps / 60 : 0;
    const number = (name, value, unit, under, values, kind) => h("div.number", h("div", h("dt", name), h("dd", value, unit && h("span.dim", unit)), h("dd.under.dim", under)), values.length > 1 ? spark(values, kind) : null);
    swap(element,
      h("div.head", h("div.head-line", h("h1", "Fleet"), h("p.dim", { role: "status" }, summary()))),
      h("dl.panel.numbers",
        number("Steps a second", perSecond >= 10 ? count(perSecond) : perSecond.toFixed(1), "", living().length ? `${many(last.ended, "run")} ended in the minute ${toldOf(last)}` : "no worker answers", minutes.map((each) => each.steps), "line"),
        number("Runs in memory", count(carried), limit ? ` of ${count(limit)}` : "", waiting ? `${many(waiting, "run")} ${waiting === 1 ? "waits" : "wait"} without a process` : "none waits", []),
        number("Due and not taken", count(due), "", oldest ? `the first for ${age(oldest.oldest_due_at)}, in ${oldest.queue}` : "nothing is late", []),
        number("Failed runs, a minute", count(failed), "", `${toldOf(last)}; usual: ${usual.toFixed(1)}`, minutes.map((each) => each.failed), "bars.bad")),
      workersPanel(),
      h("div.fleet-cols", panel("Queues", null, queuesTable(queues)), panel("Rates and limits", null, ratesList(rates)),
        h("div.stack", panel("Waits for code", "versions that nobody serves", versionsList(versions)), panel("Store", store.kind, storeList(store)))));
    if (!narrow) drawLanes();
  }

  const panel = (title, says, ...inside) => h("section.panel.small-panel", h("header.sub", h("h2", title), says ? h("span.dim", says) : null), inside);

  function spark(values, kind = "line") {
    const wide = 220, high = 36, most = Math.max(...values, 1) * 1.08, y = (value) => high - 1 - (value / most) * (high - 4), [form, look] = kind.split(".");
    const made = s(`svg.spark${look ? `.${look}` : ""}`, { viewBox: `0 0 ${wide} ${high}`, preserveAspectRatio: "none", "aria-hidden": "true" });
    if (form === "bars") {
      const each = wide / values.length;
      values.forEach((value, at) => made.append(s("rect", { x: (at * each).toFixed(1), y: y(value).toFixed(1), width: Math.max(each - 2, 1).toFixed(1), height: (high - y(value)).toFixed(1), rx: 1 })));
    } else {
      const drawn = values.map((value, at) => `${at ? "L" : "M"}${((at / (values.length - 1)) * wide).toFixed(1)} ${y(value).toFixed(1)}`).join("");
      made.append(s("path.area", { d: `${drawn}L${wide} ${high}L0 ${high}Z` }), s("path.line", { d: drawn }));
    }
    return made;
  }

  // Workers

  const lanes = () => {
    const from = now() - span * 60_000;
    return [
      ...told.workers.map((each) => ({ ...each, alive: true, from: ms(each.started_at) })),
      ...told.lost.filter((each) => ms(each.at) > from).map((each) => ({ ...each, alive: false, to: ms(each.at) })).sort((one, other) => other.to - one.to),
    ].slice(0, 40);
  };

  function state(each) {
    if (each.alive) return each.state === "draining" ? standing("waiting", "drains") : each.state === "hangs" ? standing("person", "hangs") : standing("running", "takes work");
    return each.how === "drained" ? standing("completed", "drained") : h("span.standing.off", icon("tear"), h("span", each.how === "lease" ? "stopped answering" : "killed"));
  }

  const same = (each) => [...told.workers, ...told.lost].find((other) => other.id !== each.id && workerName(other.id) === workerName(each.id))?.id ?? null;

  function workersPanel() {
    const all = lanes(), alive = told.workers.length, gone = all.length - alive, spanWords = SPANS.find(([id]) => Number(id) === span)[2];
    const rows = all.map((each) => h("a.worker", { href: path("fleet", each.id), class: each.alive ? each.state : "gone", data: { row: "1" } },
      h("div.worker-name", h("span.mono.strong.cut", { title: each.id }, workerName(each.id, same(each))), h("span.dim", each.version ?? "", each.queues?.length && each.queues.join() !== "default" ? ` · ${each.queues.join(", ")}` : "")),
      h("div.worker-state", state(each), h("span.dim", each.alive ? `${age(each.seen_at)} ago` : minute(each.to))),
      h("div.worker-load", each.limit ? [meter((each.running ?? 0) / each.limit, { label: `${each.running} of ${each.limit}` }), h("span", count(each.running ?? 0), h("span.dim", ` / ${count(each.limit)}`))] : h("span.dim", "–"))));
    return h("section.panel.workers",
      h("header.sub.pad", h("h2", "Workers"), h("span.dim", `${alive} alive${gone ? `, ${gone} gone in the last ${spanWords}` : ""}`), h("span.gap"), narrow ? null : choice(SPANS, String(span), (id) => { span = Number(id); draw(); }, "Span")),
      all.length ? h("div.worker-grid", h("div.worker-rows", h("div.worker.heads", h("span", "Worker"), h("span.heads-two", h("span", "State"), h("span", "Last beat")), h("span", "Runs")), rows), narrow ? null : h("div.lane-side", axisOf(), lane)) : h("p.pad.dim", "None. Start one: ", h("code", "holdfast worker FILE.py")));
  }

  /** Whole moments within the span that ends at `until`: each has its line, and its time above it if there is room. */
  function ticks(until) {
    const number = span < 60 ? 5 : 6, step = (span * 60_000) / number; // whole minutes
    return Array.from({ length: number }, (_, nth) => (Math.floor(until / step) - nth) * step);
  }

  function axisOf() {
    const until = now(), from = until - span * 60_000, share = (at) => `calc((100% - 8px) * ${((at - from) / (span * 60_000)).toFixed(4)})`;
    return h("div.lane-axis", ticks(until).map((tick) => (tick < until - span * 3333 && !deploys().some(({ at }) => Math.abs(at - tick) < span * 3000) ? h("span", { style: { left: share(tick) } }, minute(tick)) : null)), deploys().filter(({ at }) => at > from).map(({ at, version }) => h("span.deployed", { style: { left: share(at) } }, icon("flag"), version)));
  }

  /** Where a version was first seen, if workers of another one were there before. */
  function deploys() {
    const firsts = new Map();
    for (const each of told.workers) if (each.version) firsts.set(each.version, Math.min(firsts.get(each.version) ?? Infinity, ms(each.started_at)));
    const sorted = [...firsts].map(([version, at]) => ({ version, at })).sort((one, other) => one.at - other.at);
    return sorted.slice(1);
  }

  function drawLanes() {
    if (!width) return;
    const all = lanes(), until = now(), from = until - span * 60_000, x = (moment) => ((moment - from) / (span * 60_000)) * (width - 8), high = all.length * HIGH;
    const made = s("svg.lanes", { width, height: high, role: "img", "aria-label": `Workers of the last ${spoken(span * 60_000)}` }), newest = deploys().at(-1)?.version;
    for (const tick of ticks(until)) made.append(s("path.grid", { d: `M${Math.round(x(tick)) + 0.5} 0V${high}` }));
    for (const { at } of deploys()) if (at > from) made.append(s("path.deploy", { d: `M${Math.round(x(at)) + 0.5} 0V${high}` }));
    all.forEach((each, nth) => {
      const top = nth * HIGH + 10, bottom = top + 18, right = each.alive ? width - 8 : Math.max(x(each.to), 2), left = each.alive ? Math.max(x(each.from), 0) : Math.max(right - STUB, 0), killed = !each.alive && each.how !== "drained", old = newest && each.version !== newest ? ".old" : "";
      if (each.alive) made.append(s(`path.life${old}`, { d: `M${left} ${top}H${right}V${bottom}H${left}Z` }));
      else made.append(s("path.held", { d: `M${left} ${top + 9.5}H${right}` })); // since when it lived nobody kept
      const share = each.alive && each.limit ? (each.running ?? 0) / each.limit : 0, tall = Math.max(18 * Math.min(share, 1), share ? 1.5 : 0);
      if (tall) made.append(s(`path.load${old}`, { d: `M${left} ${bottom}V${bottom - tall}H${right}V${bottom}Z` }));
      const says = (text, at) => made.append(at + text.length * 6.4 < width ? s("text", { x: at, y: top + 13 }, text) : s("text", { x: Math.max(left - 8, 4), y: top + 13, "text-anchor": left > text.length * 6.4 ? "end" : "start" }, text));
      if (killed) {
        const wide = edge(right, top - 3, bottom + 3, { seed: hash(each.id), tooth: 4 });
        made.append(s("path.gap", { d: between(wide, moved(wide, 5)) }), s(`path.rip${each.how === "lease" ? ".ask" : ""}`, { d: line(wide) }), s("path.held", { d: `M${right - 2} ${top + 9.5}h20` }));
        says(goneWords(each, leftBy(each)), right + 24);
      } else if (!each.alive) {
        made.append(s("path.shut", { d: `M${right} ${top - 2}V${bottom + 2}` }));
        says(goneWords(each, 0), right + 10);
      } else if (each.state === "draining") made.append(s("rect.draining", { x: Math.max(right - 24, left), y: top, width: Math.min(24, right - left), height: 18 }));
    });
    swap(lane, made);
  }

  // Below

  const queuesTable = (queues) => (queues.length ? h("table.plain", { "aria-label": "Queues" }, h("thead", h("tr", ["Queue", "Due", "Oldest", "Runs", "Waits", "Workers"].map((each, nth) => h("th", { scope: "col", class: nth ? "num" : "" }, each)))),
    h("tbody", queues.map((each) => h("tr", h("td.mono", h("a", { href: path("runs", { q: `queue:${each.queue}` }) }, each.queue)), h("td.num", { class: each.due > 5 ? "ask-ink" : "" }, count(each.due ?? 0)), h("td.num", each.oldest_due_at ? age(each.oldest_due_at) : h("span.dim", "–")), h("td.num", count(each.running ?? 0)), h("td.num", count(each.waiting ?? 0)), h("td.num", serves(each.queue)))))) : h("p.dim", "nothing is queued"));
  const serves = (queue) => {
    const number = told.workers.filter((each) => !each.queues?.length || each.queues.includes(queue)).length;
    return number ? count(number) : h("span.dim", "none");
  };

  const ratesList = (rates) => (rates.length ? h("ul.rates", rates.map((each) => h("li", h("div", h("span.mono.strong", each.key)), ms(each.paused_until) !== null && ms(each.paused_until) > now() ? chip(`paused, ${seconds(ms(each.paused_until) - now())} left`, "ask", "pause") : each.waits ? chip("full") : chip("free", "kelp", "check"), h("p.dim", `${each.waits ? `${many(each.waits, "call")} wait${each.waits === 1 ? "s" : ""}` : "nobody waits"}${each.because ? ` · ${each.because}` : ""}`)))) : h("p.dim", "no rate is in use"));

  const versionsList = (versions) => (versions.length ? h("ul.rates", versions.map((each) => h("li", h("div", h("span.mono.strong", `${each.agent}${each.version ? `@${each.version}` : ""}`)), chip(many(each.runs, "run"), "stop", "warn"), h("p.dim", each.oldest_due_at ? `the oldest has been due for ${age(each.oldest_due_at)} · ` : "", h("a.link", { href: path("runs", { agent: each.agent, waits_for: "worker" }) }, "show them"))))) : h("p.dim", "every run has a worker with its code"));

  const storeList = (store) => h("ul.rates", h("li", h("div", h("span", many(store.events ?? 0, "event")), h("span.dim", ` ${store.bytes ? bytes(store.bytes) : ""}`)), chip("answers", "kelp", "check"), h("p.dim", `${many(store.runs ?? 0, "run")}${store.where ? ` · ${store.where}` : ""}`)));

  // A worker

  async function drawWorker() {
    const live = told.workers.find((each) => each.id === worker), gone = told.lost.find((each) => each.id === worker), each = live ? { ...live, alive: true } : gone ? { ...gone, alive: false, to: ms(gone.at) } : null;
    const runs = live ? await read(path("api", "runs", { status: "running", limit: 200, order: "updated" })) : null;
    if (closed) return;
    const carried = runs?.ok ? runs.data.runs.filter((run) => run.worker === worker) : [];
    swap(element,
      h("div.head", h("div", h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "fleet" }, "Fleet"), icon("right"), h("span", "Worker")), h("h1.mono", worker)), each ? h("div.acts", state(each)) : null),
      !each ? h("section.panel.small-panel", h("p.strong", "No worker of the last day has this name."), h("p.dim", "Workers that are gone are kept here for a day. Runs that it carried name it in their journals.")) : h("dl.panel.numbers.of-one",
        fact("Version", each.version ?? "–", each.agents?.length ? each.agents.map((agent) => (typeof agent === "string" ? agent : agent.name)).join(", ") : ""), live ? fact("Runs", `${count(live.running ?? 0)}`, live.limit ? `of ${count(live.limit)}` : "") : fact("Left", count((gone.moved ?? 0) + (leftBy(gone) ?? 0)), goneWords(gone, leftBy(gone)).split("; ").at(-1)),
        live ? fact("Last beat", `${age(live.seen_at)} ago`, `began ${age(live.started_at)} ago`) : fact("Gone", clock(gone.at), gone.how === "dead" ? "its lock was free: the process was dead" : gone.how === "lease" ? "its lease ended: it did not answer" : "it drained and left"), fact("Queues", (each.queues ?? ["default"]).join(", ") || "all", live?.steps_1m == null ? "" : `${count(live.steps_1m)} steps in a minute`)),
      live ? h("section.panel.small-panel", h("header.sub", h("h2", "Carries now"), h("span.dim", many(carried.length, "run"))), carried.length ? h("ul.rates", carried.map((run) => h("li", h("div", runLink(run.id), " ", sentence(happens(run))), standing(stands(run))))) : h("p.dim", "nothing")) : null,
      h("section.panel.small-panel", h("h2", "Its last words"), h("p.dim", "are in its own log, where its process ran. The store keeps what runs did, not what processes printed.")));
  }
  const fact = (name, value, under) => h("div.number", h("div", h("dt", name), h("dd", value), h("dd.under.dim", under)));

  return {
    element,
    changed(next) {
      worker = next.params.worker;
      context.title(worker ?? "");
      if (told) draw();
      return true;
    },
    close() {
      closed = true;
      clearTimeout(timer);
      watch?.disconnect();
    },
  };
}

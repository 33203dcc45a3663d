// Schedules and triggers: what begins by itself, when next, what it began last; paused, resumed, begun by hand.

import { h, path, swap } from "../dom.js";
import { read, write } from "../api.js";
import { ask, button, chip, ghosts, problem, runLink, standing, toast } from "../parts.js";
import { age, count, exact, left, many, moment, soon, spoken } from "../say.js";
import { may } from "../store.js";

export function open(context) {
  const times = h("section.panel.schedules", ghosts(4));
  const doors = h("section.panel.schedules", ghosts(3));
  const wrong = h("div");
  const element = h("div", h("div.head", h("div.head-line", h("h1", "Schedules and triggers"), h("p.dim", "what starts agents by itself"))), wrong, times, doors);

  const act = async (where, what, done) => {
    const answer = await write(where);
    swap(wrong, !answer.ok && problem(answer.error));
    if (answer.ok) toast(done(answer.data));
    fill();
  };
  const fill = async () => {
    const [schedules, triggers] = await Promise.all([read("api/schedules"), read("api/triggers")]);
    swap(times, schedules.ok ? drawTimes(schedules.data.schedules, act) : problem(schedules.error, fill));
    swap(doors, triggers.ok ? drawDoors(triggers.data.triggers ?? [], act) : problem(triggers.error, fill));
  };
  fill();
  const timer = setInterval(() => document.hidden || element.contains(document.activeElement) || fill(), 10_000);
  return { element, close: () => clearInterval(timer) };
}

function drawTimes(schedules, act) {
  const head = h("header.sub.pad", h("h2", "Schedules"), h("span.dim", schedules.length ? many(schedules.length, "schedule") : "none"));
  if (!schedules.length) return [head, h("p.pad.dim", "An agent with ", h("code", 'schedule="0 7 * * mon-fri"'), " begins by itself; so does what ", h("code", "hf.schedule(…)"), " made.")];
  return [head, h("div.scrolls", h("table.plain.wide-table", h("thead", h("tr", ["Schedule", "Times", "Next", "Last", "Begun", ""].map((each, at) => h("th", { scope: "col", class: at === 4 ? "num" : "" }, each)))),
    h("tbody", schedules.map((each) => h("tr", { data: { row: each.name }, tabIndex: 0 },
      h("td", h("span.strong", each.name), h("p.dim", h("a", { href: path("agents", each.agent) }, each.agent), each.declared ? ", by its code" : ", by a person")),
      h("td", h("code", each.times), optionsOf(each).map((option) => h("p.dim", option))),
      h("td", each.state === "paused" ? chip("paused", "stop", "pause") : each.state === "retired" ? chip("retired") : each.problem ? h("span.stop-ink", { title: each.problem }, "not known here") : each.next.length ? [h("span", { title: each.next.map(exact).join("\n") }, soon(each.next[0])), h("p.dim", `in ${left(each.next[0])}`)] : h("span.dim", "never")),
      h("td", each.last_run ? [runLink(each.last_run), h("p.dim", each.last_status ? standing(each.last_status) : "deleted", ` ${age(each.last_at)} ago`)] : h("span.dim", "not yet")),
      h("td.num", count(each.begun), each.waiting > 0 && h("p.stop-ink", `${count(each.waiting)} waiting`), each.missed > 0 && h("p.dim", `${count(each.missed)} missed`)),
      h("td.acts-cell", may("write") && each.state !== "retired" && h("div.row-acts",
        each.state === "paused" ? button("Resume", { kind: "small", name: "play", onclick: () => act(path("api", "schedules", each.name, "resume"), "resume", () => `${each.name} begins runs again`) }) : button("Pause", { kind: "small", name: "pause", onclick: () => act(path("api", "schedules", each.name, "pause"), "pause", () => `${each.name} begins no more runs`) }),
        button("Begin now", { kind: "small", name: "bolt", onclick: () => act(path("api", "schedules", each.name, "trigger"), "trigger", (data) => `begun: ${data.runs.join(", ") || "nothing"}`) })))))))) ];
}

/** What is declared beside the times, where it is not as ever. */
function optionsOf(each) {
  return [each.overlap !== "skip" && `overlap: ${each.overlap}`, each.catch_up !== "last" && `catch up: ${each.catch_up}`, each.jitter_s > 0 && `jitter: ${spoken(each.jitter_s * 1000)}`].filter(Boolean);
}

function drawDoors(triggers, act) {
  const rows = triggers.filter((each) => each.kind !== "schedule");
  const head = h("header.sub.pad", h("h2", "Triggers"), h("span.dim", rows.length ? many(rows.length, "trigger") : "none"));
  if (!rows.length) return [head, h("p.pad.dim", "Webhooks, queues, files and announcements that start agents appear here once a worker has their code.")];
  return [head, h("div.scrolls", h("table.plain.wide-table", h("thead", h("tr", ["Trigger", "Kind", "Last", "Waiting", "Dead", "Done, 30 d", ""].map((each, at) => h("th", { scope: "col", class: at > 2 && at < 6 ? "num" : "" }, each)))),
    h("tbody", rows.map((each) => h("tr", { data: { row: each.name }, tabIndex: 0 },
      h("td", h("span.strong", each.name), each.workers === 0 && h("p.stop-ink", "no worker has its code")),
      h("td", each.kind), h("td", each.last_at ? h("span", { title: moment(each.last_at) }, `${age(each.last_at)} ago`) : h("span.dim", "nothing came yet")),
      h("td.num", count(each.waiting + (each.lag_messages ?? 0)), each.waiting > 0 && each.lag_s > 1 && h("p.dim", `for ${spoken(each.lag_s * 1000)}`)),
      h("td.num", each.dead ? h("span.bad-ink", count(each.dead)) : h("span.dim", "–")), h("td.num", count(each.done + (each.messages ?? 0))),
      h("td.acts-cell", each.dead > 0 && h("div.row-acts", button("Look…", { kind: "small", onclick: () => dead(each, act) })))))))) ];
}

async function dead(trigger, act) {
  const answer = await read(path("api", "triggers", trigger.name, "deliveries", { status: "dead", limit: 50 }));
  const items = answer.ok ? answer.data.deliveries.filter((each) => each.status === "dead") : [];
  const yes = await ask({
    title: `${many(trigger.dead, "dead delivery", "dead deliveries")} of ${trigger.name}`,
    body: [answer.ok ? h("ul.refusals", items.map((each) => h("li", h("span.mono", each.id), h("span.dim", `${age(each.received_at)} ago: ${each.error ?? "no reason"}`)))) : problem(answer.error)],
    yes: may("write") ? "Try all again" : "Close", no: may("write") ? "Back" : null, does: () => true,
  });
  if (yes && may("write")) act(path("api", "triggers", trigger.name, "replay"), "replay", () => "they are tried again");
}

// What begins by itself and who is told: schedules, triggers, notifications; how they stand, and what can be done to each.

import { h, path, swap } from "../dom.js";
import { read, write } from "../api.js";
import { ask, button, chip, ghosts, problem, runLink, standing, toast } from "../parts.js";
import { age, bytes, count, exact, left, many, moment, ms, now, soon, spoken } from "../say.js";
import { may } from "../store.js";
import { cut, distinct } from "../text.js";

const WHY = 10; // triggers whose last error is read

export function open(context) {
  const times = h("section.panel.schedules", ghosts(4)), doors = h("section.panel.schedules", ghosts(3)), told = h("section.panel.schedules", ghosts(2)), wrong = h("div");
  const element = h("div", h("div.head", h("div.head-line", h("h1", "Schedules and triggers"), h("p.dim", "what starts agents by itself, and who is told of what they do"))), wrong, times, doors, told);

  const act = async (where, done, body) => {
    const answer = await write(where, body);
    swap(wrong, !answer.ok && problem(answer.error));
    if (answer.ok) toast(done(answer.data));
    fill();
  };
  const look = async (of, each, title) => {
    const replayed = await deliveries(of, each.name, title);
    if (replayed !== null) toast(replayed === 1 ? "1 is tried again" : `${count(replayed)} are tried again`);
    fill();
  };
  const fill = async () => {
    const [schedules, triggers, notifications] = await Promise.all([read("api/schedules"), read("api/triggers"), read("api/notifications")]);
    const rows = triggers.ok ? triggers.data.triggers.filter((each) => each.kind !== "schedule") : [];
    const { name } = context.params, here = [...(schedules.data?.schedules ?? []), ...rows, ...(notifications.data?.notifications ?? [])];
    if (name && schedules.ok && triggers.ok && notifications.ok && !here.some((each) => each.name === name)) swap(wrong, problem({ code: "unknown_schedule", message: `There is no schedule, trigger or notification ${name}.`, hint: "" }));
    swap(times, schedules.ok ? drawTimes(schedules.data.schedules, act) : problem(schedules.error, fill));
    swap(doors, triggers.ok ? drawDoors(rows, await errorsOf(rows), look) : problem(triggers.error, fill));
    swap(told, notifications.ok ? drawTold(notifications.data.notifications, act, look) : problem(notifications.error, fill));
  };
  fill();
  const timer = setInterval(() => document.hidden || element.contains(document.activeElement) || document.querySelector("dialog[open]") || fill(), 10_000);
  return { element, close: () => clearInterval(timer) };
}

/** Why what waits or is dead has failed, by trigger. */
async function errorsOf(triggers) {
  const found = new Map(), troubled = triggers.filter((each) => each.waiting || each.dead).slice(0, WHY);
  await Promise.all(troubled.map(async ({ name, dead }) => {
    const answer = await read(path("api", "triggers", name, "deliveries", { status: dead ? "dead" : "new", limit: 1 }));
    if (answer.ok && answer.data.deliveries[0]?.error) found.set(name, answer.data.deliveries[0].error);
  }));
  return found;
}

/** A table whose rows are cards on a phone, where each cell says what it is. */
const listed = (heads, rows) => h("table.plain.wide-table", h("thead", h("tr", heads.map(([head, kind]) => h("th", { scope: "col", class: kind }, head)))),
  h("tbody", rows.map(([name, ...cells]) => h("tr", { data: { row: name }, tabIndex: 0 }, cells.map((cell, nth) => h("td", { class: heads[nth][1], data: { head: heads[nth][0] } }, cell))))));
const none = (text = "–") => h("span.dim", text);
const acts = (...made) => h("div.row-acts", made);

function drawTimes(schedules, act) {
  const head = h("header.sub.pad", h("h2", "Schedules"), h("span.dim", schedules.length ? many(schedules.length, "schedule") : "none"));
  if (!schedules.length) return [head, h("p.pad.dim", "An agent with ", h("code", 'schedule="0 7 * * mon-fri"'), " begins by itself; so does what ", h("code", "hf.schedule(…)"), " made.")];
  return [head, listed([["Schedule"], ["Times"], ["Next"], ["Last"], ["Begun", "num"], ["", "acts-cell"]], schedules.map((each) => [each.name,
    [h("span.strong", each.name), h("p.dim", h("a", { href: path("agents", each.agent) }, each.agent), each.declared ? ", by its code" : ", by a person")],
    [h("code", each.times), optionsOf(each).map((option) => h("p.dim", option))],
    each.state === "paused" ? chip("paused", "stop", "pause") : each.state === "retired" ? chip("retired") : each.problem ? h("span.stop-ink", each.problem) : each.next.length ? [h("span", { title: each.next.map(exact).join("\n") }, soon(each.next[0])), h("p.dim", `in ${left(each.next[0])}`)] : none("never"),
    each.last_run ? [runLink(each.last_run), h("p.dim", each.last_status ? standing(each.last_status) : "deleted", ` ${age(each.last_at)} ago`)] : none("not yet"),
    [count(each.begun), each.waiting > 0 && h("p.stop-ink", `${count(each.waiting)} waiting`), each.missed > 0 && h("p.dim", `${count(each.missed)} missed`)],
    may("write") && each.state !== "retired" && acts(
      each.state === "paused" ? button("Resume", { kind: "small", name: "play", onclick: () => act(path("api", "schedules", each.name, "resume"), () => `${each.name} begins runs again`) }) : button("Pause", { kind: "small", name: "pause", onclick: () => act(path("api", "schedules", each.name, "pause"), () => `${each.name} begins no more runs`) }),
      button("Begin now", { kind: "small", name: "bolt", onclick: () => act(path("api", "schedules", each.name, "trigger"), (data) => `begun: ${data.runs.join(", ") || "nothing"}`) })),
  ]))];
}

/** What is declared beside the times, where it is not as ever. */
function optionsOf(each) {
  return [each.overlap !== "skip" && `overlap: ${each.overlap}`, each.catch_up !== "last" && `catch up: ${each.catch_up}`, each.jitter_s > 0 && `jitter: ${spoken(each.jitter_s * 1000)}`].filter(Boolean);
}

const lately = (at, otherwise) => (at ? h("span", { title: moment(at) }, `${age(at)} ago`) : none(otherwise));
const behind = (waiting, each) => [count(waiting), each.waiting > 0 && each.lag_s > 1 && h("p.dim", `for ${spoken(each.lag_s * 1000)}`)];
const dead = (each) => (each.dead ? h("span.bad-ink", count(each.dead)) : none());

function drawDoors(triggers, errors, look) {
  const head = h("header.sub.pad", h("h2", "Triggers"), h("span.dim", triggers.length ? many(triggers.length, "trigger") : "none"));
  if (!triggers.length) return [head, h("p.pad.dim", "Webhooks, queues, files and announcements that start agents appear here once a worker has their code.")];
  return [head, listed([["Trigger"], ["Kind"], ["Last"], ["Waiting", "num"], ["Dead", "num"], ["Done, 30 d", "num"], ["", "acts-cell"]], triggers.map((each) => [each.name,
    [h("span.strong", each.name), each.workers === 0 && h("p.stop-ink", "no worker has its code"), each.away_workers > 0 && h("p.stop-ink", `${many(each.away_workers, "worker")} cannot reach its broker, for ${age(each.away_since)}: ${each.away_error}`), errors.has(each.name) && h("p.bad-ink", errors.get(each.name))],
    each.kind, lately(each.last_at, "nothing came yet"), behind(each.waiting + (each.lag_messages ?? 0), each), dead(each), count(each.done + (each.messages ?? 0)),
    (each.last_at || each.dead > 0) && acts(button("Deliveries…", { kind: "small", onclick: () => look("triggers", each, `What came for ${each.name}`) })),
  ]))];
}

function drawTold(notifications, act, look) {
  const head = h("header.sub.pad", h("h2", "Notifications"), h("span.dim", notifications.length ? many(notifications.length, "notification") : "none"));
  if (!notifications.length) return [head, h("p.pad.dim", h("code", "hf.notify(…)"), " and ", h("code", "holdfast notify"), " have a web address, a chat or a mailbox told of what happens.")];
  const at = (each, ...more) => path("api", "notifications", each.name, ...more);
  return [head, listed([["Notification"], ["Of"], ["Last"], ["Waiting", "num"], ["Dead", "num"], ["Sent, 30 d", "num"], ["", "acts-cell"]], notifications.map((each) => [each.name,
    [h("span.strong", each.name), each.state === "paused" && [" ", chip("paused", "stop", "pause")], h("p.dim", each.url)],
    [h("span", each.kinds.join(", ")), (each.agent || Object.keys(each.labels).length > 0) && h("p.dim", [each.agent, ...Object.entries(each.labels).map((pair) => distinct(pair.join("=")))].filter(Boolean).join(", "))],
    lately(each.last_at, "not yet"), behind(each.waiting, each), dead(each), count(each.done),
    acts(may("write") && [
      each.state === "paused" ? button("Resume", { kind: "small", name: "play", onclick: () => act(at(each, "resume"), () => `${each.name} is told again`) }) : button("Pause", { kind: "small", name: "pause", onclick: () => act(at(each, "pause"), () => `${each.name} is told nothing`) }),
      button("Test", { kind: "small", name: "send", onclick: () => act(at(each, "test"), () => `a message is on its way to ${each.name}`) })],
    button("Messages…", { kind: "small", onclick: () => look("notifications", each, `What went out to ${each.name}`) })),
  ]))];
}

// What came for a trigger, or went out to somebody: each with what became of it, its body, and what can be done about it.

const LONGEST = 20_000, MOST = 50;
const LOOKS = { dead: ["dead", "bad", "cross"], new: ["waits", "ask", "clock"], done: ["done", "kelp", "check"] };

/** What was done about a delivery, in the command line's words. */
function done(did) {
  if (did.start) return [did.was_there ? "was there: " : "started: ", runLink(did.start)];
  if (did.send) return [`sent ${did.topic} to `, runLink(did.send)];
  if (did.decide) return `decided ${did.decide} for ${did.by}`;
  return "gather" in did ? "gathered with others" : "";
}

/** Show them in a dialog. `of` is "triggers" or "notifications"; what is dead stands first. */
async function deliveries(of, name, title) {
  const list = h("ul.refusals.deliveries"), wrong = h("div");
  const fill = async () => {
    const [dead, all] = await Promise.all(["dead", null].map((status) => read(path("api", of, name, "deliveries", { status, limit: MOST }))));
    if (!dead.ok || !all.ok) return void swap(list, problem((dead.error ?? all.error), fill));
    const items = [...dead.data.deliveries, ...all.data.deliveries.filter((each) => each.status !== "dead")].slice(0, MOST);
    swap(list, items.length ? items.map(item) : h("li", h("p.dim", of === "triggers" ? "Nothing came so far." : "Nothing went out so far.")));
  };
  const act = async (verb, body) => {
    const answer = await write(path("api", of, name, verb), body);
    swap(wrong, !answer.ok && problem(answer.error));
    return fill();
  };

  function item(each) {
    const again = of === "triggers" ? { delivery: each.id } : { id: each.id }, due = ms(each.due_at) > now() ? `, again in ${left(each.due_at)}` : "";
    const isDismissed = each.status === "done" && each.error, [word, look, sign] = isDismissed ? ["let be", "", ""] : LOOKS[each.status];
    return h("li", h("div.delivery", chip(word, look, sign), h("span.mono.cut", { title: each.id }, each.id), h("span.dim.nowrap", `${age(each.received_at)} ago`)),
      each.error ? h("p.bad-ink", each.error) : null,
      each.attempts ? h("p.dim", `failed ${many(each.attempts, "time")}${each.status === "new" ? due : ""}`) : null,
      each.outcome.map((did) => h("p.dim", done(did))),
      of === "triggers" ? body(each) : null,
      each.status === "dead" && may("write") ? h("div.row-acts", of === "triggers" ? button("Dismiss", { kind: "small", title: "Let it be: nothing is done about it", onclick: () => act("dismiss", { delivery: each.id }) }) : null, button("Try again", { kind: "small", name: "again", onclick: () => act("replay", again) })) : null);
  }

  const body = (each) => h("details", { ontoggle: async (event) => {
    const place = event.target.querySelector("pre");
    if (!event.target.open || place.textContent) return;
    const found = await read(path("api", of, name, "deliveries", each.id));
    swap(place, found.ok ? `${Object.entries(found.data.headers).map(([key, value]) => `${key}: ${value}\n`).join("")}\n${cut(found.data.body, LONGEST)}` : found.error.message);
  } }, h("summary.dim", `what came, ${bytes(each.size)}`), h("pre"));

  fill();
  const all = of === "triggers" && may("write");
  const yes = await ask({ title, body: [wrong, list], yes: all ? "Try all that are dead again" : "Close", no: all ? "Close" : null, kind: all ? "" : "primary", does: async () => {
    const answer = all ? await write(path("api", of, name, "replay"), { dead: true }) : { ok: true };
    if (!answer.ok) swap(wrong, problem(answer.error));
    return answer.ok && { replayed: answer.data?.replayed ?? null };
  } });
  return yes?.replayed ?? null;
}

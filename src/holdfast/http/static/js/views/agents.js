// Agents: what workers have published, and a form that starts one.

import { h, path, swap } from "../dom.js";
import { read, write } from "../api.js";
import { form } from "../form.js";
import { write as json } from "../json.js";
import { button, copied, ghosts, icon, problem, toast } from "../parts.js";
import { blind, command, count, dollars, spoken } from "../say.js";
import { get, has, may } from "../store.js";
import { span } from "../time.js";
import { styled } from "../sheets.js";

export function open(context) {
  let { params } = context;
  let agents = [];
  const list = h("section.panel.agents", ghosts(5));
  const side = h("div.start-place");
  const element = h("div", h("div.head", h("div.head-line", h("h1", "Agents"), h("p.dim", "what workers have published; nothing is configured here")), h("div.acts", may("all") && (has("schedules") || has("triggers")) && button("Schedules and triggers", { name: "clock", href: "schedules" }))), h("div.agents-two", list, side));

  const fill = async () => {
    if (!may("read")) return draw();
    const answer = await read("api/agents");
    if (!answer.ok) return swap(list, problem(answer.error, fill));
    agents = answer.data.agents;
    draw();
  };
  // Whoever may not read starts an agent by its name.
  const unlisted = () => {
    const name = h("input.text.mono", { "aria-label": "Agent", value: params.name ?? "" });
    swap(list, h("form.start", { onsubmit: (event) => { event.preventDefault(); if (name.value.trim()) context.go(path("agents", name.value.trim())); } }, h("p.dim", `${blind(get("me"))} Name an agent to start a run of it.`), name, button("Choose", { type: "submit" })));
    swap(side, params.name && starter({ name: params.name, schema: { type: "object" }, served: true }, context));
  };
  const draw = () => {
    if (!may("read")) return unlisted();
    if (!agents.length) {
      swap(list, h("div.empty", h("h2", "No worker has published an agent"), h("p.dim", "Start one beside your code:"), h("pre", "holdfast worker FILE.py")));
      return swap(side);
    }
    const chosen = agents.find((each) => each.name === params.name || (!params.name && agents.length === 1)) ?? null;
    const numbers = agents.some((each) => each.day);
    swap(list, h("table.plain.agents-table", { "aria-label": "Agents" },
      h("thead", h("tr", h("th", { scope: "col" }, "Agent"), h("th", { scope: "col" }, "Served"), h("th.only-wide", { scope: "col" }, "Takes"), numbers && [h("th.num", { scope: "col" }, "Runs, 1 d"), h("th.num", { scope: "col" }, "Failed"), h("th.num.only-wide", { scope: "col" }, "Median"), h("th.num.only-wide", { scope: "col" }, "A run costs")])),
      h("tbody", agents.map((each) => h("tr", { class: each === chosen ? "chosen" : "", data: { row: each.name }, tabIndex: 0, onclick: (event) => { if (!event.target.closest("a")) context.go(path("agents", each.name)); } },
        h("td", h("a.mono.strong", { href: path("agents", each.name) }, each.name), each.version && h("span.dim", `@${each.version}`), !each.served && h("p.stop-ink", "no worker serves it now")),
        h("td", each.served ? h("span.kelp-ink.nowrap", "by live workers") : h("span.dim", "not now"), each.versions.length > 1 && h("p.dim", `versions ${each.versions.join(", ")}`)),
        h("td.only-wide.dim.mono.takes", takes(each.schema)),
        numbers && [h("td.num", count(each.day?.runs ?? 0)), h("td.num", each.day?.failed ? h("span.bad-ink", count(each.day.failed)) : h("span.dim", "–")), h("td.num.only-wide", each.day?.median_ms ? spoken(each.day.median_ms) : h("span.dim", "–")), h("td.num.only-wide", each.day?.usd ? dollars(each.day.usd) : h("span.dim", "–"))])))));
    swap(side, chosen ? starter(chosen, context) : params.name ? problem({ code: "unknown_agent", message: `There is no agent ${params.name}.`, hint: "No worker has published it." }) : h("section.panel.start", h("p.dim", may("write") ? "Choose an agent to start a run of it." : "Your token may look and not start.")));
    if (chosen) context.title(chosen.name);
  };
  fill();
  // What was typed is nowhere but in the page, because it may be a secret: so who leaves is asked.
  const leaving = (event) => side.querySelector("form[data-typed]") && event.preventDefault();
  addEventListener("beforeunload", leaving);
  const timer = setInterval(() => document.hidden || !may("read") || fillQuietly(), 15_000);
  const fillQuietly = async () => {
    const answer = await read("api/agents");
    if (answer.ok && JSON.stringify(answer.data.agents) !== JSON.stringify(agents) && !side.contains(document.activeElement) && !side.querySelector("form[data-typed]")) {
      agents = answer.data.agents;
      draw();
    }
  };
  return { element: styled(element, "questions"), close() { clearInterval(timer); removeEventListener("beforeunload", leaving); }, redraw: () => true, changed(next) { params = next.params; draw(); return true; } };
}

const takes = (schema) => Object.keys(schema.properties ?? {}).join(", ") || "nothing";

function starter(agent, context) {
  const writes = may("write");
  let said = {};
  const id = h("input.text.mono", { id: "start-id", value: offered(agent.name), autocomplete: "off", spellcheck: "false", autocapitalize: "none" });
  const taken = h("p.hint");
  const usd = h("input.text.short", { inputmode: "decimal", placeholder: "USD", "aria-label": "Budget in dollars" });
  const wall = h("input.text.short", { placeholder: "time, 2h", "aria-label": "Budget of time" });
  const labels = h("input.text.mono", { id: "start-labels", placeholder: "name=value, …", autocomplete: "off", spellcheck: "false" });
  const wrong = h("div");
  const shown = h("pre");
  const tell = () => {
    const { value } = fields.read({ typing: true });
    said = value ?? {};
    swap(shown, ["holdfast start", command(agent.name), ...Object.entries(said).map(([key, each]) => `--arg ${command(`${key}=${typeof each === "string" ? each : json(each)}`)}`), id.value.trim() && `--id ${command(id.value.trim())}`, ...Object.entries(named(labels.value)).map(([key, each]) => `--label ${command(`${key}=${each}`)}`), budget() && `--budget ${command(Object.entries(budget()).map(([key, each]) => `${key}=${each}`).join(","))}`].filter(Boolean).join(" \\\n  "),
      `\n\ncurl ${command(new URL("api/runs", document.baseURI).href)} -H "Authorization: Bearer $TOKEN" \\\n  --json ${command(json(body()))}`);
  };
  const budget = () => (usd.value.trim() || wall.value.trim() ? { ...(usd.value.trim() && { usd: Number(usd.value) }), ...(wall.value.trim() && { wall: wall.value.trim() }) } : null);
  const body = () => ({ agent: agent.name, kwargs: said, ...(id.value.trim() && { id: id.value.trim() }), ...(labels.value.trim() && { labels: named(labels.value) }), ...(budget() && { budget: budget() }) });
  const fields = form(agent.schema, undefined, { layout: "stacked", label: `Arguments of ${agent.name}`, changed: () => tell() });
  let asking = 0;
  id.addEventListener("input", () => {
    tell();
    clearTimeout(asking);
    asking = setTimeout(async () => {
      const typed = id.value.trim();
      swap(taken);
      if (!typed || !may("read")) return;
      if (!/^[\w.:@-]{1,200}$/.test(typed)) return swap(taken, h("span.bad-ink", "An id has letters, digits and . : @ _ - only, at most 200."));
      const answer = await read(path("api", "runs", typed));
      if (answer.ok && id.value.trim() === typed) swap(taken, h("span.ask-ink", "There is a run with this id. The same arguments are the same run, others are refused."));
    }, 300);
  });
  for (const each of [usd, wall, labels]) each.addEventListener("input", tell);
  const start = button("Start", { name: "play", kind: "primary", type: "submit" });
  const element = h("form.panel.start", { "aria-label": `Start ${agent.name}`, novalidate: true, oninput: () => { element.dataset.typed = "1"; }, onsubmit: async (event) => {
    event.preventDefault();
    swap(wrong);
    const { value, errors } = fields.read();
    said = value ?? {};
    if (usd.value.trim() && !(Number(usd.value) > 0)) errors.push({ path: ["budget"], message: "a budget is a number of dollars above 0" });
    if (wall.value.trim() && span(wall.value) === null) errors.push({ path: ["budget"], message: "a time is written 2h, 30m or 5 days" });
    if (errors.length) {
      const left = fields.show(errors);
      if (left.length) swap(wrong, problem({ code: "bad_arguments", message: left[0].message }));
      return;
    }
    start.disabled = true;
    const answer = await write("api/runs", body());
    start.disabled = false;
    if (answer.ok && !may("read")) return toast(`${answer.data.run.id} was started`);
    if (answer.ok) return context.go(path("runs", answer.data.run.id));
    const at = answer.error.details?.path ?? guess(answer.error.message, agent.schema);
    const left = at ? fields.show([{ path: at.filter((each) => each !== "kwargs"), message: answer.error.message }]) : [answer.error];
    if (left.length) swap(wrong, problem(answer.error));
  } },
  h("header.sub", h("h2", "Start ", h("code", agent.name)), agent.version && h("span.dim", `version ${agent.version}`)),
  agent.schema.description && h("p.dim", agent.schema.description),
  !agent.served && h("p.stop-ink", icon("warn"), " No worker serves it now; the run waits for one."),
  writes && [!agent.schema.properties && h("p.dim", "Its arguments as JSON, each under its name: ", h("code", '{"topic": "otters"}')), fields.element, h("div.start-more",
    h("div.start-field", h("label", { for: "start-id" }, h("span.strong", "id")), id, taken),
    h("div.start-field", h("label", { for: "start-labels" }, h("span.strong", "labels")), labels),
    h("div.start-field", h("label", h("span.strong", "budget")), h("div.budget", usd, wall))),
  h("details.as", h("summary", "As a command"), shown, h("button.link", { onclick: () => copied(shown.textContent, "The command") }, "copy")), wrong,
  h("footer", h("span.dim", `${get("me").name} starts it, the audit says so`), start)],
  !writes && h("p.dim", "Your token may look and not start."));
  if (writes) tell();
  return element;
}

const offered = (name) => `${name.replace(/[^\w.:@-]/g, "_")}-${Math.random().toString(36).slice(2, 8)}`;
const named = (text) => Object.fromEntries(text.split(",").map((each) => each.trim()).filter(Boolean).map((each) => [each.split("=")[0].trim(), each.split("=").slice(1).join("=").trim()]));
const guess = (message, schema) => Object.keys(schema.properties ?? {}).filter((key) => new RegExp(`(^|[^\\w])${key.replace(/\W/g, "\\$&")}([^\\w]|$)`).test(message)).slice(0, 1).map((key) => [key])[0] ?? null;

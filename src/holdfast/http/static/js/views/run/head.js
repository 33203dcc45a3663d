// The head of a run: whose it is, how it stands, what one can do to it, six facts, and what went wrong.

import { read, write } from "../../api.js";
import { h, path, swap } from "../../dom.js";
import { write as json } from "../../json.js";
import { ask, button, choice, copied, copier, folded, icon, menu, meter, pieces, problem, runLink, sentence, standing, toast } from "../../parts.js";
import { age, clock, command, count, day, dollars, exact, FINISHED, happens, lastSign, lived, many, minute, ms, now, progress as far, refusal, rested, spoken, stands, takesOver, worker as workerName } from "../../say.js";
import { get, has, may } from "../../store.js";
import { planOf } from "./details.js";
import { ambiguous, parsed, sentAs } from "./message.js";

const SAMPLES = 20; // then how long is left can be told

/** The head, with draw() and the actions that keys begin. */
export function head(model, acts) {
  const element = h("header.run-head"), crumbs = h("nav.crumbs", { "aria-label": "Path" }), title = h("div.run-title"), list = h("dl.run-facts"), box = h("div.run-box");
  const says = h("span.run-says.cut"), state = h("span.run-state"), buttons = h("div.acts");
  let drawn = "", boxed = "", estimate = null, told = [], mine = null, looked = "";
  swap(element, crumbs, title, list, box);

  function draw() {
    const { info, journal } = model, from = [info, journal.plan, journal.progress, model.known, model.whole, model.outline, Math.floor(model.now() / 1000)];
    if (!info || from.every((each, nth) => each === told[nth])) return; // only events came, of which the head does not tell
    told = from;
    decidable();
    const now = `${info.id} ${info.status} ${info.stopping} ${info.parent} ${info.root} ${get("me")?.scopes} ${mine}`;
    if (drawn !== now) {
      drawn = now;
      swap(crumbs, h("a", { href: "runs" }, "Runs"), icon("right"),
        info.root && info.root !== info.id ? [runLink(info.root), icon("right")] : null, info.parent && info.parent !== info.root ? [runLink(info.parent), icon("right")] : null,
        h("a", { href: path("runs", { agent: info.agent }) }, info.agent, info.version ? h("span.dim", `@${info.version}`) : null));
      swap(title, h("h1.mono", info.id), copier(info.id, "Copy the id"), state, says, buttons);
      swap(buttons, actions());
    }
    swap(state, standing(stands(info)));
    swap(says, info.status === "failed" ? null : sentence(happens(info))); // the box below has the whole error
    swap(list, facts());
    drawBox();
  }

  /** Look for a question of the run that this person may decide, when one is asked or decided. */
  async function decidable() {
    const { info } = model, now = may("decide") && (info.waits_for === "person" || info.doing?.kind === "question") ? `${info.updated_at} ${info.doing?.since}` : "";
    if (now === looked) return;
    looked = now;
    const answer = now && (await read(path("api", "approvals", { run: info.id, mine: true, limit: 1 })));
    if (now !== looked) return;
    mine = answer?.data?.approvals?.[0]?.id ?? null;
    told = [];
    draw();
  }

  // What one can do

  function actions() {
    const { info } = model, made = [], why = FINISHED.has(info.status) ? `it is ${info.status}` : null;
    const act = (text, name, does, refused) => button(text, { name, onclick: refused ? undefined : does, disabled: Boolean(refused), title: refused ?? undefined });
    if (mine) made.push(button("Decide", { name: "person", kind: "primary", href: path("approvals", mine) }));
    if (may("write")) {
      if (info.status === "paused") made.push(act("Resume", "play", resume));
      else if (info.status === "failed") made.push(act("Retry…", "again", retry));
      else made.push(act("Pause", "pause", pause, why ?? (info.stopping ? `it is ${info.stopping} already` : null)));
      made.push(act("Send…", "send", send, why), ...(has("forks") ? [act("Fork…", "fork", () => fork())] : []), act("Cancel…", "stop", cancel, why));
    }
    const more = button("", { name: "more", kind: "square", title: "More", onclick: () => menu(more, [
      ["Export as a file", path("api", "runs", info.id, "bundle")],
      ["Copy as a command", () => copied(command("holdfast", "show", info.id), "The command")],
      ["Copy as Markdown", () => acts.markdown()],
      ["Open as JSON", path("api", "runs", info.id)],
      ...(may("write") && has("deletion") ? [null, ["Delete…", remove, { danger: true, said: FINISHED.has(info.status) ? "" : " when it is over" }]] : []),
    ]) });
    return [...made, h("div.menu-at", more)];
  }

  async function done(answer, text) {
    if (answer.error?.code === "unknown") model.soon(0);
    if (!answer.ok) return ask({ title: answer.error.code === "unknown" ? "No answer" : "It was refused", body: [problem(answer.error)], yes: "Close", no: null });
    if (answer.data?.run?.id === model.id) model.told({ run: answer.data.run });
    toast(text);
    draw();
    model.soon(0);
  }

  const pause = async () => done(await write(model.url("pause"), {}), `${model.id} pauses at its next safe point`);
  const resume = async () => done(await write(model.url("resume"), {}), `${model.id} goes on`);

  async function retry() {
    const spent = model.info.budget && /BudgetExceeded/.test(model.info.error), usd = h("input.text", { inputmode: "decimal", "aria-label": "Budget in dollars" });
    const reason = await ask({ title: `Retry ${model.id}?`, body: [h("p", "It goes on from its failure: what was done before stays done, and the step that failed runs again."), model.info.failure || model.info.error ? h("p.bad-ink", model.info.error) : null, spent && h("label", "Another budget in dollars", usd)], yes: "Retry", does: () => true });
    if (reason) done(await write(model.url("retry"), usd.value.trim() ? { budget: { usd: Number(usd.value) } } : {}), `${model.id} goes on from its failure`);
  }

  async function cancel() {
    const children = [...model.children.values()].filter((run) => !FINISHED.has(run.status)).length;
    const reason = h("input.text", { "aria-label": "Reason", placeholder: "Reason; it is shown and kept" });
    const sure = await ask({ title: `Cancel ${model.id}?`, kind: "danger", yes: "Cancel the run", no: "Leave it", body: [h("p", `${children ? `${many(children, "child run")} below it ${children === 1 ? "stops" : "stop"} first, then its` : "Its"} agent may tidy up for 30 s. A cancelled run does not go on again.`), reason], does: () => true });
    if (sure) done(await write(model.url("cancel"), { reason: reason.value }), `${model.id} is told to stop`);
  }

  async function remove() {
    if (!FINISHED.has(model.info.status)) return void ask({ title: "It is not over", body: [h("p", "Only a finished run can be deleted. Cancel it first.")], yes: "Close", no: null });
    const typed = h("input.text", { "aria-label": "Id of the run", placeholder: model.id, autocomplete: "off", data: { first: "1" } });
    const sure = await ask({ title: "Delete this run?", kind: "danger", yes: "Delete", body: [h("p", "Its journal, its values and its children are gone for good. Type its id to delete it."), typed], does: () => {
      if (typed.value === model.id) return true;
      typed.setAttribute("aria-invalid", "true");
      typed.focus();
      return false;
    } });
    if (!sure) return;
    const answer = await write(model.url(), {}, "DELETE");
    if (!answer.ok) return void done(answer);
    toast(`${model.id} was deleted`);
    acts.go("runs");
  }

  async function send() {
    const topic = h("input.text", { "aria-label": "Topic", value: model.info.doing?.kind === "message" ? (model.info.doing.name ?? "") : "", data: { first: "1" } });
    const kind = h("p.dim.fine", { role: "status" }, sentAs("")), tell = () => swap(kind, sentAs(body.value));
    const body = h("textarea.text.mono", { rows: 5, "aria-label": "Value", spellcheck: "false", oninput: tell }), said = h("p.bad-ink", { role: "alert" });
    await ask({ title: "Send a message", yes: "Send", body: [h("label.field-line", h("span", "Topic"), topic), h("label.field-line", h("span", "Value", h("span.dim", " JSON, or a text as it is")), body), kind, said], does: async () => {
      if (!topic.value.trim()) {
        said.textContent = "A message has a topic: the one that the agent receives.";
        topic.focus();
        return false;
      }
      const wrong = ambiguous(body.value);
      if (wrong) return swap(said, wrong), body.focus(), false;
      const answer = await write(model.url("send"), { topic: topic.value.trim(), value: parsed(body.value) });
      if (!answer.ok) return swap(said, refusal(answer.error)), false;
      toast(`The message is in the inbox of ${model.id}`);
      return true;
    } });
  }

  /** A run that goes on from an earlier point of this one, perhaps with another result of a call. */
  async function fork(call = null) {
    const at = h("input.text.mono", { "aria-label": "From", value: call ? call.key : "", placeholder: "the end" });
    const id = h("input.text.mono", { "aria-label": "Id", placeholder: "a new one", autocomplete: "off" });
    const result = h("textarea.text.mono", { rows: 5, "aria-label": "Result", spellcheck: "false", disabled: true }), said = h("p.bad-ink", { role: "alert" });
    let instead = "same", effects = "ask", before = "";
    const picks = h("div"), effectsPick = h("div");
    const drawPicks = () => {
      swap(picks, choice([["run", "As all from here on"], ...(call?.ended != null ? [["same", "Put a result there"]] : [])], instead, (picked) => { instead = picked; drawPicks(); }, "What the call gets"));
      result.disabled = instead !== "same";
      result.hidden = instead !== "same";
      swap(effectsPick, choice([["ask", "ask a person"], ["new", "do them anew"], ["refuse", "fail them"]], effects, (picked) => { effects = picked; drawPicks(); }, "Steps from here on that were done before"));
    };
    instead = "run";
    drawPicks();
    if (call && call.ended !== null) {
      model.value(call.seq).then((found) => {
        before = found.error ? "" : json(found.value ?? null, 2);
        if (!result.value) result.value = before;
      });
    }
    const made = await ask({ title: call ? `Fork before ${call.name}` : "Fork this run", yes: "Fork", body: [
      h("p", "A new run shares all that was recorded before this point and pays nothing for it. This run stays as it is."),
      h("label.field-line", h("span", "From", h("span.dim", " number of an event, key of a call, or checkpoint")), at), call ? h("div.field-line", h("span", "This call"), picks) : null, call ? result : null,
      h("div.field-line", h("span", "Steps from here on that were done before"), effectsPick), h("label.field-line", h("span", "Id"), id), said], does: async () => {
      const given = at.value.trim(), asked = { effects };
      if (given) asked.at = /^\d+$/.test(given) ? Number(given) : given;
      if (id.value.trim()) asked.id = id.value.trim();
      const wrong = call && instead === "same" && ambiguous(result.value);
      if (wrong) return swap(said, wrong), result.focus(), false;
      if (call && instead === "same") asked.replace = { [call.key]: parsed(result.value) };
      const answer = await write(model.url("fork"), asked);
      if (!answer.ok) return swap(said, refusal(answer.error)), false;
      return answer.data.run;
    } });
    if (made?.id) acts.go(path("compare", { a: model.id, b: made.id }));
  }

  // Facts

  function facts() {
    const { info, journal } = model, spent = info.spent ?? {}, budget = info.budget, plan = planOf(model), progress = info.progress ?? journal.progress;
    const life = lived(info, model.now() - model.infoAt), tears = (info.interruptions ?? journal.tears.length) + (info.worker_gone ? 1 : 0); // the one that lasts is recorded when another takes over
    const fact = (name, value, under) => h("div", h("dt", name), h("dd", value), h("dd.under", under));
    const took = ms(info.finished_at) !== null ? spoken(ms(info.finished_at) - ms(info.created_at)) : null;
    const began = info.started_at ?? info.created_at, at = h("span", { title: exact(began) }, `${day(began)}, ${minute(began)}`);
    return [
      info.started_at ? fact("Began", at, took ? `took ${took}` : `${age(began)} ago`) : fact("Created", at, FINISHED.has(info.status) ? "it never began" : "not begun yet"),
      life === null ? fact("State", info.status, info.waits_for ? `waits for a ${info.waits_for}` : "") : fact("Worked", spoken(life.worked), rested(life)),
      fact("Steps", count(info.steps ?? 0), spent.model_calls ? many(spent.model_calls, "model call") : journal.thinks ? "its first model call runs" : "no model call"),
      fact("Interruptions", tears ? h("span.tear-fact", icon("tear"), count(tears)) : "0", info.worker_gone ? "interrupted now" : tears ? "no recorded result was lost" : "none so far"),
      budget?.usd ? fact("Spent", [dollars(spent.usd ?? 0), h("span.dim", ` of ${dollars(budget.usd)}`)], meter((spent.usd ?? 0) / budget.usd, { soft: budget.soft, look: (spent.usd ?? 0) >= budget.usd * (budget.soft ?? 1) ? "ask" : "", label: `${Math.round(((spent.usd ?? 0) / budget.usd) * 100)}% of the budget` }))
        : fact("Spent", dollars(spent.usd ?? 0), spent.unpriced ? `${count(spent.unpriced)} unpriced` : spent.input_tokens ? `${count((spent.input_tokens ?? 0) + (spent.output_tokens ?? 0))} tokens` : "no budget"),
      plan.length ? fact("Plan", [count(plan.filter((each) => each.state === "done").length), h("span.dim", ` of ${plan.length}`), h("span.plan-next", ` ${plan.find((each) => each.state !== "done")?.text ?? "all done"}`)], journal.progress ? `progress ${far(journal.progress)}` : pieces(plan))
        : progress ? fact("Progress", [count(progress.done), progress.total ? h("span.dim", ` of ${count(progress.total)}`) : null, h("span.plan-next", ` ${left(progress) || progress.text || ""}`)], progress.total ? meter(progress.done / progress.total, { label: `${Math.round((progress.done / progress.total) * 100)}%` }) : progress.text)
          : fact("Events", count(info.events ?? journal.events), model.known ? many(model.outline?.calls ?? journal.calls, "call") : "\u2026"),
    ];
  }

  function left(progress) {
    if (!progress.total || progress.done < SAMPLES || progress.done >= progress.total || FINISHED.has(model.info.status)) return "";
    const began = ms(model.info.started_at) ?? ms(model.info.created_at), worked = lived(model.info, now() - model.infoAt)?.worked ?? now() - began;
    estimate = (worked / progress.done) * (progress.total - progress.done);
    return `about ${spoken(estimate)} left`;
  }

  // What went wrong, and what mends it

  function drawBox() {
    const { info } = model, stamp = `${info.status} ${info.reason} ${info.error} ${info.waits_for} ${info.stopping} ${info.worker_gone} ${info.worker}`;
    if (stamp === boxed) return;
    boxed = stamp;
    if (info.worker_gone) return lostWorker();
    if (info.status === "failed") {
      const trace = info.failure?.traceback;
      return void swap(box, h("div.fault.bad", icon("warn"), h("div", folded("p.strong.bad-ink", info.failure ? `${info.failure.type}: ${info.failure.message}` : info.error), trace ? h("details", h("summary", "Traceback"), h("pre.trace", trace)) : null), may("write") ? button("Retry…", { name: "again", kind: "small", onclick: retry }) : null));
    }
    if (info.status === "paused") return void swap(box, h("div.fault.stop", icon("pause"), h("div", h("p.strong", "It is paused"), h("p", info.reason || "No reason was given.")), may("write") ? button("Resume", { name: "play", kind: "small primary", onclick: resume }) : null));
    if (info.status === "cancelled" || info.status === "moved") return void swap(box, info.reason ? h("div.fault", icon("stop"), h("div", h("p.strong", info.status === "moved" ? "It goes on in another store" : "It was cancelled"), h("p", info.reason))) : null);
    if (info.waits_for === "worker") {
      const code = info.version ? `version ${info.version} of ${info.agent}` : info.agent, start = command("holdfast", "worker", "FILE.py");
      return void swap(box, h("div.fault.stop", icon("warn"), h("div", h("p.strong", `It waits for a worker with ${code}`), h("p", "No live worker serves it. Start one: ", h("code", start))), copier(start, "Copy the command")));
    }
    swap(box);
  }

  /** Between the end of a process and the moment when another takes over. */
  function lostWorker() {
    const { info } = model, sign = lastSign(info, model.infoAt) ?? info.updated_at;
    swap(box, h("div.fault.stop", icon("tear"), h("div", h("p.strong", `There is no sign of its worker ${workerName(info.worker) ?? ""}`), h("p", `Its last sign was at ${clock(sign)}. What was done stays done; ${takesOver(info)}.`))));
  }

  return { element, draw, fork, pauseOrResume: () => (model.info?.status === "paused" ? resume() : null), again: () => (!may("write") ? false : model.info?.status === "failed" ? retry() : model.info?.status === "paused" ? resume() : false), more: () => buttons.querySelector(".square")?.click() };
}


// Runs, amounts and people in words. A sentence is a list of pieces, [text, look], so that it is drawn and copied from one source.

import { age, clock, day, exact, left, minute, moment, ms, now, seconds, spoken, when } from "./time.js";
import { cut, shown } from "./text.js";

export { age, clock, day, exact, left, minute, moment, ms, now, seconds, spoken, when };

// Amounts

/** A whole number with commas. */
export const count = (number) => Math.round(number).toString().replace(/\B(?=(\d{3})+$)/g, ",");

/** A number of things: '1 step', '1,204 steps'. */
export const many = (number, one, more = `${one}s`) => `${count(number)} ${number === 1 ? one : more}`;

/** Money; small amounts with as many digits as they need. */
export function dollars(usd) {
  if (usd >= 0.1 || !usd) return `$${usd.toFixed(2).replace(/\B(?=(\d{3})+\.)/g, ",")}`;
  const [digits, power] = Number(usd.toPrecision(4)).toExponential().split("e");
  const places = Math.max(digits.replace(/\D/g, "").length - 1 - Number(power), 0);
  return `$${usd.toFixed(Math.min(places, 100))}`;
}

/** A number of tokens, short. */
export const tokens = (number) =>
  number >= 1e6 ? `${(number / 1e6).toFixed(1)}M` : number >= 1e4 ? `${Math.round(number / 1000)}k` : number >= 1000 ? `${(number / 1000).toFixed(1)}k` : String(number);

/** A number of bytes. */
export const bytes = (number) =>
  number >= 1e9 ? `${(number / 1e9).toFixed(1)} GB` : number >= 1e6 ? `${(number / 1e6).toFixed(1)} MB` : number >= 1e3 ? `${Math.round(number / 1e3)} kB` : many(number, "byte");

/** What was spent, in words; empty if nothing was. */
export function cost(spent) {
  const sum = (spent?.input_tokens ?? 0) + (spent?.output_tokens ?? 0);
  return [spent?.usd && dollars(spent.usd), sum && many(sum, "token"), spent?.unpriced && `${many(spent.unpriced, "model call")} of unknown price`].filter(Boolean).join(", ");
}

/** A number as Python's `:g` writes it. */
export const plain = (number) => String(Number(Number(number).toPrecision(6)));

/** How far something has come: '4 of 7, write three sections'. */
export function progress(said) {
  const told = said.total == null ? plain(said.done) : `${plain(said.done)} of ${plain(said.total)}`;
  return said.text ? `${told}, ${said.text}` : told;
}

// States

const STANDS = {
  running: ["run", "running"], waiting: ["wait", "waiting"], ready: ["ready", "ready"], paused: ["stop", "paused"],
  completed: ["done", "completed"], failed: ["bad", "failed"], cancelled: ["off", "cancelled"], moved: ["off", "moved"],
  person: ["ask", "asks"], doubt: ["doubt", "in doubt"], retry: ["retry", "retrying"], worker: ["stop", "no worker"],
  pausing: ["stop", "pausing"], cancelling: ["off", "stopping"], stuck: ["stop", "stuck"], gone: ["stop", "interrupted"],
};

/** How a run stands: one word of a dozen, the same everywhere. */
export function stands(run) {
  if (run.stopping) return run.stopping;
  if (run.worker_gone) return "gone";
  if (run.waits_for === "worker") return "worker";
  if (run.waits_for === "person") return run.doing?.kind === "question" && run.doing.name === "in_doubt" ? "doubt" : "person";
  if (run.waits_for === "retry" || (run.status === "running" && run.doing?.kind === "retry")) return "retry";
  return run.status in STANDS ? run.status : "waiting";
}
export const tone = (how) => (STANDS[how] ?? STANDS.waiting)[0];
export const word = (how) => (STANDS[how] ?? [, how])[1];

/** States in which a run is over. */
export const FINISHED = new Set(["completed", "failed", "cancelled", "moved"]);

// What happens

/** What a run waits for, in words. */
export const IN_WORDS = {
  message: "a message", child: "a child run", conversation: "a conversation", timer: "its time", rate: "its turn", slot: "a free slot",
  group: "others that crashed with it", person: "a person", retry: "the next attempt", worker: "a worker",
};

/** What happens in a run now, as pieces: [text, look], look being strong, code, dim, bad or nothing. */
export function happens(run) {
  const soft = (text) => [text, "dim"];
  const also = (...texts) => texts.filter(Boolean).flatMap((text) => [soft(" · "), soft(text)]);
  const does = run.doing;
  if (run.stopping) return [[`asked to ${run.stopping === "pausing" ? "pause" : "stop"}`, ""], ...also(run.reason)];
  if (run.status === "failed") return failure(run);
  if (run.status === "completed") return run.result !== undefined ? [soft("→ "), [cut(String(run.result), 160), "code"]] : [soft(`took ${spoken(ms(run.finished_at) - ms(run.created_at))}${run.steps ? `, ${many(run.steps, "step")}` : ""}`)];
  if (run.status === "cancelled" || run.status === "moved") return [soft(run.reason || word(run.status))];
  if (run.status === "paused") return [[run.reason || "paused", ""]];
  if (run.worker_gone) return [[`its worker ${worker(run.worker) ?? ""} is gone`.replace("  ", " "), "strong"], ...also(`${takesOver(run)}; its last sign was ${age(lastSign(run) ?? run.updated_at)} ago`)];
  if (run.waits_for === "worker") {
    const code = run.version ? `a worker with version ${run.version} of ${run.agent}` : `a worker with ${run.agent}`;
    return [soft("waits for "), [code, ""], ...also(ms(run.updated_at) && age(run.updated_at))];
  }
  if (!does || run.status === "ready") return waiting(run, soft, also);
  const since = ms(does.since) !== null ? age(does.since) : "";
  const several = does.count > 1 ? `${count(does.count)} at once` : "";
  if (does.kind === "question") return [[asked(does) || "asks a person", "strong"], ...also(does.count > 1 && `${count(does.count)} questions`, since)];
  if (does.kind === "retry") {
    const next = ms(does.next_at) !== null && ms(does.next_at) > now() ? ` in ${seconds(ms(does.next_at) - now())}` : "";
    return [[does.name ?? "a step", "code"], soft(" · "), [`attempt ${(does.attempt ?? 0) + 1}${does.of ? ` of ${does.of}` : ""}${next}`, ""], ...also(does.error)];
  }
  if (does.kind === "timer") {
    if (ms(does.next_at) === null) return [soft("sleeps"), ...also(since)];
    return [soft("sleeps "), [`until ${soon(does.next_at)}`, ""], ...also(`${left(does.next_at)} left`)];
  }
  if (does.kind === "step") {
    const input = does.input && !several ? cut(String(does.input), 60) : "";
    return [[does.name, "code"], ...(input ? [soft(` ${input}`)] : []), ...also([several, since].filter(Boolean).join(", "), does.attempt > 1 && `attempt ${does.attempt}`)];
  }
  const what = { message: `message ${does.name ?? ""}`, child: `child ${does.name ?? does.input ?? ""}`, conversation: `conversation ${does.name ?? ""}`, rate: `its turn of ${does.name ?? "a rate"}`, slot: `a slot of ${does.name ?? "a limit"}` }[does.kind];
  return [soft("waits for "), [(what ?? IN_WORDS[does.kind] ?? does.kind).trim(), ""], ...also(several, since)];
}

/** When the worker of a run that is gone was last heard of, if the run was read `at` this moment; null if nobody knows. */
export function lastSign(run, at = now()) {
  const [kind, span] = (run.worker_gone && run.life?.at(-1)) || [];
  return kind === "torn" ? at - span : null;
}

/** Who goes on with a run whose worker is gone. */
export const takesOver = (run) => (run.waits_for === "worker" ? "it waits for a worker with its code" : "another worker takes it over");

function asked(does) {
  const [first, rest] = question(does.input, does.name);
  return rest && !first.endsWith("?") ? `${first} …` : first; // what Holdfast asks is explained behind its question
}

function waiting(run, soft, also) {
  if (run.status === "running") return [soft(run.progress?.text || (run.worker ? `carried by ${run.worker}` : "is carried"))];
  if (run.status === "ready" && ["rate", "slot"].includes(run.waits_for)) return [soft("waits for "), [run.doing?.name ? `${run.waits_for === "rate" ? "its turn of" : "a slot of"} ${run.doing.name}` : IN_WORDS[run.waits_for], ""]];
  if (run.status === "ready") return [soft(ms(run.due_at) !== null && ms(run.due_at) > now() ? `begins in ${left(run.due_at)}` : "a worker takes it next")];
  if (run.waits_for === "timer" && ms(run.due_at) !== null) return [soft("sleeps "), [`until ${soon(run.due_at)}`, ""], ...also(`${left(run.due_at)} left`)];
  return [soft("waits for "), [IN_WORDS[run.waits_for] ?? run.waits_for ?? "something", ""], ...also(ms(run.due_at) !== null && ms(run.due_at) > now() && `at the latest in ${left(run.due_at)}`)];
}

function failure(run) {
  const type = run.failure?.type ?? run.error?.split(": ")[0] ?? "failed";
  const message = run.failure?.message ?? run.error?.slice(type.length + 2) ?? "";
  return [[type, "bad"], ...(message ? [[": ", "dim"], [cut(message.replace(/\s+/g, " "), 200), "dim"]] : [])];
}

const OF_A_TERMINAL = /^(Approve to |Answer ["{]|If it is denied|Its idempotency key )/; // the page says it with its buttons and facts

/** A question in a line, and the rest of what it says. What Holdfast asks is long, because a terminal has nothing beside it. */
export function question(text, kind) {
  text = String(text ?? "").trim();
  if (kind === "approve" || kind === "ask") {
    const [first, ...rest] = text.split("\n");
    return [first, rest.join("\n").trim()];
  }
  const found = /^.*?[.?](?=\s+[A-Z"{]|$)/s.exec(text);
  if (!found) return [cut(text, 300), ""];
  const rest = text.slice(found[0].length).split(/(?<=[.?])\s+(?=[A-Z])/).filter((each) => !OF_A_TERMINAL.test(each.trim()));
  return [cut(found[0], 300), rest.join(" ").trim()];
}

/** A moment that comes: 'Fri 06:00', or '06:00' today. */
export const soon = (at) => (day(at) === day(now()) ? minute(at) : `${day(at).split(" ")[0]} ${minute(at)}`) + (ms(at) - now() > 6 * 86_400_000 ? `, ${day(at)}` : "");

/** A sentence as text. */
export const flat = (pieces) => pieces.map(([text]) => shown(text)).join("");

/** How long a run took, or has been there so far. */
export const span = (run) => spoken((ms(run.finished_at) ?? now()) - ms(run.created_at));

/** How long a run worked, waited, was stopped (paused, or failed until it was retried) and had no process, up to `since` milliseconds after it was read; null if nobody counted. */
export function lived(run, since = 0) {
  if (run.worked_ms == null) return null;
  const kinds = { work: "worked", torn: "gone", paused: "stopped" }, sums = { worked: run.worked_ms, waited: 0, stopped: 0, gone: 0 }, life = run.life ?? [], more = run.finished_at ? 0 : Math.max(since, 0);
  for (const [kind, span] of life) if (kind !== "work") sums[kinds[kind] ?? "waited"] += span;
  const last = run.worker_gone ? "torn" : (life.at(-1)?.[0] ?? (run.status === "running" ? "work" : "wait"));
  sums[kinds[last] ?? "waited"] += more;
  return sums;
}

/** What a run did when it did not work, in words. */
export const rested = ({ waited, stopped, gone }) => [waited >= 1 && `waited ${spoken(waited)}`, stopped >= 1 && `stopped for ${spoken(stopped)}`, gone >= 1 && `no process for ${spoken(gone)}`].filter(Boolean).join(", ") || "without a wait";

/** People and groups, in words: 'you, group:it-admins'. A bare name may be a person's or a group's. */
export function people(to, me) {
  if (!to?.length) return "anybody";
  return to.map((each) => (each === me?.name ? "you" : each)).join(", ");
}

/** Is this for the person who looks? */
export const isMine = (to, me) => !to?.length || to.some((each) => each === me?.name || me?.groups?.includes(each.replace(/^group:/, "")));

/** Why this person cannot look around. */
export const blind = (me) => (me.question ? "Your link opens one question, and nothing else." : `Your token may ${me.scopes.join(" and ")}, and not read.`);

/** Has this person agreed to a question as it is? Then it waits for others. */
export const agreed = (item, me) => item.votes.some((each) => each.yes && each.by === me?.name);

/** Who has decided a question, in a row or in the event of its end: of an approval all who agreed. */
export const deciders = ({ decision, votes, by, decided_by: last = by }) => [...new Set([...(decision === "approved" ? (votes ?? []).filter((each) => each.yes).map((each) => each.by) : []), last])].filter(Boolean).join(" and ");

// What the API advises is for programs. Where it names a path, people are told what the page has for that.
const ADVICE = {
  unknown_run: "It may have been deleted. Runs has those there are.", unknown_agent: "Agents has those that workers have published.", unknown_approval: "Approvals has those that are open.",
  unknown_schedule: "Schedules has those there are.", unknown_trigger: "Schedules has the triggers there are.", unknown_conversation: "Conversations has those there are.",
  run_active: "Wait for its end, or cancel it.", run_failed: "Mend the cause, then retry it: it goes on from the failure.", run_paused: "Resume lets it go on.",
  nondeterminism_error: "Bring back the code it ran with or mend it, then resume it.",
};

/** What one can do about an error, in words for people; empty where the advice is for programs alone. */
export const advice = (error) => (/\b(GET|POST|PUT|DELETE) \/|\/api\b|openapi|Authorization|\bhf\./.test(error.hint ?? "") ? (ADVICE[error.code] ?? "") : (error.hint ?? ""));

/** An error in a line. */
export const refusal = (error) => `${error.message.replace(/\.?$/, ".")} ${advice(error)}`;

/** A call as people name it: `:approve` is what the engine calls a question. */
export const callName = (name) => ({ ":approve": "approval", ":ask": "question", ":receive": "message", ":receive.timeout": "wait for a message" })[name] ?? String(name).replace(/^:/, "").replaceAll(".", " ");

/** A command for a shell, every argument quoted that needs it. */
export const command = (...words) => words.map((each) => (/^[\w@%+=:,./-]+$/.test(each) ? each : `'${String(each).replaceAll("'", `'\\''`)}'`)).join(" ");

// Workers

/** What people call a worker: the name that it was given, or the beginning of its id; with a few digits more if `beside` has that name too. */
export function worker(id, beside = null) {
  const [, name, digits] = /^(.+)-([0-9a-f]{12,16})$/.exec(id ?? "") ?? [];
  if (name) return beside?.startsWith(`${name}-`) ? `${name}-${digits.slice(0, 4)}` : name;
  return id && /^[0-9a-f]{16}$/.test(id) ? id.slice(0, 8) : id;
}

// Events in words: one row for each kind, with the words that the command line has for it (words/events.py; a test compares them).

import { cost, deciders, dollars, many, progress } from "./say.js";
import { ms, spoken, when } from "./time.js";
import { cut } from "./text.js";

const LATE = 60_000;

/** An event in a line: what it is about, what happened, and its error. */
export function told(event, { error = true } = {}) {
  const words = WORDS[event.kind];
  if (!words) return event.kind;
  return about(event) + says(event) + (words.error && error ? `: ${errorLine(event.data?.error)}` : "");
}

/** What it happened to, with the joint; a tree shows that by where a row stands. */
export const about = (event) => WORDS[event.kind]?.about?.(event, event.data ?? {}) ?? "";

/** What happened. */
export const says = (event) => WORDS[event.kind]?.says(event, event.data ?? {}) ?? event.kind;

/** How it is coloured: plain, said, good, warn, bad, faint, control, completed, failed or paused. */
export const toneOf = (event) => WORDS[event.kind]?.tone ?? "plain";

/** Only a reader who asks for every event wants it. */
export const isQuiet = (event) => Boolean(WORDS[event.kind]?.quiet) || (event.kind === "patched" && String(event.data?.patch ?? "").startsWith("holdfast."));

/** A call as people write it: `fetch(url='...')`; a request of an agent of Pydantic AI by its agent. */
export function call(event) {
  const name = String(event.data?.name ?? "");
  return isRequest(event.key ?? "", name) ? `${name.replace(/\.model$/, "")}: model` : `${name}(${cut(String(event.data?.input ?? ""), 80)})`;
}

/** Is this the step of a request to a model, made by an agent of Pydantic AI? */
export function isRequest(key, name) {
  const place = key.split("/");
  return name.endsWith(".model") && place.length > 1 && place.at(-2).endsWith(":model");
}

/** An error in one line. */
export function errorLine(error) {
  const type = String(error?.type ?? "error");
  const message = String(error?.message ?? "").split(/\s+/).filter(Boolean).join(" ");
  return message ? `${type}: ${message}` : type;
}

const by = (verb) => (_, data) => verb + (data.by ? ` by ${data.by}` : "") + (data.reason ? `: ${data.reason}` : "");
const noted = (data) => (data.note ? `: ${data.note}` : "");
const ofCall = (event) => `${call(event)} `;
const ofConversation = (_, data) => `conversation ${data.conversation}: `;
const ofStream = (_, data) => `stream ${data.name}: `;
const ofChild = (_, data) => `child run ${data.child} `;
const length = (data) => (data.end ?? 0) - (data.first ?? 0);

function outcome(verb) {
  return (event, data) => {
    const took = event.kind !== "step.completed" ? "" : data.began ? ` in ${spoken(ms(event.at) - data.began)}` : ", found done and not run again";
    const again = (data.attempts ?? 1) > 1 ? ` at attempt ${data.attempts}` : "";
    const spent = cost(data.spent);
    const names = [...new Set(Object.values(data.published ?? {}))].join(", ");
    return verb + took + again + (spent && `, ${spent}`) + (names && `, published ${names}`);
  };
}

function held(event, data) {
  const why = data.paused ? ", which is paused" : "";
  return `waits ${spoken(Math.max(data.at - ms(event.at), 0))} for its turn${data.rate ? ` of ${data.rate}` : ""}${why}`;
}

function far(event, data) {
  const items = data.items;
  const said = items ? { done: items.filter(([, done]) => done).length, total: items.length, text: items.find(([, done]) => !done)?.[0] ?? "" } : data;
  return `${event.kind.split(".").at(-1)}: ${progress(said)}`;
}

function retrying(_, data) {
  const others = data.pauses ? `, and ${data.pauses} is paused for everybody` : "";
  return `attempt ${data.attempt}: ${errorLine(data.error)}; again after ${spoken(data.wait_ms ?? 0)}${others}`;
}

const OF_A_STEP = { in_doubt: "its outcome is not known", loop: "it would go on with a loop" };
/** Does a question ask whether to do again what was done before its run went back? */
export const isAgain = (data) => /^Do /.test(data.question);
const question = (event, data) => (event.kind === "approval.asked" && data.kind in OF_A_STEP ? `${call(event)}: ` : `question ${data.approval}: `);
const saidAt = (event, data) => (Number.isInteger(data.at) && ms(event.at) - data.at >= LATE ? ` at ${when(data.at)}` : "");

function left(event, data) {
  const rest = data.left ?? {};
  const parts = [
    "usd" in rest && dollars(Math.max(rest.usd, 0)), "tokens" in rest && many(Math.max(rest.tokens, 0), "token"),
    "model_calls" in rest && many(Math.max(rest.model_calls, 0), "model call"), "steps" in rest && many(Math.max(rest.steps, 0), "step"),
    "until" in rest && spoken(Math.max(rest.until - ms(event.at), 0)),
  ].filter(Boolean);
  return parts.length ? `${parts.join(", ")} left` : "no limit";
}

function ofStreamEnd(what) {
  return (_, data) => ("held_by" in data ? `${data.held_by} has it` : what + (data.reason ? `, ${data.reason}` : ""));
}

function forked(event, data) {
  const what = data.of ? `forked from run ${data.of} before event ${data.at}` : "begun in a fork";
  const instead = Object.entries(data.instead ?? {});
  const told = instead.slice(0, 5).map(([key, value]) => `${key} = ${value}`).join(", ");
  return by(what)(event, data) + (told ? `; replaced: ${told}${instead.length > 5 ? ` and ${instead.length - 5} more` : ""}` : "");
}

function topic(_, data) {
  const name = String(data.topic);
  return name.startsWith("holdfast:event:") ? `announcement ${name.slice(15).split(" ")[0]}: ` : `message on ${name}: `;
}

const WORDS = {
  "run.interrupted": { says: () => "interrupted: its process was gone; another went on", tone: "warn" },
  "run.pausing": { says: by("asked to pause"), tone: "control" },
  "run.paused": { says: by("paused"), tone: "paused" },
  "run.resumed": { says: by("resumed"), tone: "control" },
  "run.retried": { says: (event, data) => by("effects" in data ? `retried from before event ${data.cut}` : "retried from its failure")(event, data), tone: "control" },
  "run.forked": { says: forked, tone: "control" },
  "run.cancelling": { says: by("asked to stop"), tone: "control" },
  "run.unwinding": { says: by("told to stop"), tone: "control" },
  "run.completed": { says: by("completed"), tone: "completed" },
  "run.failed": { says: () => "failed", tone: "failed", error: true },
  "run.cancelled": { says: by("cancelled"), tone: "faint" },
  "step.started": { says: (_, data) => `begins, attempt ${data.attempt ?? 1}`, about: ofCall },
  "step.held": { says: held, about: ofCall },
  "step.progress": { says: far, about: ofCall },
  "step.retrying": { says: retrying, about: ofCall, tone: "warn" },
  "step.completed": { says: outcome("done"), about: ofCall, tone: "good" },
  "step.failed": { says: outcome("failed for good"), about: ofCall, tone: "bad", error: true },
  "step.cancelled": { says: () => "is no longer waited for", about: ofCall, tone: "faint" },
  "timer.set": {
    says: (_, data) => `${data.until == null ? spoken(data.ms ?? 0) : `until ${when(data.until)}`} begins`,
    about: (_, data) => `${timer(data)} `,
  },
  "timer.fired": { says: () => "is over", about: (_, data) => `${timer(data)} ` },
  tick: { says: (event) => `asyncio timer ${event.key} fired`, quiet: true },
  "message.received": { says: (event) => cut(event.preview ?? "", 80), about: topic },
  "child.started": { says: (event) => `started: ${call(event)}`, about: ofChild },
  "child.spawned": { says: (event) => `spawned: ${call(event)}`, about: ofChild },
  "child.ended": { says: (_, data) => String(data.status), about: ofChild },
  "approval.asked": { says: (_, data) => (data.kind in OF_A_STEP ? `${isAgain(data) ? "its body ran before" : OF_A_STEP[data.kind]}; question ${data.approval} asks a person` : String(data.question ?? "")), about: question, tone: "warn" },
  "approval.reminded": { says: (_, data) => `reminded (${data.nth})${noted(data)}`, about: question },
  "approval.delegated": { says: (_, data) => `${data.by} passed it on to ${data.to}${noted(data)}`, about: question },
  "approval.voted": { says: (event, data) => `${data.by} agreed${data.changed ? " and changed what is shown" : ""}${saidAt(event, data)}${noted(data)}`, about: question },
  "approval.decided": { says: (event, data) => `${data.decision} by ${deciders(data)}${saidAt(event, data)}${data.note ? ` (${data.note})` : ""}`, about: question },
  "approval.expired": { says: () => "nobody decided in time", about: question },
  "approval.withdrawn": { says: (_, data) => `withdrawn${noted(data)}`, about: question },
  "budget.low": { says: (event, data) => `most of the budget is spent: ${left(event, data)}`, tone: "warn" },
  "conversation.asked": { says: () => "asked for", about: ofConversation },
  "conversation.entered": { says: (_, data) => `entered, ${data.length} messages`, about: ofConversation },
  "conversation.refused": { says: (_, data) => `refused, run ${data.by} has it`, about: ofConversation },
  "conversation.withdrawn": { says: () => "no longer waited for", about: ofConversation },
  "conversation.read": { says: (_, data) => `read ${length(data)} messages from ${data.first} on`, about: ofConversation },
  "conversation.added": { says: (_, data) => `added ${length(data)} messages: ${data.input}`, about: ofConversation },
  "conversation.left": { says: () => "left", about: ofConversation },
  "announcement.published": { says: (_, data) => `published ${data.input}` },
  "announcement.awaited": { says: (_, data) => `waits for announcements of ${data.input} from here on` },
  patched: { says: (_, data) => `took the new side of ${data.patch}` },
  note: { says: (_, data) => String(data.text ?? ""), about: () => "note: ", tone: "said" },
  progress: { says: far },
  plan: { says: far },
  checkpoint: { says: (_, data) => `checkpoint ${data.era ?? ""}`.trim() },
  "stream.opened": { says: ofStreamEnd("begins"), about: ofStream },
  "stream.closed": { says: ofStreamEnd("ends"), about: ofStream },
  "stream.read": { says: ofStreamEnd("what was left is looked at"), about: ofStream },
  foreign: { says: (_, data) => `${data.line} ${data.effect ? "did" : "waited for"} something that is not recorded (${data.what})`, tone: "warn" },
};

function timer(data) {
  return String(data.name ?? "timer").replace(/^:+/, "").replace("receive.timeout", "time to wait for a message");
}

/** The kinds that the page has words for. */
export const KINDS = Object.keys(WORDS);

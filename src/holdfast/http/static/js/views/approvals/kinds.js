// Kinds of questions, and what became of one: those that agents ask, and those that Holdfast asks for them, about doubt, budgets and loops.

import { same, write } from "../../json.js";
import { age, deciders, ms, now, people, question } from "../../say.js";
import { cut } from "../../text.js";

/** approve, ask, in_doubt, again (of a step that ran before the point to which its run went back), budget or loop. */
export function kindOf(item) {
  if (item.kind === "in_doubt" && item.shown?.call) return "again";
  if (item.kind !== "approve") return item.kind;
  if (/(^|\/)budget(#\d+)?$/.test(item.key)) return "budget";
  return /(^|\/):approve#\d+$/.test(item.key) ? "approve" : "loop";
}

/** The glyph of a question. */
export const lookOf = (item) => (item.kind === "in_doubt" ? "doubt" : "person");

/** The question in a line, and the rest of what it says. */
export const saidBy = (item) => question(item.question, kindOf(item));

/** What holds if nobody decides. */
export function otherwise(item) {
  if (item.kind === "in_doubt") return "it waits";
  if (!item.expires_at) return "it waits";
  if (item.kind === "ask") return !item.has_default ? "the agent gets an error" : typeof item.default === "string" ? `"${cut(item.default, 60)}"` : cut(write(item.default), 60);
  return item.default === true || item.default === "approved" ? "approved" : "denied";
}

/** What its end in time came to. */
export const held = (item) => `${otherwise(item)}${item.kind === "ask" && !item.has_default ? "" : " held"}`;

/** How a question ended, in words. */
export function ended(item) {
  if (item.status === "expired") return `expired: ${held(item)}`;
  if (item.status === "withdrawn") return "withdrawn: the agent no longer waits for it";
  return item.decision ?? item.status;
}

/** The same as a sentence: who has decided what, and when. */
export function verdict(item) {
  if (item.status === "expired") return `Nobody decided it in time: ${held(item)}.`;
  if (item.status === "withdrawn") return "It was withdrawn: the agent no longer waits for it.";
  return `${deciders(item) || "Somebody"} ${item.decision ?? "decided"} it${item.decided_at ? ` ${ago(item.decided_at)}` : ""}${changeOf(item)}.`;
}

/** Who changed it last. */
export const changer = (item) => item.changes?.at(-1)?.by ?? item.votes[0]?.by ?? "Somebody"; // who changes it says the first yes to that

/** Whose change was approved, if there was one. */
export const changeOf = (item) => (isChanged(item) && item.decision === "approved" ? `, with ${item.votes.length > 1 ? `${changer(item)}'s` : "a"} change` : "");

/** How long ago; what was this very moment has no number. */
export const ago = (at) => (now() - ms(at) < 1000 ? "just now" : `${age(at)} ago`);

/** Whom a question is for now, in words: those who have passed it on are not among them, those who got it are. */
export function forWhom(item, me) {
  const passed = item.delegations ?? [];
  if (!item.to.length) {
    const gone = passed.map((each) => each.by).filter((name) => passed.findLast((each) => each.by === name || each.to === name).by === name);
    return `anybody${gone.length ? ` but ${people([...new Set(gone)], me)}` : ""}`;
  }
  let names = [...item.to];
  for (const each of passed) names = [...names.filter((name) => name !== each.by && name !== each.to), each.to];
  return people(names, me);
}

/** Who has said what, the first first: [{by, at, note, says}]. */
export function voices(item, me) {
  const changes = item.changes ?? [];
  const with_ = (vote) => changes.find((each) => each.by === vote.by && ms(each.at) === ms(vote.at));
  const votes = item.votes.map((each) => {
    const decides = item.decided_by === each.by && item.status === "decided" ? ", and so decided it" : "";
    if (!each.yes) return { ...each, says: "said no" };
    if (item.kind === "in_doubt") return { ...each, says: { run: "had it run", fail: "had it fail" }[item.data] ?? "gave its result" };
    if (item.kind === "ask") return { ...each, says: "answered" };
    if (with_(each)) return { ...each, says: `changed it, and agreed to that${decides}` };
    return { ...each, says: `agreed${changes.some((one) => ms(one.at) < ms(each.at)) ? " to the change" : ""}${decides}` };
  });
  const rows = [
    ...changes.filter((each) => !item.votes.some((vote) => with_(vote) === each)).map((each) => ({ ...each, note: "", says: "changed it" })),
    ...(item.delegations ?? []).map((each) => ({ ...each, says: `passed it on to ${people([each.to], me)}` })),
    ...votes,
  ].sort((one, other) => ms(one.at) - ms(other.at));
  if (item.decided_by && !item.votes.some((each) => each.by === item.decided_by)) rows.push({ by: item.decided_by, at: item.decided_at, note: item.note, says: item.decision });
  return rows;
}

/** How many agree, and how many more must, in words; nothing if one is enough. */
export function counted(item) {
  const agree = new Set(item.votes.filter((each) => each.yes).map((each) => each.by)).size;
  if (item.needs === null) return `${agree} ${agree === 1 ? "agrees" : "agree"}; the run will say how many must.`;
  if (item.needs <= 1) return "";
  const more = Math.max(item.needs - agree, 0);
  return `${agree} of ${item.needs} ${agree === 1 ? "agrees" : "agree"}${more ? `; ${more} more must` : ""}.`;
}

/** Was it decided with a change? */
export const isChanged = (item) => item.kind === "approve" && !same(item.shown, item.data);

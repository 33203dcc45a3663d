// Kinds of questions: those that agents ask, and those that Holdfast asks for them, about doubt, budgets and loops.

import { question } from "../../say.js";
import { cut } from "../../text.js";

/** approve, ask, in_doubt, budget or loop. */
export function kindOf(item) {
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
  if (item.kind === "ask") return item.default === null || item.default === undefined ? "the agent gets an error" : typeof item.default === "string" ? `"${cut(item.default, 60)}"` : cut(JSON.stringify(item.default), 60);
  return item.default === true || item.default === "approved" ? "approved" : "denied";
}

/** How a question ended, in words. */
export function ended(item) {
  if (item.status === "expired") return `expired: ${otherwise(item)} held`;
  if (item.status === "withdrawn") return "withdrawn: the agent no longer waits for it";
  return item.decision ?? item.status;
}

/** Was it decided with a change? */
export const isChanged = (item) => item.kind === "approve" && JSON.stringify(item.shown) !== JSON.stringify(item.data);

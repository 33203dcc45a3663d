// What a message says: what somebody typed as the value that is sent. Nothing here touches the page.

import { parse, twice } from "../../json.js";
import { many } from "../../say.js";

/** What is sent for a text: JSON as it is written, and all else as the text that it is. */
export function parsed(text) {
  if (!text.trim()) return null;
  try {
    return parse(text, { exact: true });
  } catch {
    return text;
  }
}

/** Why a text is not sent: an object in it has a name twice, and one of the two would be lost. Null: it can be sent. */
export function ambiguous(text) {
  const value = parsed(text), name = typeof value === "object" && value !== null ? twice(text) : null;
  return name === null ? null : `The name "${name}" is there twice. Write it once.`;
}

/** What will be sent, in words: an agent that waits for a text does not take a number for one. */
export function sentAs(text) {
  const value = parsed(text);
  if (!text.trim()) return "Nothing is written: null is sent.";
  if (value === null) return 'It is sent as null, not as a text. A text is written "null", with quotes.';
  if (typeof value === "string") return value === text ? "It is sent as a text." : "It is sent as a text, without its quotes.";
  if (Array.isArray(value)) return `It is sent as a list of ${many(value.length, "item")}.`;
  const kind = typeof value === "boolean" ? "yes or no" : /^\s*\{/.test(text) ? null : "a number";
  return kind === null ? `It is sent as an object with ${many(Object.keys(value).length, "field")}.` : `It is sent as ${kind}, not as a text. A text is written "${text.trim()}", with quotes.`;
}

// What a message says: what somebody typed as the value that is sent. Nothing here touches the page.

import { parse } from "../../json.js";
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

// A difference on the page: lines with signs, and the words that differ marked.

import { h } from "./dom.js";
import { lines, words } from "./difference.js";
import { isNumber, write } from "./json.js";
import { many } from "./say.js";

/** Two texts, line by line. */
export function diff(one, other, label = "The change") {
  const made = [];
  const all = lines(one, other);
  for (let at = 0; at < all.length; ) {
    const [sign, text] = all[at];
    const gone = run(all, at, "-");
    const come = run(all, at + gone.length, "+");
    if (gone.length && gone.length === come.length) {
      gone.forEach((before, nth) => {
        const [left, right] = words(before, come[nth]);
        made.push(line("-", marked(left)), line("+", marked(right)));
      });
      at += 2 * gone.length;
      continue;
    }
    made.push(sign === "…" ? h("p.diff-skip", `${many(text, "line is", "lines are")} the same`) : line(sign, text));
    at += 1;
  }
  return h("div.diff", { role: "figure", "aria-label": label }, made);
}

// Lines of one sign from here on. As many taken out as added are told pair by pair.
function run(all, from, sign) {
  const found = [];
  for (let at = from; all[at]?.[0] === sign; at += 1) found.push(all[at][1]);
  return found;
}

const marked = (pieces) => pieces.map(([text, differs]) => (differs && text.trim() ? h("mark", text) : text));
const line = (sign, text) =>
  h("div.diff-line", { class: sign === "+" ? "add" : sign === "-" ? "del" : "" }, h("span.sign", { "aria-label": { "+": "added", "-": "taken out" }[sign] ?? "same" }, sign === "=" ? " " : sign), h("code", text));

/** A value in lines that can be compared: an object has one line for each of its fields. */
export function outlined(value) {
  if (typeof value === "string") return value;
  if (isScalar(value) || Array.isArray(value)) return write(value, 2) ?? "";
  const wide = Math.min(Math.max(...Object.keys(value).map((key) => key.length), 0), 24);
  return Object.entries(value).map(([key, each]) => `${`${key}:`.padEnd(wide + 2)} ${flat(each)}`).join("\n");
}
const isScalar = (value) => value === null || typeof value !== "object" || isNumber(value);
const flat = (value) => (Array.isArray(value) && value.every(isScalar) ? value.map((each) => write(each)).join(", ") : write(value));

// Differences of two texts or two values, by line and by word, as lists and on the page; and what a fork has from its run.

import { h } from "./dom.js";
import { isNumber, write } from "./json.js";
import { many } from "./say.js";

const MOST = 4_000_000; // cells of the table of a comparison; larger texts are compared by what they share at both ends

/** The longest run that two lists have in common, as pieces [sign, items]: "=" both, "-" only the first, "+" only the second. */
export function compared(one, other) {
  let from = 0, oneEnd = one.length, otherEnd = other.length;
  while (from < oneEnd && from < otherEnd && one[from] === other[from]) from += 1;
  while (oneEnd > from && otherEnd > from && one[oneEnd - 1] === other[otherEnd - 1]) {
    oneEnd -= 1;
    otherEnd -= 1;
  }
  const made = [];
  const put = (sign, item) => {
    const last = made[made.length - 1];
    if (last && last[0] === sign) last[1].push(item);
    else made.push([sign, [item]]);
  };
  for (let nth = 0; nth < from; nth += 1) put("=", one[nth]);
  const rows = oneEnd - from, columns = otherEnd - from;
  if (rows * columns > MOST) {
    for (let nth = from; nth < oneEnd; nth += 1) put("-", one[nth]);
    for (let nth = from; nth < otherEnd; nth += 1) put("+", other[nth]);
  } else {
    const wide = columns + 1, best = new Uint32Array((rows + 1) * wide);
    for (let i = rows - 1; i >= 0; i -= 1) {
      for (let j = columns - 1; j >= 0; j -= 1) best[i * wide + j] = one[from + i] === other[from + j] ? best[(i + 1) * wide + j + 1] + 1 : Math.max(best[(i + 1) * wide + j], best[i * wide + j + 1]);
    }
    let i = 0, j = 0;
    while (i < rows || j < columns) {
      if (i < rows && j < columns && one[from + i] === other[from + j]) {
        put("=", one[from + i]);
        i += 1;
        j += 1;
      } else if (j >= columns || (i < rows && best[(i + 1) * wide + j] >= best[i * wide + j + 1])) put("-", one[from + i++]);
      else put("+", other[from + j++]);
    }
  }
  for (let nth = oneEnd; nth < one.length; nth += 1) put("=", one[nth]);
  return made;
}

const WORDS = /(\s+|[.,;:!?"'(){}[\]])/;
const isBlank = (text) => /^[\s.,;:"']+$/.test(text);

/** Words that differ: [[text, differs], …] of the first, and of the second. Two changes with a blank between are one. */
export function words(one, other) {
  const split = (text) => String(text).split(WORDS).filter(Boolean);
  const pieces = compared(split(one), split(other));
  const side = (sign) => {
    const made = [];
    pieces.forEach(([of, items], nth) => {
      if (of !== "=" && of !== sign) return;
      const text = items.join(""), differs = of === sign || (of === "=" && isBlank(text) && nth > 0 && nth < pieces.length - 1 && made.at(-1)?.[1] === true && pieces.slice(nth + 1, nth + 3).some(([next]) => next === sign));
      const last = made.at(-1);
      if (last && last[1] === differs) last[0] += text;
      else made.push([text, differs]);
    });
    return made;
  };
  return [side("-"), side("+")];
}

/** By how much a number became larger or smaller; nothing where the first was 0. */
export function share(one, other) {
  const percent = Math.abs(other / one - 1) * 100;
  if (other === one || percent < 0.05) return "the same";
  return one ? `${other < one ? "−" : "+"}${percent < 9.95 ? percent.toFixed(1) : Math.round(percent)}%` : "";
}

/**
 * The calls of a fork that are the same in its run, by who paid: {reused, again, usd, ms}. It has all that was recorded before `seq`, its
 * first event of its own; a call behind that was made again, although the same came of it.
 */
export function paid(calls, seq) {
  const again = calls.filter((call) => call.seq >= seq), sum = (name) => again.reduce((total, call) => total + (call[name] ?? 0), 0);
  return { reused: calls.length - again.length, again: again.length, usd: sum("usd"), ms: sum("ms") };
}

/** Lines that differ: [[sign, line], …]; runs of equal lines longer than twice `around` become one ["…", count]. */
export function lines(one, other, around = 3) {
  const made = [];
  const pieces = compared(String(one).split("\n"), String(other).split("\n"));
  pieces.forEach(([sign, items], nth) => {
    const head = nth === 0 ? 0 : around, tail = nth === pieces.length - 1 ? 0 : around;
    if (sign !== "=" || items.length <= head + tail + 1) return void items.forEach((line) => made.push([sign, line]));
    items.slice(0, head).forEach((line) => made.push(["=", line]));
    made.push(["…", items.length - head - tail]);
    items.slice(items.length - tail).forEach((line) => made.push(["=", line]));
  });
  return made;
}

/** A value as text whose lines can be compared: a text as it is, all else as JSON with names in order. */
export function readable(value) {
  return typeof value === "string" ? value : write(ordered(value), 2);
}

function ordered(value) {
  if (isScalar(value)) return value;
  if (Array.isArray(value)) return value.map(ordered);
  return Object.fromEntries(Object.keys(value).sort().map((key) => [key, ordered(value[key])]));
}

// On the page: lines with signs, and the words that differ marked.

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
  const names = Object.keys(value).map((key) => (/^[\w .-]+$/.test(key) ? key : write(key)));
  const wide = Math.min(Math.max(...names.map((name) => name.length), 0), 24);
  return Object.values(value).map((each, nth) => `${`${names[nth]}:`.padEnd(wide + 2)} ${flat(each)}`).join("\n");
}

/** Two values as texts that differ where the values do: beside a value of another kind a text is in quotes, because "5" is not 5. */
export const both = (one, other, told = outlined) => ((typeof one === "string") === (typeof other === "string") ? [told(one), told(other)] : [write(one, 2), write(other, 2)]);

const isScalar = (value) => value === null || typeof value !== "object" || isNumber(value);
const flat = (value) => (Array.isArray(value) && value.every(isScalar) ? `[${value.map((each) => write(each)).join(", ")}]` : write(value));

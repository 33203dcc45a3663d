// JSON whose numbers stay as they were written. JSON.parse rounds whole numbers beyond 2^53; a person decides about every digit.

/** A number that this browser cannot hold, or would write otherwise. It counts as the nearest that there is, and is written as it was. */
export class Exact extends Number {
  #source;

  constructor(source) {
    super(source);
    this.#source = source;
  }

  toString() {
    return this.#source;
  }
}

const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][-+]?\d+)?/g;
const PERHAPS = /\d{16}|\d[eE]\+?\d{3}|(?:^|[[:,\s])-0/; // in a text without any of these no number is another when it is read

// Is a number another when it is read? 1.0 is none: it is only written as 1, which matters where it is sent back.
const differs = (source, number) => !Number.isFinite(number) || Object.is(number, -0) || (!Number.isSafeInteger(number) && /^-?\d+$/.test(source));

// In JSON a number that is kept stands as a text that begins with this. It is random, so that no text of others does.
const mark = () => Array.from(crypto.getRandomValues(new Uint32Array(4)), (each) => each.toString(36)).join("");

/** Read JSON. Numbers that would be rounded are `Exact`; with `exact` all are that would be written otherwise, such as 1.0. */
export function parse(text, { exact = false } = {}) {
  if (!exact && !PERHAPS.test(text)) return JSON.parse(text);
  const sign = mark();
  let kept = false;
  const marked = text.replace(TOKEN, (token) => {
    if (token[0] === '"') return token;
    const number = Number(token);
    if (exact ? String(number) === token : !differs(token, number)) return token;
    kept = true;
    return `"${sign}${token}"`;
  });
  if (!kept) return JSON.parse(text);
  if (new RegExp(`"${sign}[^"]*"\\s*:`).test(marked)) return JSON.parse(text); // a number as a name: the browser says what is wrong
  return JSON.parse(marked, (key, value) => (typeof value === "string" && value.startsWith(sign) ? new Exact(value.slice(sign.length)) : value));
}

/** The name that an object in a text has twice, or null: whoever reads it loses one of the two. The text is JSON. */
export function twice(text) {
  const open = [];
  for (const { 0: token, index } of text.matchAll(/"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\]]/g)) {
    if (token === "{") open.push(new Set());
    else if (token === "[") open.push(null);
    else if (token === "}" || token === "]") open.pop();
    else if (open.at(-1) && /^\s*:/.test(text.slice(index + token.length))) {
      const name = JSON.parse(token);
      if (open.at(-1).has(name)) return name;
      open.at(-1).add(name);
    }
  }
  return null;
}

/** Write JSON, every number as it was read. */
export function write(value, indent) {
  const sign = mark();
  let kept = false;
  const text = JSON.stringify(value, (key, each) => {
    if (!(each instanceof Exact) && !Object.is(each, -0)) return each;
    kept = true;
    return `${sign}${each instanceof Exact ? each : "-0"}`;
  }, indent);
  return kept ? text.replace(new RegExp(`"${sign}([^"]*)"`, "g"), "$1") : text;
}

/** Is this a number? */
export const isNumber = (value) => typeof value === "number" || value instanceof Exact;

/** Are two values the same, to the last digit? */
export const same = (one, other) => write(one) === write(other);

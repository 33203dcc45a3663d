// The filter of runs: a line of words, as people type it and as the address has it; and what the API is asked for it.
//
//   agent:a,b  status:failed  label:name=value  waits:person  queue:mail  version:1  attempt>3  cost>1  age>1h  began:7d  root:no
//
// Words without a sign are looked for in ids, labels, arguments and errors.

import { IN_WORDS } from "./say.js";
import { now, span } from "./time.js";

export const STATUSES = ["running", "waiting", "ready", "paused", "failed", "completed", "cancelled"];
const WAITS = Object.keys(IN_WORDS);
const YES = { yes: true, true: true, no: false, false: false };
const bad = (v) => !Object.hasOwn(YES, v) && "write yes or no";

// Each word: how it is written, what is wrong with a value, and the parameters of the API that it means.
const WORDS = {
  agent: { many: true, asks: (values) => ({ agent: values }), says: (v) => `of agent ${list(v)}` },
  status: { many: true, wrong: (v) => !STATUSES.includes(v) && v !== "moved" && `states are ${STATUSES.join(", ")}`, asks: (values) => ({ status: values }), says: (v) => `that ${v.length > 1 ? "are" : "is"} ${list(v)}` },
  label: { many: true, wrong: (v) => !/^[^=]+=/.test(v) && 'a label is written name=value, and in quotes if it has a comma: label:"name=a,b"', asks: (values) => ({ label: values }), says: (v) => `with ${list(v)}` },
  waits: { many: true, wrong: (v) => !WAITS.includes(v) && `a run waits for ${WAITS.join(", ")}`, asks: (values) => ({ waits_for: values }), says: (v) => `that waits for ${list(v.map((each) => IN_WORDS[each] ?? each))}` },
  queue: { many: true, asks: (values) => ({ queue: values }), says: (v) => `in queue ${list(v)}` },
  version: { asks: ([value]) => ({ version: value }), says: (v) => `of version ${v[0]}` },
  parent: { asks: ([value]) => ({ parent: value }), says: (v) => `that ${v[0]} started` },
  attempt: { sign: ">", wrong: (v) => !/^\d{1,6}$/.test(v) && "attempts are a whole number", asks: ([value]) => ({ attempt: Number(value) + 1 }), says: (v) => `at an attempt after ${v[0]}` },
  cost: { sign: ">", wrong: (v) => !(Number(v) >= 0) && "a cost is a number of dollars", asks: ([value]) => ({ cost: Number(value) }), says: (v) => `that cost more than $${v[0]}` },
  age: { sign: ">", wrong: (v) => span(v) === null && "an age is written 1h, 30m or 2d", asks: ([value]) => ({ until: ago(value) }), says: (v) => `begun more than ${v[0]} ago` },
  began: { wrong: (v) => span(v) === null && "a time is written 7d, 1h or 30m", asks: ([value]) => ({ since: ago(value) }), says: (v) => `begun within ${v[0]}` },
  root: { wrong: bad, asks: ([value]) => ({ root: YES[value] }), says: (v) => (YES[v[0]] ? "without their children" : "with their children") },
  needs: { wrong: bad, asks: ([value]) => ({ needs: YES[value] || undefined }), says: () => "that needs a person" },
  stuck: { wrong: bad, asks: ([value]) => ({ stuck: YES[value] || undefined }), says: () => "that does not go on by itself" },
};
const EMPTY = "a value is missing";
const list = (values) => values.join(" or ");
const ago = (text) => new Date(Math.floor((now() - span(text)) / 1000) * 1000).toISOString();

/** Read a line: [{word, sign, values, text, wrong}] and free text as {text}. */
export function parse(line) {
  const found = [];
  for (const [text] of line.matchAll(/(?:[^\s"]|"[^"]*")+/g)) {
    const split = /^([a-z]+)([:>])(.+)$/s.exec(text);
    const word = split && Object.hasOwn(WORDS, split[1]) ? WORDS[split[1]] : null;
    if (!word || (word.sign ?? ":") !== split[2]) {
      found.push({ text: text.replaceAll('"', "") });
      continue;
    }
    const values = (word.many ? split[3].match(/(?:[^,"]|"[^"]*")+/g) ?? [] : [split[3]]).map((each) => each.replaceAll('"', ""));
    found.push({ word: split[1], sign: split[2], values, text, wrong: values.map((each) => (each ? word.wrong?.(each) : EMPTY)).find(Boolean) ?? (values.length ? null : EMPTY) });
  }
  return found;
}

/** Write it again. */
export const write = (tokens) => tokens.map((each) => (each.word ? `${each.word}${each.sign}${each.values.map(quoted).join(",")}` : /\s/.test(each.text) ? `"${each.text}"` : each.text)).join(" ");
export const quoted = (text) => (/[\s,]/.test(text) ? `"${text}"` : text);

/** What GET /api/runs is asked; a run that another started is left out unless the filter wants it. What is wrong is no condition left out,
 * because then more would fit than was meant: nothing is asked, and the answer is null. */
export function asked(tokens) {
  if (tokens.some((each) => each.wrong)) return null;
  const query = {};
  const free = [];
  for (const each of tokens) {
    if (!each.word) free.push(each.text);
    else for (const [name, value] of Object.entries(WORDS[each.word].asks(each.values))) query[name] = Array.isArray(value) ? [...(query[name] ?? []), ...value] : value;
  }
  if (free.length) query.search = free.join(" ");
  if (query.root === undefined && query.parent === undefined && !free.length) query.root = true;
  else if (query.root === false || query.root === undefined) delete query.root;
  return query;
}

/** The filter in words: 'no run of agent atlas that waits for a person'. */
export function inWords(tokens) {
  const said = tokens.map((each) => (each.word ? WORDS[each.word].says(each.values) : `with "${each.text}"`));
  return said.length ? `No run ${said.join(", ")}` : "There is no run";
}

/** What was perhaps meant: a label is not a word of the filter. Null if nothing comes to mind. */
export function meant(tokens) {
  const made = tokens.map((each) => {
    const label = each.word ? null : /^([\w.-]+):(.+)$/s.exec(each.text);
    return label ? { word: "label", sign: ":", values: [`${label[1]}=${label[2]}`] } : each;
  });
  return made.some((each, nth) => each !== tokens[nth]) ? write(made) : null;
}

/** Put a word in, take it out, or change it. */
export function withWord(tokens, word, values, sign = ":") {
  const rest = tokens.filter((each) => each.word !== word);
  return values.length ? [...rest, { word, sign, values, text: "", wrong: null }] : rest;
}

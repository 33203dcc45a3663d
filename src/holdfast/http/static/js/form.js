// A form from a JSON schema. Every type has a control; what no control fits is JSON, with what is wrong under it.

import { h, put, retext, swap } from "./dom.js";
import { icon } from "./icons.js";
import { isNumber, parse, same, twice, write } from "./json.js";
import { rest, tree } from "./parts.js";
import { has, plain, typeOf } from "./schema.js";
import { many } from "./say.js";
import { cut, shown } from "./text.js";
import { ms } from "./time.js";

const PILLS = 7; // more choices than this are a list
const DEEPEST = 6;
let numbered = 0;

/** A form of a value. `was` is what stood there first; `layout` is "rows" (name beside the control) or "stacked".
 * It has `element`, `read()` -> {value, errors: [{path, message}]}, `show(errors)` and `focus()`. While somebody types, what is still
 * empty is no error that is shown. What nobody touches is read as it was given, to the last digit, name and order. */
export function form(schema, value, { was, layout = "rows", changed = () => {}, label = "What is decided" } = {}) {
  const context = { root: schema ?? {}, layout, changed, depth: 0 };
  const top = kept(control(schema ?? {}, value, was, [], context, label), value, value !== undefined);
  const element = h(`div.form.${layout}`, { role: "group", "aria-label": label }, top.fields ? top.element : wrapped(top, { name: label, layout, bare: true }));
  return {
    element,
    read({ typing = false } = {}) {
      const errors = [];
      return { value: top.get(errors, typing), errors };
    },
    show(errors) {
      const left = errors.filter((each) => !top.tell(each.path ?? [], each.message));
      (element.querySelector('[aria-invalid="true"]') ?? element).focus?.();
      return left;
    },
    clear: () => top.clear(),
    focus: () => element.querySelector("input, textarea, select, button")?.focus(),
  };
}

const text = (value) => (value == null ? "" : typeof value === "string" ? value : write(value));
const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !isNumber(value);
const isScalar = (value) => value === null || typeof value !== "object" || isNumber(value);
const short = (value) => (value === undefined ? "nothing" : value === null ? "none" : Array.isArray(value) ? value.map(text).join(", ") || "empty" : typeof value === "boolean" ? (value ? "yes" : "no") : text(value));

// What is written on each of several choices. Two that would read the same are of different types: then the text has its quotes.
function wordsOf(offered) {
  const word = (each) => (each === null ? "none" : typeof each === "boolean" ? (each ? "yes" : "no") : each === "" ? '""' : text(each));
  return (each) => (typeof each === "string" && offered.some((other) => typeof other !== "string" && word(other) === word(each)) ? write(each) : word(each));
}

// A text in a list: as it is, unless it reads like something else.
function token(value) {
  if (typeof value !== "string") return write(value);
  if (!value || value !== value.trim() || /\s/.test(value.replaceAll(" ", ""))) return write(value);
  try {
    parse(value);
    return write(value); // it would be a number, a truth, nothing
  } catch {
    return value;
  }
}

// Controls: each gives {get(errors), tell(path, message), clear(), element or fields}

function control(given, value, was, path, context, name) {
  const schema = plain(given, context.root);
  if (context.depth > DEEPEST) return raw(schema, value, path, context, name);
  if ("const" in schema) return fixed(value === undefined ? schema.const : value, path);
  if (value === null && schema.nullable && (schema.type === "object" || schema.type === "array")) return unset(given, {}, was, path, context, name, true);
  if (value !== undefined && !fitsKind(schema, value, context)) return raw(schema, value, path, context, name);
  if (schema.type === "object" && schema.properties && Object.keys(schema.properties).length) return fields(schema, value, was, path, context);
  if (isFlat(schema, value)) return pairs(schema, value, was, path, context, name);
  if (schema.enum) return oneOf(schema, value, was, path, context, name);
  if (schema.type === "boolean") return oneOf({ ...schema, enum: [true, false] }, value, was, path, context, name);
  if (NUMBERS.has(schema.type)) return number(schema, value, path, context, name);
  if (schema.type === "string") return words(schema, value, path, context, name);
  if (schema.type === "array") {
    const items = plain(schema.items, context.root);
    if (items.enum && items.enum.length <= 20) return someOf(schema, items.enum, value, was, path, context, name);
    if (items.type === "string" || NUMBERS.has(items.type)) return tags(schema, items, value, path, context, name);
    if (items.type === "object" && items.properties) return several(schema, items, value, path, context, name);
  }
  return raw(schema, value, path, context, name);
}

// Does a value fit the kind of control that its schema asks for? One that does not is shown as JSON: a control would hide it.
function fitsKind(schema, value, context) {
  if (schema.enum || schema.type === "boolean") return isScalar(value);
  if (schema.type === "object") return isObject(value);
  if (schema.type === "array") return Array.isArray(value) && (plain(schema.items, context.root).type !== "object" || value.every(isObject));
  if (value === null) return true;
  if (schema.type === "string") return typeof value === "string";
  return !NUMBERS.has(schema.type) || isNumber(value) || (schema.type === "decimal" && isDecimal(value));
}

// A control that nobody has touched reads as what was given, whatever the control makes of that: a moment to the second, a text with
// other breaks, a name that the schema does not have.
function kept(made, given, isGiven) {
  const took = (errors, typing) => {
    const value = made.get(errors, typing);
    return [value, `${write(value)} ${errors.map((each) => each.message)}`];
  };
  const first = took([], true)[1];
  made.clear();
  return { ...made, get(errors, typing) {
    const wrong = [];
    const [value, now] = took(wrong, typing);
    if (now !== first || !isGiven) {
      errors.push(...wrong);
      return value;
    }
    if (given !== undefined) made.clear();
    else errors.push(...wrong);
    return given;
  } };
}

// An input shows what is in it in its own way, which others may have turned or hidden: what cannot be seen is told beside it.
function plainly(input) {
  const told = h("p.hint.turned", { hidden: true });
  const tell = () => {
    const marked = shown(input.value);
    told.hidden = marked === input.value.replaceAll("\r", "");
    swap(told, icon("warn"), h("span", "It has characters that cannot be seen, or that move others: ", h("code", marked)));
  };
  input.addEventListener("input", tell);
  tell();
  return told;
}

// A field that shows less than it holds has a way to the rest, which counts as unshown until its end was in sight: see parts.js.
function entirely(input) {
  const more = rest("", () => {
    input.style.setProperty("max-height", "none");
    input.style.setProperty("height", `${input.scrollHeight + 4}px`);
    seen();
  });
  const place = h("p.hint.more", more);
  const seen = () => {
    watch.disconnect();
    place.remove();
    input.dispatchEvent(new Event("more", { bubbles: true }));
  };
  const watch = new ResizeObserver(() => {
    if (!input.clientHeight) return;
    if (input.scrollHeight > input.clientHeight + 4) retext(more, `Show all ${many(input.value.length, "character")}`);
    else seen();
  });
  if (!input.value) return null;
  watch.observe(input);
  input.addEventListener("scroll", () => input.scrollTop + input.clientHeight >= input.scrollHeight - 4 && seen());
  return place;
}

// What every single control shares: an error text under it, and what it says of itself.
function single(path, element, get, target = element, more = null) {
  const wrong = h("p.hint.wrong", { id: `wrong-${++numbered}`, hidden: true });
  const tell = (message) => {
    wrong.hidden = !message;
    swap(wrong, message ?? "");
    if (message) {
      target.setAttribute("aria-invalid", "true");
      target.setAttribute("aria-describedby", wrong.id);
    } else {
      target.removeAttribute("aria-invalid");
      target.removeAttribute("aria-describedby");
    }
  };
  return {
    element: [element, more, wrong], target,
    get(errors) {
      const [value, message] = get();
      tell(message);
      if (message) errors.push({ path, message });
      return value;
    },
    tell(at, message) {
      if (at.length) return false;
      tell(message);
      return true;
    },
    clear: () => tell(null),
  };
}

function fixed(value, path) {
  return { ...single(path, h("span.fixed.mono", icon("lock"), text(value)), () => [value, null]), still: true };
}

// A field that is not in the value is not there: its default is offered, and what is offered is not what is decided. One that is none
// where fields would be has none of them until it is set.
function unset(given, is, was, path, context, name, none = false) {
  const offered = "const" in is ? is.const : is.default;
  let now = single(path, h("span.unset", h("span.dim", none ? "none" : offered === undefined ? "not set" : "not set; its default is ", offered !== undefined && h("code", cut(write(offered), 60))), h("button.link", { "aria-label": `Set ${name}`, onclick: () => {
    now = control(given, is.type === "array" ? offered ?? [] : offered, was, path, context, name);
    swap(box, now.fields ? h("div.form.nested", now.element) : now.element);
    box.querySelector("input, textarea, select, button")?.focus();
    context.changed();
  } }, "Set it")), () => [none ? null : undefined, null]);
  const box = h("div.unset-place", now.element);
  return { element: box, get: (errors, typing) => now.get(errors, typing), tell: (at, message) => now.tell(at, message), clear: () => now.clear() };
}

function fields(schema, value, was, path, context) {
  const needed = new Set(schema.required ?? []);
  const inner = { ...context, depth: context.depth + 1 };
  const others = isObject(value) ? Object.entries(value).filter(([key]) => !has(schema.properties, key)) : [];
  const all = Object.entries(schema.properties).map(([key, given]) => {
    const is = plain(given, context.root);
    const name = context.layout === "stacked" || schema.verbatim ? key : title(key, given);
    const own = has(value, key) ? value[key] : undefined;
    const first = has(was, key) ? was[key] : undefined;
    const made = isObject(value) && own === undefined
      ? unset(given, is, first, [...path, key], inner, name)
      : kept(control(given, own === undefined ? is.default : own, first, [...path, key], inner, name), own, isObject(value));
    const told = h("span.was", { hidden: true });
    const hint = [is.description, limits(is)].filter(Boolean).join("; ");
    const element = wrapped(made, { name, layout: context.layout, needed: needed.has(key) && context.layout === "stacked", type: context.layout === "stacked" ? typeOf(given, context.root) : null, hint, told, inline: made.still });
    return { key, made, element, needed: needed.has(key), is, changed(now_) {
      const differs = was !== undefined && !same(now_ ?? null, first ?? null);
      element.classList.toggle("changed", differs);
      told.hidden = !differs;
      swap(told, ...(isScalar(first) || (Array.isArray(first) && first.every(isScalar)) ? ["was ", h("span", short(first))] : ["changed"]));
    } };
  });
  return {
    fields: all,
    element: [...all.map((each) => each.element), others.map(([key, each]) => beside(key, each, context))],
    get(errors, typing) {
      const read = new Map(isObject(value) ? Object.entries(value) : []);
      for (const each of all) {
        const found = each.made.get(errors, typing);
        if (found === undefined) {
          if (each.needed && !errors.some((error) => error.path.at(path.length) === each.key)) {
            const message = `${each.key} is needed`;
            if (!typing) each.made.tell([], message);
            errors.push({ path: [...path, each.key], message });
          }
          read.delete(each.key);
        } else read.set(each.key, found);
        each.changed(found);
      }
      return Object.fromEntries(read);
    },
    tell(at, message) {
      const found = all.find((each) => each.key === String(at[0]));
      return found ? found.made.tell(at.slice(1), message) || found.made.tell([], message) : false;
    },
    clear: () => all.forEach((each) => each.made.clear()),
  };
}

// A part that has no place in the form is decided with the rest, so it is shown with it.
const beside = (key, value, { layout }) => wrapped({ element: h("div.json", tree(value, { open: true })) }, { name: key, layout, hint: "The form has no field for it: it stays as it is." });

// A field is called by its own title, or by its name: that of its type is the same in all fields of that type.
const title = (key, schema) => (key === "usd" ? "Dollars" : schema?.title && schema.title.toLowerCase().replace(/\W/g, "") !== key.toLowerCase().replace(/\W/g, "") ? schema.title : key.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase()));

function limits(schema) {
  const { minimum: least, maximum: most, exclusiveMinimum: above, exclusiveMaximum: below } = schema;
  if (least !== undefined && most < 1e9) return `${least} to ${most}`;
  const said = [least && Number(least) !== 0 && `at least ${least}`, above !== undefined && `more than ${above}`, most < 1e9 && `at most ${most}`, below < 1e9 && `less than ${below}`].filter(Boolean);
  if (said.length) return said.join(", ");
  if (schema.pattern) return `it fits ${cut(schema.pattern, 80)}`;
  if (schema.maxLength) return `at most ${many(schema.maxLength, "character")}`;
  return FORMATS[schema.format]?.[1] ?? "";
}

function wrapped(made, { name, layout, needed, type, hint, told, inline, bare }) {
  const id = `field-${++numbered}`;
  if (made.target && !made.target.id) made.target.id = id;
  const label = h("label", { for: made.target?.id }, name);
  if (layout === "stacked") {
    return h("div.start-field", !bare && h("label", { for: made.target?.id }, h("span.strong", name), needed && h("span.needed", "needed"), type && h("span.dim.mono", type)), made.fields ? h("div.nested", made.element) : made.element, hint && h("p.hint", hint));
  }
  return h("div.field", { class: `${inline ? "inline" : ""} ${bare ? "bare" : ""}` }, !bare && h("div.field-name", label, told), h("div.field-in", made.fields ? h("div.form.nested", made.element) : made.element, hint && h("p.hint", hint)));
}

function oneOf(schema, value, was, path, context, name) {
  let now = value === undefined ? schema.default : value;
  const named = schema.nullable ? [...schema.enum.filter((each) => each !== null), null] : schema.enum;
  const offered = value === undefined || named.some((each) => same(each, value)) ? named : [...named, value];
  const says = wordsOf(offered);
  const get = () => [now, now !== undefined && !named.some((each) => same(each, now)) ? `it is one of ${named.map(says).join(", ")}` : null];
  if (offered.length > PILLS) {
    const list = h("select", { "aria-label": name, onchange: () => { now = list.value === "" ? undefined : offered[Number(list.value)]; context.changed(); } },
      now === undefined && h("option", { value: "" }, ""), offered.map((each, at) => h("option", { value: String(at), selected: same(each, now) }, says(each))));
    return single(path, list, get);
  }
  const box = h("div.pills", { role: "radiogroup", "aria-label": name, tabIndex: -1 });
  const draw = () => swap(box, offered.map((each) => {
    const is = same(each, now);
    return h("button.pick-pill", { role: "radio", "aria-checked": String(is), class: is ? "on" : was !== undefined && same(each, was) ? "off gone" : "off", onclick: () => { now = each; draw(); [...box.children].find((pill) => pill.getAttribute("aria-checked") === "true")?.focus(); context.changed(); } }, is && icon("check"), says(each));
  }));
  draw();
  return single(path, box, get);
}

// Some of a few: those that are chosen come first, each as often and in the order in which the list has them.
function someOf(schema, named, value, was, path, context, name) {
  const given = Array.isArray(value) ? value : [];
  const now = [...given];
  const had = (each) => Array.isArray(was) && was.some((one) => same(one, each));
  const offered = [...named, ...given.filter((each, at) => ![...named, ...given.slice(0, at)].some((one) => same(one, each)))];
  const says = wordsOf(offered);
  const box = h("div.pills", { role: "group", "aria-label": name, tabIndex: -1 });
  const pill = (each, is, does) => h("button.pick-pill", { "aria-pressed": String(is), class: is ? (had(each) || was === undefined ? "on" : "on new") : had(each) ? "off gone" : "off", onclick: () => {
    does();
    draw();
    box.children[Math.max(now.findLastIndex((one) => same(one, each)), 0)]?.focus();
    context.changed();
  } }, icon(is ? "check" : had(each) ? "cross" : "plus"), says(each));
  const draw = () => swap(box, now.map((each, at) => pill(each, true, () => now.splice(at, 1))), offered.filter((each) => !now.some((one) => same(one, each))).map((each) => pill(each, false, () => now.push(each))));
  draw();
  return single(path, box, () => [[...now], sized(now, schema)]);
}

function sized(list, schema) {
  if (schema.minItems && list.length < schema.minItems) return `at least ${schema.minItems}`;
  if (schema.maxItems !== undefined && list.length > schema.maxItems) return `at most ${schema.maxItems}`;
  return null;
}

// A number as it was typed, every digit of it; null if it is none. A decimal is a text: whoever reads it makes no float of it.
function numeral(typed, type) {
  if (type === "decimal") return isDecimal(typed) ? typed : null;
  try {
    const found = parse(typed, { exact: true });
    if (isNumber(found)) return found;
  } catch {
    // it may be one that only people write: +5, .5, 007
  }
  const found = Number(typed);
  return Number.isSafeInteger(found) || Math.abs(found) < Number.MAX_SAFE_INTEGER ? found : null;
}
const NUMBERS = new Set(["integer", "number", "decimal"]);
const isDecimal = (value) => typeof value === "string" && /^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value);
const isWhole = (number) => /^-?\d+$/.test(number) || Number.isInteger(Number(number));

function less(one, other) {
  try {
    return BigInt(String(one)) < BigInt(String(other));
  } catch {
    return Number(one) < Number(other); // one of them has a fraction
  }
}

function beyond(found, schema) {
  if (schema.minimum !== undefined && less(found, schema.minimum)) return `at least ${schema.minimum}`;
  if (schema.maximum !== undefined && less(schema.maximum, found)) return `at most ${schema.maximum}`;
  if (schema.exclusiveMinimum !== undefined && !less(schema.exclusiveMinimum, found)) return `more than ${schema.exclusiveMinimum}`;
  if (schema.exclusiveMaximum !== undefined && !less(found, schema.exclusiveMaximum)) return `less than ${schema.exclusiveMaximum}`;
  return null;
}

function number(schema, value, path, context, name) {
  const whole = schema.type === "integer";
  const length = text(value).length;
  const input = h(length > 24 ? "textarea" : length > 8 || schema.type === "decimal" ? "input.text" : "input.text.short", { rows: length > 24 ? 1 : undefined, inputmode: whole ? "numeric" : "decimal", value: text(value), autocomplete: "off", placeholder: schema.nullable ? "none" : undefined, "aria-label": name, oninput: context.changed });
  const get = () => {
    const typed = input.value.trim().replace(/(?<=\d),(?=\d{3}\b)/g, "");
    if (!typed) return [schema.nullable ? null : undefined, null];
    const found = numeral(typed, schema.type);
    if (found === null) return [undefined, `${input.value} is no number`];
    if (whole && !isWhole(found)) return [undefined, "it is a whole number"];
    if (schema.type === "number" && !isWhole(found) && !Number.isFinite(Number(found))) return [undefined, "it is larger than any number with a fraction can be"];
    return [found, beyond(found, schema)];
  };
  if (!whole || context.layout === "stacked" || length > 6) return single(path, input, get, input, length > 24 && entirely(input));
  const step = (by) => {
    const from = /^-?\d+$/.test(input.value.trim()) ? BigInt(input.value.trim()) : 0n;
    const to = from + BigInt(by);
    input.value = String(schema.minimum !== undefined && less(to, schema.minimum) ? schema.minimum : schema.maximum !== undefined && less(schema.maximum, to) ? schema.maximum : to);
    context.changed();
  };
  const nudge = (by, label, sign) => h("button.button.square", { "aria-label": label, onclick: () => step(by) }, icon(sign));
  return single(path, h("div.stepper", nudge(-1, "Fewer", "left"), input, nudge(1, "More", "right")), get, input);
}

const FORMATS = {
  time: [/^([01]\d|2[0-3]):[0-5]\d(:[0-5]\d(\.\d+)?)?(Z|[-+]\d\d:?\d\d)?$/i, "a time, such as 08:15"],
  duration: [/^[-+]?(P(?=.)(\d+(\.\d+)?[YMWD])*(T(\d+(\.\d+)?[HMS])+)?|(\d+ days?,? ?)?(\d+:\d\d(:\d\d(\.\d+)?)?)?)$/i, "a duration, such as PT3H, P1DT30M or 3:00:00"],
  uuid: [/^[\da-f]{8}(-?[\da-f]{4}){3}-?[\da-f]{12}$/i, "a UUID, 32 digits from 0 to f"],
  email: [/^[^@\s]+@[^@\s]+$/, "an address, such as ana@example.org"],
};

function words(schema, value, path, context, name) {
  if (schema.format === "date" || schema.format === "date-time") return moments(schema, value, path, context, name);
  const length = text(value).length;
  const long = length > 60 || text(value).includes("\n");
  const nothing = value === "" ? "empty text" : schema.nullable || value === null ? "none" : undefined; // what it is without a character
  const input = context.layout === "stacked" && !long
    ? h("input.text", { value: text(value), "aria-label": name, autocomplete: "off", placeholder: nothing, oninput: context.changed })
    : h("textarea", { rows: long ? Math.min(Math.max(3, Math.ceil(length / 60), text(value).split("\n").length), 12) : 1, value: text(value), "aria-label": name, placeholder: nothing, oninput: context.changed });
  const untouched = value == null;
  return single(path, input, () => {
    const typed = input.value;
    if (!typed && untouched) return [schema.nullable ? null : schema.default, null];
    if (!typed && schema.nullable && value !== "") return [null, null];
    if (schema.minLength && [...typed].length < schema.minLength) return [typed, `at least ${many(schema.minLength, "character")}`];
    if (schema.maxLength !== undefined && [...typed].length > schema.maxLength) return [typed, `at most ${many(schema.maxLength, "character")}`];
    const [form_, said] = FORMATS[schema.format] ?? [];
    return [typed, form_ && !form_.test(typed) ? `it is ${said}` : null]; // a pattern is the server's to look for: there are some that a browser never comes to the end of
  }, input, [entirely(input), plainly(input)]);
}

// A date, or a moment where this computer is; sent with its zone, so that it means the same everywhere. One that has no zone stays so.
// The control shows no fraction and no zone, so what was given stands under it.
function moments(schema, value, path, context, name) {
  const day = schema.format === "date";
  const bare = typeof value === "string" && !/(Z|[+-]\d\d:?\d\d)$/i.test(value);
  const at = value ? ms(value) : null;
  if (value && (at === null || (day && !/^\d{4}-\d\d-\d\d$/.test(value)))) return words({ ...schema, format: undefined }, value, path, context, name);
  const local = at === null ? "" : day ? value : new Date(at - new Date(at).getTimezoneOffset() * 60_000).toISOString().slice(0, 19);
  const input = h("input.text.when", { type: day ? "date" : "datetime-local", value: local, step: day ? undefined : 1, "aria-label": name, oninput: context.changed });
  return single(path, input, () => {
    if (!input.value) return [input.validity.badInput ? undefined : schema.nullable ? null : undefined, input.validity.badInput ? "that is no date" : null];
    if (day) return [input.value, null];
    return [bare ? input.value.padEnd(19, ":00") : new Date(input.value).toISOString(), null];
  }, input, !day && value && value !== local && h("p.hint.exactly", "exactly ", h("code", value)));
}

function tags(schema, items, value, path, context, name) {
  const now = Array.isArray(value) ? [...value] : [];
  const input = h("input", { "aria-label": `Add to ${name}`, placeholder: "add", autocomplete: "off" });
  const box = h("div.tags");
  const says = items.type === "decimal" ? text : token;
  let message = null;
  const add = () => {
    const typed = input.value.trim();
    if (!typed) return;
    const found = items.type === "string" ? typed : numeral(typed, items.type);
    if (found === null || (items.type === "integer" && !isWhole(found))) {
      message = `${typed} is no ${items.type === "integer" ? "whole number" : "number"}`;
      return context.changed();
    }
    message = items.type === "string" ? null : beyond(found, items);
    if (message) return context.changed();
    now.push(found);
    input.value = "";
    draw();
    input.focus();
    context.changed();
  };
  const draw = () => swap(box, now.map((each, at) => h("span.token", says(each), h("button", { "aria-label": `Take ${says(each)} out`, onclick: () => { now.splice(at, 1); draw(); input.focus(); context.changed(); } }, icon("cross")))), input);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === ",") {
      event.preventDefault();
      add();
    } else if (event.key === "Backspace" && !input.value && now.length) {
      now.pop();
      draw();
      input.focus();
      context.changed();
    }
  });
  input.addEventListener("blur", add);
  draw();
  return single(path, box, () => [value === undefined && !now.length && !schema.minItems ? undefined : [...now], message ?? sized(now, schema)], input);
}

// A list of like objects: each a form of its own.
function several(schema, items, value, path, context, name) {
  const list = [];
  const box = h("div.several");
  const inner = { ...context, depth: context.depth + 1 };
  const add = (of) => {
    const made = kept(fields(items, of, undefined, [...path, list.length], inner), of, of !== undefined);
    const one = h("div.form.nested", made.element, h("button.quiet", { title: "Take it out", "aria-label": `Take this out of ${name}`, onclick: () => { list.splice(list.findIndex((each) => each.one === one), 1); one.remove(); context.changed(); } }, icon("cross")));
    list.push({ made, one });
    box.insertBefore(one, more);
  };
  const more = h("button.button.small", { onclick: () => { add(undefined); context.changed(); } }, icon("plus"), `Add to ${name.toLowerCase()}`);
  box.append(more);
  (Array.isArray(value) ? value : []).forEach(add);
  const own = single(path, box, () => [null, sized(list, schema)], more);
  return {
    ...own,
    get(errors, typing) {
      own.get(errors);
      return list.map((each) => each.made.get(errors, typing));
    },
    tell: (at, message) => (at.length ? (list[at[0]]?.made.tell(at.slice(1), message) ?? false) : own.tell([], message)),
  };
}

/** What no control fits is JSON. */
function raw(schema, value, path, context, name) {
  const given = value === undefined ? (schema.default === undefined ? "" : write(schema.default, 2)) : write(value, 2);
  const input = h("textarea.mono", { rows: Math.min(Math.max(given.split("\n").length, 2), 16), value: given, spellcheck: "false", "aria-label": `${name}, as JSON`, oninput: context.changed });
  return single(path, input, () => {
    if (!input.value.trim()) return [schema.nullable ? null : undefined, null];
    try {
      const value = parse(input.value, { exact: true }), name_ = twice(input.value);
      return name_ === null ? [value, null] : [undefined, `${write(name_)} is there twice`];
    } catch (error) {
      return [undefined, /^\s*["[{]/.test(input.value) ? `it is no JSON: ${error.message}` : `it is no JSON: a text stands in quotes, and a number has nothing behind it`];
    }
  }, input, [entirely(input), plainly(input)]);
}

const MOST_PAIRS = 50;
const isFlat = (schema, value) => isObject(value) && !schema.enum && (schema.type ?? "object") === "object" && Object.keys(value).length > 0 && Object.keys(value).length <= MOST_PAIRS && Object.values(value).every(isScalar);
const kindOf = (value) => (typeof value === "string" ? { type: "string" } : typeof value === "boolean" ? { type: "boolean" } : isNumber(value) ? { type: "number" } : {});

// A dictionary of single values, of which no schema names any: a row for each, and JSON for who wants others.
function pairs(schema, value, was, path, context, name) {
  const own = plain(schema.additionalProperties, context.root);
  const properties = Object.fromEntries(Object.entries(value).map(([key, each]) => [key, own.type ? own : kindOf(each)]));
  const rows = fields({ properties, required: Object.keys(value), verbatim: true }, value, was, path, context);
  let now = kept(rows, value, true);
  const box = h("div.pairs");
  const asJson = h("button.link", { onclick: () => {
    now = kept(raw(schema, now.get([], true), path, context, name), value, false);
    swap(box, wrapped(now, { name, layout: context.layout, bare: true }));
    now.target.focus();
    context.changed();
  } }, "Edit as JSON");
  put(box, [rows.element, h("p.field.bare.hint", asJson)]);
  return { element: box, fields: rows.fields, get: (errors, typing) => now.get(errors, typing), tell: (at, message) => now.tell(at, message), clear: () => now.clear() };
}

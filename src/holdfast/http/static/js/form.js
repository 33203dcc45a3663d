// A form from a JSON schema. Every type has a control; what no control fits is JSON, with what is wrong under it.

import { h, swap } from "./dom.js";
import { icon } from "./icons.js";
import { ms } from "./time.js";

const PILLS = 7; // more choices than this are a list
const DEEPEST = 6;
let numbered = 0;

/** A form of a value. `was` is what stood there first; `layout` is "rows" (name beside the control) or "stacked".
 * It has `element`, `read()` -> {value, errors: [{path, message}]}, `show(errors)` and `focus()`. While somebody types, what is still
 * empty is no error that is shown. */
export function form(schema, value, { was, layout = "rows", changed = () => {}, label = "What is decided" } = {}) {
  const context = { root: schema ?? {}, layout, changed, depth: 0 };
  const top = control(schema ?? {}, value, was, [], context, label);
  const element = h(`div.form.${layout}`, { role: "group", "aria-label": label }, top.fields ? top.fields.map((each) => each.element) : wrapped(top, { name: label, layout, bare: true }));
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

// Schemas

function plain(schema, root, depth = 0) {
  if (schema === true || schema === undefined) return {};
  if (schema.$ref && depth < 20) {
    const found = schema.$ref.split("/").slice(1).reduce((at, part) => at?.[decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~")], root);
    const { $ref: _, ...rest } = schema;
    return plain({ ...(found ?? {}), ...rest }, root, depth + 1);
  }
  if (schema.allOf?.length === 1) return plain({ ...schema.allOf[0], ...schema, allOf: undefined }, root, depth + 1);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) {
    const kinds = several.map((each) => plain(each, root, depth + 1));
    const rest = kinds.filter((each) => each.type !== "null");
    const { anyOf: _a, oneOf: _b, ...outer } = schema;
    if (rest.length === 1 && rest.length < kinds.length) return { ...rest[0], ...outer, nullable: true };
    if (rest.every((each) => "const" in each)) return { ...outer, enum: rest.map((each) => each.const), nullable: rest.length < kinds.length };
  }
  if (Array.isArray(schema.type)) {
    const rest = schema.type.filter((each) => each !== "null");
    if (rest.length === 1) return { ...schema, type: rest[0], nullable: schema.type.includes("null") };
  }
  return schema;
}

/** The type of a schema as people write it: 'list[str] = []'. */
export function typeOf(schema, root = schema) {
  const is = plain(schema, root);
  const base = is.enum ? is.enum.map((each) => JSON.stringify(each)).join(" | ") : is.type === "array" ? `list[${is.items ? typeOf(is.items, root) : "any"}]` :
    { string: { date: "date", "date-time": "datetime", time: "time", duration: "duration", uuid: "uuid" }[is.format] ?? "str", integer: "int", number: "float", boolean: "bool", object: is.title ?? "object" }[is.type] ?? "any";
  return (is.nullable ? `${base} | None` : base) + ("default" in is ? ` = ${JSON.stringify(is.default)}` : "");
}

const same = (one, other) => JSON.stringify(one) === JSON.stringify(other);
const text = (value) => (value === undefined || value === null ? "" : typeof value === "string" ? value : JSON.stringify(value));
const short = (value) => (value === undefined ? "nothing" : value === null ? "none" : Array.isArray(value) ? value.map(text).join(", ") || "empty" : typeof value === "boolean" ? (value ? "yes" : "no") : text(value));

// Controls: each gives {get(errors), tell(path, message), clear(), element or fields}

function control(given, value, was, path, context, name) {
  const schema = plain(given, context.root);
  if (context.depth > DEEPEST) return raw(schema, value, path, context, name);
  if ("const" in schema) return fixed(schema.const, path);
  if (schema.type === "object" && schema.properties && Object.keys(schema.properties).length) return fields(schema, value, was, path, context);
  if (schema.enum) return oneOf(schema, value, was, path, context, name);
  if (schema.type === "boolean") return oneOf({ ...schema, enum: [true, false], says: { true: "yes", false: "no" } }, value, was, path, context, name);
  if (schema.type === "integer" || schema.type === "number") return number(schema, value, path, context, name);
  if (schema.type === "string") return words(schema, value, path, context, name);
  if (schema.type === "array") {
    const items = plain(schema.items, context.root);
    if (items.enum && items.enum.length <= 20) return someOf(schema, items.enum, value, was, path, context, name);
    if (items.type === "string" || items.type === "integer" || items.type === "number") return tags(schema, items, value, path, context, name);
    if (items.type === "object" && items.properties) return several(schema, items, value, path, context, name);
  }
  return raw(schema, value, path, context, name);
}

// What every single control shares: an error text under it, and what it says of itself.
function single(path, element, get, target = element) {
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
    element: [element, wrong], target,
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

function fields(schema, value, was, path, context) {
  const needed = new Set(schema.required ?? []);
  const inner = { ...context, depth: context.depth + 1 };
  const rest = value && typeof value === "object" ? Object.fromEntries(Object.entries(value).filter(([key]) => !(key in schema.properties))) : {};
  const all = Object.entries(schema.properties).map(([key, given]) => {
    const is = plain(given, context.root);
    const name = context.layout === "stacked" ? key : title(key, is);
    const now = value?.[key] ?? (value && key in value ? value[key] : is.default);
    const made = control(given, now, was?.[key], [...path, key], inner, name);
    const first = was?.[key];
    const told = h("span.was", { hidden: true });
    const hint = [is.description, limits(is)].filter(Boolean).join("; ");
    const element = wrapped(made, { name, layout: context.layout, needed: needed.has(key) && context.layout === "stacked", type: context.layout === "stacked" ? typeOf(given, context.root) : null, hint, told, inline: made.still });
    return { key, made, element, needed: needed.has(key), is, changed(now_) {
      const differs = was !== undefined && !same(now_ ?? null, first ?? null);
      element.classList.toggle("changed", differs);
      told.hidden = !differs;
      swap(told, "was ", h("span", short(first)));
    } };
  });
  return {
    fields: all,
    element: all.map((each) => each.element),
    get(errors, typing) {
      const read = { ...rest };
      for (const each of all) {
        const found = each.made.get(errors, typing);
        if (found === undefined) {
          if (each.needed && !errors.some((error) => error.path.at(path.length) === each.key)) {
            const message = `${each.key} is needed`;
            if (!typing) each.made.tell([], message);
            errors.push({ path: [...path, each.key], message });
          }
        } else read[each.key] = found;
        each.changed(found);
      }
      return read;
    },
    tell(at, message) {
      const found = all.find((each) => each.key === String(at[0]));
      return found ? found.made.tell(at.slice(1), message) || found.made.tell([], message) : false;
    },
    clear: () => all.forEach((each) => each.made.clear()),
  };
}

const title = (key, schema) => (key === "usd" ? "Dollars" : schema.title && schema.title.toLowerCase().replace(/\W/g, "") !== key.toLowerCase().replace(/\W/g, "") ? schema.title : key.replaceAll("_", " ").replace(/^./, (c) => c.toUpperCase()));

function limits(schema) {
  const [least, most] = [schema.minimum ?? schema.exclusiveMinimum, schema.maximum ?? schema.exclusiveMaximum];
  if (least !== undefined && most !== undefined && most < 1e9) return `${least} to ${most}`;
  if (least !== undefined && least !== 0) return `at least ${least}`;
  if (most !== undefined && most < 1e9) return `at most ${most}`;
  if (schema.maxLength) return `at most ${schema.maxLength} characters`;
  return "";
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
  const offered = schema.nullable ? [...schema.enum.filter((each) => each !== null), null] : schema.enum;
  const says = (each) => (each === null ? "none" : (schema.says?.[each] ?? text(each)));
  const get = () => [now, now !== undefined && !offered.some((each) => same(each, now)) ? `it is one of ${offered.map(says).join(", ")}` : null];
  if (offered.length > PILLS) {
    const list = h("select", { "aria-label": name, onchange: () => { now = list.value === "" ? undefined : offered[Number(list.value)]; context.changed(); } },
      now === undefined && h("option", { value: "" }, ""), offered.map((each, at) => h("option", { value: String(at), selected: same(each, now) }, says(each))));
    return single(path, list, get);
  }
  const box = h("div.pills", { role: "radiogroup", "aria-label": name, tabIndex: -1 });
  const draw = () => swap(box, offered.map((each) => {
    const is = same(each, now);
    return h("button.pick-pill", { type: "button", role: "radio", "aria-checked": String(is), class: is ? "on" : was !== undefined && same(each, was) ? "off gone" : "off", onclick: () => { now = each; draw(); [...box.children].find((pill) => pill.getAttribute("aria-checked") === "true")?.focus(); context.changed(); } }, is && icon("check"), says(each));
  }));
  draw();
  return single(path, box, get);
}

function someOf(schema, offered, value, was, path, context, name) {
  const now = new Map((Array.isArray(value) ? value : []).map((each) => [JSON.stringify(each), each]));
  const before = new Set((Array.isArray(was) ? was : []).map((each) => JSON.stringify(each)));
  const box = h("div.pills", { role: "group", "aria-label": name, tabIndex: -1 });
  const draw = () => swap(box, offered.map((each) => {
    const key = JSON.stringify(each);
    const is = now.has(key);
    const had = was !== undefined && before.has(key);
    return h("button.pick-pill", { type: "button", "aria-pressed": String(is), class: is ? (had || was === undefined ? "on" : "on new") : had ? "off gone" : "off", onclick: (event) => {
      const at = [...box.children].indexOf(event.currentTarget);
      is ? now.delete(key) : now.set(key, each);
      draw();
      box.children[at].focus();
      context.changed();
    } }, icon(is ? "check" : had ? "cross" : "plus"), text(each));
  }));
  draw();
  const get = () => {
    const list = offered.filter((each) => now.has(JSON.stringify(each)));
    return [list, sized(list, schema)];
  };
  return single(path, box, get);
}

function sized(list, schema) {
  if (schema.minItems && list.length < schema.minItems) return `at least ${schema.minItems}`;
  if (schema.maxItems !== undefined && list.length > schema.maxItems) return `at most ${schema.maxItems}`;
  return null;
}

function number(schema, value, path, context, name) {
  const whole = schema.type === "integer";
  const input = h("input.text.short", { type: "text", inputmode: whole ? "numeric" : "decimal", value: text(value), autocomplete: "off", "aria-label": name, oninput: context.changed });
  const get = () => {
    const typed = input.value.trim().replace(/(?<=\d),(?=\d{3}\b)/g, "");
    if (!typed) return [schema.nullable ? null : undefined, null];
    const found = Number(typed);
    if (!Number.isFinite(found)) return [undefined, `${input.value} is no number`];
    if (whole && !Number.isInteger(found)) return [undefined, "it is a whole number"];
    if (whole && !Number.isSafeInteger(found)) return [undefined, "it has too many digits for a form; use the command line"];
    if (schema.minimum !== undefined && found < schema.minimum) return [found, `at least ${schema.minimum}`];
    if (schema.maximum !== undefined && found > schema.maximum) return [found, `at most ${schema.maximum}`];
    if (schema.exclusiveMinimum !== undefined && found <= schema.exclusiveMinimum) return [found, `more than ${schema.exclusiveMinimum}`];
    if (schema.exclusiveMaximum !== undefined && found >= schema.exclusiveMaximum) return [found, `less than ${schema.exclusiveMaximum}`];
    return [found, null];
  };
  if (!whole || context.layout === "stacked") return single(path, input, get);
  const step = (by) => {
    const from = Number(input.value) || 0;
    const bounded = Math.min(Math.max(from + by, schema.minimum ?? -Infinity), schema.maximum ?? Infinity);
    input.value = String(bounded);
    context.changed();
  };
  const nudge = (by, label, sign) => h("button.button.square", { type: "button", "aria-label": label, onclick: () => step(by) }, icon(sign));
  return single(path, h("div.stepper", nudge(-1, "Fewer", "left"), input, nudge(1, "More", "right")), get, input);
}

function words(schema, value, path, context, name) {
  if (schema.format === "date" || schema.format === "date-time") return moments(schema, value, path, context, name);
  const long = text(value).length > 60 || text(value).includes("\n");
  const input = context.layout === "stacked" && !long
    ? h("input.text", { type: "text", value: text(value), "aria-label": name, autocomplete: "off", placeholder: schema.nullable ? "none" : undefined, oninput: context.changed })
    : h("textarea", { rows: long ? 3 : 1, value: text(value), "aria-label": name, placeholder: schema.nullable ? "none" : undefined, oninput: context.changed });
  const untouched = value === undefined || value === null;
  return single(path, input, () => {
    const typed = input.value;
    if (!typed && untouched) return [schema.nullable ? null : schema.default, null];
    if (!typed && schema.nullable) return [null, null];
    if (schema.minLength && [...typed].length < schema.minLength) return [typed, `at least ${schema.minLength} characters`];
    if (schema.maxLength !== undefined && [...typed].length > schema.maxLength) return [typed, `at most ${schema.maxLength} characters`];
    return [typed, schema.pattern && !fits(schema.pattern, typed) ? `it does not fit ${schema.pattern}` : null];
  });
}

function fits(pattern, typed) {
  try {
    return new RegExp(pattern, "u").test(typed);
  } catch {
    return true; // a pattern that a browser does not know: the server looks at it
  }
}

// A date, or a moment where this computer is; sent with its zone, so that it means the same everywhere.
function moments(schema, value, path, context, name) {
  const day = schema.format === "date";
  const at = value ? new Date(ms(value)) : null;
  const local = at && !Number.isNaN(at.getTime()) ? (day ? text(value).slice(0, 10) : new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 19)) : "";
  const input = h("input.text.when", { type: day ? "date" : "datetime-local", value: local, step: day ? undefined : 1, "aria-label": name, oninput: context.changed });
  return single(path, input, () => {
    if (!input.value) return [input.validity.badInput ? undefined : schema.nullable ? null : undefined, input.validity.badInput ? "that is no date" : null];
    if (day) return [input.value, null];
    return [input.value === local && value ? value : new Date(input.value).toISOString(), null];
  });
}

function tags(schema, items, value, path, context, name) {
  const now = Array.isArray(value) ? [...value] : [];
  const input = h("input", { type: "text", "aria-label": `Add to ${name}`, placeholder: "add", autocomplete: "off" });
  const box = h("div.tags");
  let message = null;
  const add = () => {
    const typed = input.value.trim();
    if (!typed) return;
    const found = items.type === "string" ? typed : Number(typed);
    if (items.type !== "string" && (!Number.isFinite(found) || (items.type === "integer" && !Number.isInteger(found)))) {
      message = `${typed} is no ${items.type === "integer" ? "whole number" : "number"}`;
      return context.changed();
    }
    message = null;
    now.push(found);
    input.value = "";
    draw();
    input.focus();
    context.changed();
  };
  const draw = () => swap(box, now.map((each, at) => h("span.token", text(each), h("button", { type: "button", "aria-label": `Take ${text(each)} out`, onclick: () => { now.splice(at, 1); draw(); input.focus(); context.changed(); } }, icon("cross")))), input);
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
    const made = fields(items, of, undefined, [...path, list.length], inner);
    const one = h("div.form.nested", made.element, h("button.quiet", { type: "button", title: "Take it out", "aria-label": `Take this out of ${name}`, onclick: () => { list.splice(list.findIndex((each) => each.one === one), 1); one.remove(); context.changed(); } }, icon("cross")));
    list.push({ made, one });
    box.insertBefore(one, more);
  };
  const more = h("button.button.small", { type: "button", onclick: () => { add(undefined); context.changed(); } }, icon("plus"), `Add to ${name.toLowerCase()}`);
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
  const given = value === undefined ? (schema.default === undefined ? "" : JSON.stringify(schema.default, null, 2)) : JSON.stringify(value, null, 2);
  const input = h("textarea.mono", { rows: Math.min(Math.max(given.split("\n").length, 2), 16), value: given, spellcheck: "false", "aria-label": `${name}, as JSON`, oninput: context.changed });
  return single(path, input, () => {
    if (!input.value.trim()) return [schema.nullable ? null : undefined, null];
    try {
      return [JSON.parse(input.value), null];
    } catch (error) {
      return [undefined, `it is no JSON: ${error.message}`];
    }
  });
}

/** What a value comes to in a few words, for a button: 'staff, code, 14 days'. */
export function brief(schema, value, most = 34) {
  const is = plain(schema ?? {}, schema ?? {});
  if (value === null || value === undefined) return "";
  if (typeof value === "string") return is.enum ? value : "";
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  if (Array.isArray(value) || !is.properties) return "";
  const said = Object.entries(is.properties).flatMap(([key, given]) => {
    const of = plain(given, schema);
    const now = value[key];
    if ("const" in of || now === null || now === undefined) return [];
    const word = key.replaceAll("_", " ");
    if (Array.isArray(now)) return now.length && now.every((each) => typeof each === "string") ? [now.join(", ")] : [];
    if (typeof now === "number") return [key === "usd" ? `$${now.toFixed(2)}` : `${now} ${word}`];
    if (typeof now === "boolean") return now ? [word] : [];
    return of.enum ? [now] : [];
  });
  const told = said.join(", ");
  return told.length <= most ? told : ""; // half of what is decided would say something else
}

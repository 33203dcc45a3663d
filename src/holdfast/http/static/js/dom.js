// Elements are made here and nowhere else. What others wrote becomes a text node: it can never be markup.

import { distinct, shown } from "./text.js";

const SVG = "http://www.w3.org/2000/svg";
const READ_ALOUD = new Set(["title", "aria-label", "placeholder"]); // attributes that people read
const NAMING = new Set(["mono", "label"]); // classes of what holds keys, ids and labels, and no prose
const EXACT = new Set(["value", "checked", "disabled", "selected", "open", "hidden", "indeterminate", "readOnly", "tabIndex", "rows"]);
const ATTRIBUTES = /^(aria-[a-z]+|role|id|for|name|type|inputmode|autocomplete|autocapitalize|spellcheck|enterkeyhint|min|max|step|colspan|scope|lang|dir|rel|datetime|minlength|maxlength|pattern|multiple|download|popover|novalidate|list|label)$/;
const DRAWN = /^(viewBox|width|height|d|x|y|x1|x2|y1|y2|cx|cy|r|rx|ry|points|transform|preserveAspectRatio|text-anchor|dy|dx)$/;

/** An element of HTML: `h("p.dim", {title: "…"}, "text", other)`. */
export const h = (tag, ...rest) => made((name) => document.createElement(name), tag, rest);

/** An element of SVG. */
export const s = (tag, ...rest) => made((name) => document.createElementNS(SVG, name), tag, rest);

function made(create, tag, rest) {
  const [name, ...classes] = tag.split(".");
  const element = create(name || "div");
  if (name === "button") element.type = "button"; // one that sends a form says so
  const given = isProps(rest[0]) ? rest.shift() : {};
  const more = given.class ? String(given.class).split(" ").filter(Boolean) : [];
  const says = [...classes, ...more].some((each) => NAMING.has(each)) ? distinct : shown;
  if (classes.length + more.length) element.setAttribute("class", [...classes, ...more].join(" "));
  for (const [key, value] of Object.entries(given)) if (key !== "class") set(element, key, value, says);
  put(element, rest, says);
  if ("value" in given && name === "select") element.value = given.value; // its options are there only now
  return element;
}

const isProps = (value) => value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof Node) && !(value instanceof Number);

function set(element, key, value, says) {
  if (value == null || value === false) return;
  if (key.startsWith("on") && typeof value === "function") element.addEventListener(key.slice(2), value);
  else if (key === "style") for (const [property, to] of Object.entries(value)) element.style.setProperty(property, to);
  else if (key === "data") for (const [each, to] of Object.entries(value)) element.dataset[each] = to;
  else if (key === "href") element.setAttribute("href", inside(value));
  else if (READ_ALOUD.has(key)) element.setAttribute(key, says(value));
  else if (EXACT.has(key) && element.namespaceURI !== SVG) element[key] = value;
  else if (ATTRIBUTES.test(key) || (element.namespaceURI === SVG && DRAWN.test(key))) element.setAttribute(key, value === true ? "" : value);
  else throw new Error(`${key} is no attribute that the page sets; add it to dom.js if it is harmless`);
}

/** A link leads to this server and nowhere else. */
function inside(href) {
  const to = new URL(href, document.baseURI);
  if (to.origin !== new URL(document.baseURI).origin || !to.protocol.startsWith("http")) throw new Error("a link leads nowhere but inside");
  return href;
}

/** Put texts, elements and lists of them into an element; false and null are nothing. */
export function put(element, rest, says = shown) {
  for (const each of rest) {
    if (each == null || each === false || each === true) continue;
    if (Array.isArray(each)) put(element, each, says);
    else element.append(each instanceof Node ? each : says(each));
  }
  return element;
}

/** Put these in the place of all that is in an element. */
export function swap(element, ...rest) {
  element.replaceChildren();
  return put(element, rest);
}

/** Change the text of an element, if it is another; so nothing is drawn, said or lost for nothing. */
export function retext(element, text) {
  const now = shown(text);
  if (element.textContent !== now) element.textContent = now;
}

/** A path of the page, with each part encoded: `path("runs", id, {at: 3})`. Empty values of the query are left out. */
export function path(...parts) {
  const query = isProps(parts.at(-1)) ? parts.pop() : {};
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    for (const each of Array.isArray(value) ? value : [value]) if (each != null && each !== "" && each !== false) asked.append(key, each);
  }
  const text = asked.toString();
  return parts.map(encodeURIComponent).join("/") + (text && `?${text}`);
}

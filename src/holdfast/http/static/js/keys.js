// Keys: one place hears them all. A view says what its letters do; letters act only when no field has the focus, and can be turned off.

import { h } from "./dom.js";
import { button, choice, kbd } from "./parts.js";
import { get, set } from "./store.js";

const layers = []; // maps of key -> function, the innermost last
let first = ""; // of two letters

/** Let these keys act until the answer is called: {"j": () => …, "g r": () => …, "Shift+D": () => …}. */
export function keys(map) {
  layers.push(map);
  return () => layers.splice(layers.indexOf(map), 1);
}

/** The name of a pressed key, as maps have it. */
export function named(event) {
  const letter = event.key.length === 1 && /\p{L}/u.test(event.key);
  return letter && event.shiftKey ? `Shift+${event.key.toUpperCase()}` : event.key;
}

function heard(event) {
  const field = event.target.closest?.("input, textarea, select, [contenteditable]");
  if (event.metaKey || event.ctrlKey || event.altKey || event.isComposing) return;
  if (field && !(field.matches("[type=checkbox]") && event.key.length === 1 && event.key !== " ")) {
    if (event.key === "Escape" && !field.closest("dialog")) field.blur();
    return;
  }
  if (document.querySelector("dialog[open]")) return;
  const name = named(event);
  if (name.length === 1 && !get("letters") && name !== "?") return;
  const pair = first ? `${first} ${name}` : "";
  first = "";
  for (const map of [...layers].reverse()) {
    const does = (pair && map[pair]) || map[name];
    if (does) {
      if (does(event) === false) continue;
      event.preventDefault();
      return;
    }
    if (Object.keys(map).some((each) => each.startsWith(`${name} `))) first = name;
  }
}

/** Move the focus among rows: elements with data-row. */
export function move(by) {
  const rows = [...document.querySelectorAll("[data-row]")].filter((each) => each.offsetParent !== null || each.getClientRects().length);
  const at = rows.indexOf(document.activeElement?.closest("[data-row]"));
  const next = rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + by, 0), rows.length - 1)];
  next?.focus();
  next?.scrollIntoView({ block: "nearest" });
}

const HELP = [
  ["Everywhere", [["/", "find"], ["g r", "runs"], ["g a", "approvals"], ["g f", "fleet"], ["g s", "agents"], ["⇧ D", "dark, light, as the system"], ["?", "these keys"], ["Esc", "close, or one level up"]]],
  ["Lists", [["j k", "next, previous"], ["Enter o", "open"], ["f", "filter runs"], ["x", "choose"], ["⇧ X", "choose to here"], ["n ⇧ N", "next, previous that needs a person"], ["c", "copy a link to this"], ["y", "copy the id"]]],
  ["A run", [["[ ]", "previous, next interruption"], ["f ⇧ F", "next, previous failure"], ["j k", "next, previous row"], ["→ ←", "open, close a row"], ["t", "folded or true time"], ["+ - 0", "zoom in, out, all"], ["⇧ C", "only since the last checkpoint"], ["1 … 6", "tabs"], ["r", "retry or resume"], ["y", "copy the id"], [".", "more that can be done"], ["⇧ Y", "copy as Markdown"]]],
  ["Two runs", [["s", "swap A and B"]]],
  ["A question", [["e", "edit"], ["a", "approve, then Enter"], ["d", "deny, then Enter"], ["p", "pass on"]]],
];

/** Show the keys, and the settings of this device. */
export function help() {
  if (document.querySelector("dialog[open]")) return;
  const made = h("dialog.dialog.help", { "aria-label": "Keys" });
  const fill = () => made.replaceChildren(h("form", { onsubmit: (event) => { event.preventDefault(); made.close(); } }, h("h2", "Keys"),
    h("div.help-grid", HELP.map(([title, rows]) => h("section", h("h3", title), h("dl", rows.map(([key, says]) => h("div", h("dt", kbd(...key.split(" "))), h("dd", says))))))),
    h("div.settings",
      h("span", "Single letters"), choice([["on", "act"], ["off", "do nothing"]], get("letters") ? "on" : "off", (id) => { set({ letters: id === "on" }); fill(); }, "Single letters"),
      h("span", "Times"), choice([["here", "local"], ["utc", "UTC"]], get("utc") ? "utc" : "here", (id) => { set({ utc: id === "utc" }); fill(); }, "Times")),
    h("footer.dialog-acts", button("Close", { type: "submit" }))));
  fill();
  made.addEventListener("close", () => made.remove());
  document.body.append(made);
  made.showModal();
}

if (typeof addEventListener === "function") addEventListener("keydown", heard);

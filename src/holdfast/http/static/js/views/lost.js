// An address that means nothing.

import { h } from "../dom.js";
import { button } from "../parts.js";

export function open() {
  return { element: h("section.panel.empty", h("h1", "There is nothing here"), h("p.dim", "No page has this address. What it led to may have another name by now."), h("div.empty-acts", button("Runs", { kind: "primary", href: "runs" }))) };
}

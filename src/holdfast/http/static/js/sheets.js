// Styles that only some views need come with them, so that the first view is small.

import { h } from "./dom.js";

/** Show an element once the sheet of its view is there: `styled(element, "run")`. */
export function styled(element, name) {
  const href = `static/css/${name}.css`;
  const show = () => (element.hidden = false);
  let link = [...document.head.querySelectorAll("link[data-of]")].find((each) => each.dataset.of === name);
  if (link?.sheet) return element;
  element.hidden = true;
  if (!link) document.head.append((link = h("link", { rel: "stylesheet", href, data: { of: name } })));
  link.addEventListener("load", show);
  link.addEventListener("error", show); // without its styles it can still be read
  return element;
}

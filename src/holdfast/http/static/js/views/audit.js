// Audit: who did what from outside, through which door.

import { h, path, put, swap } from "../dom.js";
import { read } from "../api.js";
import { did } from "../deeds.js";
import { ghosts, problem, runLink, tree, who } from "../parts.js";
import { age, clock, day, exact } from "../say.js";
import { isId } from "../text.js";

const PAGE = 100;

/** The deeds that fit {run, by, action}, the newest first. */
export function deeds(wanted) {
  const place = h("ol.deeds");
  const body = h("section.panel.audit-list", ghosts());
  const more = h("footer.foot");
  const fill = async (before = null) => {
    const answer = await read(path("api", "audit", { ...wanted, before, limit: PAGE }));
    if (!answer.ok) return swap(before ? more : body, problem(answer.error, () => fill(before)));
    const { deeds, next } = answer.data;
    if (!before) swap(body, deeds.length ? [place, more] : h("div.empty", h("h2", "Nothing was done"), h("p.dim", "No deed fits.")));
    put(place, grouped(deeds));
    swap(more, next ? h("button.link", { onclick: () => fill(next) }, "Earlier") : h("span.dim", "that is all"));
  };
  let last = null;
  const grouped = (deeds) => deeds.flatMap((each) => {
    const date = day(each.at);
    const head = date === last ? [] : [h("li.deed-day", h("h3", date))];
    last = date;
    return [...head, deed(each)];
  });
  fill();
  return body;
}

export function open({ query, go }) {
  const wanted = { run: query.get("run"), by: query.get("by"), action: query.get("action") };
  const field = (name, label) => h("label.audit-field", h("span.dim", label), h("input.text", { name, value: wanted[name] ?? "", autocomplete: "off", autocapitalize: "none", spellcheck: "false" }));
  const filter = h("form.audit-filter", { onsubmit: (event) => {
    event.preventDefault();
    go(path("audit", Object.fromEntries(new FormData(event.target))));
  } }, field("run", "run"), field("by", "by"), field("action", "action"), h("button.button", { type: "submit" }, "Filter"));
  return { element: h("div", h("div.head", h("div.head-line", h("h1", "Audit"), h("p.dim", "who did what, and through which door"))), filter, deeds(wanted)) };
}

function deed(each) {
  const note = each.data?.note ?? each.data?.reason;
  const rest = Object.entries(each.data ?? {}).filter(([key]) => !["note", "reason"].includes(key));
  const more = rest.length || (each.value != null);
  return h("li.deed", { data: { row: String(each.id) }, tabIndex: 0 },
    h("time.dim", { title: `${exact(each.at)}, ${age(each.at)} ago` }, clock(each.at)), who(each.by || "somebody"),
    h("div.deed-what", h("span", did(each.action)), each.run && [" ", isId(each.run) ? runLink(each.run) : h("span.mono", each.run)], note && h("q", note),
      each.erased_at && h("span.dim", " (values and texts were erased)"),
      more && h("details", h("summary.dim", "more"), h("div.json", tree({ ...Object.fromEntries(rest), ...(each.value != null && { value: each.value }) })))),
    h("span.dim.deed-via", each.via));
}

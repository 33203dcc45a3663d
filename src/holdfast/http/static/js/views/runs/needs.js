// Needs a person: open questions, and runs that are stuck, most urgent first, at most four.

import { h, path } from "../../dom.js";
import { button, glyph } from "../../parts.js";
import { age, left, many, ms, now, people } from "../../say.js";
import { get } from "../../store.js";

const LOOKS = { question: "person", in_doubt: "doubt", paused: "paused", crashes: "stuck", unserved: "worker", overdue: "stuck" };

/** The box, or nothing if nothing needs a person. `needs` and `runs` are of GET /api/needs. */
export function needsBox({ needs, runs }) {
  if (!needs?.length) return null;
  return h("section.needs", { "aria-label": "Needs a person" },
    h("header", h("h2", "Needs a person"), h("span.dim.only-wide", many(runs, "run")),
      h("a.link", { href: path("runs", { needs: "yes" }) }, "All")),
    h("ul", needs.slice(0, 4).map(item)));
}

function item(each) {
  const [to, act] = leads(each);
  const expires = ms(each.expires_at);
  return h("li", { class: each.kind },
    glyph(LOOKS[each.kind] ?? "stuck"),
    h("div.needs-what", h("a.strong.cut", { href: to, title: each.text }, each.text), h("p.dim.cut", h("span.mid", each.count > 1 ? many(each.count, "run") : (each.run ?? each.agent)), each.detail && " · ", each.detail)),
    h("div.needs-who",
      each.mine ? h("span.you", "for you") : h("span.dim", `for ${each.approval ? people(each.to, get("me")) : "operators"}`),
      expires && expires > now() ? h("span.dim", `${left(expires)} left`) : each.since && h("span.dim", `for ${age(each.since)}`)),
    button(act, { kind: each.mine ? "small primary" : "small", href: to, title: each.advice ?? undefined }));
}

function leads(each) {
  if (each.approval) return [path("approvals", each.approval), each.mine ? "Decide" : "Look"];
  if (each.kind === "unserved") return [path("runs", { q: `agent:${each.agent} waits:worker${each.version ? ` version:${each.version}` : ""}` }), "Show"];
  if (each.run) return [path("runs", each.run), "Show"];
  return [path("runs", { needs: "yes" }), "Show"];
}

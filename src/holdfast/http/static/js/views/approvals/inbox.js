// The list of questions: for you, for others, decided.

import { h, path } from "../../dom.js";
import { glyph } from "../../parts.js";
import { agreed, ms, now, seconds, spoken } from "../../say.js";
import { get, may } from "../../store.js";
import { cut } from "../../text.js";
import { write } from "../../json.js";
import { brief } from "../../schema.js";
import { ago, ended, forWhom, isChanged, kindOf, lookOf, saidBy } from "./kinds.js";

/** The list; `chosen` is the id of the one that is open. */
export function inbox({ mine, others, decided }, chosen) {
  const group = (title, look, items) => [h("header.inbox-head", h("h2", title, h("span.badge", { class: look }, items.length))), h("ul", items.map((each) => entry(each, chosen)))];
  return h("section.inbox", { "aria-label": "Questions" },
    mine.length ? group("For you", "ask", mine) : may("decide") && [h("header.inbox-head", h("h2", "For you")), h("p.inbox-none.dim", "Nothing waits for you.")],
    others.length > 0 ? group(may("decide") ? "For others" : "Open", "", others) : !may("decide") && [h("header.inbox-head", h("h2", "Open")), h("p.inbox-none.dim", "Nothing waits for a person.")],
    decided.length > 0 && [h("header.inbox-head", h("h2", "Decided")), h("ul.decided", decided.map(past))]);
}

function entry(item, chosen) {
  const left = ms(item.expires_at) === null ? null : ms(item.expires_at) - now();
  return h("li", h("a.inbox-item", { href: path("approvals", item.id), data: { row: item.id }, "aria-current": item.id === chosen ? "true" : undefined },
    glyph(lookOf(item)),
    h("div.inbox-what", h("p.strong", saidBy(item)[0]), h("p.dim.cut", item.path.join(" › "), " · ", hint(item)),
      h("p.inbox-meta", h("span.dim", `asked ${ago(item.asked_at)}`), item.needs > 1 && h("span.dim", `${item.votes.filter((each) => each.yes).length} of ${item.needs} agree`),
        left !== null && h("span", { class: left < 6 * 3_600_000 ? "ask-ink" : "dim" }, left > 0 ? `${left < 600_000 ? seconds(left) : spoken(left)} left` : "time is over"),
        item.mine ? agreed(item, get("me")) && h("span.dim", "you agreed") : h("span.dim", `for ${forWhom(item, null)}`)))));
}

// A list has no room for large values. What an agent itself calls so reads the same here, and only here: a question alone is whole.
const isCut = (data) => data !== null && typeof data === "object" && Object.keys(data).join() === "$cut";

function hint(item) {
  const kind = kindOf(item);
  if (kind === "in_doubt") return "it happened, run it, or fail";
  if (kind === "budget") return "more budget";
  if (kind === "loop") return "go on or stop";
  if (kind === "ask") return item.schema?.title ?? item.schema?.type ?? "an answer";
  if (item.data === null || item.data === undefined) return "yes or no";
  if (isCut(item.data)) return "a large value";
  const few = brief(item.schema, item.data, 60);
  if (few) return few;
  return cut(typeof item.data === "string" ? item.data.replace(/\s+/g, " ") : write(item.data), 80);
}

function past(item) {
  return h("li", h("a", { href: path("approvals", item.id), data: { row: item.id } }, h("span.strong.cut", saidBy(item)[0]),
    h("p.dim.cut", h("span", { class: `said-${item.decision ?? "none"}` }, ended(item)), item.decided_by && ` by ${item.decided_by}`, isChanged(item) && item.decision === "approved" && ", with a change", item.note && `: ${item.note}`),
    h("span.dim.at", ago(item.decided_at ?? item.expires_at ?? item.asked_at))));
}

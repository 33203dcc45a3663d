// Rows of a huge run, from what the server folded: a row with a density for each group of calls, and below it those that matter.
// Densities come in as many pieces as were asked for, whatever the number of calls.

import { count, many, ms, spoken } from "../../say.js";

/** Rows as the timeline draws them. `span`, `text` and `buckets` stand for the calls, which the page does not have. */
export function outlineRows(model, view) {
  const made = [];
  level(model.outline, 0, made, model, view);
  return made;
}

function level(told, depth, made, model, view) {
  told.groups.forEach((group, nth) => {
    const span = [ms(group.began), ms(group.ended) ?? view.now], open = view.opened.has(group.key), more = group.count > 1 || group.kind === "branch";
    const row = {
      key: group.key, sort: group.kind === "branch" ? "branch" : group.count > 1 ? "many" : group.kind, name: group.name, note: group.count > 1 ? `${count(group.count)}${group.running > 1 ? `, ${count(group.running)} at once` : ""}` : "",
      depth, nth: nth + 1, of: told.groups.length, start: span[0], span, model: group.kind === "model", running: group.running, failed: group.failed, call: null, inner: null, journal: model.journal, fold: true, opens: group.key, expanded: more ? open : undefined,
      buckets: { from: ms(told.began), to: ms(told.ended) ?? view.now, counts: group.density ?? [], failures: group.failures ?? [] },
      text: `${group.name}, ${many(group.count, "call")}${group.failed ? `, ${count(group.failed)} failed` : ""}${group.running ? `, ${count(group.running)} run now` : ""}, ${spoken(span[1] - span[0])} in all`,
    };
    made.push(row);
    if (!open || !more) return;
    const inside = model.outline.under?.get(group.key);
    if (group.kind === "branch" && inside) level(inside, depth + 1, made, model, view);
    for (const [name, calls, note] of [["tried again", group.again, `${count(group.attempts - group.count)} more attempts`], ["slowest", group.slowest, "of all"]]) {
      if (!calls?.length || group.kind === "branch") continue;
      const own = `${group.key}/${name}`, closed = view.closed.has(own);
      made.push({ key: own, sort: "some", name, note, depth: depth + 1, nth: 1, of: 1, start: null, call: null, inner: null, journal: model.journal, expanded: !closed, text: `${name} ${note}` });
      if (closed) continue;
      for (const each of calls) made.push({ key: `${own}/${each.seq}`, at: each.key, sort: "step", name: group.name, note: each.key.split("/").pop().replace(/^[^#]*/, ""), depth: depth + 2, nth: 1, of: calls.length, start: null, span: null, call: null, inner: null, journal: model.journal, attempts: each.attempts, long: each.ms, text: `${group.name} ${each.key}, ${spoken(each.ms)}${each.attempts > 1 ? `, ${each.attempts} attempts` : ""}` });
    }
  });
}

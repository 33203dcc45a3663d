// Who did what to a run, from outside.

import { read } from "../../api.js";
import { did } from "../../deeds.js";
import { h, path, swap } from "../../dom.js";
import { button, ghosts, problem, table, tree, who } from "../../parts.js";
import { clock, day, exact } from "../../say.js";

const PAGE = 100;

export function deeds(model) {
  const element = h("section.panel.deeds", ghosts(4));
  let all = [], next = null;

  async function load() {
    const answer = await read(path("api", "audit", { run: model.id, limit: PAGE, before: next }));
    if (!answer.ok) return void swap(element, problem(answer.error, load));
    all = [...all, ...answer.data.deeds];
    next = answer.data.next;
    swap(element, all.length ? table(["When", "Who", "Did", "Through", "What"], all.map((deed) => [h("span", { title: exact(deed.at) }, `${day(deed.at)}, ${clock(deed.at)}`), deed.by ? who(deed.by) : h("span.dim", "–"), h("span.strong", did(deed.action).replace(/ (to|for|on)$/, "")), h("span.dim.mono", deed.via), what(deed)]), { label: "Deeds" }) : h("div.quiet-note", h("p.strong", "Nobody has done anything to this run."), h("p.dim", "What is done from outside is listed here: start, pause, decide, retry, fork.")), next ? h("p.foot", button("More", { kind: "small", onclick: load })) : null);
  }

  function what(deed) {
    const said = deed.data?.reason ?? deed.data?.note ?? deed.data?.question ?? deed.data?.topic ?? "";
    const rest = Object.keys(deed.data ?? {}).length || deed.value !== undefined;
    if (deed.erased_at) return h("span.dim", "erased");
    return rest ? h("details", h("summary", said || h("span.dim", "all of it")), h("div.json", tree({ ...deed.data, ...(deed.value == null ? {} : { value: deed.value }) }))) : said;
  }

  load();
  return { element, draw() {}, close() {} };
}

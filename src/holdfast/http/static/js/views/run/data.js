// What a run was given, what it came to, and the states it stored on the way, each with what changed since the one before.

import { read } from "../../api.js";
import { both, diff, readable } from "../../difference.js";
import { h, path, swap } from "../../dom.js";
import { write as json } from "../../json.js";
import { copied, facts, ghosts, icon, problem, tree, value } from "../../parts.js";
import { bytes, clock } from "../../say.js";
import { distinct } from "../../text.js";

export function data(model) {
  const result = h("div"), stored = h("div"), element = h("div.data-cols");
  const block = (title, inside, text) => h("section.panel.data-block", h("header.sub", h("h2", title), h("span.gap"), text ? h("button.quiet", { title: `Copy ${title.toLowerCase()}`, "aria-label": `Copy ${title.toLowerCase()}`, onclick: () => copied(text(), title) }, icon("copy")) : null), inside);
  let stamp = "";

  function draw() {
    const now = `${model.info.status} ${model.journal.checkpoints.length}`;
    if (now === stamp) return;
    stamp = now;
    const labels = Object.entries(model.info.labels ?? {});
    swap(element,
      block("Arguments", model.arguments && Object.keys(model.arguments).length ? h("div.json", tree(model.arguments)) : h("p.dim", "none"), () => json(model.arguments, 2)),
      block("Result", result),
      block("Labels", labels.length ? facts(...labels.map(([name, text]) => [distinct(name), h("span.mono", text)])) : h("p.dim", "none")),
      h("section.panel.data-block.wide", h("header.sub", h("h2", "Checkpoints"), h("span.dim", "the state that the agent stored; replay begins at the last one")), stored));
    ended();
    checkpoints();
  }

  async function ended() {
    if (model.info.status !== "completed") return void swap(result, h("p.dim", model.info.status === "failed" ? model.info.error : "it has none yet"));
    swap(result, ghosts(2));
    const answer = await read(model.url("result"), { exact: true });
    swap(result, answer.ok ? value(answer.data.result ?? null) : problem(answer.error));
  }

  async function checkpoints() {
    if (!model.journal.checkpoints.length) return void swap(stored, h("p.dim", "none"));
    const answer = await read(model.url("checkpoints"));
    const all = answer.ok ? answer.data.checkpoints : model.journal.checkpoints;
    swap(stored, h("ol.stored", [...all].reverse().map((each, nth, list) => {
      const inside = h("div.stored-in"), before = list[nth + 1];
      let filled = false;
      const open = async () => {
        if (filled) return;
        filled = true;
        swap(inside, ghosts(2));
        const [own, last] = await Promise.all([model.value(each.seq), before ? model.value(before.seq) : null]);
        if (own.error) return void swap(inside, problem(own.error));
        swap(inside, last && !last.error ? h("section", h("h3", `Since checkpoint ${before.era}`), sinceThen(last.value, own.value)) : null, h("section", h("h3", "State"), value(own.value ?? null)));
      };
      const made = h("details", { ontoggle: (event) => event.target.open && open() }, h("summary", h("span.strong", `Checkpoint ${each.era ?? ""}`), h("span.dim.mono", `seq ${each.seq}`), h("span.dim", clock(each.at)), each.size === undefined ? null : h("span.dim", bytes(each.size)), h("a.link", { href: path("runs", model.id, "journal", { at: each.seq }) }, "journal")), inside);
      if (nth === 0) {
        made.open = true;
        open();
      }
      return h("li", made);
    })));
  }

  return { element, draw, close() {} };
}

function sinceThen(before, now) {
  const texts = both(before, now, readable);
  return texts[0] === texts[1] ? h("p.dim", "the same") : diff(...texts, "What changed");
}

// Many runs at once: a bar at the bottom while rows are chosen, and the dialogs that ask before something ends.

import { h, path, retext } from "../../dom.js";
import { write } from "../../api.js";
import { ask, button, problem, toast } from "../../parts.js";
import { count, many } from "../../say.js";
import { has, may } from "../../store.js";

const DEEDS = {
  retry: { text: "Retry", name: "again", did: "retried", fits: (run) => run.status === "failed" },
  pause: { text: "Pause", name: "pause", did: "asked to pause", fits: (run) => ["ready", "running", "waiting"].includes(run.status) },
  resume: { text: "Resume", name: "play", did: "resumed", fits: (run) => run.status === "paused" },
  cancel: { text: "Cancel…", name: "stop", did: "asked to stop", asks: true, fits: (run) => !run.finished_at },
  delete: { text: "Delete…", name: "cross", did: "deleted", asks: true, needs: "deletion", fits: (run) => Boolean(run.finished_at) },
};
const TYPED = 20; // from so many on the number is typed

/** The bar; who may only read can compare two. `chosen` are the runs; `all` is {total, filter} when all that fit the filter are meant. */
export function bulkBar({ chosen, all, total, chooseAll, none, done }) {
  const size = all ? all.total : chosen.length;
  const act = (action) => carryOut(action, { chosen, all, size }).then((did) => did && done());
  const offered = Object.entries(DEEDS).filter(([, deed]) => may("write") && has(deed.needs) && (all || chosen.some(deed.fits)));
  return h("div.many", { role: "toolbar", "aria-label": "For the chosen runs" },
    h("span", h("b", count(size)), " chosen", !may("write") && size !== 2 && ", two can be compared"),
    may("write") && !all && total > chosen.length && h("button.link", { onclick: chooseAll }, "choose all that fit the filter"),
    h("span.gap"),
    offered.map(([action, deed]) => button(deed.text, { name: deed.name, kind: deed.asks ? "small danger" : "small", onclick: () => act(action) })),
    !all && chosen.length === 2 && button("Compare", { name: "compare", kind: "small", href: path("compare", { a: chosen[0].id, b: chosen[1].id }) }),
    button("", { name: "cross", kind: "small square", title: "Choose none", onclick: none }));
}

async function carryOut(action, { chosen, all, size }) {
  const deed = DEEDS[action];
  const body = { action, ids: all ? null : chosen.filter(deed.fits).map((run) => run.id), filter: all ? all.filter : null, expect: all ? size : null, reason: "" };
  const number = all ? size : body.ids.length;
  if (!deed.asks) return answered(deed, await write("api/runs/bulk", body));
  const reason = h("input.text", { maxlength: 500, "aria-label": "Reason" });
  const typed = h("input.text.short", { inputmode: "numeric", autocomplete: "off", "aria-label": "How many" });
  const agents = [...new Set(chosen.filter(deed.fits).map((run) => run.agent))];
  const wrong = h("p.hint.wrong", { role: "alert" });
  const result = await ask({
    title: `${action === "cancel" ? "Cancel" : "Delete"} ${many(number, "run")}?`,
    body: [
      h("p", action === "cancel" ? "They stop for good: children first, then each agent may tidy up for 30 s." : "Their histories, values and children are gone for good."),
      !all && h("p.dim", `Of ${agents.slice(0, 5).join(", ")}${agents.length > 5 ? ` and ${agents.length - 5} more agents` : ""}.`),
      all && h("p.dim", "All that fit the filter, also those that are not on this page."),
      action === "cancel" && h("label", "Reason, for the agents and the audit", reason),
      number > TYPED && h("label", `Write ${number} to go on`, typed),
      wrong,
    ],
    yes: `${action === "cancel" ? "Cancel" : "Delete"} ${count(number)}`, kind: "primary danger",
    does: async () => {
      if (number > TYPED && typed.value.replace(/[,\s]/g, "") !== String(number)) {
        typed.setAttribute("aria-invalid", "true");
        typed.focus();
        return false;
      }
      const answer = await write("api/runs/bulk", { ...body, reason: reason.value });
      if (answer.ok) return answer;
      retext(wrong, `${answer.error.code === "changed" ? "More runs fit by now: " : ""}${answer.error.message} ${answer.error.code === "unknown" ? answer.error.hint : ""}`);
      return false;
    },
  });
  return result ? answered(deed, result) : false;
}

async function answered(deed, answer) {
  if (!answer.ok) {
    await ask({ title: answer.error.code === "unknown" ? "No answer" : "Nothing was done", body: [problem(answer.error)], yes: "Back", no: null });
    return false;
  }
  const { done, refused = [] } = answer.data;
  if (!refused.length) {
    toast(`${many(done, "run")} ${done === 1 ? "was" : "were"} ${deed.did}`);
    return true;
  }
  await ask({
    title: `${many(done, "run")} ${deed.did}, ${count(refused.length)} refused`,
    body: [h("ul.refusals", refused.map((each) => h("li", h("span.mono", each.id), h("span.dim", each.message))))], yes: "Close", no: null,
  });
  return true;
}

// Workers that are gone, in words. Nothing here touches the page.

import { age, clock, many, ms, now, spoken, when } from "../../say.js";

/** What came of a worker and its runs; `left` is how many of them nobody has taken over yet, null if that is not known. */
export function goneWords({ how, at, moved = 0, after_ms: after = null }, left) {
  if (how === "drained") return moved ? `${many(moved, "run")} handed over` : "handed over none";
  const ended = `${how === "lease" ? "stopped answering before" : "found dead at"} ${clock(at)}`;
  const went = moved ? `${many(moved, "run")} went on${after === null ? "" : ` within ${spoken(after)}`}` : "";
  const waits = left ? `${moved ? left : many(left, "run")} ${left === 1 ? "waits" : "wait"} for another worker` : "";
  return [ended, [went, waits].filter(Boolean).join(", ") || (left === 0 ? "it carried no run just then" : "")].filter(Boolean).join("; ");
}

/** Since when there has been no sign of any worker. */
export const silence = (last) => `There has been no sign of any worker since ${when(last)}${now() - ms(last) < 1000 ? "" : `, for ${age(last)}`}; `;

// What was: workers that are gone, in words, and the last hour, minute by minute. Nothing here touches the page.

import { age, clock, many, minute, ms, now, spoken, when } from "../../say.js";

const MINUTE = 60_000, HOUR = 60;

/** What came of a worker and its runs; `left` is how many of them nobody has taken over yet, null if that is not known. */
export function goneWords({ how, at, moved = 0, after_ms: after = null }, left) {
  if (how === "drained") return moved ? `${many(moved, "run")} handed over` : "handed over none";
  const ended = `${how === "lease" ? "stopped answering before" : "found dead at"} ${clock(at)}`;
  const went = moved ? `${many(moved, "run")} went on${after === null ? "" : ` within ${spoken(after)}`}` : "";
  const waits = left ? `${moved ? left : many(left, "run")} ${left === 1 ? "waits" : "wait"} for another worker` : "";
  return [ended, [went, waits].filter(Boolean).join(", ") || (left === 0 ? "it carried no run just then" : "")].filter(Boolean).join("; ");
}

const ENDED = { dead: "the last was found dead at", lease: "the last stopped answering before", drained: "the last left at" };

/** What is known of the last worker, where none answers: when it was found gone, which is later than its last sign, or its last beat. */
export function silence(lost, workers) {
  const known = [...lost.map((each) => [ms(each.at), ENDED[each.how]]), ...workers.map((each) => [ms(each.seen_at), "the last beat of one was at"])].sort(([one], [other]) => other - one);
  if (!known.length) return "No worker is alive; ";
  const [[at, what]] = known;
  return `No worker answers: ${what} ${when(at)}${now() - at < 1000 ? "" : `, ${age(at)} ago`}; `;
}

/** Which minute a number is of: the last that workers have told, of the clock. A worker that was killed told nothing of its last one. */
export const toldOf = (each) => `from ${minute(each.at)}, as workers told`;

/**
 * What was done in each of the last sixty minutes that are over, the last one last. The server tells those in which anything was done,
 * each when it is over, so one that is missing is a minute of nothing; the last may not have been told yet, and is left out then.
 */
export function minutesOf(told, now) {
  const known = new Map(told.map((each) => [Math.floor(Date.parse(each.at) / MINUTE), each])), last = Math.floor(now / MINUTE) - 1;
  const made = Array.from({ length: HOUR }, (_, nth) => known.get(last - HOUR + 1 + nth) ?? { at: (last - HOUR + 1 + nth) * MINUTE, steps: 0, ended: 0, failed: 0 });
  return known.has(last) || !known.has(last - 1) ? made : made.slice(0, -1);
}

// Time on paper: moments become pixels and come back. Nothing here touches the page.
//
// An axis is a row of parts. A flow gets room by how long it took. A fold is a wait of fixed width: nobody worked in it. A tear
// is a gap in which no process had the run; it is always wide enough to be seen. True time has no folds, and tears all the same.

import { clock, day, minute } from "../../time.js";

export const FOLD = 70, TEAR = 20;
const LEAST_FLOW = 30, LEAST_FOLD_MS = 60_000, SHARE = 10;

/** Merge spans [from, to] that touch or overlap; what is empty or backwards is left out. */
export function union(spans) {
  const sorted = spans.filter(([from, to]) => to > from).sort((one, other) => one[0] - other[0]);
  const made = [];
  for (const [from, to] of sorted) {
    const last = made[made.length - 1];
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else made.push([from, to]);
  }
  return made;
}

/**
 * Find what is folded between `from` and `to`: no body runs in it, and it is longer than a minute and than a tenth of all time in
 * which one did. `worked` are the spans of bodies; tears are left as they are.
 */
export function folds(from, to, worked, tears = []) {
  const inside = union(worked.map(([began, ended]) => [Math.max(began, from), Math.min(ended, to)]));
  const all = inside.reduce((sum, [began, ended]) => sum + ended - began, 0);
  const least = Math.max(LEAST_FOLD_MS, all / SHARE);
  const made = [];
  let at = from;
  for (const [began, ended] of [...union([...inside, ...tears.map((tear) => [tear.from, tear.to])]), [to, to]]) {
    if (began - at > least) made.push({ from: at, to: began });
    at = Math.max(at, ended);
  }
  return made;
}

/**
 * Lay out the time between `from` and `to` on so many pixels. `folds` and `tears` are [{from, to}], apart from each other; both
 * keep their width when the picture is zoomed. Without room for all of it the axis becomes wider than was asked for.
 */
export function axis({ width, from, to, folds: folded = [], tears = [], end = 0 }) {
  const last = Math.max(to, from + 1);
  const cuts = [
    ...folded.map((each) => ({ ...each, sort: "fold" })),
    ...tears.map((each) => ({ ...each, sort: "tear" })),
  ].sort((one, other) => one.from - other.from || one.to - other.to);
  const parts = [];
  let at = from;
  for (const cut of cuts) {
    const began = Math.max(cut.from, at), ended = Math.max(cut.to, began);
    if (began > at) parts.push({ sort: "flow", from: at, to: began });
    parts.push({ ...cut, from: began, to: ended });
    at = ended;
  }
  if (at < last || !parts.length) parts.push({ sort: "flow", from: at, to: last });
  spread(parts, width - end);
  const wide = parts.reduce((sum, part) => sum + part.wide, 0);

  /** The place of a moment; what lies before or behind is at the edge. */
  function x(moment) {
    let low = 0, high = parts.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (parts[middle].to < moment) low = middle + 1;
      else high = middle;
    }
    const part = parts[low], long = part.to - part.from;
    const share = long > 0 ? (moment - part.from) / long : moment > part.from ? 1 : 0;
    return part.x + Math.min(Math.max(share, 0), 1) * part.wide;
  }

  /** The moment at a place. */
  function time(place) {
    const part = parts.find((each) => place <= each.x + each.wide) ?? parts[parts.length - 1];
    const share = part.wide > 0 ? (place - part.x) / part.wide : 0;
    return part.from + Math.min(Math.max(share, 0), 1) * (part.to - part.from);
  }

  return { parts, x, time, width: wide + end, ends: wide, from, to: last };
}

/** Give each part its width and place: folds and tears first, then flows by their length, none below what can be seen. */
function spread(parts, width) {
  const flows = parts.filter((part) => part.sort === "flow");
  for (const part of parts) part.wide = part.sort === "fold" ? FOLD : part.sort === "tear" ? TEAR : 0;
  if (!flows.length) {
    // Nobody has worked yet: the wait has all the room.
    const folds = parts.filter((part) => part.sort === "fold"), more = width - parts.reduce((sum, part) => sum + part.wide, 0);
    for (const part of folds) part.wide += Math.max(more, 0) / folds.length;
  }
  const fixed = parts.reduce((sum, part) => sum + part.wide, 0);
  const least = flows.length > 1 ? LEAST_FLOW : 0;
  let room = Math.max(width - fixed, flows.length * LEAST_FLOW);
  let left = flows;
  // What is too short to be seen gets the least, and takes it from the others, which may then be too short as well.
  for (;;) {
    const all = left.reduce((sum, part) => sum + part.to - part.from, 0);
    const small = left.filter((part) => (all ? ((part.to - part.from) / all) * room : 0) < least);
    if (!small.length || small.length === left.length) {
      for (const part of left) part.wide = all ? ((part.to - part.from) / all) * room : room / left.length;
      break;
    }
    for (const part of small) part.wide = least;
    room -= small.length * least;
    left = left.filter((part) => !small.includes(part));
  }
  let x = 0;
  for (const part of parts) {
    part.x = x;
    x += part.wide;
  }
}

const SECOND = 1000, MINUTE = 60 * SECOND, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
const STEPS = [
  1, 2, 5, 10, 20, 50, 100, 200, 500, SECOND, 2 * SECOND, 5 * SECOND, 10 * SECOND, 20 * SECOND, 30 * SECOND, MINUTE, 2 * MINUTE,
  5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE, HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY,
  14 * DAY, 28 * DAY,
];

/** Moments of a flow that are worth a line, at least so many pixels apart, on whole seconds, minutes or hours of the reader. */
export function ticks(part, { apart = 74, zone = -new Date(part.from).getTimezoneOffset() * MINUTE } = {}) {
  const long = part.to - part.from;
  if (long <= 0 || part.wide <= 0) return { step: 0, at: [] };
  const step = STEPS.find((each) => (each / long) * part.wide >= apart) ?? STEPS[STEPS.length - 1];
  const at = [];
  for (let moment = Math.ceil((part.from + zone) / step) * step - zone; moment < part.to; moment += step) at.push(moment);
  return { step, at };
}

/** What is written at a tick: a time of day, as exact as ticks are apart, or a day. */
export const label = (moment, step) => (step < MINUTE ? clock(moment, step < SECOND) : step < DAY && minute(moment) !== "00:00" ? minute(moment) : day(moment));

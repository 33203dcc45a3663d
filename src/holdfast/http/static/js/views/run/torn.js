// Edges of torn paper, by a fixed hand: a run looks the same on every screen and in every test. Nothing here touches the page.
//
// Both halves of a tear have one edge, moved aside, so that they would fit together. An edge grows downwards from its seed, so
// a strip that becomes longer keeps the edge that it had.

/** A hand that draws the same numbers between 0 and 1 for the same seed. */
function hand(seed) {
  let state = (Math.imul(seed | 0, 0x9e3779b1) ^ 0x5bf03635) >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4294967296;
  };
}

/** Points [x, y] of an edge near `x` from `top` to `bottom`. `rough` scales how far it strays, `tooth` how long a stroke is. */
export function edge(x, top, bottom, { seed = 1, rough = 1, tooth = 6 } = {}) {
  const chance = hand(seed), points = [];
  let y = top, side = chance() < 0.5 ? 1 : -1, stray = 0;
  while (y < bottom) {
    stray = Math.min(1.5, Math.max(-1.5, stray + (chance() - 0.5) * 1.5));
    points.push([x + rough * (stray + side * (0.6 + 2.2 * chance())), y]);
    if (chance() < 0.85) side = -side;
    y += tooth * (0.5 + 0.9 * chance());
  }
  points.push([x + rough * stray, bottom]);
  return points;
}

/** The same edge, so far to the right. */
export const moved = (points, by) => points.map(([x, y]) => [x + by, y]);

/** The same edge lying down: an edge that runs across the page. */
export const lying = (points) => points.map(([x, y]) => [y, x]);

/** An edge as the path of an SVG. */
export const path = (points) => points.map(([x, y], nth) => `${nth ? "L" : "M"}${tenth(x)} ${tenth(y)}`).join("");

/** What lies between two edges, as a closed path. */
export const between = (one, other) => `${path(one)}${path([...other].reverse()).replace("M", "L")}Z`;

const tenth = (number) => Math.round(number * 10) / 10;

// The strand: a run's life in one line. The thin line underneath never breaks: that is what is held.

import { s } from "./dom.js";
import { many, ms, now } from "./say.js";

const HIGH = 18;
const MID = 9;
const TEAR = 9;
const ENDS = { completed: 4, failed: 7, cancelled: 7, moved: 7, paused: 7, running: 7 };
const WORDS = { completed: "completed", failed: "failed", cancelled: "was cancelled", moved: "was moved", paused: "is paused", running: "runs now", ready: "is ready" };

/** The life of a run as a picture. `life` is [[kind, ms], …], the last of it open; `status` says how it ends. */
export function strand(run, { width = 172, label } = {}) {
  const life = opened(run);
  const picture = s("svg.strand", { width, height: HIGH, viewBox: `0 0 ${width} ${HIGH}`, role: "img", "aria-label": label ?? told(run, life) });
  const end = ENDS[run.status] ?? 7;
  const tears = life.filter(([kind]) => kind === "torn").length;
  const room = Math.max(width - tears * TEAR - end - 4, 10);
  const shares = widths(life, room);
  picture.append(s("path.hold", { d: `M0 ${MID + 0.5}H${width - (run.status === "completed" ? 3 : 8)}` }));
  let x = 1;
  life.forEach(([kind], at) => {
    const wide = kind === "torn" ? TEAR : shares[at];
    for (const each of drawn(kind, x, wide)) picture.append(each);
    x += wide;
  });
  for (const each of ending(run.worker_gone ? "ready" : run.status, Math.min(x, width - end))) picture.append(each);
  return picture;
}

function opened(run) {
  const life = (run.life ?? []).map((each) => [...each]);
  const last = life.at(-1);
  if (last && !run.finished_at && last[0] !== "torn") last[1] += Math.max(now() - (ms(run.updated_at) ?? now()), 0);
  return life;
}

// Time is drawn by its root: a wait of days leaves room for work of seconds, and what is longer is still longer.
function widths(life, room) {
  const weights = life.map(([kind, span]) => (kind === "torn" ? 0 : Math.sqrt(Math.max(span, 1))));
  const sum = weights.reduce((total, each) => total + each, 0) || 1;
  const least = Math.min(3, room / Math.max(life.length, 1));
  const given = weights.map((each) => (each ? least + (each / sum) * (room - least * weights.filter(Boolean).length) : 0));
  return given;
}

function drawn(kind, x, wide) {
  const box = (name) => [s(`rect.${name}`, { x: x + 0.5, y: MID - 3, width: Math.max(wide - 2, 2), height: 7, rx: 1.5 })];
  if (kind === "work") return [s("rect.carried", { x, y: MID - 3.5, width: Math.max(wide - 1, 2), height: 8, rx: 1.5 })];
  if (kind === "person") return box("asked");
  if (kind === "retry") return [s("path.again", { d: `M${x + 1} ${MID + 0.5}H${x + wide - 1}` })];
  if (kind === "paused") return [s("path.rests", { d: `M${x + 1} ${MID + 0.5}H${x + wide - 1}` })];
  if (kind === "torn") return [1, 5.5].map((at) => s("path.torn", { d: `M${x + at + 1.5} ${MID - 6}l-2 3.2 2.4 2.8-2.4 2.8 2 3.2` }));
  return []; // a wait is the line alone
}

function ending(status, x) {
  const at = x + 3.5;
  const y = MID + 0.5;
  if (status === "running") return [s("circle.halo", { cx: at, cy: y, r: 5.5 }), s("circle.now", { cx: at, cy: y, r: 3.2 })];
  if (status === "completed") return [s("path.end", { d: `M${x + 1} ${MID - 5}v11` })];
  if (status === "failed") return [s("path.failed", { d: `M${at - 2.6} ${y - 2.6}l5.2 5.2M${at + 2.6} ${y - 2.6}l-5.2 5.2` })];
  if (status === "cancelled" || status === "moved") return [s("path.off", { d: `M${at - 2.6} ${y + 2.6}l5.2-5.2` })];
  if (status === "paused") return [s("path.stopped", { d: `M${at - 1.8} ${y - 3.4}v6.8M${at + 1.8} ${y - 3.4}v6.8` })];
  return [s("circle.open", { cx: at, cy: y, r: 2.8 })];
}

function told(run, life) {
  const tears = run.interruptions ?? life.filter(([kind]) => kind === "torn").length;
  return `${run.worker_gone ? "its worker is gone" : (WORDS[run.status] ?? "waits")}${tears ? `, went on after ${many(tears, "interruption")}` : ""}`;
}

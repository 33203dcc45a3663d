// Icons: a grid of 14, one weight of line. A name, and the strokes that draw it.

import { s } from "./dom.js";

const STROKES = {
  again: "M11.5 7A4.5 4.5 0 1 1 10 3.6M11.7 1.7v2.7H9",
  bolt: "M8 1.5 3 8h3.4l-.7 4.5L10.8 6H7.3z",
  branch: "M3 2.4v9.2M3 7h3.3C7.6 7 8 6.4 8 5.3V3.5h2.8M8 8.7c0 1.2.6 1.8 1.7 1.8h1.1",
  check: "M2.7 7.7 5.7 10.6 11.4 4",
  child: "M3 2.4v5.1c0 1.1.6 1.7 1.7 1.7h5.4M8 6.8l2.6 2.4L8 11.6",
  clock: "M7 1.8a5.2 5.2 0 1 0 0 10.4A5.2 5.2 0 0 0 7 1.8zM7 4.3V7l1.9 1.4",
  compare: "M4.4 2.2v9.6M9.6 2.2v9.6M1.8 4.7h2.6M1.8 7.1h2.6M9.6 7.1h2.6M9.6 9.5h2.6",
  copy: "M4.8 4.8h6.5v6.5H4.8zM9.1 4.8V2.7H2.7v6.4h2.1",
  cross: "M3.7 3.7l6.6 6.6M10.3 3.7l-6.6 6.6",
  down: "M3.3 5.3 7 9l3.7-3.7",
  filter: "M2 3.3h10M4 7h6M6 10.7h2",
  flag: "M3.4 12V2.2M3.4 2.7h6.7L8.6 5l1.5 2.3H3.4",
  fleet: "M2.2 3h9.6v3H2.2zM2.2 8h9.6v3H2.2zM4.3 4.5h0M4.3 9.5h0",
  fork: "M4 2.2v9.6M4 8.5c0-2.3 6-1 6-4.3M8.2 5.4 10 3.5l1.8 1.9",
  inbox: "M2.2 8.2 3.6 3h6.8l1.4 5.2v3H2.2zM2.2 8.2h3l.8 1.4h2l.8-1.4h3",
  left: "M8.7 3.3 5 7l3.7 3.7",
  linked: "M5.8 8.1a2.3 2.3 0 0 0 3.3.1L11 6.3A2.3 2.3 0 0 0 7.7 3l-.8.8M8.2 5.9a2.3 2.3 0 0 0-3.3-.1L3 7.7A2.3 2.3 0 0 0 6.3 11l.8-.8",
  list: "M2.4 4h9.2M2.4 7h9.2M2.4 10h9.2",
  lock: "M3.4 6.4h7.2v5.1H3.4zM4.8 6.2V4.7a2.2 2.2 0 0 1 4.4 0v1.5",
  loop: "M2.6 7a4.4 4.4 0 0 1 7.6-3M10.4 1.8V4H8.2M11.4 7a4.4 4.4 0 0 1-7.6 3M3.6 12.2V10h2.2",
  message: "M2 3.2h10v6.4H6.2L3.6 11.8V9.6H2z",
  model: "M7 1.7l1.3 4 4 1.3-4 1.3-1.3 4-1.3-4-4-1.3 4-1.3z",
  money: "M7 1.6v10.8M9.8 4.3C9.3 3.4 8.3 3 7 3c-1.6 0-2.8.7-2.8 2 0 2.9 5.8 1.3 5.8 4.1 0 1.3-1.3 2-3 2-1.5 0-2.6-.5-3.1-1.5",
  moon: "M11.8 8.4A5 5 0 0 1 5.6 2.2a5.1 5.1 0 1 0 6.2 6.2z",
  more: "M3 7h0M7 7h0M11 7h0",
  note: "M3 4h8M3 7h8M3 10h5",
  out: "M6 3H3v8h8V8M8.2 2.8h3v3M11 3 6.6 7.4",
  pause: "M4.7 3v8M9.3 3v8",
  people: "M5.2 6.8a2.1 2.1 0 1 0 0-4.2 2.1 2.1 0 0 0 0 4.2zM1.4 11.8c.3-2 1.8-3.2 3.8-3.2S8.7 9.8 9 11.8M9.4 2.9a2 2 0 0 1 0 3.7M10.6 8.9c1.2.5 1.9 1.5 2.1 2.9",
  person: "M7 6.9a2.4 2.4 0 1 0 0-4.8 2.4 2.4 0 0 0 0 4.8zM2.6 12.1c.4-2.3 2.1-3.4 4.4-3.4s4 1.1 4.4 3.4",
  pin: "M7 1.8v10.4M3.8 4.6h6.4",
  play: "M4.3 2.8v8.4L11 7z",
  plus: "M7 2.8v8.4M2.8 7h8.4",
  right: "M5.3 3.3 9 7l-3.7 3.7",
  search: "M6.2 2.2a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM9.2 9.2l2.9 2.9",
  send: "M2 7 12 2.6 9.4 12 6.8 8zM6.8 8 12 2.6",
  stack: "M2 4.4 7 2l5 2.4L7 6.8zM2 7.2l5 2.4 5-2.4M2 9.8l5 2.4 5-2.4",
  step: "M3.4 3.4h7.2v7.2H3.4z",
  stop: "M3.6 3.6h6.8v6.8H3.6z",
  sun: "M7 4.6a2.4 2.4 0 1 0 0 4.8 2.4 2.4 0 0 0 0-4.8zM7 1.3v.9M7 11.8v.9M1.3 7h.9M11.8 7h.9M3 3l.6.6M10.4 10.4l.6.6M3 11l.6-.6M10.4 3.6 11 3",
  tear: "M5.4 1.8 4 4.4l1.8 2.4L4 9.4l1.4 2.8M9.8 1.8 8.4 4.4l1.8 2.4-1.8 2.6 1.4 2.8",
  undo: "M3 5.4h5a3 3 0 0 1 0 6H5.4M5.2 3.2 3 5.4l2.2 2.2",
  up: "M3.3 8.7 7 5l3.7 3.7",
  warn: "M7 2.2 12.6 11.8H1.4zM7 5.8v2.6M7 10.2h0",
};

/** An icon; with a label it is read aloud, without one the text beside it says the same. */
export const icon = (name, label) =>
  s("svg.ico", { viewBox: "0 0 14 14", ...(label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" }) }, s("path", { d: STROKES[name] ?? "" }));

/** The mark of Holdfast: a stem that splits into three. */
export const brand = () =>
  s("svg.mark", { viewBox: "0 0 20 20", "aria-hidden": "true" }, s("path", { d: "M10 2v16M10 10.4c0 4-1.9 5.7-6 6.8M10 10.4c0 4 1.9 5.7 6 6.8" }));

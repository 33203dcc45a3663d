// Streams of a run: the text as it is written. A restart strikes through what it voids and folds it away; an end is a mark.

import { read } from "../../api.js";
import { h, path, put, swap } from "../../dom.js";
import { follow } from "../../live.js";
import { button, copied, icon, problem, standing } from "../../parts.js";
import { bytes, many } from "../../say.js";

const MOST = 200_000; // characters that are kept in the page; the download has all
const WHY = { crashed: "its process was gone", timeout: "it took too long", failed: "it failed", cancelled: "nobody wanted it any more" };

/** A stream as it grows. `follow` begins where the first page ended; the reader is followed only while at the end. */
export function streamText(model, name, { follow: live = true, whole = false } = {}) {
  const text = h("div.stream-text", { class: whole ? "whole" : "", role: "log", "aria-live": "off", tabIndex: whole ? 0 : undefined }), words = h("span.dim"), caret = h("i.caret", { "aria-hidden": "true" });
  let part = null, following = null, closed = false, length = 0, number = 0, drawing = 0, waits = "", attempt = 0;

  function begin() {
    part = h("div.part");
    text.append(part);
  }

  function take(chunk) {
    if (chunk.kind === "data") {
      if (!part) begin();
      if (attempt && chunk.attempt > attempt && part.childNodes.length) part.append(h("i.kept-mark", { title: "written before by another attempt, and kept" }));
      attempt = chunk.attempt;
      waits += chunk.data;
      length += chunk.data.length;
      if (!drawing) drawing = requestAnimationFrame(flush);
      return;
    }
    flush();
    if (chunk.kind === "restart") {
      const voided = part, had = number;
      if (voided?.childNodes.length) {
        const fold = h("details.voided", h("summary", `${many(had, "word")} were written and discarded${chunk.reason ? `: ${WHY[chunk.reason] ?? chunk.reason}` : ""}`));
        voided.replaceWith(fold);
        fold.append(h("del", voided));
      }
      part = null;
      number = 0;
      return;
    }
    text.append(h("p.end-mark", icon("check"), chunk.reason ? `ended: ${WHY[chunk.reason] ?? chunk.reason}` : "ended"));
    part = null;
    caret.remove();
    words.textContent = many(number, "word");
  }

  function flush() {
    cancelAnimationFrame(drawing);
    drawing = 0;
    if (!waits) return;
    const end = text.scrollTop + text.clientHeight >= text.scrollHeight - 24;
    number += (waits.match(/\S+/g) ?? []).length;
    if (length <= MOST) {
      const pieces = waits.split(/\n{2,}/);
      pieces.forEach((piece, nth) => {
        if (nth > 0 || !part.lastElementChild) part.append(h("p"));
        put(part.lastElementChild, [piece]);
      });
      part.lastElementChild.append(caret);
    }
    waits = "";
    words.textContent = many(number, "word");
    if (end) text.scrollTop = text.scrollHeight;
  }

  (async () => {
    let after = 0;
    for (;;) {
      const answer = await read(path("api", "runs", model.id, "streams", name, { after, limit: 200 }));
      if (closed) return;
      if (!answer.ok) return void swap(text, problem(answer.error));
      answer.data.chunks.forEach(take);
      after = answer.data.next;
      if (answer.data.chunks.length < 200) break;
    }
    flush();
    text.scrollTop = text.scrollHeight;
    if (!live || model.over) return caret.remove();
    following = follow("text", path("api", "runs", model.id, "streams", name), { after, tells: take, over: () => { flush(); caret.remove(); } });
  })();

  return {
    element: text,
    words,
    text: () => [...text.querySelectorAll(".part")].filter((each) => !each.closest(".voided")).map((each) => [...each.children].map((line) => line.textContent).join("\n\n")).join("\n\n"),
    close() {
      closed = true;
      cancelAnimationFrame(drawing);
      following?.close();
    },
  };
}

/** The tab: the list of streams and the text of one. */
export function streams(model, chosen, acts) {
  const element = h("section.panel.streams"), list = h("ul.stream-list"), side = h("div.stream-side");
  let shown = null, live = null, names = "";

  function draw(name = shown) {
    const all = model.streams, wanted = all.find((each) => each.name === name) ?? all[0];
    const now = `${all.map((each) => `${each.name} ${each.offset} ${each.ended}`).join()} ${wanted?.name}`;
    if (now !== names) {
      names = now;
      swap(list, all.map((each) => h("li", h("button", { "aria-current": each === wanted ? "true" : undefined, onclick: () => acts.where("streams", each.name) },
        h("span.mono.strong", each.name), h("span.dim", `${bytes(each.size_bytes)}${each.attempt > 1 ? `, attempt ${each.attempt}` : ""}`), each.ended ? standing(each.reason ? "failed" : "completed", each.reason ? (WHY[each.reason] ?? each.reason) : "ended") : standing("running", "open")))));
      if (!all.length) swap(element, h("div.quiet-note", h("p.strong", "No stream was written."), h("p.dim", "A step writes to one with ", h("code", "holdfast.stream"), ".")));
      else if (!list.isConnected) swap(element, list, side);
    }
    if (!wanted || wanted.name === shown) return;
    live?.close();
    shown = wanted.name;
    live = streamText(model, shown, { whole: true });
    const own = live;
    swap(side, h("header.sub", h("h2.mono", shown), live.words, h("span.gap"), button("Copy", { name: "copy", kind: "small", onclick: () => copied(own.text(), "The text") }), button("Download", { name: "out", kind: "small", onclick: () => save(own.text(), `${model.id}.${shown}.txt`) })), live.element);
  }
  swap(element, list, side);
  draw(chosen);
  return { element, draw, close: () => live?.close() };
}

/** Save a text as a file, with a name of ours. */
export function save(text, name) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/plain" })), link = h("a", { download: name.replace(/[^\w.-]/g, "_") });
  link.href = url; // made by this page, of text that it has
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 1000);
}


// The conversation of a run: what models were given, what they answered, which tools ran, what people decided. Tears and folds stand
// between messages, because they happened there.

import { read } from "../../api.js";
import { h, path, retext, swap } from "../../dom.js";
import { write as json } from "../../json.js";
import { isOpen, outcome } from "./journal.js";
import { chip, icon, prose, standing, tree, who } from "../../parts.js";
import { cut } from "../../text.js";
import { dollars, many, minute, spoken, tokens } from "../../say.js";
import { across, foldsOf, pleated } from "./phone.js";
import { brief, resolved } from "./rows.js";
import { streamText } from "./streams.js";
import { promptName, turnsOf } from "./turns.js";

const MOST = 60, LONG = 4000;

export function talk(model, acts) {
  const list = h("div.talk"), below = h("button.news", { hidden: true, onclick: () => scrollTo({ top: document.body.scrollHeight }) }, icon("down"), "new words below");
  const element = h("section.panel.talk-panel", list, below);
  const turns = new Map(); // by key: {element, stamp, close}
  let shown = MOST, kept = null;

  function draw() {
    const all = turnsOf(model.journal, foldsOf(model)), end = innerHeight + scrollY >= document.body.scrollHeight - 80, wanted = new Set();
    const made = [];
    if (all.length > shown) made.push(h("button.link.talk-more", { onclick: () => { shown += MOST; draw(); } }, `${many(all.length - shown, "message")} before`));
    for (const item of all.slice(-shown)) {
      const done = item.call ?? item.tool, stamp = done ? `${done.seq} ${done.state}` : item.fold ? String(item.fold.to) : "", known = turns.get(item.key);
      wanted.add(item.key);
      if (!known || known.stamp !== stamp) {
        known?.close?.();
        turns.set(item.key, { ...turn(item), stamp });
      }
      turns.get(item.key).tools?.(item.tools);
      made.push(turns.get(item.key).element);
    }
    for (const [key, each] of turns) {
      if (wanted.has(key)) continue;
      each.close?.();
      turns.delete(key);
    }
    const now = [...list.children];
    if (made.length !== now.length || made.some((each, nth) => each !== now[nth])) swap(list, made.length ? made : h("div.quiet-note", h("p.strong", "Nothing was said yet.")));
    if (end && !model.over) scrollTo({ top: document.body.scrollHeight });
    below.hidden = end || model.over;
  }

  function turn(item) {
    if (item.tear) return { element: across(item.tear, () => acts.choose(String(item.tear.seq))) };
    if (item.fold) return { element: pleated(item.fold) };
    if (item.question) return { element: personTurn(item.question) };
    if (item.tool) return { element: h("article.turn", toolBox(item.tool, item.tool.name, brief(item.tool.input ?? ""), did(item.tool), h("span.dim", minute(item.at)))) };
    if (item.message) return { element: h("article.turn.user", h("header", h("span.turn-who", icon("message"), item.message.name), h("span.dim", minute(item.message.began))), h("div.turn-text", h("p", item.message.result ?? ""))) };
    return modelTurn(item.call);
  }

  function personTurn(call) {
    const { question } = call;
    return h("article.turn.person", h("header", question.by && who(question.by), h("span.dim", minute(call.ended)), chip(outcome(question), "ask")),
      h("div.turn-text", h("p.dim", call.name), question.gave ? h("code", cut(question.gave, 200)) : null, question.note ? h("p", question.note) : null));
  }

  function modelTurn(call) {
    const asked = h("div"), answer = h("div.turn-text"), tools = h("div"), note = h("div"), spent = call.spent ?? {}, sum = (spent.input_tokens ?? 0) + (spent.output_tokens ?? 0);
    const said = isOpen(call) ? standing("running", "writes") : call.state === "failed" ? standing("failed") : h("span.dim.nowrap", [sum ? `${tokens(sum)} tokens` : "", spent.usd ? dollars(spent.usd) : "", call.ended !== null && call.began !== null ? spoken(call.ended - call.began) : ""].filter(Boolean).join(" · "));
    const name = h("span", spent.models?.join(", ") || "model");
    const made = h("div", asked, h("article.turn.model", { onclick: (event) => { if (!event.target.closest("button, a, summary") && !String(getSelection())) acts.choose(call.key); } },
      h("header", h("span.turn-who", icon("model"), name), call.name === "model" ? h("span.strong", agentOf(call)) : [h("code.strong", call.name), h("span.dim.cut", brief(call.input ?? ""))], h("span.dim", minute(call.start)), h("span.gap"), said), answer, note, tools));
    let close = () => {};
    const open = isOpen(call) ? model.streams.find((each) => !each.ended) : null;
    if (open) {
      const live = streamText(model, open.name, { whole: true });
      swap(said, icon("model"), live.words);
      swap(answer, live.element);
      close = live.close;
    } else if (call.ended === null) swap(answer, h("p.dim", call.state === "waiting" ? "waits" : "…"));
    let wished = new Map(), parts = [], told = null;
    const drawTools = () => {
      const stamp = parts.map(({ tool_call_id: id }) => { const { step, question, apart } = wished.get(id) ?? {}; return `${id} ${step?.seq} ${step?.state} ${question?.seq} ${apart}`; }).join();
      if (stamp !== told) swap(tools, parts.map((part) => wish(part, wished.get(part.tool_call_id))));
      told = stamp;
    };
    if (!open && call.ended !== null) fill(call, answer, note, name).then((found) => { parts = found; drawTools(); });
    ask(call, asked);
    return { element: made, close, tools: (found) => { wished = found; drawTools(); } };
  }

  /** What the model was given: the prompt of the request, and what was said since the answer before. */
  async function ask(call, into) {
    const plain = () => (call.input ? turnOf(promptName([]), call, [h("p", promptOf(call.input))]) : null);
    const isRequest = call.name === "model";
    if (!isRequest) return; // what it was called with stands beside its name
    const found = await model.step(call.key);
    const messages = found.arguments?.messages;
    if (!Array.isArray(messages)) return void swap(into, plain());
    const last = messages.findLastIndex((each) => each.kind === "response"), parts = messages.slice(last + 1).flatMap((each) => each.parts ?? []);
    const words = parts.filter((part) => ["user-prompt", "system-prompt", "retry-prompt"].includes(part.part_kind)).map((part) => [part.part_kind, textOf(part.content)]).filter(([, text]) => text);
    if (words.length) swap(into, turnOf(promptName(words.map(([kind]) => kind)), call, words.map(([kind, text]) => (kind === "system-prompt" ? h("details", h("summary.dim", "instructions"), prose(cut(text, LONG))) : prose(cut(text, LONG))))));
  }

  const turnOf = (label, call, inside) => h("article.turn.user", h("header", h("span.turn-who", icon("note"), label), h("span.dim", minute(call.start))), h("div.turn-text", inside));

  /** Show what a model answered; what it wished to call is the answer. */
  async function fill(call, answer, note, name) {
    if (call.state === "failed") return swap(answer, h("p.bad-ink", call.remarks?.at(-1)?.text ?? "failed")), [];
    const found = await model.value(call.seq);
    const response = found.value?.response ?? null, parts = Array.isArray(response?.parts) ? response.parts : null;
    if (!parts) return swap(answer, typeof found.value === "string" ? prose(cut(found.value, LONG)) : found.value == null ? h("p.dim", call.result ?? "") : h("div.json", tree(found.value))), [];
    if (response.model_name) retext(name, response.model_name);
    const text = parts.filter((part) => part.part_kind === "text").map((part) => textOf(part.content)).join("\n\n"), thoughts = parts.filter((part) => part.part_kind === "thinking").map((part) => textOf(part.content)).join("\n\n");
    const before = call.attempts > 1 || call.tries?.length ? await salvaged(text) : 0;
    swap(answer, thoughts ? h("details", h("summary.dim", "thoughts"), prose(cut(thoughts, LONG))) : null, before ? h("p", h("span.salvage", { title: "Written before its process was gone, and kept" }, text.slice(0, before)), cut(text.slice(before), LONG)) : text ? prose(cut(text, LONG)) : null);
    if (before) swap(note, h("p.kept", icon("check"), "the underlined part was written before its process was gone, and kept"));
    else if (response.metadata?.holdfast?.partial) swap(note, h("p.kept", icon("check"), "what had been written was taken for the answer"));
    return parts.filter((part) => part.part_kind === "tool-call");
  }

  /** How many characters of a text were written by earlier attempts and kept, as its stream tells. */
  async function salvaged(text) {
    kept ??= (async () => {
      const texts = [];
      for (const stream of model.streams.slice(0, 5)) {
        const answer = await read(path("api", "runs", model.id, "streams", stream.name, { limit: 1000 }));
        let pieces = [];
        for (const chunk of answer.ok ? answer.data.chunks : []) {
          if (chunk.kind === "data") pieces.push(chunk);
          else {
            if (chunk.kind === "end") texts.push(pieces);
            pieces = [];
          }
        }
      }
      return texts;
    })();
    for (const pieces of await kept) {
      if (pieces.map((each) => each.data).join("") !== text) continue;
      const last = Math.max(...pieces.map((each) => each.attempt));
      return pieces.filter((each) => each.attempt < last).reduce((sum, each) => sum + each.data.length, 0);
    }
    return 0;
  }

  /** A call that a model wished for: what came of it, unless that stands further down. */
  function wish(part, { step = null, question = null, apart = false } = {}) {
    const given = cut(typeof part.args === "string" ? part.args : json(part.args ?? {}), 90);
    const asks = question && (apart || !step), came = asks ? chip(apart ? "a person was asked" : (question.question?.decision ?? "asks a person"), "ask", "person") : apart ? chip("called, see below") : step ? did(step) : chip("no record of its own");
    return toolBox(apart ? null : step, part.tool_name, given, came);
  }

  /** What came of a call, in a word. */
  function did(step) {
    if (step.tries?.some((each) => each.how === "unknown")) return chip(`in doubt, ${resolved(step).join("").replace("found done by its probe, not run again", "found done")}`, "doubt", "ask");
    return step.state === "done" ? chip("done", "kelp", "check") : step.state === "failed" ? chip("failed", "bad", "cross") : isOpen(step) ? chip("runs", "", "clock") : chip(step.state);
  }

  const toolBox = (step, name, given, ...more) => h("div.toolcall", { onclick: step ? () => acts.choose(step.key) : undefined }, h("span.tool-name", icon("step"), h("code", name), h("span.dim", given)), more, step?.result ? h("span.dim.tool-note", cut(step.result, 200)) : null);

  return { element, draw, close() { for (const each of turns.values()) each.close?.(); } };
}

const agentPath = (call) => (call.key.split("/").at(-2) ?? "").replace(/:model$/, "");
const agentOf = (call) => agentPath(call).replace(/-\d+$/, "");
const textOf = (content) => (typeof content === "string" ? content : Array.isArray(content) ? content.map((each) => (typeof each === "string" ? each : `[${each.kind ?? "data"}]`)).join("\n") : "");
const promptOf = (input) => /^prompt='(.*)'$/s.exec(input)?.[1] ?? input;

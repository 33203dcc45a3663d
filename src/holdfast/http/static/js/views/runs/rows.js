// Rows of runs: a line of the table on a desk, a card on a phone. What changes is changed in place, so nothing jumps.

import { h, path, retext, swap } from "../../dom.js";
import { cost, glyph, meter, sentence, standing, strand } from "../../parts.js";
import { cost as costWords, count, day, dollars, flat, happens, minute, moment, now, plain, span, stands, tone, word } from "../../say.js";
import { distinct, middle, shown } from "../../text.js";

const ID_CHARACTERS = 24;

/** A row of the table; `row.update(run)` changes what is another. */
export function line(run, { chosen, pick, opens, depth = 0 }) {
  const box = h("input", { type: "checkbox", checked: chosen, "aria-label": `Choose ${run.id}`, onclick: (event) => { event.stopPropagation(); pick(run.id, event); } });
  const state = h("td.state");
  const doing = h("div.cut");
  const labels = h("div.labels");
  const life = h("td.life");
  const progress = h("td.prog");
  const spent = h("td.num.spent");
  const age = h("td.num.age");
  const element = h("tr", { data: { row: run.id }, tabIndex: 0, class: chosen ? "chosen" : "", "aria-selected": String(chosen), onclick: (event) => { if (!event.target.closest("input, a, button")) opens(run.id); } },
    h("td.pick", box), state,
    h("td.id", { style: { "--depth": depth } }, h("div", h("a.cut.strong.mono", { href: path("runs", run.id), title: run.id }, middle(run.id, ID_CHARACTERS))), h("div.dim.cut", run.agent, run.version && `@${run.version}`)),
    h("td.doing", doing, labels), life, progress, spent, age);
  return keep(element, box, run, {
    state: [state, (of) => stands(of), (of) => standing(stands(of))],
    doing: [doing, (of) => flat(happens(of)), (of) => sentence(happens(of))],
    labels: [labels, (of) => JSON.stringify(of.labels), (of) => named(of)],
    life: [life, (of) => `${of.status} ${JSON.stringify(of.life ?? [])}`, (of) => strand(of)],
    progress: [progress, (of) => JSON.stringify(of.progress), (of) => far(of)],
    spent: [spent, (of) => `${of.spent?.usd} ${of.budget?.usd}`, (of) => paid(of)],
    age: [age, (of) => span(of), (of) => h("span", { title: `created ${moment(of.created_at)}${of.finished_at ? `, ended ${moment(of.finished_at)}` : ", and goes on"}` }, span(of), h("div.dim", since(of.created_at)))],
  });
}

/** A card of a phone. */
export function card(run, { chosen, opens }) {
  const state = h("span");
  const age = h("span.dim.nowrap");
  const doing = h("p.card-doing");
  const life = h("span");
  const far = h("span.dim");
  const spent = h("span.dim");
  const element = h("li.card", { data: { row: run.id }, tabIndex: 0, class: chosen ? "chosen" : "", onclick: (event) => { if (!event.target.closest("a, button")) opens(run.id); } },
    h("div.card-top", state, h("a.strong.mono.cut", { href: path("runs", run.id) }, run.id), age), doing, h("div.card-end", life, far, spent));
  return keep(element, null, run, {
    state: [state, (of) => stands(of), (of) => [glyph(stands(of)), h("span.unseen", word(stands(of)))]],
    doing: [doing, (of) => stands(of) + flat(happens(of)), (of) => [h(`span.standing-word.${tone(stands(of))}`, word(stands(of))), h("span", sentence(happens(of)))]],
    life: [life, (of) => `${of.status} ${JSON.stringify(of.life ?? [])}`, (of) => strand(of, { width: 150 })],
    far: [far, (of) => (of.progress?.total ? fraction(of.progress) : of.agent), (of) => (of.progress?.total ? fraction(of.progress) : of.agent)],
    spent: [spent, (of) => String(of.spent?.usd), (of) => (of.spent?.usd ? dollars(of.spent.usd) : "")],
    age: [age, (of) => span(of), (of) => `${of.finished_at ? "took " : ""}${span(of)}`],
  });
}

// A row keeps for each of its parts what it was drawn from, and draws only what is another.
function keep(element, box, run, parts) {
  const drawn = {};
  const row = {
    element,
    run,
    update(now) {
      row.run = now;
      for (const [name, [place, key, make]] of Object.entries(parts)) {
        const is = key(now);
        if (drawn[name] === is) continue;
        drawn[name] = is;
        const made = make(now);
        if (typeof made === "string" && place.childElementCount === 0) retext(place, made);
        else swap(place, made);
      }
    },
    tick() {
      if (!row.run.finished_at) row.update(row.run); // ages and waits count
    },
    choose(yes) {
      element.classList.toggle("chosen", yes);
      element.setAttribute("aria-selected", String(yes));
      if (box) box.checked = yes;
    },
    dim(yes) {
      element.classList.toggle("gone", yes);
    },
  };
  row.update(run);
  return row;
}

/** When a run was created: the time of today, or the day. */
const since = (at) => (day(at) === day(now()) ? minute(at) : day(at).slice(4));

function named(run) {
  const all = Object.entries(run.labels ?? {});
  return all.length ? all.slice(0, 6).map(([name, value]) => h("span.label", h("span.dim", distinct(`${name}=`)), value)) : "\u00a0".replace("\u00a0", " ");
}

const fraction = ({ done, total }) => `${short(done)}/${short(total)}`;
const short = (number) => (Number.isInteger(number) ? count(number) : plain(number));

function far(run) {
  if (!run.progress) return h("span.dim", "–");
  const { done, total, text } = run.progress;
  if (!total) return h("span.progress.bare", { title: text }, short(done));
  return h("span.progress", { title: text ? shown(text) : undefined }, meter(done / total, { label: `${short(done)} of ${short(total)}` }), h("span", fraction(run.progress)));
}

function paid(run) {
  const usd = run.spent?.usd ?? 0;
  const cap = run.budget?.usd;
  const title = [costWords(run.spent), run.spent?.unpriced && `${run.spent.unpriced} unpriced`].filter(Boolean).join("; ") || undefined;
  if (!cap) return h("span", { title }, cost(usd));
  const over = usd / cap >= (run.budget.soft ?? 0.8);
  return h("span", { title, class: over ? "ask-ink" : "" }, dollars(usd), h("span.dim", ` / ${plain(cap)}`));
}

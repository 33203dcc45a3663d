// Approvals: the inbox, and one question beside it; on a phone one after the other.

import { h, path, swap } from "../dom.js";
import { read } from "../api.js";
import { ghosts, glyph, problem, toast } from "../parts.js";
import { agreed, many, ms, now, seconds, spoken } from "../say.js";
import { get, may, on, set } from "../store.js";
import { ago, counted, ended, forWhom, isChanged, kindOf, lookOf, saidBy } from "./approvals/kinds.js";
import { Question, waiting } from "./approvals/question.js";
import { styled } from "../sheets.js";
import { cut } from "../text.js";
import { write } from "../json.js";
import { brief } from "../schema.js";

const DID = { approve: "Approved", deny: "Denied", answer: "Answered", delegate: "Passed on" };

export function open(context) {
  let { params, narrow } = context;
  let lists = null;
  let shown = null; // the Question that is open
  let own = 0;
  const alone = Boolean(get("me")?.question) || !may("read"); // a link of one question opens that, and nothing beside it
  const element = h("div.approvals");
  const left = h("div.inbox-place", ghosts(6));
  const right = h("div.question-place");
  const offs = [];
  const letters = (map) => offs.push(context.keys(map));

  const back = h("span"); // the way to the list, which says how many wait
  const counts = () => swap(back, get("mine") > 0 ? `${get("mine")} for you` : "Approvals");

  const draw = () => {
    if (narrow || alone) {
      if (params.id) swap(element, right);
      else swap(element, h("div.head", h("div", h("h1", "Approvals"), h("p.dim", lists ? (!may("decide") ? `${many(lists.others.length, "question")} open` : lists.mine.length ? `${many(lists.mine.length, "waits", "wait")} for you` : "nothing waits for you") : ""))), left);
    } else swap(element, h("div.two", left, right));
  };

  const list = async () => {
    if (alone) return void (may("read") || swap(left, h("p.dim", "Your token may decide and not look. Use one that may read too, or the link of a question.")));
    const [mine, open_, past] = await Promise.all([read("api/approvals?mine=true&limit=200"), read("api/approvals?limit=200"), read("api/approvals?status=decided&status=expired&status=withdrawn&limit=30")]);
    if (!open_.ok) return swap(left, problem(open_.error, list));
    const own_ = new Set(mine.ok ? mine.data.approvals.map((each) => each.id) : []);
    const all = open_.data.approvals.map((each) => ({ ...each, mine: own_.has(each.id) })).sort(urgent);
    const decided = (past.ok ? past.data.approvals : []).sort((one, other) => ms(other.decided_at ?? other.expires_at ?? other.asked_at) - ms(one.decided_at ?? one.expires_at ?? one.asked_at));
    const [waits, others] = [true, false].map((yes) => all.filter((each) => (each.mine && !agreed(each, get("me"))) === yes));
    lists = { mine: waits, others, decided };
    set({ mine: waits.length });
    counts();
    const scrolled = left.firstElementChild?.scrollTop;
    const focused = left.contains(document.activeElement) ? document.activeElement.dataset.row : null;
    swap(left, inbox(lists, params.id));
    if (scrolled) left.firstElementChild.scrollTop = scrolled;
    if (focused) [...left.querySelectorAll("[data-row]")].find((each) => each.dataset.row === focused)?.focus();
    if (!narrow && !params.id) {
      const first = lists.mine[0] ?? lists.others[0];
      if (first) one(first.id);
      else swap(right, h("article.question.none", h("div.empty", h("h1", "Nothing waits for a person"), h("p.dim", "Questions of agents, steps in doubt, budgets and loops appear here the moment they are asked."))));
    }
    if (narrow && !params.id) draw();
  };

  const one = async (id) => {
    const mine = ++own;
    shown?.close();
    shown = null;
    swap(right, waiting());
    mark(id);
    const [answer, yours, { form }] = await Promise.all([read(path("api", "approvals", id), { exact: true }), read(path("api", "approvals", { mine: true, limit: 1000 })), import("../form.js")]);
    if (mine !== own) return;
    if (!answer.ok) return swap(right, h("article.question", h("div.q-scroll", h("div.q-wide", problem(answer.error.code === "unknown_approval" ? { ...answer.error, message: "There is no such question.", hint: "It may have been deleted with its run. Approvals has those that are open." } : answer.error, () => one(id))))));
    show({ ...answer.data.approval, mine: alone || !yours.ok || yours.data.approvals.some((each) => each.id === answer.data.approval.id) }, form);
  };

  const show = (item, form) => {
    shown?.close();
    shown = new Question(item, { narrow, form, say: context.say, keys: letters, back: alone ? null : back, done: (now_, how) => {
      toast(now_.status === "open" && how === "approve" ? `You agreed. ${counted(now_)}` : (DID[how] ?? "Done"));
      list();
      show(now_, form);
    } });
    context.title(item.question.slice(0, 60));
    swap(right, shown.element);
    mark(item.id);
  };

  const mark = (id) => {
    for (const each of left.querySelectorAll(".inbox-item")) id === each.dataset.row ? each.setAttribute("aria-current", "true") : each.removeAttribute("aria-current");
  };

  const heard = on(["asked"], async () => {
    list();
    if (!shown) return;
    const id = shown.item.id;
    const answer = await read(path("api", "approvals", id), { exact: true });
    if (answer.ok && shown?.item.id === id) shown.renew(answer.data.approval);
  });

  counts();
  draw();
  list();
  if (params.id) one(params.id);
  return {
    element: styled(element, "questions"),
    close() {
      heard();
      shown?.close();
    },
    redraw(next) {
      narrow = next.narrow;
      const focused = document.activeElement;
      shown?.redraw(narrow);
      draw();
      list();
      if (element.contains(focused)) focused.focus(); // what is moved loses it
      return true;
    },
    changed(next) {
      const before = params.id;
      params = next.params;
      if (narrow || alone) draw();
      if (params.id && params.id !== before) one(params.id);
      else if (!params.id) list();
      if (!params.id) context.title();
      return true;
    },
  };
}

// What ends first comes first; then what was asked first.
function urgent(one, other) {
  const left = (each) => ms(each.expires_at) ?? Infinity;
  return left(one) - left(other) || ms(one.asked_at) - ms(other.asked_at);
}

// The list of questions: for you, for others, decided.

/** The list; `chosen` is the id of the one that is open. */
function inbox({ mine, others, decided }, chosen) {
  const group = (title, look, items) => [h("header.inbox-head", h("h2", title, h("span.badge", { class: look }, items.length))), h("ul", items.map((each) => entry(each, chosen)))];
  return h("section.inbox", { "aria-label": "Questions" },
    mine.length ? group("For you", "ask", mine) : may("decide") && [h("header.inbox-head", h("h2", "For you")), h("p.inbox-none.dim", "Nothing waits for you.")],
    others.length > 0 ? group(may("decide") ? "For others" : "Open", "", others) : !may("decide") && [h("header.inbox-head", h("h2", "Open")), h("p.inbox-none.dim", "Nothing waits for a person.")],
    decided.length > 0 && [h("header.inbox-head", h("h2", "Decided")), h("ul.decided", decided.map(past))]);
}

function entry(item, chosen) {
  const left = ms(item.expires_at) === null ? null : ms(item.expires_at) - now();
  return h("li", h("a.inbox-item", { href: path("approvals", item.id), data: { row: item.id }, "aria-current": item.id === chosen ? "true" : undefined },
    glyph(lookOf(item)),
    h("div.inbox-what", h("p.strong", saidBy(item)[0]), h("p.dim.cut", item.path.join(" › "), " · ", hint(item)),
      h("p.inbox-meta", h("span.dim", `asked ${ago(item.asked_at)}`), item.needs > 1 && h("span.dim", `${item.votes.filter((each) => each.yes).length} of ${item.needs} agree`),
        left !== null && h("span", { class: left < 6 * 3_600_000 ? "ask-ink" : "dim" }, left > 0 ? `${left < 600_000 ? seconds(left) : spoken(left)} left` : "time is over"),
        item.mine ? agreed(item, get("me")) && h("span.dim", "you agreed") : h("span.dim", `for ${forWhom(item, null)}`)))));
}

// A list has no room for large values. What an agent itself calls so reads the same here, and only here: a question alone is whole.
const isCut = (data) => data !== null && typeof data === "object" && Object.keys(data).join() === "$cut";

function hint(item) {
  const kind = kindOf(item);
  if (kind === "in_doubt") return "it happened, run it, or fail";
  if (kind === "again") return "use its result, do it again, or fail";
  if (kind === "budget") return "more budget";
  if (kind === "loop") return "go on or stop";
  if (kind === "ask") return item.schema?.title ?? item.schema?.type ?? "an answer";
  if (item.data == null) return "yes or no";
  if (isCut(item.data)) return "a large value";
  const few = brief(item.schema, item.data, 60);
  if (few) return few;
  return cut(typeof item.data === "string" ? item.data.replace(/\s+/g, " ") : write(item.data), 80);
}

function past(item) {
  return h("li", h("a", { href: path("approvals", item.id), data: { row: item.id } }, h("span.strong.cut", saidBy(item)[0]),
    h("p.dim.cut", h("span", { class: `said-${item.decision ?? "none"}` }, ended(item)), item.decided_by && ` by ${item.decided_by}`, isChanged(item) && item.decision === "approved" && ", with a change", item.note && `: ${item.note}`),
    h("span.dim.at", ago(item.decided_at ?? item.expires_at ?? item.asked_at))));
}

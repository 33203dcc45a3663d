// Conversations: what outlives runs. The list, and one with its messages, the last first read.

import { h, path, put, swap } from "../dom.js";
import { read } from "../api.js";
import { ghosts, icon, problem, prose, runLink, tree } from "../parts.js";
import { age, count, exact, many } from "../say.js";

const PAGE = 50;

export function open(context) {
  return context.params.id ? one(context) : list();
}

function list() {
  const body = h("section.panel", ghosts(6));
  const place = h("tbody");
  const more = h("footer.foot");
  const fill = async (after = null) => {
    const answer = await read(path("api", "conversations", { limit: PAGE, after }));
    if (!answer.ok) return swap(after ? more : body, problem(answer.error, () => fill(after)));
    const { conversations, next } = answer.data;
    if (!after) swap(body, conversations.length ? [h("table.plain.wide-table", h("thead", h("tr", h("th", { scope: "col" }, "Conversation"), h("th", { scope: "col" }, "Held by"), h("th.num", { scope: "col" }, "Messages"), h("th.num", { scope: "col" }, "Last"))), place), more] : h("div.empty", h("h2", "No conversation yet"), h("p.dim", "An agent that enters ", h("code", "holdfast.conversation(id)"), " keeps there what outlives its run.")));
    put(place, conversations.map((each) => h("tr", { data: { row: each.id }, tabIndex: 0 }, h("td", h("a.mono.strong", { href: path("conversations", each.id) }, each.id)), h("td", { data: { head: "Held by" } }, each.run ? runLink(each.run) : h("span.dim", "nobody"), each.waiting > 0 && h("span.dim", `, ${many(each.waiting, "waits", "wait")}`)), h("td.num", { data: { head: "Messages" } }, count(each.messages)), h("td.num", { data: { head: "Last" } }, h("span", { title: exact(each.updated_at) }, `${age(each.updated_at)} ago`)))));
    swap(more, next && h("button.link", { onclick: () => fill(next) }, "Read more"));
  };
  fill();
  return { element: h("div", h("div.head", h("div.head-line", h("h1", "Conversations"), h("p.dim", "what outlives runs"))), body) };
}

function one({ params, title }) {
  const facts = h("p.dim");
  const body = h("section.panel.talk-list", ghosts(5));
  const place = h("ol.messages");
  const earlier = h("div.pad");
  title(params.id);
  const fill = async () => {
    const [info, answer] = await Promise.all([read(path("api", "conversations", params.id)), read(path("api", "conversations", params.id, "messages", { last: PAGE }))]);
    if (!answer.ok) return swap(body, problem(answer.error, fill));
    const told = info.data?.conversation;
    const messages = answer.data.messages;
    if (told) swap(facts, many(told.messages, "message"), told.run && [", held by ", runLink(told.run)]);
    swap(body, messages.length ? [earlier, place] : h("div.empty", h("p.dim", "Nothing was said yet.")));
    put(place, messages.map(message));
    const first = messages[0]?.position ?? 0;
    if (first > 0) offer(first);
  };
  const offer = (first) => swap(earlier, h("button.link", { onclick: async () => {
    const from = Math.max(first - PAGE, 0);
    const answer = await read(path("api", "conversations", params.id, "messages", { after: from, limit: first - from }));
    if (!answer.ok) return swap(earlier, problem(answer.error));
    const height = document.documentElement.scrollHeight;
    place.prepend(...answer.data.messages.map(message));
    scrollBy(0, document.documentElement.scrollHeight - height); // what is read stays where it is
    from > 0 ? offer(from) : swap(earlier);
  } }, `${many(first, "earlier message")}`));
  fill();
  return { element: h("div", h("div.head", h("div", h("nav.crumbs", { "aria-label": "Path" }, h("a", { href: "conversations" }, "Conversations"), icon("right"), h("span", "One")), h("h1.mono", params.id), facts)), body) };
}

function message(each) {
  const { value } = each;
  const role = value?.role ?? value?.kind ?? null;
  const text = typeof value === "string" ? value : typeof value?.content === "string" ? value.content : null;
  return h("li.message", h("header", h("span.dim", String(each.position)), role && h("span.strong", role), runLink(each.run), h("span.gap"), h("span.dim", { title: exact(each.at) }, `${age(each.at)} ago`)), text !== null ? prose(text) : h("div.json", tree(value)));
}

// What came for a trigger, or went out to somebody: each with what became of it, its body, and what can be done about it.

import { h, path, swap } from "../../dom.js";
import { read, write } from "../../api.js";
import { ask, button, chip, problem, runLink } from "../../parts.js";
import { age, bytes, left, many, ms, now } from "../../say.js";
import { may } from "../../store.js";
import { cut } from "../../text.js";

const LONGEST = 20_000, MOST = 50;
const LOOKS = { dead: ["dead", "bad", "cross"], new: ["waits", "ask", "clock"], done: ["done", "kelp", "check"] };

/** What was done about a delivery, in the command line's words. */
function done(did) {
  if (did.start) return [did.was_there ? "was there: " : "started: ", runLink(did.start)];
  if (did.send) return [`sent ${did.topic} to `, runLink(did.send)];
  if (did.decide) return `decided ${did.decide} for ${did.by}`;
  return "gather" in did ? "gathered with others" : "";
}

/** Show them in a dialog. `of` is "triggers" or "notifications"; what is dead stands first. */
export async function deliveries(of, name, title) {
  const list = h("ul.refusals.deliveries"), wrong = h("div");
  const fill = async () => {
    const [dead, all] = await Promise.all(["dead", null].map((status) => read(path("api", of, name, "deliveries", { status, limit: MOST }))));
    if (!dead.ok || !all.ok) return void swap(list, problem((dead.error ?? all.error), fill));
    const items = [...dead.data.deliveries, ...all.data.deliveries.filter((each) => each.status !== "dead")].slice(0, MOST);
    swap(list, items.length ? items.map(item) : h("li", h("p.dim", of === "triggers" ? "Nothing came so far." : "Nothing went out so far.")));
  };
  const act = async (verb, body) => {
    const answer = await write(path("api", of, name, verb), body);
    swap(wrong, !answer.ok && problem(answer.error));
    return fill();
  };

  function item(each) {
    const again = of === "triggers" ? { delivery: each.id } : { id: each.id }, due = ms(each.due_at) > now() ? `, again in ${left(each.due_at)}` : "";
    const isDismissed = each.status === "done" && each.error, [word, look, sign] = isDismissed ? ["let be", "", ""] : LOOKS[each.status];
    return h("li", h("div.delivery", chip(word, look, sign), h("span.mono.cut", { title: each.id }, each.id), h("span.dim.nowrap", `${age(each.received_at)} ago`)),
      each.error ? h("p.bad-ink", each.error) : null,
      each.attempts ? h("p.dim", `failed ${many(each.attempts, "time")}${each.status === "new" ? due : ""}`) : null,
      each.outcome.map((did) => h("p.dim", done(did))),
      of === "triggers" ? body(each) : null,
      each.status === "dead" && may("write") ? h("div.row-acts", of === "triggers" ? button("Dismiss", { kind: "small", title: "Let it be: nothing is done about it", onclick: () => act("dismiss", { delivery: each.id }) }) : null, button("Try again", { kind: "small", name: "again", onclick: () => act("replay", again) })) : null);
  }

  const body = (each) => h("details", { ontoggle: async (event) => {
    const place = event.target.querySelector("pre");
    if (!event.target.open || place.textContent) return;
    const found = await read(path("api", of, name, "deliveries", each.id));
    swap(place, found.ok ? `${Object.entries(found.data.headers).map(([key, value]) => `${key}: ${value}\n`).join("")}\n${cut(found.data.body, LONGEST)}` : found.error.message);
  } }, h("summary.dim", `what came, ${bytes(each.size)}`), h("pre"));

  fill();
  const all = of === "triggers" && may("write");
  const yes = await ask({ title, body: [wrong, list], yes: all ? "Try all that are dead again" : "Close", no: all ? "Close" : null, kind: all ? "" : "primary", does: async () => {
    const answer = all ? await write(path("api", of, name, "replay"), { dead: true }) : { ok: true };
    if (!answer.ok) swap(wrong, problem(answer.error));
    return answer.ok && { replayed: answer.data?.replayed ?? null };
  } });
  return yes?.replayed ?? null;
}

// Sign-in: a token, a code or a link becomes a session. None of them is kept by the page, and none is ever in an address that is sent.

import { h, path, swap } from "../dom.js";
import { read, write } from "../api.js";
import { brand } from "../icons.js";
import { button, problem } from "../parts.js";
import { get, set } from "../store.js";
import { ago } from "./approvals/kinds.js";

// What to do about a credential that is not good; what the server says is for programs.
const HINTS = {
  link: "Open the newest message about this question and use all of its link, or ask whoever sent it for another. Whoever has a token can sign in below.",
  code: "Sign in with a token below, or start the server again for another code.",
  token: "Look whether all of it was copied. `holdfast token NAME` makes another.",
};

export function open({ query, go }) {
  const fragment = new URLSearchParams(location.hash.slice(1));
  if (location.hash) history.replaceState(null, "", location.pathname + location.search); // it opens a door, so it does not stay
  const to = query.get("to") ?? "";
  const wrong = h("div");
  const ways = h("div.ways");
  const field = h("input.text", { type: "password", id: "token", autocomplete: "off", spellcheck: "false", autocapitalize: "none", placeholder: "holdfast_…" });
  const enter = button("Sign in", { kind: "primary", type: "submit" });

  let before = null; // who is in already
  const inside = /^(?!\/\/)(?!.*:\/\/)(?!sign-in)/.test(to) ? to : "";
  const goOn = () => go(inside || new URL(document.baseURI).pathname, { replace: true });

  const begin = async (credential) => {
    swap(wrong);
    enter.disabled = true;
    const answer = await write("session", credential);
    enter.disabled = false;
    if (!answer.ok) {
      if (credential.token) {
        field.setAttribute("aria-invalid", "true");
        field.focus();
      }
      return swap(wrong, problem({ ...answer.error, hint: answer.status === 401 ? HINTS[Object.keys(credential)[0]] : answer.error.hint }));
    }
    field.value = "";
    set({ me: null, over: null });
    if (before) location.replace(new URL(inside, document.baseURI)); // nothing that was read for somebody else stays
    else goOn();
  };

  // A link is for one person. It is used at once where nobody is in, or the same person by another link; else one chooses.
  const follow = async (link) => {
    const [looked, me] = await Promise.all([write("session", { look: link }), read("api/me")]);
    before = me.ok ? me.data : null;
    const stay = before && button(`Go on as ${before.name}`, { onclick: () => goOn() });
    if (!looked.ok) return swap(wrong, problem({ ...looked.error, hint: looked.status === 401 ? !/nobody any more/.test(looked.error.message) && HINTS.link : looked.error.hint }), stay);
    const { name, decides, changed } = looked.data;
    if (before && !before.question && before.name === name) return goOn();
    if (decides && (!before || before.name === name)) return begin({ link });
    swap(wrong, h("div.told", { role: "status" },
      !decides && [h("p.strong", "This link decides no more: ", changed ? `${changed.by} changed the value ${ago(changed.at)}` : "the value was changed", ". It was for what was shown before."), h("p.dim", "Ask whoever sent it for another, which is for the value as it is now. You can look at it with this one.")],
      before && before.name !== name && h("p.strong", `This link is for ${name}, and you are signed in as ${before.name}.`),
      h("div.told-acts", stay, button(`${decides ? "Go on" : "Look at it"} as ${name}`, { kind: before ? "" : "primary", onclick: () => begin({ link }) }))));
  };

  const form = h("form", { novalidate: true, onsubmit: (event) => {
    event.preventDefault();
    if (field.value.trim()) begin({ token: field.value.trim() });
    else field.focus();
  } }, h("label", { for: "token" }, "Token"), field, enter);

  const offer = async () => {
    const answer = await read("api/sign-in");
    if (!answer.ok) return swap(ways, problem(answer.error, offer));
    const { token, oidc } = answer.data;
    swap(ways, oidc && h("a.button.primary.wide", { href: path("sign-in", "oidc", to ? { to } : {}), data: { reload: "1" } }, `Sign in with ${oidc.name}`), oidc && token && h("p.or.dim", "or with a token"), token && form,
      !token && !oidc && h("p.dim", "The application around this page says who you are; sign in there."), token && h("p.dim.hint", "A token is made by ", h("code", "holdfast token NAME"), ". It becomes a session of this browser, for twelve hours at the most, and is not kept here."));
  };
  offer();
  if (fragment.get("problem")) swap(wrong, problem({ code: "unauthorized", message: fragment.get("problem"), hint: "Sign in again below. If that says the same, show it to whoever runs this server." })); // of a provider
  if (fragment.get("code")) begin({ code: fragment.get("code") });
  else if (fragment.get("link")) follow(fragment.get("link"));
  else if (get("over")) swap(wrong, h("div.told", { role: "status" }, h("p.strong", "Your session has ended: it ran out, or was revoked."), h("p.dim", get("over") !== "GET" && "Nothing was done by what you pressed. ", "Sign in to go on where you were.")));
  else if (/^approvals\/./.test(to) && !fragment.get("problem")) swap(wrong, h("div.told", { role: "status" }, h("p.strong", "This question is for who is signed in, or has its link."), h("p.dim", "A link is good for one decision, and ends with #link=…. If you came by one, it was used, or a part of it is missing. ", HINTS.link)));
  return { element: h("section.sign-in", brand(), h("h1", "Sign in to Holdfast"), wrong, ways) };
}

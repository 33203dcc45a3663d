// The frame of the page: bar, navigation, find, the dot that says whether what is shown is live, and the notice above it all.

import { h, path, swap } from "./dom.js";
import { brand, icon } from "./icons.js";
import { glyph, menu } from "./parts.js";
import { read, write } from "./api.js";
import { help } from "./keys.js";
import { get, has, looks, may, on, set } from "./store.js";
import { clock, seconds } from "./time.js";

const PLACES = [["runs", "Runs", "list", "read"], ["approvals", "Approvals", "inbox", "read"], ["fleet", "Fleet", "fleet", "all"], ["agents", "Agents", "bolt", "read", "write"]];

/** Make the frame once; it changes by itself. `go(path)` opens a view. */
export function frame(go) {
  const nav = h("nav", { "aria-label": "Pages" });
  const end = h("div.bar-end");
  const notice = h("div.notice", { hidden: true });
  const main = h("main", { id: "main", tabIndex: -1 });
  const searched = find(go);
  const bar = h("header.bar", h("a.brand", { href: "runs", "aria-label": "Holdfast, runs" }, brand(), h("span", "Holdfast")), nav, searched, end);
  let place = null;

  const drawNav = () => {
    const me = get("me");
    bar.hidden = !me;
    searched.hidden = !looks();
    swap(nav, PLACES.filter(([id, , , ...scopes]) => (me?.question ? id === "approvals" : scopes.some(may) && has(id))).map(([id, text, name]) =>
      h("a.nav", { href: id, "aria-current": id === place ? "page" : undefined }, h("span.nav-ico", icon(name)), h("span", text),
        id === "approvals" && get("mine") > 0 && h("span.badge.ask", { title: `${get("mine")} for you` }, get("mine") > 99 ? "99+" : get("mine")))));
  };
  const drawEnd = () => {
    const me = get("me");
    swap(end, live(), themed(), me && person(me, go));
  };
  const drawNotice = () => {
    const told = get("fresh") ? { text: "A new version is there.", act: ["Reload", () => location.reload()] } : get("notice");
    notice.hidden = !told;
    swap(notice, told && [h("span", told.text), told.act && h("button.link", { onclick: told.act[1] }, told.act[0])]);
  };
  on(["me", "mine"], drawNav);
  on(["me", "theme"], drawEnd);
  on(["line"], () => end.firstChild?.replaceWith(live()));
  on(["fresh", "notice"], drawNotice);
  setInterval(() => get("line").how === "lost" && end.firstChild?.replaceWith(live()), 1000);
  drawNav();
  drawEnd();
  return {
    elements: [bar, notice, main],
    main,
    at(now) {
      place = now;
      drawNav();
    },
  };
}

function live() {
  const { how, asOf, again } = get("line");
  if (how === "lost") {
    const wait = again && h("span.only-wide", `, again in ${seconds(Math.max(again - Date.now(), 0))}`);
    return h("span.live.lost", { title: "The server does not answer. It is asked again; nothing is missed." }, h("i"), h("span", `as of ${clock(asOf)}`, wait));
  }
  return h("span.live", { title: "Connected: what happens is shown as it happens" }, h("i"), h("span", how === "ended" ? "ended" : "live"));
}

// Theme

const isDark = () => (get("theme") ? get("theme") === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);

function wear(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  set({ theme });
}

/** Dark, light, as the system, in turn. */
export function turnTheme() {
  wear(get("theme") === "dark" ? "light" : get("theme") === "light" ? null : "dark");
}

function themed() {
  const dark = isDark();
  return h("button.quiet", { title: dark ? "Light" : "Dark", "aria-label": dark ? "Use light colours" : "Use dark colours", onclick: () => wear(dark ? "light" : "dark") }, icon(dark ? "sun" : "moon"));
}

// Who looks

function person(me, go) {
  const told = me.groups?.length ? `${me.name}, in ${me.groups.join(", ")}` : me.name;
  const opener = h("button.me", { title: told, "aria-haspopup": "menu", "aria-expanded": "false", onclick: () => menu(opener, [
    may("all") && has("conversations") && ["Conversations", path("conversations")],
    may("all") && (has("schedules") || has("triggers")) && ["Schedules and triggers", path("schedules")],
    may("read") && has("audit") && ["Audit", path("audit")],
    null,
    ["Keys and settings", help],
    ["Theme as the system", () => wear(null)],
    ...(me.via === "session" ? [null, ["Sign out", () => signOut(go)]] : []),
  ].filter((each) => each !== false)) }, h("b", { "aria-hidden": "true" }, [...me.name][0]?.toUpperCase()), h("span", me.name));
  return h("div.menu-at", opener);
}

async function signOut(go) {
  await write("session", {}, "DELETE");
  set({ me: null });
  go("sign-in");
}

// Find: one field for everything

const GROUPS = [
  ["runs", "Runs", (each) => [h("span.mono", each.id), h("span.dim", each.agent)], (each) => path("runs", each.id), (each) => glyph(each.status)],
  ["questions", "Questions", (each) => [h("span", each.question), h("span.dim.mono", each.run)], (each) => path("approvals", each.id), () => glyph("person")],
  ["agents", "Agents", (each) => [h("span.mono", each)], (each) => path("agents", each), () => icon("bolt")],
  ["labels", "Labels", (each) => [h("span.mono", each)], (each) => path("runs", { q: `label:${each}` }), () => icon("flag")],
  ["workers", "Workers", (each) => [h("span.mono", each)], (each) => path("fleet", each), () => icon("fleet")],
];

function find(go) {
  const list = h("div.found", { id: "found", role: "listbox", "aria-label": "Found", hidden: true });
  const field = h("input", { type: "search", id: "find", role: "combobox", "aria-expanded": "false", "aria-controls": "found", autocomplete: "off", spellcheck: "false", placeholder: "Find a run, agent, label or question", "aria-label": "Find" });
  let asked = 0;
  let timer = 0;
  const close = () => {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const choose = (by) => {
    const all = [...list.querySelectorAll("[role=option]")];
    const at = all.findIndex((each) => each.getAttribute("aria-selected") === "true");
    all[at]?.setAttribute("aria-selected", "false");
    const next = all[Math.min(Math.max(at + by, -1), all.length - 1)];
    next?.setAttribute("aria-selected", "true");
    if (next) field.setAttribute("aria-activedescendant", next.id);
    else field.removeAttribute("aria-activedescendant");
  };
  const look = async () => {
    const q = field.value.trim();
    const own = ++asked;
    if (!q) return close();
    const answer = await read(path("api", "search", { q }));
    if (own !== asked || document.activeElement !== field) return;
    const groups = answer.ok ? GROUPS.map(([name, title, shows, leads, sign]) => [title, (answer.data[name] ?? []).map((each) => [shows(each), leads(each), sign(each)])]).filter(([, found]) => found.length) : [];
    let nth = 0;
    swap(list, groups.map(([title, found]) => [h("p.found-head", { role: "presentation" }, title), found.map(([shows, leads, sign]) =>
      h("a.found-row", { href: leads, role: "option", id: `found-${nth++}`, "aria-selected": "false", tabIndex: -1, onclick: close }, sign, shows))]),
      h("p.found-foot.dim", nth ? "↑ ↓ to choose, Enter opens" : "Nothing by that name; Enter filters the runs by it"));
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
  };
  field.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, 120);
  });
  field.addEventListener("focus", look);
  field.addEventListener("blur", () => setTimeout(() => !list.contains(document.activeElement) && close(), 150));
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      choose(event.key === "ArrowDown" ? 1 : -1);
      event.preventDefault();
    } else if (event.key === "Enter") {
      const chosen = list.querySelector("[aria-selected=true]");
      go(chosen && !list.hidden ? chosen.getAttribute("href") : path("runs", { q: field.value.trim() }));
      field.value = "";
      close();
      field.blur();
    }
  });
  return h("div.find", { role: "search" }, icon("search"), field, h("kbd", { "aria-hidden": "true" }, "/"), list);
}

// The page: it finds out who looks, opens the view that the URL means, and keeps the frame around it.

import { h, path, swap } from "./dom.js";
import { read } from "./api.js";
import { frame, turnTheme } from "./frame.js";
import { help, keys, move } from "./keys.js";
import { inbox } from "./live.js";
import { copied, problem, unread } from "./parts.js";
import { PLACES, viewOf } from "./router.js";
import { agreed, blind } from "./say.js";
import { get, looks, may, on, set } from "./store.js";
import { line } from "./text.js";
import { inUtc } from "./time.js";

const TITLES = { runs: "Runs", run: "Runs", approvals: "Approvals", compare: "Compare", fleet: "Fleet", agents: "Agents", schedules: "Schedules", conversations: "Conversations", audit: "Audit", "sign-in": "Sign in" };
const base = new URL(document.baseURI);
const page = document.getElementById("page");
const said = document.getElementById("said");
const narrow = matchMedia("(max-width: 760px)");
const shell = frame(go);
let view = null; // what is open: {name, params, opened, off}

/** Open a path of the page: go("runs/otters?at=3"). `replace` leaves no step in the browser's history. */
function go(to, { replace = false } = {}) {
  const next = new URL(to, document.baseURI);
  if (next.origin !== base.origin || !next.pathname.startsWith(base.pathname)) return;
  if (next.href === location.href) replace = true;
  history[replace ? "replaceState" : "pushState"](null, "", next);
  route();
}

const place = () => viewOf(location.pathname.slice(base.pathname.length));
const context = (params) => ({ params, query: new URLSearchParams(location.search), narrow: narrow.matches, go, say, title, keys: (map) => view?.off.push(keys(map)), again: route });

async function route() {
  const { view: name, params } = place();
  if (name !== "sign-in" && /^#link=/.test(location.hash)) return go(`${path("sign-in", { to: location.pathname.slice(base.pathname.length) + location.search })}${location.hash}`, { replace: true }); // it may be another person's
  if (name !== "home") viewNamed(name).catch(() => {}); // it comes while the server says who looks
  if (name !== "sign-in" && !get("me") && !(await known())) return;
  if (name === "home") return go(get("me").question ? path("approvals", get("me").question) : may("read") ? "runs" : may("write") ? "agents" : "approvals", { replace: true });
  if (view?.name === name && view.opened?.changed?.(context(params)) === true) return void (view.params = params);
  const before = view;
  close(before);
  const own = (view = { name, params, opened: null, off: [] });
  shell.at(PLACES[name] ?? null);
  title();
  if (!looks() && !["sign-in", "lost", get("me")?.question ? "approvals" : may("write") && "agents"].includes(name)) {
    return swap(shell.main, problem({ code: "forbidden", message: blind(get("me")), hint: "Use one that may read." }));
  }
  let module;
  try {
    module = await viewNamed(name);
  } catch {
    if (view === own) swap(shell.main, h("div.head", h("h1", TITLES[name] ?? "Page")), unread(route));
    return;
  }
  if (view !== own) return; // the reader went on
  own.opened = module.open(context(params));
  shell.main.className = `view-${name}${params.id ? " one" : ""}`;
  swap(shell.main, own.opened.element);
  if (before && before.name !== name && !document.activeElement.closest("input, dialog")) shell.main.focus({ preventScroll: true }); // not from somebody who types
  if (before) scrollTo(0, 0);
  began(); // after what the view asks for itself
}

const viewNamed = (name) => import(`./views/${name}.js`);

function close(before) {
  before?.opened?.close?.();
  document.querySelector("dialog")?.close(); // what it asks is of what is left
  before?.off.forEach((off) => off());
}

async function known() {
  const answer = await read("api/me");
  if (answer.ok) {
    if (/^#code=/.test(location.hash)) history.replaceState(null, "", location.pathname + location.search); // who is in needs no door
    const over = get("over"); // this page did not sign in
    set({ me: answer.data, over: null, ...(over && { notice: { text: `${answer.data.name} is signed in in this browser now.${over === "GET" ? "" : " Nothing was done by what you pressed."}`, act: ["Close", () => set({ notice: null })] } }) });
    return true;
  }
  if (answer.status === 401 && place().view === "sign-in") return false; // somebody asked at the same time
  if (answer.status === 401) {
    const fragment = /^#code=/.test(location.hash) ? location.hash : "";
    const here = location.pathname.slice(base.pathname.length) + location.search;
    go(`${path("sign-in", here ? { to: here } : {})}${fragment}`, { replace: true });
  } else {
    swap(shell.main, h("div.head", h("h1", "Holdfast")), answer.status ? problem(answer.error, route) : unread(route));
  }
  return false;
}

let following = false;
async function began() {
  if (following || !looks()) return;
  following = true;
  const first = await read("api/runs?limit=1"); // for the place behind the last event
  await counted();
  if (first.ok) inbox(() => heard(), first.data.position);
  else setInterval(() => document.hidden || heard(), 15_000);
}

let hearing = 0;
function heard() {
  clearTimeout(hearing);
  hearing = setTimeout(() => {
    counted();
    set({ asked: (get("asked") ?? 0) + 1 });
  }, 200);
}

/** How many open questions wait for the person who looks. */
async function counted() {
  const answer = await read("api/approvals?mine=true&limit=100");
  if (!answer.ok) return;
  const before = get("mine");
  const mine = answer.data.approvals.filter((each) => !agreed(each, get("me"))).length;
  set({ mine });
  if (mine > before && before !== null) say("a question for you");
}

// One polite region says at most one sentence in five seconds.
let quiet = 0;
function say(text) {
  const wait = quiet - Date.now();
  if (wait > 0) return void setTimeout(() => (quiet <= Date.now() ? say(text) : null), wait + 50);
  quiet = Date.now() + 5000;
  said.textContent = text;
}

function title(what) {
  const name = TITLES[view?.name] ?? "Page";
  document.title = `${what ? `${line(what)} · ` : ""}${name} · Holdfast`;
}

// Links of the page are followed here, so that a view opens without a reload.
document.addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  if (!link || event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || link.hasAttribute("download") || link.dataset.reload) return;
  if (link.matches(".skip")) {
    event.preventDefault();
    shell.main.focus();
    return;
  }
  const to = new URL(link.href);
  if (to.origin !== base.origin || !to.pathname.startsWith(base.pathname) || /^(static|api)\//.test(to.pathname.slice(base.pathname.length))) return;
  event.preventDefault();
  go(to.href);
});
addEventListener("popstate", route);
narrow.addEventListener("change", redraw);
on(["out"], async () => { // the session is over; or it is somebody else's, and nothing that was read stays
  if (place().view === "sign-in" || !(await known())) return;
  anew();
  if (looks()) counted();
});
on(["utc"], () => {
  inUtc(get("utc"));
  redraw();
});

// Everything looks different from now on. A view in which somebody writes draws itself anew and loses nothing; any other is opened anew.
function redraw() {
  if (!view?.opened?.redraw?.(context(view.params))) anew();
}

function anew() {
  const before = view;
  view = null;
  close(before);
  route();
}

inUtc(get("utc"));
keys({
  "/": () => document.getElementById("find").focus(),
  "?": help,
  "g r": () => go("runs"),
  "g a": () => go("approvals"),
  "g f": () => go("fleet"),
  "g s": () => go("agents"),
  "Shift+D": turnTheme,
  j: () => move(1),
  k: () => move(-1),
  c: () => copied(location.href, "The link"),
  Enter: (event) => (event.target.matches("[data-row]") ? (event.target.querySelector("a[href]") ?? event.target).click() : false),
  o: () => document.activeElement?.closest("[data-row]")?.querySelector("a[href]")?.click(),
  Escape: () => {
    const parts = location.pathname.slice(base.pathname.length).split("/").filter(Boolean);
    return parts.length > 1 ? go(parts.slice(0, -1).join("/").replace(/\/streams$/, "")) : false;
  },
});
swap(page, shell.elements);
route();

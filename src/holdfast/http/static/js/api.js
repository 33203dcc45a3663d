// Requests to the server. An error is an answer like any other: {ok: false, error: {code, message, hint, details}}.

import { parse, write as json } from "./json.js";
import { get, set } from "./store.js";
import { learn } from "./time.js";

const UNREACHABLE = { code: "offline", message: "The server does not answer.", hint: "", details: null };
const UNKNOWN = { ...UNREACHABLE, code: "unknown", message: "The server did not answer.", hint: "It is not known whether this was done: look before you do it again." };
const UNREADABLE = { code: "unreadable", message: "The answer of the server could not be read.", details: null };

/** The whole address of a path of this server, wherever it is mounted. */
export const address = (path) => new URL(path, document.baseURI).href;

/** Read: `read("api/runs?limit=100")` gives {ok, status, data, error}. With `exact` each number is kept as it is written: see json.js. */
export const read = (path, { signal, exact } = {}) => ask(path, { signal }, exact);

/** Write: a body as JSON. Only a page of this server can send the header, so no other site acts in its name. */
export const write = (path, body = {}, method = "POST", { exact } = {}) => {
  early(); // what was asked before it may be another answer by now
  return ask(path, { method, headers: { "Content-Type": "application/json", "X-Holdfast-Page": "1" }, ...(method === "DELETE" ? {} : { body: json(body) }) }, exact);
};

/** The question that first.js has asked while the modules came, once, if this is it. */
function early(path) {
  const first = globalThis.firstQuestion;
  globalThis.firstQuestion = null;
  return first?.path === path ? first : null;
}

/** Call a function when the server answers again. */
export const back = (then) => setTimeout(async () => ((await read("api/me")).status ? then() : back(then)), 2000);

async function ask(path, options, exact = false) {
  const first = early(path), asked = first?.asked ?? performance.now();
  let answer;
  try {
    const shown = path !== "api/me" && { "X-Holdfast-As": encodeURIComponent(get("me")?.name ?? "") }; // in another tab somebody else may have signed in: nothing is read or done as they
    const headers = { Accept: "application/json", ...shown, ...options.headers };
    answer = await (first?.answer ?? fetch(address(path), { credentials: "same-origin", cache: "no-store", redirect: "error", ...options, headers }));
  } catch (error) {
    return { ok: false, status: 0, data: null, error: error.name === "AbortError" ? { ...UNREACHABLE, code: "left" } : options.method ? UNKNOWN : UNREACHABLE };
  }
  noticed(answer.headers.get("X-Holdfast-Version"));
  let data = null;
  let torn = null;
  try {
    data = answer.status === 204 ? null : parse(await answer.text(), { exact });
  } catch (error) {
    torn = error; // no JSON, or not all of it: of a refusal the status says enough, what was granted is not known
  }
  const came = first?.came ?? performance.now();
  if (data?.now) learn(data.now, came - asked, performance.now() - came);
  if (answer.ok && torn) return { ok: false, status: answer.status, data: null, error: { ...UNREADABLE, code: options.method ? "unknown" : "unreadable", hint: `${options.method ? "It may be done all the same: look again. " : ""}Something before the server may have answered in its place. ${torn.message}` } };
  if (answer.ok) return { ok: true, status: answer.status, data, error: null };
  const error = data?.error ?? { code: `http_${answer.status}`, message: `The server answered ${answer.status}.`, hint: "", details: null };
  if (answer.status === 401 && path !== "session") set(get("me")?.question ? { ended: (get("ended") ?? 0) + 1 } : { me: null, out: (get("out") ?? 0) + 1, over: options.method ?? get("over") ?? (get("me") && "GET") }); // a link's page stays
  return { ok: false, status: answer.status, data, error };
}

function noticed(version) {
  const own = get("me")?.version;
  if (version && own && version !== own) set({ fresh: true });
}

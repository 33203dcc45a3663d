// Following: what happens comes as it happens, each message once, none missed.
//
// A page has at most three streams, because browsers open six connections to a server over HTTP/1.1. Each is in a slot: "subject"
// (the run or list that is looked at), "text" (the stream of tokens that is read) and "inbox" (questions, one tab for all).

import { address, read } from "./api.js";
import { parse } from "./json.js";
import { get, on, set } from "./store.js";
import { now, stand } from "./time.js";

const SLOTS = ["subject", "text", "inbox"];
const HIDDEN_MS = 20_000; // then a tab that nobody sees gives its connections back
const PATIENCE = 3; // failures in a row that are left to the browser
const LONGEST_S = 30;
const open = new Map(); // slot -> Following

/** Follow a path in a slot. `tells(data, type)` gets each message; `over(why)` is called when no more comes: end, gone or problem.
 * `after` is where the first reading ended. The answer has `close()`, and `last`, the place behind the last message. */
export function follow(slot, path, { after = 0, tells, over = () => {}, types = [] }) {
  if (!SLOTS.includes(slot)) throw new Error(`${slot} is no slot; there are ${SLOTS.join(", ")}`);
  open.get(slot)?.close();
  const following = new Following(slot, path, after, tells, over, types);
  open.set(slot, following);
  following.begin();
  return following;
}

class Following {
  constructor(slot, path, after, tells, over, types) {
    Object.assign(this, { slot, path, last: after, tells, over, types, failures: 0, source: null, timer: 0, closed: false });
  }

  begin() {
    clearTimeout(this.timer);
    if (this.closed || document.hidden && asleep) return;
    const to = new URL(address(this.path));
    to.searchParams.set("after", this.last);
    const source = (this.source = new EventSource(to));
    source.onopen = () => this.#well();
    source.onmessage = (message) => this.#take(message, "message");
    for (const type of this.types) source.addEventListener(type, (message) => this.#take(message, type));
    source.addEventListener("end", () => this.#end("end"));
    source.addEventListener("problem", (message) => {
      const error = parsed(message.data)?.error;
      if (error?.code === "unauthorized") read("api/me"); // its refusal is what the page hears
      this.#end("problem", error);
    });
    source.onerror = () => this.#failed(source);
  }

  #take(message, type) {
    this.#well();
    const place = Number(message.lastEventId);
    if (type === "message" && message.lastEventId && Number.isFinite(place)) {
      if (place <= this.last) return; // it came before, from a connection that broke
      this.last = place;
    }
    const data = parsed(message.data);
    if (data !== undefined) this.tells(data, type);
  }

  #well() {
    this.failures = 0;
    tell(this.slot, true);
  }

  // The browser tries again by itself, with the id of the last message. After three failures the waits are ours, and grow.
  #failed(source) {
    if (source !== this.source || this.closed) return;
    this.failures += 1;
    const refused = source.readyState === EventSource.CLOSED; // an answer that is no stream: 401, 404, 204, 503
    if (!refused && this.failures <= PATIENCE) return tell(this.slot, false, 1000);
    source.close();
    if (refused) return void this.#asked();
    this.#later();
  }

  async #asked() {
    const answer = await read(this.path.includes("?") ? `${this.path}&after=${this.last}&limit=1` : `${this.path}?after=${this.last}&limit=1`);
    if (this.closed) return;
    if (answer.status === 401 || answer.status === 403 || answer.status === 404 || answer.status === 410) return this.#end("gone", answer.error);
    if (answer.status === 204) return this.#end("end");
    this.#later();
  }

  #later() {
    const wait = Math.min(2 ** Math.max(this.failures - PATIENCE, 0), LONGEST_S) * 1000 * (0.9 + Math.random() * 0.2);
    tell(this.slot, false, wait);
    this.timer = setTimeout(() => this.begin(), wait);
  }

  #end(why, error = null) {
    this.close();
    tell(this.slot, true);
    this.over(why, error);
  }

  pause() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  close() {
    this.closed = true;
    this.pause();
    if (open.get(this.slot) === this) {
      open.delete(this.slot);
      lost.delete(this.slot);
      if (!lost.size) tell(this.slot, true);
    }
  }
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return undefined; // half a message is none; it comes again
  }
}

// The dot in the bar: amber as soon as one stream is lost, and time stands, so that nothing looks fresher than it is.
const lost = new Map(); // slot -> when it is tried again
let radio = null; // between the tabs of a browser
function tell(slot, ...how) {
  connected(slot, ...how);
  if (slot === "inbox") radio?.postMessage({ position: 0, how });
}
function connected(slot, well, waitMs = 0) {
  if (well) lost.delete(slot);
  else lost.set(slot, Date.now() + waitMs);
  if (!lost.size) {
    if (get("line").how !== "live") set({ line: { how: "live", asOf: null, again: null } });
    stand(false);
    return;
  }
  const asOf = get("line").asOf ?? now();
  stand(true);
  set({ line: { how: "lost", asOf, again: Math.min(...lost.values()) } });
}

// A tab that nobody sees closes its streams after 20 s, and comes back where it was.
let asleep = false;
let falling = 0;
function watch() {
  clearTimeout(falling);
  if (document.hidden) {
    falling = setTimeout(() => {
      asleep = true;
      for (const each of open.values()) each.pause();
      set({ asleep: true });
    }, HIDDEN_MS);
  } else if (asleep) {
    asleep = false;
    for (const each of open.values()) each.begin();
    set({ asleep: false });
  }
}

/** Follow open questions, in one tab for all: that which holds the lock follows, and tells the others. */
export function inbox(tells, after) {
  const name = `holdfast.inbox ${document.baseURI}`;
  radio = typeof BroadcastChannel === "function" ? new BroadcastChannel(name) : null;
  let last = after;
  const heard = (event) => {
    if (event.position <= last) return;
    last = event.position;
    tells(event);
  };
  const begin = () => follow("inbox", "api/events?kinds=approval", { after: last, tells: (event) => { heard(event); radio?.postMessage(event); }, over: () => release?.() });
  if (radio) radio.onmessage = ({ data }) => (data.how ? connected("inbox", ...data.how) : heard(data)); // what it says of its line holds for all
  const lock = navigator.locks && radio ? (then) => navigator.locks.request(name, then) : (then) => then(); // none without TLS or loopback: then each tab follows for itself
  let release = null;
  let wanted = false;
  const want = () => {
    if (wanted) return;
    wanted = true;
    lock(() => new Promise((done) => {
      const following = begin();
      release = () => {
        following.close();
        release = null;
        wanted = false;
        done();
      };
    }));
  };
  want();
  on(["asleep", "me"], () => (get("asleep") || !get("me") ? release?.() : want())); // a tab that is seen takes over; one whose session has ended makes room, so that the others see that theirs has
}

if (typeof document !== "undefined") document.addEventListener("visibilitychange", watch);

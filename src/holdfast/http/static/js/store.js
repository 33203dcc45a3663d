// The page's state, in one place. Views keep nothing that another view, a key or the frame needs to know: they ask here.

const kept = {
  get(name, otherwise) {
    try {
      return JSON.parse(localStorage.getItem(`holdfast.${name}`)) ?? otherwise;
    } catch {
      return otherwise; // storage may be off, or hold what an older page wrote
    }
  },
  set(name, value) {
    try {
      if (value === null) localStorage.removeItem(`holdfast.${name}`);
      else localStorage.setItem(`holdfast.${name}`, typeof value === "string" ? value : JSON.stringify(value));
    } catch {
      // then it holds until the page is closed
    }
  },
};

// Settings stay on this device; nothing that names a person or opens a door is ever among them.
const SETTINGS = { theme: null, utc: false, letters: true, filters: [], named: [] };

const state = {
  me: null, // GET /api/me
  mine: 0, // open questions for the person who looks
  line: { how: "live", asOf: null, again: null }, // live, lost or ended
  fresh: false, // the server has another version than the page
  over: null, // the method of what was asked when the session ended: GET is no press
  notice: null, // one line above the page: {text, act: [label, function]}
  theme: document.documentElement.dataset.theme ?? null,
};
for (const [name, otherwise] of Object.entries(SETTINGS)) state[name] ??= name === "theme" ? null : kept.get(name, otherwise);

const listeners = new Map(); // name -> functions

/** What is known under a name. */
export const get = (name) => state[name];

/** Change what is known; those who listen to a name that changed are told once, in the next frame. */
export function set(changes) {
  for (const [name, value] of Object.entries(changes)) {
    if (Object.is(state[name], value)) continue;
    state[name] = value;
    if (name in SETTINGS) kept.set(name, value);
    if (listeners.has(name)) changed.add(name);
  }
  if (changed.size && !waiting) waiting = requestAnimationFrame(tell);
}
const changed = new Set();
let waiting = 0;
function tell() {
  waiting = 0;
  const told = new Set([...changed].flatMap((name) => [...(listeners.get(name) ?? [])]));
  changed.clear();
  for (const each of told) each();
}

/** Call a function when one of these names changes; the answer ends that. */
export function on(names, then) {
  for (const name of names) listeners.set(name, (listeners.get(name) ?? new Set()).add(then));
  return () => names.forEach((name) => listeners.get(name)?.delete(then));
}

/** May the person who looks do this: read, write or decide? "all" is to read what is not of single runs, such as the fleet: a token of
 * some runs may not. What is not allowed is not offered. */
export const may = (scope) => (scope === "all" ? may("read") && !state.me.only : state.me?.scopes?.includes(scope) ?? false);

/** May this person look around? A link shows its own question, and nothing else. */
export const looks = () => may("read") && !state.me.question;

/** Does the store have this, such as forks or a fleet? What it lacks is not offered either. */
export const has = (feature) => !state.me?.lacks?.includes(feature);

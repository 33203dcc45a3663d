// Text that others wrote, made harmless to the eye: what cannot be seen, or moves what can, is shown as its number.

const SUSPECT = /[^\P{C}\n\t]|[\p{Zl}\p{Zp}\p{DI}\u2800]|(?<=\p{M}{4})\p{M}/gu;
const PLAIN = /^[\n\t -~\u00a1-\u00ac\u00ae-\u02ff\u2010-\u2027\u2030-\u205e\u2190-\u21ff\u2500-\u25ff]*$/;
const PICTURE = /\p{Extended_Pictographic}/u;

/** The text for people: control, bidirectional and invisible characters become marks such as ⟨U+202E⟩. */
export function shown(text) {
  text = String(text);
  if (PLAIN.test(text)) return text;
  return text.replace(SUSPECT, (found, at) => (ofPicture(text, found, at) ? found : mark(found)));
}

/** One line of it: breaks become marks too, because they would move what follows. */
export const line = (text) => shown(text).replace(/[\n\t]/g, mark);

/** A key, id or label: spaces become marks too, where they look like another one, like fewer or like none. One between words stays. */
export const distinct = (text) => line(text).replace(/^ +| +$|(?<= ) +|[^\P{Zs} ]/gu, (spaces) => [...spaces].map(mark).join(""));

function mark(character) {
  return `⟨U+${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`;
}

// An emoji is made of several characters, of which two kinds are invisible; alone, or twice, they are marked.
function ofPicture(text, found, at) {
  const before = text.slice(Math.max(at - 2, 0), at);
  if (found === "\ufe0f") return PICTURE.test(before) || /[0-9#*]$/.test(before);
  if (found !== "\u200d") return false;
  return (PICTURE.test(before) || before.endsWith("\ufe0f")) && PICTURE.test(text.slice(at + 1, at + 3));
}

/** Cut at the end. */
export const cut = (text, most) => (text.length > most ? `${whole(text.slice(0, most - 1))}…` : text);

/** Cut in the middle: the ends of ids are where they differ. */
export function middle(text, most) {
  if (text.length <= most) return text;
  const tail = Math.ceil((most - 1) / 2);
  return `${whole(text.slice(0, most - 1 - tail))}…${text.slice(-tail).replace(/^[\udc00-\udfff]/, "")}`;
}

const whole = (text) => text.replace(/[\ud800-\udbff]$/, ""); // no half character

/** Is this a run's id? Only such become links. */
export const isId = (text) => typeof text === "string" && /^[\w.:@-]{1,200}$/.test(text);

/** Does a name mix alphabets, so that it may pose as another? */
export function poses(name) {
  const scripts = [/\p{Script=Latin}/u, /\p{Script=Cyrillic}/u, /\p{Script=Greek}/u].filter((each) => each.test(name));
  return scripts.length > 1 || /[\uff01-\uff5e\u{1d400}-\u{1d7ff}]/u.test(name);
}

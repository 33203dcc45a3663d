// Moments and spans in words, as the command line says them. Ages are counted on the server's clock.

const MINUTE = 60_000;
const DAYS = ["Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

let ahead = 0; // of this computer's clock: what the server's adds
let stood = null; // the moment at which time stands, while the server does not answer
let utc = false;

/** The server's time now, in milliseconds since 1970; it stands while nothing can be known of the server. */
export const now = () => stood ?? Date.now() + ahead;

/** Learn the server's time from an answer that took `tookMs` and came `agoMs` ago: it was made half of the way before that. */
export function learn(serverNow, tookMs = 0, agoMs = 0) {
  const at = ms(serverNow);
  if (at !== null) ahead = at + tookMs / 2 + agoMs - Date.now();
}

/** Let time stand, so that nothing looks fresher than it is; or let it go on. */
export function stand(still) {
  stood = still ? (stood ?? Date.now() + ahead) : null;
}

/** Show times in UTC instead of where this computer is. */
export function inUtc(yes) {
  utc = yes;
}

/** A moment as milliseconds since 1970, from what the API says: a text, or milliseconds. */
export function ms(moment) {
  if (typeof moment === "number") return moment;
  const at = typeof moment === "string" ? Date.parse(moment) : NaN;
  return Number.isNaN(at) ? null : at;
}

/** A span for people: '3 ms', '1.2 s', '90 s', '4 min', '2 h 5 min', '3 days'. */
export function spoken(spanMs) {
  const seconds = Math.max(spanMs, 0) / 1000;
  if (seconds < 0.9995) return `${even(seconds * 1000)} ms`;
  if (seconds < 59.95) return `${tenths(seconds)} s`;
  if (seconds > 60.5 && seconds < 119.5) return `${even(seconds)} s`;
  const minutes = even(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 48 * 60) return minutes % 60 ? `${Math.floor(minutes / 60)} h ${minutes % 60} min` : `${minutes / 60} h`;
  return `${even(minutes / 1440)} days`;
}

// Python rounds a half to the even neighbour, so the page does too: the same span has the same words in both.
function even(number) {
  const below = Math.floor(number);
  const rest = number - below;
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below;
}
function tenths(number) {
  const quarter = number * 4; // exact; only quarters and three quarters can lie in the middle of two tenths
  return Number.isInteger(quarter) && quarter % 2 ? (even(number * 10) / 10).toFixed(1) : number.toFixed(1);
}

/** How long ago, or how long until. */
export const age = (moment) => spoken(now() - ms(moment));
export const left = (moment) => spoken(ms(moment) - now());

/** A wait that ends soon, counted in whole seconds. */
export const seconds = (spanMs) => (spanMs < 600_000 ? `${Math.max(Math.ceil(spanMs / 1000), 0)} s` : spoken(spanMs));

const two = (number) => String(number).padStart(2, "0");
function parts(moment) {
  const d = new Date(ms(moment));
  return utc
    ? [d.getUTCFullYear(), d.getUTCMonth(), d.getUTCDate(), d.getUTCDay(), d.getUTCHours(), d.getUTCMinutes(), d.getUTCSeconds(), d.getUTCMilliseconds()]
    : [d.getFullYear(), d.getMonth(), d.getDate(), d.getDay(), d.getHours(), d.getMinutes(), d.getSeconds(), d.getMilliseconds()];
}

/** A time of day: 14:02:41, or 14:02:41.200. */
export function clock(moment, thousandths = false) {
  const [, , , , hour, minute, second, rest] = parts(moment);
  return `${two(hour)}:${two(minute)}:${two(second)}${thousandths ? `.${String(rest).padStart(3, "0")}` : ""}`;
}

/** A time of day without seconds. */
export const minute = (moment) => clock(moment).slice(0, 5);

/** A day: Tue 14 Jul. */
export function day(moment) {
  const [, month, date, weekday] = parts(moment);
  return `${DAYS[weekday]} ${date} ${MONTHS[month]}`;
}

/** A moment as the command line writes it: 2026-07-14 14:02:41. */
export function moment(at) {
  const [year, month, date] = parts(at);
  return `${year}-${two(month + 1)}-${two(date)} ${clock(at)}`;
}

/** A moment, without the day if it is today. */
export function when(at) {
  const [date, time] = moment(at).split(" ");
  return moment(now()).startsWith(date) ? time : `${date} ${time}`;
}

/** The whole of a moment, with its zone: for titles. */
export function exact(at) {
  if (ms(at) === null) return "";
  if (utc) return `${moment(at)} UTC`;
  const minutes = -new Date(ms(at)).getTimezoneOffset();
  const zone = minutes ? `UTC${minutes < 0 ? "−" : "+"}${Math.floor(Math.abs(minutes) / 60)}${minutes % 60 ? `:${two(Math.abs(minutes) % 60)}` : ""}` : "UTC";
  return `${moment(at)} ${zone}`;
}

/** A text such as "30s", "2h", "1h30m" or "2 days" in milliseconds; null if it is none. */
export function span(text) {
  const units = { ms: 1, s: 1000, m: MINUTE, h: 60 * MINUTE, d: 1440 * MINUTE, w: 10080 * MINUTE };
  const words = { millisecond: "ms", sec: "s", second: "s", min: "m", minute: "m", hr: "h", hour: "h", day: "d", week: "w" };
  let total = 0;
  const rest = text.trim().toLowerCase().replace(/(\d+(?:\.\d+)?)\s*([a-z]+)[ ,]*/g, (_, number, word) => {
    const one = units[word] ?? units[words[word] ?? words[word.replace(/s$/, "")]];
    if (!one) return "?";
    total += Number(number) * one;
    return "";
  });
  return rest || !text.trim() ? null : total;
}

// Addresses: which view a URL means. Everything that can be chosen is in the URL, so every state is a link.

const ID = "([^/]+)";
const NAME = "(.+)"; // others than runs and questions may have a slash in their names
const VIEWS = [
  [/^$/, "home"],
  [/^runs$/, "runs"],
  [new RegExp(`^runs/${ID}$`), "run", ["id"]],
  [new RegExp(`^runs/${ID}/(conversation|journal|data|audit)$`), "run", ["id", "tab"]],
  [new RegExp(`^runs/${ID}/(streams)(?:/${NAME})?$`), "run", ["id", "tab", "stream"]],
  [new RegExp(`^approvals(?:/${ID})?$`), "approvals", ["id"]],
  [/^compare$/, "compare"],
  [new RegExp(`^fleet(?:/${NAME})?$`), "fleet", ["worker"]],
  [new RegExp(`^agents(?:/${NAME})?$`), "agents", ["name"]],
  [new RegExp(`^schedules(?:/${NAME})?$`), "schedules", ["name"]],
  [new RegExp(`^conversations(?:/${NAME})?$`), "conversations", ["id"]],
  [/^audit$/, "audit"],
  [/^sign-in$/, "sign-in"],
];

/** The view of a path, relative to where the page is mounted, and the names in it. */
export function viewOf(path) {
  for (const [pattern, view, names = []] of VIEWS) {
    const found = pattern.exec(path.replace(/\/$/, ""));
    if (!found) continue;
    try {
      return { view, params: Object.fromEntries(names.map((name, at) => [name, found[at + 1] === undefined ? null : decodeURIComponent(found[at + 1])])) };
    } catch {
      break; // a half escape
    }
  }
  return { view: "lost", params: {} };
}

/** The part of the bar that a view belongs to. */
export const PLACES = { runs: "runs", run: "runs", compare: "runs", approvals: "approvals", fleet: "fleet", agents: "agents", schedules: "agents" };

// Names of workers, short enough for a picture.

/** What people call a worker: the name that it was given, or the beginning of its id; with a few digits more if `beside` has that name too. */
export function worker(id, beside = null) {
  const [, name, digits] = /^(.+)-([0-9a-f]{12,16})$/.exec(id ?? "") ?? [];
  if (name) return beside?.startsWith(`${name}-`) ? `${name}-${digits.slice(0, 4)}` : name;
  return id && /^[0-9a-f]{16}$/.test(id) ? id.slice(0, 8) : id;
}

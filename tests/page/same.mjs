// Are two scripts the same program, on the same lines? Read pairs of them, and answer with the names of those that are not.
//
// Node has a parser within: `node --expose-internals same.mjs < [[name, one, other], ...]`.

import { createRequire } from "node:module";
import { text } from "node:stream/consumers";

const { parse } = createRequire(import.meta.url)("internal/deps/acorn/acorn/dist/acorn");
const COLUMNS = new Set(["start", "end", "column"]);

/** The tree of a script: what each part is and on which line it begins and ends. */
const tree = (script) => JSON.stringify(parse(script, { ecmaVersion: "latest", sourceType: "module", locations: true }), (key, value) =>
  COLUMNS.has(key) && typeof value === "number" ? undefined : typeof value === "bigint" || value instanceof RegExp ? String(value) : value);

const pairs = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(pairs.filter(([, one, other]) => tree(one) !== tree(other)).map(([name]) => name)));

// Schemas in words: what a JSON schema comes to, its type as people write it, and a value of it in a few words.

import { isNumber, write } from "./json.js";

/** Money that somebody decides about: every digit of it, as it is written. */
export const money = (usd) => String(usd).replace(/^-?/, (sign) => `${sign}$`);

/** A schema without detours: references and unions of one kind are followed, and what may be null says so. */
export function plain(schema, root, depth = 0) {
  if (schema === true || !schema) return {};
  if (schema.$ref && depth < 20) {
    const found = schema.$ref.split("/").slice(1).reduce((at, part) => at?.[decodeURIComponent(part).replace(/~1/g, "/").replace(/~0/g, "~")], root);
    const { $ref: _, ...rest } = schema;
    return plain({ ...(found ?? {}), ...rest }, root, depth + 1);
  }
  if (schema.allOf?.length === 1) return plain({ ...schema.allOf[0], ...schema, allOf: undefined }, root, depth + 1);
  const several = schema.anyOf ?? schema.oneOf;
  if (several) {
    const kinds = several.map((each) => plain(each, root, depth + 1));
    const rest = kinds.filter((each) => each.type !== "null");
    const { anyOf: _a, oneOf: _b, ...outer } = schema;
    if (rest.length === 1 && rest.length < kinds.length) return { ...rest[0], ...outer, nullable: true };
    const number = rest.find((each) => each.type === "number");
    if (number && rest.length === 2 && rest.some((each) => each.type === "string" && (each.format === "decimal" || each.pattern))) { // a Decimal of Python
      const own = schema["x-default"]?.$decimal;
      return { ...number, ...outer, ...(own && { default: own }), type: "decimal", nullable: rest.length < kinds.length };
    }
    if (rest.every((each) => "const" in each)) return { ...outer, enum: rest.map((each) => each.const), nullable: rest.length < kinds.length };
  }
  if (Array.isArray(schema.type)) {
    const rest = schema.type.filter((each) => each !== "null");
    if (rest.length === 1) return { ...schema, type: rest[0], nullable: schema.type.includes("null") };
  }
  return schema;
}

/** The type of a schema as people write it: 'list[str] = []'. */
export function typeOf(schema, root = schema) {
  const is = plain(schema, root);
  const base = is.enum ? is.enum.map((each) => write(each)).join(" | ") : is.type === "array" ? `list[${is.items ? typeOf(is.items, root) : "any"}]` :
    { string: { date: "date", "date-time": "datetime", time: "time", duration: "duration", uuid: "uuid" }[is.format] ?? "str", integer: "int", number: "float", decimal: "decimal", boolean: "bool", object: is.title ?? "object" }[is.type] ?? "any";
  return (is.nullable ? `${base} | None` : base) + ("default" in is ? ` = ${is.type === "decimal" ? is.default : write(is.default)}` : "");
}

/** Does a value have this name itself? */
export const has = (value, key) => value !== null && typeof value === "object" && Object.hasOwn(value, key);

const isPart = (value) => value !== null && typeof value === "object" && !isNumber(value);

/** What a value comes to in a few words, for a button: 'staff, code, 14 days'. Of one that has parts of parts only its title is said. */
export function brief(schema, value, most = 34) {
  const is = plain(schema ?? {}, schema ?? {});
  if (value == null) return "";
  if (typeof value === "string") return is.enum ? value : "";
  if (isNumber(value) || typeof value === "boolean") return String(value);
  if (Array.isArray(value) || !is.properties) return "";
  const deep = Object.values(value).some((each) => isPart(each) && (!Array.isArray(each) || each.some(isPart)));
  const said = Object.entries(is.properties).flatMap(([key, given]) => {
    const of = plain(given, schema);
    const now = has(value, key) ? value[key] : null;
    if ("const" in of || now == null) return [];
    if (typeof now === "string" && /^(title|name|subject)$/.test(key)) return [now];
    if (deep) return [];
    const word = key.replaceAll("_", " ");
    if (Array.isArray(now)) return now.length && now.every((each) => typeof each === "string") ? [now.join(", ")] : [];
    if (isNumber(now) || of.type === "decimal") return [key === "usd" ? money(now) : /s$/.test(word) ? `${now} ${word}` : `${word} ${now}`];
    if (typeof now === "boolean") return now ? [word] : [];
    return of.enum ? [now] : [];
  });
  const told = said.join(", ");
  return told.length <= most ? told : ""; // half of what is decided would say something else
}

// Harmless text: what cannot be seen is shown, what can be read is left as it is.
import assert from "node:assert/strict";
import test from "node:test";
import { cut, distinct, isId, line, middle, poses, shown } from "../../src/holdfast/http/static/js/text.js";

test("plain text, accents, other scripts and emoji stay", () => {
  for (const text of ["otters", "a\tb\nc", "Größe, naïve, łódź", "日本語", "السلام", "👩‍👩‍👧 ❤️ 1️⃣", "e\u0301", "→ 3 × 4 …"]) assert.equal(shown(text), text);
});

test("control, bidirectional and invisible characters become marks", () => {
  assert.equal(shown("a\u202eb"), "a⟨U+202E⟩b");
  assert.equal(shown("\u2066x\u2069"), "⟨U+2066⟩x⟨U+2069⟩");
  assert.equal(shown("a\u200bb\ufeffc\u00add"), "a⟨U+200B⟩b⟨U+FEFF⟩c⟨U+00AD⟩d");
  assert.equal(shown("\x1b[31m\x00\r"), "⟨U+001B⟩[31m⟨U+0000⟩⟨U+000D⟩");
  assert.equal(shown("a\u2028b\u2800c\u3164"), "a⟨U+2028⟩b⟨U+2800⟩c⟨U+3164⟩");
  assert.equal(shown("\u{e0041}"), "⟨U+E0041⟩");
  assert.equal(shown("\ud800"), "⟨U+D800⟩");
  assert.equal(shown("a\u200db\ufe0f"), "a⟨U+200D⟩b⟨U+FE0F⟩");
});

test("too many signs on one letter are marked, so that they do not reach into other lines", () => {
  assert.match(shown(`a${"\u0301".repeat(9)}`), /^a\u0301{4}⟨U\+0301⟩/);
});

test("a line has no breaks", () => {
  assert.equal(line("a\nb\tc"), "a⟨U+000A⟩b⟨U+0009⟩c");
});

test("spaces in an identifier that look like others are marked, and one between words is not", () => {
  for (const name of ["otters-2026", "night shift", "a b c", "größe", "日本語", ""]) assert.equal(distinct(name), name);
  assert.equal(distinct("pay  7"), "pay ⟨U+0020⟩7");
  assert.equal(distinct("pay   7"), "pay ⟨U+0020⟩⟨U+0020⟩7");
  assert.equal(distinct("pay 7 "), "pay 7⟨U+0020⟩");
  assert.equal(distinct("  pay 7"), "⟨U+0020⟩⟨U+0020⟩pay 7");
  assert.equal(distinct(" "), "⟨U+0020⟩");
  assert.equal(distinct("pay\u00a07"), "pay⟨U+00A0⟩7");
  assert.equal(distinct("pay \u20097\u3000"), "pay ⟨U+2009⟩7⟨U+3000⟩");
  assert.equal(distinct("a\n\tb\u202e"), "a⟨U+000A⟩⟨U+0009⟩b⟨U+202E⟩");
  assert.equal(distinct(distinct(" a  b ")), distinct(" a  b ")); // once more changes nothing
});

test("prose keeps its spaces", () => {
  for (const text of [" a  b ", "10\u00a0000 €", "a\n  b"]) assert.equal(shown(text), text);
});

test("texts are cut at the end, ids in the middle, and no character is halved", () => {
  assert.equal(cut("abcdef", 4), "abc…");
  assert.equal(middle("invoice-20260716-0031", 11), "invoi…-0031");
  assert.equal(middle("short", 11), "short");
  assert.equal(cut("ab😀d", 4), "ab…");
});

test("only an id of a run is one", () => {
  for (const id of ["otters-2026-07", "a.b:c@d_e", "x".repeat(200)]) assert.ok(isId(id));
  for (const id of ["", "a/b", "javascript:alert(1)//", "a b", "x".repeat(201), "ü", null]) assert.ok(!isId(id));
});

test("a name that mixes alphabets poses as another", () => {
  assert.ok(poses("аna"));
  assert.ok(poses("ａna"));
  assert.ok(!poses("ana"));
  assert.ok(!poses("Анна"));
});

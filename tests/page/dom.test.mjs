// Elements: what holds keys, ids and labels shows every space of them, and prose keeps its own.
import assert from "node:assert/strict";
import test from "node:test";

class Node {
  attributes = {};
  textContent = "";
  setAttribute(name, value) { this.attributes[name] = value; }
  append(each) { this.textContent += each instanceof Node ? each.textContent : each; }
}
globalThis.Node = Node;
globalThis.document = { createElement: () => new Node() };
const { h } = await import("../../src/holdfast/http/static/js/dom.js");

test("spaces by which two identifiers differ are seen in what holds identifiers", () => {
  for (const made of [h("span.mono", "pay  7"), h("code.mono.cut", ["pay  7"]), h("span", { class: "dim mono" }, "pay  7"), h("span.label", "pay  7")]) assert.equal(made.textContent, "pay ⟨U+0020⟩7");
  assert.equal(h("span.mono", { title: "pay 7 " }, "pay 7").attributes.title, "pay 7⟨U+0020⟩");
});

test("prose keeps its spaces, in an attribute too", () => {
  assert.equal(h("p", "Two  words, 10\u00a0000 €. ").textContent, "Two  words, 10\u00a0000 €. ");
  assert.equal(h("p", { title: "Two  words" }, h("b", " a  b ")).attributes.title, "Two  words");
});

import assert from "node:assert/strict";
import { test } from "node:test";
import { between, edge, lying, moved, path } from "../../src/holdfast/http/static/js/views/run/torn.js";

test("an edge is the same at every drawing, and another for another seed", () => {
  assert.deepEqual(edge(10, 0, 400, { seed: 22 }), edge(10, 0, 400, { seed: 22 }));
  assert.notDeepEqual(edge(10, 0, 400, { seed: 22 }), edge(10, 0, 400, { seed: 23 }));
});

test("a longer strip keeps the edge that it had", () => {
  const short = edge(10, 0, 200, { seed: 5 }), long = edge(10, 0, 900, { seed: 5 });
  assert.deepEqual(long.slice(0, short.length - 1), short.slice(0, -1));
});

test("an edge stays near its place, goes down, and ends at the bottom", () => {
  for (let seed = 0; seed < 200; seed += 1) {
    const points = edge(50, 3, 300, { seed });
    assert.ok(points.every(([x]) => Math.abs(x - 50) <= 4.4));
    assert.ok(points.every(([, y], nth) => nth === 0 || y > points[nth - 1][1]));
    assert.equal(points[points.length - 1][1], 300);
  }
});

test("the two halves would fit together", () => {
  const left = edge(10, 0, 100, { seed: 9 }), right = moved(left, 20);
  assert.ok(left.every(([x, y], nth) => Math.abs(right[nth][0] - x - 20) < 1e-9 && right[nth][1] === y));
});

test("paths are plain numbers", () => {
  assert.equal(path([[1, 2], [3.26, 4]]), "M1 2L3.3 4");
  assert.equal(between([[0, 0], [0, 9]], [[5, 0], [5, 9]]), "M0 0L0 9L5 9L5 0Z");
  assert.deepEqual(lying([[1, 2]]), [[2, 1]]);
});

// Decoders of a page against the ones in Python, on the same random scores.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const cases = JSON.parse(readFileSync(process.env.WEFT_CASES, "utf8"));
const load = (file) => import(`${cases.modules}/decode/${file}`);
const { marginals, viterbi } = await load("chain.js");
const { bestTree } = await load("cky.js");
const { bestHeads } = await load("mst.js");
const { windowSpan } = await load("spans.js");

const number = (value) => (value === null ? -Infinity : value); // JSON has no infinity
const near = (ours, theirs) =>
  assert.ok(Math.abs(ours - theirs) <= 1e-4 * Math.max(1, Math.abs(theirs)), `${ours} for ${theirs}`);

test("trees of heads", () => {
  for (const { scores, search, heads } of cases.heads) {
    assert.deepEqual(bestHeads(scores.map((row) => row.map(number)), search), heads);
  }
});

test("trees of brackets", () => {
  for (const { scores, size, spans } of cases.brackets) {
    const flat = (start, end) => start * size - (start * (start - 1)) / 2 - start - 1 + end;
    assert.deepEqual(bestTree((start, end) => scores[flat(start, end)], size), spans);
  }
});

test("chains of tags", () => {
  for (const { logits, chain, path, probs } of cases.chains) {
    const table = {
      start: Float64Array.from(chain.start.map(number)),
      end: Float64Array.from(chain.end.map(number)),
      transitions: Float64Array.from(chain.transitions.flat().map(number)),
    };
    const rows = logits.map((row) => Float64Array.from(row));
    assert.deepEqual(viterbi(rows, table), path);
    marginals(rows, table).forEach((row, t) => row.forEach((prob, k) => near(prob, probs[t][k])));
  }
});

test("spans of answers", () => {
  for (const { starts, ends, longest, best } of cases.spans) {
    const found = windowSpan(Float32Array.from(starts), Float32Array.from(ends), longest);
    assert.deepEqual([found.first, found.last], best.slice(0, 2));
    [found.score, found.nothing, found.all].forEach((value, i) => near(value, best[i + 2]));
  }
});

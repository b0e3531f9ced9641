// Tokenizers of a page against what the `tokenizers` library gave for the same lines.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const { modules, lines, cases } = JSON.parse(readFileSync(process.env.WEFT_CASES, "utf8"));
const { Tokenizer } = await import(`${modules}/tokens/tokenizer.js`);

for (const { name, settings, raw, aligned, decoded } of cases) {
  test(`${name}: ids, offsets and words of ${lines.length} lines`, () => {
    const tokenizer = new Tokenizer(settings);
    lines.forEach((line, i) => {
      assert.deepEqual(tokenizer.encodeRaw(line), raw[i], `raw: ${JSON.stringify(line)}`);
      assert.deepEqual(tokenizer.encode(line), aligned[i], `aligned: ${JSON.stringify(line)}`);
      assert.equal(tokenizer.decode(raw[i].ids), decoded[i], `decoded: ${JSON.stringify(line)}`);
    });
  });
}

// Answers of a page against those of Python, for the same model files.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

const TOLERANCE = 1e-4;
const { modules, runtime, cases } = JSON.parse(readFileSync(process.env.WEFT_CASES, "utf8"));
const { Predictor } = await import(`${modules}/predictor.js`);
if (runtime) await import(runtime);
const { unpack } = await import(`${modules}/files.js`);

function close(ours, theirs, where) {
  if (typeof theirs === "number") {
    const gap = Math.abs(ours - theirs);
    assert.ok(gap <= TOLERANCE * Math.max(1, Math.abs(theirs)), `${where}: ${ours} for ${theirs}`);
  } else if (theirs !== null && typeof theirs === "object") {
    assert.equal(Object.keys(ours).length, Object.keys(theirs).length, where);
    for (const key of Object.keys(theirs)) close(ours[key], theirs[key], `${where}.${key}`);
  } else {
    assert.equal(ours, theirs, where);
  }
}

for (const { name, page, inputs, answers, generated } of cases) {
  test(`${name}: ${inputs.length} answers`, async () => {
    const html = readFileSync(page, "utf8");
    const files = new Map();
    for (const [, file, packed] of html.matchAll(/data-file="([^"]+)">([^<]*)</g)) {
      files.set(file, await unpack(packed));
    }
    const about = JSON.parse(new TextDecoder().decode(files.get("about.json")));
    const model = await Predictor.load(files, about);
    for (const [i, input] of inputs.entries()) {
      const { value, score, coverage, probs } = await model.answer(input);
      const ours = { value, score, coverage: answers[i].coverage === null ? null : coverage };
      ours.scores = Array.from(probs ?? []);
      close(ours, answers[i], JSON.stringify(input));
    }
    const write = async ({ prompt, settings, text }) => {
      let last = "";
      for await (const step of model.generate(prompt, settings)) last = step.text;
      assert.equal(last.trim(), text.trim(), prompt);
    };
    for (const one of generated) await write(one);
    // All at once, as when somebody types while a table is filled.
    await Promise.all([...generated.map(write), ...inputs.slice(0, 5).map((input) => model.answer(input))]);
  });
}

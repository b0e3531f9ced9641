// Logits of words as tags: the most probable of each word, or Viterbi under a CRF.

import { argmax, marginals, viterbi } from "./chain.js";
import { softmax } from "./probabilities.js";

/** Return the CRF of each column that has one, by its number. */
export function readChains(tables) {
  const out = new Map();
  for (const name of Object.keys(tables)) {
    const found = /^column\.(\d+)\.transitions$/.exec(name);
    if (!found) continue;
    const part = (last) => Float64Array.from(tables[`column.${found[1]}.${last}`].data);
    out.set(Number(found[1]), { start: part("start"), end: part("end"), transitions: part("transitions") });
  }
  return out;
}

/** Return {table, probs}: for each word the tag of each column, and its probability. */
export function decodeTags(outputs, chains, columns) {
  const found = Array.from({ length: columns }, (_, k) => {
    const { data, dims } = outputs[`logits_${k}`];
    const [, steps, size] = dims;
    const logits = Array.from({ length: steps }, (_, t) => data.subarray(t * size, (t + 1) * size));
    const chain = chains.get(k);
    const all = chain ? marginals(logits, chain) : logits.map((row) => softmax(row));
    const path = chain ? viterbi(logits, chain) : logits.map(argmax);
    return { path, probs: path.map((tag, t) => Math.fround(all[t][tag])) };
  });
  const steps = found.length ? found[0].path : [];
  return {
    table: steps.map((_, t) => found.map(({ path }) => path[t])),
    probs: steps.map((_, t) => found.map(({ probs }) => probs[t])),
  };
}

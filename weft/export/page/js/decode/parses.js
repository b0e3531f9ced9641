// The outputs of parsers: heads with relations, and labelled spans.

import { argmax } from "./chain.js";
import { bestTree } from "./cky.js";
import { bestHeads } from "./mst.js";
import { softmax } from "./probabilities.js";
import { decodeTags } from "./tags.js";

const row = ({ data, dims }, i) => data.subarray(i * dims.at(-1), (i + 1) * dims.at(-1));

/** Return {table, probs}: head, relation and tags of each word. */
export function decodeArcs(outputs, tables, chains, gives) {
  const [, words] = outputs.arcs.dims;
  const scores = Array.from({ length: words }, (_, t) => Array.from(row(outputs.arcs, t)));
  const heads = bestHeads(scores, gives.search);
  const tags = decodeTags(outputs, chains, gives.columns);
  const table = [], probs = [];
  heads.forEach((head, t) => {
    const relations = softmax(
      relationScores(row(outputs.label_words, t), row(outputs.label_heads, head), tables.label, head, gives.root),
    );
    const best = argmax(relations);
    const sure = Math.fround(softmax(scores[t])[head] * relations[best]);
    table.push([head, best, ...(tags.table[t] ?? [])]);
    probs.push([sure, ...(tags.probs[t] ?? [])]);
  });
  return { table, probs };
}

/** Return the biaffine score of every relation between a word and its head. */
function relationScores(word, head, { data, shape }, chosen, root) {
  const [labels, height, width] = shape;
  return Float64Array.from({ length: labels }, (_, label) => {
    // The relation of the root is for the child of the root, and for no other word.
    if (root !== null && labels > 1 && (label === root) !== (chosen === 0)) return -Infinity;
    let sum = 0;
    for (let i = 0; i < height; i++) {
      const left = i < word.length ? word[i] : 1;
      const at = (label * height + i) * width;
      for (let j = 0; j < width; j++) sum += left * data[at + j] * (j < head.length ? head[j] : 1);
    }
    return sum;
  });
}

/** Return {table, probs, spans}: the tag of each word, and [label, start, end] of constituents. */
export function decodeBrackets(outputs, tables, chains, gives) {
  const tags = decodeTags(outputs, chains, gives.columns);
  const size = tags.table.length;
  const gaps = Array.from({ length: size + 1 }, (_, i) => row(outputs.gaps, i));
  const labels = new Map();
  const score = (start, end) => {
    const scores = spanScores(gaps[end].map((value, k) => value - gaps[start][k]), tables, gives.epsilon);
    const best = argmax(scores);
    const whole = start === 0 && end === size && size > 1; // must be a constituent
    const none = !whole && !(scores[best] >= 0);
    if (!none) labels.set(start * (size + 1) + end, best);
    return none ? 0 : scores[best];
  };
  const spans = bestTree(score, size).flatMap(([start, end]) => {
    const label = labels.get(start * (size + 1) + end);
    return label === undefined ? [] : [[label, start, end]];
  });
  return { ...tags, spans };
}

function spanScores(span, tables, epsilon) {
  const x = Float64Array.from(span, (value, k) => value + tables["span.bias"].data[k]);
  const mean = x.reduce((a, b) => a + b, 0) / x.length;
  const centred = x.map((value) => value - mean);
  const norm = Math.sqrt(centred.reduce((sum, value) => sum + value * value, 0) / x.length + epsilon);
  const [weight, bias] = [tables["span.norm.weight"].data, tables["span.norm.bias"].data];
  const hidden = centred.map((value, k) => Math.max((value / norm) * weight[k] + bias[k], 0));
  const { data, shape } = tables["span.weight"];
  return Float64Array.from(tables["span.label_bias"].data, (start, label) => {
    let sum = start;
    for (let k = 0; k < shape[1]; k++) sum += hidden[k] * data[label * shape[1] + k];
    return sum;
  });
}

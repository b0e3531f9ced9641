// Logits of a text as a label, several labels, or a path in a tree of labels.

import { argmax } from "../decode/chain.js";
import { sigmoid, softmax } from "../decode/probabilities.js";

/** Return the function from logits to an answer, by the content of labels.json. */
export function classifier(settings, space) {
  const { entries, threshold, scale = 1, separator = "", positive = "" } = space;
  if (settings.multi_label) {
    return (logits) => labelSet(sigmoid(logits, scale), entries, threshold);
  }
  const outOfScope = space.out_of_scope ?? "";
  const answers = outOfScope && !entries.includes(outOfScope) ? [...entries, outOfScope] : entries;
  const outside = outOfScope ? answers.indexOf(outOfScope) : -1;
  const tree = separator ? answers.map((entry) => pathTo(entry, separator)) : null;
  return (logits) => {
    const probs = softmax(logits, scale);
    const [best, score] = decide(probs, { entries, threshold, positive, outside, space });
    const answer = { value: answers[best], score, probs, labels: entries };
    return tree ? { ...answer, ...treeProbs(tree, best, probs, answer) } : answer;
  };
}

function labelSet(probs, entries, threshold) {
  const order = Array.from(probs, (_, i) => i).sort((a, b) => probs[b] - probs[a] || a - b);
  const score = probs.reduce((whole, prob) => whole * (prob >= threshold ? prob : 1 - prob), 1);
  const value = order.filter((i) => probs[i] >= threshold).map((i) => entries[i]);
  return { value, score, probs, labels: entries, threshold };
}

/** Return the number of the answer and its confidence. */
function decide(probs, { entries, threshold, positive, outside, space }) {
  if (positive) {
    const index = entries.indexOf(positive);
    const best = probs[index] >= threshold ? index : 1 - index;
    return [best, probs[best]];
  }
  const best = argmax(probs);
  if (outside < 0) return [best, probs[best]];
  const inScope = probs.reduce((top, prob, i) => (i === outside ? top : Math.max(top, prob)), 0);
  const rejected = best === outside || inScope <= (space.rejection ?? 0);
  return rejected ? [outside, 1 - inScope] : [best, probs[best]];
}

const pathTo = (label, separator) =>
  label.split(separator).map((_, i, levels) => levels.slice(0, i + 1).join(separator));

/** Return the probability of every level of the answer, and of all nodes of the tree. */
function treeProbs(tree, best, probs, { value, score }) {
  const nodes = new Map();
  tree.slice(0, probs.length).forEach((path, i) => {
    for (const node of path) nodes.set(node, (nodes.get(node) ?? 0) + probs[i]);
  });
  const path =
    best < probs.length
      ? tree[best].map((node) => [node, Math.min(1, nodes.get(node))])
      : [[value, score]];
  return { path, nodes: [...nodes] };
}

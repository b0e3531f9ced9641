// Parses as answers: arcs, or a tree of constituents in brackets.

import { geometricMean } from "./tag.js";

const UNARY = "+"; // joins the labels of a chain of single children
const ESCAPES = {
  "(": "-LRB-", ")": "-RRB-", "[": "-LSB-", "]": "-RSB-", "{": "-LCB-", "}": "-RCB-",
};

export function arcsAnswer(space, { words, places, table, probs }) {
  const heads = table.map(([head]) => head);
  const relations = table.map((row) => space.entries[0][row[1]]);
  const names = space.names.slice(1);
  const tags = table.map((row) => names.map((_, k) => space.entries[k + 1][row[k + 2]]));
  const value = words.map((text, i) => ({
    text,
    start: places[i][0],
    end: places[i][1],
    head: heads[i],
    relation: relations[i],
    ...Object.fromEntries(names.map((name, k) => [name, tags[i][k]])),
  }));
  const shown = names.length ? tags.map((row) => row.join(" ")) : [];
  return {
    value,
    score: geometricMean(probs.flat()),
    probs: probs.flat(),
    structure: { kind: "arcs", words, places, heads, relations, tags: shown },
  };
}

export function bracketsAnswer(space, { words, places, table, probs, spans }) {
  if (!words.length) return { value: "", score: 1, probs: [], structure: { kind: "constituents", words, tags: [] } };
  const tags = table.map(([tag]) => space.entries[1][tag]);
  const named = spans.map(([label, start, end]) => [space.entries[0][label], start, end]);
  const tree = buildTree(named, words, tags);
  return {
    value: format(tree),
    score: geometricMean(probs.flat()),
    probs: probs.flat(),
    structure: { kind: "constituents", words, places, tags, tree },
  };
}

/** Return the tree of spans [label, start, end] over words and tags. */
function buildTree(spans, words, tags) {
  const order = [...spans].sort((a, b) => a[1] - b[1] || b[2] - a[2]);
  const whole = order.length && order[0][1] === 0 && order[0][2] === words.length;
  if (!whole && words.length > 1) order.unshift(["", 0, words.length]);
  const root = { children: [] };
  const stack = [{ end: Infinity, children: root.children }];
  let next = 0;
  words.forEach((word, at) => {
    for (; next < order.length && order[next][1] === at; next++) {
      const [label, , end] = order[next];
      // A chain of single children is one label: S+VP.
      const chain = label.split(UNARY).map((own) => ({ label: unescape(own), children: [] }));
      chain.slice(1).forEach((node, i) => chain[i].children.push(node));
      stack.at(-1).children.push(chain[0]);
      stack.push({ end, children: chain.at(-1).children });
    }
    stack.at(-1).children.push({ label: tags[at], word, children: [] });
    while (stack.at(-1).end === at + 1) stack.pop();
  });
  return root.children[0];
}

const unescape = (label) => label.replaceAll("%2B", UNARY).replaceAll("%25", "%");

function format({ label, word, children }) {
  if (!children.length) return `(${label} ${word.replace(/[()[\]{}]/g, (mark) => ESCAPES[mark])})`;
  return `(${[label, ...children.map(format)].join(" ")})`;
}

// What the models learn: generated texts, or lines that the reader pastes.

import { MAX_TOKENS, randomNumbers } from "./models.js";

export const TASKS = {
  order: {
    name: "Word order decides",
    claim: "Every text has one “ada” and one “ben” among other words. Which comes first?",
    labels: ["ada first", "ben first"],
    words: ["ada", "ben", "the", "a", "and", "saw", "then", "so", "oh", "by"],
    create(random, length) {
      const label = random.below(2), last = 1 + random.below(length - 1);
      const ids = Array.from({length}, () => 2 + random.below(8));
      ids[random.below(last)] = label;
      ids[last] = 1 - label;
      return {ids, label};
    },
  },
  count: {
    name: "aⁿbⁿ: count and compare",
    claim: "“Yes” if the text is some a's and then as many b's. “No” texts have one or two letters too few or too many, or two letters swapped.",
    labels: ["no", "yes"],
    words: ["a", "b"],
    create(random, length) {
      const half = Math.max(2, length >> 1), n = 2 + random.below(half - 1), label = random.below(2);
      let m = n;
      if (label === 0 && random.below(2)) {
        m += (1 + random.below(2)) * (random.below(2) ? 1 : -1);
        if (m < 1) m = n + 1;
      }
      const ids = [...Array(n).fill(0), ...Array(m).fill(1)];
      if (label === 0 && m === n) {
        const i = random.below(n), j = n + random.below(n);
        ids[i] = 1;
        ids[j] = 0;
      }
      return {ids, label};
    },
  },
  recall: {
    name: "Recall over a distance",
    claim: "The first word is the label. All the others distract.",
    labels: ["red", "green", "blue", "gold"],
    words: ["red", "green", "blue", "gold"],
    create(random, length) {
      const ids = Array.from({length}, () => random.below(4));
      return {ids, label: ids[0]};
    },
  },
  own: {name: "Your own lines", claim: "One text a line: label, tab, text. Every fifth line is kept for testing."},
};

// Forty sentences whose label changes with "not": the sum of the words does not give it away.
export const SAMPLE_LINES = sampleLines();

function sampleLines() {
  const adjectives = [["good", "warm", "funny", "clever"], ["bad", "dull", "boring", "weak"]], lines = [];
  ["film", "story", "cast", "music", "end"].forEach((thing, t) => {
    for (let i = 0; i < 4; i++) {
      const negated = (t + i) % 2;
      adjectives.forEach((words, kind) => {
        const label = kind === negated ? "good" : "bad";
        lines.push(`${label}\tthe ${thing} is ${negated ? "not " : ""}${words[i]}`);
      });
    }
  });
  return lines.join("\n");
}

const MAX_LINES = 2000, MAX_LABELS = 20, MAX_LINE_CHARS = 2000;
const UNKNOWN = "unknown word";

export const tokenize = (text) => text.toLowerCase().match(/[\p{L}\p{M}\p{N}]+(?:['’][\p{L}]+)*|[^\s]/gu) || [];

// Lines of label, tab, text as a task. Errors name the line and the fix.
export function parseLines(text) {
  const labels = [], words = [UNKNOWN], index = new Map([[UNKNOWN, 0]]), rows = [];
  const lines = text.split(/\r\n?|\n/);
  lines.forEach((line, i) => {
    if (!line.trim()) return;
    if (rows.length >= MAX_LINES) throw new Error(`More than ${MAX_LINES} lines; paste fewer.`);
    if (line.length > MAX_LINE_CHARS) throw new Error(`Line ${i + 1} has over ${MAX_LINE_CHARS} characters; shorten it.`);
    const tab = line.indexOf("\t");
    const [label, rest] = tab < 0 ? ["", ""] : [line.slice(0, tab).trim(), line.slice(tab + 1)];
    const tokens = tokenize(rest).slice(0, MAX_TOKENS);
    if (!label || !tokens.length) {
      throw new Error(`Line ${i + 1} should be a label, a tab and a text.`);
    }
    if (!labels.includes(label)) labels.push(label);
    if (labels.length > MAX_LABELS) throw new Error(`More than ${MAX_LABELS} labels; is the label before the tab?`);
    rows.push({tokens, label: labels.indexOf(label)});
  });
  if (labels.length < 2) throw new Error("Lines need two different labels at least.");
  const kept = (i) => rows.length >= 10 && i % 5 === 4;
  rows.forEach(({tokens}, i) => {
    if (!kept(i)) {
      for (const token of tokens) {
        if (!index.has(token)) {
          index.set(token, words.length);
          words.push(token);
        }
      }
    }
  });
  const examples = rows.map(({tokens, label}) =>
    ({ids: tokens.map((token) => index.get(token) ?? 0), tokens, label}));
  return {
    labels, words,
    train: examples.filter((_, i) => !kept(i)),
    test: examples.filter((_, i) => kept(i)),
  };
}

// A stream of training batches and a fixed set of test texts.
export function openTask({task, length, seed, lines}) {
  const random = randomNumbers(seed + 7919), others = randomNumbers(104729);
  if (task === "own") {
    const {labels, words, train, test} = parseLines(lines);
    return {
      labels, words, test: test.length ? test : train,
      tested: test.length ? "the lines kept for testing" : "the training lines",
      nextBatch: (size) => Array.from({length: size}, () => train[random.below(train.length)]),
    };
  }
  const {labels, words, create} = TASKS[task];
  return {
    labels, words, tested: "new texts",
    test: Array.from({length: 100}, () => create(others, length)),
    nextBatch: (size) => Array.from({length: size}, () => create(random, length)),
  };
}

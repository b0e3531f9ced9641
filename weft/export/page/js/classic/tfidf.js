// TF-IDF and a linear model.

import { parseJson, readTensors } from "../files.js";
import { split, tokenMatches, tokens } from "../pytext.js";
import { roundHalfEven } from "../truncate.js";

const OVERLAP_STEPS = 20; // features of a full overlap of two texts

class Grams {
  constructor(terms, idf, inWords, [low, high], { lowercase, sublinear }) {
    this.index = new Map(terms.map((term, i) => [term, i]));
    this.idf = idf;
    this.inWords = inWords;
    this.low = low;
    this.high = high;
    this.lowercase = lowercase;
    this.sublinear = sublinear;
  }

  lower(text) {
    return this.lowercase ? text.toLowerCase() : text;
  }

  grams(text) {
    const cut = this.inWords ? wordGrams : characterGrams;
    return cut(this.lower(text), this.low, this.high);
  }

  /** Return [column, value] of the known n-grams; the squares of the values sum to 1. */
  row(text) {
    const counts = new Map();
    for (const gram of this.grams(text)) {
      const column = this.index.get(gram);
      if (column !== undefined) counts.set(column, (counts.get(column) ?? 0) + 1);
    }
    const row = Array.from(counts, ([column, count]) => [
      column,
      (this.sublinear ? 1 + Math.log(count) : count) * this.idf[column],
    ]);
    const length = Math.sqrt(row.reduce((sum, [, value]) => sum + value * value, 0));
    return row.map(([column, value]) => [column, Math.fround(value / length)]);
  }

  /** Return whether a known n-gram covers each of the tokens of a text. */
  covers(text) {
    if (!this.inWords || this.low === 1) {
      return tokens(text).map((word) => this.grams(word).some((gram) => this.index.has(gram)));
    }
    const words = tokenMatches(this.lower(text)).map(([word]) => word);
    const known = words.map(() => false);
    for (let n = this.low; n <= Math.min(this.high, words.length); n++) {
      for (let i = 0; i + n <= words.length; i++) {
        if (this.index.has(words.slice(i, i + n).join(" "))) known.fill(true, i, i + n);
      }
    }
    return known;
  }
}

export class TfIdf {
  constructor(settings, files) {
    const terms = parseJson(files.get("vocabulary.json"));
    const arrays = readTensors(files.get("weights.safetensors"));
    const pairs = settings.kind === "tfidf-pair";
    const span = (sizes) => [sizes[0], sizes.at(-1)];
    this.families = Object.keys(terms).map((name) => {
      const inWords = name !== "characters";
      const long = name === "words" || name === "first" || name === "second";
      const sizes = inWords ? (long ? span(settings.words) : [1, 1]) : span(settings.characters);
      const grams = new Grams(terms[name], arrays[`idf.${name}`].data, inWords, sizes, settings);
      return [name, grams];
    });
    this.pairs = pairs;
    this.weights = arrays.weights;
    this.bias = arrays.bias.data;
  }

  /** Return the logits of a text, or of [text, other]. */
  logits(input) {
    const width = this.weights.shape[1];
    const out = new Float64Array(this.bias.length);
    const first = this.bias.length - width; // of two classes, only the second has weights
    let start = 0;
    for (const [name, grams] of this.families) {
      const text = this.pairs ? pairView(name, ...input) : input;
      for (const [column, value] of grams.row(text)) {
        const at = (start + column) * width;
        for (let k = 0; k < width; k++) out[first + k] += value * this.weights.data[at + k];
      }
      start += grams.index.size;
    }
    return out.map((value, k) => value + this.bias[k]);
  }

  /** Return the fraction of the words that a known n-gram covers; null for pairs. */
  coverage(text) {
    if (this.pairs) return null;
    const covers = this.families.map(([, grams]) => grams.covers(text));
    const size = tokens(text).length;
    const known = Array.from({ length: size }, (_, i) => covers.some((row) => row[i]));
    return size ? known.filter(Boolean).length / size : 0;
  }
}

function wordGrams(text, low, high) {
  const words = tokens(text);
  const out = low === 1 ? [...words] : [];
  for (let n = Math.max(low, 2); n <= Math.min(high, words.length); n++) {
    for (let i = 0; i + n <= words.length; i++) out.push(words.slice(i, i + n).join(" "));
  }
  return out;
}

function characterGrams(text, low, high) {
  const out = [];
  for (const word of split(text)) {
    const chars = [" ", ...word, " "];
    for (let n = low; n <= high; n++) {
      for (let i = 0; i < Math.max(1, chars.length - n + 1); i++) {
        out.push(chars.slice(i, i + n).join(""));
      }
      if (n >= chars.length) break; // the whole word is counted once
    }
  }
  return out;
}

/** Return the words of a pair that one feature family counts. */
function pairView(family, first, second) {
  if (family === "first") return first;
  if (family === "second") return second;
  const [one, two] = [first, second].map((text) => tokens(text.toLowerCase()));
  if (family === "overlap") return overlap(one, two).join(" ");
  const [left, right] = [new Set(one), new Set(two)];
  if (family === "missing") return one.filter((word) => !right.has(word)).join(" ");
  const shared = family === "shared";
  return two.filter((word) => left.has(word) === shared).join(" ");
}

/** Return a staircase of features for each overlap and for the difference in length. */
function overlap(one, two) {
  const runs = (words) => new Set(words.slice(1).map((word, i) => `${words[i]} ${word}`));
  const [left, right, leftRuns, rightRuns] = [new Set(one), new Set(two), runs(one), runs(two)];
  const common = (a, b) => [...a].filter((item) => b.has(item)).length;
  const fraction = (part, whole) => (whole ? part / whole : 0);
  const shared = common(left, right);
  const sharedRuns = common(leftRuns, rightRuns);
  const longest = Math.max(one.length, two.length, 1);
  const heights = {
    words: fraction(shared, left.size + right.size - shared),
    inside: fraction(shared, right.size),
    covered: fraction(shared, left.size),
    runs: fraction(sharedRuns, leftRuns.size + rightRuns.size - sharedRuns),
    longer: Math.max(two.length - one.length, 0) / longest,
    shorter: Math.max(one.length - two.length, 0) / longest,
  };
  return Object.entries(heights).flatMap(([name, height]) =>
    Array.from({ length: roundHalfEven(OVERLAP_STEPS * height) + 1 }, (_, i) => `${name}${i}`),
  );
}

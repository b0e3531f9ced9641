// A model of any kind: texts in, answers out.

import { classicEngine } from "./classic/engine.js";
import { generate } from "./decode/generate.js";
import { decodeText, parseJson } from "./files.js";
import { neuralEngine } from "./neural/engine.js";
import { wordSplitter } from "./words.js";

const SPECIALS = ["<pad>", "<unk>", "<bos>", "<cls>", "<sep>", "<mask>"];
const PAIRS = new Set(["pair-classify", "pair-score", "span"]);
const TOLERANCE = 1e-3; // how far a probability may be from the recorded one
const MAX_GROUPS = 400; // groups of words left out by turns; in a longer text, neighbours together

export class Predictor {
  /** `files` maps names to bytes; `about` is what the page says of the model. */
  static async load(files, about) {
    const info = parseJson(files.get("export.json"));
    const { config } = info;
    const space = files.has("labels.json") ? parseJson(files.get("labels.json")) : {};
    const splitWords = wordSplitter(about.words);
    const engine = config.classic
      ? classicEngine({ config, files, space, splitWords })
      : await neuralEngine({ info, files, space, splitWords });
    const model = new Predictor(engine, config, space, about);
    if (files.has("golden.jsonl")) await model.replay(decodeText(files.get("golden.jsonl")));
    return model;
  }

  constructor(engine, config, space, about) {
    this.engine = engine;
    this.config = config;
    this.space = space;
    this.about = about;
    this.task = config.task.kind;
    this.explainWords = wordSplitter(about.words);
    this.vectors = new Map(); // of the sentences that are searched
  }

  /** True if its inputs are pairs of texts. */
  get pairs() {
    return PAIRS.has(this.task);
  }

  /** True if it continues or rewrites a text. */
  get generates() {
    return Boolean(this.engine.continuation);
  }

  /** True if what it generates follows the text, rather than answering it. */
  get continues() {
    return this.task === "language";
  }

  /** Compare the answers to those that were recorded when the model was saved. */
  async replay(lines) {
    for (const line of lines.split("\n").filter(Boolean)) {
      const { text, other, value, scores } = JSON.parse(line);
      const answer = await this.answer(other === undefined ? [text] : [text, other]);
      const probs = Array.from(answer.probs ?? []);
      const drift = probs.reduce((most, prob, i) => Math.max(most, Math.abs(prob - scores[i])), 0);
      if (probs.length !== scores.length || !(drift <= TOLERANCE) || !agree(answer.value, value)) {
        throw new Error(
          "The answers of this browser differ from those recorded when the model was saved. " +
            "Use another browser, or update this one.",
        );
      }
    }
  }

  /** True if it finds the sentences that are nearest to a text: the second input, one a line. */
  get searches() {
    return this.task === "embed";
  }

  /** Return the answer to [text] or [text, other]. */
  answer(inputs) {
    return this.searches && inputs.length > 1 ? this.search(...inputs) : this.engine.answer(inputs);
  }

  /** Return the vector of a text, and the lines nearest to it with their cosines. */
  async search(text, lines) {
    const wanted = [...new Set(lines.split(/\r?\n/).filter((line) => line.trim()))];
    const known = new Map(this.vectors);
    this.vectors = new Map();
    for (const line of wanted) {
      this.vectors.set(line, known.get(line) ?? (await this.engine.answer([line])).vector);
    }
    const answer = await this.engine.answer([text]);
    const nearest = wanted
      .map((line) => [line, cosine(answer.vector, this.vectors.get(line))])
      .sort((a, b) => b[1] - a[1]);
    return { ...answer, nearest, value: nearest[0]?.[0] ?? null, score: nearest[0]?.[1] ?? 0 };
  }

  /** Yield {text, probability}, the text so far, while a prompt is continued. */
  async *generate(prompt, changes = {}) {
    const { continuation } = this.engine;
    const { tokenizer, end } = continuation;
    const known = SPECIALS.map((entry) => tokenizer.ids.get(entry));
    const forbidden = known.filter((id) => id !== undefined && id !== end);
    if (continuation.begin !== undefined) forbidden.push(continuation.begin);
    if (continuation.endless) forbidden.push(end);
    const settings = { ...this.config.generate, ...changes };
    const before = this.continues ? tokenizer.encode(prompt).ids : []; // an answer begins anew
    const state = await continuation.start(prompt);
    const shown = tokenizer.decode(before);
    const ids = [];
    for await (const { id, probability } of generate(continuation, state, settings, { end, forbidden })) {
      if (id !== end) ids.push(id);
      const text = tokenizer.decode([...before, ...ids].filter((one) => one < tokenizer.entries.length));
      yield { text: text.slice(shown.length), probability, id };
    }
  }

  /** True if the score of an answer falls when a word that matters is left out. */
  get explains() {
    return ["classify", "regress", "pair-classify", "pair-score"].includes(this.task);
  }

  /** Return [start, end, fall of the score] of each word of the text number `which`. */
  async explain(inputs, which, answer, onProgress = () => {}) {
    const text = inputs[which];
    const words = this.explainWords(text);
    const score = supportOf(answer);
    const before = score(answer);
    const size = Math.max(1, Math.ceil(words.length / MAX_GROUPS));
    const out = [];
    for (let i = 0; i < words.length; i += size) {
      const kept = [...words.slice(0, i), ...words.slice(i + size)];
      const changed = inputs.map((one, k) => (k === which ? joinSpans(text, kept) : one));
      const fall = before - score(await this.answer(changed));
      const group = words.slice(i, i + size);
      out.push(...group.map(([start, end]) => [start, end, fall / group.length]));
      onProgress(out.length / words.length);
    }
    return out;
  }
}

/** Return the cosine of the angle between two vectors; 0 if one is zero. */
function cosine(a, b) {
  const dot = (x, y) => x.reduce((sum, value, i) => sum + value * y[i], 0);
  return dot(a, b) / (Math.sqrt(dot(a, a) * dot(b, b)) || 1);
}

/** Return true if two values are equal, numbers up to rounding. */
function agree(ours, recorded) {
  if (typeof recorded === "number") {
    return Math.abs(ours - recorded) <= TOLERANCE * Math.max(1, Math.abs(recorded));
  }
  if (recorded === null || typeof recorded !== "object") return ours === recorded;
  const names = Object.keys(recorded);
  return names.length === Object.keys(ours).length && names.every((name) => agree(ours[name], recorded[name]));
}

/** Return the function from an answer to its support for the value of this one. */
function supportOf(answer) {
  if (!answer.labels) return ({ score }) => score;
  const values = Array.isArray(answer.value) ? answer.value : [answer.value];
  const indices = values.map((value) => answer.labels.indexOf(value)).filter((i) => i >= 0);
  if (!indices.length) return ({ score }) => score;
  return ({ probs }) => indices.reduce((sum, i) => sum + probs[i], 0) / indices.length;
}

/** Return the words at these spans as a text; one space where something is left out. */
function joinSpans(text, spans) {
  const chars = [...text];
  const cut = (start, end) => chars.slice(start, end).join("");
  let out = "";
  spans.forEach(([start, end], i) => {
    if (i) {
      const gap = cut(spans[i - 1][1], start);
      out += gap.trim() ? " " : gap;
    }
    out += cut(start, end);
  });
  return out;
}

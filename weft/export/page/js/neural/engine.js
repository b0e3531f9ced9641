// Neural models: texts to rows, rows through a graph, outputs to answers.

import { buildFeeds } from "./feeds.js";
import { Indexer } from "./indexer.js";
import { languageEngine } from "./language.js";
import { seq2seqEngine } from "./seq2seq.js";
import { openSession } from "./session.js";
import { decodeArcs, decodeBrackets } from "../decode/parses.js";
import { chooseSpan, windowSpan } from "../decode/spans.js";
import { decodeTags, readChains } from "../decode/tags.js";
import { argmax } from "../decode/chain.js";
import { softmax } from "../decode/probabilities.js";
import { parseJson, readTensors } from "../files.js";
import { answerSpan } from "../tasks/answer_span.js";
import { classifier } from "../tasks/classify.js";
import { intentAnswer } from "../tasks/intent.js";
import { arcsAnswer, bracketsAnswer } from "../tasks/parse.js";
import { regressor } from "../tasks/regress.js";
import { tagger } from "../tasks/tag.js";
import { numbersAnswer } from "../tasks/word_numbers.js";
import { Tokenizer } from "../tokens/tokenizer.js";
import { WordSegmenter } from "../words.js";

const BESIDE = new Set(["states", "vector", "weights", "text_vector"]);

/** Return {answer, continuation?} of a neural model. */
export async function neuralEngine({ info, files, space, splitWords }) {
  const { config, reads, gives } = info;
  if (gives.kind === "tokens") return languageEngine({ info, files, space });
  const tokenizer = new Tokenizer(parseJson(files.get("tokenizer.json")));
  const cuts = files.get("cuts.json");
  const segmenter = cuts ? new WordSegmenter(parseJson(cuts), splitWords) : null;
  const indexer = new Indexer(reads, tokenizer, segmenter ? (text) => segmenter.spans(text) : splitWords);
  const session = await openSession(files.get("model.onnx"), files.get("ort.wasm"));
  const encode = async (inputs, names) => {
    const rows = indexer.rows(inputs);
    const outputs = [];
    for (const row of rows) {
      outputs.push(await session.run(buildFeeds(row, reads, inputs.length > 1), names));
    }
    return { rows, outputs };
  };
  if (gives.kind === "text") return seq2seqEngine({ info, files, space }, encode);
  if (config.task.kind === "embed") return vectorEngine(encode);
  const packed = files.get("decoding.safetensors");
  const tables = packed ? readTensors(packed) : {};
  const names = session.outputs.filter((name) => !BESIDE.has(name));
  const engine = { config, space, reads, gives, tables, chains: readChains(tables) };
  const finish = (FINISH[gives.kind] ?? unsupported(gives.kind))(engine);
  const answer = async (inputs) => {
    const { rows, outputs } = await encode(inputs, names);
    return { ...finish(rows, outputs, inputs), coverage: rows[0]?.coverage ?? 0 };
  };
  return { answer };
}

/** Return {answer} of a model that gives vectors: that of the text, the mean over its windows. */
function vectorEngine(encode) {
  const answer = async (inputs) => {
    const { rows, outputs } = await encode(inputs, ["vector"]);
    const probs = meanLogits(outputs.map(({ vector }) => vector.data));
    return { value: null, score: 0, probs, vector: probs, coverage: rows[0]?.coverage ?? 0 };
  };
  return { answer };
}

const unsupported = (kind) => {
  throw new Error(`Answers of the kind '${kind}' are not supported on a page.`);
};

const FINISH = {
  logits: ({ config, space }) => {
    const regression = "mean" in space || "means" in space;
    const answerOf = regression ? regressor(space) : classifier(config.task, space);
    return (rows, outputs) => answerOf(meanLogits(outputs.map(({ logits }) => logits.data)));
  },
  tags: ({ config, space, gives, chains }) => {
    const answerOf = tagger(config.task, space);
    return (rows, outputs) =>
      answerOf(sentence(rows, outputs.map((out) => decodeTags(out, chains, gives.columns))));
  },
  "intent-slots": ({ config, space, chains }) => {
    const answerOf = intentAnswer(config.task, space);
    return (rows, outputs) => {
      const parts = outputs.map((out) => decodeTags(out, chains, 1));
      const probs = outputs.length ? softmax(outputs[0].intents.data) : [];
      return answerOf(sentence(rows, parts), argmax(probs), probs);
    };
  },
  numbers: ({ space }) => (rows, outputs) => {
    const numbers = outputs.flatMap((out, i) => Array.from(out.numbers.data.slice(0, rows[i].ids.length)));
    return numbersAnswer(space, sentence(rows, []), numbers);
  },
  span: ({ space, reads, gives }) => (rows, outputs, inputs) => {
    const windows = rows.map((row, i) => {
      const spans = row.spans.map((span, at) => (at < row.second ? [0, 0] : span));
      const own = reads.is_bi_encoder ? spans.slice(row.second) : spans;
      return { spans: own, ...windowSpan(outputs[i].starts.data, outputs[i].ends.data, gives.longest) };
    });
    return answerSpan(chooseSpan(windows), inputs[1], space);
  },
  arcs: ({ space, gives, tables, chains }) => (rows, outputs) =>
    arcsAnswer(space, sentence(rows, outputs.map((out) => decodeArcs(out, tables, chains, gives)))),
  brackets: ({ space, gives, tables, chains }) => (rows, outputs) =>
    bracketsAnswer(space, sentence(rows, outputs.map((out) => decodeBrackets(out, tables, chains, gives)))),
};

/** Return the mean of the windows of a text. */
function meanLogits(windows) {
  const [first] = windows;
  if (windows.length === 1) return Float64Array.from(first);
  return Float64Array.from(first, (_, k) => windows.reduce((sum, row) => sum + row[k], 0) / windows.length);
}

/** Join the parts of a sentence that was longer than the model reads. */
function sentence(rows, parts) {
  const join = (name) => parts.flatMap((part) => part[name] ?? []);
  return {
    words: rows.flatMap((row) => row.words),
    places: rows.flatMap((row) => row.spans),
    table: join("table"),
    probs: join("probs"),
    spans: join("spans"),
  };
}

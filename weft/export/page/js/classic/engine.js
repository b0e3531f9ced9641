// Classic models: texts to answers in plain JavaScript.

import { CrfTagger } from "./crf.js";
import { FastText } from "./fasttext.js";
import { NGram } from "./ngram.js";
import { TfIdf } from "./tfidf.js";
import { parseJson } from "../files.js";
import { isBlank } from "../pytext.js";
import { classifier } from "../tasks/classify.js";
import { LMVocabulary, textAnswer } from "../tasks/language.js";
import { regressor } from "../tasks/regress.js";
import { tagger } from "../tasks/tag.js";
import { shortenText } from "../truncate.js";
import { WordSegmenter } from "../words.js";

const OF_TEXTS = { tfidf: TfIdf, "tfidf-pair": TfIdf, fasttext: FastText };
const OF_WORDS = { crf: CrfTagger };
const OF_LANGUAGE = { ngram: NGram, "kneser-ney": NGram };

/** Return {answer, continuation?} of a classic model. */
export function classicEngine({ config, files, space, splitWords }) {
  const settings = config.classic;
  const { kind } = settings;
  if (OF_WORDS[kind]) return wordEngine(new OF_WORDS[kind](settings, files), config, files, space, splitWords);
  if (OF_LANGUAGE[kind]) return languageEngine(new OF_LANGUAGE[kind](settings, files), space);
  if (OF_TEXTS[kind]) return textEngine(new OF_TEXTS[kind](settings, files), config, space);
  throw new Error(`The classic model '${kind}' is not supported on a page.`);
}

function textEngine(part, config, space) {
  const regression = "mean" in space || "means" in space;
  const answerOf = regression ? regressor(space) : classifier(config.task, space);
  const answer = async (inputs) => {
    const cut = inputs.map((text) => shortenText(text, config.data ?? {}));
    const texts = cut.map(({ text }) => text);
    const logits = part.logits(texts.length > 1 ? texts : texts[0]);
    const kept = keptFraction(inputs, cut);
    const known = part.coverage(texts[0]);
    const coverage = known === null ? (isBlank(texts[0]) ? 0 : kept) : known * kept;
    return { ...answerOf(logits), coverage };
  };
  return { answer };
}

function keptFraction(inputs, cut) {
  const sizes = inputs.map((text) => [...text].length);
  const whole = sizes.reduce((a, b) => a + b, 0);
  return whole ? cut.reduce((sum, { kept }, i) => sum + kept * sizes[i], 0) / whole : 1;
}

function wordEngine(part, config, files, space, splitWords) {
  const answerOf = tagger(config.task, space);
  const cuts = files.get("cuts.json");
  const segmenter = cuts ? new WordSegmenter(parseJson(cuts), splitWords) : null;
  const answer = async ([text]) => {
    const places = segmenter ? segmenter.spans(text) : splitWords(text);
    const chars = [...text];
    const words = places.map(([start, end]) => chars.slice(start, end).join(""));
    const sentence = { words, places, ...part.decode(words) };
    return { ...answerOf(sentence), coverage: isBlank(text) ? 0 : 1 };
  };
  return { answer };
}

function languageEngine(part, space) {
  const vocabulary = new LMVocabulary(space);
  const { tokenizer, lines } = vocabulary;
  const before = lines || vocabulary.first === vocabulary.last ? [] : [vocabulary.first];
  const answer = async ([text]) => {
    const { ids, offsets } = tokenizer.encode(text);
    const plain = part.plain(ids);
    const logProbs = part.sentenceScores([...before, ...plain], lines).slice(before.length);
    return textAnswer(vocabulary, text, { ids, offsets, probs: logProbs.map(Math.exp) });
  };
  const continuation = {
    tokenizer,
    end: vocabulary.last,
    endless: !lines,
    silent: [part.pad, part.bos, ...part.others],
    unknown: part.unk,
    async start(prompt) {
      // Running text continues after a line break.
      const ids = [lines ? part.bos : vocabulary.first, ...part.plain(tokenizer.encode(prompt).ids)];
      return ids.reduce((state, id) => part.follow(state, id), part.start());
    },
    async logits(state) {
      return part.spread(state);
    },
    async follow(state, id) {
      return part.follow(state, id);
    },
  };
  return { answer, continuation };
}

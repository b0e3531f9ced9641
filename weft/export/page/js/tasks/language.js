// The vocabulary of a language model, and the perplexity of a text.

import { Tokenizer } from "../tokens/tokenizer.js";

const MAX_NATS = 700; // a token: e to this is still a number

export class LMVocabulary {
  /** `space` is the content of labels.json. */
  constructor(space) {
    this.tokenizer = new Tokenizer(space.tokenizer);
    this.lines = space.lines;
    const { ids, entries } = this.tokenizer;
    this.last = ids.get("<eos>") ?? ids.get("<|endoftext|>") ?? entries.length;
    this.size = Math.max(entries.length, this.last + 1);
    this.first = this.last;
    if (!this.lines) {
      const found = this.tokenizer.encode("\n").ids;
      if (found.length === 1 && found[0] !== this.tokenizer.unknown) [this.first] = found;
    }
  }

  /** Return the fraction of the tokens that are not unknown; 0 for an empty text. */
  coverage(ids) {
    const known = ids.filter((id) => id !== this.tokenizer.unknown).length;
    return ids.length ? known / ids.length : 0;
  }
}

/** Return the answer to a text: its perplexity, and how expected each token and the end are. */
export function textAnswer(vocabulary, text, { ids, offsets, probs }) {
  const value = perplexity(probs);
  const size = [...text].length;
  const places = vocabulary.lines ? [...offsets, [size, size]] : offsets;
  const tokens = places.map(([start, end], i) => [start, end, probs[i]]);
  return { value, score: value, probs, tokens, coverage: vocabulary.coverage(ids) };
}

/** Return the perplexity of the probabilities of tokens. */
export function perplexity(probs) {
  const nats = probs.reduce((sum, prob) => sum - Math.log(Math.max(prob, 1e-300)), 0);
  return Math.exp(Math.min(probs.length ? nats / probs.length : 0, MAX_NATS));
}

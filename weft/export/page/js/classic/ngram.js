// An n-gram language model: log-probabilities and backoffs in one trie.

import { readTensors } from "../files.js";

export class NGram {
  constructor(settings, files) {
    const arrays = readTensors(files.get("weights.safetensors"));
    this.words = arrays.words.data;
    this.first = arrays.first.data;
    this.scores = arrays.scores.data;
    this.backoffs = arrays.backoffs.data;
    [this.pad, this.unk, this.bos, this.eos, ...this.others] = Array.from(arrays.marks.data, Number);
    [this.size] = this.first;
    const starts = [0, this.size];
    while (starts.at(-1) < this.words.length) starts.push(this.first[starts.at(-1)]);
    this.order = starts.length - 1;
  }

  /** Return the counted ids: special tokens inside a text count as unknown. */
  plain(ids) {
    const special = new Set([this.pad, this.bos, this.eos, ...this.others]);
    return ids.map((id) => (special.has(id) ? this.unk : id));
  }

  /** Return the state before the first word, whose input is `bos`: no n-gram ends here. */
  start() {
    return [];
  }

  /** Return the state after a word: the n-grams of 1, 2, … words that end here, -1 for none. */
  follow(state, word) {
    const out = [word];
    for (let k = 1; k < this.order - 1; k++) {
      const node = state[k - 1] ?? -1;
      out.push(node < 0 ? -1 : this.find(node, word));
    }
    return out.slice(0, Math.max(0, this.order - 1));
  }

  /** Return the n-gram that continues a node by a word, or -1. */
  find(node, word) {
    let [low, high] = [this.first[node], this.first[node + 1]];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.words[middle] < word) low = middle + 1;
      else high = middle;
    }
    return low < this.first[node + 1] && this.words[low] === word ? low : -1;
  }

  /** Return the log-probability of a word after a state. */
  score(state, word) {
    let left = 0;
    for (let k = state.length - 1; k >= 0; k--) {
      const node = state[k];
      if (node < 0) continue;
      const longer = this.find(node, word);
      if (longer >= 0) return Math.fround(left + this.scores[longer]);
      left += this.backoffs[node];
    }
    return Math.fround(left + this.scores[word]);
  }

  /** Return the log-probabilities of all words after a state. */
  spread(state) {
    const reach = state.length;
    const left = new Float64Array(reach + 1);
    for (let k = reach - 1; k >= 0; k--) {
      left[k] = left[k + 1] + (state[k] >= 0 ? this.backoffs[state[k]] : 0);
    }
    const out = Float64Array.from({ length: this.size }, (_, word) => left[0] + this.scores[word]);
    state.forEach((node, k) => {
      if (node < 0) return;
      for (let i = this.first[node]; i < this.first[node + 1]; i++) {
        out[this.words[i]] = left[k + 1] + this.scores[i];
      }
    });
    return out;
  }

  /** Return the log-probability of each id, and of the end where `ends`. */
  sentenceScores(ids, ends) {
    let state = this.follow(this.start(), this.bos);
    const out = [];
    for (const id of ends ? [...ids, this.eos] : ids) {
      out.push(this.score(state, id));
      state = this.follow(state, id);
    }
    return out;
  }
}

// fastText's classifier: averaged rows of words and hashed n-grams under a linear layer.

import { readTensors } from "../files.js";
import { tokenMatches } from "../pytext.js";

const START = 14695981039346656037n; // 64-bit FNV-1a
const PRIME = 1099511628211n;
const ROLL = 0x9e3779b97f4a7c15n;
const wrap = (value) => BigInt.asUintN(64, value);
const encoder = new TextEncoder();
const [OPEN, CLOSE] = encoder.encode("<>");
const isInside = (byte) => (byte & 0xc0) === 0x80; // not the first byte of a character

export class FastText {
  constructor(settings, files) {
    const arrays = readTensors(files.get("weights.safetensors"));
    this.settings = settings;
    this.width = settings.width;
    this.table = arrays.table.data;
    this.outputs = arrays.outputs.data;
    this.bias = arrays.bias.data;
    this.words = new Map();
    this.buckets = new Map();
    let [word, bucket] = [0, 0];
    arrays.is_word.data.forEach((isWord, row) => {
      if (isWord) this.words.set(arrays.words.data[word++], row);
      else this.buckets.set(arrays.buckets.data[bucket++], row);
    });
  }

  /** Return the UTF-8 bytes of the words of a text. */
  tokens(text) {
    const lowered = this.settings.lowercase ? text.toLowerCase() : text;
    return tokenMatches(lowered).map(([word]) => encoder.encode(word));
  }

  /** Return the rows of the words and n-grams that training met. */
  rows(words) {
    const { order, max_n: longest } = this.settings;
    const hashes = words.map(hashWord);
    const out = [];
    words.forEach((word, place) => {
      out.push(this.words.get(hashes[place]));
      let value = hashes[place];
      for (let back = 1; back < Math.min(order, place + 1); back++) {
        value = wrap(value * ROLL + hashes[place - back]);
        out.push(this.buckets.get(this.bucket(value)));
      }
      if (longest) out.push(...this.pieces(word));
    });
    return out.filter((row) => row !== undefined);
  }

  bucket(value) {
    const mixed = wrap((value ^ (value >> 32n)) * ROLL);
    return Number(((mixed >> 32n) * BigInt(this.settings.buckets)) >> 32n);
  }

  /** Return the rows of the runs of letters in <word>. */
  pieces(word) {
    const { min_n: shortest, max_n: longest } = this.settings;
    const out = [];
    const stop = word.length;
    for (let first = -1; first <= stop; first++) {
      if (first >= 0 && first < stop && isInside(word[first])) continue;
      let [value, at, length] = [START, first, 0];
      while (at <= stop && length < longest) {
        const byte = at < 0 ? OPEN : at === stop ? CLOSE : word[at];
        value = wrap((value ^ BigInt(byte)) * PRIME);
        at++;
        if (at > 0 && at < stop && isInside(word[at])) continue;
        length++;
        const edge = length === 1 && (first < 0 || at > stop);
        if (length >= shortest && !edge) out.push(this.buckets.get(this.bucket(value)));
      }
    }
    return out;
  }

  logits(text) {
    const rows = this.rows(this.tokens(text));
    const mean = new Float64Array(this.width);
    for (const row of rows) {
      for (let k = 0; k < this.width; k++) mean[k] += this.table[row * this.width + k];
    }
    const size = this.bias.length;
    return Float64Array.from(this.bias, (bias, label) => {
      let sum = bias;
      for (let k = 0; k < this.width; k++) {
        sum += (mean[k] / Math.max(rows.length, 1)) * this.outputs[k * size + label];
      }
      return sum;
    });
  }

  /** Return the fraction of the words that have a row or are spelled. */
  coverage(text) {
    const words = this.tokens(text);
    if (!words.length) return 0;
    if (this.settings.max_n) return 1;
    return words.filter((word) => this.words.has(hashWord(word))).length / words.length;
  }
}

/** Return the hash of a word, never 0. */
function hashWord(bytes) {
  let value = START;
  for (const byte of bytes) value = wrap((value ^ BigInt(byte)) * PRIME);
  value ^= value >> 29n;
  return value || 1n;
}

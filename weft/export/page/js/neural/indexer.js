// Texts to rows: ids, spellings of words, and the characters that each step stands for.
//
// A row is {ids, spans, second, subwords, spellings, words, coverage}.

import { shortenText, splitPairWindows, splitWindows } from "../truncate.js";

const MAX_SENTENCE_WORDS = 10000;
const [BEGIN_WORD, END_WORD] = [257, 258]; // 0 is padding, 1 to 256 are the bytes 0 to 255
const encoder = new TextEncoder();

export class Indexer {
  /** `reads` is that section of export.json; `wordSpans` splits plain text into words. */
  constructor(reads, tokenizer, wordSpans) {
    Object.assign(this, { reads, tokenizer, wordSpans });
    const { before, after, between, each } = reads.frame;
    Object.assign(this, { before, after, between, each });
    this.neverEmpty = before.length + after.length > 0 && !reads.spellings.length;
    this.missing = tokenizer.unknown ?? Math.min(1, tokenizer.entries.length - 1);
    this.maxBytes = reads.spellings.map((one) => (one.kind === "bytes" ? one.max_bytes ?? 50 : Infinity));
  }

  /** Return the rows of [text] or [text, other]. */
  rows(inputs) {
    const { input_kind: kind, limit, characters, policy } = this.reads;
    if (kind === "words") return this.sentenceRows(inputs[0]);
    const most = limit === null ? characters : 0;
    const how = inputs.length > 1 && policy !== "error" ? "head" : policy;
    const cut = inputs.map((text) => shortenText(text, { max_characters: most, truncate: how }));
    const sizes = inputs.map((text) => [...text].length);
    const whole = Math.max(1, sizes.reduce((a, b) => a + b, 0));
    const kept = cut.reduce((sum, one, i) => sum + one.kept * sizes[i], 0) / whole;
    const rows = inputs.length > 1 ? this.pairRows(...cut.map(({ text }) => text)) : this.textRows(cut[0].text);
    const share = cut.some((one) => one.kept < 1) ? kept : 1;
    return rows.map((row) => ({ ...row, coverage: share * row.coverage }));
  }

  textRows(text) {
    const { ids, offsets } = this.tokenizer.encode(text);
    if (!ids.length) return [this.framed(this.neverEmpty ? [] : [this.missing], [], [""], 0)];
    const words = this.texts(text, offsets);
    const seen = this.distinguished(ids, words);
    const { limit, policy, overlap } = this.reads;
    const most = limit === null ? ids.length : limit - this.before.length - this.after.length;
    const windows = ids.length <= most ? [[[0, ids.length]]] : splitWindows(ids.length, most, policy, overlap);
    const read = covered(windows, ids.length);
    const coverage = seen.filter((known, i) => known && read[i]).length / ids.length;
    return windows.map((window) => {
      const here = positions(window);
      const pick = (all) => here.map((i) => all[i]);
      return { ...this.framed(pick(ids), pick(offsets), pick(words), coverage), read: true };
    });
  }

  /** Return a row of ids between special tokens, or of words that are spelled. */
  framed(ids, spans, words, coverage) {
    const spelled = this.spell(words);
    if (spelled.length) return { ids, spans, spellings: spelled, coverage };
    const empty = (frame) => frame.map(() => [0, 0]);
    return {
      ids: [...this.before, ...ids, ...this.after],
      spans: [...empty(this.before), ...spans, ...empty(this.after)],
      spellings: [],
      coverage,
    };
  }

  pairRows(first, second) {
    const texts = [first, second];
    const two = texts.map((text) => this.tokenizer.encode(text));
    const sizes = two.map(({ ids }) => ids.length);
    const { limit, policy, overlap } = this.reads;
    const added = this.before.length + this.after.length + (this.each ? 0 : this.between.length);
    const most = limit === null ? Math.max(sizes[0] + sizes[1], 2) : limit - added;
    let windows;
    if (this.each) {
      const [a, b] = sizes.map((size) => splitWindows(size, most, policy, overlap));
      windows = a.flatMap((left) => b.map((right) => [left, right]));
    } else {
      windows = splitPairWindows(sizes[0], sizes[1], most, policy, overlap);
    }
    let known = 0;
    two.forEach(({ ids, offsets }, side) => {
      const read = covered(windows.map((window) => window[side]), sizes[side]);
      const seen = this.distinguished(ids, this.texts(texts[side], offsets));
      known += seen.filter((one, i) => one && read[i]).length;
    });
    const coverage = sizes[0] && sizes[1] ? known / (sizes[0] + sizes[1]) : 0;
    return windows.map((window) => {
      const sides = two.map(({ ids, offsets }, side) => {
        const here = positions(window[side]);
        const blank = !here.length && !this.neverEmpty;
        const own = blank ? [this.missing] : here.map((i) => ids[i]);
        const spans = blank ? [[0, 0]] : here.map((i) => offsets[i]);
        return { ids: own, spans, words: this.texts(texts[side], spans) };
      });
      return this.pairRow(sides, coverage);
    });
  }

  pairRow([left, right], coverage) {
    const middle = this.each ? [...this.after, ...this.before] : this.between;
    const ends = this.each ? this.after.length : this.between.length;
    const empty = (ids) => ids.map(() => [0, 0]);
    return {
      ids: [...this.before, ...left.ids, ...middle, ...right.ids, ...this.after],
      spans: [...empty(this.before), ...left.spans, ...empty(middle), ...right.spans, ...empty(this.after)],
      second: this.before.length + left.ids.length + ends,
      spellings: this.spell([...left.words, ...right.words]),
      coverage,
    };
  }

  sentenceRows(text) {
    const { limit, full_sentences, subwords } = this.reads;
    const spans = this.wordSpans(text);
    const words = this.texts(text, spans);
    const pieces = words.map((word) => this.tokenizer.encodeWord(word));
    const size = (subwords ? 0 : limit) || limit || MAX_SENTENCE_WORDS;
    if (full_sentences && words.length > size) throw new Error(sentenceTooLong(words.length, size));
    const ids = pieces.map(([first]) => first);
    const { unknown } = this.tokenizer;
    const seen = subwords
      ? pieces.map((own) => unknown === undefined || !own.includes(unknown))
      : this.distinguished(ids, words);
    const coverage = words.length ? seen.filter(Boolean).length / words.length : 0;
    return this.wordRanges(pieces, words.length, size).map(([start, end]) => {
      const here = words.slice(start, end);
      return {
        ids: ids.slice(start, end),
        spans: spans.slice(start, end),
        words: here,
        subwords: subwords ? pieces.slice(start, end) : null,
        spellings: this.spell(here),
        coverage,
      };
    });
  }

  /** Return the words of each row: at most `size`, and no more sub-words than fit. */
  wordRanges(pieces, count, size) {
    const out = [];
    const { limit, subwords, full_sentences } = this.reads;
    const most = subwords ? (limit ?? Infinity) - this.before.length - this.after.length : Infinity;
    let [start, length] = [0, 0];
    for (let n = 0; n < count; n++) {
      if (n > start && (length + (subwords ? pieces[n].length : 0) > most || n - start === size)) {
        if (full_sentences) throw new Error(sentenceTooLong(pieces.flat().length, most));
        out.push([start, n]);
        [start, length] = [n, 0];
      }
      length += subwords ? pieces[n].length : 0;
    }
    if (count) out.push([start, count]);
    return out;
  }

  /** Return whether the model tells each token from others, by id or by spelling. */
  distinguished(ids, words) {
    const { unknown } = this.tokenizer;
    const { reads_ids, spellings } = this.reads;
    const longest = Math.max(0, ...this.maxBytes);
    return ids.map((id, i) => {
      if (reads_ids && id !== unknown) return true;
      return spellings.length > 0 && encoder.encode(words[i]).length <= longest;
    });
  }

  texts(text, spans) {
    const chars = [...text];
    return spans.map(([start, end]) => chars.slice(start, end).join(""));
  }

  /** Return for each kind of spelling the symbols of every word. */
  spell(words) {
    return this.reads.spellings.map((kind) =>
      words.map((word) => (kind.kind === "bytes" ? spellBytes(word, kind) : spellNgrams(word, kind))),
    );
  }
}

const sentenceTooLong = (size, limit) =>
  `A sentence of ${size} words; the model reads at most ${limit} as a whole. Give one sentence a line.`;

const positions = (window) =>
  window.flatMap(([start, end]) => Array.from({ length: end - start }, (_, i) => start + i));

/** Return whether some window reads each position. */
function covered(windows, length) {
  const out = Array(length).fill(false);
  for (const [start, end] of windows.flat()) out.fill(true, start, end);
  return out;
}

function spellBytes(word, { max_bytes }) {
  const bytes = encoder.encode(word).slice(0, max_bytes ?? 50);
  return [BEGIN_WORD, ...Array.from(bytes, (byte) => byte + 1), END_WORD];
}

/** Return the buckets of the character n-grams and of the whole word, hashed as in fastText. */
function spellNgrams(word, { min_n, max_n, buckets }) {
  const letters = ["<", ...word, ">"].map((char) => encoder.encode(char));
  const hashes = [];
  letters.forEach((_, begin) => {
    let value = 2166136261;
    for (let end = begin; end < Math.min(begin + max_n, letters.length); end++) {
      value = fnv1a(letters[end], value);
      const length = end - begin + 1;
      const mark = length === 1 && (begin === 0 || end === letters.length - 1);
      if (length >= min_n && !mark) hashes.push(value);
    }
  });
  if (letters.length > max_n) hashes.push(letters.reduce((value, letter) => fnv1a(letter, value), 2166136261));
  return hashes.map((value) => (value % buckets) + 1);
}

/** Hash bytes in 32 bits; those above 127 are sign-extended, as in fastText. */
function fnv1a(bytes, value) {
  for (const byte of bytes) {
    value = Math.imul(value ^ (byte < 128 ? byte : byte | 0xffffff00), 16777619) >>> 0;
  }
  return value;
}

// A tokenizer of the `tokenizers` library: texts to ids with character offsets, and ids to texts.
//
// Offsets count code points, as in Python.

import { AlignedText } from "./aligned.js";
import { decoder } from "./decoders.js";
import { tokenModel } from "./models.js";
import { normalizer } from "./normalizers.js";
import { BYTE_CHARS, preTokenizer } from "./pretokenizers.js";
import { isWhitespace } from "./unicode.js";

const SPACE_MARK = "▁";
const SPECIALS = ["<pad>", "<unk>", "<bos>", "<eos>", "<cls>", "<sep>", "<mask>"];
const WORD_CHAR = /^[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]$/u;

export class Tokenizer {
  /** `settings` is the content of a tokenizer.json. */
  constructor(settings) {
    this.normalize = normalizer(settings.normalizer);
    this.preTokenize = preTokenizer(settings.pre_tokenizer);
    this.model = tokenModel(settings.model);
    this.join = decoder(settings.decoder);
    this.trim = offsetTrim(settings.post_processor);
    this.ids = new Map(this.model.entries);
    const added = settings.added_tokens ?? [];
    for (const token of added) this.ids.set(token.content, token.id);
    // A text that spells a special token is text.
    const matched = added.filter((token) => !token.special && token.content);
    this.rawTokens = matched.filter((token) => !token.normalized);
    this.normalizedTokens = matched
      .filter((token) => token.normalized)
      .map((token) => ({ ...token, content: this.normalize(AlignedText.of(token.content)).text }));
    this.entries = [];
    for (const [entry, id] of this.ids) this.entries[id] = entry;
    const special = added.filter((token) => token.special).map((token) => token.content);
    const silent = [...special, ...SPECIALS].filter((entry) => entry !== "<unk>");
    this.silentIds = new Set(silent.map((entry) => this.ids.get(entry)));
    this.spaceMark = this.ids.get(SPACE_MARK);
  }

  /** The id of unknown tokens; undefined where every text can be spelled. */
  get unknown() {
    return this.ids.get("<unk>") ?? this.ids.get("[UNK]");
  }

  /** The id of a masked token. */
  get mask() {
    return this.ids.get("<mask>") ?? this.ids.get("[MASK]");
  }

  /** True if sub-tokens include the space before a word, as in GPT-2. */
  get marksLeadingSpace() {
    return this.ids.has("Ġ");
  }

  /** Return {ids, offsets, words} as the `tokenizers` library does, without special tokens. */
  encodeRaw(text) {
    const ids = [], offsets = [], words = [];
    this.pieces(text).forEach(({ piece, id }, word) => {
      const rows = id === undefined ? this.model.tokenize(piece.chars) : [[id, 0, piece.length]];
      for (const [token, start, end] of rows) {
        ids.push(token);
        offsets.push(piece.offsets(start, end));
        words.push(word);
      }
    });
    if (this.trim) this.trim(ids.map((id) => this.entries[id]), offsets);
    return { ids, offsets, words };
  }

  /** Return {ids, offsets, words} where a token owns no space; -1 is the word of a space. */
  encode(text) {
    const { ids, offsets, words } = this.encodeRaw(text);
    return { ids, ...align(AlignedText.of(text).chars, ids, offsets, words, this.spaceMark) };
  }

  /** Return the ids of the sub-tokens of a word, at least one. */
  encodeWord(word) {
    const { ids } = this.encodeRaw(this.marksLeadingSpace ? ` ${word}` : word);
    return ids.length ? ids : [this.unknown ?? Math.min(1, this.entries.length - 1)];
  }

  /** Return the text of ids, without special tokens. */
  decode(ids) {
    return this.join(ids.filter((id) => !this.silentIds.has(id)).map((id) => this.entries[id]));
  }

  /** Return the pieces of a text: {piece}, or {piece, id} for an added token. */
  pieces(text) {
    const out = [];
    for (const raw of this.extract(AlignedText.of(text), this.rawTokens)) {
      if (raw.id !== undefined) {
        out.push(raw);
        continue;
      }
      for (const part of this.extract(this.normalize(raw.piece), this.normalizedTokens)) {
        if (part.id !== undefined) out.push(part);
        else out.push(...this.preTokenize([part.piece]).map((piece) => ({ piece })));
      }
    }
    return out.filter(({ piece }) => piece.length);
  }

  /** Cut out added tokens, which stay whole. */
  extract(text, tokens) {
    if (!tokens.length) return [{ piece: text.slice(0, text.length) }];
    const { chars } = text;
    const wanted = tokens.map((token) => ({ ...token, chars: [...token.content] }));
    const out = [];
    let before = 0;
    for (let i = 0; i < chars.length; ) {
      const here = wanted.filter((token) => token.chars.every((c, k) => chars[i + k] === c));
      const token = here.reduce((a, b) => (a && a.chars.length >= b.chars.length ? a : b), null);
      if (!token) {
        i++;
        continue;
      }
      let [start, end] = [i, i + token.chars.length];
      const inWord = (at) => at >= 0 && at < chars.length && WORD_CHAR.test(chars[at]);
      if (token.single_word && (inWord(start - 1) || inWord(end))) {
        i = end;
        continue;
      }
      while (token.lstrip && start > before && isWhitespace(chars[start - 1])) start--;
      while (token.rstrip && end < chars.length && isWhitespace(chars[end])) end++;
      if (start > before) out.push({ piece: text.slice(before, start) });
      out.push({ piece: text.slice(start, end), id: token.id });
      before = i = end;
    }
    if (before < chars.length) out.push({ piece: text.slice(before, chars.length) });
    return out;
  }
}

/** Return the function that takes spaces out of offsets, where the post-processor does. */
function offsetTrim(settings) {
  if (!settings) return null;
  if (settings.type === "Sequence") {
    const steps = settings.processors.map(offsetTrim).filter(Boolean);
    return (entries, offsets) => steps.forEach((step) => step(entries, offsets));
  }
  if (!settings.trim_offsets) return null;
  const space = BYTE_CHARS[32];
  const isSpace = (char) => char === space || isWhitespace(char);
  return (entries, offsets) =>
    entries.forEach((entry, i) => {
      const chars = [...entry];
      const first = chars.findIndex((char) => !isSpace(char));
      let leading = first < 0 ? chars.length : first;
      const last = chars.findLastIndex((char) => !isSpace(char));
      const trailing = chars.length - 1 - last;
      const span = offsets[i];
      if (settings.add_prefix_space && (i === 0 || span[0] === 0)) leading = 0;
      span[0] = Math.min(span[0] + leading, span[1]);
      if (span[1] >= trailing) span[1] = Math.max(span[1] - trailing, span[0]);
    });
}

/** Return offsets that leave out spaces and cover merged characters, and words from 0 on. */
function align(chars, ids, offsets, words, mark) {
  const size = chars.length;
  const space = chars.map(isWhitespace);
  const spans = offsets.map(([start, end]) => [start, end]);
  if (ids.length && ids[0] === mark) {
    const [begin] = spans[0];
    if (chars[begin] !== SPACE_MARK && !space[begin]) spans[0][1] = begin;
  }
  const nextSolid = new Int32Array(size + 1).fill(size);
  const nextSpace = new Int32Array(size + 1).fill(size);
  for (let i = size - 1; i >= 0; i--) {
    nextSolid[i] = space[i] ? nextSolid[i + 1] : i;
    nextSpace[i] = space[i] ? i : nextSpace[i + 1];
  }
  const solid = spans.map(([start, end]) => nextSolid[start] < end);
  const starts = spans.map(([start], i) => (solid[i] ? nextSolid[start] : start));
  // A letter that normalising merged into the one before belongs to its token.
  const extend = chars.some((char) => char > "\x7f");
  const numbers = new Map();
  const out = { offsets: [], words: [] };
  spans.forEach(([, end], i) => {
    let last = end;
    if (extend && solid[i]) {
      let after = i;
      while (after < starts.length && starts[after] < end) after++;
      const next = after < starts.length ? starts[after] : size;
      last = Math.max(end, Math.min(next, nextSpace[end]));
    }
    out.offsets.push([starts[i], last]);
    if (solid[i] && !numbers.has(words[i])) numbers.set(words[i], numbers.size);
    out.words.push(solid[i] ? numbers.get(words[i]) : -1);
  });
  return out;
}

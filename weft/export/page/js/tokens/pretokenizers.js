// The pre-tokenizers of a tokenizer.json: an AlignedText is cut into pieces.

import { toRegExp } from "./regex.js";
import { isPunctuation, isWhitespace } from "./unicode.js";

// The words of GPT-2: contractions, then letters, digits or other signs with a space before them.
const GPT2_WORDS = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";
const DIGIT = /^\p{N}$/u;

const PRE_TOKENIZERS = {
  Split: ({ pattern, behavior, invert }) => {
    const regex = toRegExp(pattern);
    return each((text) => text.split(inverted(text.segments(regex), invert), behavior));
  },
  Whitespace: () => {
    const words = /[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}\p{White_Space}]+/gv;
    return each((text) => text.split(inverted(text.segments(words), true), "Removed"));
  },
  WhitespaceSplit: () => each((text) => text.split(marked(text, isWhitespace), "Removed")),
  Punctuation: ({ behavior }) => each((text) => text.split(marked(text, isPunctuation), behavior)),
  Digits: ({ individual_digits }) =>
    each((text) =>
      text.split(marked(text, (c) => DIGIT.test(c)), individual_digits ? "Isolated" : "Contiguous"),
    ),
  BertPreTokenizer: () => (pieces) =>
    pieces
      .flatMap((text) => text.split(marked(text, isWhitespace), "Removed"))
      .flatMap((text) => text.split(marked(text, isPunctuation), "Isolated")),
  Metaspace: metaspace,
  ByteLevel: byteLevel,
  Sequence: ({ pretokenizers }) => {
    const steps = pretokenizers.map(preTokenizer);
    return (pieces) => steps.reduce((now, step) => step(now), pieces);
  },
};

/** Return the function from pieces to pieces that a "pre_tokenizer" section describes. */
export function preTokenizer(settings) {
  if (!settings) return (pieces) => pieces;
  const build = PRE_TOKENIZERS[settings.type];
  if (!build) throw new Error(`The pre-tokenizer ${settings.type} is not supported.`);
  return build(settings);
}

const each = (cut) => (pieces) => pieces.flatMap(cut);

/** Return the segments of an inverted pattern: what is between the matches. */
const inverted = (segments, invert) =>
  invert ? segments.map(([start, end, matched]) => [start, end, !matched]) : segments;

/** Return a segment for each character that passes a test, and one for each run of others. */
function marked(text, test) {
  const out = [];
  text.chars.forEach((char, i) => {
    const previous = out.at(-1);
    if (test(char)) out.push([i, i + 1, true]);
    else if (previous && !previous[2]) previous[1] = i + 1;
    else out.push([i, i + 1, false]);
  });
  return out;
}

function metaspace({ replacement, prepend_scheme, add_prefix_space, split }) {
  const scheme = prepend_scheme ?? (add_prefix_space === false ? "never" : "always");
  return each((text) => {
    let out = text.map((char) => (char === " " ? replacement : char));
    const wanted = scheme === "always" || (scheme === "first" && out.shift === 0);
    if (wanted && out.chars[0] !== replacement) out = out.prepend(replacement);
    if (split === false) return [out];
    return out.split(marked(out, (char) => char === replacement), "MergedWithNext");
  });
}

function byteLevel({ add_prefix_space, use_regex }) {
  const words = toRegExp({ Regex: GPT2_WORDS });
  return each((text) => {
    const spaced = add_prefix_space && text.chars[0] !== " " ? text.prepend(" ") : text;
    const pieces = use_regex === false ? [spaced] : spaced.split(spaced.segments(words), "Isolated");
    return pieces.map((piece) => piece.flatMap(byteSpelling));
  });
}

const encoder = new TextEncoder();
export const BYTE_CHARS = byteChars();

/** Return the bytes of a character, each as the printable character that stands for it. */
function byteSpelling(char) {
  return Array.from(encoder.encode(char), (byte) => BYTE_CHARS[byte]);
}

/** Return a printable character for each byte: itself, or one from U+0100 on. */
function byteChars() {
  const printable = (byte) =>
    (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, byte) =>
    String.fromCodePoint(printable(byte) ? byte : next++),
  );
}

// Plain text into words: by one regular expression, or as the training file had split them.

import { AlignedText } from "./tokens/aligned.js";
import { toRegExp } from "./tokens/regex.js";
import { isAlnum, isAlpha, isDigit, isUpper } from "./pytext.js";

const EDGE = 6; // letters to the beginning or end of a chunk that a rule holds, at most
const WORD_KINDS = new Set("Aa0");
const CHUNK = /^\P{White_Space}$/u;

/** Return the function from a text to [start, end] of its words, in code points. */
export function wordSplitter(pattern) {
  const regex = toRegExp({ Regex: pattern });
  return (text) =>
    AlignedText.of(text).segments(regex).filter((one) => one[2]).map(([start, end]) => [start, end]);
}

/** Splits text as the training file was split: a decision list for each place in a chunk. */
export class WordSegmenter {
  /** `saved` is the content of cuts.json. */
  constructor(saved, splitWords) {
    this.splitWords = splitWords;
    this.rules = new Map(Object.entries(saved.cut));
    for (const [name, sure] of Object.entries(saved.keep)) this.rules.set(name, -sure);
    this.exceptions = new Map();
    for (const spaced of saved.pieces) {
      const words = spaced.split(" ").map((word) => [...word].length);
      let reach = 0;
      this.exceptions.set(spaced.replaceAll(" ", ""), words.slice(0, -1).map((n) => (reach += n)));
    }
  }

  /** Return [start, end] of the words of a text. */
  spans(text) {
    const chars = AlignedText.of(text).chars;
    const out = [];
    for (let start = 0; start < chars.length; start++) {
      let end = start;
      while (end < chars.length && CHUNK.test(chars[end])) end++;
      if (end === start) continue;
      const cuts = this.cuts(chars.slice(start, end));
      [0, ...cuts].forEach((cut, i) => out.push([start + cut, start + (cuts[i] ?? end - start)]));
      start = end;
    }
    return out;
  }

  cuts(chars) {
    const chunk = chars.join("");
    const small = chunk.toLowerCase();
    const sameSize = [...small].length === chars.length;
    return (
      this.exceptions.get(chunk) ?? (sameSize ? this.exceptions.get(small) : null) ??
      this.decide(chars)
    );
  }

  /** At each place the surest rule decides; without one, the regular expression. */
  decide(chars) {
    const plain = new Set(
      chars.every((c) => c < "\x80" && isAlnum(c))
        ? []
        : this.splitWords(chars.join("")).slice(1).map(([start]) => start),
    );
    const out = [];
    for (const [place, names] of ruleNames(chars)) {
      let sure = 0;
      for (const name of names) {
        const own = this.rules.get(name) ?? 0;
        if (Math.abs(own) > Math.abs(sure)) sure = own;
      }
      if (sure > 0 || (sure === 0 && plain.has(place))) out.push(place);
    }
    return out;
  }
}

/** Return [place, names of the rules that could decide there] for the places inside a chunk. */
function ruleNames(chars) {
  const edge = Array(EDGE).fill(" ");
  const letters = [...edge, ...chars.map(foldLetter), ...edge];
  const kindsInside = chars.map(letterKind);
  const kinds = [...edge, ...kindsInside, ...edge];
  const start = letters.slice(EDGE, EDGE + 4).join("");
  const marks = chars.every(isAlnum) ? "" : marksInside(kindsInside);
  const size = chars.length;
  const cut = (row, from, to) => row.slice(from, to).join("");
  return Array.from({ length: Math.max(0, size - 1) }, (_, i) => {
    const place = i + 1;
    const at = EDGE + place;
    const [left, right] = [kinds[at - 1], kinds[at]];
    const names = [
      `two ${cut(letters, at - 2, at)}|${cut(letters, at, at + 4)}`,
      `four ${cut(letters, at - 4, at)}|${cut(letters, at, at + 2)}`,
      `kinds ${cut(kinds, at - 3, at)}|${cut(kinds, at, at + 3)}`,
      `kinds ${cut(kinds, at - 2, at)}|${cut(kinds, at, at + 2)}`,
      `kinds ${left}|${right}`,
      `start ${start}|${left}${right}`,
      `marks ${marks}|${left}${right}`,
    ];
    if (place <= EDGE) names.push(`before ${cut(letters, EDGE, at)}|${right}`);
    if (size - place <= EDGE) names.push(`after ${left}|${cut(letters, at, EDGE + size)}`);
    return [place, names];
  });
}

function foldLetter(char) {
  const small = isDigit(char) ? "0" : char.toLowerCase();
  return [...small].length === 1 ? small : char;
}

function letterKind(char) {
  if (isDigit(char)) return "0";
  if (isAlpha(char)) return isUpper(char) ? "A" : "a";
  return char;
}

/** Return the distinct marks between the first and the last letter or digit, sorted. */
function marksInside(kinds) {
  const isWord = (kind) => WORD_KINDS.has(kind);
  const inside = kinds.slice(Math.max(0, kinds.findIndex(isWord)), kinds.findLastIndex(isWord) + 1);
  const marks = new Set(inside.filter((kind) => !isWord(kind)));
  return [...marks].sort((a, b) => a.codePointAt(0) - b.codePointAt(0)).join("");
}

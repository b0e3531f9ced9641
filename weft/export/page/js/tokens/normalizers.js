// The normalizers of a tokenizer.json, with the same alignments as the `tokenizers` library.

import { toRegExp } from "./regex.js";
import { compose, isStarter, isWhitespace, ordersBefore } from "./unicode.js";

const MARK = /^\p{M}$/u;
const NONSPACING_MARK = /^\p{Mn}$/u;
const OTHER = /^[\p{Cc}\p{Cf}\p{Co}\p{Cs}]$/u; // control, format, private use
const CHINESE = [
  [0x4e00, 0x9fff], [0x3400, 0x4dbf], [0x20000, 0x2a6df], [0x2a700, 0x2b73f], [0x2b740, 0x2b81f],
  [0x2b920, 0x2ceaf], [0xf900, 0xfaff], [0x2f800, 0x2fa1f],
];

const NORMALIZERS = {
  NFC: () => (text) => recomposed(text, "NFC"),
  NFKC: () => (text) => recomposed(text, "NFKC"),
  NFD: () => (text) => decomposed(text, "NFD"),
  NFKD: () => (text) => decomposed(text, "NFKD"),
  Lowercase: () => lowercased,
  StripAccents: () => (text) => text.keep((char) => !MARK.test(char)),
  Strip: ({ strip_left, strip_right }) => (text) => stripped(text, strip_left, strip_right),
  Replace: ({ pattern, content }) => {
    const regex = toRegExp(pattern);
    return (text) => text.replace(regex, content);
  },
  Prepend: ({ prepend }) => (text) => text.prepend(prepend),
  BertNormalizer: bertNormalizer,
  Sequence: ({ normalizers }) => {
    const steps = normalizers.map(normalizer);
    return (text) => steps.reduce((now, step) => step(now), text);
  },
};

/** Return the function from AlignedText to AlignedText that a "normalizer" section describes. */
export function normalizer(settings) {
  if (!settings) return (text) => text;
  const build = NORMALIZERS[settings.type];
  if (!build) throw new Error(`The normalizer ${settings.type} is not supported.`);
  return build(settings);
}

const lowercased = (text) =>
  /^[\0-\x7f]*$/.test(text.text)
    ? text.map((char) => char.toLowerCase())
    : text.flatMap((char) => char.toLowerCase());

function stripped(text, left, right) {
  let start = 0, end = text.length;
  while (left && start < end && isWhitespace(text.chars[start])) start++;
  while (right && start < end && isWhitespace(text.chars[end - 1])) end--;
  const out = text.slice(start, end);
  out.shift = text.shift;
  return out;
}

function bertNormalizer(settings) {
  const { clean_text, handle_chinese_chars, strip_accents, lowercase } = settings;
  return (text) => {
    if (clean_text) text = text.keep((char) => !isRemoved(char)).map(spaceForWhitespace);
    if (handle_chinese_chars) text = text.transform(text.chars.flatMap(spacedChinese));
    if (strip_accents ?? lowercase) {
      text = decomposed(text, "NFD").keep((char) => !NONSPACING_MARK.test(char));
    }
    return lowercase ? lowercased(text) : text;
  };
}

const isRemoved = (char) =>
  char === "\0" || char === "\ufffd" || (OTHER.test(char) && !"\t\n\r".includes(char));

const spaceForWhitespace = (char) => (isWhitespace(char) ? " " : char);

function spacedChinese(char) {
  const code = char.codePointAt(0);
  const chinese = code >= 0x3400 && CHINESE.some(([low, high]) => low <= code && code <= high);
  return chinese ? [[" ", 1], [char, 0], [" ", 1]] : [[char, 0]];
}

/** Return [char, change] of the canonical (NFD) or compatible (NFKD) decomposition, in order. */
function decompositions(text, form) {
  const rows = text.chars.flatMap((char) => [...char.normalize(form)].map((c, i) => [c, i && 1]));
  for (let i = 1; i < rows.length; i++) {
    if (isStarter(rows[i][0])) continue;
    for (let j = i; j > 0 && !isStarter(rows[j - 1][0]); j--) {
      if (!ordersBefore(rows[j][0], rows[j - 1][0])) break;
      [rows[j - 1], rows[j]] = [rows[j], rows[j - 1]];
    }
  }
  return rows;
}

function decomposed(text, form) {
  const before = text.text;
  if (before.normalize(form) === before) return text;
  return text.transform(decompositions(text, form));
}

function recomposed(text, form) {
  const before = text.text;
  if (before.normalize(form) === before) return text;
  const out = [];
  let starter = -1; // in `out`, of the character that marks compose with
  let last = ""; // the mark before, if it did not compose
  for (const [char, change] of decompositions(text, form === "NFC" ? "NFD" : "NFKD")) {
    const isMark = !isStarter(char);
    const blocked = last && !(isMark && ordersBefore(last, char));
    const joined = starter < 0 || blocked ? "" : compose(out[starter][0], char);
    if (joined) {
      out[starter] = [joined, out[starter][1] + change - 1];
      continue;
    }
    out.push([char, change]);
    if (isMark) last = starter < 0 ? "" : char;
    else [starter, last] = [out.length - 1, ""];
  }
  return text.transform(out);
}

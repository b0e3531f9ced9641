// Python's view of characters, which the classic models were trained with.

// Digits outside the decimal ones: superscripts, circled numbers, digits of some old scripts.
const OTHER_DIGITS =
  "\\u{b2}\\u{b3}\\u{b9}\\u{1369}-\\u{1371}\\u{19da}\\u{2070}\\u{2074}-\\u{2079}\\u{2080}-\\u{2089}" +
  "\\u{2460}-\\u{2468}\\u{2474}-\\u{247c}\\u{2488}-\\u{2490}\\u{24ea}\\u{24f5}-\\u{24fd}\\u{24ff}" +
  "\\u{2776}-\\u{277e}\\u{2780}-\\u{2788}\\u{278a}-\\u{2792}\\u{10a40}-\\u{10a43}" +
  "\\u{10e60}-\\u{10e68}\\u{11052}-\\u{1105a}\\u{1f100}-\\u{1f10a}";
const DIGIT = new RegExp(`^[\\p{Nd}${OTHER_DIGITS}]$`, "u");
const UPPER = /^\p{Uppercase}$/u;
const LOWER = /^[\p{Lowercase}\p{Lt}]$/u;
const SPACES = "\\p{White_Space}\\x1c-\\x1f";
const TOKEN = new RegExp(`[\\p{L}\\p{N}_]+|[^\\p{L}\\p{N}_${SPACES}]`, "gu");
const WORD = new RegExp(`[^${SPACES}]+`, "gu");

export const isDigit = (char) => DIGIT.test(char);
export const isAlpha = (char) => /^\p{L}$/u.test(char);
export const isAlnum = (char) => /^[\p{L}\p{N}]$/u.test(char);
export const isSpace = (char) => /^[\p{White_Space}\x1c-\x1f]$/u.test(char);
export const isUpper = (char) => UPPER.test(char);
export const isBlank = (text) => !text.match(WORD);

/** Return true if all letters with case are capitals, and there is one. */
export function isAllUpper(text) {
  const chars = [...text];
  return chars.some(isUpper) && !chars.some((char) => LOWER.test(char));
}

/** Return the runs of letters and digits, and the marks. */
export const tokens = (text) => text.match(TOKEN) ?? [];

/** Return the words between white space. */
export const split = (text) => text.match(WORD) ?? [];

/** Return [token, start, end] of each token, in UTF-16 units. */
export const tokenMatches = (text) =>
  Array.from(text.matchAll(TOKEN), (m) => [m[0], m.index, m.index + m[0].length]);

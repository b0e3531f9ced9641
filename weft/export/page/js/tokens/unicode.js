// Unicode properties that the tokenizers need and JavaScript has no direct name for.

const WHITE_SPACE = /^\p{White_Space}$/u;
const PUNCTUATION = /^[\p{P}!-/:-@[-`{-~]$/u;
const LAST_CLASS = "\u0345"; // the only character of the highest combining class

export const isWhitespace = (char) => WHITE_SPACE.test(char);
export const isPunctuation = (char) => PUNCTUATION.test(char);

/** Return true if `char` keeps its place among combining marks (combining class 0). */
export const isStarter = remember((char) => {
  if (char < "\u0300") return true;
  return char !== LAST_CLASS && (LAST_CLASS + char).normalize("NFD").startsWith(LAST_CLASS);
});

/** Return true if the combining class of mark `a` is lower than that of mark `b`. */
export function ordersBefore(a, b) {
  return a !== b && (b + a).normalize("NFD").startsWith(a);
}

/** Return the character that two compose to, or "" if they do not. */
export function compose(a, b) {
  const joined = (a + b).normalize("NFC");
  return [...joined].length === 1 ? joined : "";
}

/** Return the characters of a text; half of a surrogate pair becomes U+FFFD. */
export function codePoints(text) {
  return Array.from(text, (char) => (/^[\ud800-\udfff]$/.test(char) ? "\ufffd" : char));
}

/** Return the index of the code point at each UTF-16 index of a text, and of its end. */
export function codePointIndices(chars, length) {
  const indices = new Int32Array(length + 1);
  let at = 0;
  chars.forEach((char, i) => {
    indices[at] = i;
    if (char.length === 2) indices[at + 1] = i;
    at += char.length;
  });
  indices[at] = chars.length;
  return indices;
}

function remember(compute) {
  const known = new Map();
  return (char) => {
    if (!known.has(char)) known.set(char, compute(char));
    return known.get(char);
  };
}

// Linear-chain CRFs on symbolic features, one per column of tags.

import { decodeText, parseJson, readTensors } from "../files.js";
import { marginals, viterbi } from "../decode/chain.js";
import { isAllUpper, isAlpha, isDigit, isUpper } from "../pytext.js";

const REACH = 2; // columns are seen this many places to the left and to the right
const AFFIX = 4; // longest beginning and ending of a word that is a feature
const OUTSIDE = "∅";
const MAX_CHARACTERS = 300; // of a word that is compared with a pattern
const NUMBER = "\\p{Nd}+(?:[.,]\\p{Nd}+)*";
const W = "\\p{L}\\p{N}_";
const DOMAINS =
  "com|org|net|edu|gov|mil|int|info|biz|io|ai|co|tv|me|eu|uk|de|fr|nl|ca|au|jp|ru|in|us";
const PATTERNS = Object.entries({
  email: [`[${W}.+%\\-]+@[${W}\\-]+(?:\\.[${W}\\-]+)+`, "u"],
  url: [
    `(?:https?|ftp):\\/\\/\\S+|www\\.\\S+|(?:[${W}\\-]+\\.)+(?:${DOMAINS})(?:[:/?#]\\S*)?`, "iu",
  ],
  date: [
    "\\p{Nd}{4}[\\-/.]\\p{Nd}{1,2}[\\-/.]\\p{Nd}{1,2}|" +
      "\\p{Nd}{1,2}[\\-/.]\\p{Nd}{1,2}[\\-/.](?:\\p{Nd}{4}|\\p{Nd}{2})",
    "u",
  ],
  time: ["\\p{Nd}{1,2}:\\p{Nd}{2}(?::\\p{Nd}{2})?(?:[ap]\\.?m\\.?)?", "iu"],
  phone: ["\\+?\\(?\\p{Nd}{1,4}\\)?(?:[ ./\\-]?\\(?\\p{Nd}{2,4}\\)?){1,4}", "u"],
  percent: [`[+\\-]?${NUMBER}%`, "u"],
  money: [`[+\\-]?[$€£¥₹]${NUMBER}[kmb]?|${NUMBER}[$€£¥₹]`, "iu"],
  ordinal: ["\\p{Nd}+(?:st|nd|rd|th)", "iu"],
  number: [`[+\\-]?(?:${NUMBER}|[.,]\\p{Nd}+)`, "u"],
}).map(([kind, [source, flags]]) => [kind, new RegExp(`^(?:${source})$`, flags)]);

class Chain {
  constructor(bytes) {
    const arrays = readTensors(bytes);
    const names = (part) => decodeText(arrays[part].data).split("\0").slice(0, -1);
    this.features = new Map(names("features").map((name, row) => [name, row]));
    this.labels = names("labels");
    this.starts = arrays.starts.data;
    this.columns = arrays.columns.data;
    this.values = arrays.values.data;
    const size = this.labels.length;
    const { rules, transitions } = { rules: arrays.rules.data, transitions: arrays.transitions.data };
    const never = (k) => (rules[k] ? 0 : -Infinity);
    this.weights = {
      start: Float64Array.from({ length: size }, (_, k) => never(k)),
      end: Float64Array.from({ length: size }, (_, k) => never(size + k)),
      transitions: Float64Array.from(transitions, (value, k) => value + never(2 * size + k)),
    };
  }

  /** Return the summed weights of the features of each word. */
  emissions(words) {
    return words.map((features) => {
      const out = new Float64Array(this.labels.length);
      for (const name of features) {
        const row = this.features.get(name);
        if (row === undefined) continue;
        for (let i = Number(this.starts[row]); i < Number(this.starts[row + 1]); i++) {
          out[this.columns[i]] += this.values[i];
        }
      }
      return out;
    });
  }

  /** Return the best label of each word, and its probability. */
  decode(words) {
    const emissions = this.emissions(words);
    const path = viterbi(emissions, this.weights);
    const probs = marginals(emissions, this.weights);
    return { path, probs: path.map((label, t) => probs[t][label]) };
  }
}

export class CrfTagger {
  constructor(settings, files) {
    const layout = parseJson(files.get("columns.json"));
    const chain = (name) => new Chain(files.get(`${name}.safetensors`));
    this.before = layout.features.map((_, k) => chain(`feature-${k}`));
    this.chains = layout.tags.map((_, k) => chain(`tags-${k}`));
    this.numbers = layout.tags;
    this.patterns = settings.patterns;
  }

  /** Return {table, probs}: for each word, the tag and its probability in each column. */
  decode(words) {
    let rows = words.map((word) => [word]);
    if (this.before.length) {
      const seen = features(rows, this.patterns);
      const tags = this.before.map((chain) => chain.decode(seen).path.map((i) => chain.labels[i]));
      rows = rows.map((row, t) => [...row, ...tags.map((column) => column[t])]);
    }
    const seen = features(rows, this.patterns);
    const found = this.chains.map((chain) => chain.decode(seen));
    return {
      table: words.map((_, t) => found.map(({ path }, k) => this.numbers[k][path[t]])),
      probs: words.map((_, t) => found.map(({ probs }) => Math.fround(probs[t]))),
    };
  }
}

/** Return the features of each word of a sentence, from its columns: the word, then tags. */
export function features(rows, patterns) {
  const seen = rows.map(() => []);
  if (!rows.length) return seen;
  rows[0].forEach((_, k) => addWindow(seen, String(k), rows.map((row) => row[k]), k ? 3 : 2));
  const words = rows.map(([word]) => word);
  addWindow(seen, "low", words.map((word) => word.toLowerCase()), 1);
  words.forEach((word, i) => seen[i].push(...shapeFeatures(word)));
  if (patterns) {
    words.map(recognise).forEach((kind, place) => {
      if (!kind) return;
      const last = Math.min(place + REACH, words.length - 1);
      for (let at = Math.max(place - REACH, 0); at <= last; at++) {
        seen[at].push(`pattern[${place - at}]=${kind}`);
      }
    });
  }
  return seen;
}

/** Add the runs of 1 to `longest` neighbours within reach of each word. */
function addWindow(seen, name, column, longest) {
  const edge = Array(REACH).fill(OUTSIDE);
  const padded = [...edge, ...column, ...edge];
  for (let length = 1; length <= longest; length++) {
    const reach = longest === 3 || length === 1 ? REACH : 1;
    for (let first = -reach; first < reach + 2 - length; first++) {
      const label = `${name}[${first}]${length}=`;
      seen.forEach((own, place) => {
        const at = place + first + REACH;
        own.push(label + padded.slice(at, at + length).join("|"));
      });
    }
  }
}

function shapeFeatures(word) {
  const chars = [...word];
  const shape = chars.map(charKind).join("");
  const out = [`shape=${shape}`, `runs=${shape.replace(/([^\n])\1+/gu, "$1")}`];
  for (let length = 1; length <= Math.min(AFFIX, chars.length - 1); length++) {
    const [begin, end] = [chars.slice(0, length), chars.slice(-length)];
    out.push(`begin=${begin.join("")}`, `end=${end.join("")}`);
  }
  if (chars.length && isUpper(chars[0])) out.push("capital");
  if (isAllUpper(word)) out.push("capitals");
  if (/\p{Nd}/u.test(word)) out.push("digit", `number=${word.replace(/\p{Nd}/gu, "0")}`);
  if (word.includes("-")) out.push("hyphen");
  return out;
}

function charKind(char) {
  if (isDigit(char)) return "0";
  if (isAlpha(char)) return isUpper(char) ? "X" : "x";
  return char;
}

/** Return the kind of a word, such as email or phone; "" if it is none of them. */
function recognise(word) {
  if ([...word].length > MAX_CHARACTERS) return "";
  const found = PATTERNS.find(
    ([kind, pattern]) => pattern.test(word) && (kind !== "phone" || isPhone(word)),
  );
  return found ? found[0] : "";
}

/** Tell a phone number from a plain one: enough digits, and a plus or separators between. */
function isPhone(word) {
  const digits = [...word].filter(isDigit).length;
  const separated = word.startsWith("+") || /[ ()\-/]/.test(word) || word.split(".").length > 2;
  return digits >= 7 && digits <= 15 && separated;
}

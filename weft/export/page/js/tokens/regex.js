// Regular expressions of a tokenizer.json (Oniguruma) as those of JavaScript.

const WORD = "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
const LATIN_NUMBERS = "²³¹¼½¾"; // in \w, but not in [\w]
const ESCAPES = {
  s: "\\p{White_Space}", S: "\\P{White_Space}", d: "\\p{Nd}", D: "\\P{Nd}", w: `[${WORD}${LATIN_NUMBERS}]`,
  W: `[^${WORD}${LATIN_NUMBERS}]`, n: "\\n", r: "\\r", t: "\\t", f: "\\f", v: "\\v", b: "\\b", B: "\\B", A: "^",
  z: "$",
};
// Unicode 17 took many symbols out of this property; the `tokenizers` library has them.
const PICTOGRAPHIC = `
  a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa
  24c2 25aa-25ab 25b6 25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714
  2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1
  27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f000-1f0ff
  1f10d-1f10f 1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a
  1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f
  1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a
  1f93c-1f945 1f947-1faff 1fc00-1fffd`;
const CATEGORY = /^(L[ultmoC]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?)$/;
const PROPERTIES = new Set(["White_Space", "Alphabetic", "Emoji"]);
const QUANTIFIER = /^(?:[*+?]|\{\d*,?\d*\})/;

/** Return the RegExp of {"Regex": …}, or of {"String": …}, which matches itself. */
export function toRegExp(pattern) {
  if (typeof pattern === "string" || pattern.String !== undefined) {
    const literal = pattern.String ?? pattern;
    return new RegExp([...literal].map(escapeLiteral).join(""), "gv");
  }
  return new RegExp(new Translation(pattern.Regex).run(), "gv");
}

const escapeLiteral = (char) => `\\u{${char.codePointAt(0).toString(16)}}`;

class Translation {
  constructor(source) {
    this.source = source;
    this.at = 0;
    this.groups = 0;
  }

  run() {
    return this.alternatives(false);
  }

  get rest() {
    return this.source.slice(this.at);
  }

  /** Translate up to the end of the group; `caseless` is the flag (?i). */
  alternatives(caseless) {
    let out = "";
    while (this.at < this.source.length && this.source[this.at] !== ")") {
      if (this.source[this.at] === "|") {
        out += "|";
        this.at++;
      } else {
        out += this.quantified(this.atom(caseless));
      }
    }
    return out;
  }

  /** Add what repeats an atom; a possessive repetition is an atomic group. */
  quantified(atom) {
    const found = QUANTIFIER.exec(this.rest)?.[0];
    if (!found) return atom;
    this.at += found.length;
    const [mode] = this.rest;
    if (mode === "?") {
      this.at++;
      return `${atom}${found}?`;
    }
    if (mode !== "+" || found.startsWith("{")) return atom + found;
    this.at++;
    const name = `atomic${this.groups++}`;
    return `(?:(?=(?<${name}>${atom}${found}))\\k<${name}>)`;
  }

  atom(caseless) {
    const { rest } = this;
    const char = String.fromCodePoint(rest.codePointAt(0));
    if (char === "(") return this.group(caseless);
    if (char === "[") return this.set(caseless);
    if (char === "\\") return this.escape();
    this.at += char.length;
    if (char === ".") return "[^\\n]";
    if (char === "^" || char === "$") return char;
    return caseless ? bothCases(char) : escapeLiteral(char);
  }

  group(caseless) {
    const opening = /^\((\?(?:<=|<!|=|!|:|>|i:|i\)))?/.exec(this.rest);
    const kind = opening[1] ?? "?:";
    this.at += opening[0].length;
    if (kind === "?i)") return this.alternatives(true);
    const inside = this.alternatives(caseless || kind === "?i:");
    this.at++; // the closing parenthesis
    if (kind === "?>") {
      const name = `atomic${this.groups++}`;
      return `(?:(?=(?<${name}>${inside}))\\k<${name}>)`;
    }
    return `(${kind === "?i:" ? "?:" : kind}${inside})`;
  }

  escape(inSet = false) {
    const property = /^\\([pP])\{(\^?)([^}]+)\}/.exec(this.rest);
    if (property) {
      this.at += property[0].length;
      const negated = (property[1] === "P") !== (property[2] === "^");
      if (property[3] === "Extended_Pictographic") return pictographic(negated);
      return `\\${negated ? "P" : "p"}{${propertyName(property[3])}}`;
    }
    const code = /^\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4}))/.exec(this.rest);
    if (code) {
      this.at += code[0].length;
      return `\\u{${code[1] ?? code[2] ?? code[3]}}`;
    }
    const char = String.fromCodePoint(this.source.codePointAt(this.at + 1));
    this.at += 1 + char.length;
    if (inSet && /w/i.test(char)) return char === "w" ? WORD : `[^${WORD}]`;
    return ESCAPES[char] ?? escapeLiteral(char);
  }

  /** A class such as [\p{L}x-z&&[^a]]; both sides of && become sets of their own. */
  set(caseless) {
    this.at++;
    const negated = this.source[this.at] === "^";
    if (negated) this.at++;
    const sides = [""];
    let first = true;
    while (first || this.source[this.at] !== "]") {
      first = false;
      if (this.rest.startsWith("&&")) {
        this.at += 2;
        sides.push("");
      } else if (this.source[this.at] === "[") {
        sides[sides.length - 1] += this.set(caseless);
      } else {
        sides[sides.length - 1] += this.member(caseless);
      }
    }
    this.at++;
    const joined = sides.length > 1 ? sides.map((side) => `[${side}]`).join("&&") : sides[0];
    return `[${negated ? "^" : ""}${joined}]`;
  }

  member(caseless) {
    const literal = () => {
      if (this.source[this.at] === "\\") return this.escape(true);
      const char = String.fromCodePoint(this.source.codePointAt(this.at));
      this.at += char.length;
      return caseless && /\p{L}/u.test(char) && this.source[this.at] !== "-"
        ? escapeLiteral(char.toLowerCase()) + escapeLiteral(char.toUpperCase())
        : escapeLiteral(char);
    };
    const low = literal();
    if (this.source[this.at] !== "-" || this.source[this.at + 1] === "]") return low;
    if (!low.startsWith("\\u{")) return low;
    this.at++;
    return `${low}-${literal()}`;
  }
}

function bothCases(char) {
  const cases = [...new Set([char, char.toLowerCase(), char.toUpperCase()])];
  return `[${cases.filter((one) => [...one].length === 1).map(escapeLiteral).join("")}]`;
}

function pictographic(negated) {
  const ranges = PICTOGRAPHIC.trim().replaceAll("-", "}-\\u{").split(/\s+/);
  return `[${negated ? "^" : ""}${ranges.map((range) => `\\u{${range}}`).join("")}]`;
}

function propertyName(name) {
  if (CATEGORY.test(name) || PROPERTIES.has(name)) return name;
  return `Script=${name}`;
}

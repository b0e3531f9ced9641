// The decoders of a tokenizer.json: strings of tokens become a text.

import { BYTE_CHARS } from "./pretokenizers.js";
import { toRegExp } from "./regex.js";

const CLEANUPS = [
  [" .", "."], [" ?", "?"], [" !", "!"], [" ,", ","], [" ' ", "'"], [" n't", "n't"], [" 'm", "'m"],
  [" do not", " don't"], [" 's", "'s"], [" 've", "'ve"], [" 're", "'re"],
];
const BYTES = new Map(BYTE_CHARS.map((char, byte) => [char, byte]));
const BYTE_NAME = /^<0x([0-9A-F]{2})>$/;
const encoder = new TextEncoder();

const DECODERS = {
  Fuse: () => (tokens) => [tokens.join("")],
  Replace: ({ pattern, content }) => {
    const regex = toRegExp(pattern);
    return (tokens) => tokens.map((token) => token.replace(regex, () => content));
  },
  Strip: ({ content, start, stop }) => (tokens) =>
    tokens.map((token) => trimmed(token, content, start, stop)),
  Metaspace: ({ replacement, prepend_scheme, add_prefix_space }) => {
    const never = prepend_scheme ? prepend_scheme === "never" : add_prefix_space === false;
    return (tokens) =>
      tokens.map((token, i) => {
        const spaced = token.replaceAll(replacement, " ");
        return i === 0 && !never && spaced.startsWith(" ") ? spaced.slice(1) : spaced;
      });
  },
  WordPiece: ({ prefix, cleanup }) => (tokens) =>
    tokens.map((token, i) => {
      const joined = i === 0 || !token.startsWith(prefix);
      const text = joined ? (i ? " " : "") + token : token.slice(prefix.length);
      return cleanup ? CLEANUPS.reduce((now, [from, to]) => now.replaceAll(from, to), text) : text;
    }),
  BPEDecoder: ({ suffix }) => (tokens) =>
    tokens.map((token, i) => token.replaceAll(suffix, i === tokens.length - 1 ? "" : " ")),
  ByteLevel: () => (tokens) => {
    const bytes = tokens.flatMap((token) => {
      const own = Array.from(token, (char) => BYTES.get(char));
      return own.includes(undefined) ? [...encoder.encode(token)] : own;
    });
    return [new TextDecoder().decode(Uint8Array.from(bytes))];
  },
  ByteFallback: () => byteFallback,
  Sequence: ({ decoders }) => {
    const steps = decoders.map(stepOf);
    return (tokens) => steps.reduce((now, step) => step(now), tokens);
  },
};

/** Return the function from token strings to a text that a "decoder" section describes. */
export function decoder(settings) {
  if (!settings) return (tokens) => tokens.join(" ");
  const step = stepOf(settings);
  return (tokens) => step(tokens).join("");
}

function stepOf(settings) {
  const build = DECODERS[settings.type];
  if (!build) throw new Error(`The decoder ${settings.type} is not supported.`);
  return build(settings);
}

function trimmed(token, content, start, stop) {
  const chars = [...token];
  for (let i = 0; i < start && chars[0] === content; i++) chars.shift();
  for (let i = 0; i < stop && chars.at(-1) === content; i++) chars.pop();
  return chars.join("");
}

function byteFallback(tokens) {
  const out = [];
  let bytes = [];
  const flush = () => {
    if (!bytes.length) return;
    try {
      out.push(new TextDecoder("utf-8", { fatal: true }).decode(Uint8Array.from(bytes)));
    } catch {
      out.push(...bytes.map(() => "\ufffd"));
    }
    bytes = [];
  };
  for (const token of tokens) {
    const byte = BYTE_NAME.exec(token);
    if (byte) bytes.push(parseInt(byte[1], 16));
    else flush() ?? out.push(token);
  }
  flush();
  return out;
}

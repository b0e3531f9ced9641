// The models of a tokenizer.json: a piece becomes rows of [id, start, end], in its characters.

const UNKNOWN_PENALTY = 10; // of a character that no entry of a unigram model has

const MODELS = { WordLevel: wordLevel, WordPiece: wordPiece, BPE: bpe, Unigram: unigram };
const encoder = new TextEncoder();

/** Return {entries, tokenize} of a "model" section: a Map of ids and a function from pieces. */
export function tokenModel(settings) {
  const type = settings.type ?? ("merges" in settings ? "BPE" : "WordPiece");
  if (!MODELS[type]) throw new Error(`The tokenizer model ${type} is not supported.`);
  return MODELS[type](settings);
}

function wordLevel({ vocab, unk_token }) {
  const entries = new Map(Object.entries(vocab));
  const unknown = entries.get(unk_token);
  const tokenize = (chars) => {
    const id = entries.get(chars.join("")) ?? unknown;
    return id === undefined ? [] : [[id, 0, chars.length]];
  };
  return { entries, tokenize };
}

function wordPiece(settings) {
  const { vocab, unk_token, continuing_subword_prefix: prefix, max_input_chars_per_word } = settings;
  const entries = new Map(Object.entries(vocab));
  const unknown = entries.get(unk_token);
  const tokenize = (chars) => {
    const out = [];
    let start = 0;
    while (start < chars.length && chars.length <= max_input_chars_per_word) {
      let end = chars.length, id;
      for (; end > start; end--) {
        const piece = chars.slice(start, end).join("");
        id = entries.get(start ? prefix + piece : piece);
        if (id !== undefined) break;
      }
      if (id === undefined) break;
      out.push([id, start, end]);
      start = end;
    }
    return start === chars.length ? out : [[unknown, 0, chars.length]];
  };
  return { entries, tokenize };
}

function bpe(settings) {
  const { vocab, merges, unk_token, continuing_subword_prefix, end_of_word_suffix } = settings;
  const { fuse_unk, byte_fallback, ignore_merges } = settings;
  const [prefix, suffix] = [continuing_subword_prefix ?? "", end_of_word_suffix ?? ""];
  const entries = new Map(Object.entries(vocab));
  const size = entries.size + 1;
  const unknown = unk_token === null ? undefined : entries.get(unk_token);
  const ranks = new Map(); // left · size + right -> [rank, joined]
  const spread = 2 ** 26; // above every id
  merges.forEach((merge, rank) => {
    const [left, right] = Array.isArray(merge) ? merge : merge.split(" ");
    const joined = entries.get(left + right.slice(prefix.length));
    ranks.set(entries.get(left) * spread + entries.get(right), [rank, joined]);
  });

  const symbols = (chars) => {
    const out = [];
    let unknownEnd = -1; // where a run of unknown characters ends that may grow
    chars.forEach((char, i) => {
      const spelled = (i ? prefix : "") + char + (i === chars.length - 1 ? suffix : "");
      const id = entries.get(spelled);
      if (id !== undefined) return out.push([id, i, i + 1]);
      if (byte_fallback) {
        const bytes = Array.from(encoder.encode(spelled), (byte) => entries.get(byteName(byte)));
        if (bytes.every((one) => one !== undefined)) {
          return bytes.forEach((one) => out.push([one, i, i + 1]));
        }
      }
      if (unknown === undefined) return 0;
      if (fuse_unk && unknownEnd === i) out.at(-1)[2] = i + 1;
      else out.push([unknown, i, i + 1]);
      unknownEnd = i + 1;
      return 0;
    });
    return out;
  };

  const tokenize = (chars) => {
    if (ignore_merges) {
      const id = entries.get(chars.join(""));
      if (id !== undefined) return [[id, 0, chars.length]];
    }
    const word = symbols(chars);
    if (!ranks.size || size < 2) return word;
    const ways = word.slice(1).map((right, i) => ranks.get(word[i][0] * spread + right[0]));
    for (;;) {
      let best = -1;
      for (let i = 0; i < ways.length; i++) {
        if (ways[i] && (best < 0 || ways[i][0] < ways[best][0])) best = i;
      }
      if (best < 0) return word;
      word.splice(best, 2, [ways[best][1], word[best][1], word[best + 1][2]]);
      ways.splice(best, 1);
      if (best > 0) ways[best - 1] = ranks.get(word[best - 1][0] * spread + word[best][0]);
      if (best < ways.length) ways[best] = ranks.get(word[best][0] * spread + word[best + 1][0]);
    }
  };
  return { entries, tokenize };
}

const byteName = (byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, "0")}>`;

function unigram({ vocab, unk_id, byte_fallback }) {
  const entries = new Map(vocab.map(([piece], id) => [piece, id]));
  const scores = vocab.map(([, score]) => score);
  const unknownScore = scores.reduce((a, b) => Math.min(a, b), Infinity) - UNKNOWN_PENALTY;
  const prefixes = new Set(); // of all entries, so that a search ends early
  for (const [piece] of vocab) {
    let prefix = "";
    for (const char of piece) prefixes.add((prefix += char));
  }

  /** Return [id, start, end] of the most probable pieces. */
  const bestPath = (chars) => {
    const best = Array.from({ length: chars.length + 1 }, () => [0, -1, 0]); // score, start, id
    const offer = (end, score, start, id) => {
      if (best[end][1] < 0 || score > best[end][0]) best[end] = [score, start, id];
    };
    chars.forEach((_, start) => {
      const [before] = best[start];
      let piece = "", known = false;
      for (let end = start + 1; end <= chars.length; end++) {
        piece += chars[end - 1];
        if (!prefixes.has(piece)) break;
        const id = entries.get(piece);
        if (id === undefined) continue;
        offer(end, scores[id] + before, start, id);
        known ||= end === start + 1;
      }
      if (!known) offer(start + 1, unknownScore + before, start, unk_id);
    });
    const path = [];
    for (let end = chars.length; end > 0; end = best[end][1]) {
      path.push([best[end][2], best[end][1], end]);
    }
    return path.reverse();
  };

  const tokenize = (chars) => {
    const out = [];
    for (const [id, start, end] of bestPath(chars)) {
      const previous = out.at(-1);
      if (id === unk_id && previous?.[0] === unk_id && previous[2] === start) previous[2] = end;
      else out.push([id, start, end]);
    }
    return out.flatMap(([id, start, end]) => {
      // A run of unknown characters may spell an entry that is never the best one.
      const spelled = id === unk_id ? entries.get(chars.slice(start, end).join("")) : id;
      if (spelled !== undefined) return [[spelled, start, end]];
      const bytes = Array.from(encoder.encode(chars.slice(start, end).join("")), byteName);
      const whole = byte_fallback && bytes.every((name) => entries.has(name));
      return whole ? bytes.map((name) => [entries.get(name), start, end]) : [[id, start, end]];
    });
  };
  return { entries, tokenize };
}

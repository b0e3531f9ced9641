// What is read of a text longer than the limit of a model.

const DEFAULT_MAX_CHARACTERS = 100000;

/** Return {text, kept}: a text of at most `data.max_characters`, and the fraction of it read. */
export function shortenText(text, data) {
  const most = data.max_characters ?? DEFAULT_MAX_CHARACTERS;
  const policy = data.truncate ?? "head";
  if (!most || text.length <= most) return { text, kept: 1 };
  const chars = [...text];
  const left = chars.length - most;
  if (left <= 0) return { text, kept: 1 };
  if (policy === "error") throw new Error(tooLong(chars.length, most, "characters"));
  const head = { tail: 0, "head+tail": most - Math.floor(most / 2) }[policy] ?? most;
  const shown = [...chars.slice(0, head), ...chars.slice(head + left)];
  return { text: shown.join(""), kept: 1 - left / chars.length };
}

export const tooLong = (size, limit, unit) =>
  `The text has ${size} ${unit}; the limit of this model is ${limit}.`;

/** Return the windows of a text as lists of [start, end], each window at most `limit` in all. */
export function splitWindows(length, limit, policy, overlap) {
  if (length <= limit) return [[[0, length]]];
  if (policy === "head") return [[[0, limit]]];
  if (policy === "tail") return [[[length - limit, length]]];
  if (policy === "head+tail") {
    const tail = Math.floor(limit / 2);
    return [[[0, limit - tail], [length - tail, length]].filter(([start, end]) => start < end)];
  }
  if (policy !== "windows") throw new Error(tooLong(length, limit, "tokens"));
  const step = Math.max(1, limit - roundHalfEven(overlap * limit));
  const starts = [];
  for (let start = 0; start < length - limit; start += step) starts.push(start);
  return [...starts, length - limit].map((start) => [[start, start + limit]]);
}

/** Return the windows [first, second] of a pair: the longer text is shortened first. */
export function splitPairWindows(first, second, limit, policy, overlap) {
  if (first + second <= limit) return [[[[0, first]], [[0, second]]]];
  const half = Math.floor(limit / 2);
  if (policy === "windows") {
    const kept = Math.min(first, Math.max(half, limit - second));
    const rest = splitWindows(second, Math.max(limit - kept, 1), policy, overlap);
    return rest.map((window) => [[[0, kept]], window]);
  }
  if (policy === "error") throw new Error(tooLong(first + second, limit, "tokens"));
  const short = Math.min(first, second, half);
  const a = Math.max(first > second ? limit - short : short, 1);
  const b = Math.max(limit - (first > second ? limit - short : short), 1);
  return [[splitWindows(first, a, policy)[0], splitWindows(second, b, policy)[0]]];
}

/** Round to the nearest integer, halves to the even one, as Python does. */
export function roundHalfEven(value) {
  const down = Math.floor(value);
  if (value - down !== 0.5) return Math.round(value);
  return down % 2 ? down + 1 : down;
}

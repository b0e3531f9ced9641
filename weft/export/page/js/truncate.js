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

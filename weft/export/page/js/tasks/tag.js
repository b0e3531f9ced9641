// Tags of words as an answer: tags, or the spans that they mark.

const MARKS = {
  IO: "IIII", IOB1: "IIII", IOB2: "BIIB", BILOU: "BILU", BIOES: "BIES", // first, inner, last, only
};
const ALIASES = { BIO: "IOB2", IOBES: "BIOES", BILUO: "BILOU" };

/** Return the function from {words, places, table, probs} to an answer. */
export function tagger(settings, space) {
  const fileScheme = canonical(settings.scheme ?? "");
  return (sentence) => {
    const { words, places, table, probs } = sentence;
    const columns = space.names.map((_, k) => table.map((row) => space.entries[k][row[k]]));
    const all = probs.flat();
    const base = { score: geometricMean(all), probs: all, wordProbs: probs.map((row) => Math.min(...row)) };
    if (!space.scheme) {
      const tags = words.map((_, t) => columns.map((column) => column[t]).join(" "));
      const value =
        columns.length > 1 ? words.map((_, t) => columns.map((column) => column[t])) : columns[0];
      return { ...base, value, structure: { kind: "tags", words, places, tags } };
    }
    const found = tagsToSpans(columns[0]);
    const spans = found.map(([label, i, j]) => [places[i][0], places[j - 1][1], label]);
    const value = found.map(([label, i, j], k) => ({
      label, start: spans[k][0], end: spans[k][1], text: words.slice(i, j).join(" "),
    }));
    const tags = spansToTags(found, words.length, fileScheme);
    return { ...base, value, structure: { kind: "spans", words, places, tags, spans } };
  };
}

/** Return e to the mean log-probability; 1 without any. */
export function geometricMean(probs) {
  if (!probs.length) return 1;
  const sum = probs.reduce((total, prob) => total + Math.log(Math.max(prob, 1e-12)), 0);
  return Math.exp(sum / probs.length);
}

const canonical = (scheme) => ALIASES[scheme.toUpperCase()] ?? scheme.toUpperCase();
const splitTag = (tag) => (tag === "O" ? ["O", ""] : [tag[0], tag.slice(2)]);

/** Return [label, start, end] of the spans as the conlleval script reads them. */
export function tagsToSpans(tags) {
  const out = [];
  let [start, open] = [-1, ""];
  tags.forEach((tag, at) => {
    const [mark, label] = splitTag(tag);
    if (start >= 0 && (mark === "O" || "BUS".includes(mark) || label !== open)) {
      out.push([open, start, at]);
      start = -1;
    }
    if (mark !== "O" && start < 0) [start, open] = [at, label];
    if ("LEUS".includes(mark)) {
      out.push([open, start, at + 1]);
      start = -1;
    }
  });
  if (start >= 0) out.push([open, start, tags.length]);
  return out;
}

function spansToTags(spans, length, scheme) {
  const out = Array(length).fill("O");
  const [first, inner, last, only] = MARKS[scheme];
  let [reach, before] = [0, ""];
  for (const [label, start, end] of spans) {
    out.fill(`${inner}-${label}`, start, end);
    out[start] = `${first}-${label}`;
    out[end - 1] = `${end - start > 1 ? last : only}-${label}`;
    if (scheme === "IOB1" && start === reach && label === before) out[start] = `B-${label}`;
    [reach, before] = [end, label];
  }
  return out;
}

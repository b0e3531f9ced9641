// One row as the input arrays of a graph: [values, shape] of 64-bit integers.

/** Return the inputs of a graph for a row. */
export function buildFeeds(row, reads, paired) {
  const { is_bi_encoder, input_kind } = reads;
  if (!is_bi_encoder) {
    const feeds = sideFeeds(row, 0, row.ids.length, reads, "");
    if (paired) feeds.second = vector([row.second]);
    else if (input_kind === "pairs") feeds.second = feeds.lengths;
    return feeds;
  }
  if (!paired) return { ...sideFeeds(row, 0, row.ids.length, reads, ""), ...sideFeeds(row, 0, 1, reads, "_2") };
  return {
    ...sideFeeds(row, 0, row.second, reads, ""),
    ...sideFeeds(row, row.second, row.ids.length, reads, "_2"),
  };
}

const vector = (values) => [values, [values.length]];
const matrix = (values) => [values, [1, values.length]];

function sideFeeds(row, start, end, reads, side) {
  const ids = row.ids.slice(start, end);
  const feeds = { [`ids${side}`]: matrix(ids), [`lengths${side}`]: vector([ids.length]) };
  if (row.subwords) Object.assign(feeds, subwordFeeds(row.subwords, reads));
  row.spellings.forEach((words, kind) => {
    Object.assign(feeds, spellingFeeds(words.slice(start, end), `${kind}${side}`));
  });
  return feeds;
}

/** Return each distinct word once, after an empty one, and the number of each word. */
function spellingFeeds(words, name) {
  const numbers = new Map([["", 0]]);
  const distinct = [[]];
  const index = words.map((word) => {
    const key = word.join(" ");
    if (!numbers.has(key)) {
      numbers.set(key, distinct.length);
      distinct.push(word);
    }
    return numbers.get(key);
  });
  const width = Math.max(...distinct.map((word) => word.length));
  const padded = distinct.flatMap((word) => [...word, ...Array(width - word.length).fill(0)]);
  return { [`spelled_${name}`]: [padded, [distinct.length, width]], [`spelling_${name}`]: matrix(index) };
}

/** Return the sub-tokens of words between special tokens, and the steps that each word pools. */
function subwordFeeds(words, { frame, subword_pooling: pooling }) {
  const steps = [...frame.before, ...words.flat(), ...frame.after];
  let at = frame.before.length;
  const pooled = words.map((word) => {
    const own = word.map((_, i) => at + i);
    at += word.length;
    if (pooling === "mean") return own;
    return pooling === "first" ? own.slice(0, 1) : own.slice(-1);
  });
  const widest = Math.max(1, ...pooled.map((own) => own.length));
  const index = pooled.flatMap((own) => [...own, ...Array(widest - own.length).fill(-1)]);
  return {
    steps: matrix(steps),
    step_lengths: vector([steps.length]),
    word_steps: [index, [1, words.length, widest]],
  };
}

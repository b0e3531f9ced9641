// Sequences of labels under a linear chain: emissions (T, C), start, end, transitions (C · C).

/** Return the best label of each step. */
export function viterbi(emissions, { start, end, transitions }) {
  if (!emissions.length) return [];
  const size = start.length;
  let best = start.map((value, k) => value + emissions[0][k]);
  const origins = [];
  for (const now of emissions.slice(1)) {
    const [next, origin] = [new Float64Array(size), new Int32Array(size)];
    for (let to = 0; to < size; to++) {
      let [top, from] = [-Infinity, 0];
      for (let k = 0; k < size; k++) {
        const score = best[k] + transitions[k * size + to];
        if (score > top) [top, from] = [score, k];
      }
      next[to] = top + now[to];
      origin[to] = from;
    }
    origins.push(origin);
    best = next;
  }
  const path = [argmax(best.map((value, k) => value + end[k]))];
  for (const origin of origins.reverse()) path.push(origin[path.at(-1)]);
  return path.reverse();
}

/** Return the probability (T, C) of each label at each step, by forward-backward. */
export function marginals(emissions, { start, end, transitions }) {
  if (!emissions.length) return [];
  const size = start.length;
  const left = [start.map((value, k) => value + emissions[0][k])];
  for (const now of emissions.slice(1)) {
    const before = left.at(-1);
    left.push(
      Float64Array.from(now, (value, to) =>
        value + logSum(before.map((score, k) => score + transitions[k * size + to])),
      ),
    );
  }
  const right = [Float64Array.from(end)];
  for (let t = emissions.length - 1; t > 0; t--) {
    const after = right.at(-1).map((score, k) => score + emissions[t][k]);
    right.push(
      after.map((_, from) => logSum(after.map((score, k) => score + transitions[from * size + k]))),
    );
  }
  right.reverse();
  const total = logSum(left.at(-1).map((score, k) => score + end[k]));
  return left.map((row, t) => row.map((score, k) => Math.exp(score + right[t][k] - total)));
}

/** Return log Σ exp; -Infinity where all are. */
export function logSum(scores) {
  const top = scores.reduce((a, b) => Math.max(a, b), -Infinity);
  if (top === -Infinity) return top;
  return top + Math.log(scores.reduce((sum, score) => sum + Math.exp(score - top), 0));
}

/** Return the index of the first highest value. */
export function argmax(values) {
  let best = 0;
  for (let k = 1; k < values.length; k++) if (values[k] > values[best]) best = k;
  return best;
}

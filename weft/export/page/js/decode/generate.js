// Generated text, token by token: greedy search and sampling with the random numbers of Weft.

import { argmax, logSum } from "./chain.js";

const GOLDEN_GAMMA = 0x9e3779b97f4a7c15n;
const wrap = (number) => BigInt.asUintN(64, number);

/** Scramble 64 bits: the output function of SplitMix64 (Steele et al. 2014). */
function mix64(number) {
  number = wrap((number ^ (number >> 30n)) * 0xbf58476d1ce4e5b9n);
  number = wrap((number ^ (number >> 27n)) * 0x94d049bb133111ebn);
  return number ^ (number >> 31n);
}

/** Return the function from a step to a number in [0, 1). */
export function randomStream(seed) {
  const row = mix64(wrap(BigInt(seed) + GOLDEN_GAMMA));
  const stream = mix64(wrap(row + GOLDEN_GAMMA));
  return (step) => Number(mix64(wrap(stream + BigInt(step + 1) * GOLDEN_GAMMA)) >> 11n) * 2 ** -53;
}

/**
 * Yield {id, probability} of each token after a state, up to `end` or `max_length`.
 *
 * `source` has logits(state) and follow(state, id).
 */
export async function* generate(source, state, settings, { end, forbidden }) {
  const { method = "sample", max_length = 200, min_length = 0, seed = 0 } = settings;
  const random = randomStream(seed);
  const seen = []; // what was generated
  for (let step = 0; step < max_length; step++) {
    const logits = Float64Array.from(await source.logits(state));
    const total = logSum(logits);
    const logp = logits.map((logit) => logit - total);
    const allowed = constrain(logits, seen, step, { ...settings, min_length, end, forbidden });
    const id = method === "sample" ? sample(allowed, random(step), settings) : argmax(allowed);
    yield { id, probability: Math.exp(logp[id]) };
    if (id === end) return;
    seen.push(id);
    state = await source.follow(state, id);
  }
}

/** Return log-probabilities of logits, with -Infinity for what may not come next. */
export function constrain(logits, seen, step, settings) {
  const { repetition_penalty = 1, no_repeat_ngram_size: size = 0, min_length, end, forbidden } = settings;
  const out = logits.slice();
  if (repetition_penalty !== 1) {
    for (const id of new Set(seen)) {
      if (id < out.length) out[id] *= out[id] > 0 ? 1 / repetition_penalty : repetition_penalty;
    }
  }
  const total = logSum(out);
  for (const id of out.keys()) out[id] -= total;
  for (const id of forbidden) if (id < out.length) out[id] = -Infinity;
  if (step + 1 < min_length) out[end] = -Infinity;
  if (size > 0) {
    const tail = seen.slice(Math.max(0, seen.length - size + 1));
    for (let i = 0; i + size <= seen.length; i++) {
      if (tail.every((id, k) => seen[i + k] === id)) out[seen[i + size - 1]] = -Infinity;
    }
  }
  return out;
}

/** Return one token by inverting the cumulative distribution of those that are kept. */
export function sample(logp, number, { temperature = 1, top_k = 0, top_p = 1, typical_p = 1 }) {
  let ids = Array.from(logp, (_, id) => id);
  let weights = temperature === 1 ? logp : logp.map((value) => value / temperature);
  const sort = (order) => ids.sort((a, b) => order[b] - order[a] || a - b);
  const normalise = () => {
    const total = logSum(ids.map((id) => weights[id]));
    weights = weights.map((value) => value - total);
  };
  const keepMass = (order, most) => {
    let mass = 0;
    ids = sort(order).filter((id, i) => {
      const kept = i === 0 || mass < most;
      mass += Math.exp(weights[id]);
      return kept;
    });
  };
  if (top_k > 0 && top_k < ids.length) ids = sort(weights).slice(0, top_k);
  if (top_p < 1) {
    normalise();
    keepMass(weights, top_p);
  }
  if (typical_p < 1) {
    normalise();
    const surprise = weights.map((value) => (value > -Infinity ? -value : 0));
    const expected = ids.reduce((sum, id) => sum + Math.exp(weights[id]) * surprise[id], 0);
    keepMass(weights.map((value, id) => (value > -Infinity ? -Math.abs(surprise[id] - expected) : value)), typical_p);
  }
  const top = ids.reduce((a, id) => Math.max(a, weights[id]), -Infinity);
  let sum = 0;
  const sums = ids.map((id) => (sum += Math.exp(weights[id] - top)));
  const threshold = Math.min(number * sum, sum * (1 - 2 ** -53));
  return ids[Math.max(0, sums.findIndex((value) => value > threshold))];
}

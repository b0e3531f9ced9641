// The span of a passage that answers a question.

import { logSum } from "./chain.js";

/** Return the best span of a window: first and last step, score, that of none, of all spans. */
export function windowSpan(starts, ends, longest) {
  const steps = starts.length - 1; // the first is "no answer"
  let best = { first: 0, last: 0, score: -Infinity };
  const scores = [];
  for (let first = 0; first < steps; first++) {
    for (let last = first; last < Math.min(first + longest, steps); last++) {
      const score = Math.fround(starts[first + 1] + ends[last + 1]);
      scores.push(score);
      if (score > best.score) best = { first, last, score };
    }
  }
  return { ...best, nothing: Math.fround(starts[0] + ends[0]), all: logSum(scores) };
}

/** Return the best span over the windows of a passage, with probabilities. */
export function chooseSpan(windows) {
  if (!windows.length) return { start: 0, end: 0, prob: 0, noAnswerProb: 0, margin: 0 };
  const best = windows.reduce((a, b) => (b.score > a.score ? b : a));
  const nothing = Math.min(...windows.map((window) => window.nothing));
  const whole = logSum([...windows.map((window) => window.all), nothing]);
  return {
    start: best.spans[best.first][0],
    end: best.spans[best.last][1],
    prob: Math.exp(best.score - whole),
    noAnswerProb: Math.exp(nothing - whole),
    margin: nothing - best.score,
  };
}

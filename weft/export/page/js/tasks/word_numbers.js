// A number for every word, in the user's unit.

const FULL_COLOUR = 3; // standard deviations from the mean

export function numbersAnswer(space, { words, places }, standard) {
  const numbers = standard.map((value) => value * space.deviation + space.mean);
  const score = numbers.length ? numbers.reduce((a, b) => a + b, 0) / numbers.length : 0;
  const scores = standard.map((value) => Math.max(-1, Math.min(1, value / FULL_COLOUR)));
  const tags = numbers.map((value) => String(Number(value.toPrecision(4))));
  return {
    value: numbers,
    score,
    probs: standard,
    structure: { kind: "word-numbers", words, places, tags, scores },
  };
}

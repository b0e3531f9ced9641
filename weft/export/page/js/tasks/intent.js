// The intent of a sentence with its slots.

import { geometricMean, tagger } from "./tag.js";

/** Return the function from words and the probabilities of intents to an answer. */
export function intentAnswer(settings, space) {
  const slots = tagger(settings, { ...space, names: space.names.slice(0, 1) });
  return (sentence, best, probs) => {
    const { value, structure, wordProbs } = slots(sentence);
    const known = sentence.words.length > 0;
    const sure = known ? Math.fround(probs[best]) : 0;
    const all = [...sentence.probs.map(([prob]) => prob), sure];
    const intent = known ? space.entries[1][best] : null;
    return {
      value: { intent, slots: value },
      score: known ? geometricMean(all) : 0,
      probs: all,
      wordProbs,
      structure: { ...structure, label: intent ?? "", labelScore: sure },
    };
  };
}

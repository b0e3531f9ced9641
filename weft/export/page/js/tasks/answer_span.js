// The answer to a question in a passage.

/** Return the answer of the best span, or "" where there is none. */
export function answerSpan(span, passage, space) {
  const text = [...passage].slice(span.start, span.end).join("");
  const none = !text || (space.no_answer && span.margin > space.threshold);
  const prob = none ? span.noAnswerProb : span.prob;
  const spans = none ? [] : [[span.start, span.end, "answer"]];
  return {
    value: none ? "" : text,
    score: prob,
    probs: [span.prob, span.noAnswerProb],
    structure: { kind: "answer", words: [], spans },
  };
}

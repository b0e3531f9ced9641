// Logits as probabilities.

export function softmax(logits, scale = 1) {
  const scaled = Float64Array.from(logits, (logit) => logit * scale);
  const top = scaled.reduce((a, b) => Math.max(a, b), -Infinity);
  const raised = scaled.map((logit) => Math.exp(logit - top));
  const total = raised.reduce((a, b) => a + b, 0);
  return raised.map((value) => value / total);
}

export const sigmoid = (logits, scale = 1) =>
  Float64Array.from(logits, (logit) => 1 / (1 + Math.exp(-logit * scale)));

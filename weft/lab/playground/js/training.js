// Batches, Adam and gradient clipping: one update of a classifier.

import { backward, crossEntropy, withoutGradients } from "./tensor.js";

// Pad texts of token ids to one length, time-major.
export function collate(examples) {
  const B = examples.length, lengths = examples.map((example) => example.ids.length);
  const ids = new Int32Array(Math.max(...lengths) * B);
  examples.forEach((example, b) => example.ids.forEach((id, t) => { ids[t * B + b] = id; }));
  return {ids, lengths, labels: examples.map((example) => example.label)};
}

// Scale all gradients so that their joint norm is at most `limit`; 0 leaves them as they are.
// Returns the norm before, as torch.nn.utils.clip_grad_norm_.
export function clipGradients(params, limit) {
  let squares = 0;
  for (const {grad} of params) for (const g of grad) squares += g * g;
  const norm = Math.sqrt(squares), factor = limit / (norm + 1e-6);
  if (limit > 0 && factor < 1) {
    for (const {grad} of params) for (let i = 0; i < grad.length; i++) grad[i] *= factor;
  }
  return norm;
}

// Adam with the defaults of torch.optim.Adam.
export class Adam {
  constructor(params) {
    this.step = 0;
    this.params = params;
    this.first = params.map(({data}) => new Float64Array(data.length));
    this.second = params.map(({data}) => new Float64Array(data.length));
  }

  update(rate) {
    this.step += 1;
    const size = rate / (1 - 0.9 ** this.step), correction = Math.sqrt(1 - 0.999 ** this.step);
    this.params.forEach(({data, grad}, p) => {
      const first = this.first[p], second = this.second[p];
      for (let i = 0; i < data.length; i++) {
        const g = grad[i];
        first[i] = 0.9 * first[i] + 0.1 * g;
        second[i] = 0.999 * second[i] + 0.001 * g * g;
        data[i] -= (size * first[i]) / (Math.sqrt(second[i]) / correction + 1e-8);
        grad[i] = 0;
      }
    });
  }
}

// One update. Returns the loss, the gradient norm before clipping, the number of correct texts, and
// the norm of d loss / d input by distance to the last token, averaged over the texts that have it.
export function trainStep(model, optimizer, examples, {rate, clip}) {
  const {ids, lengths, labels} = collate(examples);
  const {logits, inputs} = model.forward(ids, lengths);
  const [loss, probs] = crossEntropy(logits, labels);
  backward(loss);
  const byDistance = inputGradients(inputs, lengths);
  const norm = clipGradients(optimizer.params, clip);
  optimizer.update(rate);
  return {loss: loss.data[0], norm, correct: countCorrect(probs, labels), byDistance};
}

export function inputGradients(inputs, lengths) {
  const B = lengths.length, D = inputs.cols, T = inputs.rows / B;
  const sums = new Float64Array(T), counts = new Float64Array(T);
  lengths.forEach((length, b) => {
    for (let t = 0; t < length; t++) {
      let squares = 0;
      for (const g of inputs.grad.subarray((t * B + b) * D, (t * B + b + 1) * D)) squares += g * g;
      sums[length - 1 - t] += Math.sqrt(squares) * B; // of one text's loss, not of the mean's
      counts[length - 1 - t] += 1;
    }
  });
  return sums.map((sum, distance) => sum / Math.max(counts[distance], 1));
}

const argmax = (values) => values.indexOf(Math.max(...values));
const countCorrect = (probs, labels) =>
  labels.reduce((sum, label, b) => sum + (argmax(probs[b]) === label ? 1 : 0), 0);

// Loss and accuracy on texts that are not trained on.
export function evaluate(model, examples) {
  return withoutGradients(() => {
    const {ids, lengths, labels} = collate(examples);
    const [loss, probs] = crossEntropy(model.forward(ids, lengths).logits, labels);
    return {loss: loss.data[0], accuracy: countCorrect(probs, labels) / labels.length};
  });
}

// Probabilities, states (T x H) and attention maps of one text.
export function inspectText(model, ids) {
  return withoutGradients(() => {
    const {logits, states, maps} = model.forward(Int32Array.from(ids), [ids.length]);
    const [, [probs]] = crossEntropy(logits, [0]);
    return {probs, states, maps: maps.map(([name, weights]) => [name, weights(0)])};
  });
}

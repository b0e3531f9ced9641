// Seven encoders for sequences under one classifier. Parameters have the names, shapes and first
// distributions of the torch modules that they stand for.

import {
  add,
  attend,
  embed,
  gruStep,
  lastStep,
  layerNorm,
  linear,
  lstmStep,
  maxOverTime,
  meanOverTime,
  relu,
  tanh,
  Tensor,
  unfold,
  weightedMean,
} from "./tensor.js";

export const MODELS = {
  bag: "Bag of words",
  cnn: "CNN",
  elman: "Elman network",
  gru: "GRU",
  lstm: "LSTM",
  attention: "Attention",
  transformer: "Transformer",
};
const KERNEL = 3; // tokens that a convolution sees
const HEADS = 2;
export const MAX_TOKENS = 64;

// Mulberry32, a small generator with a period of 2^32.
export function randomNumbers(seed) {
  let state = seed >>> 0;
  const uniform = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = Math.imul(state ^ (state >>> 15), state | 1);
    t = (t + Math.imul(t ^ (t >>> 7), t | 61)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    uniform,
    below: (n) => Math.floor(uniform() * n),
    normal: () => Math.sqrt(-2 * Math.log(1 - uniform())) * Math.cos(2 * Math.PI * uniform()),
  };
}

// A classifier of texts of token ids. `forward` returns logits (B x labels), the input vectors and
// the states of all tokens (T*B x H), and attention weights as [name, text => T x T or 1 x T].
export class Classifier {
  constructor({model, vocabulary, labels, width, layers = 1, positions = true, seed = 0}) {
    if (!(model in MODELS)) throw new Error(`No model ${model}.`);
    Object.assign(this, {model, width, layers, positions});
    this.params = {};
    const random = randomNumbers(seed), H = width;
    const create = (name, rows, cols, draw) => {
      const tensor = new Tensor(rows, cols);
      for (let i = 0; i < tensor.data.length; i++) tensor.data[i] = draw();
      this.params[name] = tensor;
    };
    const within = (bound) => () => (2 * random.uniform() - 1) * bound;
    const dense = (name, outputs, inputs) => {
      create(`${name}.weight`, outputs, inputs, within(1 / Math.sqrt(inputs)));
      create(`${name}.bias`, 1, outputs, within(1 / Math.sqrt(inputs)));
    };
    const norm = (name) => {
      create(`${name}.weight`, 1, H, () => 1);
      create(`${name}.bias`, 1, H, () => 0);
    };
    create("embed.weight", vocabulary, H, random.normal);
    if (model === "cnn") dense("conv", H, H * KERNEL);
    if (this.gates) {
      for (const name of ["weight_ih_l0", "weight_hh_l0"]) {
        create(`rnn.${name}`, this.gates * H, H, within(1 / Math.sqrt(H)));
      }
      for (const name of ["bias_ih_l0", "bias_hh_l0"]) {
        create(`rnn.${name}`, 1, this.gates * H, within(1 / Math.sqrt(H)));
      }
    }
    if (model === "attention") {
      dense("score", H, H);
      create("query.weight", 1, H, within(1 / Math.sqrt(H)));
    }
    if (model === "transformer") {
      if (positions) create("positions.weight", MAX_TOKENS, H, random.normal);
      for (let i = 0; i < layers; i++) {
        const layer = `encoder.layers.${i}`;
        create(`${layer}.self_attn.in_proj_weight`, 3 * H, H, within(Math.sqrt(6 / (4 * H))));
        create(`${layer}.self_attn.in_proj_bias`, 1, 3 * H, () => 0);
        create(`${layer}.self_attn.out_proj.weight`, H, H, within(1 / Math.sqrt(H)));
        create(`${layer}.self_attn.out_proj.bias`, 1, H, () => 0);
        dense(`${layer}.linear1`, 2 * H, H);
        dense(`${layer}.linear2`, H, 2 * H);
        norm(`${layer}.norm1`);
        norm(`${layer}.norm2`);
      }
      norm("encoder.norm");
    }
    dense("out", labels, H);
  }

  get gates() {
    return {elman: 1, gru: 3, lstm: 4}[this.model] || 0;
  }

  get size() {
    return Object.values(this.params).reduce((sum, tensor) => sum + tensor.data.length, 0);
  }

  // `ids` of all texts, time-major and padded with any id; `lengths` of the texts.
  forward(ids, lengths) {
    const inputs = embed(this.params["embed.weight"], ids);
    const {states, pooled, maps = []} = this.encode(inputs, lengths);
    const logits = this.apply("out", pooled);
    return {logits, inputs, states, maps};
  }

  encode(inputs, lengths) {
    if (this.model === "bag") return {states: inputs, pooled: meanOverTime(inputs, lengths)};
    if (this.model === "cnn") {
      const states = relu(this.apply("conv", unfold(inputs, lengths, KERNEL)));
      return {states, pooled: maxOverTime(states, lengths)};
    }
    if (this.model === "attention") {
      const scores = linear(tanh(this.apply("score", inputs)), this.params["query.weight"]);
      const [pooled, weights] = weightedMean(inputs, scores, lengths);
      return {states: inputs, pooled, maps: [["weights", (b) => [weights[b]]]]};
    }
    if (this.model === "transformer") return this.transform(inputs, lengths);
    const states = this.recur(inputs, lengths.length);
    return {states, pooled: lastStep(states, lengths)};
  }

  recur(inputs, B) {
    const weights = (name) => this.params[`rnn.${name}_l0`];
    const T = inputs.rows / B, states = new Tensor(inputs.rows, this.width);
    const fromInputs = linear(inputs, weights("weight_ih"), weights("bias_ih"));
    let state = new Tensor(B, this.width), cell = new Tensor(B, this.width);
    for (let t = 0; t < T; t++) {
      const out = states.slice(t * B, B), fromInput = fromInputs.slice(t * B, B);
      const fromState = linear(state, weights("weight_hh"), weights("bias_hh"));
      if (this.model === "elman") tanh(add(fromInput, fromState), out);
      if (this.model === "gru") gruStep(fromInput, fromState, state, out);
      if (this.model === "lstm") cell = lstmStep(add(fromInput, fromState), cell, out);
      state = out;
    }
    return states;
  }

  // Layers that normalise before attention and before the feed-forward block.
  transform(inputs, lengths) {
    const B = lengths.length, maps = [];
    let x = inputs;
    if (this.positions) {
      const steps = Int32Array.from({length: x.rows}, (_, row) => Math.floor(row / B));
      x = add(x, embed(this.params["positions.weight"], steps));
    }
    for (let i = 0; i < this.layers; i++) {
      const layer = `encoder.layers.${i}`, attention = `${layer}.self_attn`;
      const qkv = linear(this.normalise(`${layer}.norm1`, x),
        this.params[`${attention}.in_proj_weight`], this.params[`${attention}.in_proj_bias`]);
      const [context, weights] = attend(qkv, lengths, HEADS);
      for (let head = 0; head < HEADS; head++) {
        maps.push([`layer ${i + 1}, head ${head + 1}`, (b) => weights[b][head]]);
      }
      x = add(x, this.apply(`${attention}.out_proj`, context));
      const hidden = relu(this.apply(`${layer}.linear1`, this.normalise(`${layer}.norm2`, x)));
      x = add(x, this.apply(`${layer}.linear2`, hidden));
    }
    x = this.normalise("encoder.norm", x);
    return {states: x, pooled: meanOverTime(x, lengths), maps};
  }

  apply(name, x) {
    return linear(x, this.params[`${name}.weight`], this.params[`${name}.bias`]);
  }

  normalise(name, x) {
    return layerNorm(x, this.params[`${name}.weight`], this.params[`${name}.bias`]);
  }
}

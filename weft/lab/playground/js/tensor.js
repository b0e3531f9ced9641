// Matrices of float64 and reverse-mode differentiation: every operation records its derivative.
//
// Shapes: B texts, T time steps, D inputs, H units. Rows of a sequence are time-major: step t of
// text b is row t * B + b, so that one time step is a view of contiguous rows.

let tape = []; // derivatives of the operations so far, in order
let recording = true;

export class Tensor {
  constructor(rows, cols, data, grad) {
    this.rows = rows;
    this.cols = cols;
    this.data = data || new Float64Array(rows * cols);
    this.grad = grad || (recording ? new Float64Array(rows * cols) : null);
  }

  // Rows that share memory with this tensor, gradient included.
  slice(start, count) {
    const from = start * this.cols, to = (start + count) * this.cols;
    return new Tensor(count, this.cols, this.data.subarray(from, to),
      this.grad && this.grad.subarray(from, to));
  }
}

function record(derivative) {
  if (recording) tape.push(derivative);
}

export function withoutGradients(compute) {
  recording = false;
  try {
    return compute();
  } finally {
    recording = true;
  }
}

// Run the derivatives backwards from a 1 x 1 loss; gradients add up in `grad`.
export function backward(loss) {
  loss.grad[0] = 1;
  for (let i = tape.length - 1; i >= 0; i--) tape[i]();
  tape = [];
}

// x W^T + b, as torch.nn.Linear. Four outputs at a time: one sum would wait for itself.
export function linear(x, weight, bias) {
  const rows = x.rows, inputs = x.cols, outputs = weight.rows;
  const y = new Tensor(rows, outputs), xs = x.data, ws = weight.data, ys = y.data;
  const blocks = outputs - (outputs % 4);
  for (let r = 0; r < rows; r++) {
    const row = r * inputs, end = row + inputs, to = r * outputs;
    if (bias) ys.set(bias.data, to);
    for (let o = 0; o < blocks; o += 4) {
      let b = o * inputs, s0 = 0, s1 = 0, s2 = 0, s3 = 0;
      for (let a = row; a < end; a++, b++) {
        const v = xs[a];
        s0 += v * ws[b];
        s1 += v * ws[b + inputs];
        s2 += v * ws[b + 2 * inputs];
        s3 += v * ws[b + 3 * inputs];
      }
      ys[to + o] += s0;
      ys[to + o + 1] += s1;
      ys[to + o + 2] += s2;
      ys[to + o + 3] += s3;
    }
    for (let o = blocks; o < outputs; o++) {
      for (let a = row, b = o * inputs; a < end; a++, b++) ys[to + o] += xs[a] * ws[b];
    }
  }
  record(() => {
    const dx = x.grad, dw = weight.grad, dy = y.grad;
    for (let r = 0; r < rows; r++) {
      const row = r * inputs, end = row + inputs, from = r * outputs;
      if (bias) for (let o = 0; o < outputs; o++) bias.grad[o] += dy[from + o];
      for (let o = 0; o < blocks; o += 4) {
        const g0 = dy[from + o], g1 = dy[from + o + 1], g2 = dy[from + o + 2], g3 = dy[from + o + 3];
        for (let a = row, b = o * inputs; a < end; a++, b++) {
          const v = xs[a], b1 = b + inputs, b2 = b1 + inputs, b3 = b2 + inputs;
          dx[a] += g0 * ws[b] + g1 * ws[b1] + g2 * ws[b2] + g3 * ws[b3];
          dw[b] += g0 * v;
          dw[b1] += g1 * v;
          dw[b2] += g2 * v;
          dw[b3] += g3 * v;
        }
      }
      for (let o = blocks; o < outputs; o++) {
        const g = dy[from + o];
        for (let a = row, b = o * inputs; a < end; a++, b++) {
          dx[a] += g * ws[b];
          dw[b] += g * xs[a];
        }
      }
    }
  });
  return y;
}

export function embed(table, ids) {
  const width = table.cols, y = new Tensor(ids.length, width);
  ids.forEach((id, r) => y.data.set(table.data.subarray(id * width, (id + 1) * width), r * width));
  record(() => {
    for (let r = 0; r < ids.length; r++) {
      for (let i = 0; i < width; i++) table.grad[ids[r] * width + i] += y.grad[r * width + i];
    }
  });
  return y;
}

export function add(a, b) {
  const y = new Tensor(a.rows, a.cols);
  for (let i = 0; i < y.data.length; i++) y.data[i] = a.data[i] + b.data[i];
  record(() => {
    for (let i = 0; i < y.data.length; i++) {
      a.grad[i] += y.grad[i];
      b.grad[i] += y.grad[i];
    }
  });
  return y;
}

// An elementwise function; `slope` is its derivative in terms of its value.
function elementwise(x, value, slope, out) {
  const y = out || new Tensor(x.rows, x.cols);
  for (let i = 0; i < y.data.length; i++) y.data[i] = value(x.data[i]);
  record(() => {
    for (let i = 0; i < y.data.length; i++) x.grad[i] += y.grad[i] * slope(y.data[i]);
  });
  return y;
}

export const tanh = (x, out) => elementwise(x, Math.tanh, (y) => 1 - y * y, out);
export const relu = (x) => elementwise(x, (v) => (v > 0 ? v : 0), (y) => (y > 0 ? 1 : 0));
const sigmoid = (v) => 1 / (1 + Math.exp(-v));

// One step of torch.nn.LSTM from its summed projections z (B x 4H), gates in the order i, f, g, o.
export function lstmStep(z, cell, out) {
  const rows = cell.rows, H = cell.cols, next = new Tensor(rows, H);
  const gates = new Float64Array(z.data.length), squashed = new Float64Array(rows * H);
  for (let r = 0; r < rows; r++) {
    for (let j = 0; j < H; j++) {
      const k = r * H + j, n = r * 4 * H + j;
      const i = (gates[n] = sigmoid(z.data[n]));
      const f = (gates[n + H] = sigmoid(z.data[n + H]));
      const g = (gates[n + 2 * H] = Math.tanh(z.data[n + 2 * H]));
      const o = (gates[n + 3 * H] = sigmoid(z.data[n + 3 * H]));
      next.data[k] = f * cell.data[k] + i * g;
      squashed[k] = Math.tanh(next.data[k]);
      out.data[k] = o * squashed[k];
    }
  }
  record(() => {
    for (let r = 0; r < rows; r++) {
      for (let j = 0; j < H; j++) {
        const k = r * H + j, n = r * 4 * H + j;
        const i = gates[n], f = gates[n + H], g = gates[n + 2 * H], o = gates[n + 3 * H];
        const dh = out.grad[k];
        const dc = next.grad[k] + dh * o * (1 - squashed[k] * squashed[k]);
        z.grad[n] += dc * g * i * (1 - i);
        z.grad[n + H] += dc * cell.data[k] * f * (1 - f);
        z.grad[n + 2 * H] += dc * i * (1 - g * g);
        z.grad[n + 3 * H] += dh * squashed[k] * o * (1 - o);
        cell.grad[k] += dc * f;
      }
    }
  });
  return next;
}

// One step of torch.nn.GRU from its projections of input and state (B x 3H), gates r, z, n:
// n = tanh(x_n + r * h_n) and h' = (1 - z) n + z h.
export function gruStep(fromInput, fromState, state, out) {
  const rows = state.rows, H = state.cols, gates = new Float64Array(rows * 3 * H);
  for (let row = 0; row < rows; row++) {
    for (let j = 0; j < H; j++) {
      const k = row * H + j, m = row * 3 * H + j;
      const r = (gates[m] = sigmoid(fromInput.data[m] + fromState.data[m]));
      const z = (gates[m + H] = sigmoid(fromInput.data[m + H] + fromState.data[m + H]));
      const n = (gates[m + 2 * H] = Math.tanh(
        fromInput.data[m + 2 * H] + r * fromState.data[m + 2 * H]));
      out.data[k] = (1 - z) * n + z * state.data[k];
    }
  }
  record(() => {
    for (let row = 0; row < rows; row++) {
      for (let j = 0; j < H; j++) {
        const k = row * H + j, m = row * 3 * H + j, dh = out.grad[k];
        const r = gates[m], z = gates[m + H], n = gates[m + 2 * H];
        const dn = dh * (1 - z) * (1 - n * n);
        const dz = dh * (state.data[k] - n) * z * (1 - z);
        const dr = dn * fromState.data[m + 2 * H] * r * (1 - r);
        fromInput.grad[m] += dr;
        fromInput.grad[m + H] += dz;
        fromInput.grad[m + 2 * H] += dn;
        fromState.grad[m] += dr;
        fromState.grad[m + H] += dz;
        fromState.grad[m + 2 * H] += dn * r;
        state.grad[k] += dh * z;
      }
    }
  });
}

// Windows of `size` steps around each step, zeros outside the text: the columns of torch.nn.Conv1d's
// weight (H x D x size) flattened, so that a convolution is a linear layer over them.
export function unfold(x, lengths, size) {
  const B = lengths.length, T = x.rows / B, D = x.cols, left = (size - 1) >> 1;
  const y = new Tensor(x.rows, D * size);
  const eachCell = (visit) => {
    for (let t = 0; t < T; t++) {
      for (let b = 0; b < B; b++) {
        for (let s = 0; s < size; s++) {
          const from = t + s - left;
          if (from < 0 || from >= lengths[b]) continue;
          for (let d = 0; d < D; d++) {
            visit((t * B + b) * D * size + d * size + s, (from * B + b) * D + d);
          }
        }
      }
    }
  };
  eachCell((to, from) => { y.data[to] = x.data[from]; });
  record(() => eachCell((to, from) => { x.grad[from] += y.grad[to]; }));
  return y;
}

export function meanOverTime(x, lengths) {
  const B = lengths.length, D = x.cols, y = new Tensor(B, D);
  const eachCell = (visit) => {
    for (let b = 0; b < B; b++) {
      for (let t = 0; t < lengths[b]; t++) {
        for (let d = 0; d < D; d++) visit(b * D + d, (t * B + b) * D + d, lengths[b]);
      }
    }
  };
  eachCell((to, from, n) => { y.data[to] += x.data[from] / n; });
  record(() => eachCell((to, from, n) => { x.grad[from] += y.grad[to] / n; }));
  return y;
}

export function maxOverTime(x, lengths) {
  const B = lengths.length, D = x.cols, y = new Tensor(B, D), best = new Int32Array(B * D);
  for (let b = 0; b < B; b++) {
    for (let d = 0; d < D; d++) {
      let at = b * D + d;
      for (let t = 1; t < lengths[b]; t++) {
        if (x.data[(t * B + b) * D + d] > x.data[at]) at = (t * B + b) * D + d;
      }
      best[b * D + d] = at;
      y.data[b * D + d] = x.data[at];
    }
  }
  record(() => best.forEach((at, k) => { x.grad[at] += y.grad[k]; }));
  return y;
}

// The state at the last token of each text.
export function lastStep(x, lengths) {
  const B = lengths.length, D = x.cols, y = new Tensor(B, D);
  lengths.forEach((n, b) => {
    const from = ((n - 1) * B + b) * D;
    y.data.set(x.data.subarray(from, from + D), b * D);
  });
  record(() => lengths.forEach((n, b) => {
    for (let d = 0; d < D; d++) x.grad[((n - 1) * B + b) * D + d] += y.grad[b * D + d];
  }));
  return y;
}

function softmaxInPlace(values) {
  let top = -Infinity, sum = 0;
  for (const v of values) top = Math.max(top, v);
  for (let i = 0; i < values.length; i++) sum += values[i] = Math.exp(values[i] - top);
  for (let i = 0; i < values.length; i++) values[i] /= sum;
  return values;
}

// The derivative of a softmax: weights and their gradients to gradients of the scores.
function softmaxSlope(weights, dWeights) {
  let dot = 0;
  for (let i = 0; i < weights.length; i++) dot += weights[i] * dWeights[i];
  return weights.map((w, i) => w * (dWeights[i] - dot));
}

// The mean of x over time, weighted by the softmax of scores (T*B x 1). Returns the weights, too.
export function weightedMean(x, scores, lengths) {
  const B = lengths.length, D = x.cols, y = new Tensor(B, D);
  const weights = Array.from(lengths, (n, b) =>
    softmaxInPlace(Float64Array.from({length: n}, (_, t) => scores.data[t * B + b])));
  weights.forEach((row, b) => row.forEach((w, t) => {
    for (let d = 0; d < D; d++) y.data[b * D + d] += w * x.data[(t * B + b) * D + d];
  }));
  record(() => weights.forEach((row, b) => {
    const dRow = new Float64Array(row.length);
    row.forEach((w, t) => {
      for (let d = 0; d < D; d++) {
        const at = (t * B + b) * D + d, g = y.grad[b * D + d];
        dRow[t] += g * x.data[at];
        x.grad[at] += w * g;
      }
    });
    softmaxSlope(row, dRow).forEach((g, t) => { scores.grad[t * B + b] += g; });
  }));
  return [y, weights];
}

// Scaled dot-product attention of every token to all tokens of its text, from queries, keys and
// values side by side (T*B x 3H). Returns the context and the weights by text and head (T x T).
export function attend(qkv, lengths, heads) {
  const B = lengths.length, H = qkv.cols / 3, size = H / heads, scale = 1 / Math.sqrt(size);
  const y = new Tensor(qkv.rows, H), x = qkv.data, weights = [];
  const row = (t, b) => (t * B + b) * 3 * H;
  for (let b = 0; b < B; b++) {
    weights.push([]);
    for (let head = 0; head < heads; head++) {
      const map = [];
      for (let t = 0; t < lengths[b]; t++) {
        const q = row(t, b) + head * size, scores = new Float64Array(lengths[b]);
        for (let s = 0; s < lengths[b]; s++) {
          const k = row(s, b) + H + head * size;
          for (let d = 0; d < size; d++) scores[s] += x[q + d] * x[k + d] * scale;
        }
        map.push(softmaxInPlace(scores));
        const to = (t * B + b) * H + head * size;
        for (let s = 0; s < lengths[b]; s++) {
          const v = row(s, b) + 2 * H + head * size;
          for (let d = 0; d < size; d++) y.data[to + d] += scores[s] * x[v + d];
        }
      }
      weights[b].push(map);
    }
  }
  record(() => {
    const dx = qkv.grad;
    for (let b = 0; b < B; b++) {
      for (let head = 0; head < heads; head++) {
        for (let t = 0; t < lengths[b]; t++) {
          const q = row(t, b) + head * size, from = (t * B + b) * H + head * size;
          const scores = weights[b][head][t], dScores = new Float64Array(lengths[b]);
          for (let s = 0; s < lengths[b]; s++) {
            const v = row(s, b) + 2 * H + head * size;
            for (let d = 0; d < size; d++) {
              dScores[s] += y.grad[from + d] * x[v + d];
              dx[v + d] += scores[s] * y.grad[from + d];
            }
          }
          softmaxSlope(scores, dScores).forEach((g, s) => {
            const k = row(s, b) + H + head * size;
            for (let d = 0; d < size; d++) {
              dx[q + d] += g * scale * x[k + d];
              dx[k + d] += g * scale * x[q + d];
            }
          });
        }
      }
    }
  });
  return [y, weights];
}

// torch.nn.LayerNorm over the columns.
export function layerNorm(x, weight, bias) {
  const D = x.cols, y = new Tensor(x.rows, D), inverse = new Float64Array(x.rows);
  const normal = new Float64Array(x.data.length);
  for (let r = 0; r < x.rows; r++) {
    let mean = 0, variance = 0;
    for (let d = 0; d < D; d++) mean += x.data[r * D + d];
    mean /= D;
    for (let d = 0; d < D; d++) {
      const off = x.data[r * D + d] - mean;
      variance += off * off;
    }
    inverse[r] = 1 / Math.sqrt(variance / D + 1e-5);
    for (let d = 0; d < D; d++) {
      const k = r * D + d;
      normal[k] = (x.data[k] - mean) * inverse[r];
      y.data[k] = normal[k] * weight.data[d] + bias.data[d];
    }
  }
  record(() => {
    for (let r = 0; r < x.rows; r++) {
      let mean = 0, along = 0;
      for (let d = 0; d < D; d++) {
        const k = r * D + d, g = y.grad[k] * weight.data[d];
        weight.grad[d] += y.grad[k] * normal[k];
        bias.grad[d] += y.grad[k];
        mean += g / D;
        along += (g * normal[k]) / D;
      }
      for (let d = 0; d < D; d++) {
        const k = r * D + d;
        x.grad[k] += inverse[r] * (y.grad[k] * weight.data[d] - mean - normal[k] * along);
      }
    }
  });
  return y;
}

// The mean cross-entropy of softmax(logits) against labels, and the probabilities by text.
export function crossEntropy(logits, labels) {
  const rows = logits.rows, C = logits.cols, loss = new Tensor(1, 1);
  const probs = labels.map((_, r) =>
    softmaxInPlace(Float64Array.from(logits.data.subarray(r * C, (r + 1) * C))));
  labels.forEach((label, r) => { loss.data[0] -= Math.log(Math.max(probs[r][label], 1e-300)) / rows; });
  record(() => labels.forEach((label, r) => {
    for (let c = 0; c < C; c++) {
      logits.grad[r * C + c] += (loss.grad[0] * (probs[r][c] - (c === label ? 1 : 0))) / rows;
    }
  }));
  return [loss, probs];
}

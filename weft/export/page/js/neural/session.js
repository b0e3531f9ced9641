// Graphs in onnxruntime-web: named arrays in, named arrays out.

let last = Promise.resolve(); // of all sessions: onnxruntime-web runs one at a time

const TYPES = { float32: Float32Array, int64: BigInt64Array };

/** Return {run, outputs}: run takes feeds and names to {name: {data, dims}}.
 *
 * A feed is [integers, shape], or an array that a graph gave.
 */
export async function openSession(graph, wasm) {
  const { ort } = globalThis;
  ort.env.wasm.wasmBinary = wasm;
  ort.env.wasm.numThreads = 1; // more would need headers that a file does not have
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"] });
  const run = async (feeds, names) => {
    const inputs = {};
    for (const name of session.inputNames) {
      const feed = feeds[name];
      if (Array.isArray(feed)) {
        const [values, shape] = feed;
        inputs[name] = new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
      } else {
        inputs[name] = new ort.Tensor(feed.type, feed.data, feed.dims);
      }
    }
    const found = last.then(() => session.run(inputs, names));
    last = found.catch(() => {}); // the caller gets the error
    return found;
  };
  return { run, outputs: session.outputNames };
}

/** Return {name: array} of zeros for one row of the inputs of a graph that begin with `prefix`. */
export function zeroState(inputs, prefix) {
  const out = {};
  for (const [name, [type, shape]] of Object.entries(inputs)) {
    if (!name.startsWith(prefix)) continue;
    const dims = shape.map((size, i) => (i === 0 ? 1 : Number.isInteger(size) ? size : 0));
    out[name.slice(prefix.length)] = { type, dims, data: new TYPES[type](dims.reduce((a, b) => a * b, 1)) };
  }
  return out;
}

/** Return an array {type, dims, data} with some of its rows. */
export function takeRows({ type, dims, data }, rows) {
  const size = dims.slice(1).reduce((a, b) => a * b, 1);
  const out = new data.constructor(rows.length * size);
  rows.forEach((row, i) => out.set(data.subarray(row * size, (row + 1) * size), i * size));
  return { type, dims: [rows.length, ...dims.slice(1)], data: out };
}

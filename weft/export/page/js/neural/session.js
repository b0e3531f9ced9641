// Graphs in onnxruntime-web: named arrays in, named arrays out.

/** Return the function from feeds and names to {name: {data, dims}}. */
export async function openSession(graph, wasm) {
  const { ort } = globalThis;
  ort.env.wasm.wasmBinary = wasm;
  ort.env.wasm.numThreads = 1; // more would need headers that a file does not have
  ort.env.logLevel = "error";
  const session = await ort.InferenceSession.create(graph, { executionProviders: ["wasm"] });
  const run = async (feeds, names) => {
    const inputs = {};
    for (const name of session.inputNames) {
      const [values, shape] = feeds[name];
      inputs[name] = new ort.Tensor("int64", BigInt64Array.from(values, BigInt), shape);
    }
    return session.run(inputs, names);
  };
  return { run, outputs: session.outputNames };
}

// The files of a model inside the page: base64 of gzip, and safetensors.

const TYPES = {
  F64: Float64Array, F32: Float32Array, I64: BigInt64Array, U64: BigUint64Array, I32: Int32Array,
  U32: Uint32Array, I16: Int16Array, U16: Uint16Array, I8: Int8Array, U8: Uint8Array,
};

/** Return the bytes of base64 text that was compressed with gzip. */
export async function unpack(base64) {
  const packed = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

export const decodeText = (bytes) => new TextDecoder().decode(bytes);
export const parseJson = (bytes) => JSON.parse(decodeText(bytes));

/** Return {name: {shape, data}} of the tensors of a safetensors file. */
export function readTensors(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const start = 8 + Number(view.getBigUint64(0, true));
  const header = parseJson(bytes.subarray(8, start));
  const out = {};
  for (const [name, { dtype, shape, data_offsets }] of Object.entries(header)) {
    if (name === "__metadata__") continue;
    const [from, to] = data_offsets;
    const own = bytes.slice(start + from, start + to); // a copy is aligned
    out[name] = { shape, data: new TYPES[dtype](own.buffer) };
  }
  return out;
}

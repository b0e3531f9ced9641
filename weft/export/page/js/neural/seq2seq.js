// Encoder-decoders: one graph reads a source, the other writes its answer word by word.

import { openSession, takeRows } from "./session.js";
import { search } from "../decode/beams.js";
import { geometricMean } from "../tasks/tag.js";
import { Tokenizer } from "../tokens/tokenizer.js";

/** Return {answer, continuation} from `encode`, which runs the encoder over the rows of a source. */
export async function seq2seqEngine({ info, files, space }, encode) {
  const { gives } = info;
  const stepper = await openSession(files.get("step.onnx"), files.get("ort.wasm"));
  const tokenizer = new Tokenizer(space.tokenizer);
  const names = [...gives.dynamic, ...gives.static].map((name) => `state.${name}`);
  const { bos: begin, eos: end, forbidden } = gives;

  /** Return the step of a source, from the outputs of the encoder; row i continues row rows[i]. */
  const stepOf = (outputs) => async (ids, state, rows) => {
    const feeds = { ids: [ids, [ids.length]], copied: [[0], [1]] };
    for (const name of gives.dynamic) feeds[`state.${name}`] = takeRows(state[name], rows);
    const first = ids.map(() => 0);
    for (const name of gives.static) feeds[`state.${name}`] = takeRows(outputs[`state.${name}`], first);
    const found = await stepper.run(feeds, ["logits", ...gives.dynamic.map((name) => `next.${name}`)]);
    const { data, dims } = found.logits;
    const logits = ids.map((_, i) => data.subarray(i * dims[1], (i + 1) * dims[1]));
    return { logits, state: Object.fromEntries(gives.dynamic.map((name) => [name, found[`next.${name}`]])) };
  };
  const stateOf = (outputs) => Object.fromEntries(gives.dynamic.map((name) => [name, outputs[`state.${name}`]]));
  const decode = (ids) => tokenizer.decode(ids.filter((id) => id < tokenizer.entries.length));

  const answer = async (inputs) => {
    const { rows, outputs } = await encode(inputs, names);
    const ids = [];
    const probs = [];
    for (const [i, out] of outputs.entries()) {
      if (!rows[i].read) continue; // an empty text has no answer
      const best = await search(stepOf(out), stateOf(out), gives.search, { begin, end, forbidden });
      ids.push(...best.ids);
      probs.push(...best.logProbs.map(Math.exp));
    }
    const score = geometricMean(probs);
    return { value: decode(ids).trim(), score, probs, text: true, coverage: rows[0]?.coverage ?? 0 };
  };
  const continuation = {
    tokenizer,
    begin,
    end,
    async start(prompt) {
      const { rows, outputs } = await encode([prompt], names);
      if (!rows[0]?.read) throw new Error("The text is empty; this model needs a source.");
      return { step: stepOf(outputs[0]), state: stateOf(outputs[0]), last: begin };
    },
    async logits(place) {
      const found = await place.step([place.last], place.state, [0]);
      place.after = found.state;
      return found.logits[0];
    },
    async follow(place, id) {
      return { step: place.step, state: place.after, last: id };
    },
  };
  return { answer, continuation };
}

// Neural language models: one graph, from state to state, that scores texts and continues them.

import { openSession, zeroState } from "./session.js";
import { LMVocabulary, textAnswer } from "../tasks/language.js";

const MAX_READ = 1024; // steps of a prompt at once

/** Return {answer, continuation} of a language model that reads from left to right. */
export async function languageEngine({ info, files, space }) {
  const { gives } = info;
  const vocabulary = new LMVocabulary(space);
  const { tokenizer, lines } = vocabulary;
  const session = await openSession(files.get("model.onnx"), files.get("ort.wasm"));
  const begin = () => zeroState(info.graphs["model.onnx"].inputs, "state.");
  const names = Object.keys(begin());
  const following = names.map((name) => `next.${name}`);
  const row = (ids) => [ids, [1, ids.length]];

  /** Return the outputs of a graph after more ids. */
  const run = (ids, state, targets, wanted) => {
    const feeds = { ids: row(ids), targets: row(targets) };
    for (const name of names) feeds[`state.${name}`] = state[name];
    return session.run(feeds, wanted);
  };
  const read = async (ids, state) => {
    let logits = null;
    for (let at = 0; at < ids.length; at += MAX_READ) {
      const found = await run(ids.slice(at, at + MAX_READ), state, [0], ["logits", ...following]);
      state = Object.fromEntries(names.map((name) => [name, found[`next.${name}`]]));
      logits = found.logits.data;
    }
    return { logits, state };
  };

  const answer = async ([text]) => {
    const { ids, offsets } = tokenizer.encode(text);
    const whole = [gives.bos, ...ids, ...(lines ? [vocabulary.last] : [])];
    const probs = [];
    for (const { low, start, stop, high } of windows(whole.length - 1, gives.row_steps, gives.new_steps)) {
      const targets = whole.slice(low + 1, high + 1);
      const found = await run(whole.slice(low, high), begin(), targets, ["log_probs"]);
      probs.push(...Array.from(found.log_probs.data.slice(start - low, stop - low), Math.exp));
    }
    return textAnswer(vocabulary, text, { ids, offsets, probs });
  };

  // A state of the continuation is one id short: the step that reads it gives the logits.
  const reread = async (seen) => ({ seen, inner: (await read(seen, begin())).state });
  const continuation = {
    tokenizer,
    end: vocabulary.last,
    endless: !lines,
    async start(prompt) {
      const ids = [vocabulary.first, ...tokenizer.encode(prompt).ids];
      if (gives.limit !== null && ids.length > gives.limit) {
        throw new Error(
          `The text has ${ids.length - 1} tokens; this model reads at most ${gives.limit - 1}. Shorten it.`,
        );
      }
      return { ...(await reread(ids.slice(0, -1))), last: ids.at(-1) };
    },
    async logits(state) {
      const { limit } = gives;
      if (limit !== null && state.seen.length === limit) {
        Object.assign(state, await reread(state.seen.slice(limit - Math.floor(limit / 2))));
      }
      const found = await read([state.last], state.inner);
      state.after = found.state;
      return found.logits;
    },
    async follow(state, id) {
      const seen = gives.limit === null ? [] : [...state.seen, state.last];
      return { seen, inner: state.after, last: id };
    },
  };
  return { answer, continuation };
}

/** Return windows over `count` tokens of which each is scored once, with those before as context. */
function windows(count, view, fresh) {
  const out = [];
  for (let start = 0; start < count; ) {
    const stop = Math.min(count, start + (start ? fresh : view));
    out.push({ low: Math.max(0, stop - view), start, stop, high: stop });
    start = stop;
  }
  return out;
}

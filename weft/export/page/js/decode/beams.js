// Greedy and beam search for one source; the hypotheses are those of Weft in Python.

import { argmax } from "./chain.js";
import { constrain } from "./generate.js";

/** Return {ids, logProbs} of the best text.
 *
 * `step(ids, state, rows)` returns {logits: one array a row, state} of the word after each id, where
 * row i of the state is row rows[i] of the one before.
 */
export async function search(step, state, settings, { begin, end, forbidden }) {
  const rules = { ...settings, min_length: settings.min_length ?? 0, end, forbidden };
  if (settings.method === "greedy") return searchGreedily(step, state, rules, begin);
  return searchBeams(step, state, rules, begin);
}

async function searchGreedily(step, state, rules, begin) {
  const ids = [];
  const logProbs = [];
  for (let time = 0; time < rules.max_length; time++) {
    const found = await step([ids.at(-1) ?? begin], state, [0]);
    state = found.state;
    const own = Float64Array.from(found.logits[0]);
    const best = argmax(constrain(own, ids, time, rules));
    logProbs.push(constrain(own, ids, time, { ...rules, repetition_penalty: 1 })[best]);
    if (best === rules.end) break;
    ids.push(best);
  }
  return { ids, logProbs };
}

async function searchBeams(step, state, rules, begin) {
  const { num_beams: width, max_length: longest, end } = rules;
  const norm = lengthNorm(rules);
  const unpenalised = { ...rules, repetition_penalty: 1 };
  let beams = [{ ids: [], logProbs: [], total: 0, row: 0 }];
  let pool = []; // finished hypotheses, best first
  for (let time = 0; time < longest; time++) {
    const last = beams.map(({ ids }) => ids.at(-1) ?? begin);
    const found = await step(last, state, beams.map(({ row }) => row));
    state = found.state;
    const candidates = [];
    beams.forEach((beam, row) => {
      const logits = Float64Array.from(found.logits[row]);
      const scores = constrain(logits, beam.ids, time, rules);
      const own = rules.repetition_penalty > 1 ? constrain(logits, beam.ids, time, unpenalised) : scores;
      for (const id of largest(scores, 2 * width)) {
        candidates.push({ beam, row, id, logProb: own[id], total: beam.total + scores[id] });
      }
    });
    candidates.sort((a, b) => b.total - a.total);
    const length = time + 1;
    const cut = length >= longest;
    // The end counts only among the best; twice as many hold enough that continue.
    for (const { beam, id, logProb, total } of candidates.slice(0, width)) {
      if (id !== end && !cut) continue;
      const ids = id === end ? beam.ids : [...beam.ids, id];
      pool.push({ ids, logProbs: [...beam.logProbs, logProb], rank: total / norm(length) });
    }
    pool = pool.sort((a, b) => b.rank - a.rank).slice(0, width);
    beams = candidates
      .slice(0, 2 * width)
      .filter(({ id, total }) => id !== end && total > -Infinity)
      .slice(0, width)
      .map(({ beam, row, id, logProb, total }) => ({
        ids: [...beam.ids, id], logProbs: [...beam.logProbs, logProb], total, row,
      }));
    if (cut || isFinished(pool, beams, length, rules, norm)) break;
  }
  if (!pool.length) throw new Error("No text is possible with the settings of this model's search.");
  return pool[0];
}

/** Return true if no open beam can change the best hypothesis any more. */
function isFinished(pool, beams, length, rules, norm) {
  const { num_beams: width, num_return: wanted = 1, early_stopping: stopping = "never" } = rules;
  const best = Math.max(-Infinity, ...beams.map(({ total }) => total));
  if (stopping === "full") return pool.length === width || best === -Infinity;
  const bar = pool[(stopping === "never" ? wanted : width) - 1]?.rank ?? -Infinity;
  let reach = length;
  if (stopping === "never") {
    reach = rules.length_penalty > 0 ? rules.max_length : Math.max(length + 1, rules.min_length);
  }
  return bar >= best / norm(reach);
}

function lengthNorm({ length_normalisation: how, length_penalty: penalty }) {
  if (how === "none") return () => 1;
  return (length) => (how === "wu" ? (5 + length) / 6 : length) ** penalty;
}

/** Return the places of the largest values, descending. */
function largest(values, count) {
  const ids = Array.from(values, (_, id) => id).filter((id) => values[id] > -Infinity);
  return ids.sort((a, b) => values[b] - values[a] || a - b).slice(0, count);
}

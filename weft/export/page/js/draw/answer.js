// An answer as it is drawn elsewhere in Weft.

import { drawArcs } from "./arcs.js";
import { element, percent } from "./dom.js";
import { drawNumbers, drawSpans, drawTags, drawWeights } from "./text.js";
import { drawTree } from "./tree.js";

const MAX_LABELS = 12; // bars that are shown at once

/** Draw an answer to a text; spans are marked in `text`. */
export function drawAnswer(answer, text) {
  const { structure } = answer;
  if (!structure) return drawValue(answer, text);
  const { kind, words } = structure;
  if (kind === "spans") return drawLabelled(structure, drawSpans(text, structure.spans));
  if (kind === "answer") return drawSpans(text, structure.spans.map(([a, b]) => [a, b, "answer"]));
  if (kind === "arcs") return drawArcs(words, structure.heads, structure.relations, structure.tags);
  if (kind === "word-numbers") return drawNumbers(words, structure.tags, structure.scores);
  if (structure.tree) return drawTree(structure.tree);
  return drawTags(words, structure.tags, answer.wordProbs);
}

/** Draw the label of the whole sentence, such as its intent, above the drawing of its words. */
function drawLabelled({ label, labelScore }, drawn) {
  if (!label) return drawn;
  const line = element("p", {}, element("b", {}, label), ` ${percent(labelScore)}`);
  return element("div", {}, line, drawn);
}

function drawValue(answer, text) {
  if (answer.nodes) return drawBars(treeRows(answer));
  if (answer.probs && answer.labels) return drawBars(labelRows(answer));
  if (answer.tokens) return drawTokens(answer, text);
  if (answer.vector) return drawNearest(answer);
  if (answer.text && !answer.value) return element("p", { class: "quiet" }, "An empty text.");
  if (answer.text) return element("p", { class: "written", dir: "auto" }, answer.value);
  return element("p", { class: "number" }, formatValue(answer.value));
}

/** Return the value of an answer in one line. */
export function formatValue(value) {
  if (typeof value === "number") return formatNumber(value);
  if (value?.slots) return `${value.intent ?? "none"}; ${formatValue(value.slots)}`;
  if (!Array.isArray(value)) return String(value ?? "none") || "none";
  if (!value.length) return "none";
  return value
    .map((one) => {
      if (one?.relation !== undefined) return `${one.text}/${one.relation}/${one.head}`;
      return one?.label === undefined ? formatValue(one) : `${one.label}: ${one.text}`;
    })
    .join(typeof value[0] === "object" ? "; " : ", ");
}

function formatNumber(value) {
  const size = Math.abs(value);
  return size >= 1e-3 && size < 1e6 ? value.toFixed(4) : String(Number(value.toPrecision(6)));
}

function labelRows({ labels, probs, value }) {
  const chosen = new Set([value].flat());
  const rows = labels.map((label, i) => ({ label, prob: probs[i], chosen: chosen.has(label), depth: 0 }));
  const extra = [...chosen].filter((label) => !labels.includes(label));
  return [
    ...extra.map((label) => ({ label, prob: null, chosen: true, depth: 0 })),
    ...rows.sort((a, b) => b.prob - a.prob),
  ];
}

function treeRows({ nodes, path, value }) {
  const chosen = new Set(path.map(([node]) => node));
  return nodes
    .filter(([node, prob]) => chosen.has(node) || prob >= 0.01)
    .map(([node, prob]) => ({ label: node, prob, chosen: chosen.has(node), depth: 0, last: node === value }))
    .sort((a, b) => b.prob - a.prob);
}

/** Draw a bar for each label, the most probable first. */
function drawBars(rows) {
  const line = ({ label, prob, chosen, shown }) =>
    element(
      "tr", { class: chosen ? "choice" : "" },
      element("th", { scope: "row" }, element("bdi", {}, label)),
      element(
        "td", { class: "bar" },
        element("span", { class: "meter" }, element("i", { style: { width: `${100 * (prob ?? 0)}%` } })),
      ),
      element("td", { class: "percent" }, shown ?? (prob === null ? "" : percent(prob))),
    );
  const table = (some) => element("table", { class: "bars" }, element("tbody", {}, some.map(line)));
  if (rows.length <= MAX_LABELS) return table(rows);
  const rest = element(
    "details", {}, element("summary", {}, `${rows.length - MAX_LABELS} more`), table(rows.slice(MAX_LABELS)),
  );
  return element("div", {}, table(rows.slice(0, MAX_LABELS)), rest);
}

/** Draw a text whose tokens are coloured by how surprising they are. */
function drawTokens(answer, text) {
  const rows = answer.tokens.filter(([start, end]) => end > start);
  const surprise = rows.map(([start, end, prob]) => [start, end, -Math.log2(Math.max(prob, 1e-12))]);
  return element(
    "div", {},
    element("p", { class: "number" }, `perplexity ${Number(answer.value.toPrecision(4)).toLocaleString("en")}`),
    drawWeights(text, surprise, (bits) => `${percent(2 ** -bits)}, ${bits.toFixed(1)} bits`),
  );
}

/** Draw the sentences nearest to a text, with bars for their cosines. */
function drawNearest({ nearest = [], vector }) {
  if (!nearest.length) return element("p", { class: "quiet" }, `A vector of ${vector.length} numbers. Add sentences to search in.`);
  const rows = nearest.map(([label, score], i) => ({ label, prob: Math.max(0, score), chosen: i === 0, shown: score.toFixed(3) }));
  return drawBars(rows);
}

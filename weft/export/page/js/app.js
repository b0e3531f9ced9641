// The page: a text box, the answer, the words that matter, and a table of many texts.

import { drawAnswer, formatValue } from "./draw/answer.js";
import { element, percent } from "./draw/dom.js";
import { drawWeights } from "./draw/text.js";
import { parseJson, unpack } from "./files.js";
import { Predictor } from "./predictor.js";

const TYPING_PAUSE = 200; // milliseconds
const EXPLAIN_BUDGET = 1500; // milliseconds; slower models explain when asked
const MAX_TABLE_ROWS = 500; // shown; the CSV has all
const LONG_VALUE = 60; // characters of an answer that gets a wide column
const $ = (id) => document.getElementById(id);

const state = { model: null, asked: 0, answer: null, inputs: [], rows: [] };

async function start() {
  const files = new Map();
  for (const node of document.querySelectorAll("script[data-file]")) {
    files.set(node.dataset.file, await unpack(node.textContent));
    node.remove(); // free the memory of the text
  }
  const about = parseJson(files.get("about.json"));
  const model = await Predictor.load(files, about);
  state.model = model;
  // For scripts and tests: the answer to each text, or pair of texts.
  globalThis.weft = {
    answers: (inputs) => Promise.all(inputs.map((one) => model.answer([one].flat()))),
    generate: (prompt, settings) => collect(model.generate(prompt, settings)),
    model,
  };
  present(model, about);
  document.body.dataset.ready = "true";
}

async function collect(stream) {
  let last = { text: "" };
  for await (const step of stream) last = step;
  return last.text;
}

function present(model, about) {
  $("second").hidden = !twoFields();
  $("generation").hidden = !model.generates;
  if (!model.continues) $("method").value = "greedy"; // an answer, not one of many
  const examples = about.examples.map((inputs, i) => {
    const label = inputs.join(" · ");
    const use = () => {
      fields().forEach((field, k) => (field.value = inputs[k] ?? (model.searches ? field.value : "")));
      answerNow();
    };
    const shown = label.length > 60 ? `${label.slice(0, 59)}…` : label;
    return element("button", { type: "button", class: "chip", onclick: use, title: label }, shown || `example ${i + 1}`);
  });
  if (model.searches) $("other").value = about.examples.flat().join("\n");
  $("examples").replaceChildren(...examples);
  $("examples-line").hidden = !examples.length;
  if (model.pairs) $("many-hint").textContent = "One pair of texts a line, with a tab between them.";
  for (const field of fields()) field.addEventListener("input", answerSoon);
  $("explain").addEventListener("click", () => explain(state.asked));
  $("continue").addEventListener("click", generate);
  $("stop").addEventListener("click", () => (state.generating = 0));
  $("run-many").addEventListener("click", answerMany);
  $("save-csv").addEventListener("click", saveCsv);
  $("status").textContent = "";
  for (const control of document.querySelectorAll("[data-waits]")) control.disabled = false;
  if (examples.length) examples[0].click();
}

const twoFields = () => state.model.pairs || state.model.searches;
const fields = () => [$("text"), ...(twoFields() ? [$("other")] : [])];

let timer = 0;
function answerSoon() {
  clearTimeout(timer);
  timer = setTimeout(answerNow, TYPING_PAUSE);
}

async function answerNow() {
  clearTimeout(timer);
  const asked = ++state.asked;
  const inputs = fields().map((field) => field.value);
  $("words").hidden = true;
  if (!inputs.slice(0, state.model.searches ? 1 : 2).some((text) => text.trim())) {
    $("answer").replaceChildren(element("p", { class: "quiet" }, "Type a text to see the answer."));
    return;
  }
  const began = performance.now();
  let answer;
  try {
    answer = await state.model.answer(inputs);
  } catch (error) {
    if (asked === state.asked) showError(error);
    return;
  }
  if (asked !== state.asked) return; // a newer text is being answered
  const took = performance.now() - began;
  Object.assign(state, { answer, inputs });
  const subject = inputs[state.model.pairs ? 1 : 0];
  $("answer").replaceChildren(drawAnswer(answer, subject), ...notes(answer));
  $("time").textContent = `${took < 1 ? "under 1" : Math.round(took)} ms`;
  if (!state.model.explains) return;
  const cost = took * state.model.explainWords(inputs.join(" ")).length;
  $("words").hidden = false;
  $("strips").replaceChildren();
  $("explain").hidden = cost <= EXPLAIN_BUDGET;
  if (cost <= EXPLAIN_BUDGET) await explain(asked);
}

function notes(answer) {
  if (answer.coverage === undefined || answer.coverage >= 1) return [];
  const read = `The model read or knew ${percent(answer.coverage)} of this text.`;
  return [element("p", { class: "quiet" }, read)];
}

function showError(error) {
  $("answer").replaceChildren(element("p", { class: "error", role: "alert" }, error.message));
}

async function explain(asked) {
  const { model, answer, inputs } = state;
  $("explain").hidden = true;
  const strips = [];
  for (let which = 0; which < inputs.length; which++) {
    const words = await model.explain(inputs, which, answer, (part) => {
      if (asked === state.asked) $("status").textContent = `${Math.round(100 * part)} %`;
    });
    if (asked !== state.asked) return;
    const sign = (weight) => (answer.labels ? `${(100 * weight).toFixed(1)} points` : weight.toFixed(4));
    strips.push(drawWeights(inputs[which], words, (weight) => `${weight > 0 ? "+" : ""}${sign(weight)}`));
  }
  $("status").textContent = "";
  $("strips").replaceChildren(...strips);
}

async function generate() {
  const mine = (state.generating = Date.now() + Math.random());
  const prompt = $("text").value;
  const settings = {
    method: $("method").value,
    temperature: Number($("temperature").value) || 1,
    max_length: Math.max(1, Math.min(1000, Number($("length").value) || 50)),
    seed: Number($("seed").value) || 0,
  };
  const output = $("generated");
  $("stop").hidden = false;
  try {
    for await (const { text } of state.model.generate(prompt, settings)) {
      if (state.generating !== mine) break;
      output.replaceChildren(element("span", { class: "quiet" }, state.model.continues ? prompt : ""), text);
      await new Promise((done) => setTimeout(done)); // let the page draw
    }
  } catch (error) {
    output.replaceChildren(element("span", { class: "error", role: "alert" }, error.message));
  }
  if (state.generating === mine || !state.generating) $("stop").hidden = true;
}

async function answerMany() {
  const lines = $("many").value.split(/\r?\n/).filter((line) => line.trim());
  const { model } = state;
  const mine = (state.many = Date.now() + Math.random());
  state.rows = [];
  const body = element("tbody");
  $("table").replaceChildren(tableHead(model), body);
  $("table").hidden = !lines.length;
  for (const [i, line] of lines.entries()) {
    const inputs = model.pairs ? splitPair(line) : model.searches ? [line, $("other").value] : [line];
    let row;
    try {
      const { value, score, coverage } = await model.answer(inputs);
      row = { inputs: model.pairs ? inputs : [line], value: formatValue(value), score, coverage };
    } catch (error) {
      row = { inputs: model.pairs ? inputs : [line], value: error.message, score: "", coverage: "", failed: true };
    }
    if (state.many !== mine) return;
    state.rows.push(row);
    if (i < MAX_TABLE_ROWS) body.append(tableRow(row));
    if (i % 20 === 0) {
      $("many-status").textContent = `${i + 1} of ${lines.length}`;
      await new Promise((done) => setTimeout(done));
    }
  }
  const hidden = lines.length - MAX_TABLE_ROWS;
  const more = hidden > 0 ? `; the table shows the first ${MAX_TABLE_ROWS}` : "";
  $("many-status").textContent = `${lines.length} answered${more}`;
  $("save-csv").disabled = !state.rows.length;
}

const splitPair = (line) => {
  const [first, ...rest] = line.split("\t");
  return [first, rest.join("\t")];
};

function tableHead(model) {
  const names = model.pairs ? ["text", "other", "answer", "score"] : ["text", "answer", "score"];
  const cells = names.map((name) => element("th", { scope: "col" }, name));
  return element("thead", {}, element("tr", {}, cells));
}

function tableRow({ inputs, value, score, failed }) {
  const cells = inputs.map((text) => element("td", { dir: "auto", class: "text" }, text));
  const shown = typeof score === "number" ? score.toFixed(4) : score;
  const kind = failed ? "error" : value.length > LONG_VALUE ? "value long" : "value";
  return element(
    "tr", {}, cells, element("td", { class: kind }, value), element("td", { class: "percent" }, shown),
  );
}

function saveCsv() {
  const names = state.model.pairs ? ["text", "other"] : ["text"];
  const quote = (value) => `"${String(value).replaceAll('"', '""')}"`;
  const rows = state.rows.map(({ inputs, value, score, coverage }) => [...inputs, value, score, coverage]);
  const lines = [[...names, "value", "score", "coverage"], ...rows].map((row) => row.map(quote).join(","));
  const blob = new Blob(["\ufeff", lines.join("\r\n"), "\r\n"], { type: "text/csv" });
  const link = element("a", { href: URL.createObjectURL(blob), download: "answers.csv" });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

start().catch((error) => {
  $("status").textContent = "";
  showError(error);
  document.body.dataset.ready = "failed";
});

// The page: settings, the loop of updates between frames, and the views.

import {
  drawAttention,
  drawBars,
  drawCurve,
  drawGradients,
  escapeText,
  MAX_SHOWN_TOKENS,
} from "./charts.js";
import { Classifier, MAX_TOKENS, MODELS } from "./models.js";
import { openTask, SAMPLE_LINES, TASKS, tokenize } from "./tasks.js";
import { Adam, evaluate, inspectText, trainStep } from "./training.js";

const $ = (id) => document.getElementById(id);
const BATCH = 16;
const FRAME_MILLISECONDS = 40; // of updates between two frames; the rest is left to the page
const DRAW_MILLISECONDS = 200;
const TEST_EVERY = 20; // updates
const MAX_POINTS = 300; // of a curve; longer ones are thinned
const MAX_LINK_CHARS = 4000;
const SETTINGS = ["model", "task", "length", "width", "layers", "positions", "rate", "clip", "seed"];
const RESTARTING = new Set(["model", "task", "length", "width", "layers", "positions", "seed"]);
const WITHOUT_ATTENTION = {
  bag: "A bag of words has no attention: every token has the same weight.",
  cnn: "A CNN has no attention: max pooling keeps the largest value of each filter.",
  elman: "An Elman network has no attention: it classifies by its last state.",
  gru: "A GRU has no attention: it classifies by its last state.",
  lstm: "An LSTM has no attention: it classifies by its last state.",
};
const CLAIMS = {
  bag: "averages the vectors of its words, so it cannot see order",
  cnn: "sees three tokens at a time and keeps the strongest response of each filter",
  elman: "rewrites its whole state at every token",
  gru: "has gates that decide how much of its state to keep",
  lstm: "keeps a cell beside its state, with gates for writing, keeping and reading",
  attention: "weights its words by a learned score; without positions it cannot see order",
  transformer: "lets every token look at every other; only its positions tell it the order",
};

let settings, run = null, running = false, lastDraw = 0, frameUpdates = [];

function readSettings() {
  const value = (id) => $(id).value;
  return {
    model: value("model"), task: value("task"), length: Number(value("length")),
    width: Number(value("width")), layers: Number(value("layers")),
    positions: $("positions").checked, rate: Number(value("rate")), clip: Number(value("clip")),
    seed: Number(value("seed")), lines: value("lines"),
  };
}

// Put the settings of a link into the form; values that the form does not offer are named.
function readLink() {
  const link = new URLSearchParams(location.hash.slice(1)), ignored = [];
  for (const name of SETTINGS) {
    if (!link.has(name)) continue;
    const field = $(name), value = link.get(name);
    if (field.type === "checkbox") field.checked = value === "1";
    else if (field.tagName === "SELECT") {
      if ([...field.options].some((option) => option.value === value)) field.value = value;
      else ignored.push(`${name}=${value.slice(0, 30)}`);
    } else if (/^\d+$/.test(value) && Number(value) >= Number(field.min) && Number(value) <= Number(field.max)) {
      field.value = value;
    } else ignored.push(`${name}=${value.slice(0, 30)}`);
  }
  if (link.has("lines")) $("lines").value = link.get("lines").slice(0, MAX_LINK_CHARS);
  return ignored.length ? `The link has settings that do not exist: ${ignored.join(", ")}.` : "";
}

function writeLink() {
  const link = new URLSearchParams();
  for (const name of SETTINGS) {
    link.set(name, typeof settings[name] === "boolean" ? Number(settings[name]) : settings[name]);
  }
  const own = settings.task === "own" && settings.lines.length <= MAX_LINK_CHARS;
  if (own) link.set("lines", settings.lines);
  history.replaceState(null, "", `#${link}`);
}

function announce(message, bad = false) {
  $("status").textContent = message;
  $("status").classList.toggle("bad", bad);
}

// Start again: new data, new parameters, empty curves.
function reset(message = "") {
  settings = readSettings();
  $("own").hidden = settings.task !== "own";
  $("length-field").hidden = settings.task === "own";
  for (const id of ["layers", "positions"]) $(`${id}-field`).hidden = settings.model !== "transformer";
  $("length-value").textContent = settings.length;
  $("claim").textContent = `${TASKS[settings.task].claim} ${article(settings.model)} ${CLAIMS[settings.model]}.`;
  try {
    if (!Number.isInteger(settings.seed) || settings.seed < 0 || settings.seed > 999999) {
      throw new Error("The seed should be a whole number from 0 to 999999.");
    }
    const data = openTask(settings);
    const {model, width, layers, positions, seed} = settings;
    const network = new Classifier({model, width, layers, positions, seed,
      vocabulary: data.words.length, labels: data.labels.length});
    run = {data, network, optimizer: new Adam(Object.values(network.params)), updates: 0,
      losses: [], accuracies: [], stride: 1, loss: null, norm: null, clipped: 0, byDistance: null, text: null};
    writeLink();
    announce(message);
  } catch (error) {
    run = null;
    pause();
    announce(error.message, true);
  }
  fillChoices();
  if (run) {
    measure();
    chooseText(0);
  }
  draw();
}

const article = (model) => `${/^[aeiou]/i.test(model) || model === "lstm" ? "An" : "A"} ${{attention: "attention layer", bag: "bag of words"}[model] || MODELS[model]}`;

function fillChoices() {
  const units = run ? run.network.width : 1, before = $("unit").value;
  $("unit").replaceChildren(...Array.from({length: units}, (_, j) => new Option(String(j + 1), String(j))));
  if (Number(before) < units) $("unit").value = before || "0";
}

function chooseText(n) {
  const {data} = run, example = data.test[((n % data.test.length) + data.test.length) % data.test.length];
  run.shown = n;
  $("text").value = example.tokens ? example.tokens.join(" ") : example.ids.map((id) => data.words[id]).join(" ");
  readText();
}

function readText() {
  if (!run) return;
  const tokens = tokenize($("text").value).slice(0, MAX_TOKENS), {words} = run.data;
  const own = settings.task === "own", unknown = tokens.filter((token) => !words.includes(token));
  $("text-note").textContent = !tokens.length ? "Type at least one word."
    : unknown.length && !own ? `Unknown: ${unknown.slice(0, 5).join(", ")}. Words of this task: ${words.join(", ")}.`
    : unknown.length ? `Not in the training lines: ${unknown.slice(0, 5).join(", ")}.` : "";
  const usable = own ? tokens : tokens.filter((token) => words.includes(token));
  run.text = usable.length ? {words: usable, ids: usable.map((token) => Math.max(0, words.indexOf(token)))} : null;
}

function measure() {
  const {loss, accuracy} = evaluate(run.network, run.data.test);
  run.accuracies.push([run.updates, accuracy]);
  if (run.loss === null) run.losses.push([0, loss]);
  for (const name of ["losses", "accuracies"]) {
    if (run[name].length > MAX_POINTS) run[name] = run[name].filter((_, i) => i % 2 === 0);
  }
}

function update() {
  const result = trainStep(run.network, run.optimizer, run.data.nextBatch(BATCH), settings);
  run.updates += 1;
  if (!Number.isFinite(result.loss) || !Number.isFinite(result.norm)) {
    pause();
    announce("The loss is not a number any more: the learning rate is too high. Lower it, or clip, then reset.", true);
    return;
  }
  const mix = (before, now, part) => (before === null ? now : before + part * (now - before));
  run.loss = mix(run.loss, result.loss, 0.05);
  run.norm = mix(run.norm, result.norm, 0.1);
  run.clipped = mix(run.clipped, settings.clip > 0 && result.norm > settings.clip ? 1 : 0, 0.05);
  const before = run.byDistance || new Float64Array(0);
  run.byDistance = Float64Array.from({length: Math.max(before.length, result.byDistance.length)},
    (_, d) => d >= result.byDistance.length ? before[d]
      : mix(d < before.length ? before[d] : null, result.byDistance[d], 0.1));
  if (run.updates % 5 === 0) run.losses.push([run.updates, run.loss]);
  if (run.updates % TEST_EVERY === 0) measure();
}

// Updates until the time of this frame is used, then the page may draw and answer.
function onFrame(now) {
  if (!running) return;
  const end = performance.now() + FRAME_MILLISECONDS;
  do update(); while (running && performance.now() < end);
  if (run) frameUpdates.push([performance.now(), run.updates]);
  while (frameUpdates.length > 2 && now - frameUpdates[0][0] > 3000) frameUpdates.shift();
  if (now - lastDraw > DRAW_MILLISECONDS) draw();
  requestAnimationFrame(onFrame);
}

function start() {
  if (!run || running) return;
  running = true;
  frameUpdates = [[performance.now(), run.updates]];
  $("run").textContent = "Pause";
  announce("Training.");
  requestAnimationFrame(onFrame);
}

function pause() {
  running = false;
  frameUpdates = [];
  $("run").textContent = "Run";
}

function draw() {
  lastDraw = performance.now();
  for (const id of ["run", "step", "another"]) $(id).disabled = !run;
  $("views").hidden = !run;
  if (!run) return;
  drawNumbers();
  const guess = 1 / run.data.labels.length, on = run.data.tested;
  fill("loss-chart", (width) => drawCurve(width, {points: run.losses, label: "training loss (nats)",
    reference: Math.log(run.data.labels.length), title: "Training loss by updates", colour: "c0"}));
  fill("accuracy-chart", (width) => drawCurve(width, {points: run.accuracies, label: "accuracy", max: 1,
    percent: true, reference: guess, title: `Accuracy on ${on} by updates`, colour: "c1"}));
  $("accuracy-of").textContent = on;
  fill("gradient-chart", (width) => run.byDistance ? drawGradients(width, run.byDistance)
    : "<p class=\"empty\">Shown after the first update.</p>");
  drawText();
}

function drawNumbers() {
  const [first, last] = [frameUpdates[0], frameUpdates[frameUpdates.length - 1]];
  const speed = running && last && last[0] - first[0] > 300 ? (1000 * (last[1] - first[1])) / (last[0] - first[0]) : null;
  const show = (v, digits) => (v === null ? "–" : v.toFixed(digits));
  const numbers = {
    updates: run.updates.toLocaleString("en"), speed: show(speed, 0), "loss-now": show(run.loss, 3),
    "accuracy-now": `${Math.round(100 * run.accuracies[run.accuracies.length - 1][1])} %`,
    "norm-now": show(run.norm, 3), "clipped-now": settings.clip > 0 ? `${Math.round(100 * run.clipped)} %` : "off",
    parameters: run.network.size.toLocaleString("en"),
  };
  for (const [id, text] of Object.entries(numbers)) $(id).textContent = text;
}

function fill(id, chart) {
  const box = $(id), width = Math.floor(box.clientWidth);
  if (width > 0) box.innerHTML = chart(width);
}

function drawText() {
  if (!run.text) return;
  const {words, ids} = run.text, {probs, states, maps} = inspectText(run.network, ids);
  const unit = Number($("unit").value), H = run.network.width;
  const rows = run.data.labels.map((label, c) => [label, probs[c]]).sort((a, b) => b[1] - a[1]).slice(0, 6);
  $("answer").innerHTML = rows.map(([label, p]) =>
    `<li><span>${escapeText(label)}</span><svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true"><rect class="back" width="100" height="10"/><rect class="plus" width="${(100 * p).toFixed(1)}" height="10"/></svg><b>${Math.round(100 * p)} %</b></li>`).join("");
  const values = ids.map((_, t) => states.data[t * H + unit]);
  const bounded = run.network.gates > 0;
  fill("state-chart", (width) => drawBars(width, words, values, {label: `state of unit ${unit + 1}`, min: -1,
    max: bounded ? 1 : undefined, title: `State of unit ${unit + 1} at each token`}));
  const names = maps.map(([name]) => name);
  if ([...$("map").options].map((option) => option.text).join() !== names.join()) {
    $("map").replaceChildren(...names.map((name, i) => new Option(name, String(i))));
  }
  $("map-field").hidden = names.length < 2;
  const [name, map] = maps[Number($("map").value) || 0] || [];
  fill("attention-chart", (width) => !map ? `<p class="empty">${WITHOUT_ATTENTION[settings.model]} Choose Attention or Transformer to see weights.</p>`
    : map.length === 1 && maps.length === 1 ? drawBars(width, words, Array.from(map[0]), {label: "weight", max: 1, bounded: true, title: "Attention weight of each token"})
    : drawAttention(width, words, map, `Attention weights, ${name}`));
  $("cut").textContent = words.length > MAX_SHOWN_TOKENS ? `The first ${MAX_SHOWN_TOKENS} of ${words.length} tokens.` : "";
}

async function copyLink() {
  const long = settings.task === "own" && settings.lines.length > MAX_LINK_CHARS;
  const note = long ? ` It leaves your lines out: they have over ${MAX_LINK_CHARS} characters.` : "";
  try {
    await navigator.clipboard.writeText(location.href);
    announce(`Link copied.${note}`);
  } catch {
    announce(`Copy the address of this page: it holds all settings.${note}`);
  }
}

function connect() {
  $("model").replaceChildren(...Object.entries(MODELS).map(([value, name]) => new Option(name, value)));
  $("task").replaceChildren(...Object.entries(TASKS).map(([value, {name}]) => new Option(name, value)));
  $("model").value = "gru";
  $("lines").value = SAMPLE_LINES;
  $("run").onclick = () => {
    if (!running) return start();
    pause();
    announce("Paused.");
    draw();
  };
  $("step").onclick = () => {
    pause();
    update();
    draw();
  };
  $("reset").onclick = () => reset("Reset.");
  $("copy").onclick = copyLink;
  $("another").onclick = () => {
    chooseText(run.shown + 1);
    draw();
  };
  $("text").oninput = () => {
    readText();
    if (run) draw();
  };
  for (const id of ["unit", "map"]) $(id).onchange = draw;
  for (const id of SETTINGS) {
    $(id).onchange = () => {
      if (RESTARTING.has(id)) return reset();
      settings = readSettings();
      writeLink();
    };
  }
  $("length").oninput = () => { $("length-value").textContent = $("length").value; };
  $("lines").onchange = () => reset();
  addEventListener("hashchange", () => reset(readLink()));
  addEventListener("resize", draw);
  reset(readLink());
}

connect();

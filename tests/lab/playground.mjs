// Compute with the playground's models what the test computes with torch. Reads models and texts;
// writes loss, gradients, and parameters after two updates.

import { readFileSync } from "node:fs";

const load = (name) => import(new URL(`${name}.js`, process.argv[2]));
const { backward, crossEntropy } = await load("tensor");
const { Classifier } = await load("models");
const { Adam, clipGradients, collate, inputGradients, inspectText, trainStep } = await load("training");
const { openTask, parseLines } = await load("tasks");

const asked = JSON.parse(readFileSync(0, "utf8")), answers = {};
for (const [kind, {options, params}] of Object.entries(asked.models)) {
  const model = new Classifier(options), names = Object.keys(params).sort();
  if (names.join() !== Object.keys(model.params).sort().join()) throw new Error(`${kind}: ${names}`);
  for (const name of names) model.params[name].data.set(params[name]);
  const {ids, lengths, labels} = collate(asked.examples);
  const {logits, inputs, states} = model.forward(ids, lengths);
  const [loss] = crossEntropy(logits, labels);
  backward(loss);
  const values = (field) => names.map((name) => [name, Array.from(model.params[name][field])]);
  const answer = {loss: loss.data[0], grads: Object.fromEntries(values("grad"))};
  answer.inputGrads = Array.from(inputs.grad);
  answer.byDistance = Array.from(inputGradients(inputs, lengths));
  answer.again = inspectText(model, asked.examples[1].ids).probs.map(Math.log);
  const optimizer = new Adam(Object.values(model.params));
  answer.norm = clipGradients(optimizer.params, asked.clip);
  optimizer.update(asked.rate);
  trainStep(model, optimizer, asked.examples, asked);
  answer.params = Object.fromEntries(values("data"));
  answers[kind] = {...answer, again: Array.from(answer.again)};
}
const left = [[], ["x"], ["a\tb"], ["a\tb", "c"]].map((lines) => {
  try { parseLines(lines.join("\n")); } catch (error) { return error.message; }
});
const tasks = {};
for (const task of ["order", "count", "recall"]) {
  const data = openTask({task, length: 9, seed: 3});
  tasks[task] = data.nextBatch(200).map(({ids, label}) =>
    [ids.map((id) => data.words[id]), data.labels[label]]);
}
console.log(JSON.stringify({answers, left, tasks}));

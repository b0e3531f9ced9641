// Running text with marked spans, tags under the words, or the weight of each word.

import { colours, element } from "./dom.js";

const MAX_COLOUR = 62; // per cent, for the strongest word; the text stays readable
const MIN_WEIGHT = 0.06; // of the strongest; no colour below

/** Draw a text with marked spans [start, end, label], which may nest. */
export function drawSpans(text, spans, names = []) {
  const chars = [...text];
  const palette = colours([...names, ...spans.map((span) => span[2])]);
  const sorted = [...spans].sort((a, b) => a[0] - b[0] || b[1] - a[1]);
  const root = element("div", { class: "tagged running", dir: "auto" });
  const open = [{ node: root, end: chars.length }];
  let at = 0;
  const write = (until) => {
    open.at(-1).node.append(chars.slice(at, until).join(""));
    at = Math.max(at, until);
  };
  const close = (until) => {
    while (open.length > 1 && open.at(-1).end <= until) {
      const { node, end, label } = open.at(-1);
      write(end);
      node.append(element("small", {}, label));
      open.pop();
    }
  };
  for (const [start, end, label] of sorted) {
    close(start);
    write(start);
    const node = element("mark", { style: { "--own": palette.get(label) } });
    open.at(-1).node.append(node);
    open.push({ node, end: Math.min(end, open.at(-1).end), label });
  }
  close(chars.length);
  write(chars.length);
  return root;
}

/** Draw each word over its tags; columns are separated by spaces. */
export function drawTags(words, tags, probs = []) {
  const palette = colours(tags.map((tag) => tag.split(" ")[0]));
  const cells = words.flatMap((word, i) => {
    const [first, ...more] = tags[i].split(" ");
    const lines = more.filter((tag) => tag !== "_").map((tag) => breakable({ class: "more" }, tag));
    const title = probs[i] === undefined ? undefined : `${(100 * probs[i]).toFixed(1)} %`;
    const own = { class: "word", title, style: { "--own": palette.get(first) } };
    return [element("span", own, word, breakable({}, first), lines), " "];
  });
  return element("div", { class: "tagged", dir: "auto" }, cells);
}

function breakable(attributes, label) {
  const parts = label.split("|").flatMap((part, i) => (i ? ["|", element("wbr"), part] : [part]));
  return element("small", attributes, parts);
}

/** Draw words over numbers, coloured by `scores` from -1 to 1. */
export function drawNumbers(words, numbers, scores) {
  const cells = words.flatMap((word, i) => {
    const style = { "--own": "var(--ink)", "background-color": heat(scores[i]) };
    return [element("span", { class: "word heat", style }, word, element("small", {}, numbers[i])), " "];
  });
  return element("div", { class: "tagged", dir: "auto" }, cells);
}

/** Draw a text whose words [start, end, weight] are coloured by their weight. */
export function drawWeights(text, words, format) {
  const chars = [...text];
  const strongest = words.reduce((top, word) => Math.max(top, Math.abs(word[2])), 0);
  const root = element("div", { class: "weights", dir: "auto" });
  let at = 0;
  for (const [start, end, weight] of words) {
    root.append(chars.slice(at, start).join(""));
    const depth = strongest ? weight / strongest : 0;
    const style = Math.abs(depth) < MIN_WEIGHT ? {} : { "background-color": heat(depth) };
    root.append(element("span", { title: format(weight), style }, chars.slice(start, end).join("")));
    at = end;
  }
  root.append(chars.slice(at).join(""));
  return root;
}

function heat(depth) {
  const colour = depth > 0 ? "var(--accent)" : "var(--against)";
  return `color-mix(in srgb, ${colour} ${Math.round(MAX_COLOUR * Math.abs(depth))}%, transparent)`;
}

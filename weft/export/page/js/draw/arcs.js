// Dependency trees: arcs above the words.

import { drawing, shape, textWidth } from "./dom.js";

const WORD_GAP = 18; // pixels
const LEVEL = 24; // between nested arcs
const LEG_GAP = 8; // between the ends of arcs at one word
const RADIUS = 8;
const LABEL_MARGIN = 22; // around a label, for the corners and the arrowhead
const MARGIN = 6;

/** Draw arcs; `heads` count words from 1, 0 is the root. */
export function drawArcs(words, heads, relations, tags = []) {
  if (!words.length) return document.createTextNode("");
  const arcs = heads.map((head, word) => {
    const from = head - 1;
    return { head: from, word, label: relations[word], low: Math.min(from, word), high: Math.max(from, word) };
  });
  const shown = tags.map((tag) => tag.split(" ")[0]);
  const levels = arcLevels(arcs);
  const { x, width } = placeWords(words, shown, arcs);
  const top = MARGIN + 16 + LEVEL * Math.max(...levels);
  const parts = drawLines(arcs, levels, x, top);
  words.forEach((word, i) => {
    parts.push(shape("text", { x: x[i].toFixed(1), y: top + 15 }, word));
    if (shown.length) parts.push(shape("text", { class: "quiet", x: x[i].toFixed(1), y: top + 31 }, shown[i]));
  });
  return drawing(width, top + 21 + (shown.length ? 16 : 0) + MARGIN, "dependencies", parts);
}

/** Return the level of each arc: above every shorter arc it covers or crosses; roots on top. */
function arcLevels(arcs) {
  const levels = arcs.map(() => 1);
  const order = arcs.map((_, i) => i).sort((a, b) => arcs[a].high - arcs[a].low - arcs[b].high + arcs[b].low);
  const done = [];
  for (const i of order.filter((j) => arcs[j].head >= 0)) {
    const inside = done.filter((j) => arcs[j].low < arcs[i].high && arcs[j].high > arcs[i].low);
    levels[i] = 1 + Math.max(0, ...inside.map((j) => levels[j]));
    done.push(i);
  }
  const over = Math.max(1, ...levels);
  return levels.map((level, i) => (arcs[i].head < 0 && arcs.length > 1 ? over + 1 : level));
}

/** Return the centre of each word, spaced so that labels fit their arcs, and the whole width. */
function placeWords(words, tags, arcs) {
  const feetAt = (i) => arcs.filter((arc) => arc.word === i || arc.head === i).length;
  const halves = words.map((word, i) => {
    const own = Math.max(textWidth(word, 13), tags.length ? textWidth(tags[i], 11) : 0);
    const root = arcs[i].head < 0 ? textWidth(arcs[i].label, 11) : 0;
    return Math.max(own / 2, (LEG_GAP * feetAt(i) + root) / 2);
  });
  const gaps = halves.slice(1).map((half, i) => halves[i] + WORD_GAP + half);
  const sorted = arcs.filter((arc) => arc.head >= 0).sort((a, b) => a.high - a.low - b.high + b.low);
  for (const { low, high, label } of sorted) {
    const feet = LEG_GAP * Math.max(feetAt(low), feetAt(high));
    const space = gaps.slice(low, high).reduce((a, b) => a + b, 0);
    const missing = Math.max(0, textWidth(label, 11) + LABEL_MARGIN + feet - space);
    for (let i = low; i < high; i++) gaps[i] += missing / (high - low);
  }
  const x = [MARGIN + halves[0]];
  for (const gap of gaps) x.push(x.at(-1) + gap);
  return { x, width: x.at(-1) + halves.at(-1) + MARGIN };
}

function drawLines(arcs, levels, x, base) {
  const feet = placeFeet(arcs, levels, x);
  const lines = [], labels = [];
  arcs.forEach((arc, i) => {
    const y = base - LEVEL * levels[i];
    const [start, end] = feet[i];
    let path = `M${end} ${y}V${base - 6}`;
    let middle = end;
    if (arc.head >= 0) {
      const turn = Math.min(RADIUS, Math.abs(end - start) / 2) * (end > start ? 1 : -1);
      const drop = y + Math.abs(turn);
      path =
        `M${start} ${base}V${drop}Q${start} ${y} ${start + turn} ${y}H${end - turn}` +
        `Q${end} ${y} ${end} ${drop}V${base - 6}`;
      middle = (start + end) / 2;
    }
    lines.push(shape("path", { class: "edge", d: path }));
    lines.push(shape("path", { class: "tip", d: `M${end} ${base - 2}l-3.5 -7h7z` }));
    labels.push(shape("text", { class: "said halo", x: middle.toFixed(1), y: y + 4 }, arc.label));
  });
  return [...lines, ...labels];
}

/** Return the start and end of each arc, side by side at a word so that legs do not cross. */
function placeFeet(arcs, levels, x) {
  const at = x.map(() => []);
  arcs.forEach((arc, i) => {
    if (arc.head < 0) at[arc.word].push([0, i]);
    else at[arc.low].push([1, i]), at[arc.high].push([-1, i]);
  });
  const places = at.map((ends, word) => {
    ends.sort((a, b) => a[0] - b[0] || a[0] * (levels[b[1]] - levels[a[1]]));
    return new Map(ends.map(([, i], k) => [i, x[word] + LEG_GAP * (k - (ends.length - 1) / 2)]));
  });
  return arcs.map((arc, i) => [
    places[arc.head < 0 ? arc.word : arc.head].get(i),
    places[arc.word].get(i),
  ]);
}

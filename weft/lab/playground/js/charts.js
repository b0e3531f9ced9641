// Charts as SVG text: every axis has a label, colours come from the page's variables.

export const escapeText = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
const LEFT = 62, RIGHT = 12, TOP = 10, BOTTOM = 42; // margins of a chart in pixels
export const MAX_SHOWN_TOKENS = 32;

function ticks(low, high, count) {
  const raw = (high - low) / count || 1, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw * 0.999);
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(v + 0); // no -0
  return found;
}

const SUPERSCRIPT = {"-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹"};
const powerOfTen = (n) => `10${[...String(Math.round(n))].map((c) => SUPERSCRIPT[c]).join("")}`;
const plainNumber = (v) => String(Number(v.toPrecision(3)));

// A frame with labelled axes. Each axis: label, min, max, ticks as [value, text].
function frame(width, height, x, y, title, body) {
  const right = width - RIGHT, bottom = height - BOTTOM;
  const px = (v) => LEFT + ((v - x.min) / (x.max - x.min || 1)) * (right - LEFT);
  const py = (v) => bottom - ((v - y.min) / (y.max - y.min || 1)) * (bottom - TOP);
  const lines = y.ticks.map(([v, text]) =>
    `<path class="grid" d="M${LEFT} ${py(v).toFixed(1)}H${right}"/>` +
    `<text x="${LEFT - 6}" y="${(py(v) + 4).toFixed(1)}" text-anchor="end">${escapeText(text)}</text>`);
  const marks = x.ticks.map(([v, text]) =>
    `<text x="${px(v).toFixed(1)}" y="${bottom + 16}" text-anchor="middle">${escapeText(text)}</text>`);
  return `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img">` +
    `<title>${escapeText(title)}</title>${lines.join("")}<path class="axis" d="M${LEFT} ${bottom}H${right}"/>` +
    `${marks.join("")}<text class="label" x="${(LEFT + right) / 2}" y="${height - 6}" text-anchor="middle">${escapeText(x.label)}</text>` +
    `<text class="label" transform="translate(13 ${(TOP + bottom) / 2}) rotate(-90)" text-anchor="middle">${escapeText(y.label)}</text>` +
    `${body(px, py)}</svg>`;
}

const path = (points, px, py) =>
  points.map(([x, y], i) => `${i ? "L" : "M"}${px(x).toFixed(1)} ${py(y).toFixed(1)}`).join("");

// Curves over updates. A reference line shows what guessing would reach.
export function drawCurve(width, {points, label, max, percent, reference, title, colour}) {
  const last = Math.max(10, ...points.slice(-1).map(([x]) => x));
  const top = max || Math.max(reference * 1.15, ...points.map(([, y]) => y)) || 1;
  const show = (v) => (percent ? `${Math.round(100 * v)} %` : plainNumber(v));
  const x = {label: "updates", min: 0, max: last,
    ticks: ticks(0, last, width < 420 ? 4 : 6).map((v) => [v, v.toLocaleString("en")])};
  const y = {label, min: 0, max: top, ticks: ticks(0, top, 4).map((v) => [v, show(v)])};
  return frame(width, 190, x, y, title, (px, py) =>
    `<path class="reference" d="M${px(0)} ${py(reference).toFixed(1)}H${px(last)}"/>` +
    `<text class="note" x="${px(last)}" y="${(py(reference) - 5).toFixed(1)}" text-anchor="end">guessing</text>` +
    `<path class="curve ${colour}" d="${path(points, px, py)}"/>`);
}

// Gradient norms by distance on a logarithmic axis; zeros are left out.
export function drawGradients(width, norms) {
  const points = Array.from(norms, (v, d) => [d, Math.log10(v)]).filter(([, v]) => Number.isFinite(v) && v > -30);
  const high = Math.ceil(Math.max(-2, ...points.map(([, v]) => v)));
  const low = Math.min(high - 3, Math.floor(Math.min(0, ...points.map(([, v]) => v))));
  const far = Math.max(1, norms.length - 1);
  const x = {label: "distance to the last token", min: 0, max: far,
    ticks: ticks(0, far, Math.min(far, width < 420 ? 6 : 10)).map((v) => [v, String(Math.round(v))])};
  const y = {label: "‖∂loss/∂input‖", min: low, max: high,
    ticks: ticks(low, high, 4).filter((v) => Number.isInteger(v)).map((v) => [v, powerOfTen(v)])};
  return frame(width, 230, x, y, "Gradient norm by distance to the last token", (px, py) =>
    `<path class="curve c0" d="${path(points, px, py)}"/>` +
    points.map(([d, v]) => `<circle class="dot c0" r="3" cx="${px(d).toFixed(1)}" cy="${py(v).toFixed(1)}"/>`).join(""));
}

const clipWord = (word, size) => (word.length > size ? `${word.slice(0, size - 1)}…` : word);

// Bars by token around zero: attention weights, or the states of one unit.
export function drawBars(width, words, values, {label, title, min = 0, max, bounded}) {
  const shown = Math.min(words.length, MAX_SHOWN_TOKENS);
  const step = (width - LEFT - RIGHT) / shown, bar = Math.max(2, Math.min(36, step * 0.72));
  const longest = Math.max(...words.slice(0, shown).map((word) => word.length));
  const turned = longest * 7.2 > step - 3, height = 230, y0 = height - (turned ? 66 : 42);
  const top = max || Math.max(1e-9, ...values.map(Math.abs)), low = min < 0 ? -top : 0;
  const py = (v) => y0 - ((v - low) / (top - low)) * (y0 - TOP);
  const grid = ticks(low, top, 4).map((v) =>
    `<path class="grid" d="M${LEFT} ${py(v).toFixed(1)}H${width - RIGHT}"/>` +
    `<text x="${LEFT - 6}" y="${(py(v) + 4).toFixed(1)}" text-anchor="end">${bounded ? `${Math.round(100 * v)} %` : plainNumber(v)}</text>`);
  const bars = Array.from({length: shown}, (_, t) => {
    const x = LEFT + (t + 0.5) * step, from = py(Math.max(0, values[t])), to = py(Math.min(0, values[t]));
    const at = turned ? `transform="translate(${(x + 4).toFixed(1)} ${y0 + 10}) rotate(-50)" text-anchor="end"`
      : `x="${x.toFixed(1)}" y="${y0 + 16}" text-anchor="middle"`;
    return `<rect class="${values[t] < 0 ? "minus" : "plus"}" x="${(x - bar / 2).toFixed(1)}" y="${from.toFixed(1)}" width="${bar.toFixed(1)}" height="${Math.max(0.5, to - from).toFixed(1)}"/>` +
      `<text ${at}>${escapeText(clipWord(words[t], 8))}</text>`;
  });
  return `<svg viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img"><title>${escapeText(title)}</title>` +
    `${grid.join("")}${bars.join("")}<path class="axis" d="M${LEFT} ${py(0).toFixed(1)}H${width - RIGHT}"/>` +
    `<text class="label" x="${(LEFT + width - RIGHT) / 2}" y="${height - 6}" text-anchor="middle">token of the text</text>` +
    `<text class="label" transform="translate(13 ${(TOP + y0) / 2}) rotate(-90)" text-anchor="middle">${escapeText(label)}</text></svg>`;
}

// A square of attention weights: rows attend to columns.
export function drawAttention(width, words, map, title) {
  const shown = Math.min(words.length, MAX_SHOWN_TOKENS), left = 84, top = 74;
  const cell = Math.max(6, Math.min(30, (width - left - 4) / shown)), side = cell * shown;
  const size = Math.min(12, Math.max(7, cell * 0.85)).toFixed(1), parts = [];
  for (let t = 0; t < shown; t++) {
    const middle = (t + 0.5) * cell, word = escapeText(clipWord(words[t], 8));
    parts.push(`<text font-size="${size}" x="${left - 5}" y="${(top + middle + 4).toFixed(1)}" text-anchor="end">${word}</text>`,
      `<text font-size="${size}" transform="translate(${(left + middle + 4).toFixed(1)} ${top - 5}) rotate(-60)">${word}</text>`);
    for (let s = 0; s < shown; s++) {
      parts.push(`<rect class="cell" x="${(left + s * cell).toFixed(1)}" y="${(top + t * cell).toFixed(1)}" width="${cell.toFixed(1)}" height="${cell.toFixed(1)}" fill-opacity="${map[t][s].toFixed(3)}"/>`);
    }
  }
  return `<svg viewBox="0 0 ${width} ${top + side + 4}" width="${width}" height="${top + side + 4}" role="img"><title>${escapeText(title)}</title>` +
    `<rect class="back" x="${left}" y="${top}" width="${side}" height="${side}"/>${parts.join("")}` +
    `<text class="label" x="${left + side / 2}" y="12" text-anchor="middle">attended token</text>` +
    `<text class="label" transform="translate(13 ${top + side / 2}) rotate(-90)" text-anchor="middle">attending token</text></svg>`;
}

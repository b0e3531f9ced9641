// Elements of the page. Text is only ever set as text, so that no label becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** Return an element; `style` is an object of CSS properties, children are nodes or texts. */
export function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** Return an element of a drawing. */
export function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, { style = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== undefined) node.setAttribute(name, value);
  }
  for (const [property, value] of Object.entries(style)) node.style.setProperty(property, value);
  node.append(...children.flat());
  return node;
}

/** Return a drawing of a size in pixels, in a box that scrolls. */
export function drawing(width, height, label, children) {
  const size = { width: Math.ceil(width), height: Math.ceil(height) };
  const svg = shape(
    "svg",
    { class: "drawing", ...size, viewBox: `0 0 ${size.width} ${size.height}`, role: "img", "aria-label": label },
    children,
  );
  return element("div", { class: "wide", tabindex: "0" }, svg);
}

let context = null;

/** Return the width of a text in pixels. */
export function textWidth(text, pixels) {
  context ??= document.createElement("canvas").getContext("2d");
  context.font = `${pixels}px system-ui, sans-serif`;
  return context.measureText(text).width * 1.08;
}

/** Return a colour of the page for each label, in alphabetical order. */
export function colours(labels) {
  const sorted = [...new Set(labels)].sort();
  return new Map(sorted.map((label, i) => [label, `var(--c${i % 10})`]));
}

export const percent = (prob) => `${(100 * prob).toFixed(1)} %`;

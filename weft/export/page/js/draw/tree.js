// Trees over a sentence: constituents, or a score at every node.
//
// A node is {label, score?, word?, children}.

import { drawing, shape, textWidth } from "./dom.js";

const WORD_GAP = 14;
const LEVEL = 34; // pixels between heights
const NODE = 12; // radius
const CORNER = 7;
const MARGIN = 4;
const MIN_SCORE = 0.06; // no colour below
const MAX_SIGN = 3; // letters of a label that fits into a node

/** Draw a tree; nodes with scores from -1 to 1 are coloured if their labels are short. */
export function drawTree(tree) {
  const nodes = [];
  const visit = (node, parent) => {
    const own = { node, parent, x: 0, height: 0 };
    own.children = (node.children ?? []).map((child) => visit(child, own));
    own.height = Math.max(-1, ...own.children.map((child) => child.height)) + 1;
    nodes.push(own);
    return own;
  };
  const root = visit(tree, null);
  const signs = nodes.every(({ node }) => node.score !== undefined && node.label.length <= MAX_SIGN);
  const least = signs ? 2 * NODE + 8 : 8 + Math.max(...nodes.map(({ node }) => textWidth(node.label, 11)));
  let right = MARGIN;
  for (const own of nodes) {
    if (own.children.length) {
      own.x = (own.children[0].x + own.children.at(-1).x) / 2;
    } else {
      const column = Math.max(textWidth(own.node.word ?? "", 13) + WORD_GAP, least);
      own.x = right + column / 2;
      right += column;
    }
  }
  const base = MARGIN + NODE + 6 + LEVEL * root.height;
  const y = ({ height }) => base - LEVEL * height;
  const gap = signs ? 0 : 9;
  const parts = nodes.filter((own) => own.parent).map((own) => edge(own, y, gap));
  for (const own of nodes) {
    const { label, score } = own.node;
    if (signs) {
      parts.push(
        shape(
          "g", {},
          shape("title", {}, `${label}, ${score.toFixed(2)}`),
          shape("circle", { class: "node", cx: own.x, cy: y(own), r: NODE, style: { fill: nodeColour(score) } }),
          shape("text", { class: "sign", x: own.x, y: y(own) + 4 }, label),
        ),
      );
    } else {
      parts.push(shape("text", { class: "said halo", x: own.x, y: y(own) + 4 }, label));
    }
    if (own.node.word) parts.push(shape("text", { x: own.x, y: base + NODE + 18 }, own.node.word));
  }
  return drawing(right + MARGIN, base + NODE + 26, "tree", parts);
}

/** Draw the edge from a node up and then to its parent. */
function edge(own, y, gap) {
  const [x, top, middle] = [own.x, y(own.parent), own.parent.x];
  const turn = Math.min(CORNER, Math.abs(middle - x)) * (middle > x ? 1 : -1);
  const path =
    `M${x} ${y(own) - gap}V${top + Math.abs(turn)}Q${x} ${top} ${x + turn} ${top}H${middle}`;
  return shape("path", { class: "edge", d: path });
}

function nodeColour(score) {
  const depth = Math.max(-1, Math.min(1, score));
  if (Math.abs(depth) < MIN_SCORE) return "var(--soft)";
  const colour = depth > 0 ? "var(--accent)" : "var(--against)";
  return `color-mix(in srgb, ${colour} ${Math.round(62 * Math.abs(depth))}%, var(--paper))`;
}

// The best dependency tree: scores[word][head], head 0 is the root, which has one child.

/** Return the head of each word, by the search of the parser. */
export function bestHeads(scores, search) {
  if (search === "greedy") return scores.map((row) => row.indexOf(Math.max(...row)));
  const finite = replaceForbidden(scores);
  return search === "projective" ? projectiveTree(finite) : spanningTree(finite);
}

/** Replace -Infinity by a score that no tree can outweigh. */
function replaceForbidden(scores) {
  const values = scores.flatMap((row, word) => row.filter((v, head) => head !== word + 1 && v > -Infinity));
  const low = values.length ? values.reduce((a, b) => Math.min(a, b)) : 0;
  const high = values.length ? values.reduce((a, b) => Math.max(a, b)) : 0;
  const forbidden = low - (scores.length + 1) * (high - low + 1);
  return scores.map((row, word) =>
    row.map((value, head) => (head === word + 1 || value === -Infinity ? forbidden : value)),
  );
}

/** Chu-Liu/Edmonds: for each possible child of the root the best tree below it; the best of all. */
function spanningTree(scores) {
  const size = scores.length;
  if (size <= 1) return Array(size).fill(0);
  // A score under every tree's keeps the root from a second child.
  const span = scores.flat().reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const penalty = 2 * (size + 1) * (span + 1);
  const graph = [null, ...scores.map((row) => row.map((value, head) => (head ? value : value - penalty)))];
  return edmonds(graph).slice(1);
}

/** Return the head of each node of a graph[word][head] whose node 0 is the root. */
function edmonds(graph) {
  const size = graph.length;
  const heads = graph.map((row, word) => {
    if (!word) return -1;
    let best = -1;
    row.forEach((value, head) => {
      if (head !== word && value > -Infinity && (best < 0 || value > row[best])) best = head;
    });
    return best;
  });
  const cycle = findCycle(heads);
  if (!cycle) return heads;
  const inside = new Set(cycle);
  const outside = Array.from({ length: size }, (_, i) => i).filter((i) => !inside.has(i));
  const merged = outside.length; // the number of the contracted cycle
  const paid = new Map(cycle.map((word) => [word, graph[word][heads[word]]]));
  const enters = [], leaves = [];
  const smaller = outside.map((word) => {
    if (!word) return null;
    const row = outside.map((head) => graph[word][head]);
    const from = cycle.reduce((a, b) => (graph[word][b] > graph[word][a] ? b : a));
    leaves[word] = from;
    return [...row, graph[word][from]];
  });
  smaller.push([
    ...outside.map((head) => {
      const gain = (word) => graph[word][head] - paid.get(word);
      const to = cycle.reduce((a, b) => (gain(b) > gain(a) ? b : a));
      enters[head] = to;
      return gain(to);
    }),
    -Infinity,
  ]);
  const found = edmonds(smaller);
  const out = Array(size).fill(-1);
  for (const word of cycle) out[word] = heads[word];
  outside.forEach((word, i) => {
    if (word) out[word] = found[i] === merged ? leaves[word] : outside[found[i]];
  });
  const head = outside[found[merged]];
  out[enters[head]] = head;
  return out;
}

function findCycle(heads) {
  const state = heads.map(() => 0);
  for (let start = 1; start < heads.length; start++) {
    const path = [];
    let at = start;
    while (at > 0 && !state[at]) {
      state[at] = start;
      path.push(at);
      at = heads[at];
    }
    if (at > 0 && state[at] === start && path.includes(at)) return path.slice(path.indexOf(at));
  }
  return null;
}

/** Return the best tree without crossing arcs (Eisner 1996). */
function projectiveTree(scores) {
  const size = scores.length;
  const table = () => Array.from({ length: size }, () => new Float64Array(size));
  // Complete and incomplete spans [i][j], with the head at their left or right end.
  const [right, left, openRight, openLeft] = [table(), table(), table(), table()];
  const best = (value, start, stop) => {
    let at = start;
    for (let k = start + 1; k < stop; k++) if (value(k) > value(at)) at = k;
    return at;
  };
  const split = {
    open: (i, j) => (k) => right[i][k] + left[k + 1][j],
    left: (i, j) => (k) => left[i][k] + openLeft[k][j],
    right: (i, j) => (k) => openRight[i][k] + right[k][j],
  };
  for (let i = size - 1; i >= 0; i--) {
    for (let j = i + 1; j < size; j++) {
      const middle = best(split.open(i, j), i, j);
      const inside = split.open(i, j)(middle);
      openRight[i][j] = inside + scores[j][i + 1];
      openLeft[i][j] = inside + scores[i][j + 1];
      left[i][j] = split.left(i, j)(best(split.left(i, j), i, j));
      right[i][j] = split.right(i, j)(best(split.right(i, j), i + 1, j + 1));
    }
  }
  const heads = Array(size).fill(0);
  if (!size) return heads;
  const root = best((k) => scores[k][0] + left[0][k] + right[k][size - 1], 0, size);
  const stack = [[0, root, "left"], [root, size - 1, "right"]];
  while (stack.length) {
    const [i, j, kind] = stack.pop();
    if (i === j) continue;
    if (kind === "left") {
      const k = best(split.left(i, j), i, j);
      stack.push([i, k, "left"], [k, j, "openLeft"]);
    } else if (kind === "right") {
      const k = best(split.right(i, j), i + 1, j + 1);
      stack.push([i, k, "openRight"], [k, j, "right"]);
    } else {
      if (kind === "openLeft") heads[i] = j + 1;
      else heads[j] = i + 1;
      const k = best(split.open(i, j), i, j);
      stack.push([i, k, "right"], [k + 1, j, "left"]);
    }
  }
  return heads;
}

// CKY: the best binary tree over the spans of a sentence.

/** Return [start, end] of the spans of the best tree; `score(start, end)` is that of a span. */
export function bestTree(score, size) {
  if (!size) return [];
  const totals = Array.from({ length: size }, () => new Float64Array(size + 1));
  const bestSplit = (start, end) => {
    let split = start + 1;
    const value = (k) => totals[start][k] + totals[k][end];
    for (let k = start + 2; k < end; k++) if (value(k) > value(split)) split = k;
    return split;
  };
  for (let start = size - 1; start >= 0; start--) {
    totals[start][start + 1] = score(start, start + 1);
    for (let end = start + 2; end <= size; end++) {
      const split = bestSplit(start, end);
      totals[start][end] = totals[start][split] + totals[split][end] + score(start, end);
    }
  }
  const out = [], stack = [[0, size]];
  while (stack.length) {
    const [start, end] = stack.pop();
    out.push([start, end]);
    if (end - start === 1) continue;
    const split = bestSplit(start, end);
    stack.push([split, end], [start, split]);
  }
  return out;
}

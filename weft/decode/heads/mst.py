"""Maximum spanning dependency trees, compiled by Numba. Import it only to run it.

Scores are (n, n+1): rows are words, columns are heads, column 0 is the root. Every tree has
exactly one child of the root. B sentences   T words of the longest   n words of one
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from weft.errors import UserError
from weft.kernels.cpu.loops import compile_loop
from weft.machine import available_cpus

MAX_WORDS = 5000  # 16 bytes per pair of words: 400 MB
MAX_PROJECTIVE_WORDS = 2000  # cubic time
PADDING_HEAD = -1  # head of a step that is padding

# Without nan, and with sums and maxima in any order, the inner loops are vectorised.
_compile_fast = compile_loop(
    nogil=True, cache=True, boundscheck=False, fastmath={"nnan", "nsz", "reassoc"}
)
_compile_exact = compile_loop(nogil=True, cache=True, boundscheck=False)


def spanning_tree(scores: np.ndarray) -> np.ndarray:
    """Return the head (n,) of each word in the best tree, crossing arcs allowed; 0 is the root.

    A score of -inf forbids an arc: it is used only if no tree avoids it.
    """
    return _solve(scores, _chu_liu_edmonds, MAX_WORDS, "dependency trees")


def projective_tree(scores: np.ndarray) -> np.ndarray:
    """Return the head (n,) of each word in the best tree without crossing arcs (Eisner 1996)."""
    return _solve(scores, _eisner, MAX_PROJECTIVE_WORDS, "projective trees")


def best_trees(
    scores: np.ndarray, lengths: np.ndarray, projective: bool = False, threads: int = 0
) -> np.ndarray:
    """Return heads (B, T) of a padded batch of scores (B, T, T+1); sentences run in threads.

    Padding gets -1. `threads` defaults to the CPUs available to this process.
    """
    solve = projective_tree if projective else spanning_tree
    heads = np.full(scores.shape[:2], PADDING_HEAD, dtype=np.int64)

    def fill(row: int) -> None:
        n = int(lengths[row])
        heads[row, :n] = solve(scores[row, :n, : n + 1])

    map_rows(fill, np.argsort(-np.asarray(lengths), kind="stable").tolist(), threads)
    return heads


def map_rows(work: Callable[[int], None], rows: list[int], threads: int = 0) -> None:
    """Call `work` for each row, in threads: compiled code releases the GIL."""
    threads = min(threads or available_cpus(), len(rows))
    if threads <= 1:
        for row in rows:
            work(row)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(work, rows):
            pass  # iterating re-raises exceptions of the threads


def _solve(
    scores: np.ndarray, best: Callable[[np.ndarray, np.ndarray], None], longest: int, what: str
) -> np.ndarray:
    n = len(scores)
    assert scores.shape == (n, n + 1), scores.shape
    if n > longest:
        raise UserError(
            f"A sentence of {n:,} words is too long for {what} (limit {longest:,}). "
            "Split it into sentences."
        )
    heads = np.zeros(n, dtype=np.int64)
    if n:
        finite = np.array(scores, dtype=np.float64, order="C")  # a copy: it is modified in place
        if not _replace_forbidden(finite):
            raise UserError(
                "The parser's scores are not finite (nan or inf): training has diverged. "
                "Train again with a lower learning rate."
            )
        best(finite, heads)
    return heads


@_compile_exact
def _replace_forbidden(scores):  # type: ignore[no-untyped-def]
    """Replace -inf by a score no tree can outweigh; return False on nan or inf."""
    n = len(scores)
    low, high = np.inf, -np.inf
    for word in range(n):
        for head in range(n + 1):
            value = scores[word, head]
            if head == word + 1 or value == -np.inf:
                continue
            if not np.isfinite(value):
                return False
            low, high = min(low, value), max(high, value)
    if low > high:
        low, high = 0.0, 0.0
    forbidden = low - (n + 1) * (high - low + 1)
    for word in range(n):
        for head in range(n + 1):
            if head == word + 1 or scores[word, head] == -np.inf:
                scores[word, head] = forbidden
    return True


@_compile_exact
def _chu_liu_edmonds(scores, heads):  # type: ignore[no-untyped-def]
    """Chu–Liu/Edmonds for a dense graph in O(n²), as Tarjan (1977) orders the work.

    A path grows backwards along each cluster's best entering arc; when it closes a cycle, the
    cycle is contracted to one cluster. The root is not a candidate until a single cluster is left.
    That is the exact optimum under one child of the root: it equals penalising every root arc by
    more than any tree's score (Stanojević and Cohen 2021), without such a number in the sums.
    """
    n = len(scores)
    best = np.empty((n + 1, n + 1))  # best arc from cluster u to cluster v, at [v, u]
    head = np.empty((n + 1, n + 1), np.int32)  # the words this arc joins
    word = np.empty((n + 1, n + 1), np.int32)
    for v in range(1, n + 1):
        for u in range(n + 1):
            best[v, u], head[v, u], word[v, u] = scores[v - 1, u], u, v
    alive, node = np.ones(n + 1, np.bool_), np.arange(n + 1)  # node: index in the forest
    # The forest of contractions: leaves are words, inner nodes are contracted cycles.
    parent, sibling = np.full(2 * n + 1, -1), np.full(2 * n + 1, -1)
    child = np.full(2 * n + 1, -1)
    enters = np.zeros((2 * n + 1, 2), np.int64)  # the arc chosen to enter a node: head, word
    path, depth, paid = np.empty(n + 1, np.int64), np.full(n + 1, -1), np.zeros(n + 1)
    path[0], depth[1], size, left, nodes = 1, 0, 1, n, n + 1
    while left > 1:
        v = path[size - 1]
        u, top = 0, -np.inf
        for other in range(1, n + 1):
            if alive[other] and other != v and best[v, other] > top:
                u, top = other, best[v, other]
        enters[node[v], 0], enters[node[v], 1], paid[v] = head[v, u], word[v, u], top
        if depth[u] < 0:
            path[size], depth[u], size = u, size, size + 1
            continue
        cycle = path[depth[u] : size]
        _contract_cycle(cycle, best, head, word, alive, paid)
        for member in cycle:
            parent[node[member]], sibling[node[member]] = nodes, child[nodes]
            child[nodes] = node[member]
        node[u], nodes, left, size = nodes, nodes + 1, left - len(cycle) + 1, depth[u] + 1
    last = path[0]
    enters[node[last], 0], enters[node[last], 1] = head[last, 0], word[last, 0]
    _expand_forest(node[last], enters, parent, sibling, child, heads)


@_compile_exact
def _contract_cycle(cycle, best, head, word, alive, paid):  # type: ignore[no-untyped-def]
    """Contract a cycle into its first member.

    An arc entering the cycle at a member saves the score of that member's arc.
    """
    first = cycle[0]
    for member in cycle:
        alive[member] = False
    for u in range(len(best)):
        if u and not alive[u]:
            continue
        best[first, u] -= paid[first]
        for member in cycle[1:]:
            value = best[member, u] - paid[member]
            if value > best[first, u]:
                best[first, u] = value
                head[first, u], word[first, u] = head[member, u], word[member, u]
            if u and best[u, member] > best[u, first]:
                best[u, first] = best[u, member]
                head[u, first], word[u, first] = head[u, member], word[u, member]
    alive[first] = True


@_compile_exact
def _expand_forest(top, enters, parent, sibling, child, heads):  # type: ignore[no-untyped-def]
    """Read heads off the forest: an arc into a node replaces the arcs on its way to the word."""
    stack = np.empty(len(parent), np.int64)
    stack[0], size = top, 1
    while size:
        size -= 1
        node = stack[size]
        at = enters[node, 1]
        heads[at - 1] = enters[node, 0]
        while at != node:
            other = child[parent[at]]
            while other >= 0:
                if other != at:
                    stack[size], size = other, size + 1
                other = sibling[other]
            at = parent[at]


@_compile_fast
def _max_sum(a, b, start, stop):  # type: ignore[no-untyped-def]
    """Return the largest a[k] + b[k]."""
    top = a[start] + b[start]
    for k in range(start + 1, stop):
        top = max(top, a[k] + b[k])
    return top


@_compile_exact
def _argmax_sum(a, b, start, stop):  # type: ignore[no-untyped-def]
    """Return the first k that maximises a[k] + b[k]."""
    best = start
    for k in range(start + 1, stop):
        if a[k] + b[k] > a[best] + b[best]:
            best = k
    return best


@_compile_exact
def _eisner(scores, heads):  # type: ignore[no-untyped-def]
    """Eisner's algorithm over complete and incomplete spans, headed at the left or right end.

    Only words are parsed; the root then takes the word whose two halves score best, which enforces
    one child at no extra cost. Tables read by column are stored transposed, so that every inner
    loop is contiguous in memory; split points are recomputed afterwards.
    """
    n = len(scores)
    right, right_t = np.zeros((n, n)), np.zeros((n, n))  # complete, headed at i: [i, j], [j, i]
    left, left_t = np.zeros((n, n)), np.zeros((n, n))  # complete, headed at j
    open_right, open_left_t = np.zeros((n, n)), np.zeros((n, n))  # the arc i -> j, or j -> i
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            inside = _max_sum(right[i, : n - 1], left_t[j, 1:], i, j)
            open_right[i, j] = inside + scores[j, i + 1]
            open_left_t[j, i] = inside + scores[i, j + 1]
            left[i, j] = left_t[j, i] = _max_sum(left[i], open_left_t[j], i, j)
            right[i, j] = right_t[j, i] = _max_sum(open_right[i], right_t[j], i + 1, j + 1)
    root = _argmax_sum(scores[:, 0] + left[0], right_t[n - 1], 0, n)
    heads[root] = 0
    stack = np.empty((2 * n + 2, 4), np.int64)  # from, to, headed at the right end, incomplete
    stack[0] = (0, root, 1, 0)
    stack[1] = (root, n - 1, 0, 0)
    size = 2
    while size:
        size -= 1
        i, j, right_headed, is_open = stack[size]
        if i == j:
            continue
        if is_open:
            heads[i if right_headed else j] = (j if right_headed else i) + 1
            k = _argmax_sum(right[i, : n - 1], left_t[j, 1:], i, j)
            stack[size], stack[size + 1] = (i, k, 0, 0), (k + 1, j, 1, 0)
        elif right_headed:
            k = _argmax_sum(left[i], open_left_t[j], i, j)
            stack[size], stack[size + 1] = (i, k, 1, 0), (k, j, 1, 1)
        else:
            k = _argmax_sum(open_right[i], right_t[j], i + 1, j + 1)
            stack[size], stack[size + 1] = (i, k, 0, 1), (k, j, 0, 0)
        size += 2

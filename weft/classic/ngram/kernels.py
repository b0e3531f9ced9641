"""Compiled loops of the n-gram models: counting by refined sorting, the trie, and queries.

A trie is flat, order after order, the children of a node side by side and sorted by word:
M nodes   I of them inner, of an order below N   V words, which are the nodes of order 1
The children of node i are the nodes first[i] … first[i + 1] − 1.
"""

import numba
import numpy as np

compiled = numba.njit(nogil=True, cache=True, boundscheck=False)
MAX_INSERTION_SORT = 16  # up to so many places are sorted by insertion


@compiled
def framed(flat, lengths, bos, eos, into):  # type: ignore[no-untyped-def]
    """Every sentence between its marks, one after the other."""
    read = write = 0
    for length in lengths:
        into[write] = bos
        into[write + 1 : write + 1 + length] = flat[read : read + length]
        into[write + 1 + length] = eos
        read += length
        write += length + 2


@compiled
def by_word(ids, ends):  # type: ignore[no-untyped-def]
    """Places of the stream sorted by the word there; `ends` (V,) are its running counts."""
    places = np.empty(len(ids), dtype=np.int32)
    free = np.empty_like(ends)
    free[0] = 0
    free[1:] = ends[:-1]
    for place in range(len(ids)):
        word = ids[place]
        places[free[word]] = place
        free[word] += 1
    return places


@compiled
def _sort(keys, n):  # type: ignore[no-untyped-def]
    if n > MAX_INSERTION_SORT:
        keys[:n].sort()
        return
    for i in range(1, n):
        key, j = keys[i], i
        while j and keys[j - 1] > key:
            keys[j] = keys[j - 1]
            j -= 1
        keys[j] = key


@compiled
def refine(ids, places, starts, counts, words, depth, eos):  # type: ignore[no-untyped-def]
    """The nodes of the next order: each node's places, sorted by the word `depth` steps on.

    A node is a run of places[starts] where the same words follow; none goes past `eos`. Of the
    children: words, counts, starts, and (nodes + 1,) where the children of each node begin.
    """
    most = largest = 0
    for i in range(len(words)):
        if words[i] != eos:
            most += counts[i]
            largest = max(largest, counts[i])
    found = np.empty((3, most), dtype=np.int32)
    first = np.empty(len(words) + 1, dtype=np.int32)
    keys = np.empty(largest, dtype=np.int64)
    made = 0
    for i in range(len(words)):
        first[i] = made
        n = 0 if words[i] == eos else counts[i]
        # Word and place in one number: equal words stay in the order of the text.
        for j in range(n):
            place = places[starts[i] + j]
            keys[j] = np.int64(ids[place + depth]) << 32 | place
        _sort(keys, n)
        last = np.int64(-1)
        for j in range(n):
            word = keys[j] >> 32
            places[starts[i] + j] = keys[j] & 0x7FFFFFFF
            if word != last:
                found[0, made], found[1, made], found[2, made] = word, 0, starts[i] + j
                last = word
                made += 1
            found[1, made - 1] += 1
    first[len(words)] = made
    return found[0, :made].copy(), found[1, :made].copy(), found[2, :made].copy(), first


@compiled
def find(words, low, high, word):  # type: ignore[no-untyped-def]
    """Return the index of a word in the sorted words[low:high], or −1."""
    end = high
    while low < high:
        middle = (low + high) >> 1
        if words[middle] < word:
            low = middle + 1
        else:
            high = middle
    return low if low < end and words[low] == word else -1


@compiled
def link(words, first, links, begin, end):  # type: ignore[no-untyped-def]
    """Fill in, for the children of nodes begin … end − 1, the node without the first word.

    `links` (M,) is known for these nodes; every n-gram's suffix must be in the trie.
    """
    for node in range(begin, end):
        shorter = links[node]
        low, high = first[shorter], first[shorter + 1]
        for child in range(first[node], first[node + 1]):
            at = find(words, low, high, words[child])
            links[child] = at
            low = at + 1


@compiled
def discounted(weights, kept, first, links, discounts, probabilities, left, begin, end):  # type: ignore[no-untyped-def]
    """One order of interpolated Kneser–Ney (Chen & Goodman 1998, equations 24 and 25).

    For nodes begin … end − 1, fills in what they leave to the shorter history, `left`, and the
    probabilities of their children; those of the order below are known. `weights` are adjusted
    counts, `discounts` (4,) go by them. What is not kept is left to the shorter history in full.
    """
    for node in range(begin, end):
        if first[node] == first[node + 1]:
            continue
        total = spared = 0.0
        for child in range(first[node], first[node + 1]):
            total += weights[child]
            spared += discounts[min(weights[child], 3)] if kept[child] else weights[child]
        left[node] = spared / total
        for child in range(first[node], first[node + 1]):
            if kept[child]:
                own = weights[child] - discounts[min(weights[child], 3)]
                probabilities[child] = own / total + left[node] * probabilities[links[child]]


@compiled
def mixed(counts, first, links, shares, probabilities, begin, end):  # type: ignore[no-untyped-def]
    """One order of linear interpolation: `shares` (I,) is how much each history is trusted."""
    for node in range(begin, end):
        for child in range(first[node], first[node + 1]):
            own = shares[node] * (counts[child] / counts[node])
            probabilities[child] = own + (1 - shares[node]) * probabilities[links[child]]


@compiled
def observe(words, first, counts, marks, ids, ends, into, histories):  # type: ignore[no-untyped-def]
    """Count how often each word followed its histories, and how often those occurred.

    `into` and `histories` are (words, N), the history of column k being k words long; column 0 of
    `histories` is left alone. Zeros where a history was never met.
    """
    bos, eos, order = marks
    nodes = np.empty(order, dtype=np.int64)
    for s in range(len(ends)):
        nodes[:] = -1
        nodes[0] = bos
        for place in range(ends[s - 1] if s else 0, ends[s] + 1):
            word = ids[place] if place < ends[s] else eos
            for k in range(order - 1, 0, -1):
                node = nodes[k - 1]
                nodes[k] = find(words, first[node], first[node + 1], word) if node >= 0 else -1
                histories[place + s, k] = counts[node] if node >= 0 else 0
                into[place + s, k] = counts[nodes[k]] if nodes[k] >= 0 else 0
            nodes[0] = word
            into[place + s, 0] = counts[word]


@compiled
def score(words, first, scores, backoffs, marks, ids, ends, begin, end, into):  # type: ignore[no-untyped-def]
    """The log-probability of every word, and of the mark after the last, of some sentences.

    `marks` is (bos, eos, N); what belongs to sentence s begins at into[ends[s − 1] + s].
    """
    bos, eos, order = marks
    nodes = np.empty(order, dtype=np.int64)  # of the n-grams that end at the word before
    for s in range(begin, end):
        nodes[:] = -1
        nodes[0] = bos
        for place in range(ends[s - 1] if s else 0, ends[s] + 1):
            word = ids[place] if place < ends[s] else eos
            left, decided = 0.0, False
            # From the longest history down: the first that knows the word decides.
            for k in range(order - 1, 0, -1):
                node = nodes[k - 1]
                if node < 0:
                    nodes[k] = -1
                    continue
                nodes[k] = find(words, first[node], first[node + 1], word)
                if decided:
                    continue
                if nodes[k] >= 0:
                    left, decided = left + scores[nodes[k]], True
                else:
                    left += backoffs[node]
            nodes[0] = word
            into[place + s] = left if decided else left + scores[word]


@compiled
def follow(words, first, nodes, ids, into):  # type: ignore[no-untyped-def]
    """The nodes (B, N − 1) of the histories one word longer, −1 where one was never met."""
    for row in range(len(ids)):
        for k in range(nodes.shape[1]):
            node = nodes[row, k - 1] if k else -1
            if k == 0:
                into[row, k] = ids[row]
            elif node < 0:
                into[row, k] = -1
            else:
                into[row, k] = find(words, first[node], first[node + 1], ids[row])


@compiled
def spread(words, first, scores, backoffs, nodes, begin, end, into):  # type: ignore[no-untyped-def]
    """Log-probabilities (B, V) of all words after the histories of rows begin … end − 1.

    The words of order 1 are written first; each longer history then overwrites those it knows.
    """
    size, reach = into.shape[1], nodes.shape[1]
    left = np.zeros(reach + 1)  # left[k]: the sum of the backoffs of histories longer than k
    for row in range(begin, end):
        for k in range(reach - 1, -1, -1):
            node = nodes[row, k]
            left[k] = left[k + 1] + (backoffs[node] if node >= 0 else 0.0)
        for word in range(size):
            into[row, word] = left[0] + scores[word]
        for k in range(reach):
            node = nodes[row, k]
            if node >= 0:
                for child in range(first[node], first[node + 1]):
                    into[row, words[child]] = left[k + 1] + scores[child]


@compiled
def trace(words, first, ids, into):  # type: ignore[no-untyped-def]
    """The node that all words but the last of each n-gram lead to; −1 where there is none."""
    for i in range(len(ids)):
        node = np.int64(ids[i, 0])
        for k in range(1, ids.shape[1] - 1):
            if node >= 0:
                node = find(words, first[node], first[node + 1], ids[i, k])
        into[i] = node

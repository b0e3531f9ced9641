# %% [markdown]
# # Word vectors and maps
#
# “You shall know a word by the company it keeps.” Skip-gram with negative sampling (Mikolov et al. 2013) turns that
# sentence into a loss. We write one update by hand, then train on Python's own documentation and draw a map.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import weft
from weft.report.pages.vectors import build_map, select_words
from weft.vectors.corpus import corpus
from weft.vectors.word2vec import train_vectors

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests

# %% [markdown]
# ## One update by hand
#
# A word $i$ has an input vector $v_i$, a context word $o$ an output vector $v'_o$. For a true pair and $K$ noise words
# the loss is
#
# $$-\log \sigma(v'_o \cdot v_i) - \sum_{k=1}^{K} \log \sigma(-v'_k \cdot v_i)$$
#
# Its gradient with respect to a score is simply *prediction − label*, with label 1 for the true pair and 0 for noise.


# %%
def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def update(inputs, outputs, word, context, noise, rate):
    """Move the vectors of one pair and its noise words; return the loss before."""
    rows = np.array([context, *noise])
    labels = np.array([1.0, *[0.0] * len(noise)])
    scores = sigmoid(outputs[rows] @ inputs[word])
    loss = -np.log(np.where(labels == 1, scores, 1 - scores)).sum()
    errors = (scores - labels)[:, None]
    gradient = (errors * outputs[rows]).sum(0)
    np.subtract.at(outputs, rows, rate * errors * inputs[word])
    inputs[word] -= rate * gradient
    return loss


rng = np.random.default_rng(0)
inputs, outputs = rng.normal(0, 0.1, (20, 8)), np.zeros((20, 8))
losses = [update(inputs, outputs, 3, 7, [1, 2, 4, 5], 0.5) for _ in range(30)]
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot(losses)
axis.set(xlabel="update", ylabel="loss of the pair")
plt.show()

# %% [markdown]
# **Question.** The first loss is $5 \log 2 \approx 3.47$. Why exactly that?
#
# ## Train on real text

# %%
paragraphs = weft.corpus("python-docs")
texts = corpus([paragraphs], min_count=5)
words = train_vectors(texts, "skipgram", width=50, epochs=2 if QUICK else 15, threads=1, seed=1)
words

# %% [markdown]
# ## Neighbours
#
# Near means: used in similar contexts. Antonyms are neighbours, too.

# %%
words.neighbours("list", k=8)

# %%
words.neighbours("read", k=8)

# %% [markdown]
# ## Analogies, and a trick
#
# *function : functions = class : ?* is answered by the word nearest to $b - a + c$. The three given words are never an
# answer. What happens if they may be?

# %%
words.analogy("function", "functions", "class", k=5)


# %%
def unit(vector):
    return vector / np.linalg.norm(vector)


query = unit(words["functions"]) - unit(words["function"]) + unit(words["class"])
cosines = {word: unit(words[word]) @ unit(query) for word in words.words[:3000]}
[
    (word, round(float(cosine), 3))
    for word, cosine in sorted(cosines.items(), key=lambda pair: -pair[1])[:4]
]

# %% [markdown]
# Often the nearest word is *class* itself: much of what analogy tests measure is that the answer lies near the third
# word (Linzen 2016).
#
# ## A map
#
# t-SNE keeps near words near; distances between far groups mean little. The line below says how many of each word's
# nearest neighbours stayed near.

# %%
queries = ["list", "file", "error", "thread", "date", "socket"]
build_map(words, select_words(words, queries, near=8), "pca" if QUICK else "t-sne")

# %% [markdown]
# ## Frequency shapes the space
#
# Common words have seen many updates, and their vectors differ in length from those of rare ones.

# %%
counts = np.array(words.counts)
figure, axis = plt.subplots(figsize=(5, 3))
axis.scatter(counts, words.lengths, s=4, alpha=0.4)
axis.set(xscale="log", xlabel="occurrences", ylabel="length of the vector")
plt.show()

# %% [markdown]
# ## Try next
#
# - Train with `"cbow"` or `"fasttext"`. Which of them gives good vectors to words seen five times?
# - Give `window=1` and `window=10`: one finds words of the same grammar, the other words of the same topic.
# - `words.save("words.vec")` writes a file that other tools read, and `embedder.vectors` of a recipe starts from it.

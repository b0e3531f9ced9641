# %% [markdown]
# # CRFs and parsing
#
# Answers that are structures: a sequence of tags, a tree. We find the best tag sequence by dynamic programming, check it
# against all sequences, and train a tagger and a parser on a generated treebank.

# %%
import itertools
import os
from pathlib import Path

import matplotlib.pyplot as plt
import torch

import weft
from weft.batch import Padded
from weft.decode.heads.crf import CRF
from weft.text.synthetic.treebank import generate_treebank, write_treebank

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests
_ = torch.manual_seed(0)

# %% [markdown]
# ## Viterbi
#
# A linear-chain CRF scores a whole sequence: $s(y) = \sum_t e_t(y_t) + \sum_t A[y_{t-1}, y_t]$. There are $C^T$
# sequences, but the best one that ends in a tag needs only the best ones that end in each tag one step before.


# %%
def viterbi(emissions, transitions):
    """Return the best tags of (T, C) emissions and their score."""
    best, back = emissions[0], []
    for step in emissions[1:]:
        scores = best[:, None] + transitions + step  # from row to column
        best, arg = scores.max(0)
        back.append(arg)
    tags = [int(best.argmax())]
    for arg in reversed(back):
        tags.append(int(arg[tags[-1]]))
    return tags[::-1], best.max()


def score(tags, emissions, transitions):
    steps = sum(emissions[t, tag] for t, tag in enumerate(tags))
    return steps + sum(transitions[a, b] for a, b in itertools.pairwise(tags))


emissions, transitions = torch.randn(6, 3), torch.randn(3, 3)
tags, value = viterbi(emissions, transitions)
everything = {
    seq: float(score(seq, emissions, transitions)) for seq in itertools.product(range(3), repeat=6)
}
assert max(everything, key=everything.get) == tuple(tags)

chain = CRF(3)
with torch.no_grad():
    chain.transitions.copy_(transitions)
assert chain.viterbi(Padded.from_rows([[0] * 6]).with_data(emissions[None]))[0][0].tolist() == tags
print(f"best of {len(everything)} sequences: {tags}, score {value:.3f}")

# %% [markdown]
# The same recursion with *logsumexp* instead of *max* gives the partition function, and with it probabilities:

# %%
log_z = chain.log_partition(Padded.from_rows([[0] * 6]).with_data(emissions[None])).detach()
torch.testing.assert_close(log_z[0], torch.tensor(list(everything.values())).logsumexp(0))
print(f"probability of the best sequence: {float((value - log_z[0]).exp()):.3f}")

# %% [markdown]
# ## Names in text
#
# Tags such as `B-PER I-PER` mark spans. Some names are people in one sentence and towns in another, so context decides.

# %%
folder = Path("treebank-small" if QUICK else "treebank")
write_treebank(folder, generate_treebank(size=200 if QUICK else 3000))
tagger = weft.train(
    "tagger-bilstm-crf",
    "runs/structure/names",
    train=str(folder / "train.conll"),
    dev=str(folder / "dev.conll"),
    test=str(folder / "test.conll"),
    changes={
        "embedder.0.width": 32,
        "encoder.hidden": 64,
        "train.epochs": 1 if QUICK else 10,
        "train.learning_rate": 0.003,
    },
    quiet=True,
    overwrite=True,
)
tagger

# %%
tagger.predictor(["Ana Lopez met Jordan in Oslo .", "Jordan Keller slept in Jordan ."])

# %% [markdown]
# What did the chain learn? Large values mean: this tag likes to follow that one. Forbidden steps are white.

# %%
chain = next(part for part in tagger.predictor.engine.model.modules() if isinstance(part, CRF))
weights = chain.transitions.detach().masked_fill(~chain.may_follow.bool(), float("nan"))
figure, axis = plt.subplots(figsize=(4.5, 4))
drawn = axis.imshow(weights, cmap="coolwarm")
names = range(len(chain.names))
axis.set(
    xticks=names,
    yticks=names,
    xticklabels=chain.names,
    yticklabels=chain.names,
    xlabel="to",
    ylabel="from",
)
axis.tick_params(axis="x", rotation=45)
figure.colorbar(drawn)
plt.show()

# %% [markdown]
# **Question.** Why is the step from `O` to `I-PER` forbidden, and what would happen to the F1 if it were not?
#
# ## Dependency trees
#
# A biaffine layer scores every pair of words as head and dependent; the best *tree* is found by search, not word by word
# (Dozat and Manning 2017).

# %%
parser = weft.train(
    "parser",
    "runs/structure/parser",
    train=str(folder / "train.conllu"),
    dev=str(folder / "dev.conllu"),
    test=str(folder / "test.conllu"),
    changes={
        "embedder.0.width": 32,
        "encoder.hidden": 48,
        "encoder.layers": 1,
        "train.epochs": 1 if QUICK else 6,
        "train.learning_rate": 0.005,
    },
    quiet=True,
    overwrite=True,
)
parser

# %%
parser.predictor(["Ana filmed the singer with a camera .", "The old teacher loved the songs ."])

# %% [markdown]
# ## Phrases
#
# Constituency trees nest phrases. CKY finds the best one in $O(n^3)$; here is a gold tree of the corpus.

# %%
generate_treebank(size=200)["test"][0].tree

# %% [markdown]
# ## Try next
#
# - Train `"tagger-bilstm"`, the same network without the chain. On which sentences do they differ?
# - `head.search="projective"` forbids crossing arcs in the parser.
# - Train `"constituency"` on `treebank/train.ptb`, and colour trees with `"tree-lstm"`.

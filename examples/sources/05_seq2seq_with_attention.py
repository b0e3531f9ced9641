# %% [markdown]
# # Sequence to sequence with attention
#
# A decoder that starts from one vector must squeeze the whole sentence through it. Attention lets it look back at every
# word (Bahdanau et al. 2015). We compute it by hand, then train both on an invented language that is written backwards.

# %%
import os
import random

import matplotlib.pyplot as plt
import torch

import weft
from weft.explain.generation import trace_generation

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests
_ = torch.manual_seed(0)

# %% [markdown]
# ## Attention in three lines
#
# A query $q$ scores every state $h_s$ of the source; softmax turns scores into weights; the summary is the weighted mean.


# %%
def attend(query, states):
    weights = torch.softmax(states @ query, dim=0)
    return weights @ states, weights


states = torch.eye(6)
summary, weights = attend(torch.tensor([0.0, 0, 3, 0, 1, 0]), states)
figure, axis = plt.subplots(figsize=(5, 2))
axis.bar(range(6), weights)
axis.set(xlabel="source position", ylabel="weight")
plt.show()

# %% [markdown]
# ## A language
#
# Every English word has a translation, and the sentence is said backwards. The first word must be remembered longest.

# %%
ENGLISH = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "red",
    "green",
    "blue",
    "old",
    "new",
    "big",
    "small",
    "cat",
    "dog",
    "bird",
    "fish",
]
LOOM = [
    "ka",
    "lo",
    "mi",
    "nu",
    "pe",
    "ra",
    "si",
    "to",
    "vu",
    "wa",
    "zo",
    "bi",
    "du",
    "fe",
    "go",
    "ha",
    "ji",
    "ku",
    "le",
    "mo",
    "no",
]
DICTIONARY = dict(zip(ENGLISH, LOOM, strict=True))


def draw_pair(draw, low=3, high=9):
    words = draw.choices(ENGLISH, k=draw.randint(low, high))
    return " ".join(words), " ".join(DICTIONARY[word] for word in reversed(words))


draw = random.Random(0)
train = [draw_pair(draw) for _ in range(200 if QUICK else 2500)]
dev, test = ([draw_pair(draw) for _ in range(60 if QUICK else 200)] for _ in range(2))
train[:2]

# %% [markdown]
# ## Two models
#
# `seq2seq` hands the encoder's last state to the decoder; `seq2seq-attention` also looks back at every step.

# %%
models = {}
for recipe in ("seq2seq", "seq2seq-attention"):
    models[recipe] = weft.train(
        recipe,
        f"runs/loom/{recipe}",
        train=train,
        dev=dev,
        test=test,
        changes={
            "tokenizer.kind": "word",
            "embedder.width": 32,
            "embedder.dropout": 0.1,
            "encoder.hidden": 48,
            "decoder.width": 32,
            "decoder.hidden": 64,
            "decoder.dropout": 0.1,
            "task.metrics": ["exact", "bleu"],
            "train.epochs": 1 if QUICK else 10,
        },
        overwrite=True,
        quiet=True,
    )
models["seq2seq"]

# %%
models["seq2seq-attention"]

# %% [markdown]
# **Question.** Both have the same encoder. Why does the gap grow with the length of the sentence? The next cell shows it.

# %%
figure, axis = plt.subplots(figsize=(5, 3))
lengths = range(3, 10, 3) if QUICK else range(3, 12)
for recipe, result in models.items():
    right = []
    for length in lengths:
        pairs = [draw_pair(draw, length, length) for _ in range(20 if QUICK else 60)]
        answers = result.predictor([source for source, _ in pairs])
        right.append(
            sum(a.value == target for a, (_, target) in zip(answers, pairs, strict=True))
            / len(pairs)
        )
    axis.plot(lengths, [100 * one for one in right], marker="o", label=recipe)
axis.axvspan(9.5, 11.5, color="0.92")
axis.set(
    xlabel="words (grey: longer than in training)",
    ylabel="sentences all right, %",
    xlim=(2.5, 11.5),
)
axis.legend()
plt.show()

# %% [markdown]
# ## Look at the weights
#
# Nobody told the model which word translates which. Rows are words it wrote, columns words it read; below is the beam
# search that found the answer.

# %%
model = models["seq2seq-attention"].predictor
trace_generation(model, "one old cat two new birds".replace("birds", "bird"))

# %% [markdown]
# ## Search
#
# Several hypotheses with their normalised log-probabilities:

# %%
weft.generate(model, ["red fish", "three small old dog"], method="beam", num_beams=4, num_return=3)

# %% [markdown]
# ## Try next
#
# - Change `attention.score` to `"dot"`, `"scaled"` or `"bilinear"`. Which learns fastest?
# - Remove `reversed`. Does the model without attention get better? (Sutskever et al. 2014 reversed their sources.)
# - `weft demo --pairs pairs` writes a language with grammar: cases, and verbs at the end.

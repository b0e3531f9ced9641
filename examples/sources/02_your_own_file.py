# %% [markdown]
# # Your own file
#
# From a messy table to a model you can trust: check the data, train, read the errors, predict a whole file. Replace the
# file that is generated here by your own: CSV, TSV, JSON lines, Parquet, Excel exports, gzipped or not.

# %%
import csv
import os
import random

import matplotlib.pyplot as plt
import numpy as np

import weft

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests

# A table as it comes from the office: misspelt labels, duplicates, empty cells, a leak into the test file.
draw = random.Random(1)
reviews = weft.corpus("reviews")
rows = [[one.text, one.label] for one in reviews["train"][: 400 if QUICK else 2000]]
for row in draw.sample(rows, 6):
    row[1] = "postive"
for row in draw.sample(rows, 4):
    row[0] = ""
rows += draw.sample(rows, 20)
test = [[one.text, one.label] for one in reviews["test"][:300]] + draw.sample(rows, 15)

for name, table in (("train.csv", rows), ("test.csv", test)):
    with open(name, "w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["comment", "verdict"], *table])

# %% [markdown]
# ## Check before you train
#
# `weft.check` looks for what makes a good figure a lie: test rows that are in the training file, labels that differ by a
# letter, duplicates, broken encodings. Each finding has its lines and the fix.

# %%
weft.check(["train.csv", "test.csv"])

# %% [markdown]
# **Question.** Which of these findings would make the test accuracy too *high*, which too low?
#
# ## Errors name the line
#
# Rows without text stop a training, with file, line and what to do.

# %%
try:
    weft.train("tfidf", "runs/own/first", train="train.csv", quiet=True, overwrite=True)
except weft.UserError as error:
    print(error)

# %% [markdown]
# So we repair the file: drop empty rows, duplicates and leaks, and correct the label.

# %%
known = {text for text, _ in test}
clean, seen = [], set()
for text, label in rows:
    if text and text not in known and text not in seen:
        seen.add(text)
        clean.append((text, label.replace("postive", "positive")))
tidy = [(text, label) for text, label in test if text and label in ("positive", "negative")]
print(f"{len(rows)} rows, {len(clean)} after cleaning")
weft.check([clean, tidy])

# %% [markdown]
# ## Train
#
# Without a dev set, Weft holds out a part of the training rows and says so.

# %%
result = weft.train("tfidf", "runs/own/tfidf", train=clean, test=tidy, quiet=True, overwrite=True)
result

# %% [markdown]
# ## How much would more data help?
#
# A learning curve answers that better than intuition: train on halves, quarters and eighths.

# %%
sizes = [len(clean) // part for part in (8, 4, 2, 1)]
curve = [
    weft.train(
        "tfidf", "runs/own/curve", train=clean[:size], test=tidy, quiet=True, overwrite=True
    ).figures["test"]["accuracy"]
    for size in sizes
]
middle = np.array([100 * one.value for one in curve])
low, high = (np.array([100 * getattr(one, end) for one in curve]) for end in ("low", "high"))
figure, axis = plt.subplots(figsize=(5, 3))
axis.errorbar(sizes, middle, [middle - low, high - middle], marker="o", capsize=3)
axis.set(xscale="log", xlabel="training rows", ylabel="accuracy on test, %")
axis.set_xticks(sizes, sizes)
axis.minorticks_off()
plt.show()

# %% [markdown]
# ## Where is it wrong?
#
# Look at confident errors first: they are wrong labels, or something that the model cannot see.

# %%
answers = result.predictor([text for text, _ in tidy])
wrong = [
    i
    for i, (answer, (_, label)) in enumerate(zip(answers, tidy, strict=True))
    if answer.value != label
]
wrong.sort(key=lambda i: -answers[i].score)
result.predictor([tidy[i][0] for i in wrong[:5]])

# %% [markdown]
# ## Predict a file

# %%
with open("predictions.csv", "w", newline="", encoding="utf-8") as file:
    writer = csv.writer(file)
    writer.writerow(["text", "answer", "probability"])
    for (text, _), answer in zip(tidy, answers, strict=True):
        writer.writerow([text, answer.value, round(answer.score, 4)])
print(open("predictions.csv", encoding="utf-8").read()[:300])

# %% [markdown]
# ## Try next
#
# - Point the first cell at a file of yours. Columns are detected; `text=` and `label=` name them.
# - Answer only where the model is sure: how many errors are left among the half with the highest probability?
# - Let *From bake-off to deployed model* choose the recipe.

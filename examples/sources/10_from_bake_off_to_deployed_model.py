# %% [markdown]
# # From bake-off to deployed model
#
# Which model should go to production? Compare recipes on your data, take the cheapest of the best, check it once on
# texts it has never seen, export it, and serve it. All of that is one page of Python.

# %%
import importlib.util
import json
import os
from pathlib import Path
from urllib.request import Request, urlopen

import matplotlib.pyplot as plt

import weft
from weft.export.page.export import export_page

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests

reviews = weft.corpus("reviews")
train = [(one.text, one.label) for one in reviews["train"][: 400 if QUICK else 1500]]
test = [(one.text, one.label) for one in reviews["test"][:300]]

# %% [markdown]
# ## Compare
#
# Every recipe is trained with several seeds, each in a process of its own. The table has the mean with its interval, a
# paired test against the best, latency and size. Below it stands the recommendation: the cheapest model that is not
# significantly worse than the best.

# %%
board = weft.compare(
    [train, test],
    "runs/bakeoff",
    recipes=["tfidf", "fasttext"] if QUICK else ["tfidf", "fasttext", "cnn"],
    seeds=1 if QUICK else 2,
    minutes=3,
    changes={"train": {"epochs": 2 if QUICK else 8}},
    quiet=True,
    overwrite=True,
)
board

# %% [markdown]
# `runs/bakeoff/report.html` has learning curves, confusion matrices and errors. The trade-off in one picture:

# %%
figure, axis = plt.subplots(figsize=(5, 3))
for row in board:
    if row.status == "ranked":
        axis.scatter(row.p50_ms, 100 * row.quality)
        axis.annotate(
            row.recipe, (row.p50_ms, 100 * row.quality), textcoords="offset points", xytext=(5, 4)
        )
axis.set(xscale="log", xlabel="median latency of a text, ms", ylabel="accuracy, %")
axis.minorticks_off()
axis.margins(0.2)
plt.show()

# %% [markdown]
# **Question.** The best row of a table of many rows looks better than it is. Why? And what should you do about it?
#
# ## Evaluate once
#
# These texts took no part in any choice above.

# %%
model = weft.load("runs/bakeoff/model")
unseen = [(one.text, one.label) for one in reviews["test"][300:900]]
weft.evaluate(model, unseen)

# %% [markdown]
# ## Answer only when sure
#
# A product may hand unsure cases to a person. How many errors remain if it answers only above a threshold?

# %%
answers = model([text for text, _ in unseen])
correct = [answer.value == label for answer, (_, label) in zip(answers, unseen, strict=True)]
order = sorted(range(len(answers)), key=lambda i: -answers[i].score)
errors, wrong = [], 0
for count, i in enumerate(order, 1):
    wrong += not correct[i]
    errors.append(100 * wrong / count)
figure, axis = plt.subplots(figsize=(5, 3))
axis.plot([100 * count / len(order) for count in range(1, len(order) + 1)], errors)
axis.set(xlabel="texts answered, %", ylabel="errors among them, %")
plt.show()

# %% [markdown]
# ## Export
#
# One HTML file that answers in any browser, offline, tokenizer included:

# %%
page = export_page("runs/bakeoff/model", "model.html", overwrite=True)
print(f"model.html: {Path('model.html').stat().st_size / 1024:.0f} kB")

# %% [markdown]
# ## Serve
#
# `weft serve runs/bakeoff/model` starts a server. In Python it can run while a block does:

# %%
if importlib.util.find_spec("starlette") is None or importlib.util.find_spec("uvicorn") is None:
    print("the server needs: pip install 'weft[serve]'")
else:
    from weft.serve.server import serving

    with serving("runs/bakeoff/model") as url:
        body = json.dumps({"texts": ["a fine film", "dull and long"]}).encode()
        request = Request(f"{url}predict", body, {"Content-Type": "application/json"})
        for answer in json.load(urlopen(request))["answers"]:
            print(answer)

# %% [markdown]
# ## Try next
#
# - Give `weft.compare` your own file and all recipes that fit it: leave `recipes` out.
# - `weft export MODEL --to onnx` writes a folder that runs without torch.
# - `weft drift MODEL FILE` tests if today's texts are still like those of training.

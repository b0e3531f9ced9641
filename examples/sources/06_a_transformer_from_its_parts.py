# %% [markdown]
# # A Transformer from its parts
#
# Attention, heads, positions, a block: each in a few lines, each compared with the part that Weft uses. Then a small
# Transformer learns to read, and we look into its heads (Vaswani et al. 2017).

# %%
import math
import os

import matplotlib.pyplot as plt
import torch

import weft
from weft.attend.multihead import MultiHeadAttention
from weft.attend.transformer_block import TransformerBlock
from weft.embed.position import sinusoidal_table
from weft.explain.attention import attention_maps

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests
_ = torch.manual_seed(0)

# %% [markdown]
# ## Scaled dot-product attention
#
# $$\mathrm{softmax}\!\left(\frac{Q K^\top}{\sqrt{d}}\right) V$$
#
# A mask sets forbidden scores to $-\infty$ *before* the softmax, so that their weights are zero and the others still
# sum to one.


# %%
def attention(q, k, v, allowed=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if allowed is not None:
        scores = scores.masked_fill(~allowed, -math.inf)
    weights = scores.softmax(-1)
    return weights @ v, weights


q, k, v = torch.randn(3, 6, 16)
causal = torch.ones(6, 6, dtype=torch.bool).tril()
ours, weights = attention(q, k, v, causal)
theirs = torch.nn.functional.scaled_dot_product_attention(
    q[None], k[None], v[None], is_causal=True
)[0]
torch.testing.assert_close(ours, theirs)

# %% [markdown]
# Why divide by $\sqrt{d}$? The dot product of two random vectors has variance $d$. Without the division the softmax
# saturates, and its gradient vanishes. The curve is the largest of 20 weights, averaged over random queries.

# %%
widths = [2**i for i in range(2, 11)]
figure, axis = plt.subplots(figsize=(5, 3))
for name, power in (("dot product", 0.0), ("scaled", 0.5)):
    largest = []
    for width in widths:
        a, b = torch.randn(200, width), torch.randn(20, width)
        largest.append((a @ b.T / width**power).softmax(-1).max(-1).values.mean())
    axis.plot(widths, largest, marker="o", label=name)
axis.set(xscale="log", xlabel="width d", ylabel="largest weight")
axis.legend()
plt.show()

# %% [markdown]
# ## Several heads
#
# The width is split into heads that attend independently; a last matrix mixes them.


# %%
def multi_head(x, part, heads):
    def split(projected):  # (T, H) -> (N, T, K)
        return projected.unflatten(-1, (heads, -1)).transpose(0, 1)

    context, weights = attention(split(part.query(x)), split(part.key(x)), split(part.value(x)))
    return part.output(context.transpose(0, 1).flatten(1)), weights


part, x = MultiHeadAttention(32, heads=4).eval(), torch.randn(9, 32)
torch.testing.assert_close(multi_head(x, part, 4)[0], part(x[None])[0][0])

# %% [markdown]
# ## A block
#
# Attention moves information between positions, the feed-forward network works on each position alone. Both only
# *add* to the residual stream.


# %%
def block(x, part, heads):
    x = x + multi_head(part.attention_norm(x), part.attention, heads)[0]
    hidden = torch.nn.functional.gelu(part.feed_in(part.feed_norm(x)))
    return x + part.feed_out(hidden)


part = TransformerBlock(32, heads=4, feed_forward=64).eval()
torch.testing.assert_close(block(x, part, 4), part(x[None])[0][0])

# %% [markdown]
# ## Positions
#
# **Question.** Shuffle the rows of `x`. How does the output of the block change? Think first; the cell below answers.

# %%
order = torch.randperm(len(x))
torch.testing.assert_close(block(x[order], part, 4), block(x, part, 4)[order])
print("the output is shuffled in the same way: without positions, a Transformer is a bag of words")

# %% [markdown]
# So a position is added to each word vector. The dot product of two sinusoidal positions depends on their distance only:

# %%
table = sinusoidal_table(64, 64)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3))
left.imshow(table.T, aspect="auto", cmap="coolwarm")
left.set(xlabel="position", ylabel="column")
for start in (5, 25, 45):
    right.plot(table @ table[start], label=f"with position {start}")
right.set(xlabel="position", ylabel="dot product")
right.legend()
plt.show()

# %% [markdown]
# ## Does it need them?
#
# Reviews in which word order decides, with and without positions; the rest is the same. Without them, no model gets above
# 72.5 %: it is a bag of words.

# %%
reviews = weft.corpus("reviews")
size = 300 if QUICK else 4500
train = [(one.text, one.label) for one in reviews["train"][:size]]
dev, test = ([(one.text, one.label) for one in reviews[split][:500]] for split in ("dev", "test"))
models = {}
for positions in ("none", "learned"):
    models[positions] = weft.train(
        "transformer",
        f"runs/transformer/{positions}",
        train=train,
        dev=dev,
        test=test,
        changes={
            "embedder.width": 48,
            "encoder.hidden": 48,
            "encoder.heads": 4,
            "encoder.positions": positions,
            "encoder.dropout": 0.0,
            "embedder.dropout": 0.0,
            "train.epochs": 1 if QUICK else 12,
            "train.patience": 0,
            "train.learning_rate": 0.002,
        },
        quiet=True,
        overwrite=True,
    )
    value = models[positions].figures["test"]["accuracy"]
    print(
        f"positions {positions:<8} {100 * value.value:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"
    )

# %% [markdown]
# ## Look into the heads
#
# Rows attend to columns. Some heads look at neighbours, others at the words that carry the rating.

# %%
(maps,) = attention_maps(
    models["learned"].predictor, "the plot was boring , but the cast was superb"
)
maps

# %%
figure, axis = plt.subplots(figsize=(5, 3))
weights = maps.weights  # (layer, head, query, key)
entropy = -(weights * torch.tensor(weights).clamp_min(1e-9).log().numpy()).sum(-1).mean(-1)
for layer, values in enumerate(entropy, 1):
    axis.scatter([layer] * len(values), values)
axis.axhline(math.log(weights.shape[-1]), color="0.6", linestyle="--", label="uniform")
axis.set(xlabel="layer", ylabel="entropy of a head, nats", xticks=range(1, len(entropy) + 1))
axis.legend()
plt.show()

# %% [markdown]
# ## Try next
#
# - `encoder.positions="sinusoidal"`: how much worse are learned positions on texts longer than those of training?
# - `attention.mask="local"` limits each head to a window. When is that enough?
# - *BERT, pre-trained and fine-tuned* trains the same encoder on text without labels.

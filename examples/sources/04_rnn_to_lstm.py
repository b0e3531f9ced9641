# %% [markdown]
# # From RNN to LSTM
#
# A recurrent network reads word by word and keeps a state. We write Elman's network in three lines, watch its gradient
# vanish and explode, repair it with gates, and test the repair on a task that needs memory.

# %%
import json
import os

import matplotlib.pyplot as plt
import numpy as np
import torch

import weft
from weft.text.synthetic.memory_probe import generate_recall

QUICK = bool(os.environ.get("WEFT_EXAMPLES_QUICK"))  # small sizes, for tests
_ = torch.manual_seed(0)

# %% [markdown]
# ## Elman's network
#
# $$s_t = \tanh(W_x x_t + W_s s_{t-1} + b)$$


# %%
def elman(x, w_x, w_s, b):
    """Return the states (T, H) of inputs (T, E)."""
    state, states = torch.zeros(len(b)), []
    for step in x:
        state = torch.tanh(w_x @ step + w_s @ state + b)
        states.append(state)
    return torch.stack(states)


reference = torch.nn.RNN(5, 7)
x = torch.randn(11, 5)
ours = elman(
    x, reference.weight_ih_l0, reference.weight_hh_l0, reference.bias_ih_l0 + reference.bias_hh_l0
)
torch.testing.assert_close(ours, reference(x)[0])
print("equals torch.nn.RNN")

# %% [markdown]
# ## Gradients through time
#
# How much does the last state depend on the input $k$ steps before? Each step back multiplies by
# $W_s^\top \mathrm{diag}(1 - s^2)$. If the largest eigenvalue of $W_s$ is far from 1, the product falls or grows
# exponentially. Below, $W_s$ is scaled to three spectral radii, with small inputs so that $\tanh$ is nearly linear.

# %%
steps, hidden = 60, 32
orthogonal = torch.linalg.qr(torch.randn(hidden, hidden))[0]
figure, axis = plt.subplots(figsize=(5, 3))
for radius in (0.8, 1.0, 1.2):
    x = (0.001 * torch.randn(steps, 5)).requires_grad_()
    states = elman(x, torch.randn(hidden, 5) / 5**0.5, radius * orthogonal, torch.zeros(hidden))
    states[-1].sum().backward()
    axis.plot(x.grad.norm(dim=1).flip(0), label=f"spectral radius {radius}")
axis.set(yscale="log", xlabel="steps back", ylabel="gradient norm")
axis.legend()
plt.show()

# %% [markdown]
# **Question.** Clipping the gradient repairs one of these curves and not the other. Which, and why?
#
# ## The LSTM cell
#
# Instead of replacing the state, add to it. One matrix product gives three gates and a candidate:
#
# $$i, f, o = \sigma(\cdot) \qquad g = \tanh(\cdot) \qquad c_t = f \odot c_{t-1} + i \odot g \qquad h_t = o \odot \tanh c_t$$
#
# Along $c$ the derivative is just $f$. If the forget gate stays open, nothing vanishes.


# %%
def lstm_step(x, h, c, w_x, w_h, b):
    i, f, g, o = (w_x @ x + w_h @ h + b).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


cell = torch.nn.LSTMCell(5, 7)
x, h, c = torch.randn(5), torch.randn(7), torch.randn(7)
ours = lstm_step(x, h, c, cell.weight_ih, cell.weight_hh, cell.bias_ih + cell.bias_hh)
torch.testing.assert_close(ours, cell(x, (h, c)))
print("equals torch.nn.LSTMCell")

# %%
figure, axis = plt.subplots(figsize=(5, 3))
for bias in (0.0, 1.0, 4.0):
    start = torch.zeros(hidden, requires_grad=True)
    h, c, norms = torch.zeros(hidden), start, []
    w_x, w_h, b = (
        0.3 * torch.randn(4 * hidden, 5),
        0.05 * torch.randn(4 * hidden, hidden),
        torch.zeros(4 * hidden),
    )
    b[hidden : 2 * hidden] = bias
    for _ in range(steps):
        h, c = lstm_step(0.1 * torch.randn(5), h, c, w_x, w_h, b)
        norms.append(torch.autograd.grad(c.sum(), start, retain_graph=True)[0].norm())
    axis.plot(norms, label=f"forget bias {bias:.0f}")
axis.set(yscale="log", xlabel="steps", ylabel="gradient of the first cell state")
axis.legend()
plt.show()

# %% [markdown]
# ## A task that needs memory
#
# The label is the first word; the rest is filler (Hochreiter and Schmidhuber 1997). Both networks have the same width
# and the same number of epochs.

# %%
distance = 10 if QUICK else 60
parts = generate_recall(steps=distance, size=300 if QUICK else 900)
rows = {split: [(one.text, one.label) for one in examples] for split, examples in parts.items()}
print(rows["train"][0])

accuracy = {}
for recipe in ("rnn", "lstm"):
    result = weft.train(
        recipe,
        f"runs/memory/{recipe}",
        **rows,
        changes={
            "embedder.width": 16,
            "embedder.dropout": 0.0,
            "encoder.hidden": 32,
            "head.dropout": 0.0,
            "train.epochs": 1 if QUICK else 12,
            "train.patience": 0,
            "train.learning_rate": 0.005,
            "train.diagnose": True,
        },
        quiet=True,
        overwrite=True,
    )
    accuracy[recipe] = result.figures["test"]["accuracy"]
for recipe, value in accuracy.items():
    print(
        f"{recipe:<5} {100 * value.value:.1f} %  [{100 * value.low:.1f}, {100 * value.high:.1f}]  chance 25 %"
    )
result

# %% [markdown]
# `train.diagnose` wrote the gradients of both networks by distance from the end, before and after training:

# %%
figure, axis = plt.subplots(figsize=(5, 3))
for number, recipe in enumerate(accuracy):
    with open(f"runs/memory/{recipe}/health.json", encoding="utf-8") as file:
        health = json.load(file)
    print(f"{recipe}: {health['verdict']}")
    for style, when in (("--", "start"), ("-", "distances")):
        label = f"{recipe}, {'before' if when == 'start' else 'after'}"
        steps_back, norms = np.array(health[when]["layer 1"]).T
        axis.plot(steps_back, norms, style, color=f"C{number}", label=label)
axis.set(yscale="log", xlabel="steps from the end", ylabel="gradient norm, relative")
axis.legend(fontsize=8)
plt.show()

# %% [markdown]
# ## Try next
#
# - Raise `distance`. Where does the LSTM fail, too? Then set `encoder.forget_bias` to 4.
# - `encoder.cell` also takes `"gru"` and the lecture's ladder of cells: `weft list encoders` shows them.
# - `weft lab run forgetting` repeats this with several seeds and a verdict.

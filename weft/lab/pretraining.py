"""Small language models pre-trained on generated text, and what becomes of them on a task.

A masked language model is a tagger that names the hidden words; a left-to-right one is the same
network with a causal mask that names the next words.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.lab.training import build, label_loss, minimise, tagging
from weft.model.compositions import Model

MASK, FIRST_WORD = 1, 2  # ids
MASKED_FRACTION = 0.2
Objective = Literal["masked", "left-to-right", "none"]
Draw = Callable[[np.random.Generator, int], np.ndarray]


def network(objective: Objective, width: int = 32, layers: int = 2) -> dict[str, Any]:
    """Return the sections of a small Transformer; left to right, no word sees those after it."""
    mask = "causal" if objective == "left-to-right" else "full"
    return {
        "embedder": {"kind": "lookup", "width": width},
        "encoder": {
            "kind": "transformer", "hidden": width, "layers": layers, "heads": 4, "dropout": 0.0
        },
        "attention": {"mask": mask},
    }  # fmt: skip


def pretrain(
    objective: Objective, vocabulary: int, draw: Draw, seed: int, updates: int, **sizes: int
) -> Model:
    """Train a language model on fresh rows of words at every update."""
    torch.manual_seed(seed)
    rng = np.random.default_rng([seed, 7])
    model = build(vocabulary, **network(objective, **sizes), **tagging(vocabulary))

    def loss(update: int) -> Tensor:
        ids = torch.from_numpy(draw(rng, 32))
        if objective == "left-to-right":
            inputs, labels = ids[:, :-1], ids[:, 1:]
        else:
            chosen = torch.from_numpy(rng.random(ids.shape) < MASKED_FRACTION)
            inputs, labels = ids.masked_fill(chosen, MASK), ids.masked_fill(~chosen, -1)
        return label_loss(model(as_batch(inputs)), labels)

    if objective != "none":
        minimise(model, loss, updates, learning_rate=3e-3, warmup=updates // 10, decay=True)
    return model


def as_batch(ids: Tensor) -> Padded:
    """Return rows of one length (B, T) as a batch."""
    return Padded(ids, torch.full((len(ids),), ids.shape[1]))


def fine_tune(base: Model, model: Model) -> None:
    """Copy embedder and encoder of a language model into a model of the same sizes."""
    model.embedders.load_state_dict(base.embedders.state_dict())
    model.get_submodule("encoder").load_state_dict(base.get_submodule("encoder").state_dict())


@torch.no_grad()
def layer_states(model: Model, ids: np.ndarray) -> list[Tensor]:
    """Return the states (B, T, H) of word vectors and of every layer."""
    model.eval()
    source = as_batch(torch.from_numpy(ids))
    out: list[Tensor] = []
    encoder: Any = model.get_submodule("encoder")
    hooks = [
        block.register_forward_hook(lambda block, inputs, output: out.append(output[0]))
        for block in encoder.blocks
    ]
    try:
        # With gradients enabled the blocks run one by one, not packed together.
        with torch.enable_grad():
            vectors = model.embed(source)
            encoder(vectors)
    finally:
        for hook in hooks:
            hook.remove()
    return [vectors.data.detach(), *(state.detach() for state in out)]


def mean_cosine(first: Sequence[Tensor] | Tensor, second: Sequence[Tensor] | Tensor) -> float:
    """Return the average cosine between vectors (N, H), pair by pair."""
    a, b = torch.as_tensor(first), torch.as_tensor(second)
    return float(torch.nn.functional.cosine_similarity(a, b, dim=1).mean())

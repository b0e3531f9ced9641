"""Scalar-mix weights: γ and the weight of each layer of a pre-trained network.

L layers
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.errors import UserError
from weft.model import Model

SCORES, GAMMA = ".mix.scores", ".mix.gamma"


@dataclass(frozen=True)
class LayerWeights:
    """The learned weights of one scalar mix."""

    name: str  # of the embedder or the recipe
    weights: tuple[float, ...]  # (L,) from the word layer up; they sum to one
    gamma: float

    @property
    def rows(self) -> list[tuple[str, float, bool]]:
        """Each layer with its weight, and whether that is the largest."""
        largest = max(self.weights)
        names = ["words", *(f"layer {i}" for i in range(1, len(self.weights)))]
        return [(n, s, s == largest) for n, s in zip(names, self.weights, strict=True)]


def read_model(model: Model | None) -> list[LayerWeights]:
    """Return the scalar mixes of a model's embedders, if any."""
    mixes: list[LayerWeights] = []
    if model is None or not model.embedder_parts:
        return mixes
    for embedder, spec in zip(model.embedder_parts, _embedder_specs(model), strict=True):
        if (mix := embedder.scalar_mix) is not None:
            weights = mix.weights.detach().float().cpu().tolist()
            mixes.append(LayerWeights(spec["kind"], tuple(weights), mix.gamma.item()))
    return mixes


def read_folders(folders: Iterable[tuple[str, Path]]) -> list[LayerWeights]:
    """Return the scalar mixes of saved models; models without one are skipped."""
    return [layers for name, folder in folders for layers in _read_saved(name, folder)]


def _embedder_specs(model: Model) -> Sequence[Mapping[str, str]]:
    specs = model.parts["embedder"]
    return specs if isinstance(specs, list) else [specs]


def _read_saved(name: str, folder: Path) -> list[LayerWeights]:
    from safetensors import SafetensorError, safe_open

    path = folder / "weights.safetensors"
    if not path.is_file():
        return []
    try:
        with safe_open(path, "numpy") as file:
            names = [n.removesuffix(SCORES) for n in file.keys() if n.endswith(SCORES)]  # noqa: SIM118
            mixes = [(file.get_tensor(n + SCORES), file.get_tensor(n + GAMMA)) for n in names]
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}. Retrain it.") from error
    return [LayerWeights(name, _softmax(scores), float(gamma)) for scores, gamma in mixes]


def _softmax(scores: np.ndarray) -> tuple[float, ...]:
    raised = np.exp(scores - scores.max())
    return tuple((raised / raised.sum()).tolist())

"""How much of each layer of a pre-trained network a model takes: γ and the shares of its mix.

L layers
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weft.errors import UserError

SCORES, GAMMA = ".mix.scores", ".mix.gamma"


@dataclass(frozen=True)
class Layers:
    """What one mix has learned."""

    name: str  # whose it is
    shares: tuple[float, ...]  # (L,) from the words up to the last layer; they sum to one
    gamma: float

    @property
    def rows(self) -> list[tuple[str, float, bool]]:
        """Each layer with its share, and whether it has the largest."""
        largest = max(self.shares)
        names = ["words", *(f"layer {i}" for i in range(1, len(self.shares)))]
        return [(n, s, s == largest) for n, s in zip(names, self.shares, strict=True)]


def of_model(model: Any) -> list[Layers]:
    """The mixes of a model's embedders; none where it has none, or no network at all."""
    found = []
    for embedder, spec in zip(getattr(model, "embedders", ()), _specs(model), strict=True):
        if (mix := getattr(embedder, "mix", None)) is not None:
            shares = mix.weights.detach().float().cpu().tolist()
            found.append(Layers(spec["kind"], tuple(shares), mix.gamma.item()))
    return found


def of_folders(folders: Iterable[tuple[str, Path]]) -> list[Layers]:
    """The mixes of saved models, by the name of each; one that has none is left out."""
    return [layers for name, folder in folders for layers in _saved(name, folder)]


def _specs(model: Any) -> Sequence[Any]:
    found = getattr(model, "parts", {}).get("embedder", [])
    return found if isinstance(found, list) else [found]


def _saved(name: str, folder: Path) -> list[Layers]:
    from safetensors import SafetensorError, safe_open

    path = folder / "weights.safetensors"
    if not path.is_file():
        return []
    try:
        with safe_open(path, "numpy") as file:
            names = [n.removesuffix(SCORES) for n in file.keys() if n.endswith(SCORES)]  # noqa: SIM118
            mixes = [(file.get_tensor(n + SCORES), file.get_tensor(n + GAMMA)) for n in names]
    except SafetensorError as error:
        raise UserError(f"{path}: damaged: {error}. Train it again.") from error
    return [Layers(name, _shares(scores), float(gamma)) for scores, gamma in mixes]


def _shares(scores: np.ndarray) -> tuple[float, ...]:
    raised = np.exp(scores - scores.max())
    return tuple((raised / raised.sum()).tolist())

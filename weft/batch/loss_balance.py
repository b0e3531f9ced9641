"""The part of uneven classes in the loss of a batch: weights of classes, or the focal loss.

C classes
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class LossBalance:
    """Class weights by column of the targets (C,), or γ of the focal loss."""

    weights: tuple[np.ndarray, ...] = ()
    gamma: float | None = None
    # Copied once for each device: in a CUDA graph nothing may come from the host.
    _on_device: dict[tuple[int, torch.device], Tensor] = field(
        default_factory=dict, compare=False, repr=False
    )

    def class_weights(self, column: int, device: torch.device) -> Tensor | None:
        """Return the weights of one column's classes (C,) in float32; None if all count alike."""
        if not self.weights:
            return None
        key = column, device
        if key not in self._on_device:
            values = torch.from_numpy(self.weights[column].astype(np.float32))
            self._on_device[key] = values.to(device)
        return self._on_device[key]

"""The paths of labels in a tree, for a loss of the nodes above the right label.

C labels   D levels
"""

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class LabelLevels:
    """The node (C, D) of each label at each level; negative where its path has ended."""

    path_ids: np.ndarray
    # Copied once for each device: in a CUDA graph nothing may come from the host.
    _on_device: dict[torch.device, Tensor] = field(default_factory=dict, compare=False, repr=False)

    def to(self, device: torch.device) -> Tensor:
        """Return the nodes (C, D) on a device."""
        if device not in self._on_device:
            self._on_device[device] = torch.from_numpy(self.path_ids).to(device)
        return self._on_device[device]

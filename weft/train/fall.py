"""How far the training loss has fallen: what tells a training that learned nothing."""

from typing import Any

from weft.train.loop import Progress

PARTS = 20  # of a training
FEWEST = 2 * PARTS  # updates from which there is something to tell


class Fall:
    """The mean loss of each part of a training; sums stay on the device until the end."""

    def __init__(self) -> None:
        self.sums: list[Any] = [0.0] * PARTS
        self.counts = [0] * PARTS
        self.updates = 0

    def add(self, progress: Progress) -> None:
        """Count an update."""
        part = min(int(progress.share * PARTS), PARTS - 1)
        self.sums[part] = self.sums[part] + progress.total
        self.counts[part] += progress.count
        self.updates += 1

    @property
    def ends(self) -> tuple[float, float] | None:
        """The loss at the start and the lowest since; None where too little was seen."""
        if self.updates < FEWEST or not self.counts[0]:
            return None
        means = [float(s) / n for s, n in zip(self.sums, self.counts, strict=True) if n]
        return (means[0], min(means[1:])) if len(means) > 1 else None

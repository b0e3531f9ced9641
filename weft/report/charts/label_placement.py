"""Place labels next to points, each at the nearest free position."""

from collections.abc import Iterator, Sequence

import numpy as np

Box = tuple[float, float, float, float]  # left, bottom, right, top; y may run either way
Offset = tuple[float, float]  # of a label's corner of smallest x and y from its point

GAP = 4  # between a point and its label
PADDING = 3, 1  # kept free around a label, horizontally and vertically
CANDIDATE_STEP_PIXELS = 8  # between candidate positions
MAX_DISTANCE = 240  # of a label from its point


class LabelPlacer:
    """A frame with the boxes that are taken.

    A label more than `lead` above or below its point gets a line, which crosses no other label.
    """

    def __init__(
        self, frame: Box, taken: Sequence[Box], far: int = MAX_DISTANCE, lead: float = MAX_DISTANCE
    ) -> None:
        self.frame = frame
        self.far, self.lead = far, lead
        # Doubled when full, so that a thousand labels do not copy the array a thousand times.
        self._boxes = np.array([*taken, frame], dtype=float)
        self._count = self._names = len(taken)  # the initial boxes are not labels

    @property
    def taken(self) -> np.ndarray:
        """The (n, 4) boxes that are taken."""
        return self._boxes[: self._count]

    def place(self, x: float, y: float, r: float, width: float, height: float) -> Offset | None:
        """Place a label next to its point of radius `r`; return None without free space."""
        across, up = PADDING
        for dx, dy in self._offsets(r, width, height):
            left, low = x + dx, y + dy
            box = (left - across, low - up, left + width + across, low + height + up)
            line = self.line(x, y, (dx, dy), width, height)
            if not self._inside(box) or self._meets(box, 0):
                continue
            if line is None or not self._meets(line, self._names):
                self.take((left, low, left + width, low + height))
                if line is not None:
                    self.take(line)
                return dx, dy
        return None

    def line(self, x: float, y: float, offset: Offset, width: float, height: float) -> Box | None:
        """Return the box around the line from a point to its label, if it needs one."""
        middle = y + offset[1] + height / 2
        if abs(middle - y) <= self.lead:
            return None
        end = min(max(x, x + offset[0]), x + offset[0] + width)
        return min(x, end), min(y, middle), max(x, end), max(y, middle)

    def take(self, box: Box) -> None:
        """Mark a box as taken."""
        if self._count == len(self._boxes):
            self._boxes = np.concatenate([self._boxes, np.empty_like(self._boxes)])
        self._boxes[self._count] = box
        self._count += 1

    def _offsets(self, r: float, width: float, height: float) -> Iterator[Offset]:
        """Yield offsets right, left and centred, then farther above and below."""
        for away in range(0, self.far, CANDIDATE_STEP_PIXELS):
            for side in (r + GAP, -r - GAP - width, -width / 2):
                for up in (away, -away):
                    dy = up - height / 2
                    if side == -width / 2:  # above or below, clear of the point
                        dy += (r + height / 2 + 3) * (1 if up >= 0 else -1)
                    yield side, dy

    def _inside(self, box: Box) -> bool:
        left, low, right, high = self.frame
        return left <= box[0] and box[2] <= right and low <= box[1] and box[3] <= high

    def _meets(self, box: Box, first: int) -> bool:
        taken = self.taken[first:]
        across = (taken[:, 0] < box[2]) & (taken[:, 2] > box[0])
        return bool((across & (taken[:, 1] < box[3]) & (taken[:, 3] > box[1])).any())

"""Names written beside points, each in the nearest place where nothing else stands."""

from collections.abc import Iterator, Sequence

import numpy as np

Box = tuple[float, float, float, float]  # left, bottom, right, top; y may run either way
Offset = tuple[float, float]  # of a label's corner of smallest x and y from its point

GAP = 4  # between a point and its name
ROOM = 3, 1  # that a name keeps free around it, across and up
STEP = 8  # between two places that are tried
FAR = 240  # where a name is no longer looked for


class Labels:
    """A picture that fills up: what is taken, and where there is still room.

    A name more than `lead` above or below its point gets a line to it, which crosses no other name.
    """

    def __init__(self, frame: Box, taken: Sequence[Box], far: int = FAR, lead: float = FAR) -> None:
        self.frame = frame
        self.far, self.lead = far, lead
        # Doubled when full, so that a thousand names do not copy the list a thousand times.
        self._boxes = np.array([*taken, frame], dtype=float)
        self._count = self._names = len(taken)  # what is taken at first are no names

    @property
    def taken(self) -> np.ndarray:
        """(n, 4) boxes in which nothing more is written."""
        return self._boxes[: self._count]

    def place(self, x: float, y: float, r: float, width: float, height: float) -> Offset | None:
        """Write a name beside its point of radius `r`; nothing where there is no room for it."""
        across, up = ROOM
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
        """The box around the line from a point to the middle of its name, where it needs one."""
        middle = y + offset[1] + height / 2
        if abs(middle - y) <= self.lead:
            return None
        end = min(max(x, x + offset[0]), x + offset[0] + width)
        return min(x, end), min(y, middle), max(x, end), max(y, middle)

    def take(self, box: Box) -> None:
        """Keep other names out of this box."""
        if self._count == len(self._boxes):
            self._boxes = np.concatenate([self._boxes, np.empty_like(self._boxes)])
        self._boxes[self._count] = box
        self._count += 1

    def _offsets(self, r: float, width: float, height: float) -> Iterator[Offset]:
        """Right, left and in the middle of the point, then ever farther above and below."""
        for away in range(0, self.far, STEP):
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

"""Whether a training ended too soon: its figure on dev was still getting better."""

from dataclasses import dataclass, field

from weft.metrics.value import lower_is_better

LEAST = 0.01  # better in the last epoch, from which more epochs are worth a try
SHARE = 0.02  # the same of figures that fall, such as perplexity, as a share of them


@dataclass
class Course:
    """A figure on dev by the share of the training that was done."""

    metric: str
    points: list[tuple[float, float]] = field(default_factory=list)  # share, figure

    def add(self, share: float, figure: float) -> None:
        self.points.append((share, figure))

    def rising(self, epochs: int, examples: int) -> str:
        """What to say when the last epoch was clearly the best; nothing where it was not.

        Clearly: by more than one figure of so many examples may be off by chance. It says nothing
        of a training that did not come to its end.
        """
        if epochs < 2 or len(self.points) < 2 or self.points[-1][0] < 1:
            return ""
        (_, now), lower = self.points[-1], lower_is_better(self.metric)
        earlier = [figure for share, figure in self.points[:-1] if share <= 1 - 0.99 / epochs]
        sooner = [figure for _, figure in self.points[:-1]]
        if not earlier or now != (min if lower else max)([*sooner, now]):
            return ""
        before = earlier[-1]
        if lower:
            clear = before - now > SHARE * before
        else:
            clear = now < 1 and now - before > max(LEAST, max(examples, 1) ** -0.5)
        if not clear:
            return ""
        way = "falling" if lower else "rising"
        return (
            f"dev {self.metric} was still {way} at the end, from {before:.4g} to {now:.4g} in the "
            f"last of {epochs} epochs: more of them should help (train.epochs={2 * epochs})"
        )

"""An experiment: a claim, what is measured with each seed, and the test, fixed in advance.

A claim is one or more conditions, each a linear combination of measurements that has to lie above
a threshold. Its 95 % interval over seeds decides: entirely on the right side, the condition holds;
entirely on the wrong side, it does not; otherwise the seeds leave it undecided.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from weft.lab.intervals import Estimate, estimate, trimmed_mean

Point: TypeAlias = float | str  # on the x axis: a number, or the name of a category
Measurements: TypeAlias = Mapping[str, Mapping[Point, float]]  # by series, then by point
Table: TypeAlias = dict[str, dict[Point, float]]  # measurements while they are being made
Outcome = Literal["holds", "does not hold", "undecided"]
LEVEL = 0.05  # of the tests


@dataclass(frozen=True)
class Quantity:
    """A linear combination of measurements, such as `at("LSTM", 40) - at("Elman", 40)`."""

    terms: tuple[tuple[float, str, Point], ...]  # factor, series, point

    def __add__(self, other: "Quantity") -> "Quantity":
        return Quantity(self.terms + other.terms)

    def __sub__(self, other: "Quantity") -> "Quantity":
        return self + -1.0 * other

    def __rmul__(self, factor: float) -> "Quantity":
        return Quantity(tuple((factor * f, series, point) for f, series, point in self.terms))

    def above(self, threshold: float) -> "Condition":
        """Return the condition that the quantity lies above a threshold."""
        return Condition(self, threshold)

    def below(self, threshold: float) -> "Condition":
        """Return the condition that the quantity lies below a threshold."""
        return Condition(-1.0 * self, -threshold)

    def of(self, measurements: Measurements) -> float:
        """Return the value of the quantity in the measurements of one seed."""
        return sum(f * measurements[series][point] for f, series, point in self.terms)

    def __str__(self) -> str:
        groups: dict[tuple[float, str], list[Point]] = {}
        for factor, series, point in self.terms:
            groups.setdefault((factor, series), []).append(point)
        text = ""
        for (factor, series), points in groups.items():
            averaged = len(points) > 1 and math.isclose(abs(factor) * len(points), 1)
            named = isinstance(points[0], str)
            places = ", ".join(str(p) if isinstance(p, str) else f"{p:g}" for p in points)
            size = "" if averaged or abs(factor) == 1 else f"{abs(factor):.3g} × "
            sign = "−" if factor < 0 else "+" if text else ""
            text += f" {sign} {size}{'average of ' * averaged}{series} "
            text += f"{'of' if named else 'at'} {places}"
        return " ".join(text.split())


def at(series: str, point: Point) -> Quantity:
    """Return one measurement as a quantity."""
    return Quantity(((1.0, series, point),))


def mean_of(*quantities: Quantity) -> Quantity:
    """Return the average of quantities."""
    total = quantities[0]
    for quantity in quantities[1:]:
        total = total + quantity
    return (1 / len(quantities)) * total


@dataclass(frozen=True)
class Condition:
    """A quantity that has to lie above a threshold."""

    quantity: Quantity
    threshold: float

    @property
    def opposite(self) -> "Condition":
        """The condition that the quantity lies below the threshold."""
        return Condition(-1.0 * self.quantity, -self.threshold)

    def __str__(self) -> str:
        negative = self.quantity.terms[0][0] < 0
        quantity = -1.0 * self.quantity if negative else self.quantity
        threshold = -self.threshold if negative else self.threshold
        return f"{quantity} {'<' if negative else '>'} {threshold + 0.0:g}"


@dataclass(frozen=True)
class Finding:
    """A condition, the estimate of its quantity, and what the estimate says about it."""

    condition: Condition
    estimate: Estimate
    outcome: Outcome


@dataclass(frozen=True)
class Verdict:
    """The result for a claim, in one sentence and in numbers."""

    outcome: Outcome
    sentence: str
    findings: tuple[Finding, ...]


class Means:
    """Measurements averaged over seeds, without the extremes: `means("LSTM", 40)`."""

    def __init__(self, runs: Sequence[Measurements]):
        self.runs = runs

    def __call__(self, series: str, point: Point) -> float:
        return trimmed_mean([run[series][point] for run in self.runs])


@dataclass(frozen=True)
class Experiment:
    """One claim and the way to find out."""

    claim: str  # one sentence, as a lecturer would say it
    decks: tuple[str, ...]  # the lectures that say it; empty: Weft's own question
    why: str  # the mechanism behind the claim
    data: str  # where the data come from
    measure: Callable[[int], Measurements]  # one seed, on one thread
    conditions: tuple[Condition, ...]
    holds: Callable[[Means], str]  # the verdict for a newcomer, if the claim holds
    fails: Callable[[Means], str]  # and if it does not
    x: str  # the axes, with units
    y: str
    limits: tuple[float, float]  # the least and the greatest value that can be measured
    log_x: bool = False
    log_y: bool = False
    explanation: str = ""  # why the claim comes out otherwise than the lecture says
    seeds: int = 8  # fixed before they are run; more where training fails now and then
    seconds: float = 10.0  # CPU time of one seed, about; the longest start first
    name: str = ""  # by its file
    theme: str = ""  # by its folder

    @property
    def opposite(self) -> "Experiment":
        """The claim turned around: a wrong claim wherever this one holds."""
        claim = f"It is not so that {self.claim[0].lower()}{self.claim[1:]}"
        turned = tuple(condition.opposite for condition in self.conditions)
        return replace(self, claim=claim, conditions=turned, holds=self.fails, fails=self.holds)

    def judge(self, runs: Sequence[Measurements]) -> Verdict:
        """Return the verdict on the measurements of several seeds; the same for the same runs.

        All conditions must hold, each tested at LEVEL, so the whole test has LEVEL. One that fails
        is enough against the claim; so that many conditions do not make that easier, each is tested
        at LEVEL divided by their number.
        """
        findings, refuted = [], False
        for condition in self.conditions:
            values = [condition.quantity.of(run) for run in runs]
            usual = estimate(values, condition.threshold, LEVEL)
            strict = estimate(values, condition.threshold, LEVEL / len(self.conditions))
            outcome: Outcome = "undecided"
            if usual.low > condition.threshold:
                outcome = "holds"
            elif strict.high < condition.threshold:
                outcome, refuted = "does not hold", True
            findings.append(Finding(condition, usual, outcome))
        means = Means(runs)
        if refuted:
            return Verdict("does not hold", self.fails(means), tuple(findings))
        if all(finding.outcome == "holds" for finding in findings):
            return Verdict("holds", self.holds(means), tuple(findings))
        (open_one, *_) = [finding for finding in findings if finding.outcome == "undecided"]
        return Verdict("undecided", _describe_doubt(open_one, len(runs)), tuple(findings))


def _describe_doubt(finding: Finding, runs: int) -> str:
    low, high = finding.estimate.low, finding.estimate.high
    threshold, quantity = finding.condition.threshold, finding.condition.quantity
    if quantity.terms[0][0] < 0:
        low, high, threshold, quantity = -high, -low, -threshold, -1.0 * quantity
    return (
        f"The {runs} seeds do not decide it: “{quantity}” lies between {low:.2f} and {high:.2f}, "
        f"and the claim draws the line at {threshold + 0.0:g}."
    )

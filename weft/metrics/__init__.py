"""Mergeable counts, figures with bootstrap intervals, and tests between systems; numpy only."""

from weft.metrics.bootstrap import Spread, interval, paired, spread
from weft.metrics.classify import ClassFigures, Classification, LabelSets
from weft.metrics.regress import Regression
from weft.metrics.value import Figure, Measure

__all__ = [
    "ClassFigures",
    "Classification",
    "Figure",
    "LabelSets",
    "Measure",
    "Regression",
    "Spread",
    "interval",
    "paired",
    "spread",
]

"""Mergeable counts, figures with bootstrap intervals, and tests between systems; numpy only."""

from weft.measure.bootstrap import Spread, interval, paired, spread
from weft.measure.classify import ClassFigures, Classification, LabelSets
from weft.measure.figure import Figure, Measure
from weft.measure.regress import Regression

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

"""Mergeable metrics with bootstrap intervals, and significance tests; numpy only."""

from weft.metrics.bootstrap import Spread, bootstrap_interval, paired_bootstrap, summarise_seeds
from weft.metrics.classify import ClassificationMetric, ClassScores, MultiLabelMetric
from weft.metrics.regress import (
    GroupedRegressionMetric,
    RegressionMetric,
    VectorRegressionMetric,
)
from weft.metrics.value import Metric, MetricValue

__all__ = [
    "ClassScores",
    "ClassificationMetric",
    "GroupedRegressionMetric",
    "Metric",
    "MetricValue",
    "MultiLabelMetric",
    "RegressionMetric",
    "Spread",
    "VectorRegressionMetric",
    "bootstrap_interval",
    "paired_bootstrap",
    "summarise_seeds",
]

"""Searching a configuration's settings, and random restarts of what was found."""

from weft.tune.search import Tuned, tune
from weft.tune.space import parse
from weft.tune.study import Row

__all__ = ["Row", "Tuned", "parse", "tune"]

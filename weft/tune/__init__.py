"""Search settings: `weft.tune(config, folder)`; and random restarts of the best ones."""

from weft.callable_module import make_callable
from weft.tune.search import TuneResult, tune
from weft.tune.space import parse
from weft.tune.study import TrialRecord

__all__ = ["TrialRecord", "TuneResult", "parse", "tune"]

make_callable(__name__, tune)

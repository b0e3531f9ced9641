"""Search a configuration's settings: `weft.tune(config, folder)`; and random restarts of the best.

Like `weft.train`, this folder can be called.
"""

import inspect
import sys
from types import ModuleType

from weft.tune.search import TuneResult, tune
from weft.tune.space import parse
from weft.tune.study import TrialRecord

__all__ = ["TrialRecord", "TuneResult", "parse", "tune"]


class _Verb(ModuleType):
    __call__ = staticmethod(tune)
    __signature__ = inspect.signature(tune)  # inspect would drop a parameter for `self`


sys.modules[__name__].__class__ = _Verb

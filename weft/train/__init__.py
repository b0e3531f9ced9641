"""The loop, optimisers, checkpoints; and, called as `weft.train(config, folder)`, a whole run.

The folder and the verb have the same name, and importing one would hide the other: so the folder
itself can be called.
"""

import importlib
import sys
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return importlib.import_module("weft.run").train(*arguments, **options)


sys.modules[__name__].__class__ = _Verb

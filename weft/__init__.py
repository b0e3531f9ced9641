"""Weft: the whole of neural NLP behind one abstraction.

text -> tokens -> ids -> embed -> encode -> (attend) -> decode -> answer
"""

import importlib
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft.annotate import Pipeline as Pipeline
    from weft.compare import compare as compare
    from weft.config import Config as Config
    from weft.config import recipe as recipe
    from weft.config import recipes as recipes
    from weft.doctor.check import check as check
    from weft.errors import UserError as UserError
    from weft.estimators import Classifier as Classifier
    from weft.estimators import PairClassifier as PairClassifier
    from weft.estimators import Regressor as Regressor
    from weft.estimators import Tagger as Tagger
    from weft.estimators import Vectorizer as Vectorizer
    from weft.hub import push as push
    from weft.loading import load as load
    from weft.predict import Predictor as Predictor
    from weft.predict.generate import generate as generate
    from weft.predict.join_models import ensemble as ensemble
    from weft.run.evaluate import evaluate as evaluate
    from weft.text.read import read as read
    from weft.text.write import write as write
    from weft.train import train as train
    from weft.tune import tune as tune
    from weft.vectors.store import Vectors as Vectors

__version__ = "0.1.0"

# OpenMP threads sleep while they wait for each other. By default they spin, and where another
# process has a core, most of the time goes into that. It is read once, when torch is imported.
if not {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT", "KMP_BLOCKTIME"} & set(os.environ):
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

# Name -> where it lives. Nothing is imported before it is used: torch alone takes seconds.
_HOMES = {
    "Answer": "weft.tasks.task",
    "Classifier": "weft.estimators",
    "Columns": "weft.text.read",
    "Config": "weft.config",
    "Example": "weft.text.example",
    "MetricValue": "weft.metrics",
    "Model": "weft.model",
    "build_model": "weft.model",
    "Padded": "weft.batch",
    "PairClassifier": "weft.estimators",
    "Pipeline": "weft.annotate",
    "Predictor": "weft.predict",
    "Regressor": "weft.estimators",
    "Settings": "weft.train.settings",
    "Splits": "weft.run",
    "SkipCounter": "weft.text.example",
    "Tagger": "weft.estimators",
    "Tokenizer": "weft.tokens.tokenizer",
    "UserError": "weft.errors",
    "Vectorizer": "weft.estimators",
    "Vectors": "weft.vectors.store",
    "Vocabulary": "weft.tokens.vocabulary",
    "check": "weft.doctor.check",
    "compare": "weft",  # the folder, which can be called
    "corpus": "weft.text.synthetic.corpora",
    "ensemble": "weft.predict.join_models",
    "evaluate": "weft.run.evaluate",
    "generate": "weft.predict.generate",
    "load": "weft.loading",
    "push": "weft.hub",
    "read": "weft.text.read",
    "recipe": "weft.config",
    "recipes": "weft.config",
    "register": "weft.registry",
    "suite": "weft.report.suite",
    "train": "weft",
    "tune": "weft",
    "write": "weft.text.write",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> Any:
    if name in ("compare", "train", "tune"):
        return importlib.import_module(f"weft.{name}")
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'weft' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])

"""One run: from a configuration to a trained, evaluated and saved model."""

from weft.run.data import Data
from weft.run.split import Splits
from weft.run.train import RunResult, train

__all__ = ["Data", "RunResult", "Splits", "train"]

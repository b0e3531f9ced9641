"""From a configuration to a trained, measured and saved model."""

from weft.run.data import Data
from weft.run.split import Splits
from weft.run.train import RunResult, train

__all__ = ["Data", "RunResult", "Splits", "train"]

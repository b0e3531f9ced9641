"""From a configuration to a trained, measured and saved model."""

from weft.run.data import Data
from weft.run.split import Splits
from weft.run.train import Outcome, train

__all__ = ["Data", "Outcome", "Splits", "train"]

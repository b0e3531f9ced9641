"""Texts in, Answers out: one interface for every trained model."""

from weft.predict.output import EngineOutput
from weft.predict.predictor import Predictor, load, model_folder
from weft.protocols import Engine

__all__ = ["Engine", "EngineOutput", "Predictor", "load", "model_folder"]

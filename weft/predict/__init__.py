"""Texts in, Answers out: one interface for every trained model."""

from weft.predict.predictor import Engine, EngineOutput, Predictor, load, model_folder

__all__ = ["Engine", "EngineOutput", "Predictor", "load", "model_folder"]

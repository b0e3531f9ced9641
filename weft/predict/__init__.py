"""Texts in, Answers out: one face for every trained model."""

from weft.predict.predictor import Engine, Predictor, Scored, load, model_folder

__all__ = ["Engine", "Predictor", "Scored", "load", "model_folder"]

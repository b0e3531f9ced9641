"""scikit-learn estimators: `fit` is a training run, `predict` a Predictor.

Nothing here learns or answers by itself: inputs become rows, parameters become a configuration.
"""

from weft.estimators.classifier import Classifier, PairClassifier
from weft.estimators.regressor import Regressor
from weft.estimators.tagger import Tagger
from weft.estimators.vectorizer import Vectorizer

__all__ = ["Classifier", "PairClassifier", "Regressor", "Tagger", "Vectorizer"]

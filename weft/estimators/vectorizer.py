"""Texts as vectors: a transformer of scikit-learn over word vectors or the encoder of a model.

n texts   H width
"""

import os
import tempfile
from pathlib import Path

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from weft.convert.locate import PACKAGES
from weft.estimators.inputs import ArrayLike, check_texts
from weft.estimators.saved_model import (
    ModelEstimator,
    ModelFiles,
    pack_model,
    read_files,
    unpack_model,
    write_files,
)
from weft.loading import load
from weft.predict import Predictor
from weft.run.convert import golden_inputs
from weft.text.location import HUB_PREFIX
from weft.vectors.store import Vectors

VECTORS = "vectors.safetensors"  # the name of word vectors in a pickle


class Vectorizer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, ModelEstimator):
    """Return a vector per text: the mean of word vectors, or the sentence vector of a model.

    `model` is a file of word vectors (GloVe, word2vec, fastText, safetensors), a model folder, a
    Hugging Face checkpoint, or `minilm`. Words are brought to length 1 before the mean; a
    text without known words is the zero vector. Nothing is learned from X.
    """

    def __init__(self, model: str | os.PathLike[str] = "minilm", *, device: str = "auto") -> None:
        self.model = model
        self.device = device

    def fit(self, X: ArrayLike = None, y: ArrayLike = None) -> "Vectorizer":
        """Load the model; X is only checked."""
        if X is not None:
            check_texts(X)
        path = os.fspath(self.model)
        is_model = Path(path).is_dir() or path in PACKAGES or path.startswith(HUB_PREFIX)
        self._model = load(path, device=self.device) if is_model else Vectors.load(path)
        self._n_features_out = self._embed([""]).shape[1]
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Return the vectors (n, H), float32."""
        check_is_fitted(self)
        return self._embed(check_texts(X))

    def _embed(self, texts: list[str]) -> np.ndarray:
        model: Predictor | Vectors = self._model
        if isinstance(model, Predictor):
            return model.embed(texts)
        return np.stack([model.sentence(text) for text in texts])

    def _pack(self, model: Predictor | Vectors) -> ModelFiles:
        if isinstance(model, Predictor):
            return pack_model(model, golden_inputs(model), None)
        with tempfile.TemporaryDirectory(prefix="weft-") as place:
            model.save(Path(place) / VECTORS)
            return read_files(Path(place))

    def _unpack(self, files: ModelFiles) -> Predictor | Vectors:
        if set(files) != {VECTORS}:
            return unpack_model(files, self.device)
        with tempfile.TemporaryDirectory(prefix="weft-") as place:
            write_files(files, Path(place) / "vectors")
            return Vectors.load(Path(place) / "vectors" / VECTORS, mmap=False)

"""Estimators whose fitted state is a model: pickles hold the bytes of its folder.

They become a model again through the loader of model folders, which checks them and runs no code.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError

from weft import predict
from weft.errors import UserError
from weft.predict import Predictor
from weft.predict.predictor import Input

ModelFiles = dict[str, bytes]  # by path inside the folder


class ModelEstimator(BaseEstimator):
    """An estimator of texts that holds a fitted model, or its files until it is needed."""

    _files: ModelFiles

    @property
    def _model(self) -> Any:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError(
                f"This {type(self).__name__} instance is not fitted yet. Call 'fit' first."
            )
        if "_fitted" not in vars(self):
            self._fitted = self._unpack(self._files)
        return self._fitted

    @_model.setter
    def _model(self, model: Any) -> None:
        self.__dict__.pop("_files", None)
        self._fitted = model

    def _pack(self, model: Any) -> ModelFiles:
        """Return the files of a model."""
        raise NotImplementedError

    def _unpack(self, files: ModelFiles) -> Any:
        """Return the model of its files."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        state: dict[str, Any] = dict(super().__getstate__())
        model = state.pop("_fitted", None)
        if model is not None and "_files" not in state:
            state["_files"] = self._pack(model)
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return not {"_fitted", "_files"}.isdisjoint(vars(self))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.one_d_array = True
        tags.input_tags.string = True
        return tags


def pack_model(predictor: Predictor, golden: Sequence[Input], record: Any) -> ModelFiles:
    """Return the files of the model folder of a predictor."""
    with tempfile.TemporaryDirectory(prefix="weft-") as place:
        folder = Path(place) / "model"
        predictor.save(folder, golden, record)
        return read_files(folder)


def unpack_model(files: object, device: str) -> Predictor:
    """Load a model from the files of its folder."""
    with tempfile.TemporaryDirectory(prefix="weft-") as place:
        folder = Path(place) / "model"
        write_files(files, folder)
        return predict.load(folder, device=device)


def read_files(folder: Path) -> ModelFiles:
    """Return the files in a folder."""
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def write_files(files: object, folder: Path) -> None:
    """Write files into a new folder; raise UserError for names that would leave it."""
    if not isinstance(files, dict):
        raise UserError("The pickled model is damaged: it has no files. Fit again.")
    folder.mkdir()
    for name, data in files.items():
        parts = PurePosixPath(name).parts if type(name) is str else ()
        inside = parts and not {"..", "/"} & set(parts) and "\\" not in name and ":" not in name
        if not inside or type(data) is not bytes:
            raise UserError(f"The pickled model is damaged: {name!r:.60} is no file of a model.")
        path = folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)

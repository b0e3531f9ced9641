"""The base of the estimators: parameters as settings, `fit` as a training run, pickling."""

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.utils import check_random_state

from weft import config as configuration
from weft.config import SETTING_SECTIONS, Config
from weft.errors import UserError, unknown_name
from weft.estimators.inputs import ArrayLike, check_weights
from weft.estimators.saved_model import ModelEstimator, ModelFiles, pack_model, unpack_model
from weft.predict import Predictor
from weft.predict.golden import GOLDEN, recorded_inputs
from weft.run import RunResult, train
from weft.text.tables.table import name_table

NESTED = "__"  # encoder__hidden is the setting encoder.hidden
Recipe = str | Path | Config | Mapping[str, Any]
Columns = dict[str, list[Any]]  # the rows to learn from, by column
TEXT, OTHER, LABEL, WEIGHT = "text", "other", "label", "weight"
WORDS = "tokens"  # a column of this name has lists of words
COLUMNS = (
    ("data.text", TEXT),
    ("data.text", WORDS),
    ("data.text_pair", OTHER),
    ("data.label", LABEL),
    ("data.weight", WEIGHT),
)
# The classes that answer each task, for messages.
ESTIMATORS = {
    "classify": "weft.Classifier",
    "regress": "weft.Regressor",
    "pair-classify": "weft.PairClassifier",
    "tag": "weft.Tagger",
}


class TextEstimator(ModelEstimator):
    """A training run as an estimator of scikit-learn.

    `recipe` is a recipe's name, a .toml file or a configuration; None is `default_recipe`. Every
    setting of it is a parameter, its section and name joined by two underscores:
    `encoder__hidden=100`. `random_state` is the setting train.seed; None is the recipe's.
    """

    task_kind: ClassVar[str]
    default_recipe: ClassVar[str] = "tfidf"

    def __init__(
        self,
        recipe: Recipe | None = None,
        *,
        pretrained: str | None = None,
        dev_fraction: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        folder: str | os.PathLike[str] | None = None,
        device: str = "auto",
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        self.recipe = recipe
        self.pretrained = pretrained
        self.dev_fraction = dev_fraction
        self.random_state = random_state
        self.folder = folder
        self.device = device
        self.verbose = verbose
        for name, value in settings.items():
            if not _is_setting(name):
                raise TypeError(f"{type(self).__name__}: {_unknown_parameter(self, name)}")
            setattr(self, name, value)

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if _is_setting(name)}

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters and the settings that were given."""
        return {**super().get_params(deep=deep), **self._settings}

    def set_params(self, **params: Any) -> "TextEstimator":
        """Set parameters and settings; a setting that is None is the recipe's own."""
        known = self._get_param_names()
        for name, value in params.items():
            if name not in known and not _is_setting(name):
                raise UserError(_unknown_parameter(self, name))
            setattr(self, name, value)
        return self

    @property
    def predictor_(self) -> Predictor:
        """The trained model."""
        predictor: Predictor = self._model
        return predictor

    def _pack(self, model: Predictor) -> ModelFiles:
        return pack_model(model, self._golden, self.record_)

    def _unpack(self, files: ModelFiles) -> Predictor:
        return unpack_model(files, self.device)

    def _fit(
        self, train_rows: Columns, dev_rows: Columns | None, inferred: Mapping[str, Any] = {}
    ) -> None:
        """Train on rows; `inferred` are settings that follow from them."""
        values = {
            **inferred,
            "data.train": name_table(train_rows, "X"),
            **({} if dev_rows is None else {"data.dev": name_table(dev_rows, "dev")}),
            **{key: name for key, name in COLUMNS if name in train_rows},
        }
        config = self._config().with_values(values, type(self).__name__)
        with _run_folder(self.folder) as folder:
            result = train(config, folder, device=self.device, quiet=not self.verbose)
            self._keep(result, folder)

    def _keep(self, result: RunResult, folder: Path) -> None:
        self._model = result.predictor
        self._golden = recorded_inputs(folder / "model" / GOLDEN)
        self.record_ = result.record
        self.run_folder_ = str(folder) if self.folder is not None else None

    def _config(self) -> Config:
        """Return the configuration of the parameters, without data."""
        recipe = self.default_recipe if self.recipe is None else self.recipe
        config = configuration.as_config(recipe)
        if self.pretrained is not None:
            config = configuration.with_pretrained(config, self.pretrained, "pretrained")
        values = {
            name.replace(NESTED, "."): _plain(value)
            for name, value in self._settings.items()
            if value is not None
        }
        seed = self.random_state
        if isinstance(seed, np.random.RandomState):
            seed = int(check_random_state(seed).randint(2**31))
        for name, key, value in (
            ("random_state", "train.seed", seed),
            ("dev_fraction", "data.dev_fraction", self.dev_fraction),
        ):
            if value is not None and key in values:
                raise UserError(
                    f"{name} and {key.replace('.', NESTED)} are the same setting. Give one of them."
                )
            values |= {} if value is None else {key: _plain(value)}
        config = config.with_values(values, type(self).__name__)
        return self._with_task(config)

    def _with_task(self, config: Config) -> Config:
        """Return the configuration if it is of this estimator's task; else raise UserError."""
        kind = config["task"].get("kind", "classify")
        if kind != self.task_kind:
            other = ESTIMATORS.get(kind, "weft.train")
            raise UserError(
                f"{type(self).__name__}: the recipe is for the task '{kind}', not "
                f"'{self.task_kind}'. Use {other}, or another recipe: "
                f"{', '.join(configuration.recipes(self.task_kind)[:5])}, …"
            )
        return config


def weigh_rows(rows: Columns, sample_weight: ArrayLike) -> Columns:
    """Return the rows with their weights, without those of weight 0."""
    weights = check_weights(sample_weight, len(rows[LABEL]))
    if weights is None:
        return rows
    kept = np.flatnonzero(weights)
    some = {name: [column[i] for i in kept] for name, column in rows.items()}
    return some if (weights[kept] == 1).all() else {**some, WEIGHT: weights[kept].tolist()}


def check_dev(dev: Any) -> tuple[ArrayLike, ArrayLike]:
    """Return held-out data as X and y."""
    if not isinstance(dev, (tuple, list)) or len(dev) != 2:
        raise UserError("dev should be a pair, dev=(X_dev, y_dev).")
    return dev[0], dev[1]


def _is_setting(name: str) -> bool:
    section, nested, rest = name.partition(NESTED)
    return bool(nested and rest) and section in SETTING_SECTIONS


def _unknown_parameter(estimator: TextEstimator, name: str) -> str:
    section, nested, _ = name.partition(NESTED)
    if nested:
        return str(unknown_name("section", section, SETTING_SECTIONS, f"'{name}'"))
    known = estimator._get_param_names()
    message = str(unknown_name("parameter", name, known))
    return f"{message} Settings of the recipe have two underscores, as in encoder__hidden."


def _plain(value: Any) -> Any:
    """Return a value as a configuration file would have it."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, (list, tuple)) else value


@contextlib.contextmanager
def _run_folder(folder: str | os.PathLike[str] | None) -> Iterator[Path]:
    """Yield the folder of a run: a temporary one, or one that is kept and replaces none.

    If the named folder is in use, it is FOLDER-2, FOLDER-3, …: every fit of a search has its own.
    """
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="weft-") as temporary:
            yield Path(temporary) / "run"
        return
    path = Path(folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        place = path if number == 1 else path.with_name(f"{path.name}-{number}")
        if number == 1 and place.is_dir() and not any(place.iterdir()):
            break
        with contextlib.suppress(FileExistsError):
            place.mkdir()
            break
    yield place

"""Join trained models into an ensemble: one model folder that answers by their average."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from weft import registry
from weft.errors import UserError
from weft.predict.ensemble import EnsembleEngine, check_members, check_weights
from weft.predict.golden import GOLDEN, recorded_inputs
from weft.predict.members import MAX_MEMBERS, SECTION
from weft.predict.predictor import Predictor, load, model_folder

# Sections of model.json that a task and its files need; those of networks stay with the members.
KEPT_SECTIONS = ("task", "data", "train", "tokenizer", "target", "generate")


@registry.check_types
def ensemble(
    models: Sequence[str | Path],
    output: str | Path,
    *,
    weights: Sequence[float] = (),
    device: str = "auto",
    overwrite: bool = False,
    trust: str | Sequence[str] = (),
) -> Predictor:
    """Write an ensemble of trained models as one model folder, and return it.

    Models of any kinds can be joined that answer the same task with the same labels; the weights
    of their probabilities are equal unless given. The members of an ensemble count one by one.
    """
    output = Path(output)
    if len(models) < 2:
        raise UserError(f"An ensemble needs at least two models, got {len(models)}.")
    if weights and len(weights) != len(models):
        raise UserError(f"There are {len(models)} models, but {len(weights)} weights.")
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        _check_overwrite(output, models, overwrite)
    folders = [model_folder(Path(model)) for model in models]
    loaded = [load(folder, device=device, trust=trust) for folder in folders]
    checked = check_weights(weights or [1.0] * len(models), "weights")
    members, own, paths = _flatten(loaded, checked, folders)
    check_members(members, [str(path) for path in paths])
    joined = join_members(members, own, paths)
    golden = recorded_inputs(folders[0] / GOLDEN)
    record = {"members": [str(model) for model in models], "parameters": joined.parameters}
    shutil.rmtree(output, ignore_errors=True)
    joined.save(output, golden, record)
    return joined


def join_members(
    members: Sequence[Predictor], weights: Sequence[float], folders: Sequence[Path]
) -> Predictor:
    """Return the predictor of an ensemble; `folders` hold its members."""
    if len(members) > MAX_MEMBERS:
        raise UserError(f"An ensemble has at most {MAX_MEMBERS} members, got {len(members)}.")
    first = members[0]
    space = first.task.join_spaces(
        [member.space for member in members], np.array(weights) / sum(weights)
    )
    engine = EnsembleEngine(members, weights, first.task, space, folders)
    config = {name: first.config[name] for name in KEPT_SECTIONS if name in first.config}
    config[SECTION] = {"weights": [float(weight) for weight in weights]}
    return Predictor(engine, first.task, space, config)


def _flatten(
    loaded: Sequence[Predictor], weights: Sequence[float], folders: Sequence[Path]
) -> tuple[list[Predictor], list[float], list[Path]]:
    """Return members, weights and folders, with ensembles replaced by their own members."""
    members: list[Predictor] = []
    own: list[float] = []
    paths: list[Path] = []
    for predictor, weight, folder in zip(loaded, weights, folders, strict=True):
        engine = predictor.engine
        if not isinstance(engine, EnsembleEngine):
            engine = EnsembleEngine([predictor], [1.0], predictor.task, predictor.space, [folder])
        members += engine.members
        own += (weight * engine.weights).tolist()
        paths += engine.folders
    return members, own, paths


def _check_overwrite(output: Path, models: Sequence[str | Path], overwrite: bool) -> None:
    """Raise a UserError if writing would destroy something."""
    if not overwrite:
        raise UserError(f"{output} exists. Pass --overwrite to replace it, or choose another name.")
    if not (output / "model.json").is_file():
        raise UserError(f"{output} holds no model of Weft, so --overwrite leaves it alone.")
    inside = [one for one in models if Path(one).resolve().is_relative_to(output.resolve())]
    if inside:
        raise UserError(f"{inside[0]} is inside {output}, which would be replaced. Choose another.")

"""Everything a training needs to go on, in one file that is replaced in one stroke.

A checkpoint is a safetensors file: weights, optimiser state and random state as tensors, numbers
and positions as JSON in its header. A kill at any moment leaves either the old file or the new one.
"""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from weft.batch import Position
from weft.decode.search.state import iter_tensors
from weft.errors import UserError
from weft.runtime import Runtime
from weft.storage import write_bytes
from weft.train.logger import ResumeError
from weft.train.loop import TrainState, rebuild_state

FORMAT = 1


def write(
    path: Path, trainee: TrainState, position: Position, runtime: Runtime, extra: Any
) -> None:
    """Save the whole state of a training; `extra` is any JSON the caller wants back."""
    tensors = {f"model.{n}": t for n, t in trainee.model.state_dict().items()}
    for name, tensor in (trainee.average or {}).items():
        tensors[f"average.{name}"] = tensor
    for name, tensor in runtime.random_state().items():
        tensors[f"random.{name}"] = tensor
    for i, tensor in enumerate(iter_tensors(trainee.carried)):
        tensors[f"carried.{i}"] = tensor
    numbers = []
    for i, optimiser in enumerate(trainee.optimisers):
        state = optimiser.state_dict()
        numbers.append({"param_groups": state["param_groups"], "plain": {}})
        for key, values in state["state"].items():
            for name, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{i}.{key}.{name}"] = value
                else:
                    numbers[i]["plain"][f"{key}.{name}"] = value
    header = {
        "format": FORMAT,
        "step": trainee.step,
        "pieces": trainee.pieces,
        "position": [position.epoch, position.batch],
        "optimisers": numbers,
        "extra": extra,
    }
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    replace(path, save(plain, {"weft": json.dumps(header)}))


def read(path: Path, trainee: TrainState, runtime: Runtime) -> tuple[Position, Any]:
    """Put a saved state back into a trainee made from the same configuration."""
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["weft"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{path}: damaged checkpoint ({error}). Delete it to start anew."
        ) from error
    if header["format"] != FORMAT:
        raise UserError(f"{path}: checkpoint format {header['format']}, this Weft reads {FORMAT}.")
    try:
        trainee.model.load_state_dict(_strip_prefix(tensors, "model."), strict=True)
    except RuntimeError as error:
        raise ResumeError(
            f"{path} belongs to another configuration: {str(error).splitlines()[-1].strip()} "
            "Train into another folder, or pass --overwrite."
        ) from error
    kept = _strip_prefix(tensors, "average.")
    if trainee.average is not None:  # where none was saved, the mean begins here
        now = dict(trainee.model.named_parameters())
        trainee.average = {
            name: kept[name].to(runtime.device) if name in kept else now[name].detach().clone()
            for name in trainee.average
        }
    _restore_optimisers(path, trainee, tensors, header["optimisers"])
    trainee.carried = _restore_carried(trainee, tensors, runtime)
    runtime.restore_random(_strip_prefix(tensors, "random."))
    trainee.step, trainee.pieces = header["step"], header["pieces"]
    return Position(*header["position"]), header["extra"]


def replace(path: Path, data: bytes) -> None:
    """Write a file so that no reader and no crash ever sees half of it."""
    write_bytes(path, data, durable=True)


def _restore_carried(trainee: TrainState, tensors: dict[str, Tensor], runtime: Runtime) -> Any:
    """The state in which the next batch begins, where one was saved."""
    saved = _strip_prefix(tensors, "carried.")
    if not saved:
        return None
    begun = trainee.model.head.start(len(saved["0"]), runtime.device)  # type: ignore[union-attr, operator]
    return rebuild_state(begun, (saved[f"{i}"].to(runtime.device) for i in range(len(saved))))


def _restore_optimisers(
    path: Path, trainee: TrainState, tensors: dict[str, Tensor], saved: list[dict[str, Any]]
) -> None:
    """Put back what optimisers remember; rates, decay and the like are today's."""
    fresh = [one.state_dict()["param_groups"] for one in trainee.optimisers]
    if _signature(fresh) != _signature([one["param_groups"] for one in saved]):
        raise ResumeError(
            f"{path} was written with another train.optimiser, or with other parts that learn at "
            "rates of their own (train.head_learning_rate, embedder_learning_rate, layer_decay, "
            "unfreeze_epochs). Put that back, or train into another folder."
        )
    for i, (optimiser, groups) in enumerate(zip(trainee.optimisers, fresh, strict=True)):
        state: dict[int, dict[str, Any]] = {}
        for name, value in (_strip_prefix(tensors, f"optimiser.{i}.") | saved[i]["plain"]).items():
            key, _, field = name.partition(".")
            state.setdefault(int(key), {})[field] = value
        optimiser.load_state_dict({"state": state, "param_groups": groups})


def _signature(optimisers: list[list[dict[str, Any]]]) -> list[list[tuple[Any, ...]]]:
    """What must be the same for a state to fit: the kind of optimiser, and what it is for."""
    kinds = ("betas", "momentum", "lr_decay")  # by an option that it alone has
    return [
        [(*(name in group for name in kinds), group["params"]) for group in groups]
        for groups in optimisers
    ]


def _strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

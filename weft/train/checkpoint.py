"""Checkpoints: everything needed to resume training, in one file that is replaced atomically.

A checkpoint is a safetensors file: weights, optimiser state and random state as tensors, numbers
and positions as JSON in its header. A kill at any moment leaves the old file or the new one. Of a
sharded model the file names a folder, where each process has written its shards.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from weft.batch import Position
from weft.decode.search.state import iter_tensors
from weft.errors import UserError
from weft.jsonio import Json
from weft.model import LanguageModel
from weft.protocols import Saved, State
from weft.runtime import Runtime
from weft.storage import write_bytes
from weft.train.logger import ResumeError
from weft.train.loop import concat_states, rebuild_state
from weft.train.parallel import is_sharded, shard_like
from weft.train.shards import read_shards, remove_shards, write_shards
from weft.train.state import TrainState

FORMAT = 1


def write(path: Path, state: TrainState, position: Position, runtime: Runtime, extra: Json) -> None:
    """Save the training state; `extra` is any JSON that `read` should return.

    Of several processes all call it, and rank 0 writes.
    """
    tensors = {f"model.{n}": t for n, t in state.model.state_dict().items()}
    for name, tensor in (state.ema or {}).items():
        tensors[f"average.{name}"] = tensor
    for rank, random in enumerate(runtime.world.gather(runtime.random_state())):
        for name, tensor in random.items():
            tensors[f"{_random_prefix(rank)}{name}"] = tensor
    carried = state.carried
    if state.parallel is not None:
        carried = concat_states(state.parallel.gather_state(carried) or [None])
    for i, tensor in enumerate(iter_tensors(carried)):
        tensors[f"carried.{i}"] = tensor
    numbers = []
    for i, optimiser in enumerate(state.optimisers):
        saved = optimiser.state_dict()
        numbers.append({"param_groups": saved["param_groups"], "plain": {}})
        for key, values in saved["state"].items():
            for name, value in values.items():
                if isinstance(value, Tensor):
                    tensors[f"optimiser.{i}.{key}.{name}"] = value
                else:
                    numbers[i]["plain"][f"{key}.{name}"] = value
    sharded = {name: t.detach() for name, t in tensors.items() if is_sharded(t)}
    shards = write_shards(path.parent, sharded, state.step, runtime.world) if sharded else ""
    header = {
        "format": FORMAT,
        "shards": shards,
        "step": state.step,
        "pieces": state.micro_batches,
        "position": [position.epoch, position.batch],
        "optimisers": numbers,
        "extra": extra,
    }
    if runtime.world.rank == 0:
        plain = {n: t.detach().cpu().contiguous() for n, t in tensors.items() if n not in sharded}
        replace(path, save(plain, {"weft": json.dumps(header)}))
        remove_shards(path.parent, kept=shards)


def read(path: Path, state: TrainState, runtime: Runtime) -> tuple[Position, Saved]:
    """Restore a checkpoint into a state built from the same configuration."""
    header, tensors = read_tensors(path, _weights_by_name(state))
    try:
        load_weights(state.model, _strip_prefix(tensors, "model."))
    except RuntimeError as error:
        raise ResumeError(
            f"{path} belongs to another configuration: {str(error).splitlines()[-1].strip()} "
            "Train into another folder, or pass --overwrite."
        ) from error
    saved = _strip_prefix(tensors, "average.")
    if state.ema is not None:  # if none was saved, the average starts from today's weights
        current = dict(state.model.named_parameters())
        state.ema = {
            name: (
                shard_like(saved[name].to(runtime.device), average)
                if name in saved
                else current[name].detach().clone()
            )
            for name, average in state.ema.items()
        }
    _restore_optimisers(path, state, tensors, header["optimisers"])
    state.carried = _restore_carried(state, tensors, runtime)
    if random := _strip_prefix(tensors, _random_prefix(runtime.world.rank)):
        runtime.restore_random(random)  # more processes than before begin with new ones
    state.step, state.micro_batches = header["step"], header["pieces"]
    return Position(*header["position"]), header["extra"]


def read_tensors(
    path: Path, like: Callable[[str], Tensor | None] = lambda name: None
) -> tuple[Saved, dict[str, Tensor]]:
    """Return the header and the tensors of a checkpoint: sharded as `like` is, or whole."""
    try:
        with safe_open(path, "pt") as file:
            header = json.loads(file.metadata()["weft"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, KeyError, TypeError, json.JSONDecodeError) as error:
        raise UserError(
            f"{path}: damaged checkpoint ({error}). Delete it to start over."
        ) from error
    if header["format"] != FORMAT:
        raise UserError(f"{path}: checkpoint format {header['format']}, this Weft reads {FORMAT}.")
    if shards := header.get("shards"):
        tensors |= read_shards(path.parent / shards, like)
    return header, tensors


def _weights_by_name(state: TrainState) -> Callable[[str], Tensor | None]:
    """Return a function from the name of a tensor in a checkpoint to the weight it belongs to."""
    weights = dict(state.model.named_parameters())
    learned = [[p for g in each.param_groups for p in g["params"]] for each in state.optimisers]

    def find(name: str) -> Tensor | None:
        kind, _, rest = name.partition(".")
        if kind != "optimiser":
            return weights.get(rest)
        number, key, _ = rest.split(".", 2)
        weight: Tensor = learned[int(number)][int(key)]
        return weight

    return find


def load_weights(model: nn.Module, weights: dict[str, Tensor]) -> None:
    """Load whole tensors into a model, which may be sharded."""
    current = model.state_dict()
    sharded = {
        name: shard_like(tensor, current[name]) if name in current else tensor
        for name, tensor in weights.items()
    }
    model.load_state_dict(sharded, strict=True)


def replace(path: Path, data: bytes) -> None:
    """Write a file atomically: no reader and no crash ever sees half of it."""
    write_bytes(path, data, durable=True)


def _restore_carried(state: TrainState, tensors: dict[str, Tensor], runtime: Runtime) -> State:
    """Return the recurrent state that the next batch starts from, if one was saved."""
    saved = _strip_prefix(tensors, "carried.")
    if not saved:
        return None
    assert isinstance(state.model, LanguageModel)
    if state.parallel is not None:
        rows = state.parallel.own_rows(len(saved["0"]))
        saved = {name: tensor[rows] for name, tensor in saved.items()}
        if not len(saved["0"]):
            return None
    start = state.model.head.start(len(saved["0"]), runtime.device)
    return rebuild_state(start, (saved[f"{i}"].to(runtime.device) for i in range(len(saved))))


def _restore_optimisers(
    path: Path, state: TrainState, tensors: dict[str, Tensor], saved: Sequence[Saved]
) -> None:
    """Restore the moments of the optimisers; rates and decay follow the current settings."""
    fresh = [optimiser.state_dict()["param_groups"] for optimiser in state.optimisers]
    if _signature(fresh) != _signature([entry["param_groups"] for entry in saved]):
        raise ResumeError(
            f"{path} was written with another train.optimiser, or with other parts that learn at "
            "rates of their own (train.head_learning_rate, embedder_learning_rate, layer_decay, "
            "unfreeze_epochs). Put that back, or train into another folder."
        )
    for i, (optimiser, groups) in enumerate(zip(state.optimisers, fresh, strict=True)):
        restored: dict[int, dict[str, object]] = {}
        parameters = [p for group in optimiser.param_groups for p in group["params"]]
        for name, value in (_strip_prefix(tensors, f"optimiser.{i}.") | saved[i]["plain"]).items():
            key, _, field = name.partition(".")
            like = parameters[int(key)]
            if isinstance(value, Tensor) and value.shape == like.shape:
                value = shard_like(value, like)
            restored.setdefault(int(key), {})[field] = value
        optimiser.load_state_dict({"state": restored, "param_groups": groups})


def _signature(optimisers: Sequence[Sequence[Saved]]) -> list[list[tuple[object, ...]]]:
    """Return what must match for a state to fit: the kind of optimiser and its parameters."""
    kinds = ("betas", "momentum", "lr_decay")  # an option that identifies the optimiser
    return [
        [(*(name in group for name in kinds), group["params"]) for group in groups]
        for groups in optimisers
    ]


def _random_prefix(rank: int) -> str:
    return f"random{rank}." if rank else "random."


def _strip_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}

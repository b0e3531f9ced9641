"""Read and write the folders of sentence-transformers: pooling and maximum length."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

from weft import jsonio
from weft.errors import UserError
from weft.jsonio import JsonObject

POOLS = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"}
MODE_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


class PoolSpec(TypedDict, total=False):
    """The [pool] section of a sentence encoder."""

    kind: str
    activation: str
    normalise: bool


@dataclass(frozen=True)
class SentenceSettings:
    """The settings of a sentence-transformers folder."""

    network: Path  # the folder of the network itself
    pool: PoolSpec
    max_tokens: int = 0  # per text; 0: as many as the network can read
    lowercase: bool = False


def read(folder: Path) -> SentenceSettings | None:
    """Read modules.json and the folders it names; None if there is none."""
    path = folder / "modules.json"
    if not path.is_file():
        return None
    listed = _read_json(path)
    try:
        modules = [(str(one["type"]).split(".")[-1], one["path"]) for one in listed]
    except (KeyError, TypeError):
        raise UserError(
            f"{path}: expected a list of modules, each with a type and a path."
        ) from None
    kinds = [kind for kind, _ in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise UserError(
            f"{path}: the modules are {', '.join(kinds)}; only Transformer, Pooling and Normalize "
            "are supported, in this order."
        )
    network, pooling = (_module_folder(folder, where, path) for _, where in modules[:2])
    pool = _read_pool(pooling / "config.json", normalise=len(kinds) == 3)
    declared = network / "sentence_bert_config.json"
    settings = _read_object(declared) if declared.is_file() else {}
    max_tokens = settings.get("max_seq_length") or 0
    if not isinstance(max_tokens, int) or isinstance(max_tokens, bool) or max_tokens < 0:
        raise UserError(f"{declared}: max_seq_length should be a whole number, got {max_tokens!r}.")
    return SentenceSettings(network, pool, max_tokens, bool(settings.get("do_lower_case")))


def _module_folder(folder: Path, name: object, path: Path) -> Path:
    """Return the folder of a module; it must lie inside the checkpoint folder."""
    if not isinstance(name, str):
        raise UserError(f"{path}: a module's path should be a text, got {name!r}.")
    path_of_module = folder / name
    try:
        inside = path_of_module.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a null byte; links in a circle
        inside = False
    if not inside:
        raise UserError(f"{path}: the module {name!r} lies outside the folder and is not read.")
    return path_of_module


def to_files(pool: PoolSpec, width: int, max_tokens: int) -> dict[str, object] | None:
    """Return the files of a pool by name; None if sentence-transformers has no such pool."""
    names = {ours: theirs for theirs, ours in POOLS.items()}
    if pool["kind"] not in names:
        return None
    chosen = names[pool["kind"]]
    kinds = ["Transformer", "Pooling", *(["Normalize"] if pool.get("normalise") else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    return {
        "modules.json": [
            {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
            for i, (kind, path) in enumerate(zip(kinds, paths, strict=False))
        ],
        "1_Pooling/config.json": {
            "word_embedding_dimension": width,
            **{old: name == chosen for old, name in MODE_FLAGS.items()},
        },
        "sentence_bert_config.json": {"max_seq_length": max_tokens or None, "do_lower_case": False},
    }


def _read_pool(path: Path, normalise: bool) -> PoolSpec:
    declared = _read_object(path)
    mode = declared.get("pooling_mode")
    modes = [str(m) for m in (mode if isinstance(mode, list) else str(mode).split("+")) if mode]
    modes += [name for old, name in MODE_FLAGS.items() if declared.get(old)]
    if len(modes) != 1 or modes[0] not in POOLS:
        modes_text = "+".join(modes) or "none"
        raise UserError(
            f"{path}: the pooling mode is {modes_text}; supported is one of {', '.join(POOLS)}."
        )
    kind = POOLS[modes[0]]
    if not normalise:
        return {"kind": kind}
    if kind == "last":
        raise UserError(
            f"{path}: lasttoken with Normalize is not supported; mean, cls and max are."
        )
    return {"kind": kind, "normalise": True}


def _read_object(path: Path) -> JsonObject:
    found = _read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}.")
    return found


def _read_json(path: Path) -> Any:  # the caller checks it
    try:
        return jsonio.read(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None

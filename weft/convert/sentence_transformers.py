"""Folders of sentence-transformers: how tokens become one vector, and how long a text may be."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft import jsonio
from weft.errors import UserError

POOLS = {"mean": "mean", "cls": "first", "max": "max", "lasttoken": "last"}
MODE_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}


@dataclass(frozen=True)
class SentenceSettings:
    """What a sentence-transformers folder says beside the network."""

    network: Path  # the folder of the network itself
    pool: dict[str, Any]
    limit: int = 0  # tokens of a text that are read, 0: as many as the network can
    lowercase: bool = False


def read(folder: Path) -> SentenceSettings | None:
    """What modules.json and the folders it names say; None where there is none."""
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
            f"{path}: the modules {', '.join(kinds)}; only Transformer, Pooling and Normalize are "
            "read, in this order."
        )
    network, pooling = (_module_folder(folder, where, path) for _, where in modules[:2])
    pool = _read_pool(pooling / "config.json", normalise=len(kinds) == 3)
    declared = network / "sentence_bert_config.json"
    settings = _read_object(declared) if declared.is_file() else {}
    limit = settings.get("max_seq_length") or 0
    if type(limit) is not int or limit < 0:
        raise UserError(f"{declared}: max_seq_length should be a whole number, got {limit!r}.")
    return SentenceSettings(network, pool, limit, bool(settings.get("do_lower_case")))


def _module_folder(folder: Path, name: Any, path: Path) -> Path:
    """The folder of a module, which must lie in the folder of the whole."""
    if not isinstance(name, str):
        raise UserError(f"{path}: a module's path should be a text, got {name!r}.")
    place = folder / name
    try:
        inside = place.resolve().is_relative_to(folder.resolve())
    except (OSError, ValueError, RuntimeError):  # a null byte; links in a circle
        inside = False
    if not inside:
        raise UserError(f"{path}: the module {name!r} lies outside its folder; it is not read.")
    return place


def to_files(pool: dict[str, Any], width: int, limit: int) -> dict[str, Any] | None:
    """The same files for a pool of ours, by name; None where sentence-transformers has no such."""
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
        "sentence_bert_config.json": {"max_seq_length": limit or None, "do_lower_case": False},
    }


def _read_pool(path: Path, normalise: bool) -> dict[str, Any]:
    declared = _read_object(path)
    mode = declared.get("pooling_mode")
    modes = [str(m) for m in (mode if isinstance(mode, list) else str(mode).split("+")) if mode]
    modes += [name for old, name in MODE_FLAGS.items() if declared.get(old)]
    if len(modes) != 1 or modes[0] not in POOLS:
        metadata = "+".join(modes) or "nothing"
        raise UserError(f"{path}: pools by {metadata}; read are {', '.join(POOLS)}, one at a time.")
    spec = {"kind": POOLS[modes[0]]}
    if not normalise:
        return spec
    if spec["kind"] == "last":
        raise UserError(f"{path}: the last token, normalised, is not read; mean, cls and max are.")
    return {**spec, "normalise": True}


def _read_object(path: Path) -> dict[str, Any]:
    found = _read_json(path)
    if not isinstance(found, dict):
        raise UserError(f"{path}: expected an object, found {type(found).__name__}.")
    return found


def _read_json(path: Path) -> Any:
    try:
        return jsonio.read(path)
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}.") from None

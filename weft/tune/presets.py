"""Named search spaces."""

from typing import Any, TypeAlias

from weft.config import Config
from weft.errors import UserError, unknown_name
from weft.protocols import Section
from weft.run.train import resolve_config
from weft.tune.space import SearchTable, check_buildable

# Devlin et al. 2019, A.3, widened downwards as the lecture does: few values, all of them tried.
BERT: SearchTable = {
    "train.batch_size": [16, 32],
    "train.learning_rate": [3e-6, 1e-5, 3e-5, 5e-5],
    "train.epochs": [2, 3, 4],
}
Spec: TypeAlias = list[Any] | dict[str, Any]  # values, or a range
SAMPLERS = {"bert": "grid", "small": "random"}


def preset(name: str, base: Config) -> SearchTable:
    """Return the search space of a preset for this configuration."""
    if name not in SAMPLERS:
        raise unknown_name("preset", name, SAMPLERS)
    return dict(BERT) if name == "bert" else _small(base)


def _small(base: Config) -> SearchTable:
    """Return the settings that usually matter, around the configured values."""
    full = resolve_config(base)
    wanted: SearchTable = {}
    if "classic" not in full:
        rate = full["train"]["learning_rate"]
        wanted["train.learning_rate"] = {"low": rate / 5, "high": rate * 5, "log": True}
    for section, tables in full.items():
        if section == "train":
            continue
        listed = isinstance(tables, list)
        for i, table in enumerate(tables if listed else [tables]):
            prefix = f"{section}.{i}." if listed else f"{section}."
            for name, value in table.items():
                if spec := _around(name, value, table):
                    wanted[prefix + name] = spec
    # A width may have to be a multiple of something: what cannot be built is left out.
    space = {key: kept for key, spec in wanted.items() if (kept := _fitting(base, key, spec))}
    if not space:
        raise UserError(
            "--preset small has nothing for this configuration. Name settings with --search; `weft "
            "tune` without it lists them."
        )
    return space


def _around(name: str, value: Any, table: Section) -> Spec | None:
    if name == "dropout" and not ("cell" in table and table["layers"] == 1):
        return {"low": 0.0, "high": 0.6, "step": 0.1}
    if name == "hidden" and isinstance(value, int) and value > 1:  # 0: there is no such layer
        return [value // 2, value, value * 2]
    if name == "C" and value:  # 0: it is chosen on dev in every trial
        return {"low": value / 20, "high": value * 5, "log": True}
    if name == "learning_rate":
        return {"low": value / 5, "high": value * 5, "log": True}
    if (
        name == "order" and "learning_rate" in table
    ):  # of a classic model; an embedder's is left alone
        return [1, 2, 3]
    if name == "words" and isinstance(value, list):
        return [[1, 1], [1, 2], [1, 3]]
    if name == "characters" and value:
        return [[2, 4], [2, 5], [3, 6]]
    return None


def _fitting(base: Config, key: str, spec: Spec) -> Spec:
    if not isinstance(spec, list):
        return spec
    kept = []
    for value in spec:
        try:
            check_buildable(base.with_values({key: value}, "preset small"))
        except UserError:
            continue
        kept.append(value)
    return kept

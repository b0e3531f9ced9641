"""Which trials a comparison consists of, and the command that would do it again."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from weft import config as configuration
from weft import registry
from weft.compare.trial import Cut, Trial, identity
from weft.config import Config
from weft.errors import UserError
from weft.run.data import Data
from weft.run.text_scores import content_digests
from weft.train.settings import Settings


class Plan:
    """Recipes × seeds × folds; a recipe that the settings do not fit is an error of its own."""

    def __init__(
        self,
        bases: Mapping[str, Config],
        given: Mapping[str, Any],
        cut: Cut,
        seeds: int,
        folder: Path,
        data: Data,
        pretrained: str = "",
    ):
        self.given, self.cut, self.folder = given, cut, folder
        first = given.get("train.seed", Settings().seed)
        self.seeds = range(first, first + seeds)
        self.contents = content_digests(data, pretrained)
        self.trials: dict[str, list[Trial]] = {}
        self.errors: dict[str, str] = {}
        lead = "" if "task.metrics" in given else _lead(bases)
        for name, base in bases.items():
            try:
                base = _led(base, lead) if lead else base
                self.trials[name] = list(self._trials(name, base))
            except UserError as error:
                self.errors[name] = str(error)

    def _trials(self, recipe: str, base: Config) -> Iterator[Trial]:
        # A change to a part that a recipe does not have is meant for the other recipes.
        writing = ("target", "generate") if "decoder" in base else ()
        sections = (*base.sections, "task", "data", "train", *writing)
        fitting = {k: v for k, v in self.given.items() if k.split(".")[0] in sections}
        base = base.with_values(fitting, "compare")
        for seed in self.seeds if _seeded(base) else self.seeds[:1]:
            config = base.with_values({"train.seed": seed}, "compare")
            for fold in range(1, self.cut.folds + 1) if self.cut.folds else (None,):
                name = f"{recipe}-{seed}" + (f"-fold{fold}" if fold else "")
                known = identity(config, self.contents, fold, self.cut.folds)
                yield Trial(recipe, seed, fold, config, self.cut, self.folder / name, known)


def _lead(bases: Mapping[str, Config]) -> str:
    """The measure that decides for all recipes that write texts: that of the first, if they differ.

    A table has one column of quality, and a BLEU is not to be ranked beside a ROUGE.
    """
    firsts = [_measures(one)[0] for one in bases.values() if one["task"].get("kind") == "seq2seq"]
    return firsts[0] if len(set(firsts)) > 1 else ""


def _led(base: Config, lead: str) -> Config:
    own = [name for name in _measures(base) if name != lead]
    return base.with_values({"task.metrics": [lead, *own]}, "compare")


def _measures(base: Config) -> tuple[str, ...]:
    return registry.build("task", base["task"], tokenizer={}).measures


def starts(recipe: str) -> bool:
    """Whether a recipe begins with a checkpoint."""
    return bool(configuration.recipe(recipe)["recipe"].get("pretrained"))


def begun(recipe: str, pretrained: str) -> Config:
    """A recipe, with the checkpoint where it begins with one."""
    base = configuration.recipe(recipe)
    named = pretrained and starts(recipe)
    return configuration.with_pretrained(base, pretrained) if named else base


def kind_of(pretrained: str) -> str:
    """The kind of network that a checkpoint holds."""
    from weft.run.pretrained import open_checkpoint

    found = open_checkpoint(pretrained).embedder
    assert found is not None
    return found["kind"]


def _seeded(config: Config) -> bool:
    """Whether another seed can give another model; a linear baseline is always the same."""
    return "classic" not in config or registry.build("classic", config["classic"]).seeded


def command(
    files: Sequence[str],
    output: Path,
    options: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> list[str]:
    """The command line that does the same again; empty options are left out."""
    words = ["weft", "compare", *map(str, files), "-o", str(output)]
    for option, value in options.items():
        words += [option, str(value)] if value else []
    for key, value in changes.items():
        words += ["--set", f"{key}={configuration.to_toml(value)}"]
    return words

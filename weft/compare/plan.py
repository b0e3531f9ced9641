"""The trials of a comparison, and the command that reproduces it."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from weft import config as configuration
from weft import registry
from weft.compare.trial import SplitSpec, Trial, trial_hash
from weft.config import Config
from weft.errors import UserError
from weft.protocols import Section
from weft.run.data import Data
from weft.run.text_scores import content_digests
from weft.train.settings import Settings


class Plan:
    """Recipes × seeds × folds; a recipe that the settings do not fit gets its own error."""

    def __init__(
        self,
        bases: Mapping[str, Config],
        settings: Section,
        split_spec: SplitSpec,
        seeds: int,
        folder: Path,
        data: Data,
        pretrained: str = "",
    ):
        self.settings, self.split_spec, self.folder = settings, split_spec, folder
        first = settings.get("train.seed", Settings().seed)
        self.seeds = range(first, first + seeds)
        self.contents = content_digests(data, pretrained)
        self.trials: dict[str, list[Trial]] = {}
        self.errors: dict[str, str] = {}
        self.bases: dict[str, Config] = {}
        metric = "" if "task.metrics" in settings else _shared_metric(bases)
        for name, base in bases.items():
            try:
                self.add(name, _with_metric_first(base, metric) if metric else base)
            except UserError as error:
                self.errors[name] = str(error)

    def add(self, name: str, base: Config) -> None:
        """Add the trials of one more configuration."""
        self.bases[name] = base
        self.trials[name] = list(self._trials(name, base))

    def all_trials(self) -> list[Trial]:
        """Return the trials of all recipes."""
        return [trial for trials in self.trials.values() for trial in trials]

    def _trials(self, recipe: str, base: Config) -> Iterator[Trial]:
        # A change to a part that a recipe lacks is meant for the other recipes.
        generation = ("target", "generate") if "decoder" in base else ()
        sections = (*base.sections, "task", "data", "train", *generation)
        applicable = {k: v for k, v in self.settings.items() if k.split(".")[0] in sections}
        base = base.with_values(applicable, "compare")
        for seed in self.seeds if _depends_on_seed(base) else self.seeds[:1]:
            config = base.with_values({"train.seed": seed}, "compare")
            for fold in range(1, self.split_spec.folds + 1) if self.split_spec.folds else (None,):
                name = f"{recipe}-{seed}" + (f"-fold{fold}" if fold else "")
                digest = trial_hash(config, self.contents, fold, self.split_spec.folds)
                yield Trial(recipe, seed, fold, config, self.split_spec, self.folder / name, digest)


def _shared_metric(bases: Mapping[str, Config]) -> str:
    """Return the main metric of the first generation recipe if the recipes differ, else "".

    The leaderboard ranks by one metric: BLEU cannot be compared with ROUGE.
    """
    firsts = [
        _task_metrics(one)[0] for one in bases.values() if one["task"].get("kind") == "seq2seq"
    ]
    return firsts[0] if len(set(firsts)) > 1 else ""


def _with_metric_first(base: Config, metric: str) -> Config:
    others = [name for name in _task_metrics(base) if name != metric]
    return base.with_values({"task.metrics": [metric, *others]}, "compare")


def _task_metrics(base: Config) -> tuple[str, ...]:
    metrics: tuple[str, ...] = registry.build("task", base["task"], tokenizer={}).measures
    return metrics


def uses_checkpoint(recipe: str) -> bool:
    """Return True if a recipe starts from a checkpoint."""
    return bool(configuration.recipe(recipe)["recipe"].get("pretrained"))


def with_checkpoint(recipe: str, pretrained: str) -> Config:
    """Return a recipe, with `pretrained` if it starts from a checkpoint."""
    base = configuration.recipe(recipe)
    applies = pretrained and uses_checkpoint(recipe)
    return configuration.with_pretrained(base, pretrained) if applies else base


def checkpoint_kind(pretrained: str) -> str:
    """Return the kind of network in a checkpoint."""
    from weft.run.pretrained import open_checkpoint

    embedder = open_checkpoint(pretrained).embedder
    assert embedder is not None
    return str(embedder["kind"])


def _depends_on_seed(config: Config) -> bool:
    """Return True if the seed changes the model; a linear baseline is always the same."""
    return "classic" not in config or registry.build("classic", config["classic"]).is_seeded


def build_command(
    files: Sequence[str],
    output: Path,
    options: Mapping[str, object],
    changes: Section,
) -> list[str]:
    """Return the command line that reproduces the comparison; empty options are omitted."""
    words = ["weft", "compare", *map(str, files), "-o", str(output)]
    for option, value in options.items():
        words += [option] if value is True else [option, str(value)] if value else []
    for key, value in changes.items():
        words += ["--set", f"{key}={configuration.to_toml(value)}"]
    return words

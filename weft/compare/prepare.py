"""Prepare the data of a comparison: its task, recipes, columns, split and statistics."""

import dataclasses
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft import config as configuration
from weft import registry
from weft.compare.dataset_stats import DatasetStats, build_gold, compute_stats, has_numeric_labels
from weft.compare.detect_task import (
    choose_task,
    describe_alternatives,
    detect_parallel_tasks,
    detect_tasks,
)
from weft.compare.plan import checkpoint_kind, uses_checkpoint
from weft.compare.trial import RESULT, Result, SplitSpec, Trial
from weft.config import Config, Sections, Settings
from weft.errors import UserError, unknown_name
from weft.run.data import (
    DIALOGUE_VIEWS,
    Data,
    example_source,
    find_task,
    read_mode,
    validate,
)
from weft.run.split import Splits, choose_holdout
from weft.run.target_tokenizer import learn_space
from weft.run.text_scores import TEXT_TASKS
from weft.run.train import infer_task_settings, resolve_config
from weft.tasks.task import build_task
from weft.text.example import SkipCounter
from weft.text.formats.dialogue.turns import is_dialogue_file
from weft.text.formats.features import names_image, names_recording
from weft.text.formats.parallel import resolve_files
from weft.text.formats.semantics.recognise import semantic_format
from weft.text.read import GUESSED_HEADER

SPLITTING = "sentences"  # the task that every CoNLL-U file fits, whatever its tags
COLUMN_SETTINGS = ("text", "text_pair", "label", "second", "format", "dialogue", "history")


@dataclass(frozen=True)
class ComparisonData:
    """The data of a comparison: splits and statistics."""

    data: Data
    split_spec: SplitSpec
    splits: Splits  # of the first fold, with folds
    stats: DatasetStats


def task_settings(settings: Sections) -> Settings:
    return {key: value for key, value in settings.items() if key.startswith("task.")}


def check_metric(metric: str, config: Config, dataset: ComparisonData) -> None:
    """Raise UserError for a metric that the task lacks, before anything is trained."""
    sections = resolve_config(config)
    sections["task"] |= infer_task_settings(config, dataset.splits.train)
    task = build_task(sections)
    metrics = task.build_metric(learn_space(task, dataset.splits.train)).compute(resamples=0)
    if metric not in metrics:
        raise unknown_name("metric", metric, metrics, "--metric")


def parse_data(settings: Sections) -> Data:
    section = {key[5:]: value for key, value in settings.items() if key.startswith("data.")}
    return validate(Data(**registry.check(Data, section, "[data]")))


def shared_data_settings(named: Sequence[str], settings: Sections) -> Settings:
    """Return how the named recipes read tuples, if all do so alike and it is not set already."""
    readers = {bool(configuration.recipe(n).sections.get("data", {}).get("tuples")) for n in named}
    return {"data.tuples": True} if readers == {True} and "data.tuples" not in settings else {}


def choose_recipes(
    data: Data, settings: Sections, named: Sequence[str], pretrained: str
) -> tuple[list[str], str]:
    """Return the recipes to compare, and a hint about the detected task and its alternatives."""
    tasks = (*find_tasks(data), *(("nodes",) if data.parser else ()))
    requested = settings.get("task.kind", "")
    kind = choose_task(requested, named, tasks, data.train)
    start = checkpoint_kind(pretrained) if pretrained else ""
    available = configuration.recipes(kind, start) if start else configuration.recipes(kind)
    reader = _source_reader(data)
    fits = [name for name in available if is_comparable(name, reader)]
    names = list(dict.fromkeys(named or fits))
    if not names:
        raise UserError(f"No recipe for the task '{kind}'. Name some with --recipes.")
    if pretrained and not any(map(uses_checkpoint, names)):
        raise UserError(
            f"--pretrained {pretrained}: no recipe starts from a checkpoint of kind '{start}': "
            f"{', '.join(names)}. Omit it, or name other recipes with --recipes."
        )
    hints = (
        _header_note(data),
        "" if requested or named else describe_alternatives(kind, tasks),
        _pseudo_perplexity_note(names),
    )
    return names, " ".join(filter(None, hints))


def task_section(recipe: str, settings: Sections) -> Settings:
    """Return the [task] section of a recipe with these settings."""
    task = {"kind": "classify", **configuration.recipe(recipe)["task"]}
    return task | {key[5:]: value for key, value in settings.items() if key.startswith("task.")}


def column_settings(data: Data) -> dict[str, str | int]:
    """Return the columns as settings, so that every trial reads the same ones."""
    chosen = {f"data.{key}": getattr(data, key) for key in COLUMN_SETTINGS}
    return {key: value for key, value in chosen.items() if value != ""}


def infer_task(data: Data, settings: Sections, base: Config) -> dict[str, str]:
    """Return the kind of task as a setting, if numeric labels make it regression."""
    kind = settings.get("task.kind", base["task"].get("kind", ""))
    numeric = {"": "regress", "pair-classify": "pair-score"}.get(kind)
    if numeric and has_numeric_labels(example_source(data, data.train)()):
        return {"task.kind": numeric}
    return {}


def _pseudo_perplexity_note(names: Sequence[str]) -> str:
    """Return a warning if pseudo-perplexities would be ranked with perplexities, else ""."""
    kinds = {name: configuration.recipe(name)["decoder"].get("kind") for name in names}
    bidirectional = [name for name, kind in kinds.items() if kind == "bidirectional-lm"]
    if not bidirectional or len(bidirectional) == len(names):
        return ""
    return (
        f"{', '.join(bidirectional)}: bidirectional, so its metric is a pseudo-perplexity, which "
        "cannot be compared with the perplexities of the others."
    )


def find_tasks(data: Data) -> tuple[str, ...]:
    if data.tuples:
        return ("seq2seq",)
    files = resolve_files(data.train, data.target)
    if len(files) > 1 and not data.target:
        return detect_parallel_tasks(files)
    if len(files) > 1:
        return ("seq2seq",)
    if data.dialogue or is_dialogue_file(data.train):
        fits = {view: kind for kind, views in DIALOGUE_VIEWS.items() for view in views}
        return (fits[data.dialogue],) if data.dialogue else tuple(DIALOGUE_VIEWS)
    if _source_reader(data):
        return ("seq2seq",)
    semantic = _semantic_tasks(data)
    if semantic and data.format:
        return semantic
    splitting = semantic_format(data.train, find_task(SPLITTING).file_format)
    if splitting and data.format == splitting:
        return (SPLITTING,)
    try:
        tasks = detect_tasks(example_source(data, data.train)())
        return (*semantic, *tasks, *((SPLITTING,) if splitting else ()))
    except UserError:
        if not semantic:
            raise
        return semantic


def _semantic_tasks(data: Data) -> tuple[str, ...]:
    """Return the task of a file of roles, of mention brackets or of tuples, or none."""
    named = data.format or data.text != "" or data.label != ""
    for task in ("srl", "coref", "openie"):
        wanted = find_task(task).file_format
        if data.format == wanted if named else semantic_format(data.train, wanted) == wanted:
            return (task,)
    return ()


def _header_note(data: Data) -> str:
    """Return a note if the first line of the training file was read as a header, else ""."""
    tally = SkipCounter()
    next(example_source(data, data.train, tally)(), None)
    return (
        f"{data.train}:1: the first line is read as a header."
        if GUESSED_HEADER in tally.counts
        else ""
    )


def _source_reader(data: Data) -> str:
    """Return the embedder that reads the recordings or images of the training file, else ""."""
    if len(resolve_files(data.train, data.target)) > 1 or data.format:
        return ""
    try:
        first = next(example_source(data, data.train)(), None)
    except UserError:
        return ""  # reading it will report the error
    if first is None:
        return ""
    return "log-mel" if names_recording(first.text) else "image" if names_image(first) else ""


def is_comparable(name: str, reader: str = "") -> bool:
    """Return True if a recipe is compared by default: it reads texts, and only left to right.

    With `reader`, the recipes with this embedder are. Bidirectional language models have a
    pseudo-perplexity, lower than any perplexity.
    """
    if reader:
        embedder = configuration.recipe(name)["embedder"]
        return isinstance(embedder, dict) and embedder.get("kind") == reader
    parts = configuration.recipe(name)
    data = parts.sections.get("data", {})
    if data.get("tuples") or data.get("dialogue"):  # reads nothing but files of its kind
        return False
    tables = [parts[s] for s in ("embedder", "decoder") if s in parts]
    listed = [one for table in tables for one in (table if isinstance(table, list) else [table])]
    return not {"vectors", "log-mel", "image", "bidirectional-lm"} & {
        one.get("kind") for one in listed
    }


def prepare_data(
    data: Data, settings: Sections, folds: int, output: Path, base: Config, hint: str
) -> ComparisonData:
    """Split the data and compute its statistics."""
    kind = settings.get("task.kind", base["task"].get("kind", ""))
    writes = kind if kind in TEXT_TASKS else ""
    config = base.with_values(task_settings(settings), "compare")
    manner = read_mode({"kind": "classify", **config["task"]})
    if folds and manner != "labelled":
        raise UserError("Running text cannot be split into folds. Give a test file instead.")
    numbers = settings.get("task.kind") in ("regress", "pair-score")
    spec = SplitSpec(str(output / "split.npz"), folds, numbers, manner)
    note = ""
    if not folds and manner == "labelled":
        held_out = choose_holdout(data, spec.numbers, bool(writes))
        held_out.save(Path(spec.holdout))
        note = held_out.note
    splits = spec.splits(data, 1 if folds else None)
    stats = compute_stats(data, splits, folds, spec.numbers, build_gold(config, data), writes)
    stats = dataclasses.replace(stats, notes=(*filter(None, [hint, note]), *stats.notes))
    if splits.test is not None and stats.rows.get("test") == 0:
        raise UserError(
            f"{data.train}: too few rows for a test split. Give a test file, or use --folds."
        )
    return ComparisonData(data, spec, splits, stats)


def load_finished(trials: Iterable[Trial], overwrite: bool) -> dict[Path, Result]:
    """Return cached results; errors in them are raised before training starts."""
    out = {}
    for trial in trials:
        if overwrite:
            (trial.folder / RESULT).unlink(missing_ok=True)
        elif result := trial.load_result():
            out[trial.folder] = result
    return out


def make_folder(output: Path) -> Path:
    try:
        (output / "trials").mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UserError(f"{output} is a file; -o must be a folder.") from None
    except OSError as error:
        raise UserError(f"Cannot write to {output}: {error.strerror or error}.") from None
    return output

"""One training run: files in, run folder out.

RUN/config.toml  log.txt  metrics.jsonl  predictions.jsonl  health.json  model/
    checkpoints/{last,best}.safetensors  [members/0/ …, the runs of an ensemble]
"""

import contextlib
import dataclasses
import json
import platform
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from itertools import chain, islice
from pathlib import Path

from weft import __version__, registry
from weft import config as configuration
from weft.config import Config, FilledSections
from weft.doctor.drift import (
    MAX_READ_TEXTS,
    MAX_SAMPLE_TEXTS,
    MAX_SKETCH_TEXTS,
    MIN_TEXTS,
    Fingerprint,
    Reservoir,
    take_fingerprint,
)
from weft.errors import UserError, unknown_name
from weft.machine import is_restarted, launched_rank
from weft.metrics import MetricValue
from weft.notebook import HtmlRepr
from weft.predict.evaluate import ScoredExamples, evaluate, evaluate_scored
from weft.predict.model_card import architecture_name
from weft.predict.predictor import Predictor, load
from weft.predict.preprocess import preprocess
from weft.predict.tuning import tune_on_dev
from weft.progress import with_progress
from weft.protocols import Engine, LabelSpace, ReadMode
from weft.run.context import (
    DataRecord,
    EvalCallback,
    RowCounter,
    RunContext,
    RunRecord,
    TrainingRecord,
)
from weft.run.data import (
    Data,
    Source,
    describe_hierarchy,
    find_task,
    has_classes,
    labelled_only,
    near_duplicate_labels,
    read_mode,
    require_rows,
    unused_second_text,
    validate,
)
from weft.run.folder import check_writable, clear_folder, explain_failures
from weft.run.settings import read_settings
from weft.run.split import Splits, open_splits
from weft.run.target_tokenizer import learn_space
from weft.storage import atomic_jsonl, lock_folder, write_text
from weft.tasks.target_vocabulary import TargetVocabulary
from weft.tasks.task import Answer, AnyTask, build_task
from weft.text.annotation import trees
from weft.text.example import Example, SkipCounter
from weft.text.formats import features
from weft.text.formats.dialogue.entities import read_entities
from weft.text.location import MEMORY_PREFIX
from weft.text.tables.table import PathOrTable, name_data
from weft.train.class_balance import check_balance, choose_metric
from weft.train.logger import RunLogger, restore_on_failure
from weft.train.settings import Settings

PRETRAINED = "pretrained"  # the kind of what a folder holds, until it is opened
MAX_GOLDEN_CHARACTERS = 2000  # characters; longer texts would make a model folder needlessly large


NEURAL_ADVICE = (
    "Lower train.batch_size or train.max_tokens, set data.max_tokens, or choose a smaller network."
)
CLASSIC_ADVICE = "Lower classic.vocab_size, train on fewer texts, or merge rare labels."


class StopTraining(Exception):
    """Raised by an evaluation callback to stop a run early; nothing is saved."""


@dataclass(frozen=True, repr=False)
class RunResult(HtmlRepr):
    """The result of a run."""

    predictor: Predictor
    figures: dict[str, dict[str, MetricValue]]  # by split, then by metric
    record: RunRecord

    def __repr__(self) -> str:
        metric = self.predictor.task.metric
        shown = {name: figures[metric] for name, figures in self.figures.items()}
        message = [f"{name} {metric} {one.value:.4f} on {one.n}" for name, one in shown.items()]
        return f"RunResult({'; '.join(message) or 'nothing measured'})"


@registry.check_types
@registry.with_trust(lambda config: config.origin_of)
def train(
    config: Config,
    output: str | Path,
    *,
    train: PathOrTable = "",
    dev: PathOrTable = "",
    test: PathOrTable = "",
    splits: Splits | None = None,
    device: str = "auto",
    resume: bool = False,
    overwrite: bool = False,
    quiet: bool = False,
    on_evaluate: EvalCallback | None = None,
    trust: Sequence[str] = (),
) -> RunResult:
    """Train a configuration into a run folder, evaluate it, and save the model.

    `train`, `dev` and `test` are files or data in memory, in place of those of the configuration.
    `on_evaluate` is called after every evaluation; an exception, such as StopTraining, ends it.
    Parts from outside Weft are imported only from packages in `trust`.
    Of several processes that torchrun started, each returns the model, and the first one evaluates
    and saves it.
    """
    if given := name_data({}, train=train, dev=dev, test=test):
        config = config.with_values(given, "weft.train")
    full, folder = resolve_config(config), Path(output)
    rank, size = launched_rank()
    if size > 1:
        _check_processes(full)
        resume = resume or is_restarted()
    if rank:
        return _train(config, full, folder, splits, device, resume, True, on_evaluate, [])
    with lock_folder(folder) as note:
        check_writable(folder, resume, overwrite)
        run = _train
        if full["train"]["ensemble"] > 1:
            from weft.run.ensemble import train_members as run
        return run(
            config, full, folder, splits, device, resume, quiet, on_evaluate, [note] if note else []
        )


def _train(
    config: Config,
    full: FilledSections,
    folder: Path,
    splits: Splits | None,
    device: str,
    resume: bool,
    quiet: bool,
    on_evaluate: EvalCallback | None,
    notes: list[str],
) -> RunResult:
    """Train in a locked folder; `full` is `config` with all defaults."""
    started = time.perf_counter()
    ready = prepare_run(config, full, folder, splits, device, quiet)
    settings = Settings(**full["train"])
    with contextlib.ExitStack() as stack:
        runtime, logs = None, folder
        if "classic" not in full:
            from weft.runtime import join_processes, select_runtime

            runtime = select_runtime(device, settings.precision)
            runtime = stack.enter_context(join_processes(runtime))
            if runtime.world.rank:
                logs = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if resume:
            check_same_model(folder, full)
            check_same_data(folder, full["data"])
        if logs == folder:
            clear_folder(folder, resume)
        path = stack.enter_context(restore_on_failure(logs / "config.toml", resume))
        engine: Engine
        training: TrainingRecord
        with explain_failures(
            folder, "training", CLASSIC_ADVICE if runtime is None else NEURAL_ADVICE
        ):
            write_text(path, configuration.dumps(full))  # first: it makes this a run folder
            logger = stack.enter_context(
                RunLogger(
                    logs,
                    quiet=quiet,
                    loggers=settings.loggers if logs == folder else (),
                    config=full,
                    tags=_run_tags(full),
                )
            )
            context = ready.context(settings, folder, logger, started, on_evaluate, notes)
            if runtime is None:
                from weft.run import classic

                _note_ignored(config, logger)
                engine, result = classic.ClassicRun(context, full["classic"]).fit()
                training = {
                    "stopped": result.stop_reason,
                    "completed": result.completed,
                    "rising": "",
                    "device_bytes": 0,
                }
            else:
                from weft.run.neural import NeuralRun, infer_features

                infer_features(full, ready.splits.train)
                engine, result = NeuralRun(context, full, runtime, ready.parser).fit(resume)
                training = {
                    "stopped": result.stop_reason,
                    "device_bytes": runtime.peak_memory(),
                    "losses": result.losses,
                    "rising": result.undertrained,
                    "gradients": result.gradients,
                    "completed": result.completed,
                    "threads": list(result.threads),
                    "updates": result.updates,
                    "training_seconds": round(result.seconds, 3),
                }
        training["seconds"] = round(time.perf_counter() - started, 3)
        predictor = Predictor(engine, ready.task, ready.space, full)
        if logs != folder:
            record = _make_record(predictor, context, training, settings.metric, {})
            return RunResult(predictor, {}, record)
        with explain_failures(folder, "measuring the model", "Give smaller dev and test files."):
            return evaluate_and_save(predictor, context, training)


@dataclass(frozen=True)
class PreparedRun:
    """The data of a run: split, preprocessed, and with its label space."""

    data: Data
    task: AnyTask
    space: LabelSpace
    splits: Splits
    tally: SkipCounter
    parser: Predictor | None
    notes: Sequence[str]  # how columns and splits were chosen
    data_record: DataRecord

    def context(
        self,
        settings: Settings,
        folder: Path,
        logger: RunLogger,
        started: float,
        on_evaluate: EvalCallback | None,
        notes: Sequence[str],
    ) -> RunContext:
        """Return the context of a run in a folder, with all notes logged."""
        for message in (
            *notes,
            *self.notes,
            describe_hierarchy(self.space),
            unused_second_text(self.splits.train, self.task),
            near_duplicate_labels(self.space),
        ):
            if message:
                logger.info(message)
        return RunContext(
            self.data, settings, self.task, self.space, self.splits, folder, logger, self.tally,
            started, self.data_record, on_evaluate,
        )  # fmt: skip


def prepare_run(
    config: Config,
    full: FilledSections,
    folder: Path,
    splits: Splits | None,
    device: str,
    quiet: bool,
) -> PreparedRun:
    """Read the data and learn the label space; `full` gets the settings that depend on them."""
    data, settings = Data(**full["data"]), Settings(**full["train"])
    tally = SkipCounter(enabled=False)
    manner = read_mode(full["task"])
    with explain_failures(folder, "reading the data", "Train on fewer or shorter texts."):
        data, splits, chosen = open_splits(data, full["task"], tally, splits)
        full["data"] = dataclasses.asdict(data)
        full["task"] |= infer_task_settings(config, splits.train)
        task = build_task(full)
        if "classic" not in full:
            _check_parts(full, task)
        check_balance(full, task)
        _check_hierarchy(full)
        if task.threshold_for and splits.dev is None:
            raise UserError(
                f"task.threshold_for = '{task.threshold_for}' is tuned on dev, and there is no dev "
                "part. Pass --dev, or set data.dev_fraction."
            )
        parser = _load_parser(data.parser, task, device)
        splits = _preprocess_splits(splits, task, tally, data, parser)
        skip = data.on_bad_row == "skip"
        rows = _training_rows(splits.train, data, tally, manner)
        place = f"reading {data.train or 'the training part'}"
        counter = RowCounter(has_classes(full["task"]))
        space = learn_space(
            task, rows, lambda examples: with_progress(counter.watch(examples), place, quiet)
        )
        if data.database and data.dialogue == "response":
            assert isinstance(space, TargetVocabulary)
            space = space.with_database(read_entities(data.database))
        if data.out_of_scope:
            space = task.with_out_of_scope(space, data.out_of_scope)
        _check_metric(settings.metric, task, space)
        full["train"]["metric"], note = choose_metric(settings.metric, task, space)
        if not skip:
            _check_labels(task, space, splits, manner)
    record = counter.record(data, splits)
    return PreparedRun(data, task, space, splits, tally, parser, (*chosen, note), record)


def _training_rows(train: Source, data: Data, tally: SkipCounter, mode: ReadMode) -> Source:
    """Return the rows to learn the label space from, without those that may be skipped."""
    if data.on_bad_row != "skip":
        return train
    return lambda: require_rows(labelled_only(train, data, tally, mode), data)


def resolve_config(config: Config) -> FilledSections:
    """Return all sections with defaults filled in; raise UserError for what does not fit."""
    if PRETRAINED in _kinds(config):
        from weft.run.pretrained import resolve

        config = resolve(config)
    task = registry.fill("task", {"kind": "classify", **config["task"]}, ("tokenizer",))
    data = validate(Data(**registry.check(Data, config["data"], "[data]")))
    model = _model_sections(config)
    settings = read_settings(config["train"], model)
    return {
        "task": task,
        **model,
        "data": dataclasses.asdict(data),
        "train": dataclasses.asdict(settings),
    }


def _kinds(config: Config) -> set[str | None]:
    """Return the kinds of the embedders and the decoder."""
    tables = config["embedder"]
    parts = [*(tables if isinstance(tables, list) else [tables]), config["decoder"]]
    return {part.get("kind") for part in parts}


def evaluate_and_save(
    predictor: Predictor,
    run: RunContext,
    training: TrainingRecord,
    members: Sequence[dict[str, dict[str, dict[str, float]]]] = (),
) -> RunResult:
    """Tune on dev, evaluate on dev and test, and write the model folder.

    `members` are the metrics of the members of an ensemble, whose thresholds are tuned already.
    """
    splits, data, folder, logger, tally = run.splits, run.data, run.folder, run.logger, run.tally
    scored: list[ScoredExamples] | None = None
    if predictor.task.has_threshold or predictor.task.has_confidence:
        if splits.dev is not None:
            # The mean of the members' thresholds need not serve the goal that each of them has.
            tune = not members or bool(predictor.task.threshold_for)
            scored = tune_on_dev(predictor, splits.dev, data.on_bad_row, tune)
        if line := predictor.task.describe_confidence(predictor.space):
            logger.info(line)
    held_out: Reservoir[tuple[str, float, object, float]] = Reservoir(MAX_SAMPLE_TEXTS)

    def sample(example: Example, answer: Answer) -> None:
        held_out.add((example.full_text, answer.coverage, answer.value, answer.score))

    results: dict[str, dict[str, MetricValue]] = {}
    task_metric = predictor.task.metric
    metrics = list(dict.fromkeys((predictor.config["train"]["metric"] or task_metric, task_metric)))
    for name, source in (("dev", splits.dev), ("test", splits.test)):
        if source is None or _is_empty(source):
            continue
        with atomic_jsonl(folder / "predictions.jsonl") as file:
            tally.enabled = name == "test"
            on_example = sample if name == "dev" else None
            measure = (
                evaluate_scored(predictor, scored, tally, file, on_example=on_example)
                if name == "dev" and scored
                else evaluate(
                    predictor, source(), on_bad_row=data.on_bad_row, tally=tally, predictions=file,
                    on_example=on_example,
                )
            )  # fmt: skip
            tally.enabled = False
        figures = measure.compute()
        main = figures[metrics[0]]
        if not main.n:
            continue  # every row was skipped; the notes say so
        results[name] = figures
        shown = ((metric, figures[metric]) for metric in metrics)
        words = ", ".join(f"{m} {f.value:.4f} [{f.low:.4f}, {f.high:.4f}]" for m, f in shown)
        logger.info(f"{name} {words} on {main.n}")
        logger.event(name, **{k: f.value for k, f in results[name].items()})
    message = (splits.note(), training["rising"], predictor.note)
    notes = [*filter(None, message), *tally.lines()]
    if all(source is None or _is_empty(source) for source in (splits.dev, splits.test)):
        notes.append("there is no dev or test part: nothing was measured; pass --dev or --test")
    for line in notes:
        logger.info(f"note: {line}")
    record = _make_record(predictor, run, training, metrics[0], results, notes, members)
    input_kind = "pairs" if predictor.pairs else predictor.engine.input_kind
    dev = splits.dev() if splits.dev is not None else ()  # it may hold few examples, or none
    # A recording or an image is too long to be kept with the model.
    is_long = input_kind == "vectors" and features.needs_frontend(next(splits.train()))
    texts = (
        _golden_input(example, input_kind) if text is None else text
        for example in (() if is_long else chain(dev, splits.train()))
        for text in (predictor.task.golden_input(example),)
    )
    golden = (text for text in texts if len("".join(text)) <= MAX_GOLDEN_CHARACTERS)
    fingerprint = None if input_kind == "vectors" else _take_fingerprint(run, predictor, held_out)
    chosen = list(islice(golden, data.golden_examples))
    predictor.save(folder / "model", chosen, record, fingerprint)
    logger.info(f"model saved in {folder / 'model'}")
    return RunResult(predictor, results, record)


def _make_record(
    predictor: Predictor,
    run: RunContext,
    training: TrainingRecord,
    metric: str,
    results: dict[str, dict[str, MetricValue]],
    notes: Sequence[str] = (),
    members: Sequence[dict[str, dict[str, dict[str, float]]]] = (),
) -> RunRecord:
    return {
        **training,
        "parameters": predictor.parameters,
        "metric": metric,
        "figures": {
            split: {name: dataclasses.asdict(f) for name, f in figures.items()}
            for split, figures in results.items()
        },
        "data": run.data_record,
        "notes": [*filter(None, [training["stopped"]]), *notes],
        "versions": versions(),
        "command": describe_command("weft.train"),
        "members": list(members),
    }


def _take_fingerprint(
    run: RunContext, predictor: Predictor, held_out: Reservoir[tuple[str, float, object, float]]
) -> Fingerprint | None:
    """Return the fingerprint of the training texts; None without a dev part to compare with."""
    if len(held_out.items) < MIN_TEXTS:
        return None
    texts: Reservoir[str] = Reservoir(MAX_SKETCH_TEXTS)
    for example in islice(run.splits.train(), MAX_READ_TEXTS):
        texts.add(example.full_text)
    return take_fingerprint(texts.items, held_out.items, predictor.class_labels)


def _golden_input(example: Example, input_kind: str) -> str | tuple[str, str]:
    """Return an example as an input that does not depend on its file."""
    if input_kind == "pairs":
        return example.text, example.other or ""
    if input_kind == "trees" and example.tree:
        return trees.format(example.tree)
    if input_kind == "vectors":
        return features.format_matrix(features.load_matrix(example))
    if example.fields:
        return json.dumps(dict(example.fields), ensure_ascii=False)
    return example.text


def _load_parser(folder: str, task: AnyTask, device: str) -> Predictor | None:
    """Load the parser for texts without trees, if one is configured."""
    if not folder:
        return None
    parser = load(folder, device=device)
    kind = parser.config["task"]["kind"]
    if kind != "constituency":
        raise UserError(
            f"data.parser: {folder} is a model of the task '{kind}'. Trees come from one of the "
            "task 'constituency'."
        )
    if not task.reads_trees:
        raise UserError("data.parser makes trees, which this task does not read. Leave it out.")
    return parser


def _preprocess_splits(
    splits: Splits, task: AnyTask, tally: SkipCounter, data: Data, parser: Predictor | None
) -> Splits:
    """Return the splits preprocessed for the task."""

    def of(source: Source | None) -> Source | None:
        if source is None:
            return None
        if parser is None:
            return lambda: preprocess(source(), task, tally, data.on_bad_row)
        kept: list[Example] = []  # parsed once

        def examples() -> Iterator[Example]:
            if not kept:
                kept.extend(preprocess(source(), task, tally, data.on_bad_row, parser))
            return iter(kept)

        return examples

    train = of(splits.train)
    assert train is not None
    return Splits(train, of(splits.dev), of(splits.test), splits.note)


def _is_empty(source: Source) -> bool:
    return next(source(), None) is None


def _note_ignored(config: Config, logger: RunLogger) -> None:
    """Log which [train] settings a classical model ignores."""
    heeded = ("seed", "threads", "minutes", "metric", "loggers", "balance", "focal_gamma")
    ignored = [name for name in config["train"] if name not in heeded]
    if ignored:
        logger.info(
            f"note: [train] {', '.join(ignored)} changes nothing here: all settings of a classic "
            "model are in [classic]"
        )


def _model_sections(config: Config) -> FilledSections:
    if "classic" in config:
        from weft.run import classic

        return classic.fill_sections(config)
    from weft.run import neural

    return neural.fill_sections(config)


def infer_task_settings(config: Config, source: Source) -> FilledSections:
    """Infer task settings from the training file that the configuration does not set."""
    task = find_task(config["task"].get("kind", "classify"))
    return task.infer(config["task"], source())


def _check_parts(full: FilledSections, task: AnyTask) -> None:
    """Raise UserError unless head and pool fit the task: per word, or per text."""
    kind = full["task"]["kind"]
    if kind == "language":
        if full["data"]["max_tokens"]:
            raise UserError(
                "data.max_tokens cuts texts, and a language model reads all: leave it out."
            )
        return
    if kind == "seq2seq" and "decoder" not in full:
        _check_ctc(full)
        return
    if "decoder" in full:
        if kind != "seq2seq":
            raise UserError(
                f"A [decoder] writes a text; set task.kind to 'seq2seq', not '{kind}', or to "
                "'language' for a model of text alone."
            )
        return
    if kind == "masked":
        from weft.run.mlm_data import check_parts

        check_parts(full)
        return
    if "pair" in full and not task.pairs:
        raise UserError(
            f"[pair] says how two texts meet, and the task '{kind}' is about one. Remove [pair], "
            "or set task.kind to 'pair-classify', 'pair-score' or 'span'."
        )
    head, pool = full["head"]["kind"], full["pool"]["kind"]
    head_task = registry.find("head", head).task
    by_word = task.is_structured
    if head_task != (task.shares_heads_of or kind) if by_word else bool(head_task):
        message = (
            f"answers the task '{head_task}'" if head_task else "answers about the text as a whole"
        )
        raise UserError(
            f"The head '{head}' {message}, not '{kind}'. Set head.kind to '{task.head}', or "
            "task.kind to another."
        )
    losses = registry.find("head", head).losses
    if task.loss_kind not in losses:
        raise UserError(
            f"The head '{head}' cannot be trained with task.loss = '{task.loss_kind}'. Known: "
            f"{', '.join(losses)}."
        )
    if by_word != (pool == "none"):
        fix = "set pool.kind to 'none'" if by_word else "choose another pool than 'none'"
        needs = "about every word" if by_word else "about the text as a whole"
        raise UserError(f"The task '{kind}' asks {needs}: {fix}.")


def _check_ctc(full: FilledSections) -> None:
    """Raise UserError unless a text is written by a CTC head over all states."""
    head = full["head"]["kind"]
    if registry.find("head", head).task != "seq2seq":
        raise UserError(
            "The task 'seq2seq' answers with a text, and so needs a [decoder], or the head 'ctc'; "
            f"this configuration has the head '{head}'."
        )
    if full["pool"]["kind"] != "none":
        raise UserError("The head 'ctc' reads every state: set pool.kind to 'none'.")
    for name in ("label_smoothing", "scheduled_sampling", "pointer", "shared", "record"):
        if full["task"].get(name):
            raise UserError(
                f"task.{name} is for models with a [decoder]; the head 'ctc' has none. Remove it."
            )


def _check_hierarchy(full: FilledSections) -> None:
    """Raise UserError for a loss of inner nodes in a model that is not trained by gradients."""
    if not full["task"].get("ancestor_weight"):
        return
    if not full["task"].get("hierarchy"):
        raise UserError(
            "task.ancestor_weight weighs the nodes above a label, and these labels are not in a "
            "tree. Set task.hierarchy=true, or leave it out."
        )
    solved = "classic" in full or registry.find("head", full["head"]["kind"]).fitted
    if solved:
        raise UserError(
            "task.ancestor_weight is a term of the loss of neural networks; this model is fitted "
            "to the labels alone. Leave it out: inner nodes then sum the labels below them."
        )


def _check_metric(name: str, task: AnyTask, space: LabelSpace) -> None:
    metrics = task.build_metric(space).compute(resamples=0)
    if name and name not in metrics:
        raise unknown_name("metric", name, metrics, "train.metric")


def _check_labels(task: AnyTask, space: LabelSpace, splits: Splits, mode: str) -> None:
    """Raise UserError for unknown or missing labels in dev and test before training starts."""
    for source in (splits.dev, splits.test):
        for example in source() if source else ():
            if example.label is not None:
                task.target(example, space)
            elif mode == "labelled" and example.tree is None:
                raise task.missing_label_error(example)


def _check_processes(full: FilledSections) -> None:
    """Raise UserError for a model that several processes cannot train together."""
    fix = "Train it without --processes."
    if "classic" in full:
        raise UserError(f"A classic model is trained by one process. {fix}")
    if "head" in full and registry.find("head", full["head"]["kind"]).fitted:
        raise UserError(f"The head '{full['head']['kind']}' is fitted by one process. {fix}")
    if full["train"]["ensemble"] > 1:
        raise UserError(
            "The members of an ensemble are trained by one process each. Leave train.ensemble out, "
            "train one run per seed with --processes, and join them with `weft ensemble`."
        )


def check_same_model(folder: Path, full: FilledSections) -> None:
    """Raise UserError if a resumed run would change the model."""
    path = folder / "config.toml"
    # Filled in again: since it began, there may be new options, with their defaults.
    earlier = resolve_config(configuration.load(path)) if path.is_file() else full
    others = ("pair", "target", "decoder", "attention", "classic")
    for name in ("task", *configuration.NEURAL_SECTIONS, *others):
        first, now = ({name: sections.get(name, {})} for sections in (earlier, full))
        if configuration.dumps(first) != configuration.dumps(now):
            raise UserError(
                f"{folder} was trained with another [{name}], so it cannot go on with this one. "
                "Train into another folder, or pass --overwrite."
            )


def check_same_data(folder: Path, data: FilledSections) -> None:
    """Raise UserError if a resumed run would go on with other rows from memory."""
    path = folder / "config.toml"
    earlier = configuration.load(path)["data"] if path.is_file() else {}
    for split in ("train", "dev", "test"):
        before, now = earlier.get(split, ""), data[split]
        if before != now and before.startswith(MEMORY_PREFIX) and now.startswith(MEMORY_PREFIX):
            raise UserError(
                f"{folder} was trained with {before}, so it cannot go on with {now}. Pass the same "
                "rows, train into another folder, or pass overwrite=True."
            )


def _run_tags(full: FilledSections) -> dict[str, str]:
    """Return the tags of a run in experiment trackers."""
    task: str = full["task"]["kind"]
    return {"task": task, "model": architecture_name(full), "weft": __version__}


def describe_command(function: str) -> str:
    """Return the command line of this process, or the function where Weft is used as a library."""
    program = Path(sys.argv[0])
    if program.stem == "weft" or program.parts[-2:] == ("weft", "__main__.py"):
        return shlex.join(["weft", *sys.argv[1:]])
    return function


def versions() -> dict[str, str]:
    """Return the versions of Python and the main libraries."""
    return dict(_library_versions())


@cache  # reading the metadata of packages takes 20 ms, as long as fitting a small model
def _library_versions() -> tuple[tuple[str, str], ...]:
    out = [("python", platform.python_version())]
    for name in ("weft", "torch", "numpy", "tokenizers", "scikit-learn"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            out.append((name, metadata.version(name)))
    return tuple(out)

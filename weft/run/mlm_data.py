"""Data of a masked-LM run: documents to mask, train on and evaluate."""

from collections.abc import Iterator

from weft.batch.documents import Documents, encode_documents
from weft.batch.mlm_collator import Masking, MLMLoader
from weft.config import FilledSections
from weft.errors import UserError
from weft.inference.mlm_scoring import score_documents
from weft.metrics import Metric
from weft.model import Model
from weft.protocols import LabelSpace
from weft.run.context import RunContext
from weft.run.data import Source
from weft.run.lm_data import few_updates_note, windows_per_batch
from weft.runtime import Runtime
from weft.tasks.mlm import EVALUATION_SEED, MaskedLM, MLMStats, MLMVocabulary
from weft.tasks.task import AnyTask
from weft.train.settings import Settings


def check_parts(full: FilledSections) -> None:
    """Raise UserError unless head and pool fit masked LM and next-sentence prediction."""
    head, pool, follows = full["head"]["kind"], full["pool"]["kind"], full["task"]["next_sentence"]
    if head != "masked":
        raise UserError(f"The task 'masked' needs the head 'masked', not '{head}'.")
    if "pair" in full:
        raise UserError("The task 'masked' makes pairs itself: remove [pair].")
    if follows != (pool == "cls") or pool in ("none", "mean+max"):
        fix = "'cls', which learns what follows" if follows else "'mean', 'max' or 'first'"
        message = "true" if follows else "false"
        raise UserError(
            f"With task.next_sentence = {message}, set pool.kind to {fix}; it is '{pool}'."
        )


def _masked_lm(task: AnyTask) -> MaskedLM:
    assert isinstance(task, MaskedLM)
    return task


def tokenise_documents(run: RunContext, source: Source | None, name: str) -> Documents | None:
    """Return the tokenised documents of a split."""
    if source is None:
        return None
    task, tokenizer = _masked_lm(run.task), run.space.tokenizer
    assert tokenizer is not None

    def texts() -> Iterator[tuple[str, int]]:
        for example in run.logger.reading(source(), f"tokenising {name}"):
            yield example.text, example.line

    run.tally.enabled = True
    documents = encode_documents(texts(), tokenizer, task.whole_words, run.folder)
    run.tally.enabled = False
    return documents


def training_documents(run: RunContext, model: Model) -> Documents:
    """Return the training documents; raise UserError if there are too few."""
    task = _masked_lm(run.task)
    limit = model.max_positions
    if limit is not None and task.longest > limit:
        short = task.window > limit
        name, width = ("window", task.window) if short else ("long_window", task.long_window)
        raise UserError(
            f"task.{name} is {width}, but the model reads at most {limit} tokens. "
            "Lower it, or raise embedder.max_positions."
        )
    documents = tokenise_documents(run, run.splits.train, "train")
    assert documents is not None
    if task.next and len(documents.nonempty) < 2:
        raise UserError(
            f"{run.data.train or 'The training text'}: {len(documents.nonempty)} document, and to "
            "learn what follows takes at least 2. Put blank lines between documents, say what a "
            "line is (data.documents = sentences, paragraphs or lines), or set "
            "task.next_sentence=false and pool.kind=mean."
        )
    if message := few_updates_note(documents.size, task.window, run.settings):
        run.logger.info(f"note: {message}")
    return documents


def _masking(task: AnyTask, space: LabelSpace, model: Model, phases: bool) -> Masking:
    assert isinstance(space, MLMVocabulary)
    return _masked_lm(task).masking(space, model.traits.frame, phases)


def make_batches(
    documents: Documents, model: Model, task: AnyTask, space: LabelSpace, settings: Settings
) -> MLMLoader:
    """Return the batches of masked documents."""
    masking = _masking(task, space, model, phases=True)
    rows = windows_per_batch(documents.size, masking.window, settings)
    return MLMLoader(documents, masking, rows=rows, seed=settings.seed, epochs=settings.epochs)


def evaluate(
    model: Model, documents: Documents, task: AnyTask, space: LabelSpace, runtime: Runtime
) -> Metric:
    """Return the metrics of documents, with the same tokens masked every time."""
    measure = task.build_metric(space)
    masking = _masking(task, space, model, phases=False)
    rows = score_documents(model, documents, masking, runtime, EVALUATION_SEED)
    measure.add([MLMStats(*row) for row in rows.tolist()], ())
    return measure

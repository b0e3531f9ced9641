"""Data of a language-model run: a token stream to train on, texts to evaluate."""

import json
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from weft.batch import TokenStore
from weft.batch.lm_windows import LMLoader, TokenStream, TokenTypes
from weft.batch.token_cache import TokenCache
from weft.errors import UserError
from weft.inference.lm_scoring import score_texts
from weft.inference.windows import reverse_text
from weft.model import Model
from weft.protocols import LabelSpace
from weft.run.context import RunContext
from weft.run.data import Source
from weft.run.folder import TOKENS
from weft.runtime import Runtime, World
from weft.tasks.language import LanguageModelling, LMMetric, LMVocabulary, sum_cost
from weft.tasks.task import AnyTask
from weft.text.example import Example
from weft.train.settings import Settings

TOKENISE_CHUNK_TEXTS = 10_000
MIN_EPOCH_UPDATES = 10  # with fewer, an epoch teaches hardly anything


def build_stream(run: RunContext, model: Model, world: World) -> TokenStream:
    """Return the training texts as one token stream."""
    head: Any = model.head
    forms = None
    if head.decoder.reads_subtokens:
        _check_lines(run)
        space = _vocabulary(run.space)
        head.decoder.set_vocabulary(
            [space.tokenizer.decode([i]) for i in range(len(space.tokenizer))]
        )
        forms = TokenTypes(head.decoder.subtoken_ids)
    out = TokenStream(head.bos, run.folder, token_types=forms)
    folder = run.data.token_cache or (run.folder / TOKENS if world.size > 1 else "")
    if folder and forms is None:
        _append_shards(out, run, Path(folder), world)
    else:
        for example, ids, words in _tokenise(run, run.splits.train, "train", forms is not None):
            out.append(ids, example.line, words)
    if len(out) < head.window:
        raise UserError(
            f"{run.data.train or 'The training text'}: {len(out)} tokens, fewer than the "
            f"{head.window} of a window. Give more text, or set task.window to at most "
            f"{max(len(out), 2)}."
        )
    if message := few_updates_note(len(out), head.window, run.settings):
        run.logger.info(f"note: {message}")
    return out.close()


def _append_shards(out: TokenStream, run: RunContext, folder: Path, world: World) -> None:
    """Append the training texts as shards of tokens, which all processes make together."""
    space = _vocabulary(run.space)
    cache = TokenCache(folder, json.dumps(space.to_json()), space.ids, world)
    run.tally.enabled = True
    shards = cache.build(run.logger.reading(run.splits.train(), "tokenising train"))
    for shard in shards:
        ids, ends = shard.read()
        for text in _unknown_texts(ids, ends, space):
            run.tally.add("train texts of unknown words only", shard.where(text))
        out.append_all(ids, ends, shard.lines)
    run.tally.enabled = False
    if run.data.token_cache:
        made = sum(world.gather(cache.made))
        run.logger.info(f"tokens: {len(shards)} shards in {folder}, {made} of them new")
    else:
        cache.remove()


def _unknown_texts(ids: np.ndarray, ends: np.ndarray, space: LMVocabulary) -> list[int]:
    """Return the numbers of the texts that have tokens, and only unknown ones."""
    known = np.append(0, np.cumsum(ids != space.unknown))
    starts, stops = np.append(0, ends[:-1]), ends - space.lines
    found: list[int] = np.flatnonzero((stops > starts) & (known[stops] == known[starts])).tolist()
    return found


def _vocabulary(space: LabelSpace) -> LMVocabulary:
    assert isinstance(space, LMVocabulary)
    return space


def _check_lines(run: RunContext) -> None:
    if not _vocabulary(run.space).lines:
        raise UserError(
            "The decoder 'elmo' learns where a sentence begins and ends: one a line, with "
            "task.lines = true. Without, it would be used on marks that it has never met."
        )


def few_updates_note(tokens: int, window: int, settings: Settings) -> str:
    """Return a note if an epoch has hardly any updates, else ""."""
    rows, each = windows_per_batch(tokens, window, settings), window * settings.accumulate
    updates = -(-tokens // (rows * each))
    if updates >= MIN_EPOCH_UPDATES:
        return ""
    many = f"{updates} update{'s' * (updates > 1)} of {rows * settings.accumulate} × {window}"
    message = f"an epoch has about {many} tokens, and little is learned in so few"
    if rows == 1:
        return f"{message}; give more text, or more epochs (--set train.epochs=N)"
    # A power of two, as batches usually are.
    batch = 1 << (max(1, tokens // (MIN_EPOCH_UPDATES * each)).bit_length() - 1)
    return f"{message}; with --set train.batch_size={batch} it has {-(-tokens // (batch * each))}"


def tokenise_dev(run: RunContext, model: Model) -> TokenStore | None:
    """Return the dev texts, if any, each with its length in words and characters."""
    if run.splits.dev is None:
        return None
    decoder = model.head.decoder
    spelled = decoder.reads_subtokens
    out = TokenStore(int(spelled), folder=run.folder)
    for example, ids, words in _tokenise(run, run.splits.dev, "dev", spelled):
        subtokens = (decoder.subtoken_ids(words),) if spelled else ()
        out.append(ids, run.task.target(example, run.space), example.line, subtokens)
    return out.close()


def _tokenise(
    run: RunContext, source: Source, name: str, written: bool
) -> Iterator[tuple[Example, np.ndarray, list[str]]]:
    """Yield each text with its ids and, if `written`, its tokens; count texts of unknown words."""
    space = _vocabulary(run.space)
    run.tally.enabled = True
    rows = run.logger.reading(source(), f"tokenising {name}")
    while chunk := list(islice(rows, TOKENISE_CHUNK_TEXTS)):
        texts = [one.text for one in chunk]
        tokenised = (
            space.token_strings(texts) if written else [(ids, []) for ids in space.ids(texts)]
        )
        for example, (ids, words) in zip(chunk, tokenised, strict=True):
            tokens = ids[: len(ids) - space.lines]
            if len(tokens) and (tokens == space.unknown).all():
                run.tally.add(f"{name} texts of unknown words only", example.where)
            yield example, ids, words
    run.tally.enabled = False


def make_batches(stream: TokenStream, model: Model, settings: Settings) -> LMLoader:
    """Return the batches of a stream: in order for a recurrent model, otherwise shuffled."""
    head: Any = model.head
    rows = windows_per_batch(len(stream), head.window, settings)
    return LMLoader(
        stream, rows=rows, window=head.window, seed=settings.seed, epochs=settings.epochs,
        in_order=head.is_stateful, targets_in_input=head.is_bidirectional,
    )  # fmt: skip


def windows_per_batch(tokens: int, window: int, settings: Settings) -> int:
    """Return the number of windows in a batch."""
    return max(1, min(settings.batch_size, settings.max_tokens // window, tokens))


def evaluate(
    model: Model, store: TokenStore, task: AnyTask, space: LabelSpace, runtime: Runtime
) -> LMMetric:
    """Return the metrics of running text, in both directions for a bidirectional model."""
    assert isinstance(task, LanguageModelling)
    vocabulary = _vocabulary(space)
    measure = _evaluate_direction(model, store, task, vocabulary, runtime)
    if model.head.has_backward_lm:
        measure.backward = _evaluate_direction(
            model, store, task, vocabulary, runtime, backward=True
        )
    return measure


def _evaluate_direction(
    model: Model, store: TokenStore, task: LanguageModelling, space: LMVocabulary, runtime: Runtime,
    backward: bool = False,
) -> LMMetric:  # fmt: skip
    measure, head = task.build_metric(space), model.head
    width = head.decoder.max_subtokens
    last = space.size[2] if space.lines else -1

    def tokens(i: int) -> np.ndarray:
        columns = store.row(i).astype(np.int64)
        if head.decoder.reads_subtokens:
            subtokens = store.subtokens(i)  # (T, W)
            columns = np.column_stack(
                [columns, subtokens, np.zeros((len(subtokens), width - subtokens.shape[1]), int)]
            )
        return reverse_text(columns) if backward else columns

    order = range(len(store))[:: -1 if backward else 1]
    scored = score_texts(model, map(tokens, order), runtime, running=True, backward=backward)
    for i, logps in zip(order, scored, strict=True):
        ids = reverse_text(store.row(i)) if backward else store.row(i)
        measure.add([sum_cost(ids, logps, last, space.unknown)], [store.targets[i].tolist()])
    return measure

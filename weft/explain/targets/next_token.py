"""A token of running text: log p(token | its context) under a language model.

B rows   T steps   E embedding width   V words   M ways to hide words
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from weft.batch import Padded
from weft.decode.heads.lm import MASK_ID, LanguageModelHead
from weft.errors import UserError
from weft.explain.attention import rollout
from weft.explain.explanation import ExplainedWord
from weft.explain.generation import MAX_ALTERNATIVES, catch_attention, token_namer
from weft.explain.gradients import MAX_BATCH_STEPS, integrate_gradients
from weft.explain.targets.masked_word import (
    choose_blank,
    describe_blank,
    find_row,
    find_token,
    rank_words,
)
from weft.explain.targets.target import ScoredTarget, TargetRequest
from weft.explain.words import Span, own_words, word_spans
from weft.inference.lm_scoring import lm_head
from weft.inference.windows import split_windows
from weft.model import Model
from weft.predict.classic import ClassicEngine
from weft.predict.fill_mask import display_word, lm_layout, masked_rows
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.protocols import ClassicModel
from weft.tasks.language import LMVocabulary
from weft.tasks.mlm import MASK_PATTERN
from weft.tasks.task import Answer
from weft.text.example import Example
from weft.tokens.subtoken_table import append_subtokens
from weft.untrusted import parse_integer


@dataclass(frozen=True)
class NextTokenTarget(ScoredTarget):
    """A token under a neural language model.

    A hidden word is read as unknown tokens, or as masked ones by a model that masks words.
    """

    model: Model
    source: Padded  # (1, T) or (1, T, 1+W) the input tokens
    hidden_token: Tensor  # () or (1+W,)
    owners: np.ndarray  # (T,) the word of each input step; -1 of what is never hidden
    step: int  # that predicts the token
    token: int
    spans: Sequence[Span]
    text: str
    name: str
    second: int = 0
    marks: Sequence[Span] = ()

    @property
    def head(self) -> LanguageModelHead:
        return lm_head(self.model)

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        together = max(1, MAX_BATCH_STEPS // max(1, self.source.data.shape[1]))
        out = []
        with torch.inference_mode():
            for start in range(0, len(hidden), together):
                source = self._hide(hidden[start : start + together])
                out.append(self._score(source)[:, 0].double().cpu().numpy())
        return np.concatenate(out)

    def gradients(self, steps: int) -> np.ndarray:
        bare = self._hide(np.ones((1, len(self.spans)), bool))
        embedded, nothing = (self._embed(ids) for ids in (self.source, bare))  # (1, T, E)

        def score(model: Any, points: Padded) -> Tensor:
            ids = self.source.data.expand(len(points), *self.source.data.shape[1:])
            with _replace_vectors(self.head, points.data):
                return self._score(Padded(ids, points.lengths))

        direction = torch.ones(1, 1, device=embedded.device)
        weights = integrate_gradients(
            self.model, Padded(embedded, self.source.lengths), direction, steps,
            nothing if steps else None, score,
        )[0]  # fmt: skip
        return self._sum_words(weights.double().cpu().numpy())

    def attention(self) -> np.ndarray:
        with torch.inference_mode():
            _, layers = catch_attention(self.head, self.source)
            flow = rollout([x[None] for x in layers], self.source.mask.to(layers[0].device))
        return self._sum_words(flow[0, self.step].double().cpu().numpy())

    def all_log_probs(self) -> np.ndarray:
        """(V,) the log-probability of every word in the place of the token."""
        with torch.inference_mode():
            return self._all_scores(self.source)[0].double().cpu().numpy()

    def _score(self, source: Padded) -> Tensor:
        """(B, 1) the log-probability of the token."""
        return self._all_scores(source)[:, self.token, None]

    def _all_scores(self, source: Padded) -> Tensor:
        decoder = self.head.decoder
        features = decoder.features(source)[:, self.step]  # (B, F)
        return decoder.words.logits(features).float().log_softmax(1)

    def _embed(self, source: Padded) -> Tensor:
        """(1, T, E) the vectors of the input tokens."""
        caught: list[Tensor] = []
        steps = source.data.shape[1]
        handle = self.head.decoder.input_layer.register_forward_hook(
            lambda _, __, out: caught.append(_data(out)[:, -steps:])
        )
        try:
            with torch.no_grad():
                self.head.decoder.features(source)
        finally:
            handle.remove()
        return caught[0]

    def _hide(self, hidden: np.ndarray) -> Padded:
        padded = np.concatenate([hidden, np.zeros((len(hidden), 1), bool)], 1)  # -1: never
        gone = torch.from_numpy(padded[:, self.owners]).to(self.source.data.device)  # (M, T)
        data = self.source.data.expand(len(hidden), *self.source.data.shape[1:])
        wide = gone if data.dim() == 2 else gone[:, :, None]
        rows = torch.where(wide, self.hidden_token, data)
        return Padded(rows, self.source.lengths.repeat(len(hidden)))

    def _sum_words(self, weights: np.ndarray) -> np.ndarray:
        kept = self.owners >= 0
        return np.bincount(self.owners[kept], weights[kept], minlength=len(self.spans))


@dataclass(frozen=True)
class NGramTarget(ScoredTarget):
    """A token under an n-gram model; a hidden word is read as unknown tokens."""

    part: ClassicModel
    space: LMVocabulary
    context: np.ndarray  # (T,) ids from the start of the text
    owners: np.ndarray  # (T,) the word of each; -1 of what the model does not look at
    token: int
    spans: Sequence[Span]
    text: str
    name: str
    second: int = 0
    marks: Sequence[Span] = ()

    def log_probs(self, hidden: np.ndarray) -> np.ndarray:
        padded = np.concatenate([hidden, np.zeros((len(hidden), 1), bool)], 1)  # -1: never
        rows = np.where(padded[:, self.owners], self.space.unknown, self.context)  # (M, T)
        return self.part.next_log_probs(list(rows), self.token, self.space).astype(np.float64)


def requests_of(
    predictor: Predictor, examples: Sequence[Example], word: str, target: str
) -> list[TargetRequest]:
    """Explain one token of each text, by default the least expected one with a context.

    Of a text with blanks that the model fills, one blank is explained.
    """
    answers = predictor([one.text for one in examples])
    return [
        (request_blank if answer.blanks else request_token)(
            predictor, one.text, answer, word, target
        )
        for one, answer in zip(examples, answers, strict=True)
    ]


def request_blank(
    predictor: Predictor, text: str, answer: Answer, word: str = "", target: str = ""
) -> TargetRequest:
    """Explain the word of a blank that a language model fills from both sides."""
    engine = cast(NeuralEngine, predictor.engine)
    space, tokenizer, head = predictor.space, engine.indexer.tokenizer, lm_head(engine.model)
    assert isinstance(space, LMVocabulary)
    blank = choose_blank(answer, word)
    rows = masked_rows(text, engine.indexer, "input", offsets=True, layout=lm_layout(engine.model))
    row, step = find_row(rows, blank)
    assert row.offsets is not None
    masks = [found.span() for found in MASK_PATTERN.finditer(text)]
    read = ~np.isin(row.offsets[:, 0], [start for start, _ in masks])
    words, owners = _own_tokens(text, row.offsets, read)
    device = engine.runtime.device
    ids = torch.from_numpy(row.ids.astype(np.int64))[None].to(device)
    hidden = torch.tensor(MASK_ID) if head.decoder.needs_masking else _hidden_token(head, space)
    spot = NextTokenTarget(
        engine.model, Padded(ids, torch.tensor([len(row.ids)])), hidden.to(device), owners, step,
        0, words, text, "", marks=masks,
    )  # fmt: skip
    logps = spot.all_log_probs()
    chosen = find_token(tokenizer, target) if target else int(rank_words(tokenizer, logps)[0])
    spot = replace(spot, token=chosen, name=display_word(tokenizer, chosen))
    return TargetRequest(spot, answer, describe_blank(tokenizer, text, blank, logps, chosen))


def request_token(
    predictor: Predictor, text: str, answer: Answer, word: str = "", target: str = ""
) -> TargetRequest:
    """Explain a token of a text, by its number or by itself, or another `target` in its place."""
    space, engine = predictor.space, predictor.engine
    assert isinstance(space, LMVocabulary)
    ((ids, offsets),) = space.places([text])
    (scored,) = engine.likelihoods([text])
    probs = scored.probs[:, 0]
    causal = (
        isinstance(engine, ClassicEngine)
        or not lm_head(cast(NeuralEngine, engine).model).is_bidirectional
    )
    at = _choose_token(text, offsets, probs, word, first=1 if causal else 0)
    token = _find_token(space, target) if target else int(ids[at])
    shown_as = token_namer(space, space.size[2])

    def name(token: int) -> str:
        return shown_as(token).strip() or "␣"

    places = np.array(offsets, np.int32).reshape(-1, 2)
    spot: ScoredTarget
    if isinstance(engine, ClassicEngine):
        spot = _ngram_target(engine.part, space, text, ids, places, at, token, name(token))
        others = {int(ids[at]): float(probs[at])}
        others[token] = float(spot.probs(np.zeros((1, len(spot.spans)), bool))[0])
    else:
        neural = _neural_target(
            cast(NeuralEngine, engine), space, text, ids, places, at, token, name(token)
        )
        logps = neural.all_log_probs()
        best = np.argsort(-logps, kind="stable")[:MAX_ALTERNATIVES].tolist()
        others = {i: float(np.exp(logps[i])) for i in dict.fromkeys([int(ids[at]), *best, token])}
        spot = neural
    shown = tuple({name(i): prob for i, prob in reversed(others.items())}.items())[::-1]
    actual = name(int(ids[at]))
    explained = ExplainedWord(
        at, actual, "token", actual, shown, start=_word_start(text, int(places[at, 0]))
    )
    return TargetRequest(spot, answer, explained)


def least_expected(probs: np.ndarray, first: int = 1) -> int:
    """Return the index of the least probable token from `first` on."""
    return first + int(np.argmin(probs[first:]))


def _choose_token(
    text: str, offsets: Sequence[Span], probs: np.ndarray, word: str, first: int
) -> int:
    """Return the index of the named token, or of the least expected one that has a context."""
    if not word:
        if len(offsets) <= first:
            raise UserError("This text has no token with a context to explain. Give a longer one.")
        return least_expected(probs, first)
    number = parse_integer(word) or 0
    names = [text[a:b].strip() for a, b in offsets]
    found = [number - 1] if 1 <= number <= len(offsets) else [
        i for i, name in enumerate(names) if name == word or name.casefold() == word.casefold()
    ]  # fmt: skip
    if not found:
        listed = " ".join(f"{i}:{name or '⏎'}" for i, name in enumerate(names[:40], 1))
        raise UserError(
            f"There is no token '{word}' in this text. Name one by its number or by itself: "
            f"{listed}"
        )
    chosen = next((i for i in found if i >= first), -1)
    if chosen < 0:
        raise UserError(
            f"Nothing stands before token 1, '{names[0]}': its probability has no context to "
            "explain. Choose a later one."
        )
    return chosen


def _find_token(space: LMVocabulary, target: str) -> int:
    """Return the id of a target that is one token."""
    for spelled in (target, f" {target}"):
        (ids,) = space.tokenizer.encode_ids([spelled])
        if len(ids) == 1 and int(ids[0]) != space.unknown:
            return int(ids[0])
    raise UserError(
        f"Unknown target '{target}': the model has no such token. Name a single token of its "
        "vocabulary."
    )


def _ngram_target(
    part: ClassicModel,
    space: LMVocabulary,
    text: str,
    ids: np.ndarray,
    places: np.ndarray,
    at: int,
    token: int,
    name: str,
) -> NGramTarget:
    read = np.arange(at) >= at - (part.ngrams.order - 1)
    words, owners = _own_tokens(text, places[:at], read)
    return NGramTarget(
        part,
        space,
        ids[:at],
        owners,
        token,
        words,
        text,
        name,
        marks=_words_outside_context(text, words),
    )


def _neural_target(
    engine: NeuralEngine,
    space: LMVocabulary,
    text: str,
    ids: np.ndarray,
    places: np.ndarray,
    at: int,
    token: int,
    name: str,
) -> NextTokenTarget:
    head = lm_head(engine.model)
    decoder = head.decoder
    tokens = ids
    if decoder.reads_subtokens:
        (tokens,) = space.with_subtokens([text], decoder.subtoken_ids, decoder.max_subtokens)
    windows = split_windows(len(ids), 0, head.row_steps, head.new_steps, head.is_bidirectional)
    window = next(one for one in windows if one.start <= at < one.stop)
    hidden = _hidden_token(head, space)
    if head.is_bidirectional:
        inputs, step = tokens[window.low : window.high].copy(), at - window.low
        spans = places[window.low : window.high]
        if decoder.needs_masking:
            inputs[step] = MASK_ID
            hidden = torch.tensor(MASK_ID)
    else:  # every input stands one step before the token it predicts
        inputs = np.concatenate([head.bos_row, tokens])[window.low : at + 1]
        step = at - window.low
        spans = np.concatenate([np.zeros((1, 2), np.int32), places])[window.low : at + 1]
    read = spans[:, 1] > spans[:, 0]
    if head.is_bidirectional:
        read[step] = False
    words, owners = _own_tokens(text, spans, read)
    device = engine.runtime.device
    source = Padded(
        torch.from_numpy(inputs.astype(np.int64))[None].to(device), torch.tensor([len(inputs)])
    )
    return NextTokenTarget(
        engine.model, source, hidden.to(device), owners, step, token, words, text, name,
        marks=_words_outside_context(text, words),
    )  # fmt: skip


def _hidden_token(head: LanguageModelHead, space: LMVocabulary) -> Tensor:
    """The token that a hidden word is read as; without an unknown one, what precedes a text."""
    number = space.unknown if space.unknown >= 0 else head.bos
    decoder = head.decoder
    if not decoder.reads_subtokens:
        return torch.tensor(number)
    spelled = decoder.subtoken_ids([space.tokenizer.vocabulary[number]])
    return torch.from_numpy(append_subtokens(np.array([number]), spelled, decoder.max_subtokens))[0]


def _own_tokens(text: str, places: np.ndarray, read: np.ndarray) -> tuple[list[Span], np.ndarray]:
    """Return the words of the tokens that are `read`, and the word of each token or -1."""
    owners = np.full(len(places), -1)
    read = read & (places[:, 1] > places[:, 0])
    words, owned = own_words(text, places[read])
    if len(words):
        owners[read] = owned
    return [(int(a), int(b)) for a, b in words.tolist()], owners


def _word_start(text: str, at: int) -> int:
    """Return the first character of a token that is no space."""
    return at + len(text[at:]) - len(text[at:].lstrip())


def _words_outside_context(text: str, read: Sequence[Span]) -> list[Span]:
    """Return the words that are no context: the explained one, and those after it."""
    known = set(read)
    return [(int(a), int(b)) for a, b in word_spans(text).tolist() if (a, b) not in known]


def _data(out: Any) -> Tensor:
    return out.data if isinstance(out, Padded) else out


@contextlib.contextmanager
def _replace_vectors(head: LanguageModelHead, vectors: Tensor) -> Iterator[None]:
    """Within the context, the last steps that the decoder embeds have these vectors (B, T, E)."""

    def replace_last(_: Any, __: Any, out: Any) -> Any:
        data = _data(out)
        whole = torch.cat([data[:, : data.shape[1] - vectors.shape[1]], vectors], dim=1)
        return out.with_data(whole) if isinstance(out, Padded) else whole

    handle = head.decoder.input_layer.register_forward_hook(replace_last)
    try:
        yield
    finally:
        handle.remove()

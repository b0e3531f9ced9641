"""Explain token-level predictions: which words support the prediction for one of them.

T words   C choices   F shares of the words
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch

from weft.encode.transformer import TransformerEncoder
from weft.errors import UserError, near_miss, unknown_name
from weft.explain.attention import has_embedder_attention
from weft.explain.explanation import ExplainedWord, Explanation, Target, WordProbs, WordWeight
from weft.explain.faithfulness import Faithfulness, first_words_at, summarise_curves, word_orders
from weft.explain.method import ATTENTION, GRADIENT, INTEGRATED, OCCLUSION
from weft.explain.word_target import TargetSpec, WordTarget, choice_probs, make_word_target
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.predict.preprocess import add_parses, parse_or_text
from weft.tasks.annotation import Annotation
from weft.tasks.tag import Tag
from weft.tasks.tag_vocabulary import TagSpace
from weft.tasks.task import Answer
from weft.text.annotation import schemes
from weft.text.example import CharSpans, Example, SkipCounter, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.untrusted import parse_integer

MAX_LISTED_WORDS = 40  # words of a sentence that a message lists


@dataclass(frozen=True)
class ExplainRequest:
    """One word of a sentence, its prediction, and the label whose score is attributed."""

    example: Example  # with its words and where they stand
    answer: Answer
    at: ExplainedWord
    target: Target
    spot: WordTarget
    probs: WordProbs  # of every word


def token_methods(predictor: Predictor) -> tuple[str, ...]:
    """The methods that can say why a word is answered as it is, the best one first."""
    if not isinstance(predictor.engine, NeuralEngine):
        return ()
    model = predictor.engine.model
    looks = isinstance(model.encoder, TransformerEncoder) or has_embedder_attention(model)
    return (INTEGRATED, GRADIENT, OCCLUSION, *((ATTENTION,) if looks else ()))


def can_attribute(answer: Answer) -> bool:
    """Return True if an answer has word-level or tree labels that can be attributed."""
    predicted = answer.structure
    return predicted is not None and predicted.kind in ("tags", "spans", "arcs", "nodes")


def answer_sentences(
    predictor: Predictor, sentences: Sequence[str | Example]
) -> list[tuple[Example, Answer]]:
    """Each sentence with the words that are answered, and what is answered."""
    out = []
    ready = [_preprocess(predictor, one) for one in sentences]
    for example, answer in zip(ready, predictor.stream(ready), strict=True):
        predicted = answer.structure
        if predicted is not None and example.words != predicted.words:
            example = replace(example, words=predicted.words, places=predicted.places)
        out.append((example, answer))
    return out


def make_request(
    predictor: Predictor,
    example: Example,
    answer: Answer,
    *,
    word: str = "",
    column: str = "",
    target: str = "",
) -> ExplainRequest:
    """Make the request to explain one word of a sentence, by default the least certain one.

    A word goes by its number, from 1, or by itself; the target is what is answered unless another
    choice is named. Of a tree with a label at every node the root is explained.
    """
    requested = _column_choices(predictor, example, answer, column)
    known = _word_probs(predictor, example, requested)
    sure = [dict(each)[name] for each, name in zip(known, requested.predicted, strict=True)]
    place = int(np.argmin(sure))
    if requested.wanted.what == "label":
        if word:
            raise UserError(f"This model labels whole trees; there is no word {word} to choose.")
        step = -1
    else:
        place = step = find_word(example, word) if word else place
    here = make_word_target(cast(NeuralEngine, predictor.engine), example, step, requested.wanted)
    names = [requested.names[i] for i in here.choices]
    wanted = _find_choice(target, names) if target else requested.predicted[place]
    if wanted not in names:
        raise UserError(
            f"Unknown target '{target}' for {_describe_word(example, step)}."
            f"{near_miss(target, names)} "
            f"It can be: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}."
        )
    aim = Target(wanted, names.index(wanted), len(names), len(names) == 1)
    at = ExplainedWord(
        step, example.words[step] if step >= 0 else "the whole",
        requested.column, requested.predicted[place],
        tuple(known[place]), requested.gold[place] if requested.gold else "",
        text_and_offsets(example)[1][step][0] if step >= 0 else -1,
    )  # fmt: skip
    return ExplainRequest(example, answer, at, aim, here, known)


def attribute(requested: ExplainRequest, method: str, steps: int = 50) -> Explanation:
    """Weigh the words of the sentence by one method for the requested target."""
    here = requested.spot
    if method == ATTENTION:
        weights = here.attention()
    elif method == OCCLUSION:
        weights = here.occlusion(requested.target)
    else:
        weights = here.gradients(requested.target, steps if method == INTEGRATED else 0)
    text, offsets = text_and_offsets(requested.example)
    first = here.row.start
    words = tuple(
        WordWeight(*offsets[first + i], weight) for i, weight in enumerate(weights.tolist())
    )  # fmt: skip
    return Explanation(text, requested.answer, requested.target.name, method, words, requested.at)


def measure_faithfulness(
    requested: Sequence[ExplainRequest],
    explanations: Sequence[Explanation],
    *,
    draws: int = 5,
    seed: int = 0,
) -> Faithfulness:
    """Deletion and insertion curves as for whole texts, with words hidden instead of removed."""
    curves = []
    for one, explanation in zip(requested, explanations, strict=True):
        plan = word_orders(explanation.words, draws, seed)  # (1 + draws) orders
        gone = np.array([_removal_masks(order) for order in plan])  # (1 + draws, F, T)
        both = np.stack([gone, ~gone], 1)  # (1 + draws, 2, F, T)
        probs = one.spot.probs(both.reshape(-1, both.shape[-1]))[:, one.target.index]
        curves.append(probs.reshape(both.shape[:-1]))
    return summarise_curves(explanations[0].method, np.stack(curves), seed)


def text_and_offsets(example: Example) -> tuple[str, Sequence[tuple[int, int]]]:
    """A sentence and where its words stand in it; where some share a place, spaced out."""
    apart = all(a[1] <= b[0] for a, b in pairwise(example.places))
    if apart and len(example.places) == len(example.words):
        return example.text, example.places
    return " ".join(example.words), locate_spaced_words(example.words)


def gold_annotation(predictor: Predictor, example: Example) -> Annotation | None:
    """Return the gold annotation if the example has one for every word."""
    if not isinstance(example.label, (WordAnnotations, CharSpans)) and example.tree is None:
        return None
    try:
        right = predictor.task.gold(example, predictor.space)
    except UserError:
        return None  # the file says something else of its words
    return right if right.words == example.words else None


def _preprocess(predictor: Predictor, one: str | Example) -> Example:
    """A sentence as the model and the task read it, with the tree that it needs or has."""
    example = Example(one) if isinstance(one, str) else one
    if predictor.engine.input_kind == "trees" and example.tree is None:
        if tree := parse_or_text(example.text).tree:
            example = replace(example, text=" ".join(tree.words), tree=tree)
        parser = predictor.engine.parser
        if example.tree is None and parser is not None:
            (example,) = add_parses([example], parser)
    known = example.tree is not None or isinstance(example.label, (WordAnnotations, CharSpans))
    return predictor.task.prepare(example, SkipCounter()) if known else example


def find_word(example: Example, word: str) -> int:
    """The place of a word that is named by its number, from 1, or by itself."""
    words = example.words
    if 1 <= (parse_integer(word) or 0) <= len(words):
        return int(word) - 1
    folded = [each.casefold() for each in words]
    if word in words:
        return words.index(word)
    if word.casefold() in folded:
        return folded.index(word.casefold())
    listed = " ".join(f"{i}:{each}" for i, each in enumerate(words[:MAX_LISTED_WORDS], 1))
    more = " …" if len(words) > MAX_LISTED_WORDS else ""
    raise UserError(
        f"There is no word '{word}' in this sentence. Name one by its number or by itself: "
        f"{listed}{more}"
    )


@dataclass(frozen=True)
class _ColumnChoices:
    """A column, its labels, and the predicted and gold label of every word."""

    column: str
    wanted: TargetSpec
    names: Sequence[str]
    predicted: Sequence[str]
    gold: Sequence[str]


def _tag_space(predictor: Predictor) -> TagSpace:
    assert isinstance(predictor.space, TagSpace)
    return predictor.space


def _column_choices(
    predictor: Predictor, example: Example, answer: Answer, column: str
) -> _ColumnChoices:
    predicted, space = answer.structure, _tag_space(predictor)
    assert predicted is not None
    right = gold_annotation(predictor, example)
    known = ("head", *space.names) if predicted.kind == "arcs" else space.names
    known = known[:1] if predicted.kind == "spans" else known  # nothing else is in the answer
    if column and column not in known:
        raise unknown_name("column", column, known, "this model")
    name = column or known[0]
    if name == "head" and predicted.kind == "arcs":
        names = [f"{i}:{word}" for i, word in enumerate(("root", *predicted.words))]
        ours, theirs = ([names[h] for h in s.heads] if s else [] for s in (predicted, right))
        return _ColumnChoices(name, TargetSpec("head"), names, ours, theirs)
    k = space.names.index(name)
    if predicted.kind == "nodes":
        top = right.tree.label if right and right.tree else ""
        return _ColumnChoices(name, TargetSpec("label"), space.entries[0], [answer.value], [top])
    if predicted.kind == "arcs" and k == 0:
        wanted = TargetSpec("relation", heads=predicted.heads)
        relations = right.relations if right else ()
        return _ColumnChoices(name, wanted, space.entries[0], predicted.relations, relations)
    k -= predicted.kind == "arcs"
    ours, theirs = (_learned_tags(predictor, s, k) if s else [] for s in (predicted, right))
    return _ColumnChoices(
        name, TargetSpec("tag", k), space.entries[space.names.index(name)], ours, theirs
    )


def _learned_tags(predictor: Predictor, predicted: Annotation, column: int) -> list[str]:
    """The tags of one column as the model has learned them, in other marks than the file's."""
    tags = [tag.split(" ")[column] for tag in predicted.tags]
    if predicted.kind != "spans":
        return tags
    assert isinstance(predictor.task, Tag)
    learned = _tag_space(predictor).scheme
    return schemes.convert(tags, predictor.task.scheme or learned, learned, "repair")


def _word_probs(predictor: Predictor, example: Example, requested: _ColumnChoices) -> WordProbs:
    engine = cast(NeuralEngine, predictor.engine)
    rows: dict[int, np.ndarray] = {}
    for chosen, source in engine.batches([example]):  # type: ignore[list-item]
        with torch.inference_mode():
            probs = choice_probs(engine.model(source), requested.wanted).double().cpu().numpy()
        for row, own in zip(chosen, probs, strict=True):
            rows[row.start] = own[: len(row.ids)]
    table = [word for start in sorted(rows) for word in rows[start]]
    table = table[-1:] if requested.wanted.what == "label" else table
    return [
        sorted(
            zip(requested.names, word.tolist(), strict=True),
            key=lambda choice, predicted=predicted: (choice[0] != predicted, -choice[1]),  # type: ignore[misc]
        )
        for word, predicted in zip(table, requested.predicted, strict=True)
    ]


def _find_choice(target: str, names: Sequence[str]) -> str:
    """A choice by its name; a head also by its number or by its word."""
    if target in names:
        return target
    return next((name for name in names if target in name.split(":", 1)), target)


def _describe_word(example: Example, step: int) -> str:
    return f"word {step + 1}, '{example.words[step]}'" if step >= 0 else "the root"


def _removal_masks(order: list[int]) -> list[list[bool]]:
    """(F, T) the words that are gone at each share."""
    return [[i in first for i in range(len(order))] for first in first_words_at(order)]

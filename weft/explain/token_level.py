"""Explain token-level predictions: which words support the prediction for one of them.

T words   C choices   F shares of the words
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch

from weft.decode.heads.roles import RoleOutput
from weft.decode.heads.semantics.coreference import CoreferenceOutput
from weft.errors import UserError, near_miss, unknown_name
from weft.explain.ensemble import EnsembleWordTarget
from weft.explain.explanation import (
    NUMBER_TARGET,
    ExplainedWord,
    Explanation,
    Target,
    WordProbs,
    WordWeight,
)
from weft.explain.faithfulness import Faithfulness, summarise_curves
from weft.explain.method import ATTENTION, INTEGRATED, OCCLUSION, SHAPLEY
from weft.explain.perturb import hidden_curves, occlude, sample_shapley
from weft.explain.targets.bracket import bracket_probs
from weft.explain.targets.chain_label import ChainTarget, chain_probs, make_chain_target
from weft.explain.targets.link import NO_ANTECEDENT, Link, find_links
from weft.explain.targets.role import role_logits, sense_logits
from weft.explain.word_target import TargetSpec, WordTarget, choice_probs, make_word_target
from weft.predict.classic import ClassicEngine
from weft.predict.ensemble import EnsembleEngine
from weft.predict.neural import NeuralEngine
from weft.predict.predictor import Predictor
from weft.predict.preprocess import add_parses, parse_or_text
from weft.tasks.annotation import Annotation
from weft.tasks.regress_words import WordScale
from weft.tasks.semantics.coreference import CoreferenceSpace
from weft.tasks.semantics.openie import TupleSpace
from weft.tasks.semantics.srl import VERB, RoleSpace
from weft.tasks.tag import Tag
from weft.tasks.tag_vocabulary import TagSpace
from weft.tasks.task import Answer
from weft.text.annotation import schemes
from weft.text.annotation.constituents import tree_to_spans
from weft.text.annotation.frames import Coreference, Extractions, Frames
from weft.text.annotation.mention_heads import find_heads
from weft.text.annotation.word_tuples import IMPLIED, LABELS, NONE, label_words, read_tuples
from weft.text.example import CharSpans, Example, SkipCounter, WordAnnotations
from weft.text.formats.conllu_offsets import locate_spaced_words
from weft.untrusted import parse_integer

NO_CONSTITUENT = "no constituent"  # the choice of a span without a bracket
NO_ROLE, PREDICATE, NO_PREDICATE = "no role", "predicate", "no predicate"
MAX_LISTED_WORDS = 40  # words of a sentence that a message lists


@dataclass(frozen=True)
class ExplainRequest:
    """One word of a sentence, its prediction, and the label whose score is attributed."""

    example: Example  # with its words and where they stand
    answer: Answer
    at: ExplainedWord
    target: Target
    spot: WordTarget | ChainTarget | EnsembleWordTarget
    probs: WordProbs  # of every word


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

    Of numbers, the word with the highest one.

    A word goes by its number, from 1, or by itself; a bracket by its words, as in 2-4, or by a word
    in it. The target is what is answered unless another choice is named. Of a tree with a label at
    every node the root is explained.
    """
    if word and _is_tree(answer):
        raise UserError(f"This model labels whole trees; there is no word {word} to choose.")
    requested = _column_choices(predictor, example, answer, column, word)
    if word and requested.wanted.what == "intent":
        raise UserError(f"The intent is of the whole sentence; there is no word {word} to choose.")
    known = requested.probs or _word_probs(predictor, example, requested)
    sure = [dict(each)[name] for each, name in zip(known, requested.predicted, strict=True)]
    place = int(np.argmax(sure) if requested.wanted.what == "number" else np.argmin(sure))
    if requested.spans:
        wanted = replace(requested.wanted, span=requested.spans[place])
        if requested.predicates:
            wanted = replace(wanted, predicate=requested.predicates[place])
        if requested.candidates:
            wanted = replace(wanted, candidates=requested.candidates[place])
        step = wanted.span[0]
    else:
        wanted = requested.wanted
        place = step = find_word(example, word) if word else place
        if wanted.what in ("label", "intent"):
            place, step = int(np.argmin(sure)), -1
    here = _make_spot(predictor, example, step, wanted)
    names = [requested.names[i] for i in here.choices]
    chosen = _find_choice(target, names) if target else requested.predicted[place]
    if chosen not in names:
        raise UserError(
            f"Unknown target '{target}' for {_describe_word(example, step, wanted)}."
            f"{near_miss(target, names)} "
            f"It can be: {', '.join(names[:20])}{', …' if len(names) > 20 else ''}."
        )
    aim = Target(chosen, names.index(chosen), len(names), len(names) == 1)
    at = _explained_word(example, requested, place, step, wanted, known)
    if isinstance(predictor.engine, ClassicEngine):
        found = predictor.engine.part.feature_weights(example, step, wanted.column)
        at = replace(at, features=_weigh_features(found, here.choices, aim))
    return ExplainRequest(example, answer, at, aim, here, known)


def _weigh_features(
    found: Sequence[tuple[str, np.ndarray]], choices: Sequence[int], aim: Target
) -> tuple[tuple[str, float], ...]:
    """Return the features by the strength of their weight for the target, less the others' mean."""
    weighed = [(name, float(own[list(choices)] @ aim.direction)) for name, own in found]
    return tuple(sorted(weighed, key=lambda feature: -abs(feature[1])))


def _explained_word(
    example: Example,
    requested: "_ColumnChoices",
    place: int,
    step: int,
    wanted: TargetSpec,
    known: WordProbs,
) -> ExplainedWord:
    bracket = wanted.span if wanted.has_span else None
    words = example.words[slice(*bracket)] if bracket else example.words[step : step + 1]
    name = " ".join(words) if bracket or step >= 0 else "the whole text"
    column = requested.column
    if wanted.what == "role":
        column = f"role of '{example.words[wanted.predicate]}'"
    return ExplainedWord(
        -1 if bracket else step, name, column, requested.predicted[place],
        tuple(known[place]), requested.gold[place] if requested.gold else "",
        text_and_offsets(example)[1][step][0] if step >= 0 and not bracket else -1, bracket,
    )  # fmt: skip


def _make_spot(
    predictor: Predictor, example: Example, step: int, wanted: TargetSpec
) -> WordTarget | ChainTarget | EnsembleWordTarget:
    engine = predictor.engine
    if isinstance(engine, EnsembleEngine):
        spots = [_make_spot(member, example, step, wanted) for member in engine.members]
        single = [spot for spot in spots if not isinstance(spot, EnsembleWordTarget)]
        return EnsembleWordTarget(single, engine.weights)
    if isinstance(engine, ClassicEngine):
        return make_chain_target(engine.part, example, step, wanted.column)
    return make_word_target(cast(NeuralEngine, engine), example, step, wanted)


def attribute(requested: ExplainRequest, method: str, steps: int = 50) -> Explanation:
    """Weigh the words of the sentence by one method for the requested target."""
    here, target = requested.spot, requested.target
    count = len(here.words)

    def score(hidden: np.ndarray) -> np.ndarray:
        return np.asarray(here.scores(hidden) @ target.direction)

    if method == OCCLUSION:
        weights = occlude(score, count)
    elif method == SHAPLEY:
        weights = sample_shapley(score, count)
    else:
        assert not isinstance(here, ChainTarget)
        weights = (
            here.attention()
            if method == ATTENTION
            else here.gradients(target, steps if method == INTEGRATED else 0)
        )
    text, offsets = text_and_offsets(requested.example)
    words = tuple(
        WordWeight(*offsets[here.first + i], weight) for i, weight in enumerate(weights.tolist())
    )  # fmt: skip
    return Explanation(text, requested.answer, target.name, method, words, requested.at)


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

        def prob(hidden: np.ndarray, one: ExplainRequest = one) -> np.ndarray:
            return np.asarray(one.spot.probs(hidden)[:, one.target.index])

        curves.append(hidden_curves(prob, explanation.words, draws, seed))
    return summarise_curves(explanations[0].method, np.stack(curves), seed)


def text_and_offsets(example: Example) -> tuple[str, Sequence[tuple[int, int]]]:
    """A sentence and where its words stand in it; where some share a place, spaced out."""
    apart = all(a[1] <= b[0] for a, b in pairwise(example.places))
    if apart and len(example.places) == len(example.words):
        return example.text, example.places
    return " ".join(example.words), locate_spaced_words(example.words)


def gold_annotation(predictor: Predictor, example: Example) -> Annotation | None:
    """Return the gold annotation if the example has one for every word."""
    annotated = isinstance(
        example.label, (WordAnnotations, CharSpans, Frames, Coreference, Extractions)
    )
    if not annotated and example.tree is None:
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
    known = example.tree is not None or isinstance(
        example.label, (WordAnnotations, CharSpans, Frames, Coreference, Extractions)
    )
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
    spans: Sequence[tuple[int, int]] = ()  # of brackets or arguments, in place of words
    probs: WordProbs | None = None  # of each of them
    predicates: Sequence[int] = ()  # of roles and senses: the predicate of each; of links: the head
    candidates: Sequence[tuple[int, ...]] = ()  # of links: the words that each may be linked to


def _tag_space(predictor: Predictor) -> TagSpace:
    assert isinstance(predictor.space, TagSpace)
    return predictor.space


def _column_choices(
    predictor: Predictor, example: Example, answer: Answer, column: str, word: str = ""
) -> _ColumnChoices:
    predicted = answer.structure
    assert predicted is not None
    right = gold_annotation(predictor, example)
    if isinstance(predictor.space, WordScale):
        if column and column != NUMBER_TARGET:
            raise unknown_name("column", column, (NUMBER_TARGET,), "this model")
        numbers = [NUMBER_TARGET] * len(predicted.words)
        return _ColumnChoices(NUMBER_TARGET, TargetSpec("number"), (NUMBER_TARGET,), numbers, ())
    if isinstance(predictor.space, RoleSpace):
        return _role_choices(predictor, example, predicted, right, column, word)
    if isinstance(predictor.space, CoreferenceSpace):
        return _link_choices(predictor, example, right, column, word)
    if isinstance(predictor.space, TupleSpace):
        return _tuple_choices(predictor.space, predicted, right, column)
    space = _tag_space(predictor)
    known = ("head", *space.names) if predicted.kind == "arcs" else space.names
    if predicted.kind == "spans" and not predicted.label:
        known = known[:1]  # nothing else is in the answer
    if column and column not in known:
        raise unknown_name("column", column, known, "this model")
    name = column or known[0]
    if name == "head" and predicted.kind == "arcs":
        names = [f"{i}:{word}" for i, word in enumerate(("root", *predicted.words))]
        ours, theirs = ([names[h] for h in s.heads] if s else [] for s in (predicted, right))
        return _ColumnChoices(name, TargetSpec("head"), names, ours, theirs)
    k = space.names.index(name)
    if predicted.label and k == 1:
        intents = [right.label] if right else []
        return _ColumnChoices(
            name, TargetSpec("intent"), space.entries[1], [predicted.label], intents
        )
    if predicted.kind == "nodes":
        top = right.tree.label if right and right.tree else ""
        return _ColumnChoices(name, TargetSpec("label"), space.entries[0], [answer.value], [top])
    if predicted.kind == "arcs" and k == 0:
        wanted = TargetSpec("relation", heads=predicted.heads)
        relations = right.relations if right else ()
        return _ColumnChoices(name, wanted, space.entries[0], predicted.relations, relations)
    if predicted.kind == "constituents" and k == 0:
        return _bracket_choices(predictor, example, predicted, right, word)
    k -= predicted.kind in ("arcs", "constituents")
    ours, theirs = (_learned_tags(predictor, s, k) if s else [] for s in (predicted, right))
    return _ColumnChoices(
        name, TargetSpec("tag", k), space.entries[space.names.index(name)], ours, theirs
    )


def _tuple_choices(
    space: TupleSpace, predicted: Annotation, right: Annotation | None, column: str
) -> _ColumnChoices:
    """The parts that the words have in one tuple, by default the first."""
    if column and column not in space.names:
        raise unknown_name("column", column, space.names, "this model")
    name = column or space.names[0]
    row = space.names.index(name)

    def labels(annotation: Annotation) -> list[str]:
        tuples, size = read_tuples(annotation.tuples), len(annotation.words)
        if row >= len(tuples):
            return [LABELS[NONE]] * size
        return [LABELS[label] for label in label_words(tuples[row], size)[len(IMPLIED) :]]

    gold = labels(right) if right else ()
    return _ColumnChoices(name, TargetSpec("tag", row), LABELS, labels(predicted), gold)


def _bracket_choices(
    predictor: Predictor,
    example: Example,
    predicted: Annotation,
    right: Annotation | None,
    word: str,
) -> _ColumnChoices:
    """The predicted brackets, or the one that `word` names, with their labels."""
    assert predicted.tree is not None
    names = (*_tag_space(predictor).entries[0], NO_CONSTITUENT)
    ours = {(s.start, s.end): s.label for s in tree_to_spans(predicted.tree)}
    spans = list(ours)
    if word:
        spans = [_find_span(example, word, spans, "bracket of the tree")]
    spans = spans or [(0, len(example.words))]  # a tree without a bracket: explain that
    gold: list[str] = []
    if right is not None and right.tree is not None:
        theirs = {(s.start, s.end): s.label for s in tree_to_spans(right.tree)}
        gold = [theirs.get(span, NO_CONSTITUENT) for span in spans]
    shares = _span_probs(predictor, example, spans).tolist()
    labels = [ours.get(span, NO_CONSTITUENT) for span in spans]
    probs = [sort_choices(names, share, label) for share, label in zip(shares, labels, strict=True)]
    return _ColumnChoices("constituent", TargetSpec("bracket"), names, labels, gold, spans, probs)


@torch.no_grad()
def _role_choices(
    predictor: Predictor,
    example: Example,
    predicted: Annotation,
    right: Annotation | None,
    column: str,
    word: str,
) -> _ColumnChoices:
    """The arguments of all predicates with their roles, senses, or which words are predicates.

    Without an argument, predicates are explained, and how a word is one.
    """
    known = ("role", "sense", PREDICATE)
    if column and column not in known:
        raise unknown_name("column", column, known, "this model")
    has_roles = any(len(roles) > 1 for _, _, roles in predicted.frames)
    name = column or ("role" if has_roles else PREDICATE)
    if name == PREDICATE or (name == "sense" and not predicted.frames):
        ours, theirs = (_predicate_labels(one) if one else [] for one in (predicted, right))
        return _ColumnChoices(
            PREDICATE, TargetSpec("predicate"), (PREDICATE, NO_PREDICATE), ours, theirs
        )
    output = _role_output(predictor, example)
    if name == "sense":
        return _sense_choices(predictor, example, output, predicted, right, word)
    return _argument_choices(predictor, example, output, predicted, right, word)


def _predicate_labels(annotation: Annotation) -> list[str]:
    words = {word for word, _, _ in annotation.frames}
    return [PREDICATE if i in words else NO_PREDICATE for i in range(len(annotation.words))]


def _argument_choices(
    predictor: Predictor,
    example: Example,
    output: RoleOutput,
    predicted: Annotation,
    right: Annotation | None,
    word: str,
) -> _ColumnChoices:
    """The predicted arguments, or those that `word` names, with their roles."""
    assert isinstance(predictor.space, RoleSpace)
    names = (*predictor.space.roles, NO_ROLE)
    ours, theirs = (
        {(predicate, (i, j)): role for predicate, _, roles in one.frames for role, i, j in roles}
        if one
        else {}
        for one in (predicted, right)
    )
    chosen = [key for key, role in ours.items() if role != VERB]
    if not chosen:
        raise UserError("This sentence has no argument to explain. Pass --column predicate.")
    if word:
        span = _find_span(example, word, [span for _, span in chosen], "argument")
        predicates = dict.fromkeys(predicate for predicate, own in chosen if own == span)
        chosen = [(p, span) for p in predicates or {predicted.frames[0][0]: None}]
    labels = [ours.get(key, NO_ROLE) for key in chosen]
    probs = []
    for (predicate, span), label in zip(chosen, labels, strict=True):
        shares = role_logits(output, predicate, *span)[0].softmax(0).tolist()
        probs.append(sort_choices(names, shares, label))
    gold = [theirs.get(key, NO_ROLE) for key in chosen] if right else []
    return _ColumnChoices(
        "role", TargetSpec("role"), names, labels, gold, [span for _, span in chosen], probs,
        [predicate for predicate, _ in chosen],
    )  # fmt: skip


def _sense_choices(
    predictor: Predictor,
    example: Example,
    output: RoleOutput,
    predicted: Annotation,
    right: Annotation | None,
    word: str,
) -> _ColumnChoices:
    """The sense of one predicate: the one that `word` names, or the first with several."""
    assert isinstance(predictor.space, RoleSpace)
    frames = {predicate: sense for predicate, sense, _ in predicted.frames}
    senses = {predicate: sense_logits(output, predicate) for predicate in frames}
    several = [predicate for predicate, (_, numbers) in senses.items() if len(numbers) > 1]
    place = find_word(example, word) if word else next(iter(several), -1)
    if place not in several:
        where = f"'{example.words[place]}' has" if place in frames else "This sentence has"
        raise UserError(
            f"{where} no predicate with a choice of senses to explain. Pass --column role."
        )
    scores, numbers = senses[place]
    names = [predictor.space.inventory.senses[number] for number in numbers]
    probs = [sort_choices(names, scores[0].softmax(0).tolist(), frames[place])]
    gold = [s for w, s, _ in right.frames if w == place] if right else []
    return _ColumnChoices(
        "sense", TargetSpec("sense"), names, [frames[place]], gold, [(place, place + 1)], probs,
        [place],
    )  # fmt: skip


def _link_choices(
    predictor: Predictor, example: Example, right: Annotation | None, column: str, word: str
) -> _ColumnChoices:
    """The mentions with an antecedent, or what `word` names, and what they may refer to.

    Of a document without any link all mentions, without any mention all words.
    """
    known = ("antecedent",)
    if column and column not in known:
        raise unknown_name("column", column, known, "this model")
    engine = cast(NeuralEngine, predictor.engine)
    ((_, source),) = engine.batches([example])  # type: ignore[list-item]
    with torch.no_grad():
        output = engine.model(source)
    assert isinstance(output, CoreferenceOutput)
    mentions, words = find_links(output)
    links = [link for link in mentions if link.antecedent >= 0] or mentions or words
    if word:
        links = [_find_link(example, word, mentions, words)]
    names = [NO_ANTECEDENT, *(f"{i}:{each}" for i, each in enumerate(example.words, 1))]
    probs = [
        sort_choices(
            [names[0], *(names[word + 1] for word in link.candidates)], link.probs,
            names[link.antecedent + 1],
        )
        for link in links
    ]  # fmt: skip
    gold = _gold_antecedents(links, example.words, right) if right else ()
    return _ColumnChoices(
        known[0], TargetSpec("link"), names, [names[link.antecedent + 1] for link in links],
        [names[word + 1] for word in gold], [link.span for link in links], probs,
        [link.head for link in links], [link.candidates for link in links],
    )  # fmt: skip


def _find_link(
    example: Example, word: str, mentions: Sequence[Link], words: Sequence[Link]
) -> Link:
    """Return the mention that is named as FROM-TO, or the smallest around a word, or the word."""
    if not re.fullmatch(r"[0-9]+-[0-9]+", word):
        at = find_word(example, word)
        around = [link for link in mentions if link.span[0] <= at < link.span[1]]
        return min(around, key=lambda link: link.span[1] - link.span[0], default=words[at])
    span = _find_span(example, word, [], "mention")
    if found := next((link for link in mentions if link.span == span), None):
        return found
    known = ", ".join(f"{start + 1}-{end}" for start, end in (link.span for link in mentions))
    raise UserError(f"No mention {word} was found. There are: {known or 'none'}.")


def _gold_antecedents(
    links: Sequence[Link], words: Sequence[str], right: Annotation
) -> Iterator[int]:
    """Yield the head of a gold antecedent of each mention, -1 for none: the predicted one if it is
    right, else the nearest."""
    entities = {(start, end): entity for entity, start, end in right.mentions}
    heads = {head: entities[span] for span, head in find_heads(words, entities).items()}
    for link in links:
        own = entities.get(link.span, heads.get(link.head))
        earlier = [word for word in heads if word < link.head and heads[word] == own]
        yield link.antecedent if link.antecedent in earlier else max(earlier, default=-1)


def _role_output(predictor: Predictor, example: Example) -> RoleOutput:
    engine = cast(NeuralEngine, predictor.engine)
    ((_, source),) = engine.batches([example])  # type: ignore[list-item]
    output = engine.model(source)
    assert isinstance(output, RoleOutput)
    return output


def _span_probs(
    predictor: Predictor, example: Example, spans: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Return the probability of every label, and of none, for some spans, (N, C+1)."""
    if isinstance(predictor.engine, EnsembleEngine):
        tables = [_span_probs(member, example, spans) for member in predictor.engine.members]
        return np.tensordot(predictor.engine.weights, np.stack(tables), 1)
    engine = cast(NeuralEngine, predictor.engine)
    ((_, source),) = engine.batches([example])  # type: ignore[list-item]
    with torch.no_grad():
        return np.array(bracket_probs(engine.model(source), list(spans)))


def _find_span(
    example: Example, word: str, spans: Sequence[tuple[int, int]], what: str
) -> tuple[int, int]:
    """The words of a span that is named as FROM-TO, or the smallest one around a word."""
    first, dash, last = word.partition("-")
    start, end = parse_integer(first) or 0, parse_integer(last) or 0
    if dash and 1 <= start <= end <= len(example.words):
        return start - 1, end
    at = find_word(example, word)
    around = [span for span in spans if span[0] <= at < span[1]]
    if not around:
        raise UserError(f"No {what} holds word {at + 1}. Name one as FROM-TO.")
    return min(around, key=lambda span: span[1] - span[0])


def _is_tree(answer: Answer) -> bool:
    """Return True if the answer is a label at every node of a tree, of which one is explained."""
    return answer.structure is not None and answer.structure.kind == "nodes"


def _learned_tags(predictor: Predictor, predicted: Annotation, column: int) -> list[str]:
    """The tags of one column as the model has learned them, in other marks than the file's."""
    tags = [tag.split(" ")[column] for tag in predicted.tags]
    if predicted.kind != "spans":
        return tags
    assert isinstance(predictor.task, Tag)
    learned = _tag_space(predictor).scheme
    return schemes.convert(tags, predictor.task.scheme or learned, learned, "repair")


def _word_probs(predictor: Predictor, example: Example, requested: _ColumnChoices) -> WordProbs:
    wanted = requested.wanted
    table = _probs_by_word(predictor, example, wanted, len(requested.names))
    table = table[-1:] if wanted.what == "label" else table
    if isinstance(predictor.space, WordScale):  # in the user's unit
        table = [word * predictor.space.deviation + predictor.space.mean for word in table]
    return [
        sort_choices(requested.names, word.tolist(), predicted)
        for word, predicted in zip(table, requested.predicted, strict=True)
    ]


def _probs_by_word(
    predictor: Predictor, example: Example, wanted: TargetSpec, labels: int
) -> list[np.ndarray]:
    """The probabilities (C,) of the choices of every word."""
    engine = predictor.engine
    if isinstance(engine, EnsembleEngine):
        tables = [_probs_by_word(member, example, wanted, labels) for member in engine.members]
        return list(np.tensordot(engine.weights, np.stack(tables), 1))
    if isinstance(engine, ClassicEngine):
        return list(chain_probs(engine.part, example, wanted.column, labels))
    engine = cast(NeuralEngine, engine)
    rows: dict[int, np.ndarray] = {}
    for chosen, source in engine.batches([example]):  # type: ignore[list-item]
        with torch.inference_mode():
            probs = choice_probs(engine.model(source), wanted).double().cpu().numpy()
        for row, own in zip(chosen, probs, strict=True):
            rows[row.start] = own[: len(row.ids)]
    return [word for start in sorted(rows) for word in rows[start]]


def sort_choices(
    names: Sequence[str], probs: Sequence[float], predicted: str
) -> list[tuple[str, float]]:
    """Return the choices with their probabilities, the predicted one first, then falling."""
    return sorted(
        zip(names, probs, strict=True), key=lambda choice: (choice[0] != predicted, -choice[1])
    )


def _find_choice(target: str, names: Sequence[str]) -> str:
    """A choice by its name; a head also by its number or by its word."""
    if target in names:
        return target
    return next((name for name in names if target in name.split(":", 1)), target)


def _describe_word(example: Example, step: int, wanted: TargetSpec) -> str:
    if wanted.has_span:
        names = {"role": "argument", "sense": "predicate", "link": "mention"}
        what = names.get(wanted.what, wanted.what)
        return f"the {what} {wanted.span[0] + 1}-{wanted.span[1]}"
    return f"word {step + 1}, '{example.words[step]}'" if step >= 0 else "the root"

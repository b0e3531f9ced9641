"""Score one predicted sentence against gold: label counts and confusions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from weft.compare import tuple_counts
from weft.metrics.squad import exact_match, token_f1
from weft.metrics.structure.brackets import EQUIVALENT_LABELS, BracketedTree, BracketF1
from weft.metrics.structure.dependencies import strip_subtype
from weft.metrics.structure.roles import EXCLUDED, Argument, join_continuations
from weft.tasks.annotation import Annotation
from weft.text.annotation import constituents
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree, iter_nodes

NO_LABEL, WRONG_BOUNDARIES = (
    "(none)",
    "(wrong boundaries)",
)  # in place of a missing span

LINK = "coreferent"  # the only label of a pair of mentions
WRONG_ANSWER = "(another answer)"

# The unit counted in each kind of structure, and the name of its labels.
UNITS = {
    "tags": ("words", "tags"),
    "word-numbers": ("words", "ranges"),
    "spans": ("spans", "span types"),
    "arcs": ("words", "relations"),
    "constituents": ("brackets", "bracket labels"),
    "nodes": ("nodes", "node labels"),
    "answer": ("answers", "question types"),
    "frames": ("arguments", "roles"),
    "chains": ("links", "links"),
    "tuples": ("words of tuples", "parts"),
}

# Kinds that can have more labels than gold, so that F1 is their metric.
SPURIOUS_KINDS = ("spans", "constituents", "frames", "chains", "tuples")

DRAWN_KINDS = ("arcs", "constituents", "nodes")  # drawn as SVG, the others as running text

METRIC_DESCRIPTIONS = {
    "tags": "the fraction of words with the correct tag",
    "all": "the fraction of words that are correct in every column",
    "word-numbers": "Pearson's correlation of predicted and gold numbers over all words",
    "spans": "span F1: a span counts if its label and both boundaries are correct",
    "arcs": "the fraction of words with the correct head and relation (subtypes after a ':' "
    "are ignored)",
    "answer": "token F1 of the predicted and the gold answer, the maximum over all gold answers, "
    "as in SQuAD's script",
    "uas": "the fraction of words with the correct head",
    "constituents": "F1 of labelled brackets, as in evalb",
    "frames": "F1 of the arguments of given predicates, as in srl-eval.pl of CoNLL-2005",
    "chains": "the mean F1 of MUC, B³ and CEAF-e, as in CoNLL-2012; tests of two models compare "
    "the F1 of coreferent pairs of mentions",
    "tuples": "the best F1 over confidences, as in CaRB; tests of two models compare the F1 of the "
    "words of tuples",
    "nodes": "the fraction of nodes with the correct label",
    "bleu": "n-gram overlap with the references for n from 1 to 4, from 0 to 100, as in sacrebleu",
    "chrf": "character n-gram overlap with the references, from 0 to 100",
    "exact_match": "the fraction of answers that are right as a whole: a text identical to a "
    "reference, or an intent with all its slots",
    "intent_accuracy": "the fraction of sentences with the correct intent",
    "slot_f1": "span F1 of the slots: one counts if its label and both boundaries are correct",
    "rouge1": "unigram overlap with the references",
    "perplexity": "the effective number of words the model chooses between; lower is better",
    "root": "the fraction of sentences whose root has the correct label",
}


@dataclass(frozen=True)
class SentenceScores:
    """The labels of one sentence: correct, predicted and gold, and their confusions."""

    correct: Sequence[str]
    predicted: Sequence[str]
    gold: Sequence[str]
    confusions: Sequence[tuple[str, str]]  # (gold label, predicted label)


def score_sentence(predicted: Annotation, gold: Annotation) -> SentenceScores:
    """Compare a predicted structure with gold, label by label."""
    if predicted.kind == "spans":
        return _score_spans(predicted, gold)
    if predicted.kind == "answer":
        return _score_answer(predicted, gold)
    if predicted.kind == "frames":
        return _score_frames(predicted, gold)
    if predicted.kind == "chains":
        return _score_chains(predicted, gold)
    if predicted.kind == "tuples":
        return _score_tuples(predicted, gold)
    if predicted.kind in ("constituents", "nodes") and (
        predicted.tree is None or gold.tree is None
    ):
        return SentenceScores((), label_names(predicted), label_names(gold), ())  # of an empty text
    if predicted.kind == "constituents":
        assert predicted.tree is not None
        assert gold.tree is not None
        return _score_brackets(predicted.tree, gold.tree)
    if predicted.kind == "word-numbers":  # where gold has one, by their ranges
        both = zip(gold.relations, predicted.relations, strict=True)
        ranges = [(right, ours) for right, ours in both if right]
        correct = [right for right, ours in ranges if right == ours]
        return SentenceScores(correct, [b for _, b in ranges], [a for a, _ in ranges], ranges)
    labels, gold_labels = label_names(predicted), label_names(gold)
    if predicted.kind == "nodes":
        pairs = [
            (b, a) for a, b in zip(_node_labels(predicted), _node_labels(gold), strict=True) if b
        ]
        labels, gold_labels = [a for _, a in pairs], [b for b, _ in pairs]
    confusions = list(zip(gold_labels, labels, strict=True))
    compared = confusions if predicted.kind == "nodes" else _compared_values(predicted, gold)
    correct = [name for name, (a, b) in zip(gold_labels, compared, strict=True) if a == b]
    return SentenceScores(correct, labels, gold_labels, confusions)


def ratio_terms(predicted: Annotation, gold: Annotation, metric: str = "") -> tuple[float, float]:
    """Return the numerator and denominator that one sentence adds to the metric."""
    if predicted.kind == "nodes" and metric == "root":
        label, gold_label = (
            next(iter(_node_labels(predicted)), ""),
            next(iter(_node_labels(gold)), ""),
        )
        return float(label == gold_label != ""), float(gold_label != "")
    if predicted.kind == "arcs" and metric == "uas":
        same = sum(a == b for a, b in zip(predicted.heads, gold.heads, strict=True))
        return float(same), float(len(gold.heads))
    if predicted.kind == "answer":
        both = "".join(predicted.words), "".join(gold.words)
        return (exact_match(*both) if metric == "em" else token_f1(*both, empty=True)), 1.0
    if predicted.kind == "word-numbers" and metric:
        cells = zip(predicted.tags, gold.tags, gold.relations, strict=True)
        errors = [float(a) - float(b) for a, b, known in cells if known]
        return -sum(error**2 for error in errors), float(len(errors))
    if gold.label and metric:
        same_intent, same_slots = predicted.label == gold.label, {*predicted.spans} == {*gold.spans}
        if metric in ("exact_match", "intent_accuracy"):
            return float(same_intent and (same_slots or metric != "exact_match")), 1.0
        predicted, gold = replace(predicted, label=""), replace(gold, label="")
    scored = score_sentence(predicted, gold)
    if predicted.kind in SPURIOUS_KINDS:
        return 2.0 * len(scored.correct), float(len(scored.predicted) + len(scored.gold))
    return float(len(scored.correct)), float(len(scored.gold))


def label_names(structure: Annotation) -> list[str]:
    """Return the labels in a structure; of several tag columns, the first."""
    match structure.kind:
        case "tags":
            return [tag.partition(" ")[0] for tag in structure.tags]
        case "word-numbers":
            return [name for name in structure.relations if name]
        case "spans":
            return [*_intent_name(structure), *(label for _, _, label in structure.spans)]
        case "frames":
            return [one.label for _, one in _arguments(structure)]
        case "chains":
            return [LINK] * len(_links(structure))
        case "tuples":
            return tuple_counts.label_list(tuple_counts.labelled_rows(structure))
        case "answer":
            return ["answer" if structure.words else "no answer"]
        case "arcs":
            return [strip_subtype(relation) for relation in structure.relations]
        case "constituents":
            brackets = constituents.tree_to_brackets(structure.tree) if structure.tree else ()
            return [span.label for span in brackets if span.label]
        case _:
            return [label for label in _node_labels(structure) if label]


def describe_metric(metric: str, kind: str) -> str:
    """Describe the main metric of a task in words; "" for metrics that need no explanation."""
    return METRIC_DESCRIPTIONS.get(metric) or METRIC_DESCRIPTIONS.get(kind, "")


def _compared_values(predicted: Annotation, gold: Annotation) -> Iterable[tuple[object, object]]:
    """Return what must be equal at each word: the tags of all columns, or head and relation."""
    if predicted.kind == "tags":
        return zip(predicted.tags, gold.tags, strict=True)
    pairs, gold_pairs = (list(zip(s.heads, label_names(s), strict=True)) for s in (predicted, gold))
    return zip(pairs, gold_pairs, strict=True)


def _node_labels(structure: Annotation) -> list[str]:
    """Return the node labels of a tree, root first; "" for an unlabelled node."""
    return [node.label for node in iter_nodes(structure.tree)] if structure.tree else []


def _score_answer(predicted: Annotation, gold: Annotation) -> SentenceScores:
    """Score whether there is an answer, and whether it is correct."""
    (label,), (gold_label,) = label_names(predicted), label_names(gold)
    correct = exact_match("".join(predicted.words), "".join(gold.words)) > 0
    cell = label if correct or label != gold_label else WRONG_ANSWER
    return SentenceScores(
        [gold_label] if correct else [], [label], [gold_label], [(gold_label, cell)]
    )


def _score_spans(predicted: Annotation, gold: Annotation) -> SentenceScores:
    spans, gold_spans = set(predicted.spans), set(gold.spans)
    correct = [label for _, _, label in sorted(spans & gold_spans)]
    by_offsets: Mapping[tuple[int, int], str] = {(a, b): label for a, b, label in spans}
    confusions = []
    for start, end, label in sorted(gold_spans):
        near = any(a < end and start < b for a, b, _ in spans)
        label_there = by_offsets.get((start, end), WRONG_BOUNDARIES if near else NO_LABEL)
        confusions.append((label, label if (start, end, label) in spans else label_there))
    for start, end, label in sorted(spans):
        if not any(a < end and start < b for a, b, _ in gold_spans):
            confusions.append((NO_LABEL, label))
    intent, gold_intent = _intent_name(predicted), _intent_name(gold)
    if gold_intent:
        confusions.append((gold_intent[0], intent[0] if intent else NO_LABEL))
    return SentenceScores(
        [*(gold_intent if intent == gold_intent else []), *correct],
        [*intent, *(s[2] for s in sorted(spans))],
        [*gold_intent, *(s[2] for s in sorted(gold_spans))],
        confusions,
    )


def _arguments(structure: Annotation) -> list[tuple[int, Argument]]:
    """Return the arguments that count, each with the word of its predicate."""
    return [
        (word, one)
        for word, _, roles in structure.frames
        for one in join_continuations(Span(*role) for role in roles)
        if one.label not in EXCLUDED
    ]


def _score_frames(predicted: Annotation, gold: Annotation) -> SentenceScores:
    """Count arguments as srl-eval.pl does, and those of predicates that gold has not."""
    ours, theirs = _arguments(predicted), _arguments(gold)
    correct = [one.label for word, one in theirs if (word, one) in ours]
    by_extent = {(word, one.parts): one.label for word, one in ours}
    confusions = []
    for word, one in theirs:
        start, end = one.extent
        near = any(w == word and o.extent[0] < end and start < o.extent[1] for w, o in ours)
        missing = WRONG_BOUNDARIES if near else NO_LABEL
        confusions.append((one.label, by_extent.get((word, one.parts), missing)))
    gold_extents = [(word, one.extent) for word, one in theirs]
    for word, one in ours:
        start, end = one.extent
        if not any(w == word and a < end and start < b for w, (a, b) in gold_extents):
            confusions.append((NO_LABEL, one.label))
    return SentenceScores(
        correct, [one.label for _, one in ours], [one.label for _, one in theirs], confusions
    )


def _links(structure: Annotation) -> set[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the pairs of mentions of the same entity."""
    entities: dict[str, list[tuple[int, int]]] = {}
    for entity, start, end in structure.mentions:
        entities.setdefault(entity, []).append((start, end))
    return {pair for own in entities.values() for pair in combinations(sorted({*own}), 2)}


def _score_chains(predicted: Annotation, gold: Annotation) -> SentenceScores:
    """Count coreferent pairs of mentions."""
    ours, theirs = _links(predicted), _links(gold)
    both, missed, extra = len(ours & theirs), len(theirs - ours), len(ours - theirs)
    confusions = [(LINK, LINK)] * both + [(LINK, NO_LABEL)] * missed + [(NO_LABEL, LINK)] * extra
    return SentenceScores([LINK] * both, [LINK] * len(ours), [LINK] * len(theirs), confusions)


def _score_tuples(predicted: Annotation, gold: Annotation) -> SentenceScores:
    """Count the words of tuples that are in the right part of the most similar gold tuple."""
    ours, theirs = (tuple_counts.labelled_rows(one) for one in (predicted, gold))
    confusions = [
        (tuple_counts.label_name(right, NO_LABEL), tuple_counts.label_name(own, NO_LABEL))
        for gold_row, own_row in tuple_counts.pair_rows(ours, theirs)
        for right, own in zip(gold_row, own_row, strict=True)
        if right or own
    ]
    return SentenceScores(
        [right for right, own in confusions if right == own],
        tuple_counts.label_list(ours),
        tuple_counts.label_list(theirs),
        confusions,
    )


def _intent_name(structure: Annotation) -> list[str]:
    """Return the label of the whole sentence, beside those of its spans, if it has one."""
    return [f"intent {structure.label}"] if structure.label else []


def _score_brackets(predicted: Tree, gold: Tree) -> SentenceScores:
    """Count brackets by the rules of evalb; confusions are of unary chains over the same words.

    The gold tree decides for both trees what is punctuation, as in the task's metric.
    """
    correct: list[str] = []
    labels: list[str] = []
    gold_labels: list[str] = []
    tags = constituents.pos_tags(gold)
    by_label, gold_by_label = _by_label(predicted), _by_label(gold)
    for label in sorted({*by_label, *gold_by_label}):
        metric = BracketF1()
        metric.add(
            [BracketedTree(by_label[label], tags)], [BracketedTree(gold_by_label[label], tags)]
        )
        for true, claimed, both, *_ in metric.counts.rows:
            correct += [label] * int(both)
            labels += [label] * int(claimed)
            gold_labels += [label] * int(true)
    chains, gold_chains = (
        {(s.start, s.end): s.label for s in constituents.tree_to_spans(tree) if s.label}
        for tree in (predicted, gold)
    )
    positions = sorted({*chains, *gold_chains})
    confusions = [
        (gold_chains.get(position, NO_LABEL), chains.get(position, NO_LABEL))
        for position in positions
    ]
    return SentenceScores(correct, labels, gold_labels, confusions)


def _by_label(tree: Tree) -> defaultdict[str, list[Span]]:
    out: defaultdict[str, list[Span]] = defaultdict(list)
    for span in constituents.tree_to_brackets(tree):
        if span.label:  # a sentence without an outer constituent has an unlabelled bracket
            label = span.label.split("-")[0].split("=")[0]
            out[EQUIVALENT_LABELS.get(label, label)].append(span)
    return out

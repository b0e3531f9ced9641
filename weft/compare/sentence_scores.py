"""One sentence's answer against what is right: what counts, and what was taken for what."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from weft.metrics.squad import exact_match, token_f1
from weft.metrics.structure.brackets import EQUIVALENT_LABELS, BracketedTree, BracketF1
from weft.metrics.structure.dependencies import strip_subtype
from weft.tasks.annotation import Annotation
from weft.text.annotation import constituents
from weft.text.annotation.schemes import Span
from weft.text.annotation.trees import Tree, iter_nodes

NOTHING, BORDERS = "(nothing)", "(other borders)"  # what stands where there is no such span

ANOTHER = "(another answer)"

# What is counted in each kind of structure, and what its labels are called.
UNITS = {
    "tags": ("words", "tags"),
    "spans": ("spans", "types of spans"),
    "arcs": ("words", "relations"),
    "constituents": ("brackets", "labels of brackets"),
    "nodes": ("nodes", "labels of nodes"),
    "answer": ("answers", "kinds of questions"),
}

PICTURES = ("arcs", "constituents", "nodes")  # drawn as pictures, the others as running text

MEANINGS = {
    "tags": "the share of words with the right tag",
    "all": "the share of words that are right in every column",
    "spans": "F1 of spans: a span counts when its label and both borders are right",
    "arcs": "the share of words with the right head and relation (what follows a ':' in a relation "
    "is not compared)",
    "answer": "the words that an answer and the right one share, as F1, the best of all that are "
    "right: as SQuAD's script counts",
    "uas": "the share of words with the right head",
    "constituents": "F1 of labelled brackets, as evalb counts them",
    "nodes": "the share of nodes with the right label",
    "bleu": "the overlap with the references in runs of one to four words, from 0 to 100, "
    "as sacrebleu counts it",
    "chrf": "the overlap with the references in runs of characters, from 0 to 100",
    "exact_match": "the share of answers that are right to the letter",
    "rouge1": "the overlap with the references in words",
    "perplexity": "how many words the model hesitates between on average; lower is better",
    "root": "the share of sentences whose root has the right label",
}


@dataclass(frozen=True)
class Judged:
    """The labels of one sentence: what was found right, what was said, and what is true."""

    right: Sequence[str]
    said: Sequence[str]
    true: Sequence[str]
    cells: Sequence[tuple[str, str]]  # (true label, what was said in its place)


def judged(said: Annotation, gold: Annotation) -> Judged:
    """Compare an answer with the right one, label by label."""
    if said.kind == "spans":
        return _spans(said, gold)
    if said.kind == "answer":
        return _answer(said, gold)
    if said.kind in ("constituents", "nodes") and (said.tree is None or gold.tree is None):
        return Judged((), names(said), names(gold), ())  # of an empty text
    if said.kind == "constituents":
        assert said.tree is not None
        assert gold.tree is not None
        return _brackets(said.tree, gold.tree)
    ours, theirs = names(said), names(gold)
    if said.kind == "nodes":
        pairs = [(b, a) for a, b in zip(_labels(said), _labels(gold), strict=True) if b]
        ours, theirs = [a for _, a in pairs], [b for b, _ in pairs]
    cells = list(zip(theirs, ours, strict=True))
    same = cells if said.kind == "nodes" else _rows(said, gold)
    right = [name for name, (a, b) in zip(theirs, same, strict=True) if a == b]
    return Judged(right, ours, theirs, cells)


def share(said: Annotation, gold: Annotation, metric: str = "") -> tuple[float, float]:
    """Two numbers whose sums over all sentences, divided, are the metric."""
    if said.kind == "nodes" and metric == "root":
        ours, theirs = next(iter(_labels(said)), ""), next(iter(_labels(gold)), "")
        return float(ours == theirs != ""), float(theirs != "")
    if said.kind == "arcs" and metric == "uas":
        same = sum(a == b for a, b in zip(said.heads, gold.heads, strict=True))
        return float(same), float(len(gold.heads))
    if said.kind == "answer":
        both = "".join(said.words), "".join(gold.words)
        return (exact_match(*both) if metric == "em" else token_f1(*both, empty=True)), 1.0
    found = judged(said, gold)
    if said.kind in ("spans", "constituents"):
        return 2.0 * len(found.right), float(len(found.said) + len(found.true))
    return float(len(found.right)), float(len(found.true))


def names(structure: Annotation) -> list[str]:
    """The labels in a structure; of several columns of tags, those of the first."""
    match structure.kind:
        case "tags":
            return [tag.partition(" ")[0] for tag in structure.tags]
        case "spans":
            return [label for _, _, label in structure.spans]
        case "answer":
            return ["answer" if structure.words else "no answer"]
        case "arcs":
            return [strip_subtype(relation) for relation in structure.relations]
        case "constituents":
            found = constituents.tree_to_brackets(structure.tree) if structure.tree else ()
            return [span.label for span in found if span.label]
        case _:
            return [label for label in _labels(structure) if label]


def meaning(metric: str, kind: str) -> str:
    """What the main figure of a task says, in words; empty where it is known to everyone."""
    return MEANINGS.get(metric) or MEANINGS.get(kind, "")


def _rows(said: Annotation, gold: Annotation) -> Iterable[tuple[object, object]]:
    """What has to be equal at each word: the tags of all columns, or head and relation."""
    if said.kind == "tags":
        return zip(said.tags, gold.tags, strict=True)
    ours, theirs = (list(zip(s.heads, names(s), strict=True)) for s in (said, gold))
    return zip(ours, theirs, strict=True)


def _labels(structure: Annotation) -> list[str]:
    """The labels of the nodes of a tree, the root first; "" where there is none."""
    return [node.label for node in iter_nodes(structure.tree)] if structure.tree else []


def _answer(said: Annotation, gold: Annotation) -> Judged:
    """Whether there is an answer, and whether it is the right one."""
    (ours,), (theirs,) = names(said), names(gold)
    right = exact_match("".join(said.words), "".join(gold.words)) > 0
    cell = ours if right or ours != theirs else ANOTHER
    return Judged([theirs] if right else [], [ours], [theirs], [(theirs, cell)])


def _spans(said: Annotation, gold: Annotation) -> Judged:
    ours, theirs = set(said.spans), set(gold.spans)
    right = [label for _, _, label in sorted(ours & theirs)]
    by_place: Mapping[tuple[int, int], str] = {(a, b): label for a, b, label in ours}
    cells = []
    for start, end, label in sorted(theirs):
        near = any(a < end and start < b for a, b, _ in ours)
        found = by_place.get((start, end), BORDERS if near else NOTHING)
        cells.append((label, label if (start, end, label) in ours else found))
    for start, end, label in sorted(ours):
        if not any(a < end and start < b for a, b, _ in theirs):
            cells.append((NOTHING, label))
    return Judged(right, [s[2] for s in sorted(ours)], [s[2] for s in sorted(theirs)], cells)


def _brackets(said: Tree, gold: Tree) -> Judged:
    """Brackets by the rules of evalb; the cells are of unary chains over the same words.

    What is punctuation is for both trees what the right one says, as the task measures it.
    """
    right: list[str] = []
    ours: list[str] = []
    theirs: list[str] = []
    tags = constituents.pos_tags(gold)
    mine, yours = _by_label(said), _by_label(gold)
    for label in sorted({*mine, *yours}):
        measure = BracketF1()
        measure.add([BracketedTree(mine[label], tags)], [BracketedTree(yours[label], tags)])
        for true, claimed, both, *_ in measure.counts.rows:
            right += [label] * both
            ours += [label] * claimed
            theirs += [label] * true
    here, there = (
        {(s.start, s.end): s.label for s in constituents.tree_to_spans(tree) if s.label}
        for tree in (said, gold)
    )
    places = sorted({*here, *there})
    cells = [(there.get(place, NOTHING), here.get(place, NOTHING)) for place in places]
    return Judged(right, ours, theirs, cells)


def _by_label(tree: Tree) -> defaultdict[str, list[Span]]:
    out: defaultdict[str, list[Span]] = defaultdict(list)
    for span in constituents.tree_to_brackets(tree):
        if span.label:  # the bracket around a sentence that no constituent holds has none
            label = span.label.split("-")[0].split("=")[0]
            out[EQUIVALENT_LABELS.get(label, label)].append(span)
    return out

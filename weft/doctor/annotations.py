"""What is known of the words of a sentence, as the survey counts and compares it."""

import re
from collections.abc import Sequence

from weft.errors import UserError
from weft.text.annotation import schemes, trees
from weft.text.annotation.schemes import OUTSIDE, Span
from weft.text.example import Answers, Example, Layers, Marks
from weft.text.formats.conllu_sentence import NOTHING

TAGS, RELATIONS, TYPES, NODES = "tags", "relations", "types", "node labels"
ASKED = "kinds of questions"
NOUNS = {
    TAGS: "tag", RELATIONS: "relation", TYPES: "type", NODES: "node label",
    ASKED: "kind of question",
}  # fmt: skip
_ASIDE = ("lemma", "deps", "misc")  # columns in which copies of a sentence may differ
_MARKED = re.compile(r"[BILUES]-\S+")


def layers(example: Example) -> dict[str, list[str]]:
    """What to count, by kind: tags and relations of words, types of spans, labels of nodes."""
    label = example.label
    if isinstance(label, Answers):
        return {ASKED: ["answered" if label.texts else "no answer"]}
    if isinstance(label, Marks):
        return {TYPES: [span.label for span in label.spans]}
    if isinstance(label, Layers):
        main = label.columns.get(label.main, ())
        if marks_spans(main):
            found = {TYPES: [span.label for span in read(main)]}
        else:
            found = {TAGS: [tag for tag in main if tag != NOTHING]}
        relations = label.columns.get("deprel", ()) if label.main != "deprel" else ()
        return found | ({RELATIONS: [r for r in relations if r != NOTHING]} if relations else {})
    if example.tree is not None:
        return {NODES: [node.label for node in trees.nodes(example.tree) if node.label]}
    return {}


def marks_spans(tags: Sequence[str]) -> bool:
    """Whether tags mark spans: nothing but O, or nearly all B-X, I-X and the like."""
    good = sum(tag == OUTSIDE or bool(_MARKED.fullmatch(tag)) for tag in tags)
    return bool(tags) and good > 0.5 * len(tags)


def is_tag(tag: str) -> bool:
    """Whether this is O, or a mark and a label."""
    try:
        schemes.split_tag(tag)
    except UserError:
        return False
    return True


def read(tags: Sequence[str]) -> list[Span]:
    """The spans as conlleval finds them; what is no tag is outside of all."""
    sound = [tag if is_tag(tag) else OUTSIDE for tag in tags]
    return schemes.spans(sound, "IOB2", "repair")


def is_sentence(example: Example) -> bool:
    """Whether this is one sentence with its words, rather than a text of any length."""
    return bool(example.words) or example.tree is not None


def annotation(example: Example) -> int | None:
    """A number for all that is known of the words, the same where the same is known."""
    label = example.label
    if example.tree is not None:
        return hash(trees.format(example.tree))
    if isinstance(label, Answers):
        return hash(label)
    if isinstance(label, Marks):
        return hash(label.spans)
    if isinstance(label, Layers):
        return hash(tuple(v for name, v in label.columns.items() if name not in _ASIDE))
    return None


def difference(one: Example, other: Example) -> str:
    """The first thing in which two examples of the same text are annotated differently."""
    mine, yours = one.label, other.label
    if one.tree is not None and other.tree is not None:
        return _of_trees(one.tree, other.tree)
    if isinstance(mine, Answers) and isinstance(yours, Answers):
        return " / ".join(f"'{a.texts[0]:.30}'" if a.texts else "no answer" for a in (mine, yours))
    if isinstance(mine, Marks) and isinstance(yours, Marks):
        return _of_spans(one.text, mine.spans, yours.spans)
    if isinstance(mine, Layers) and isinstance(yours, Layers):
        if len(one.words) != len(other.words):
            return f"{len(one.words)} words / {len(other.words)} words"
        for name, column in mine.columns.items():
            theirs = yours.columns.get(name, column)
            for place, (a, b) in enumerate(zip(column, theirs, strict=False)):
                if a != b and name not in _ASIDE:
                    return f"word {place + 1} '{one.words[place]}': {name} {a} / {b}"
    return f"{mine} / {yours}"


def _of_trees(one: trees.Tree, other: trees.Tree) -> str:
    for mine, yours in zip(trees.nodes(one), trees.nodes(other), strict=False):
        if mine.label != yours.label:
            covered = mine.text if len(mine.text) < 30 else f"{mine.text[:29]}…"
            return f"'{covered}': {mine.label} / {yours.label}"
    return "other brackets"


def _of_spans(text: str, mine: Sequence[Span], yours: Sequence[Span]) -> str:
    told = []
    for own, there in ((mine, yours), (yours, mine)):
        span = next((span for span in own if span not in there), None)
        told.append(f"{span.label} '{text[span.start : span.end]:.30}'" if span else "nothing")
    return " / ".join(told)


def word_of(example: Example, place: int) -> str:
    """A word, or a span, by its number from 0, as messages name it."""
    if isinstance(example.label, Marks):
        span = example.label.spans[place]
        return f"'{example.text[span.start : span.end]:.40}'"
    return f"word {place + 1} '{example.words[place]}'"

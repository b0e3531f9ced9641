"""Annotations of words, spans and trees, as the survey counts and compares them."""

import re
from collections.abc import Sequence

from weft.errors import UserError
from weft.text.annotation import schemes, trees
from weft.text.annotation.frames import Coreference, Extractions, Frames
from weft.text.annotation.schemes import OUTSIDE, Span
from weft.text.example import CharSpans, Example, GoldAnswers, WordAnnotations
from weft.text.formats.conllu_sentence import EMPTY_CELL

TAGS, RELATIONS, TYPES, NODES = "tags", "relations", "types", "node labels"
QUESTIONS, ROLES, INTENTS = "kinds of questions", "roles", "intents"
NOUNS = {
    TAGS: "tag", RELATIONS: "relation", TYPES: "type", NODES: "node label",
    QUESTIONS: "kind of question", ROLES: "role", INTENTS: "intent",
}  # fmt: skip
_IGNORED_COLUMNS = ("lemma", "deps", "misc")  # columns in which duplicates may differ
_SPAN_TAG = re.compile(r"[BILUES]-\S+")


def collect_annotations(example: Example) -> dict[str, list[str]]:
    """Return the names to count, by kind: tags, relations, span types, node labels."""
    label = example.label
    if isinstance(label, GoldAnswers):
        return {QUESTIONS: ["answered" if label.texts else "no answer"]}
    if isinstance(label, Frames):
        return {ROLES: [role.label for one in label.predicates for role in one.roles]}
    if isinstance(label, CharSpans):
        return {TYPES: [span.label for span in label.spans]}
    if isinstance(label, WordAnnotations):
        main = label.columns.get(label.main, ())
        if are_span_tags(main):
            counts = {TYPES: [span.label for span in repair_spans(main)]}
        else:
            counts = {TAGS: [tag for tag in main if tag != EMPTY_CELL]}
        counts |= {INTENTS: [label.label]} if label.label else {}
        relations = label.columns.get("deprel", ()) if label.main != "deprel" else ()
        return counts | (
            {RELATIONS: [r for r in relations if r != EMPTY_CELL]} if relations else {}
        )
    if example.tree is not None:
        return {NODES: [node.label for node in trees.iter_nodes(example.tree) if node.label]}
    return {}


def are_span_tags(tags: Sequence[str]) -> bool:
    """Return whether most tags mark spans: O, B-X, I-X and the like."""
    good = sum(tag == OUTSIDE or bool(_SPAN_TAG.fullmatch(tag)) for tag in tags)
    return bool(tags) and good > 0.5 * len(tags)


def is_tag(tag: str) -> bool:
    """Return whether this is O, or a mark and a label."""
    try:
        schemes.split_tag(tag)
    except UserError:
        return False
    return True


def repair_spans(tags: Sequence[str]) -> list[Span]:
    """Return the spans as conlleval finds them; invalid tags count as O."""
    sound = [tag if is_tag(tag) else OUTSIDE for tag in tags]
    return schemes.tags_to_spans(sound, "IOB2", "repair")


def is_sentence(example: Example) -> bool:
    """Return whether the example is a sentence with its words, not just a text."""
    return bool(example.words) or example.tree is not None


def annotation_hash(example: Example) -> int | None:
    """Return a hash of the annotation, equal for equal annotations; None without one."""
    label = example.label
    if example.tree is not None:
        return hash(trees.format(example.tree))
    if isinstance(label, (GoldAnswers, Frames, Coreference, Extractions)):
        return hash(label)
    if isinstance(label, CharSpans):
        return hash(label.spans)
    if isinstance(label, WordAnnotations):
        columns = tuple(v for name, v in label.columns.items() if name not in _IGNORED_COLUMNS)
        return hash((columns, label.label))
    return None


def describe_difference(one: Example, other: Example) -> str:
    """Describe the first difference between two annotations of the same text."""
    mine, yours = one.label, other.label
    if one.tree is not None and other.tree is not None:
        return _tree_difference(one.tree, other.tree)
    if isinstance(mine, GoldAnswers) and isinstance(yours, GoldAnswers):
        return " / ".join(f"'{a.texts[0]:.30}'" if a.texts else "no answer" for a in (mine, yours))
    if isinstance(mine, Frames) and isinstance(yours, Frames):
        return _frame_difference(one, mine, yours)
    if isinstance(mine, Coreference) and isinstance(yours, Coreference):
        return f"{len(mine.mentions)} mentions / {len(yours.mentions)} mentions"
    if isinstance(mine, Extractions) and isinstance(yours, Extractions):
        return f"{len(mine.tuples)} tuples / {len(yours.tuples)} tuples"
    if isinstance(mine, CharSpans) and isinstance(yours, CharSpans):
        return _span_difference(one.text, mine.spans, yours.spans)
    if isinstance(mine, WordAnnotations) and isinstance(yours, WordAnnotations):
        if len(one.words) != len(other.words):
            return f"{len(one.words)} words / {len(other.words)} words"
        if mine.label != yours.label:
            return f"intent {mine.label or 'missing'} / {yours.label or 'missing'}"
        for name, column in mine.columns.items():
            theirs = yours.columns.get(name, column)
            for index, (a, b) in enumerate(zip(column, theirs, strict=False)):
                if a != b and name not in _IGNORED_COLUMNS:
                    return f"word {index + 1} '{one.words[index]}': {name} {a} / {b}"
    return f"{mine} / {yours}"


def _tree_difference(one: trees.Tree, other: trees.Tree) -> str:
    for mine, yours in zip(trees.iter_nodes(one), trees.iter_nodes(other), strict=False):
        if mine.label != yours.label:
            covered = mine.text if len(mine.text) < 30 else f"{mine.text[:29]}…"
            return f"'{covered}': {mine.label} / {yours.label}"
    return "different brackets"


def _frame_difference(example: Example, mine: Frames, yours: Frames) -> str:
    for a, b in zip(mine.predicates, yours.predicates, strict=False):
        if a != b:
            word = f"word {a.word + 1} '{example.words[a.word]}'"
            if (a.word, a.sense) != (b.word, b.sense):
                return f"{word}: {a.sense} / {b.sense}"
            role = min(set(a.roles) ^ set(b.roles))
            return f"{word}: {a.sense} differs in {role.label}"
    return f"{len(mine.predicates)} predicates / {len(yours.predicates)} predicates"


def _span_difference(text: str, mine: Sequence[Span], yours: Sequence[Span]) -> str:
    parts = []
    for these, those in ((mine, yours), (yours, mine)):
        span = next((span for span in these if span not in those), None)
        parts.append(f"{span.label} '{text[span.start : span.end]:.30}'" if span else "nothing")
    return " / ".join(parts)


def describe_word(example: Example, index: int) -> str:
    """Return a word or span by its index, as messages name it."""
    if isinstance(example.label, CharSpans):
        span = example.label.spans[index]
        return f"'{example.text[span.start : span.end]:.40}'"
    return f"word {index + 1} '{example.words[index]}'"

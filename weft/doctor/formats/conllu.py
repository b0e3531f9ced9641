"""Check CoNLL-U files: ids, heads, surface text, tag and relation names."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import AnnotationFault, sentence_name
from weft.doctor.finding import SentenceSketch
from weft.errors import UserError, near_miss
from weft.text.example import Example, SkipCounter, WordAnnotations
from weft.text.formats.conllu import read_conllu, validate
from weft.text.formats.conllu_offsets import locate_words
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL, ConlluRow, Sentence

# The inventories of Universal Dependencies, version 2.
# fmt: off
UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)
RELATIONS = (
    "acl", "advcl", "advmod", "amod", "appos", "aux", "case", "cc", "ccomp", "clf", "compound",
    "conj", "cop", "csubj", "dep", "det", "discourse", "dislocated", "expl", "fixed", "flat",
    "goeswith", "iobj", "list", "mark", "nmod", "nsubj", "nummod", "obj", "obl", "orphan",
    "parataxis", "punct", "reparandum", "root", "vocative", "xcomp",
)
# fmt: on
ROOT = "root"
MAX_DRAWN_WORDS = 40  # of a sentence
_DRAWN_FAULTS = ("cycle", "no root", "two roots")  # their heads are valid word numbers
MIN_FOREIGN_FRACTION = 0.5  # of words outside UD, to treat it as another inventory


def read_sentences(path: str, skipped: SkipCounter | None = None) -> Iterator[Sentence]:
    """Yield every sentence of ten columns, sound or not."""
    return read_conllu(path, check=False, on_bad_row="skip", skipped=skipped)


def read_examples(path: str, label: str, skipped: SkipCounter) -> Iterator[Example]:
    """Yield the sentences as Examples."""
    for sentence in read_sentences(path, skipped):
        words = tuple(word.form for word in sentence.words)
        columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
        yield Example(
            sentence.text or " ".join(words), WordAnnotations(columns, label or "upos"),
            sentence.sent_id, sentence.file, sentence.line, words,
        )  # fmt: skip


def find_faults(path: str) -> Iterator[AnnotationFault]:
    """Yield the faults of each sentence, in file order."""
    foreign = _uses_other_inventory(path)
    ids: dict[str, int] = {}
    for number, sentence in enumerate(read_sentences(path), 1):
        of = sentence_name(sentence.sent_id, number)
        violations = validate(sentence)
        for fault in violations:
            reason = fault.reason.partition(". ")[0]  # the finding gives the fix once
            yield _build_fault(fault.kind, sentence, fault.row, f"{of}: {reason}")
        yield from _check_surface(sentence, of)
        if not violations:
            yield from _check_names(sentence, of, foreign)
        first = ids.setdefault(sentence.sent_id or f" {number}", sentence.line)
        if first != sentence.line:
            yield _build_fault("repeated id", sentence, None, f"{of}: already used on line {first}")


def _build_fault(
    kind: str, sentence: Sentence, row: ConlluRow | None, detail: str
) -> AnnotationFault:
    text = sentence.text or " ".join(word.form for word in sentence.words)
    sketch = _sketch(sentence) if kind in _DRAWN_FAULTS else None
    return AnnotationFault(kind, f"{sentence.file}:{sentence.line_of(row)}", text, detail, sketch)


def _sketch(sentence: Sentence) -> SentenceSketch | None:
    words = sentence.words
    if len(words) > MAX_DRAWN_WORDS:
        return None
    forms, relations = (tuple(sentence.column(name)) for name in ("form", "deprel"))
    return SentenceSketch(forms, heads=tuple(sentence.heads), relations=relations)


def _check_surface(sentence: Sentence, of: str) -> Iterator[AnnotationFault]:
    try:
        locate_words(sentence)
    except UserError as error:
        # 'file:line: sentence …: fault. Fix.' — keep only the fault.
        line, _, rest = str(error).removeprefix(f"{sentence.file}:").partition(": ")
        reason = rest.removeprefix(f"sentence '{sentence.sent_id}': ").partition(". Correct")[0]
        where = f"{sentence.file}:{line}"
        yield AnnotationFault("text disagrees", where, sentence.text or "", f"{of}: {reason}")


def _uses_other_inventory(path: str) -> tuple[bool, bool]:
    """Return whether tags and relations are from another inventory than UD."""
    tags: Counter[bool] = Counter()
    relations: Counter[bool] = Counter()
    for sentence in read_sentences(path):
        for word in sentence.words:
            if word.upos != EMPTY_CELL:
                tags[word.upos in UPOS] += 1
            if word.deprel != EMPTY_CELL:
                relations[word.deprel.partition(":")[0] in RELATIONS] += 1
    return (
        tags[False] >= MIN_FOREIGN_FRACTION * max(1, tags.total()),
        relations[False] >= MIN_FOREIGN_FRACTION * max(1, relations.total()),
    )


def _check_names(
    sentence: Sentence, of: str, foreign: tuple[bool, bool]
) -> Iterator[AnnotationFault]:
    words = sentence.words
    tagged = any(word.upos != EMPTY_CELL for word in words)
    for word in words:
        described = f"{of}: word {word.id} '{word.form}'"
        if word.upos == EMPTY_CELL and tagged:
            yield _build_fault("no tag", sentence, word, described)
        elif word.upos not in (*UPOS, EMPTY_CELL) and not foreign[0]:
            hint = near_miss(word.upos.upper(), UPOS)
            yield _build_fault("unknown tag", sentence, word, f"{described} has {word.upos}.{hint}")
        bare = word.deprel.partition(":")[0]
        if foreign[1] or bare == EMPTY_CELL:
            continue
        if bare not in RELATIONS:
            hint = near_miss(bare, RELATIONS)
            yield _build_fault(
                "unknown relation", sentence, word, f"{described} has {word.deprel}.{hint}"
            )
        elif word.head != EMPTY_CELL and (word.head == "0") != (bare == ROOT):
            detail = f"{described} has head {word.head} and relation {word.deprel}"
            yield _build_fault("root relation", sentence, word, detail)

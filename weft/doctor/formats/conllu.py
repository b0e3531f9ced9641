"""CoNLL-U under the doctor's eyes: ids, heads, surface text, names of tags and relations."""

from collections import Counter
from collections.abc import Iterator

from weft.doctor.checks.annotation_faults import Fault, named
from weft.doctor.finding import Sketch
from weft.errors import UserError, near_miss
from weft.text.example import Example, Layers, Tally
from weft.text.formats.conllu import read_conllu, validate
from weft.text.formats.conllu_offsets import offsets
from weft.text.formats.conllu_sentence import COLUMNS, NOTHING, Sentence, Word

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
LARGEST = 40  # words of a sentence that is drawn
_DRAWN = ("cycle", "no root", "two roots")  # whose heads are at least numbers of words
OWN = 0.5  # share of words outside the inventory from which it is another one, and no mistake


def sentences(path: str, tally: Tally | None = None) -> Iterator[Sentence]:
    """Every sentence of ten columns, sound or not."""
    return read_conllu(path, check=False, problems="skip", tally=tally)


def examples(path: str, label: str, tally: Tally) -> Iterator[Example]:
    """The sentences as the survey takes them."""
    for sentence in sentences(path, tally):
        words = tuple(word.form for word in sentence.words)
        columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
        yield Example(
            sentence.text or " ".join(words), Layers(columns, label or "upos"), sentence.sent_id,
            sentence.file, sentence.line, words,
        )  # fmt: skip


def faults(path: str) -> Iterator[Fault]:
    """What is wrong with each sentence, in the order of the file."""
    foreign = _foreign(path)
    ids: dict[str, int] = {}
    for number, sentence in enumerate(sentences(path), 1):
        of = named(sentence.sent_id, number)
        wrong = validate(sentence)
        for fault in wrong:
            told = fault.told.partition(". ")[0]  # what to do is said once, by the finding
            yield _fault(fault.kind, sentence, fault.row, f"{of}: {told}")
        yield from _surface(sentence, of)
        if not wrong:
            yield from _names(sentence, of, foreign)
        first = ids.setdefault(sentence.sent_id or f" {number}", sentence.line)
        if first != sentence.line:
            yield _fault("repeated id", sentence, None, f"{of}: used before on line {first}")


def _fault(kind: str, sentence: Sentence, row: Word | None, told: str) -> Fault:
    text = sentence.text or " ".join(word.form for word in sentence.words)
    sketch = _sketch(sentence) if kind in _DRAWN else None
    return Fault(kind, f"{sentence.file}:{sentence.line_of(row)}", text, told, sketch)


def _sketch(sentence: Sentence) -> Sketch | None:
    words = sentence.words
    if len(words) > LARGEST:
        return None
    forms, relations = (tuple(sentence.column(name)) for name in ("form", "deprel"))
    return Sketch(forms, heads=tuple(sentence.heads), relations=relations)


def _surface(sentence: Sentence, of: str) -> Iterator[Fault]:
    try:
        offsets(sentence)
    except UserError as error:
        # 'file:line: sentence …: what is wrong. What to do.' — the first two are said already.
        line, _, rest = str(error).removeprefix(f"{sentence.file}:").partition(": ")
        told = rest.removeprefix(f"sentence '{sentence.sent_id}': ").partition(". Correct")[0]
        where = f"{sentence.file}:{line}"
        yield Fault("text disagrees", where, sentence.text or "", f"{of}: {told}")


def _foreign(path: str) -> tuple[bool, bool]:
    """Whether the tags, and the relations, are of another inventory than UD's."""
    tags: Counter[bool] = Counter()
    relations: Counter[bool] = Counter()
    for sentence in sentences(path):
        for word in sentence.words:
            if word.upos != NOTHING:
                tags[word.upos in UPOS] += 1
            if word.deprel != NOTHING:
                relations[word.deprel.partition(":")[0] in RELATIONS] += 1
    return (
        tags[False] >= OWN * max(1, tags.total()),
        relations[False] >= OWN * max(1, relations.total()),
    )


def _names(sentence: Sentence, of: str, foreign: tuple[bool, bool]) -> Iterator[Fault]:
    words = sentence.words
    tagged = any(word.upos != NOTHING for word in words)
    for word in words:
        told = f"{of}: word {word.id} '{word.form}'"
        if word.upos == NOTHING and tagged:
            yield _fault("no tag", sentence, word, told)
        elif word.upos not in (*UPOS, NOTHING) and not foreign[0]:
            hint = near_miss(word.upos.upper(), UPOS)
            yield _fault("unknown tag", sentence, word, f"{told} has {word.upos}.{hint}")
        bare = word.deprel.partition(":")[0]
        if foreign[1] or bare == NOTHING:
            continue
        if bare not in RELATIONS:
            hint = near_miss(bare, RELATIONS)
            yield _fault("unknown relation", sentence, word, f"{told} has {word.deprel}.{hint}")
        elif word.head != NOTHING and (word.head == "0") != (bare == ROOT):
            said = f"{told} has the head {word.head} and the relation {word.deprel}"
            yield _fault("root relation", sentence, word, said)

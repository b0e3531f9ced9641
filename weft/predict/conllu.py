"""Answers about words as CoNLL-U: in the rows of the input, or as sentences of their own."""

from collections.abc import Sequence

from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.tasks.annotation import Annotation
from weft.text.example import Example, WordAnnotations
from weft.text.formats.conllu_offsets import locate_words
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL, Sentence, Word

KINDS = ("tags", "spans", "arcs")  # what has a column to stand in


def tag_columns(predictor: Predictor) -> tuple[str, ...]:
    """The columns that a model's tags belong to; relations stand beside heads and are not tags."""
    names = getattr(predictor.space, "names", ())
    return tuple(name for name in names if name != "deprel")


def example_of(sentence: Sentence) -> Example:
    """A sentence as readers give it: its own words, where they stand, and their columns."""
    text, places = locate_words(sentence, disagree="join")
    columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
    words = tuple(word.form for word in sentence.words)
    return Example(
        text, WordAnnotations(columns, "upos"), sentence.sent_id, sentence.file, sentence.line,
        words, tuple(places),
    )  # fmt: skip


def fill_columns(sentence: Sentence, said: Annotation | None, names: Sequence[str]) -> Sentence:
    """The sentence with what is said of its words in its columns; all else stays as it was.

    Tags of a column that CoNLL-U does not have stand in the last one, as Name=tag.
    """
    if said is None or said.kind not in KINDS:
        raise UserError(
            "--conllu writes tags and dependencies, and this model answers with something else. "
            "Leave --conllu out, or pass --json."
        )
    if said.tags:
        rows = [tuple(tag.split(" ")) for tag in said.tags]
        for k, name in enumerate(names or ("upos",)):
            cells = [row[k] for row in rows]
            if name not in COLUMNS:
                own = zip(sentence.column("misc"), cells, strict=True)
                cells = [_set_misc(misc, name, cell) for misc, cell in own]
            sentence = sentence.with_column(name if name in COLUMNS else "misc", cells)
    if said.heads:
        sentence = sentence.with_column("head", said.heads).with_column("deprel", said.relations)
    return sentence


def sentence_of(said: Annotation, name: str) -> Sentence:
    """The words of a text as a sentence without any columns yet, with the text it came from."""
    text = said.text or " ".join(said.words)
    after = zip(said.places, said.places[1:], strict=False)
    close = {i for i, ((_, end), (start, _)) in enumerate(after) if end == start}
    rows = [
        Word(str(i + 1), _strip_breaks(word), misc="SpaceAfter=No" if i in close else EMPTY_CELL)
        for i, word in enumerate(said.words)
    ]
    return Sentence((f"# sent_id = {name}", f"# text = {_strip_breaks(text)}", *rows))


def _strip_breaks(text: str) -> str:
    """Without the breaks that would end a line or a cell; every character keeps its place."""
    return "".join(" " if letter in "\t\n\r\v\f\x85\u2028\u2029" else letter for letter in text)


def _set_misc(misc: str, name: str, cell: str) -> str:
    """The last column with one more Name=cell, in place of an older one."""
    key = name[:1].upper() + name[1:]
    kept = [
        each for each in misc.split("|") if each != EMPTY_CELL and not each.startswith(f"{key}=")
    ]
    return "|".join([*kept, f"{key}={cell.replace('|', chr(92) + 'p')}"])

"""Word-level answers as CoNLL-U: in the rows of the input, or as new sentences."""

from collections.abc import Sequence

from weft.errors import UserError
from weft.predict.predictor import Predictor
from weft.tasks.annotation import Annotation
from weft.text.example import Example, WordAnnotations
from weft.text.formats.conllu_offsets import locate_words
from weft.text.formats.conllu_sentence import COLUMNS, EMPTY_CELL, ConlluRow, Sentence

KINDS = ("tags", "spans", "arcs")  # annotations that have a column


def tag_columns(predictor: Predictor) -> tuple[str, ...]:
    """Return the columns of a model's tags; relations are not tags."""
    return tuple(name for name in predictor.space.names if name != "deprel")


def example_of(sentence: Sentence) -> Example:
    """Return a sentence as an Example with words, offsets and columns."""
    text, places = locate_words(sentence, disagree="join")
    columns = {name: tuple(sentence.column(name)) for name in COLUMNS[2:]}
    words = tuple(word.form for word in sentence.words)
    return Example(
        text, WordAnnotations(columns, "upos"), sentence.sent_id, sentence.file, sentence.line,
        words, tuple(places),
    )  # fmt: skip


def fill_columns(
    sentence: Sentence, annotation: Annotation | None, names: Sequence[str]
) -> Sentence:
    """Return the sentence with the prediction in its columns; the rest is unchanged.

    Tags of a column that CoNLL-U lacks go to MISC, as Name=tag.
    """
    if annotation is None or annotation.kind not in KINDS:
        raise UserError(
            "--conllu writes tags and dependencies, and this model predicts neither. "
            "Omit --conllu, or pass --json."
        )
    if annotation.tags:
        rows = [tuple(tag.split(" ")) for tag in annotation.tags]
        for k, name in enumerate(names or ("upos",)):
            cells = [row[k] for row in rows]
            if name not in COLUMNS:
                pairs = zip(sentence.column("misc"), cells, strict=True)
                cells = [_set_misc(misc, name, cell) for misc, cell in pairs]
            sentence = sentence.with_column(name if name in COLUMNS else "misc", cells)
    if annotation.heads:
        sentence = sentence.with_column("head", annotation.heads).with_column(
            "deprel", annotation.relations
        )
    return sentence


def sentence_of(annotation: Annotation, name: str) -> Sentence:
    """Return the words of a text as a sentence with empty columns and the original text."""
    text = annotation.text or " ".join(annotation.words)
    after = zip(annotation.places, annotation.places[1:], strict=False)
    close = {i for i, ((_, end), (start, _)) in enumerate(after) if end == start}
    rows = [
        ConlluRow(
            str(i + 1), _strip_breaks(word), misc="SpaceAfter=No" if i in close else EMPTY_CELL
        )
        for i, word in enumerate(annotation.words)
    ]
    return Sentence((f"# sent_id = {name}", f"# text = {_strip_breaks(text)}", *rows))


def _strip_breaks(text: str) -> str:
    """Replace breaks that would end a line or cell by spaces; offsets are unchanged."""
    return "".join(" " if letter in "\t\n\r\v\f\x85\u2028\u2029" else letter for letter in text)


def _set_misc(misc: str, name: str, cell: str) -> str:
    """Return the MISC column with Name=cell set."""
    key = name[:1].upper() + name[1:]
    kept = [
        each for each in misc.split("|") if each != EMPTY_CELL and not each.startswith(f"{key}=")
    ]
    return "|".join([*kept, f"{key}={cell.replace('|', chr(92) + 'p')}"])

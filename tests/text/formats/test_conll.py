"""Column files: their layout is found, every column can be had, and ragged rows are told."""

import pytest

from tests.fixtures.conll_texts import CHUNKS, NEWS, ROLES, TWEETS, UNER
from weft.errors import UserError
from weft.text import column_layout
from weft.text.example import SkipCounter
from weft.text.formats import conll
from weft.text.formats.conll import read_columns


def save(folder, content: str, name: str = "a.conll"):
    path = folder / name
    path.write_bytes(content.encode())
    return path


@pytest.mark.parametrize(
    ("content", "separator", "word", "tag", "first", "last"),
    [
        (
            CHUNKS,
            " ",
            0,
            2,
            ["He/B-NP", "reckons/B-VP", "the/B-NP", "deficit/I-NP"],
            "narrows/B-VP",
        ),
        (CHUNKS.replace("\n\n", "\n  \t\n"), " ", 0, 2, None, "narrows/B-VP"),
        (CHUNKS.replace(" ", "   ").replace("\n", "\r\n"), " ", 0, 2, None, "narrows/B-VP"),
        (NEWS, " ", 0, 3, ["EU/I-ORG", "rejects/O"], "He/O"),
        (
            TWEETS,
            "\t",
            0,
            1,
            ["#tag/O", "Ada/B-person", "King/I-person"],
            "London\xa0SW/B-location",
        ),
        (UNER, "\t", 1, 2, ["Hvor/O", "bor/O", "Ida/B-PER", "?/O"], "bor/O"),
        (ROLES, "\t", 1, 3, ["Bush/PROPN", "saw/VERB", "it/PRON"], "Hi/INTJ"),
        ("pos\ttoken\nNN\tcat\nVB\truns\n", "\t", 1, 0, ["cat/NN", "runs/VB"], "runs/VB"),
        ("# global.columns = ID FORM NE\n1 a O\n2 b O\n", " ", 1, 2, ["a/O", "b/O"], "b/O"),
    ],
)
def test_layout_is_found(tmp_path, content, separator, word, tag, first, last):
    found = list(read_columns(save(tmp_path, content)))
    layout = found[0].layout
    assert (layout.separator, layout.words, layout.tags) == (separator, word, tag)
    pairs = [
        [f"{a}/{b}" for a, b in zip(one.words, one.tags, strict=True)]
        for one in (found[0], found[-1])
    ]
    assert pairs[1][-1] == last
    assert first is None or pairs[0] == first


def test_a_column_of_few_values_is_the_tags():
    lines = [f"w{n} lemma{n % 37} {'NVA'[n % 3]} f{n}" for n in range(60)]
    layout = column_layout.guess_layout(lines)
    assert (layout.words, layout.tags) == (0, 2)


def test_of_two_columns_of_spans_the_last_is_the_tags():
    layout = column_layout.guess_layout(["Ada Ada NNP B-NP B-PER x", "ran run VBD B-VP O x"])
    assert (layout.words, layout.tags, layout.names) == (0, 4, ())


def test_a_word_at_the_start_may_be_a_hash(tmp_path):
    second = list(read_columns(save(tmp_path, NEWS)))[1]
    assert second.words == ["#", "Peter"]
    content = "Ada NNP B-NP\n# = O\nx NN B-NP\n"
    assert next(read_columns(save(tmp_path, content))).words == ["Ada", "#", "x"]


def test_documents_comments_and_places(tmp_path):
    found = list(read_columns(save(tmp_path, NEWS)))
    assert [(one.document, one.lines) for one in found] == [(1, (3, 4)), (1, (6, 7)), (2, (10,))]
    path = save(tmp_path, UNER)
    first, second = read_columns(path)
    assert (first.id, second.id) == ("dev-0", "dev-1")
    assert second.where(1) == f"{path}:10: sentence 'dev-1'"
    assert conll.format(first) + conll.format(second) == UNER + "\n"
    changed = conll.format(first.with_tags(["O", "O", "B-LOC", "O"]))
    assert changed == UNER[: UNER.index("# sent_id = dev-1")].replace("\tB-PER\t", "\tB-LOC\t")


@pytest.mark.parametrize("column", [1, "1", "pos", -2])
def test_any_column(tmp_path, column):
    (first, _) = read_columns(save(tmp_path, CHUNKS), tags=column)
    assert first.tags == ["PRP", "VBZ", "DT", "NN"]
    assert first.column("chunk") == ["B-NP", "B-VP", "B-NP", "I-NP"]
    assert first.column("word") == first.words


def test_spans_name_the_line_of_a_bad_tag(tmp_path):
    path = save(tmp_path, CHUNKS.replace("the DT B-NP", "the DT O"))
    first = next(read_columns(path))
    assert first.spans("IOB2", "repair") == [("NP", 0, 1), ("VP", 1, 2), ("NP", 3, 4)]
    with pytest.raises(UserError, match=rf"{path}:4: 'I-NP' after 'O' continues nothing"):
        first.spans("IOB2")
    with pytest.raises(UserError, match=rf"{path}:1: 'PRP' is not a tag"):
        next(read_columns(path, tags=1)).spans("IOB2")


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (CHUNKS.replace("the DT", "the"), {}, r"a\.conll:3: 2 columns, but other rows have 3"),
        (CHUNKS + "\nx Y\n", {}, r"a\.conll:9: 2 columns, but .*'x Y'\. Give each word 3 cells"),
        (
            ROLES.replace("\t(V*)\t*", "\t(V*)"),
            {},
            r"a\.conll:3: sentence 'a-1': 8 columns, .* 9: ",
        ),
        (TWEETS + "\tO\n", {}, r"a\.conll:8: the word \(column 0\) is empty"),
        (CHUNKS, {"tags": "ner"}, r"no column 'ner'; found word, pos, chunk"),
        (CHUNKS, {"tags": "chnk"}, r"Did you mean 'chunk'\?"),
        (CHUNKS, {"words": 3}, r"a\.conll: no column 3; the rows have 3.*0 to 2"),
        (TWEETS, {"tags": "ner"}, r"no column 'ner': columns have no names"),
        ("one\ntwo\n", {}, r"a\.conll: only one column\."),
        ("\n# x = y\n", {}, r"a\.conll: no rows"),
    ],
)
def test_bad_files(tmp_path, content, options, message):
    with pytest.raises(UserError, match=message):
        list(read_columns(save(tmp_path, content), **options))


def test_ragged_sentences_can_be_left_out(tmp_path):
    tally = SkipCounter()
    path = save(tmp_path, CHUNKS.replace("the DT", "the"))
    (only,) = read_columns(path, on_bad_row="skip", skipped=tally)
    assert only.words == ["It", "narrows"]
    assert tally.counts == {"ragged columns": 1}


def test_a_line_that_is_no_text_leaves_its_sentence_out(tmp_path):
    path = tmp_path / "a.conll"
    path.write_bytes(b"a O\nb\xe9 B-X\nc O\n\nd O\ne B-X\n")
    tally = SkipCounter()
    found = list(read_columns(path, on_bad_row="skip", skipped=tally))
    assert [one.words for one in found] == [["d", "e"]]
    assert tally.places == {"undecodable bytes": [f"{path}:2"]}

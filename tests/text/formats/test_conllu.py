"""CoNLL-U comes back byte for byte, only asked-for cells change, and broken trees are told."""

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.conllu_texts import FRENCH, TWO
from weft.errors import UserError
from weft.text.example import SkipCounter
from weft.text.formats.conllu import format, read_conllu, validate, write_conllu
from weft.text.formats.conllu_offsets import locate_words
from weft.text.formats.conllu_sentence import ConlluRow, Sentence


def save(folder, content: str | bytes, name: str = "a.conllu"):
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def sentence(heads: list[int | str], ids: list[str] | None = None) -> Sentence:
    ids = ids or [str(n) for n in range(1, len(heads) + 1)]
    rows = (ConlluRow(i, f"w{i}", head=str(h)) for i, h in zip(ids, heads, strict=True))
    return Sentence(("# sent_id = s7", *rows), "a.conllu", 11)


SHAPES = {
    "plain": FRENCH + TWO + "\n",
    "no blank line at the end": FRENCH + TWO,
    "no line break at the end": FRENCH + TWO.rstrip("\n"),
    "many blank lines, some with spaces": "\n \n" + FRENCH + "\n\t\n  \n" + TWO + "\n\n\n",
    "windows": (FRENCH + TWO + "\n").replace("\n", "\r\n"),
    "both line breaks": FRENCH.replace("\n", "\r\n") + TWO,
    "byte order mark": "\ufeff" + FRENCH,
    "comments of no sentence": "# a file\n\n" + FRENCH + "# newpar\n\n# the end\n",
    "comment between words": TWO.replace("2\t", "# odd\n2\t", 1),
    "trailing spaces": FRENCH.replace("# newdoc id = a", "# newdoc id = a  "),
}


@pytest.mark.parametrize("name", SHAPES)
def test_byte_for_byte(tmp_path, name):
    content = SHAPES[name].encode()
    path = save(tmp_path, content)
    write_conllu(read_conllu(path), tmp_path / "b.conllu")
    assert (tmp_path / "b.conllu").read_bytes() == content


@settings(max_examples=50)
@given(st.lists(st.sampled_from([FRENCH, TWO + "\n", "\n", " \n", "# x\n", "\r\n"]), max_size=6))
def test_byte_for_byte_however_put_together(tmp_path_factory, pieces):
    content = FRENCH + "".join(pieces) + TWO
    path = save(tmp_path_factory.mktemp("c"), content)
    assert "".join(map(format, read_conllu(path))) == content


def test_packed(tmp_path):
    path = save(tmp_path, gzip.compress(FRENCH.encode()), "a.conllu.gz")
    write_conllu(read_conllu(path), tmp_path / "b.conllu.gz")
    assert gzip.decompress((tmp_path / "b.conllu.gz").read_bytes()) == FRENCH.encode()


def test_sentence_fields_are_parsed(tmp_path):
    first, second = read_conllu(save(tmp_path, FRENCH + TWO))
    assert [word.form for word in first.words] == ["Il", "va", "à", "le", "marché", "."]
    assert [(row.id, row.bounds) for row in first.ranges] == [("3-4", (3, 4))]
    assert [row.id for row in first.empty] == ["2.1"]
    assert (first.sent_id, first.text) == ("fr-1", "Il va au  marché.")
    assert first.comments[0] == "# newdoc id = a"
    assert first.heads == [2, 0, 5, 5, 2, 2]
    assert first.words[1].xpos == "V "
    assert (second.line, second.sent_id, second.text) == (13, "", None)


def test_only_the_changed_cells_change(tmp_path):
    first = next(read_conllu(save(tmp_path, FRENCH)))
    changed = first.with_column("upos", list("ABCDEF")).with_column("head", [0, 1, 1, 1, 1, 1])
    for row, letter, head in zip(first.words, "ABCDEF", (0, 1, 1, 1, 1, 1), strict=True):
        cells = str(row).split("\t")
        cells[3], cells[6] = letter, str(head)
        assert "\t".join(cells) in format(changed).split("\n")
    back = changed.with_column("upos", first.column("upos")).with_column("head", first.heads)
    assert format(back) == FRENCH
    with pytest.raises(UserError, match=r"a\.conllu:1: sentence 'fr-1': 2 values of 'head' for 6"):
        first.with_column("head", [1, 2])
    with pytest.raises(UserError, match=r"Unknown CoNLL-U column 'hed'\. Did you mean 'head'\?"):
        first.with_column("hed", [])
    with pytest.raises(UserError, match="cannot hold a tab"):
        first.with_column("upos", ["a\tb"] * 6)


def test_offsets(tmp_path):
    first, second = read_conllu(save(tmp_path, FRENCH + TWO))
    text, places = locate_words(first)
    assert [text[a:b] for a, b in places] == ["Il", "va", "au", "au", "marché", "."]
    assert locate_words(second) == ("Oui!", [(0, 3), (3, 4)])  # no text: SpaceAfter=No says


def test_offsets_where_text_and_forms_disagree(tmp_path):
    (first,) = read_conllu(save(tmp_path, FRENCH.replace("= Il va", "= Il vas")))
    with pytest.raises(UserError, match=r":7: sentence 'fr-1': the form 'au' .* 's au  marché.'"):
        locate_words(first)
    assert locate_words(first, "join")[0] == "Il va au marché."
    (first,) = read_conllu(save(tmp_path, FRENCH.replace("marché.\n", "marché. Oui\n")))
    with pytest.raises(UserError, match=r":11: .*continues after the last form: 'Oui'"):
        locate_words(first)


@pytest.mark.parametrize(
    ("given_sentence", "kind", "message"),
    [
        (sentence([2, 3, 2, 0]), "cycle", r"a.conllu:13: sentence 's7': .*cycle, 2 → 3 → 2\."),
        (sentence([0, 3, 4, 5, 2]), "cycle", r":13: .*cycle, 2 → 3 → 4 → 5 → 2\."),
        (sentence([2, 1]), "no root", r"a.conllu:12: sentence 's7': no root.* head 0"),
        (sentence([0, 1, 0]), "two roots", r"a.conllu:14: sentence 's7': 2 roots, words 1, 3"),
        (sentence([0, 7]), "head out of range", r":13: .*of word 2 is 7, but .* 2 words"),
        (sentence([0, 2]), "self head", r":13: .*word 2 is its own head"),
        (sentence([0, "x"]), "head not a number", r":13: .*head of word 2 is 'x'"),
        (sentence([0, "_"]), "head not a number", r":13: .*head of word 2 is '_'"),
        (sentence([0, 1], ["1", "3"]), "ids not in sequence", r":13: .*id 3 follows 1"),
        (sentence([0, 1], ["2", "3"]), "ids not in sequence", r":12: .*id 2 follows 0"),
        (sentence([0, "_"], ["1", "1.2"]), "ids not in sequence", r":13: .*1\.2 should be 1\.1"),
        (
            sentence(["_", 0, "_", 1, 1], ["1-2", "1", "2-3", "2", "3"]),
            "overlapping ranges",
            r":14: .*range 2-3 overlaps the previous one, which ends at 2",
        ),
        (sentence(["_", 0], ["1-2", "1"]), "range beyond the sentence", r":12: .*last word, 1"),
        (sentence([0, "_", 1], ["1", "3-2", "2"]), "malformed range", r":13: .*Write 2-3"),
        (sentence([0, "_", 1], ["1", "1-2", "2"]), "ids not in sequence", r"line before word 1"),
        (sentence(["_"], ["1-2"]), "no words", r"no word, only ranges"),
    ],
)
def test_faults(given_sentence, kind, message):
    found = validate(given_sentence)
    assert found[0].kind == kind
    with pytest.raises(UserError, match=message):
        raise UserError(found[0].message)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=5))
def test_a_tree_is_one_root_that_all_words_reach(heads):
    """Against the definition: follow the heads as many times as there are words."""
    count = len(heads)
    heads = [min(head, count) for head in heads]

    def reaches(word: int) -> bool:
        for _ in range(count):
            word = heads[word - 1] if word else 0
        return word == 0

    is_tree = heads.count(0) == 1 and all(map(reaches, range(1, count + 1)))
    assert (validate(sentence(heads)) == []) == is_tree


def test_tags_without_heads_are_no_fault():
    assert validate(sentence(["_", "_"])) == []


def test_a_sentence_of_two_thousand_words():
    chain = sentence(list(range(2003)))
    assert validate(chain) == []
    assert validate(sentence([2003, *range(1, 2003)]))[0].kind == "no root"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "\tSpaceAfter=No",
            "",
            r"a\.conllu:10: sentence 'fr-1': 9 columns instead of 10: '5.*ten cells",
        ),
        ("5\tmar", "x\tmar", r"a\.conllu:10: sentence 'fr-1': the id 'x' is neither"),
        ("\t0\troot", "\t6\troot", r"a\.conllu:4: sentence 'fr-1': no root"),
        ("marché", "march\0", r"a\.conllu:3: NUL byte"),
    ],
)
def test_bad_files(tmp_path, old, new, message):
    path = save(tmp_path, FRENCH.replace(old, new) + TWO)
    with pytest.raises(UserError, match=message):
        list(read_conllu(path))
    tally = SkipCounter()
    assert len(list(read_conllu(path, on_bad_row="skip", skipped=tally))) == 1
    assert sum(tally.counts.values()) == 1


def test_not_utf8_and_nothing(tmp_path):
    with pytest.raises(UserError, match=r"a\.conllu:3: byte 0xe9 at offset 24"):
        list(read_conllu(save(tmp_path, FRENCH.encode("latin1"))))
    with pytest.raises(UserError, match="no usable sentence"):
        list(read_conllu(save(tmp_path, "# only\n\n")))


def test_unchecked(tmp_path):
    path = save(tmp_path, TWO.replace("\t1\t", "\t9\t"))
    assert len(list(read_conllu(path, check=False))) == 1
    with pytest.raises(UserError, match="head of word 2 is 9"):
        list(read_conllu(path))

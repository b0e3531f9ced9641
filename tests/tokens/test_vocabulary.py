"""Vocabularies: order, unknown words, files."""

import pytest

from weft.errors import UserError
from weft.tokens.vocabulary import PAD, SPECIALS, UNK, Vocabulary


def test_pad_is_zero_and_unk_is_one():
    assert SPECIALS[:2] == (PAD, UNK)
    assert Vocabulary.count([["a"]]).entries == (PAD, UNK, "a")


def test_frequent_entries_come_first_and_ties_are_alphabetical():
    rows = [["z"], ["b", "c", "a"], ["c", "b"], ["c"]]
    assert Vocabulary.count(rows, special=()).entries == ("c", "b", "a", "z")
    assert Vocabulary.count(rows, special=(), minimum=2).entries == ("c", "b")
    assert Vocabulary.count(rows, size=4).entries == (PAD, UNK, "c", "b")


def test_unknown_word_is_unk_if_the_vocabulary_has_it():
    words = Vocabulary([PAD, UNK, "good"])
    assert words.ids(["good", "bad"]) == [2, 1]
    assert words.strings([2, 0]) == ["good", PAD]
    with pytest.raises(UserError, match=r"'positve' is not among .* Did you mean 'positive'\?"):
        Vocabulary(["positive", "negative"]).ids(["positve"])


def test_the_same_entry_twice_is_refused():
    with pytest.raises(UserError, match="same entry twice: 'b'"):
        Vocabulary(["a", "b", "b"])


def test_saved_and_loaded(tmp_path):
    words = Vocabulary(["ü", '"', "\n", "漢"])
    words.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == words


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"v\.json: cannot read the vocabulary: No such file"),
        ('["a", ', r"v\.json: not a vocabulary \(a JSON list\)"),
        ('{"a": 1}', r"v\.json: .*expected a JSON list of strings"),
        ("[1, 2]", r"v\.json: .*expected a JSON list of strings"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "v.json").write_text(content)
    with pytest.raises(UserError, match=message):
        Vocabulary.load(tmp_path / "v.json")

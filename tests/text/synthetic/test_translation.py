"""The made language: its rules, and that what is written is what is said of it."""

from collections import defaultdict

import pytest

from weft.errors import UserError
from weft.text.synthetic.grammar import Phrase
from weft.text.synthetic.lexicon import (
    NOUNS,
    Verb,
    adjective,
    article,
    noun,
    proper_noun,
    punctuation,
)
from weft.text.synthetic.translation import generate_pairs, make_stem, translate, write_pairs
from weft.text.synthetic.treebank import generate_treebank

BOOK = Verb("book books booked booked booking")


def clause(*rest):
    verb = Phrase("VP", (("", BOOK.finite("Past", "3Sing")), *rest))
    who = Phrase("NP", (("", proper_noun("Ana")),))
    return Phrase("S", (("nsubj", who), ("", verb), ("punct", punctuation("."))))


def test_verbs_come_last_and_objects_have_an_ending():
    hotel = Phrase("NP", (("det", article("the")), ("amod", adjective("old")), ("", noun("hotel"))))
    hotel_said, old, booked = (
        make_stem("hotel", "NOUN"),
        make_stem("old", "ADJ"),
        make_stem("book", "VERB"),
    )
    assert translate(clause(("obj", hotel))) == f"Ana {hotel_said}enom {old} {booked}ta."
    assert translate(clause()) == f"Ana {booked}ta."


def test_prepositions_stand_behind_and_many_are_marked():
    from weft.text.synthetic.lexicon import Leaf

    phones = Phrase("NP", (("", noun("phone", plural=True)),))
    case = ("case", Leaf("with", "with", "ADP", "IN"))
    said = translate(clause(("obl", Phrase("PP", (case, ("", phones))))))
    assert (
        said == f"Ana {make_stem('phone', 'NOUN')}u {make_stem('with', 'ADP')} "
        f"{make_stem('book', 'VERB')}ta."
    )


def test_two_uses_of_a_word_are_two_words_and_no_two_words_one():
    assert make_stem("book", "NOUN") != make_stem("book", "VERB")
    called = defaultdict(set)
    for made in generate_treebank(size=3000).values():
        for leaf in (leaf for one in made for leaf in one.leaves):
            if leaf.upos not in ("PROPN", "PUNCT"):
                called[make_stem(leaf.lemma, leaf.upos)].add((leaf.lemma, leaf.upos))
    assert len(called) > len(NOUNS["person"].split())
    assert all(len(words) == 1 for words in called.values())


def test_parts_are_apart_and_drawn_by_seed():
    parts = generate_pairs(size=110)
    assert {split: len(made) for split, made in parts.items()} == {
        "train": 88, "dev": 11, "test": 11,
    }  # fmt: skip
    english = [text for made in parts.values() for text, _ in made]
    assert len(set(english)) == 110
    assert generate_pairs(size=110) == parts != generate_pairs(seed=1, size=110)
    for text, said in parts["train"]:
        assert text[-1] == said[-1]
        assert said[0] == said[0].upper()


def test_files_of_others_are_left_alone(tmp_path):
    paths = write_pairs(tmp_path / "pairs", size=30)
    assert [path.name for path in paths][:2] == ["train.en", "train.lo"]
    assert len(paths[0].read_text("utf-8").splitlines()) == 24
    write_pairs(tmp_path / "pairs", size=30)  # the same again is nothing new
    paths[1].write_text("mine\n")
    with pytest.raises(UserError, match=r"train\.lo exists with other contents"):
        write_pairs(tmp_path / "pairs", size=30)
    with pytest.raises(UserError, match=r"is a file\. Pass a folder"):
        write_pairs(paths[0], size=30)

"""Texts token by token: nothing broken is said, and together it is the whole."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft import registry
from weft.tokens.streaming_decoder import REPLACEMENT, StreamingDecoder

TEXTS = [
    "Grüße, the 5 cats aren't here.",
    "日本 text – € and 🙂🙃!",
    "aaa bbb the the cats cats €€",
]
KINDS = {
    "word": {},
    "character": {},
    "bpe": {"vocab_size": 97},
    "bytes": {"kind": "bpe", "vocab_size": 301, "byte_level": True},
    "wordpiece": {"vocab_size": 113},
    "unigram": {"vocab_size": 97},
}


@pytest.fixture(scope="module")
def tokenizers():
    made = {}
    for name, options in KINDS.items():
        made[name] = registry.build("tokenizer", {"kind": name, **options}).train(TEXTS * 3)
    return made


def spelled(tokenizer, ids, before=()):
    spelling = StreamingDecoder(tokenizer, before)
    return [*(spelling.add(id) for id in ids), spelling.rest()]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("text", TEXTS)
def test_streamed_pieces_join_to_the_whole_text(tokenizers, name, text):
    tokenizer = tokenizers[name]
    (ids,) = tokenizer.encode_ids([text])
    pieces = spelled(tokenizer, ids.tolist())
    assert "".join(pieces) == tokenizer.decode(ids)
    assert REPLACEMENT not in "".join(pieces)
    assert len([piece for piece in pieces if piece]) > 3  # not all at the end


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(7, 300), max_size=23), cut=st.integers(0, 23))
def test_bytes_in_any_order(tokenizers, ids, cut):
    tokenizer = tokenizers["bytes"]
    ids = [id % len(tokenizer) for id in ids]
    whole = tokenizer.decode(ids)
    assert "".join(spelled(tokenizer, ids)) == whole
    before = tokenizer.decode(ids[:cut])
    if not before.endswith(REPLACEMENT):  # a prompt is a text, and ends with a whole character
        assert before + "".join(spelled(tokenizer, ids[cut:], ids[:cut])) == whole


def test_half_a_character_waits_for_the_other(tokenizers):
    tokenizer = tokenizers["bytes"]
    raw = registry.build("tokenizer", {"kind": "bpe", "vocab_size": 290, "byte_level": True})
    plain = raw.train(["abc"] * 3)  # knows no sequence of bytes
    (ids,) = plain.encode_ids(["é🙂"])
    assert spelled(plain, ids.tolist()) == ["", "é", "", "", "", "🙂", ""]
    assert spelled(plain, ids.tolist()[:3]) == ["", "é", "", REPLACEMENT]
    assert tokenizer.decode(tokenizer.encode_ids(["🙂"])[0]) == "🙂"


def test_the_space_belongs_to_what_comes_next(tokenizers):
    tokenizer = tokenizers["word"]
    before, after = tokenizer.encode_ids(["the", "cats"])
    assert spelled(tokenizer, after, before) == [" cats", ""]
    assert spelled(tokenizer, after) == ["cats", ""]
    assert StreamingDecoder(tokenizer, before, strip_space=True).add(after[0]) == "cats"
    letters = tokenizers["character"]
    before, after = letters.encode_ids(["the ", " c"])
    spelling = StreamingDecoder(letters, before, strip_space=True)
    assert [spelling.add(id) for id in after] == [" ", "c"]


def test_a_mark_that_the_tokenizer_does_not_have_says_nothing(tokenizers):
    tokenizer = tokenizers["word"]
    assert spelled(tokenizer, [len(tokenizer)]) == ["", ""]

"""Tokenizers with words beyond their vocabulary: those that are copied, and those added."""

import pytest

from weft import registry
from weft.errors import UserError
from weft.tokens.tokenizer import Tokenizer

TEXTS = ["the dog barks at the cat", "a cat sleeps"]
BEYOND = 100


def made(kind="word", **options):
    return registry.build("tokenizer", {"kind": kind, **options}).train(TEXTS)


def test_oov_words_get_ids_in_order_of_appearance():
    tokenizer = made()
    ((tokens, oov_words),) = tokenizer.encode_with_oov(["the Zork barks Bo zork"], BEYOND)
    assert oov_words == ("zork", "bo")  # as the tokenizer normalises words
    known = dict(zip(tokenizer.vocabulary, range(99), strict=False))
    assert tokens.ids.tolist() == [known["the"], 100, known["barks"], 101, 100]


def test_only_known_oov_words_are_found_in_another_text():
    tokenizer = made()
    ((tokens, _),) = tokenizer.encode_with_oov(["bo xy zork"], BEYOND, [("zork", "bo")])
    assert tokens.ids.tolist() == [101, 1, 100]
    with_none = tokenizer.encode_with_oov(["bo"], BEYOND, [()])
    assert with_none[0][0].ids.tolist() == [1]


@pytest.mark.parametrize(("kind", "options"), [("word", {}), ("bpe", {"vocab_size": 60})])
def test_copied_words_are_written(kind, options):
    tokenizer = made(kind, **options)
    text = "the dog é barks"
    ((tokens, oov_words),) = tokenizer.encode_with_oov([text], BEYOND)
    assert oov_words == ("é",)
    assert tokenizer.decode(tokens.ids, {BEYOND: "é"}) == text
    with pytest.raises(UserError, match="Id 100 is not in this tokenizer"):
        tokenizer.decode(tokens.ids)


@pytest.mark.parametrize(("kind", "options"), [("word", {}), ("bpe", {"vocab_size": 60})])
def test_added_words_are_one_token_wherever_they_stand(kind, options):
    plain = made(kind, **options)
    tokenizer = plain.with_words(["⟨customer rating⟩"])
    assert len(tokenizer) == len(plain) + 1 == len(made(kind, **options)) + 1
    (ids,) = tokenizer.encode_ids(["the⟨customer rating⟩cat ⟨customer rating⟩"])
    assert ids.tolist().count(len(plain)) == 2
    assert Tokenizer.from_json(tokenizer.to_json()).vocabulary == tokenizer.vocabulary

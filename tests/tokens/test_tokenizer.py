"""Every kind of tokenizer: the promises they share, then what is special to each."""

import hashlib
import os
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from tests.fixtures.tokenizers import CORPUS, SETTINGS, TEXT, TRAINED
from weft import registry
from weft.errors import UserError
from weft.tokens import SPECIALS, UNK, Tokenizer, offsets

every_kind = pytest.mark.parametrize("name", SETTINGS)


def test_every_registered_kind_is_tested():
    assert {spec["kind"] for spec in SETTINGS.values()} == set(registry.parts("tokenizer"))


def surfaces(name, text):
    return TRAINED[name].strings([text])[0]


@every_kind
def test_pad_is_zero_unk_is_one_and_subwords_know_all_specials(name):
    specials = SPECIALS if name not in ("word", "whitespace", "character") else SPECIALS[:2]
    assert TRAINED[name].vocabulary[: len(specials)] == specials


@every_kind
@settings(max_examples=60, deadline=None)
@given(texts=st.lists(TEXT, max_size=3))
def test_any_text_gives_ids_and_spans_in_order(name, texts):
    tokenizer = TRAINED[name]
    for text, ids, tokens in zip(
        texts, tokenizer.encode_ids(texts), tokenizer.encode_batch(texts), strict=True
    ):
        assert (
            ids.dtype == tokens.ids.dtype == tokens.offsets.dtype == tokens.words.dtype == np.int32
        )
        np.testing.assert_array_equal(ids, tokens.ids)
        assert tokens.offsets.shape == (len(ids), 2)
        assert tokens.words.shape == (len(ids),)
        assert ((ids == 1) | (ids >= 2)).all()
        assert (np.diff(tokens.offsets, axis=0) >= 0).all()
        empty = tokens.offsets[:, 0] == tokens.offsets[:, 1]
        assert not empty[1:].any()  # only a "▁" before the first word stands for no character
        assert (tokens.words[empty] == -1).all()
        assert (tokens.offsets >= 0).all()
        assert (tokens.offsets <= len(text)).all()
        inside = tokens.words[tokens.words >= 0]
        assert (np.diff(inside) >= 0).all()
        assert set(inside.tolist()) == set(range(len(set(inside.tolist()))))


@every_kind
@settings(max_examples=40, deadline=None)
@given(texts=st.lists(TEXT, max_size=5))
def test_batched_and_single_texts_have_equal_tokens(name, texts):
    """However few characters are looked at together."""
    tokenizer, usual = TRAINED[name], offsets.MAX_BATCH_CHARACTERS
    try:
        for offsets.MAX_BATCH_CHARACTERS in (usual, 7):
            for text, tokens in zip(texts, tokenizer.encode_batch(texts), strict=True):
                (alone,) = tokenizer.encode_batch([text])
                for one, other in zip(vars(tokens).values(), vars(alone).values(), strict=True):
                    np.testing.assert_array_equal(one, other)
    finally:
        offsets.MAX_BATCH_CHARACTERS = usual


def test_whitespace_is_what_python_says():
    letters = [c for c in map(chr, range(0x11000)) if not "\x1c" <= c <= "\x1f"]
    found = offsets._is_whitespace("".join(letters))
    assert [c for c, blank in zip(letters, found, strict=True) if blank] == [
        c for c in letters if c.isspace()
    ]
    assert offsets._is_whitespace("a b\tc\x1d").tolist() == [False, True, False, True, False, False]


@every_kind
def test_a_text_that_spells_a_special_token_is_only_text(name):
    tokenizer = TRAINED[name]
    for special in SPECIALS:
        ids = tokenizer.encode_ids([special, f"a {special} b", f"{special}{special}"])
        specials = {i for i, entry in enumerate(tokenizer.vocabulary) if entry in SPECIALS}
        assert not (set(np.concatenate(ids).tolist()) & (specials - {1}))
        assert "".join(tokenizer.strings([special])[0]).endswith(special[1:])
        assert len(ids[0]) > 1
    known = TRAINED[name].encode_ids(["<pad> <unk>"])[0]
    assert (known != 1).all()  # both are spelled out in the training texts


@every_kind
def test_empty_texts_and_empty_batches(name):
    assert TRAINED[name].encode_ids([]) == []
    empty = TRAINED[name].encode_batch([""])[0]
    assert empty.ids.shape == empty.words.shape == (0,)
    assert empty.offsets.shape == (0, 2)


@every_kind
def test_a_very_long_line(name):
    for unit in ("a", "a'", "1,", "\N{WOMAN}\u200d"):
        text = unit * (100_000 // len(unit))
        assert TRAINED[name].encode_batch([text])[0].offsets[-1, 1] == len(text)


@every_kind
def test_saved_and_loaded(name, tmp_path):
    TRAINED[name].save(tmp_path / "tokenizer.json")
    again = Tokenizer.load(tmp_path / "tokenizer.json")
    assert again.vocabulary == TRAINED[name].vocabulary
    assert again.to_json() == TRAINED[name].to_json()
    for text in [*CORPUS, "<pad> x"]:
        np.testing.assert_array_equal(
            again.encode_ids([text])[0], TRAINED[name].encode_ids([text])[0]
        )


def test_training_again_in_another_process_gives_the_same_bytes():
    code = (
        "import hashlib; from tests.fixtures.tokenizers import TRAINED\n"
        "for t in TRAINED.values(): print(hashlib.sha256(t.to_json().encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    assert out == [hashlib.sha256(t.to_json().encode()).hexdigest() for t in TRAINED.values()]


@every_kind
@pytest.mark.parametrize("texts", [[], ["", " \n"]])
def test_nothing_to_learn_from_is_an_error(name, texts):
    if name == "character":  # whitespace is characters too
        texts = []
    with pytest.raises(UserError, match=r"the training texts hold no .* Check the file"):
        registry.build("tokenizer", SETTINGS[name]).train(texts)


@every_kind
def test_training_takes_a_stream_and_lone_surrogates(name):
    part = registry.build("tokenizer", SETTINGS[name])
    assert len(part.train(text for text in ["a \ud800 b", *CORPUS])) > 7


@pytest.mark.parametrize("name", ["bpe", "bytes", "wordpiece", "unigram"])
def test_subword_vocabularies_keep_to_their_size(name):
    text = [" ".join(hashlib.sha256(bytes([i])).hexdigest() for i in range(97))]
    part = registry.build("tokenizer", SETTINGS[name])
    assert len(part.train(text)) == 331
    many = ["".join(map(chr, range(0x4E00, 0x4E00 + 997))) * 2]
    assert len(part.train(many)) <= 331


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"kind": "word", "vocab_size": 2}, "'vocab_size' should be 3 or more .*got 2"),
        ({"kind": "word", "min_count": 0}, "'min_count' should be 1 or more, got 0"),
        (
            {"kind": "bpe", "vocab_size": 100, "byte_level": True},
            "'vocab_size' should be 284 or more",
        ),
        (
            {"kind": "bpe", "vocab_sise": 100},
            "Unknown option 'vocab_sise' .*Did you mean 'vocab_size'",
        ),
        (
            {"kind": "word", "normalise": "nfd"},
            "'normalise' should be one of 'none', 'nfc', 'nfkc'",
        ),
    ],
)
def test_bad_settings(spec, message):
    with pytest.raises(UserError, match=message):
        registry.build("tokenizer", spec)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "t.json: cannot read the tokenizer: No such file"),
        (b"", "t.json: not a tokenizer file, or damaged"),
        (b'{"version": "1.0", "model": {"type": "Wor', "t.json: not a tokenizer file, or damaged"),
        (b"\xff\xfe\x00", "t.json: not a tokenizer file"),
    ],
)
def test_a_bad_file_is_named(tmp_path, content, message):
    if content is not None:
        (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(UserError, match=message):
        Tokenizer.load(tmp_path / "t.json")


def test_decoding_refuses_ids_it_does_not_have():
    size = len(TRAINED["word"])
    with pytest.raises(UserError, match=f"Id {size} is not in .* from 0 to {size - 1}"):
        TRAINED["word"].decode([2, size])


def test_decoding_leaves_out_specials_but_shows_unknowns():
    tokenizer = TRAINED["bpe"]
    ids = [SPECIALS.index("<bos>"), *tokenizer.encode_ids(["the film"])[0], 1, 0, 0]
    assert tokenizer.decode(ids) == f"the film{UNK}"


def test_one_text_instead_of_a_list_is_caught():
    with pytest.raises(TypeError, match="sequence of texts"):
        TRAINED["word"].encode_ids("a text")


def test_special_tokens_of_a_foreign_file_are_not_read_from_a_text():
    raw = tokenizers.Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1, "x": 2}, unk_token="[UNK]"))
    raw.add_special_tokens(["[PAD]"])
    raw.pre_tokenizer = Whitespace()
    raw.enable_truncation(2)
    tokenizer = Tokenizer.from_json(raw.to_str())
    assert tokenizer.encode_ids(["x [PAD] x"])[0].tolist() == [2, 1, 1, 1, 2]
    assert tokenizer.decode([2, 0, 2]) == "x x"


# ---- words


@settings(max_examples=150, deadline=None)
@given(TEXT)
def test_words_in_order_are_the_text_without_whitespace(text):
    solid = "".join(c for c in text if not c.isspace() or "\x1c" <= c <= "\x1f")
    for name in ("word", "whitespace"):
        if unicodedata.is_normalized("NFC", text):
            assert "".join(surfaces(name, text)) == solid


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don't! l’homme 'tis", ["Don't", "!", "l’homme", "'", "tis"]),
        ("3.14, 1,000. 5.", ["3.14", ",", "1,000", ".", "5", "."]),
        ("well-made x_y...", ["well", "-", "made", "x", "_", "y", ".", ".", "."]),
        ("漢字かな", ["漢", "字", "か", "な"]),
        ("ภาษาไทย हिन्दी", ["ภาษาไทย", "हिन्दी"]),
        ("👩‍👩‍👧👍🏽🇨🇿🇩🇪1️⃣☺️", ["👩‍👩‍👧", "👍🏽", "🇨🇿", "🇩🇪", "1️⃣", "☺️"]),
        ("می‌خواهم", ["می‌خواهم"]),
        ("e\u0301te\u0301 x", ["e\u0301te\u0301", "x"]),
        ("a\x00b\u00a0c\u3000d", ["a", "\x00", "b", "c", "d"]),
        ("3rd B2B 2º", ["3rd", "B2B", "2º"]),
    ],
)
def test_words_are_split(text, expected):
    assert surfaces("word", text) == expected


def test_options_of_words():
    def trained(**options):
        return registry.build("tokenizer", {"kind": "word", **options}).train(["Well-made CAFÉ ﬁn"])

    assert set(trained().vocabulary[2:]) == {"well", "-", "made", "café", "ﬁn"}
    assert "well-made" in trained(hyphens=True).vocabulary
    assert "CAFÉ" in trained(lowercase=False).vocabulary
    assert "cafe" in trained(accents="strip").vocabulary
    assert "fin" in trained(normalise="nfkc").vocabulary
    assert trained(whitespace=True).strings(["a-b, c"]) == [["a-b,", "c"]]


def test_words_are_ordered_by_count_then_alphabet():
    counts = Counter(["b", "a", "c", "c", "d", "d", "d"])
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    text = [" ".join(counts.elements())]
    for options, kept in (
        ({}, expected),
        ({"vocab_size": 4}, expected[:2]),
        ({"min_count": 2}, ["d", "c"]),
    ):
        tokenizer = registry.build("tokenizer", {"kind": "word", **options}).train(text)
        assert list(tokenizer.vocabulary[2:]) == kept


def test_a_minimum_nothing_reaches_is_an_error():
    with pytest.raises(UserError, match=r"no word that occurs 5 times.*lower 'min_count'"):
        registry.build("tokenizer", {"kind": "word", "min_count": 5}).train(["a b c"])


# ---- characters and sub-words


def test_characters_keep_spaces_and_know_their_word():
    tokens = TRAINED["character"].encode_batch(["a film"])[0]
    assert tokens.words.tolist() == [0, -1, 1, 1, 1, 1]
    assert TRAINED["character"].decode(tokens.ids) == "a film"


@settings(max_examples=100, deadline=None)
@given(TEXT)
def test_byte_level_pieces_keep_the_whole_text(text):
    clean = unicodedata.normalize("NFC", text.encode("utf-8", "replace").decode())
    tokenizer = TRAINED["bytes"]
    assert tokenizer.decode(tokenizer.encode_ids([clean])[0]) == clean


@pytest.mark.parametrize("name", ["bpe", "unigram"])
def test_marked_spaces_come_back(name):
    text = "It wasn't the best film; it was not."
    tokenizer = TRAINED[name]
    assert tokenizer.decode(tokenizer.encode_ids([f"  {text}\n"])[0]) == text
    assert not any(surface.startswith(" ") and surface.strip() for surface in surfaces(name, text))


def test_wordpiece_continues_with_hashes():
    tokenizer = TRAINED["wordpiece"]
    entries = [tokenizer.vocabulary[i] for i in tokenizer.encode_ids(["filmest"])[0]]
    assert entries[0] == "film"
    assert all(entry.startswith("##") for entry in entries[1:])
    assert tokenizer.decode(tokenizer.encode_ids(["Filmest it"])[0]) == "filmest it"


def test_encode_gives_offsets_and_decode_inverts_it():
    tokenizer = TRAINED["bpe"]
    text = "the old film was good"
    tokens = tokenizer.encode(text)
    assert [text[a:b] for a, b in tokens.offsets.tolist()] == tokenizer.strings([text])[0]
    np.testing.assert_array_equal(tokens.ids, tokenizer.encode_ids([text])[0])
    assert tokenizer.decode(tokens.ids).split() == text.split()

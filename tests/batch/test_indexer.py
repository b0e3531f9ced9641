import numpy as np
import pytest

from weft.batch.indexer import Indexer
from weft.embed.characters import CharacterCNN
from weft.errors import UserError
from weft.tokens.word import Word

TOKENIZER = Word().train(["a b c d e f g"])
TEXTS = ["a b", "", "a b c d e f g"]


def rows(policy, **settings):
    return list(Indexer(TOKENIZER, limit=3, policy=policy, **settings).rows(TEXTS))


def words(row):
    return "".join(TOKENIZER.vocabulary[i] for i in row.ids)


@pytest.mark.parametrize(
    ("policy", "kept", "coverage"),
    [("head", "abc", 3 / 7), ("tail", "efg", 3 / 7), ("head+tail", "abg", 3 / 7)],
)
def test_truncation_policies_keep_the_right_part(policy, kept, coverage):
    short, empty, long = rows(policy)
    assert (words(short), short.coverage) == ("ab", 1.0)
    assert (words(empty), empty.coverage) == ("<unk>", 0.0)
    assert (words(long), long.coverage) == (kept, pytest.approx(coverage))


def test_windows_read_everything():
    long = [row for row in rows("windows") if row.text == 2]
    assert set("".join(map(words, long))) == set("abcdefg")
    assert {row.coverage for row in long} == {1.0}
    assert all(len(row.ids) <= 3 for row in long)


def test_error_names_the_place():
    index = Indexer(TOKENIZER, limit=3, policy="error")
    with pytest.raises(UserError, match=r"^here:3 has 7 tokens, the limit is 3\."):
        list(index.rows(TEXTS, where=lambda i: f"here:{i + 1}"))


def test_spans_and_pieces_follow_the_cut():
    embedder = CharacterCNN(width=5, max_bytes=4)
    index = Indexer(TOKENIZER, [embedder], limit=2, policy="tail")
    (row,) = index.rows(["a élan longest"], spans=True)
    assert row.spans.tolist() == [[2, 6], [7, 14]]
    assert [len(piece) for piece in row.subtokens[0]] == [2 + 4, 2 + 4]  # marks and at most 4 bytes
    assert row.clipped == 2  # é takes two bytes
    assert row.ids.dtype == np.int32


@pytest.mark.parametrize(("first", "second"), [("", "a"), ("a", ""), ("", "")])
def test_an_empty_text_of_a_pair_is_one_unknown_token(first, second):
    (row,) = Indexer(TOKENIZER).rows([first], others=[second])
    known, unknown = TOKENIZER.encode_ids(["a"])[0][0], TOKENIZER.unknown
    assert row.ids.tolist() == [known if text else unknown for text in (first, second)]
    assert row.second == 1

"""What stands around two texts that share a row, or have a frame each."""

from dataclasses import replace

import numpy as np

from weft.batch.indexer import Indexer
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.word import Word

BERT = SpecialTokens((101,), (102,), (102,))
A, B = np.array([7, 8, 9]), np.array([5, 6])


def test_two_texts_in_one_frame():
    ids, second = BERT.wrap(A, B)
    assert ids.tolist() == [101, 7, 8, 9, 102, 5, 6, 102]
    assert ids[second] == 5
    assert BERT.num_added(pair=True) == 3


def test_two_texts_with_a_frame_each():
    each = replace(BERT, each=True)
    ids, second = each.wrap(A, B)
    assert ids.tolist() == [101, 7, 8, 9, 102, 101, 5, 6, 102]
    assert ids[second] == 101
    places = each.spans(np.ones((3, 2)), np.full((2, 2), 2))
    assert places[:, 0].tolist() == [0, 1, 1, 1, 0, 0, 2, 2, 0]
    assert each.num_added() == each.num_added(pair=True) == 2


def test_the_limit_is_that_of_either_text_where_they_are_read_apart():
    tokenizer = Word().train(["a b c d e f g"])
    pair = (["a b c d e f g"], ["a b c"])
    joint = Indexer(tokenizer, limit=6, frame=BERT)
    (row,) = joint.rows(pair[0], others=pair[1])
    assert len(row.ids) == 6
    apart = Indexer(tokenizer, limit=6, frame=replace(BERT, each=True))
    (row,) = apart.rows(pair[0], others=pair[1])
    assert row.second == 6
    assert len(row.ids) == 6 + 5
    assert row.coverage == (4 + 3) / 10
    windows = replace(apart, policy="windows")
    rows = list(windows.rows(pair[0], others=["a b c d e"]))
    assert len(rows) == 4  # two windows of each, and all of them meet
    assert {row.coverage for row in rows} == {1.0}


def test_a_text_without_tokens_is_the_frame_alone():
    index = Indexer(Word().train(["a b"]), limit=6, frame=BERT)
    (row,) = index.rows([" "], spans=True)
    assert row.ids.tolist() == [101, 102]
    assert row.spans.tolist() == [[0, 0], [0, 0]]
    assert row.coverage == 0.0  # there was nothing to read
    a = Word().train(["a b"]).encode_ids(["a"])[0].tolist()
    (row,) = index.rows([""], others=["a"])
    assert row.ids.tolist() == [101, 102, *a, 102]
    (row,) = index.rows(["a"], others=[""])
    assert (row.ids.tolist(), row.second) == ([101, *a, 102, 102], 3)
    (row,) = replace(index, frame=replace(BERT, each=True)).rows(["a"], others=[""])
    assert (row.ids.tolist(), row.second) == ([101, *a, 102, 101, 102], 3)

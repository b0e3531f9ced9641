"""Segments of documents and what is hidden in them: statistics, boundaries, and how fast it is."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.mlm_batches import MASK, V, corpus
from weft.batch import Position
from weft.batch.documents import (
    Documents,
    encode_documents,
    segment_pairs,
    shuffle_pools,
    single_segments,
)
from weft.batch.mlm_collator import Masking, MLMLabels, MLMLoader, choose_positions
from weft.tokens.special_tokens import SpecialTokens
from weft.tokens.subword import BPE, WordPiece

FRAME = SpecialTokens((4,), (5,), (5,))
MASKING = Masking(MASK, np.arange(7, V), FRAME, window=61)


def counted():
    """Documents whose ids are their own numbers: a token says where it stands."""
    out, start = Documents(), 100
    for sizes in ((3, 4, 5, 2, 9, 1, 30), (1,), (7, 2), (60,), (2, 2, 2), (), (200,)):
        rows = []
        for n in sizes:
            rows.append(np.arange(start, start + n, dtype=np.int32))
            start += n
        out.append(rows)
    return out.close()


def batches(documents, masking=MASKING, rows=13, seed=3, epochs=1):
    return MLMLoader(documents, masking, rows=rows, seed=seed, epochs=epochs)


def test_shares_over_a_million_tokens():
    documents = corpus(1_000_000)
    for whole in (False, True):
        masking = replace(MASKING, window=128, whole_words=whole)
        documents = corpus(1_000_000, words=True) if whole else documents
        tokens = hidden = masks = kept = rows = strange = 0
        for batch, _ in batches(documents, masking, rows=64):
            target = MLMLabels.of(batch.target)
            asked = target.ids >= 0
            now = batch.source.data.gather(1, target.positions.clamp(min=0))[asked]
            tokens += int(batch.source.lengths.sum()) - 3 * len(batch)
            hidden += len(now)
            masks += int((now == MASK).sum())
            kept += int((now == target.ids[asked]).sum())
            rows += len(batch)
            strange += int(target.is_random_next.sum())
        assert tokens > 1_000_000
        assert abs(hidden / tokens - 0.15) < 0.001
        assert abs(masks / hidden - 0.8) < 0.001
        assert abs(kept / hidden - 0.1 - 0.1 / V) < 0.001  # a random word may be the right one
        assert abs(strange / rows - 0.5) < 3 * 0.5 / rows**0.5


@pytest.mark.parametrize("follows", [True, False])
def test_rows_are_framed_and_nothing_crosses_documents(follows):
    documents = counted()
    masking = replace(
        MASKING, window=23, next_sentence=follows, mask_fraction=0.2, mask=1, words=np.array([2])
    )
    starts = documents.starts + 100
    for batch, _ in batches(documents, masking, rows=5, epochs=7):
        target = MLMLabels.of(batch.target)
        assert batch.source.data.shape == (len(batch), 23)
        for i, length in enumerate(batch.source.lengths.tolist()):
            ids = batch.source.data[i].clone()
            asked = target.ids[i] >= 0
            places = target.positions[i][asked]
            assert len(places.unique()) == len(places) >= 1
            ids[places] = target.ids[i][asked]
            ids, rest = ids[:length], ids[length:]
            assert not rest.any()
            assert ids[0] == 4
            assert ids[-1] == 5
            if follows:
                middle = int(batch.source.second[i])
                assert ids[middle - 1] == 5
                parts = [ids[1 : middle - 1], ids[middle:-1]]
            else:
                assert batch.source.second is None
                parts = [ids[1:-1]]
            assert min(map(len, parts)) > 0
            assert (ids >= 100).sum() == sum(map(len, parts))  # so places were never in the frame
            owners = []
            for part in parts:
                assert part.diff().eq(1).all()  # a run of tokens of the text
                owners.append(set((np.searchsorted(starts, part.numpy(), "right")).tolist()))
                assert len(owners[-1]) == 1  # of one document
            if follows:
                strange = int(target.is_random_next[i])
                assert (owners[0] != owners[1]) == bool(strange)
                assert strange or parts[1][0] > parts[0][-1]


def test_segments_are_contiguous_and_unused_text_is_read_later():
    """Without cutting, a document is told by the rows that are not strange and first segments."""
    documents = counted()
    found = segment_pairs(documents, np.array([0]), 1000, 0.0, (1,))
    for (a, b), (c, d), strange in zip(*map(np.ndarray.tolist, found), strict=True):
        assert a < b
        assert c < d
        if not strange:
            assert b == c
        ends = set(documents.sentences.tolist())
        assert {a, b, c, d} <= ends
    covered = [range(a, b) for a, b in found.first.tolist()]
    covered += [
        range(c, d)
        for (c, d), s in zip(found.second.tolist(), found.is_random_next, strict=True)
        if not s
    ]
    seen = sorted(token for one in covered for token in one)
    # All tokens once, but for a last sentence with nothing behind it to be parted from.
    assert seen == list(range(len(seen)))
    assert len(seen) >= documents.starts[1] - 30


@settings(deadline=None, max_examples=30)
@given(st.integers(2, 50), st.integers(0, 10_000))
def test_pairs_fit_and_lose_tokens_of_the_longer_segment_first(room, seed):
    found = segment_pairs(counted(), np.arange(7), room, 0.1, (seed,))
    a, b = (part[:, 1] - part[:, 0] for part in found[:2])
    assert (a + b <= room).all()
    assert (a > 0).all()
    assert (b > 0).all()


def test_pair_truncation_equals_removing_tokens_one_by_one():
    from weft.batch.documents import _trim

    draw = np.random.default_rng(0)
    for a, b, room in [
        (9, 3, 7),
        (3, 9, 7),
        (8, 8, 7),
        (8, 8, 6),
        (5, 2, 7),
        (20, 1, 7),
        (4, 4, 7),
    ]:
        first, second = _trim(np.array([[0, a]]), np.array([[50, 50 + b]]), room, draw)
        x, y = a, b
        while x + y > room:
            x, y = (x - 1, y) if x > y else (x, y - 1)
        assert (first[0, 1] - first[0, 0], second[0, 1] - second[0, 0]) == (x, y)
        assert 0 <= first[0, 0] <= first[0, 1] <= a
        assert 50 <= second[0, 0] <= second[0, 1] <= 50 + b


def test_segments_cover_every_token_and_fill_the_window():
    documents = counted()
    for seed in range(5):
        found = single_segments(documents, documents.nonempty, 20, (seed,))
        seen = {t for a, b in found.first.tolist() for t in range(a, b)}
        assert seen == set(range(documents.size))
        sizes, owner = np.diff(found.first, axis=1)[:, 0], documents.document_of(found.first[:, 0])
        whole = np.diff(documents.starts)[owner]
        assert (sizes == np.minimum(whole, 20)).all()


def test_whole_words_are_chosen_or_none_of_them():
    documents = corpus(words=True)
    masking = replace(MASKING, whole_words=True)
    for batch, _ in batches(documents, masking):
        target = MLMLabels.of(batch.target)
        for i, start in enumerate(batch.rows.tolist()):
            asked = set(target.positions[i][target.positions[i] >= 0].tolist())
            size = int(batch.source.second[i]) - 2
            begins = documents.begins.read(start, start + size)
            words = np.cumsum(begins)
            for word in np.unique(words):
                own = {1 + s for s in np.flatnonzero(words == word).tolist()}
                assert own <= asked or not own & asked
    assert any((MLMLabels.of(b.target).ids >= 0).any() for b, _ in batches(documents, masking))


def test_every_token_is_chosen_equally_often():
    draw = np.random.default_rng(1)
    real = np.ones((20_000, 53), bool)
    real[:, [0, 7, 52]] = False
    begins = real & ~np.isin(np.arange(53), [3, 4, 11])  # words of three and of two tokens
    for mark in (None, begins):
        masking = replace(MASKING, window=53, whole_words=mark is not None)
        places = choose_positions(real, mark, masking, 53, draw)
        often = np.bincount(places[places >= 0], minlength=53) / len(real)
        assert not often[[0, 7, 52]].any()
        assert often.sum() == pytest.approx(0.15 * 50, abs=0.03)
        # A word that does not fit any more is left out sooner when it is long.
        assert np.abs(often[real[0]] - 0.15).max() < (0.01 if mark is None else 0.02)


def test_drawn_anew_each_epoch_and_the_same_for_the_same_seed():
    documents = corpus(5_000)

    def drawn(**options):
        return [(b.source.data, b.target) for b, _ in batches(documents, **options)]

    once, again, other = drawn(), drawn(), drawn(seed=4)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(once, again, strict=True))
    assert not all(torch.equal(a[0], b[0]) for a, b in zip(once, other, strict=False))
    both = drawn(epochs=2)
    assert all(torch.equal(a[0], b[0]) for a, b in zip(once, both, strict=False))
    assert not any(torch.equal(a[0], b[0]) for a, b in zip(once, both[len(once) :], strict=False))


def test_going_on_from_a_position_gives_the_same_batches():
    made = batches(corpus(5_000), epochs=2)
    whole = list(made)
    assert whole[-1][1] == Position(2, 0)
    for cut in (1, 5, len(whole) - 2):
        made.position = whole[cut - 1][1]
        rest = list(made)
        assert [p for _, p in rest] == [p for _, p in whole[cut:]]
        assert all(
            torch.equal(a.target, b.target)
            for (a, _), (b, _) in zip(rest, whole[cut:], strict=True)
        )


def test_last_fraction_of_training_uses_long_windows():
    documents = corpus(60_000)
    masking = replace(MASKING, window=32, long_window=61, long_fraction=0.25)
    for epochs in (1, 3):
        made = batches(documents, masking, epochs=epochs)
        wide = [(b.source.data.shape[1], len(b)) for b, _ in made]
        widths = [width for width, _ in wide]
        assert widths == sorted(widths)
        assert set(widths) == {32, 61}
        assert {n for width, n in wide if width == 61} >= {13 * 32 // 61}
        assert widths.count(61) / len(widths) == pytest.approx(0.25, abs=0.02)
    longest = max(int(b.source.lengths.max()) for b, _ in made)
    assert longest == 61


def test_documents_on_disk_give_the_same_batches(tmp_path):
    kept = corpus(5_000, words=True)
    filed = corpus(5_000, words=True, folder=tmp_path, memory=100)
    assert filed.ids.on_disk
    assert filed.begins.on_disk
    masking = replace(MASKING, whole_words=True)
    for (a, _), (b, _) in zip(batches(kept, masking), batches(filed, masking), strict=True):
        assert torch.equal(a.source.data, b.source.data)
        assert torch.equal(a.target, b.target)


def test_pools_hold_every_document_once(monkeypatch):
    from weft.batch import documents as module

    monkeypatch.setattr(module, "POOL_TOKENS", 1000)
    documents = corpus(20_000)
    order = np.random.default_rng(0).permutation(len(documents))
    found = list(shuffle_pools(documents, order))
    assert len(found) > 10
    assert np.concatenate(found).tolist() == order.tolist()
    seen = {
        int(row) for batch, _ in batches(documents) for row in documents.document_of(batch.rows)
    }
    assert seen == set(documents.nonempty.tolist())


def test_lines_and_owners():
    documents = corpus(1_000)
    assert documents.line(0) == 1
    assert documents.line(int(documents.starts[1])) == 11
    assert documents.line(int(documents.starts[1]) - 1) == 1


def test_single_document_has_no_random_next_sentence():
    documents = Documents()
    documents.append([np.arange(7, 20, dtype=np.int32)] * 9)
    found = segment_pairs(documents.close(), np.array([0]), 30, 0.1, (1,))
    assert found.size > 2
    assert not found.is_random_next.any()


def test_texts_become_documents():
    lines = ["the dogs were running\nthe cats slept", "", "unrunning dogs"]
    tokenizer = WordPiece(vocab_size=200, min_count=3).train(lines)
    found = encode_documents(((line, i + 1) for i, line in enumerate(lines)), tokenizer, words=True)
    assert len(found) == 3
    assert found.nonempty.tolist() == [0, 2]
    ids, begins = found.ids.read(0, found.size), found.begins.read(0, found.size)
    entries = [tokenizer.vocabulary[i] for i in ids]
    assert [not entry.startswith("##") for entry in entries] == begins.tolist()
    assert not all(begins)
    assert [found.line(int(start)) for start in found.starts[[0, 2]]] == [1, 3]
    byte = BPE(vocab_size=300, byte_level=True, min_count=1).train(lines)
    spaced = encode_documents(((line, 1) for line in lines[:1]), byte)
    assert byte.decode(spaced.ids.read(0, spaced.size)) == lines[0].replace("\n", " ")


def test_an_error_in_the_thread_is_raised_and_a_thread_that_is_left_ends():
    import threading

    made = batches(corpus(20_000))
    stream = iter(made)
    next(stream)
    before = threading.active_count()
    stream.close()
    for _ in range(50):
        if threading.active_count() < before:
            break
        threading.Event().wait(0.05)
    assert threading.active_count() < before
    made._batch = lambda rows: 1 / 0
    with pytest.raises(ZeroDivisionError):
        list(made)

"""Hashing: fastText's own, bit for bit, and word n-grams against a loop."""

import ctypes

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.batch import Padded
from weft.embed.ngrams import Ngrams, WordNgrams, word_ngrams
from weft.embed.subwords import fnv1a, ngram_hashes
from weft.errors import UserError


def c_hash(letters):
    """fastText's C++ line by line: h = h ^ uint32_t(int8_t(str[i])); h = h * 16777619."""
    h = ctypes.c_uint32(2166136261)
    for byte in letters:
        h = ctypes.c_uint32(h.value ^ ctypes.c_uint32(ctypes.c_int8(byte).value).value)
        h = ctypes.c_uint32(h.value * 16777619)
    return h.value


def c_ngrams(word, shortest, longest):
    """fastText's computeSubwords over bytes, continuation bytes skipped as there."""
    letters, found = f"<{word}>".encode(), []
    for i in range(len(letters)):
        if letters[i] & 0xC0 == 0x80:
            continue
        ngram, j, n = b"", i, 1
        while j < len(letters) and n <= longest:
            ngram += letters[j : j + 1]
            j += 1
            while j < len(letters) and letters[j] & 0xC0 == 0x80:
                ngram += letters[j : j + 1]
                j += 1
            if n >= shortest and not (n == 1 and (i == 0 or j == len(letters))):
                found.append(c_hash(ngram))
            n += 1
    return found


def test_published_values_of_fnv_1a():
    assert fnv1a(b"") == 0x811C9DC5
    assert fnv1a(b"a") == 0xE40C292C
    assert fnv1a(b"foobar") == 0xBF9CF968


@given(st.text(max_size=9).filter(str.isprintable), st.integers(1, 4), st.integers(0, 3))
def test_hashes_are_fasttexts(word, shortest, more):
    assert fnv1a(word.encode()) == c_hash(word.encode())
    assert ngram_hashes(word, shortest, shortest + more) == c_ngrams(
        word, shortest, shortest + more
    )


def test_signed_bytes_matter():
    plain = 2166136261
    for byte in "é".encode():
        plain = (plain ^ byte) * 16777619 & 0xFFFFFFFF
    assert fnv1a("é".encode()) == c_hash("é".encode()) != plain


def test_pieces_hold_ngrams_and_the_word_once():
    net = Ngrams(width=3, min_n=3, max_n=4, buckets=1009)
    buckets = [h % 1009 + 1 for h in c_ngrams("cats", 3, 4)]
    assert net.subtoken_ids(["cats"]) == [[*buckets, c_hash(b"<cats>") % 1009 + 1]]
    assert net.subtoken_ids(["ab"]) == [[h % 1009 + 1 for h in c_ngrams("ab", 3, 4)]]
    assert net.subtoken_ids([]) == []


@pytest.mark.parametrize("combine", ["mean", "sum"])
def test_a_word_is_the_mean_of_its_ngrams(combine):
    net = Ngrams(width=3, buckets=11, combine=combine)
    x = Padded(torch.tensor([[[4, 7, 7, 0], [2, 0, 0, 0]]]), torch.tensor([2]))
    table = net.table.weight
    long = table[4] + 2 * table[7]
    expected = torch.stack([long / 3 if combine == "mean" else long, table[2]])
    torch.testing.assert_close(net(x).data[0], expected)


def mix(value):
    value = (value ^ (value >> 16)) * 1_073_741_827 % (2**31 - 1)
    return value ^ (value >> 15)


def slow_ngrams(row, order, buckets):
    prime = 2**31 - 1
    out = []
    for t, _ in enumerate(row):
        found = []
        for n in range(2, order + 1):
            if t - n + 1 < 0 or row[t] == 0:
                found.append(0)
                continue
            value = 0
            for word in row[t - n + 1 : t + 1][::-1]:
                value = (value * 116_049_371 + mix(word + 1)) % prime
            found.append(mix(value) % buckets + 1)
        out.append(found)
    return out


@given(st.lists(st.integers(0, 2**31 - 2), min_size=1, max_size=9), st.integers(2, 5))
def test_word_ngrams_against_a_loop(row, order):
    got = word_ngrams(torch.tensor([row]), order, 101)
    assert got[0].tolist() == slow_ngrams(row, order, 101)


def test_word_ngrams_know_order_and_spread():
    there, back = word_ngrams(torch.tensor([[5, 8], [8, 5]]), 2, 200_000)[:, 1, 0].tolist()
    assert there != back
    pairs = torch.cartesian_prod(torch.arange(2, 202), torch.arange(2, 202))
    used = word_ngrams(pairs, 2, 200_000)[:, 1, 0].unique().numel()
    expected = 200_000 * (1 - (1 - 1 / 200_000) ** 40_000)  # of balls thrown at random
    assert used > 0.97 * expected


def test_word_ngrams_add_to_the_words():
    net = WordNgrams(11, width=3, order=2, buckets=101)
    ids = torch.tensor([[4, 7]])
    bucket = word_ngrams(ids, 2, 101)[0, 1, 0]
    expected = torch.stack([net.table.weight[4], net.table.weight[7] + net.ngrams.weight[bucket]])
    torch.testing.assert_close(net(Padded(ids, torch.tensor([2]))).data[0], expected)


def test_sparse_gradients_touch_only_the_batch():
    net = WordNgrams(11, width=3, buckets=101)
    net(Padded(torch.tensor([[4, 7]]), torch.tensor([2]))).data.sum().backward()
    assert net.table.weight.grad.is_sparse
    assert sorted(net.table.weight.grad.coalesce().indices()[0].tolist()) == [4, 7]
    assert net.ngrams.weight.grad.is_sparse


def test_lengths_in_the_wrong_order():
    with pytest.raises(UserError, match=r"'max_n' \(2\) is below 'min_n' \(3\)"):
        Ngrams(min_n=3, max_n=2)

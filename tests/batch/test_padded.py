import numpy as np
import torch

from weft.batch import Padded
from weft.batch.padded import concat_pair


def test_padding_is_zeroed_and_lengths_kept():
    x = Padded.from_rows([[3, 5], [7], [2, 2, 2]])
    assert x.data.tolist() == [[3, 5, 0], [7, 0, 0], [2, 2, 2]]
    assert x.lengths.tolist() == [2, 1, 3]
    assert x.mask.tolist() == [[True, True, False], [True, False, False], [True] * 3]
    assert not x.full
    out = x.with_data(torch.ones(3, 3, 7))
    assert out.data.sum().item() == 7 * 6
    assert [len(row) for row in out.rows()] == [2, 1, 3]


def test_full_batch_needs_no_mask():
    x = Padded.from_rows([[3, 5], [7, 1]])
    assert x.full
    data = torch.randn(2, 2, 3)
    assert x.with_data(data).data is data


def test_rows_of_arrays_and_empty_rows():
    x = Padded.from_rows([np.array([1, 2], np.int32), np.array([], np.int32)])
    assert x.data.dtype == torch.int64
    assert x.lengths.tolist() == [2, 0]
    assert x.rows()[1].tolist() == []


def test_sides_put_beside_each_other_are_what_they_were():
    rows = [[[1.0, 2.0]] * 3, [[3.0, 4.0]] * 5, [[5.0, 6.0]] * 2]
    lengths, second = torch.tensor([3, 5, 2]), torch.tensor([2, 1, 1])
    data = torch.full((3, 7, 2), 99.0)
    for i, row in enumerate(rows):
        data[i, : len(row)] = torch.tensor(row) + torch.arange(len(row))[:, None]
    x = Padded(data, lengths, second=second)
    first, other = x.split_pair()
    again = concat_pair(first, other)
    assert again.lengths.tolist() == [3, 5, 2]
    assert again.second.tolist() == [2, 1, 1]
    for a, b in zip(again.rows(), x.rows(), strict=True):
        assert torch.equal(a, b)
    assert not again.data[~again.mask].any()
    assert again.data.shape == (3, 5, 2)

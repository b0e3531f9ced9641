"""W4, the embedding table: a one-hot row times V selects a row of V."""

import numpy as np
import torch

from weft.batch import Padded
from weft.embed.lookup import Lookup
from weft.vectors.store import Vectors

V, E = 11, 5


def test_a_one_hot_product_selects_the_row_of_a_word():
    torch.manual_seed(3)
    table = Lookup(V, E).eval()
    ids = torch.tensor([[3, 7, 2], [5, 10, 0]])
    found = table(Padded(ids, torch.tensor([3, 2]))).data
    weights = table.table.weight.detach()
    for b, t in ((0, 0), (0, 1), (0, 2), (1, 0), (1, 1)):
        one_hot = torch.zeros(V)
        one_hot[ids[b, t]] = 1
        torch.testing.assert_close(found[b, t], one_hot @ weights, atol=1e-6, rtol=0)


def test_only_the_selected_rows_get_a_gradient():
    torch.manual_seed(3)
    table = Lookup(V, E)
    table(Padded(torch.tensor([[3, 7, 3]]), torch.tensor([3]))).data.sum().backward()
    expected = torch.zeros(V, E)
    expected[3], expected[7] = 2, 1  # dL/dV = Σ one_hotᵀ dL/dx
    torch.testing.assert_close(table.table.weight.grad, expected)


def test_pretrained_rows_are_copied_and_may_be_frozen(tmp_path):
    matrix = np.random.default_rng(3).normal(size=(2, E)).astype(np.float32)
    Vectors(["king", "queen"], matrix).save(tmp_path / "v.txt")
    table = Lookup(4, E, vectors=str(tmp_path / "v.txt"), frozen=True)
    assert table.initialise(["<pad>", "<unk>", "queen", "king"]) == 2
    np.testing.assert_allclose(table.table.weight[[3, 2]].numpy(), matrix, atol=1e-6)
    assert not table.table.weight.requires_grad

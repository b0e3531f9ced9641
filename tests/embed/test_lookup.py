"""The table: rows from a file, frozen or tuned, and no file needed once saved."""

import pytest
import torch

from weft.batch import Padded
from weft.embed.lookup import Lookup
from weft.errors import UserError

VOCABULARY = ["[PAD]", "[UNK]", "the", "cat", "sat"]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "v.txt"
    path.write_text("cat 1 2 3\nthe 4 5 6\n[PAD] 7 7 7\nother 8 8 8\n")
    return str(path)


def test_known_words_get_their_vectors(file):
    torch.manual_seed(0)
    lookup = Lookup(5, width=3, vectors=file)
    random = lookup.table.weight.detach().clone()
    assert lookup.initialise(VOCABULARY) == 2
    assert lookup.coverage == pytest.approx(2 / 5)
    table = lookup.table.weight.detach()
    assert table[2].tolist() == [4, 5, 6]
    assert table[3].tolist() == [1, 2, 3]
    assert torch.equal(table[[0, 1, 4]], random[[0, 1, 4]])
    assert not table[0].any()


def test_width_must_be_the_files(file):
    with pytest.raises(UserError, match=r"are 3 wide, but .* width = 7\. Set width = 3\."):
        Lookup(5, width=7, vectors=file).initialise(VOCABULARY)


def test_a_saved_table_needs_no_file(tmp_path):
    lookup = Lookup(5, width=3, vectors=str(tmp_path / "gone.txt"))
    lookup.load_state_dict(Lookup(5, width=3).state_dict())
    with pytest.raises(UserError, match="No vector file"):
        lookup.initialise(VOCABULARY)


def test_without_vectors_there_is_nothing_to_do():
    assert Lookup(5, width=3).initialise(VOCABULARY) == 0


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_rows_do_not_learn(frozen):
    assert Lookup(5, width=3, frozen=frozen).table.weight.requires_grad is not frozen


def test_scale_is_the_deviation_of_random_rows():
    torch.manual_seed(0)
    rows = Lookup(1009, width=31, scale=0.3).table.weight[1:]
    assert rows.std().item() == pytest.approx(0.3, rel=0.02)


def test_dropout_only_in_training():
    ids = Padded(torch.full((1, 503), 2), torch.tensor([503]))
    lookup = Lookup(5, width=3, dropout=0.5)
    share = lookup.train()(ids).data.eq(0).float().mean().item()
    assert share == pytest.approx(0.5, abs=0.1)
    assert lookup.eval()(ids).data.ne(0).all()


def test_word_dropout_hides_whole_words_in_training_and_leaves_the_others_as_they_are():
    ids = Padded(torch.full((1, 503), 2), torch.tensor([503]))
    lookup = Lookup(5, width=3, word_dropout=0.3)
    whole = lookup.table.weight[2]
    hidden = lookup.train()(ids).data[0].eq(0).all(1)
    assert hidden.float().mean().item() == pytest.approx(0.3, abs=0.1)
    assert lookup(ids).data[0].eq(whole).all(1).float().mean().item() > 0.6
    assert lookup.eval()(ids).data[0].eq(whole).all()


def test_options_that_make_no_sense():
    with pytest.raises(UserError, match="'width' should be at least 1, got 0"):
        Lookup(5, width=0)
    with pytest.raises(UserError, match=r"'dropout' should be from 0 to below 1, got 1\.5"):
        Lookup(5, dropout=1.5)
    with pytest.raises(UserError, match=r"'word_dropout' should be from 0 to below 1, got 1\.0"):
        Lookup(5, word_dropout=1.0)
    with pytest.raises(UserError, match="'scale_by_sqrt_dim' does not go with 'shared'"):
        Lookup(5, shared=True, scale_by_sqrt_dim=True)
    with pytest.raises(UserError, match="'frozen' does not go with 'shared'"):
        Lookup(5, shared=True, frozen=True)


def test_rooted_rows_are_small_and_leave_at_their_scale(file):
    torch.manual_seed(0)
    lookup = Lookup(1009, width=31, scale=0.3, scale_by_sqrt_dim=True)
    assert lookup.table.weight[1:].std().item() == pytest.approx(0.3 / 31**0.5, rel=0.02)
    ids = Padded(torch.arange(1, 1009)[None], torch.tensor([1008]))
    assert lookup(ids).data.std().item() == pytest.approx(0.3, rel=0.02)
    given = Lookup(5, width=3, vectors=file, scale_by_sqrt_dim=True)
    given.initialise(VOCABULARY)
    out = given(Padded(torch.tensor([[3]]), torch.tensor([1]))).data
    torch.testing.assert_close(out[0, 0], torch.tensor([1.0, 2.0, 3.0]))


def test_a_borrowed_table_stays_the_lenders():
    lookup, table = Lookup(5, width=3, shared=True), torch.nn.Embedding(5, 3)
    lookup.borrow(table, 2.0)
    assert not list(lookup.parameters())
    assert not lookup.state_dict()
    ids = Padded(torch.tensor([[4, 2]]), torch.tensor([2]))
    torch.testing.assert_close(lookup(ids).data[0], 2 * table.weight[[4, 2]])
    with pytest.raises(UserError, match=r"width = 3, but .* 7 wide\. Set embedder\.width = 7"):
        Lookup(5, width=3, shared=True).borrow(torch.nn.Embedding(5, 7), 1.0)

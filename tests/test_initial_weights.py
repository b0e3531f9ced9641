"""Initial weights: the papers' distributions, since training results depend on them.

Deviations are measured over thousands of draws, so a factor of two cannot hide in the noise.
"""

import pytest
import torch
from torch import Tensor, nn

from weft.attend.lora import LORA_SCALE, LoRA
from weft.attend.multihead import MultiHeadAttention
from weft.attend.transformer_block import TransformerBlock
from weft.decode.decoders.convolutional import WeightNormConv
from weft.decode.decoders.output_layer import OutputLayer
from weft.decode.heads.biaffine import Biaffine
from weft.decode.heads.mlm import MLMHead
from weft.embed.bert import Bert
from weft.embed.gpt import Gpt
from weft.embed.highway import Highway
from weft.embed.lookup import Lookup
from weft.embed.ngrams import Ngrams, WordNgrams
from weft.embed.position import LearnedPositions
from weft.encode.pool import CLSPool
from weft.encode.rnn import Recurrent

NEAR = 0.06  # relative; 5,000 draws have a standard error of 1 %


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(7)


def is_normal(weight: Tensor, std: float) -> None:
    """Check mean and deviation, and that the tails are those of a normal distribution."""
    values = weight.detach().flatten()
    assert len(values) > 3000
    assert float(values.std()) == pytest.approx(std, rel=NEAR)
    assert abs(float(values.mean())) < 0.06 * std
    assert float((values.abs() > 2 * std).float().mean()) == pytest.approx(0.0455, abs=0.015)


def is_uniform(weight: Tensor, bound: float) -> None:
    values = weight.detach().flatten()
    assert float(values.abs().max()) <= bound
    assert float(values.abs().max()) > 0.99 * bound
    assert float(values.std()) == pytest.approx(bound / 3**0.5, rel=NEAR)


def is_xavier(layer: nn.Linear) -> None:
    is_uniform(layer.weight, (6 / sum(layer.weight.shape)) ** 0.5)
    assert not layer.bias.any()


def norms_are_neutral(module: nn.Module) -> int:
    norms = [m for m in module.modules() if isinstance(m, nn.LayerNorm)]
    for norm in norms:
        assert bool((norm.weight == 1).all())
        assert not norm.bias.any()
    return len(norms)


def test_bert_draws_every_matrix_and_table_from_a_normal_of_two_hundredths():
    bert = Bert(311, hidden=60, layers=2, heads=3, width=20, max_positions=170, position_offset=2)
    matrices = [m for m in bert.modules() if isinstance(m, nn.Linear)]
    assert len(matrices) == 2 * 6 + 1  # q, k, v, output and two feed-forward; and 20 → 60
    for layer in matrices:
        std = float(layer.weight.detach().std())
        assert std == pytest.approx(0.02, rel=NEAR)
        assert not layer.bias.any()
    is_normal(bert.blocks[0].feed_in.weight, 0.02)
    is_normal(bert.table.weight, 0.02)
    is_normal(bert.positions.weight, 0.02)
    assert bert.segments.weight.shape == (2, 20)
    assert float(bert.segments.weight.detach().std()) == pytest.approx(0.02, rel=0.4)  # 40 draws
    assert norms_are_neutral(bert) == 2 * 2 + 1
    assert {norm.eps for norm in bert.modules() if isinstance(norm, nn.LayerNorm)} == {1e-12}


def test_the_padding_row_of_bert_is_drawn_like_any_other():
    """Padding is masked, so nothing reads its row; a checkpoint may hold anything there."""
    bert = Bert(11, hidden=60, layers=1, heads=3)
    assert bert.table.padding_idx is None
    assert float(bert.table.weight[0].detach().std()) == pytest.approx(0.02, rel=0.3)


def test_lora_starts_from_the_weights_it_changes():
    bert = Bert(11, hidden=60, layers=1, heads=3, lora=4)
    query = bert.blocks[0].attention.query
    assert torch.equal(query.weight, query.parametrizations.weight.original)
    change = LoRA(torch.zeros(7, 500), 8)
    is_uniform(change.down, (6 / (1 + 5) / 500) ** 0.5)  # kaiming with a = √5
    assert not change.up.any()
    with torch.no_grad():
        change.up.fill_(1.0)
    expected = LORA_SCALE * change.down.sum(0).expand(7, 500)
    torch.testing.assert_close(change(torch.zeros(7, 500)), expected)
    assert LORA_SCALE == 2.0


def test_gpt_shrinks_what_is_added_to_the_residual_by_the_root_of_twice_the_layers():
    gpt = Gpt(311, hidden=60, layers=8, heads=3, max_positions=60)
    for block in gpt.blocks:
        for layer in (block.attention.output, block.feed_out):
            is_normal(layer.weight, 0.02 / 4)
        for layer in (block.attention.query, block.attention.value, block.feed_in):
            is_normal(layer.weight, 0.02)
            assert not layer.bias.any()
    is_normal(gpt.table.weight, 0.02)
    is_normal(gpt.positions.weight, 0.02)
    assert norms_are_neutral(gpt) == 2 * 8 + 1


def test_heads_over_bert_begin_as_it_does():
    pool = CLSPool(70)
    is_normal(pool.dense.weight, 0.02)
    assert not pool.dense.bias.any()
    head = MLMHead(70, (311, True))
    is_normal(head.dense.weight, 0.02)
    assert float(head.next.weight.detach().std()) == pytest.approx(0.02, rel=0.2)
    assert not any(p.any() for p in (head.dense.bias, head.next.bias, head.bias))
    assert norms_are_neutral(head) == 1


def test_transformer_blocks_begin_by_xavier():
    block = TransformerBlock(60, 3, 110)
    is_xavier(block.feed_in)
    is_xavier(block.feed_out)
    assert norms_are_neutral(block) == 2
    attention = MultiHeadAttention(60, 3, memory_size=90)
    for layer in (attention.query, attention.key, attention.value, attention.output):
        is_xavier(layer)


@pytest.mark.parametrize(("scaled", "std"), [(False, 0.3), (True, 0.3 / 7)])
def test_tables_of_words_have_an_empty_padding_row(scaled, std):
    table = Lookup(211, width=49, scale=0.3, scale_by_sqrt_dim=scaled).table.weight
    is_normal(table[1:], std)
    assert not table[0].any()


def test_tables_of_ngrams_begin_as_fasttext_s():
    words = WordNgrams(301, width=25, buckets=400)
    for table in (words.table.weight, words.ngrams.weight, Ngrams(25, buckets=400).table.weight):
        is_uniform(table[1:], 1 / 25)
        assert not table[0].any()


def test_output_layers():
    layer = OutputLayer(301, 50, 30, deviation=0.4)
    is_normal(layer.table.weight[1:], 0.4)
    assert not layer.table.weight[0].any()
    is_uniform(layer.scored, 30**-0.5)
    assert not layer.bias.any()
    assert OutputLayer(301, 50, 50, tied=True).scored is None


def test_learned_positions_and_convolutions():
    is_normal(LearnedPositions(50, 90).table, 0.02)
    layer = WeightNormConv(40, 50, span=3, gain=2.0)
    is_normal(layer.direction, (2.0 / 120) ** 0.5)
    torch.testing.assert_close(layer.length, layer.direction.flatten(1).norm(dim=1))
    assert not layer.bias.any()


def test_gates_of_a_highway_mostly_carry():
    highway = Highway(30, layers=2, carry=1.5)
    for gate in highway.gates:
        assert bool((gate.bias == -1.5).all())


@pytest.mark.parametrize(("cell", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_recurrent_matrices_are_orthogonal_and_only_forget_gates_have_a_bias(cell, gates):
    size = 60
    net = Recurrent(50, hidden=size, cell=cell, forget_bias=0.7)
    weights = {
        k: v for k, v in net.named_parameters() if k.rpartition(".")[2].startswith(("w", "b"))
    }
    assert weights
    for name, weight in weights.items():
        if "bias" in name:
            forget = torch.zeros_like(weight)
            if cell == "lstm" and "bias_ih" in name:
                forget[size : 2 * size] = 0.7
            assert torch.equal(weight, forget)
            continue
        for gate in weight.chunk(gates):
            if "weight_hh" in name:
                torch.testing.assert_close(gate @ gate.T, torch.eye(size), rtol=0, atol=1e-5)
            else:
                is_uniform(gate, (6 / sum(gate.shape)) ** 0.5)


def test_biaffine_scores_begin_small_but_not_at_zero():
    is_normal(Biaffine(40, 60, 3, True, True).weight, 1 / 60)

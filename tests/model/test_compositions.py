"""What each composition does with its input, beyond what its parts do."""

import torch

from weft import build_model
from weft.batch import Padded

PARTS = {
    "embedder": {"kind": "lookup", "width": 6},
    "encoder": {"kind": "none"},
    "pool": {"kind": "mean"},
    "head": {"kind": "linear"},
}


def row(second=None):
    ids, lengths = torch.tensor([[3, 5, 7, 4]]), torch.tensor([4])
    return Padded(ids, lengths, second=None if second is None else torch.tensor([second]))


def test_a_joint_pair_model_marks_the_second_text():
    parts = {**PARTS, "pair": {"kind": "joint", "mark": True}}
    model = build_model(parts, vocabulary_size=9, outputs=3).eval()
    alone, both = model.run(row()), model.run(row(second=2))
    assert alone.scores is None  # one text of a pair has states, but no answer
    assert both.scores.shape == (1, 3)
    shift = both.states.data - alone.states.data
    torch.testing.assert_close(shift[0, :2], torch.zeros(2, 6))
    torch.testing.assert_close(shift[0, 2:], model.pair.mark.expand(2, 6))


def test_a_bi_encoder_reads_each_text_by_itself():
    parts = {**PARTS, "encoder": {"kind": "rnn", "hidden": 5}, "pair": {"kind": "towers"}}
    model = build_model(parts, vocabulary_size=9, outputs=3).eval()
    first = Padded(torch.tensor([[3, 5]]), torch.tensor([2]))
    states = model.run(row(second=2)).states.data
    torch.testing.assert_close(states[:, :2], model.run(first).states.data)
    assert model.run(first).scores is None

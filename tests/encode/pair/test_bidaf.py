"""BiDAF against its equations, one number at a time."""

import pytest
import torch

from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.errors import UserError

E, H = 5, 3


def sample(garbage=0.0, extra=0):
    torch.manual_seed(0)
    sides = []
    for lengths in ([4, 1, 2], [3, 7, 1]):  # of questions, of passages
        data = torch.randn(3, max(lengths), E)
        data = torch.nn.functional.pad(data, (0, 0, 0, extra))
        x = Padded(data, torch.tensor(lengths))
        sides.append(Padded(data.masked_fill(~x.mask[..., None], garbage), x.lengths))
    return sides


@pytest.fixture
def bidaf():
    torch.manual_seed(1)
    return registry.build("pair", {"kind": "bidaf", "hidden": H}, input_size=E).eval()


def slowly(bidaf, question, passage):
    """The states of one passage, by the equations of Seo et al. 2017, section 2."""

    def read(net, x):
        return net(Padded(x[None], torch.tensor([len(x)]))).data[0]

    u, h = read(bidaf.context, question), read(bidaf.context, passage)
    score = bidaf.score
    w = torch.cat([score.query.weight[0], score.memory.weight[0], score.both])
    s = torch.stack([torch.stack([w @ torch.cat([a, b, a * b]) for b in u]) for a in h])
    back = s.max(1).values.softmax(0)
    told = sum(back[t] * h[t] for t in range(len(h)))
    rows = []
    for t in range(len(h)):
        there = s[t].softmax(0)
        asked = sum(there[j] * u[j] for j in range(len(u)))
        rows.append(torch.cat([h[t], asked, h[t] * asked, h[t] * told]))
    g = torch.stack(rows)
    return torch.cat([g, read(bidaf.model, g)], 1)


def test_output_matches_the_papers_equations(bidaf):
    question, passage = sample()
    out = bidaf(question, passage)
    assert out.data.shape == (3, 7, bidaf.output_size)
    assert (bidaf.output_size, bidaf.modelled) == (10 * H, 2 * H)
    assert out.lengths.tolist() == [3, 7, 1]
    assert out.second is None
    assert bidaf.model.net.num_layers == 2
    for own, q, p in zip(out.rows(), question.rows(), passage.rows(), strict=True):
        torch.testing.assert_close(own, slowly(bidaf, q, p), rtol=1e-5, atol=1e-5)


def test_padding_does_not_change_states(bidaf):
    clean, dirty = bidaf(*sample()), bidaf(*sample(garbage=99.0, extra=2))
    for a, b in zip(clean.rows(), dirty.rows(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    assert not dirty.data[~dirty.mask].any()


def test_every_parameter_learns(bidaf):
    out = bidaf.train()(*sample()).data
    (out * torch.randn_like(out)).sum().backward()
    for name, parameter in bidaf.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.any(), name


def test_shape_comments_are_true(bidaf):
    assert checked("weft.encode.pair.bidaf", lambda: bidaf(*sample())) >= 5


def test_sizes_that_make_no_sense():
    with pytest.raises(UserError, match="pair 'bidaf': 'hidden' should be at least 1"):
        registry.build("pair", {"kind": "bidaf", "hidden": 0}, input_size=E)

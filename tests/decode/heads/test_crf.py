"""The CRF against enumeration of every label sequence, and what it must never do."""

import itertools
import math

import numpy as np
import pytest
import torch

from tests.fixtures.shapes import checked
from weft.batch.padded import Padded
from weft.decode.heads.crf import CRF
from weft.errors import UserError

LENGTHS = [5, 1, 4, 2]
# O, B, I: no I at the start or after O; a sequence may not end in B, so that `end` is seen too.
BIO = (
    np.array([True, True, False]),
    np.array([[True, True, False], [True, True, True], [True, True, True]]),
    np.array([True, False, True]),
)
NAMES = ["O", "B", "I"]


def make(allowed=None, labels=3, lengths=LENGTHS, spread=1.0, dtype=torch.float32, seed=2):
    """A CRF with weights of its own, and emissions whose padding is garbage."""
    torch.manual_seed(seed)
    crf = CRF(labels, allowed)
    with torch.no_grad():
        for parameter in crf.parameters():
            parameter.normal_(0, spread)
    crf = crf.to(dtype)
    data = torch.randn(len(lengths), max(lengths), labels, dtype=dtype) * spread
    emissions = Padded(data, torch.tensor(lengths))
    data[~emissions.mask] = torch.nan
    return crf, emissions


def scored(crf, row):
    """Every allowed sequence of a row with its score, by the definition."""
    start, pairs, end = crf.rules
    found = {}
    for tags in itertools.product(range(len(crf.start)), repeat=len(row)):
        if (
            start[tags[0]]
            and end[tags[-1]]
            and all(pairs[a, b] for a, b in itertools.pairwise(tags))
        ):
            total = crf.start[tags[0]] + crf.end[tags[-1]]
            total = total + sum(row[t, tag] for t, tag in enumerate(tags))
            found[tags] = total + sum(crf.transitions[a, b] for a, b in itertools.pairwise(tags))
    return found


@pytest.fixture(params=[None, BIO], ids=["free", "bio"])
def allowed(request):
    return request.param


@pytest.fixture(params=[False, True], ids=["exponential", "logarithmic"])
def exact(request, monkeypatch):
    monkeypatch.setattr(CRF, "_exact", lambda *_: request.param)


def test_sums_by_enumeration(allowed, exact):
    crf, emissions = make(allowed)
    wanted = [torch.stack([*scored(crf, row).values()]).logsumexp(0) for row in emissions.rows()]
    found = crf.log_partition(emissions)
    torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-5, atol=1e-5)


def test_marginals_by_enumeration(allowed, exact):
    crf, emissions = make(allowed)
    found = crf.marginals(emissions)
    assert found.shape == (4, 5, 3)
    assert not found[~emissions.mask].any()
    for row, probabilities in zip(emissions.rows(), found, strict=True):
        every = scored(crf, row)
        total = torch.stack([*every.values()]).logsumexp(0)
        wanted = torch.zeros(len(row), 3)
        for tags, score in every.items():
            wanted[range(len(row)), list(tags)] += (score - total).exp().detach()
        torch.testing.assert_close(probabilities[: len(row)], wanted, rtol=1e-5, atol=1e-6)
        assert torch.equal(probabilities[: len(row)] == 0, wanted == 0)


def test_gradients_by_enumeration(allowed, exact):
    crf, emissions = make(allowed)
    emissions.data.requires_grad_()
    inputs = (emissions.data, *crf.parameters())
    weights = torch.tensor([1.0, 0.5, -2.0, 3.0])  # rows must not be mixed up
    found = torch.autograd.grad(crf.log_partition(emissions) @ weights, inputs)
    rows = [torch.stack([*scored(crf, row).values()]).logsumexp(0) for row in emissions.rows()]
    wanted = torch.autograd.grad(torch.stack(rows) @ weights, inputs)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


def test_gradients_of_the_loss_in_double(allowed, exact):
    crf, emissions = make(allowed, dtype=torch.float64)
    data = emissions.data.masked_fill(~emissions.mask[..., None], 7.0).requires_grad_()
    tags = crf.viterbi(emissions)[0]

    def loss(data, *parameters):
        return crf.loss(Padded(data, emissions.lengths), tags)[0]

    assert torch.autograd.gradcheck(loss, (data, *crf.parameters()))


def test_best_sequences_by_enumeration(allowed):
    crf, emissions = make(allowed)
    tags, scores = crf.viterbi(emissions)
    few = crf.best(emissions, 7)
    for i, row in enumerate(emissions.rows()):
        every = scored(crf, row)
        ranked = sorted(every, key=lambda tags: -every[tags])
        assert tuple(tags[i, : len(row)].tolist()) == ranked[0]
        assert not tags[i, len(row) :].any()
        torch.testing.assert_close(scores[i], every[ranked[0]], rtol=1e-5, atol=1e-5)
        paths, values = few[i]
        assert [tuple(path) for path in paths.tolist()] == ranked[:7]
        wanted = torch.stack([every[tags] for tags in ranked[:7]]).double()
        torch.testing.assert_close(values, wanted, rtol=1e-5, atol=1e-5)


def test_score_and_loss_by_the_definition(allowed):
    crf, emissions = make(allowed)
    chosen = torch.full((4, 5), -100)
    for i, (paths, _) in enumerate(crf.best(emissions, 2)):
        chosen[i, : paths.shape[1]] = paths[-1]
    rows = emissions.rows()
    wanted = [scored(crf, row)[tuple(chosen[i, : len(row)].tolist())] for i, row in enumerate(rows)]
    found = crf.score(emissions, chosen)
    torch.testing.assert_close(found, torch.stack(wanted), rtol=1e-5, atol=1e-5)
    total, count = crf.loss(emissions, chosen)
    assert count == sum(LENGTHS)
    torch.testing.assert_close(total, (crf.log_partition(emissions) - found).sum())
    assert total > 0


def test_a_batch_is_its_rows(allowed):
    crf, emissions = make(allowed)
    for i, row in enumerate(emissions.rows()):
        alone = Padded(row[None], torch.tensor([len(row)]))
        close = {"rtol": 1e-5, "atol": 1e-5}
        torch.testing.assert_close(
            crf.log_partition(alone)[0], crf.log_partition(emissions)[i], **close
        )
        torch.testing.assert_close(
            crf.marginals(alone)[0], crf.marginals(emissions)[i, : len(row)], **close
        )
        assert torch.equal(crf.viterbi(alone)[0][0], crf.viterbi(emissions)[0][i, : len(row)])


def test_garbage_in_the_padding_changes_nothing(allowed, exact):
    crf, emissions = make(allowed)
    tags = crf.viterbi(emissions)[0]

    def everything(fill, tag):
        crf.zero_grad()
        data = emissions.data.masked_fill(~emissions.mask[..., None], fill).requires_grad_()
        other = Padded(data, emissions.lengths)
        total = crf.loss(other, tags.masked_fill(~emissions.mask, tag))[0]
        total.backward()
        assert not data.grad[~emissions.mask].any()
        learned = [p.grad.clone() for p in crf.parameters()]
        return [total, data.grad, *learned, crf.marginals(other), *crf.viterbi(other)]

    for one, other in zip(everything(0.0, 0), everything(math.inf, -100), strict=True):
        assert torch.isfinite(one).all()
        assert torch.equal(one, other)


@pytest.mark.parametrize("spread", [1.0, 30.0, 1000.0])
def test_forbidden_sequences_are_never_decoded(spread):
    """However much the emissions and the weights want them."""
    crf, emissions = make(BIO, lengths=[11, 2, 7, 1, 11], spread=spread)
    start, follow, end = crf.rules
    for i, n in enumerate(emissions.lengths.tolist()):
        paths = [crf.viterbi(emissions)[0][i, :n].tolist()]
        paths += crf.best(emissions, 5)[i][0].tolist()
        for path in paths:
            assert start[path[0]]
            assert end[path[-1]]
            assert all(follow[a, b] for a, b in itertools.pairwise(path))
    found = crf.marginals(emissions)
    assert not found[:, 0, 2].any()
    torch.testing.assert_close(found.sum(2), emissions.mask.float(), rtol=1e-5, atol=1e-5)
    emissions.data.requires_grad_()
    crf.loss(emissions, crf.viterbi(emissions)[0])[0].backward()
    for parameter in crf.parameters():
        assert torch.isfinite(parameter.grad).all()
    assert crf.transitions.grad[0, 2] == 0
    assert crf.start.grad[2] == 0


def test_scores_far_apart_lose_nothing():
    """The best sequence is e^1500 times less likely than the others until its last step."""
    crf = CRF(2, (np.ones(2, bool), np.eye(2, dtype=bool), np.ones(2, bool)))
    data = torch.tensor([[[800.0, 0.0], [700.0, 0.0], [0.0, 1503.0]]])
    emissions = Padded(data, torch.tensor([3]))
    assert crf.log_partition(emissions).item() == pytest.approx(1503 + math.log1p(math.exp(-3)))
    assert crf.marginals(emissions)[0, 0, 1].item() == pytest.approx(1 / (1 + math.exp(-3)))
    free = CRF(2)
    with torch.no_grad():
        free.transitions.copy_(torch.tensor([[0.0, -5000.0], [-5000.0, 0.0]]))
    assert free.log_partition(emissions).item() == pytest.approx(1503 + math.log1p(math.exp(-3)))


@pytest.mark.parametrize("allowed", [None, BIO], ids=["free", "bio"])
def test_long_sequences(allowed):
    crf, emissions = make(allowed, lengths=[2000, 1999], spread=4.0)
    found = crf.log_partition(emissions)
    crf._exact = lambda *_: True
    torch.testing.assert_close(found, crf.log_partition(emissions), rtol=1e-6, atol=1e-5)
    tags, scores = crf.viterbi(emissions)
    assert (scores < found).all()
    assert torch.isfinite(crf.loss(emissions, tags)[0])


def test_long_sequences_keep_their_best():
    """Sums that grow with the steps would round the differences away."""
    crf, emissions = make(lengths=[2000, 1999])
    high = Padded(emissions.data + 1000, emissions.lengths)
    wanted = crf.double().viterbi(Padded(high.data.double(), high.lengths))[0]
    assert torch.equal(crf.float().viterbi(high)[0], wanted)


def test_one_label():
    crf, emissions = make(labels=1, lengths=[3, 1])
    wanted = [row.sum() + crf.start[0] + crf.end[0] for row in emissions.rows()]
    wanted[0] = wanted[0] + 2 * crf.transitions[0, 0]
    torch.testing.assert_close(crf.log_partition(emissions), torch.stack(wanted))
    torch.testing.assert_close(crf.marginals(emissions)[..., 0], emissions.mask.float())
    assert abs(crf.loss(emissions, torch.zeros(2, 3, dtype=torch.int64))[0].item()) < 1e-9


def test_low_precision_in_is_full_precision_inside():
    crf, emissions = make(lengths=[31, 17], spread=3.0)
    tags = crf.viterbi(emissions)[0]
    half = Padded(emissions.data.bfloat16().requires_grad_(), emissions.lengths)
    with torch.autocast("cpu", torch.bfloat16):
        total = crf.loss(half, tags)[0]
    total.backward()
    assert total.dtype == torch.float32
    assert half.data.grad.dtype == torch.bfloat16
    wanted = crf.loss(Padded(half.data.float(), emissions.lengths), tags)[0]
    torch.testing.assert_close(total, wanted, rtol=1e-6, atol=1e-6)


def test_gradient_descent_fits_the_gold_tags():
    torch.manual_seed(0)
    crf = CRF(3, BIO)
    tags = torch.tensor([[0, 1, 2, 2, 0], [1, 2, 0, 0, 0]])
    emissions = Padded(torch.zeros(2, 5, 3, requires_grad=True), torch.tensor([5, 3]))
    optimiser = torch.optim.SGD([*crf.parameters(), emissions.data], 0.5)
    for _ in range(60):
        optimiser.zero_grad()
        crf.loss(emissions, tags)[0].backward()
        optimiser.step()
    assert torch.equal(crf.viterbi(emissions)[0], tags)
    assert all(parameter.grad.any() for parameter in crf.parameters())
    assert set(crf.state_dict()) == {"transitions", "start", "end"}


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([2, 0, 0], "Row 1 .* step 0 is 'I', which may not begin a sequence"),
        ([1, 0, 2], "Row 1 .* step 2 is 'I', which may not follow 'O'"),
        ([1, 2, 1], "Row 1 .* the last label is 'B', which may not end a sequence"),
    ],
)
def test_forbidden_gold_transition_raises_user_error(tags, message):
    crf = CRF(3, BIO, NAMES)
    emissions = Padded(torch.zeros(2, 4, 3), torch.tensor([4, 3]))
    with pytest.raises(UserError, match=message):
        crf.loss(emissions, torch.tensor([[0, 0, 1, 2], [*tags, 0]]))


def test_a_length_at_which_nothing_is_allowed():
    ends = np.array([False, False, True])
    crf = CRF(3, (BIO[0], BIO[1], ends))
    emissions = Padded(torch.zeros(2, 4, 3), torch.tensor([4, 1]))
    for ask in (crf.log_partition, crf.viterbi, crf.marginals):
        with pytest.raises(UserError, match="Row 1: the transitions allow no sequence of 1 labels"):
            ask(emissions)


def test_the_fast_way_is_taken():
    """Where every label can be reached and scores are usual; otherwise the safe one."""
    for allowed, steps in ((None, 1), (BIO, 2)):
        crf, emissions = make(allowed)
        assert crf.mixing == steps
        assert not crf._exact(crf._clean(emissions), crf._weights())
        assert crf._exact(crf._clean(emissions) * 500, crf._weights())
    lonely = (np.ones(3, bool), np.eye(3, dtype=bool), np.ones(3, bool))
    assert CRF(3, lonely).mixing == math.inf
    # A label that can never occur does not make the others slow.
    unused = BIO[1].copy()
    unused[:, 2] = False
    assert CRF(3, (BIO[0], unused, np.ones(3, bool))).mixing == 1


def test_shape_comments_are_true():
    crf, emissions = make(BIO)
    emissions.data.requires_grad_()

    def everything():
        tags = crf.viterbi(emissions)[0]
        crf.loss(emissions, tags)[0].backward()
        crf.marginals(emissions)
        crf.best(emissions, 3)

    assert checked("weft.decode", everything) >= 15

"""T10: margin losses, regression to a vector, and a number at each position."""

from itertools import pairwise, product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import hinge_loss, log_loss

from weft.batch import Padded
from weft.decode.heads.crf import CRF
from weft.decode.heads.tag import TagOutput
from weft.decode.heads.word_numbers import NumberHead
from weft.decode.margin_losses import binary_margin_loss, margin_loss
from weft.tasks.annotation import Decoded
from weft.tasks.classify import Classify, ClassSpace
from weft.tasks.confidence.calibration import fit_scale, softmax
from weft.tasks.pair import PairClassify
from weft.tasks.regress import Regress
from weft.tasks.regress_words import RegressWords, pack_numbers, unpack_numbers
from weft.text.example import Example, WordAnnotations

N, C, T = 7, 5, 3  # texts, labels, words


def scored(seed=0, rows=N, labels=C):
    draw = torch.Generator().manual_seed(seed)
    scores = torch.randn(rows, labels, generator=draw)
    return scores, torch.randint(labels, (rows,), generator=draw)


def test_margin_is_crammer_and_singers_hinge_of_the_strongest_wrong_label():
    scores, gold = scored()
    right = []
    for row, g in zip(scores.tolist(), gold.tolist(), strict=True):
        wrong = max(s for y, s in enumerate(row) if y != g)
        right.append(max(0.0, 1 + wrong - row[g]))
    assert min(right) < max(right)
    torch.testing.assert_close(margin_loss(scores, gold), torch.tensor(right))
    ours = margin_loss(scores, gold).mean().item()
    assert ours == pytest.approx(hinge_loss(gold, scores, labels=list(range(C))), abs=1e-6)


def test_margin_sum_is_weston_and_watkins_hinge_of_every_wrong_label():
    scores, gold = scored(1)
    right = [
        sum(max(0.0, 1 + s - row[g]) for y, s in enumerate(row) if y != g)
        for row, g in zip(scores.tolist(), gold.tolist(), strict=True)
    ]
    ours = margin_loss(scores, gold, every=True)
    torch.testing.assert_close(ours, torch.tensor(right))
    # torch divides by the number of labels.
    peer = torch.nn.MultiMarginLoss(reduction="none")(scores, gold) * C
    torch.testing.assert_close(ours, peer)


def test_several_labels_have_a_hinge_each():
    scores, _ = scored(2)
    wanted = (torch.rand(N, C, generator=torch.Generator().manual_seed(3)) < 0.4).float()
    y = 2 * wanted - 1
    right = torch.tensor(
        [[max(0.0, 1 - float(y[i, c] * scores[i, c])) for c in range(C)] for i in range(N)]
    )
    ours = binary_margin_loss(scores, wanted)
    torch.testing.assert_close(ours, right)
    for c in range(C):
        peer = hinge_loss(y[:, c].numpy(), scores[:, c].numpy(), labels=[-1, 1])
        assert ours[:, c].mean().item() == pytest.approx(peer, abs=1e-6)


@pytest.mark.parametrize("task", [Classify, PairClassify])
def test_tasks_sum_the_margin_loss_over_texts(task):
    scores, gold = scored(4)
    batch = SimpleNamespace(target=gold, balance=None, row_weights=None)
    for kind in ("margin", "margin-sum"):
        loss = task(loss=kind).loss(scores, batch)
        assert loss.count == N
        torch.testing.assert_close(loss.total, margin_loss(scores, gold, kind != "margin").sum())
    wanted = torch.nn.functional.one_hot(gold, C).float()
    loss = task(multi_label=True, loss="margin").loss(
        scores, SimpleNamespace(target=wanted, balance=None, row_weights=None)
    )
    torch.testing.assert_close(loss.total, binary_margin_loss(scores, wanted).sum())


def test_gradient_of_the_margin_moves_only_the_two_labels_that_decide():
    scores, gold = scored(5)
    scores.requires_grad_()
    margin_loss(scores, gold).sum().backward()
    for row, grad, g in zip(scores.detach(), scores.grad, gold.tolist(), strict=True):
        rivals = row.clone()
        rivals[g] = -torch.inf
        expected = torch.zeros(C)
        if 1 + rivals.max() - row[g] > 0:
            expected[rivals.argmax()], expected[g] = 1.0, -1.0
        torch.testing.assert_close(grad, expected)


def test_independent_tags_sum_the_margin_over_real_words():
    draw = torch.Generator().manual_seed(6)
    logits = Padded(torch.randn(2, T, C, generator=draw), torch.tensor([3, 2]))
    gold = torch.tensor([[[0], [4], [C]], [[2], [1], [-1]]])  # one tag unseen, one word padding
    output = TagOutput((logits,), (None,))
    for kind in ("margin", "margin-sum"):
        right = sum(
            margin_loss(logits.data[b, t][None], gold[b, t], kind != "margin").item()
            for b, t in ((0, 0), (0, 1), (1, 0), (1, 1))
        )
        total, words = output.loss(gold, kind)
        assert total.item() == pytest.approx(right, abs=1e-5)
        assert words == 5


def test_crf_margin_is_the_structured_hinge_over_all_sequences():
    torch.manual_seed(7)
    chain = CRF(C)
    for weight in chain.parameters():
        torch.nn.init.normal_(weight)
    emissions = Padded(torch.randn(2, T, C), torch.tensor([3, 2]))
    gold = torch.tensor([[0, 4, 2], [3, 1, -1]])
    right = 0.0
    for row, length in enumerate((3, 2)):
        own = gold[row, :length].tolist()
        scores = {}
        for path in product(range(C), repeat=length):
            score = chain.start[path[0]] + chain.end[path[-1]]
            score = score + sum(emissions.data[row, t, y] for t, y in enumerate(path))
            score = score + sum(chain.transitions[a, b] for a, b in pairwise(path))
            scores[path] = score.item()
        cost = {path: sum(y != g for y, g in zip(path, own, strict=True)) for path in scores}
        right += max(scores[path] + cost[path] for path in scores) - scores[tuple(own)]
    total, steps = chain.margin_loss(emissions, gold)
    assert total.item() == pytest.approx(right, abs=1e-5)
    assert steps == 5
    total.backward()
    assert chain.transitions.grad.abs().sum() > 0


def test_scale_of_margins_is_the_most_likely_one():
    scores, _ = scored(8, rows=401)
    draw = np.random.default_rng(9)
    probs = softmax(3.7 * scores.double().numpy())
    gold = np.array([draw.choice(C, p=row) for row in probs])
    scale = fit_scale(scores.numpy(), gold)
    losses = {
        a: log_loss(gold, softmax(a * scores.double().numpy()), labels=range(C))
        for a in (0.7 * scale, scale, 1.4 * scale)
    }
    assert min(losses, key=losses.get) == scale
    assert scale == pytest.approx(3.7, rel=0.25)


def test_probabilities_of_margins_use_the_fitted_scale():
    scores, gold = scored(10, rows=97)
    task = Classify(loss="margin")
    space = task.calibrate(scores.numpy(), gold.numpy(), ClassSpace(tuple("abcde")))
    assert space.scale != 1
    best = scores.double().numpy() * space.scale
    expected = np.exp(best) / np.exp(best).sum(1, keepdims=True)
    for answer, row in zip(task.answers(scores.numpy(), space), expected, strict=True):
        np.testing.assert_allclose(answer.scores, row, atol=1e-9)
        assert answer.score == pytest.approx(row.max())
    again = task.load_space(space.to_json())
    assert again == space
    assert "fitted on dev" in task.note(space)
    assert "not calibrated" in task.note(ClassSpace(tuple("abcde")))


def test_scale_stays_finite_if_every_held_out_label_is_right():
    scores = 10 * np.eye(3)[np.arange(30) % 3]
    scale = fit_scale(scores, np.arange(30) % 3)
    assert softmax(scale * scores).max() < 0.999


def vectors(rows=N, size=3, seed=11):
    """Texts with vectors in different units."""
    draw = np.random.default_rng(seed)
    table = draw.normal(size=(rows, size)) * [1, 10, 100][:size] + [0, 5, -7][:size]
    return table, [
        Example(f"text {i}", tuple(map(repr, row))) for i, row in enumerate(table.tolist())
    ]


def test_vector_regression_sums_the_squared_error_of_standardised_dimensions():
    table, examples = vectors()
    task = Regress(dimensions=3)
    space = task.space(examples)
    standard = (table - table.mean(0)) / table.std(0)
    targets = np.stack([task.target(one, space) for one in examples])
    np.testing.assert_allclose(targets, standard, atol=1e-5)
    scores = torch.randn(N, 3, generator=torch.Generator().manual_seed(12))
    loss = task.loss(
        scores, SimpleNamespace(target=torch.from_numpy(targets), balance=None, row_weights=None)
    )
    assert loss.count == N
    expected = sum(((scores[i].numpy() - standard[i]) ** 2).sum() for i in range(N))
    assert loss.total.item() == pytest.approx(expected, rel=1e-5)
    answers = task.answers(scores.numpy(), space)
    back = scores.double().numpy() * table.std(0) + table.mean(0)
    np.testing.assert_allclose([answer.value for answer in answers], back, rtol=1e-5)


def test_vector_metrics_are_those_of_each_dimension_and_their_mean():
    table, examples = vectors(rows=31)
    task = Regress(dimensions=3)
    space = task.space(examples)
    targets = np.stack([task.target(one, space) for one in examples])
    scores = targets + np.random.default_rng(13).normal(size=targets.shape)
    metric = task.build_metric(space)
    metric.add(task.predict_targets(scores, space), targets)
    found = metric.compute(resamples=0)
    predicted = scores * table.std(0) + table.mean(0)
    for k in range(3):
        assert found[f"pearson_{k + 1}"].value == pytest.approx(
            pearsonr(predicted[:, k], table[:, k])[0], abs=1e-5
        )
        assert found[f"spearman_{k + 1}"].value == pytest.approx(
            spearmanr(predicted[:, k], table[:, k])[0], abs=1e-5
        )
        assert found[f"mse_{k + 1}"].value == pytest.approx(
            ((predicted[:, k] - table[:, k]) ** 2).mean(), rel=1e-4
        )
    for name in ("pearson", "spearman", "mse"):
        mean = np.mean([found[f"{name}_{k}"].value for k in (1, 2, 3)])
        assert found[name].value == pytest.approx(mean)
    assert metric.compute(resamples=97)["pearson"].low < found["pearson"].value


def test_one_dimension_of_a_vector_is_a_number():
    _, examples = vectors(rows=17, size=1)
    plain = [Example(one.text, one.label[0]) for one in examples]
    one, several = Regress(), Regress()
    assert one.space(plain) == several.space(examples)
    assert Regress.infer({}, iter(plain)) == {}
    assert Regress.infer({}, iter(vectors()[1])) == {"dimensions": 3}


SENTENCES = (("a b c", "1.5 _ -2"), ("d e", "0.25 7"), ("f", "3"))


def word_numbers():
    """Sentences with a number at each word but one."""
    for text, numbers in SENTENCES:
        cells = WordAnnotations({"score": tuple(numbers.split())}, "score")
        yield Example(text, cells, words=tuple(text.split()))


def test_number_at_each_position_sums_the_squared_error_over_words():
    task = RegressWords(["score"])
    space = task.space(word_numbers())
    known = np.array([1.5, -2, 0.25, 7, 3])
    assert (space.mean, space.deviation) == pytest.approx((known.mean(), known.std()))
    torch.manual_seed(14)
    head = NumberHead(5, 1).eval()
    states = Padded(torch.randn(3, 3, 5), torch.tensor([3, 2, 1]))
    states.data[1, 2:] = states.data[2, 1:] = torch.nan  # padding
    tables = [task.target(one, space) for one in word_numbers()]
    target = torch.full((3, 3, 1), -1)
    for row, table in zip(target, tables, strict=True):
        row[: len(table)] = torch.from_numpy(table)
    output = head(states)
    total, words = output.loss(target)
    W, b = (part.detach().double() for part in (head.score.weight[0], head.score.bias))
    right = 0.0
    for row, (_, numbers) in enumerate(SENTENCES):
        for t, cell in enumerate(numbers.split()):
            if cell != "_":
                y = (float(cell) - known.mean()) / known.std()
                right += float(states.data[row, t].double() @ W + b - y) ** 2
    assert total.item() == pytest.approx(right, rel=1e-5)
    assert words == 6
    total.backward()
    assert torch.isfinite(head.score.weight.grad).all()
    answers = task.answers(
        [Decoded(t, p, tuple(s.split())) for (t, p), (s, _) in
         zip(output.decode(), SENTENCES, strict=True)], space
    )  # fmt: skip
    first = float(states.data[0, 0].double() @ W + b) * known.std() + known.mean()
    assert answers[0].value[0] == pytest.approx(first, rel=1e-5)
    assert [len(answer.value) for answer in answers] == [3, 2, 1]


def test_metrics_of_word_numbers_are_over_all_words_that_have_one():
    task = RegressWords(["score"])
    space = task.space(word_numbers())
    gold = [task.target(one, space) for one in word_numbers()]
    draw = np.random.default_rng(15)
    said = [pack_numbers(draw.normal(size=len(table))) for table in gold]
    metric = task.build_metric(space)
    metric.add(said, gold)
    found = metric.compute(resamples=0)
    x, y = (np.concatenate([unpack_numbers(t) for t in side]) for side in (said, gold))
    x, y = x[~np.isnan(y)], y[~np.isnan(y)]
    assert len(y) == 5
    assert found["pearson"].value == pytest.approx(pearsonr(x, y)[0], abs=1e-6)
    assert found["spearman"].value == pytest.approx(spearmanr(x, y)[0], abs=1e-6)
    assert found["mse"].value == pytest.approx(((x - y) ** 2).mean() * space.deviation**2)
    assert found["mse"].n == 3  # sentences, which intervals resample


def test_numbers_survive_their_bit_patterns():
    numbers = np.array([0.0, -0.0, 1e-30, -3.5, 1e30, np.nan])
    table = pack_numbers(numbers)
    assert table.shape == (6, 1)
    assert table[-1, 0] == -1
    np.testing.assert_array_equal(unpack_numbers(table), numbers.astype(np.float32))

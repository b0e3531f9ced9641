"""Word-level coreference against a slow version: pair scores, loss, links, spans, windows."""

import math

import numpy as np
import torch

from weft.batch import Padded
from weft.decode.heads.semantics import coreference as module
from weft.decode.heads.semantics.coreference import WordCoreferenceHead, bucket_distances
from weft.decode.heads.semantics.mentions import drop_repeats, link_words
from weft.text.annotation.frames import Coreference
from weft.tokens.truncate import split_word_windows

H = 5
OUTPUTS = [(("chain",), ""), (("bc", "nw"), "")]
WORDS = ["Ann", "saw", "Bo", ".", "ann", "left"]
LABEL = Coreference((), (0, 4), ("x", "x", "x", "x", "y", "y"), "nw")


def build(**options):
    torch.manual_seed(3)
    values = {"antecedents": 3, "hidden": 7, "span": 8, "window": 2, "dropout": 0.0}
    head = WordCoreferenceHead(H, OUTPUTS, **{**values, **options})
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return head.eval()


def batch(head, seed=1):
    torch.manual_seed(seed)
    marks = torch.from_numpy(head.mark_words(WORDS, LABEL))
    short = torch.full((6, 4), -1)
    short[:4] = torch.from_numpy(head.mark_words(WORDS[:4], None))
    data = torch.randn(2, 6, H)
    rows = Padded(data, torch.tensor([6, 4]), marks=torch.stack([marks, short]))
    return rows.with_data(data)


def slow_score(head, x, marks, mentions, i, j):
    distance = i - j
    bucket = distance - 1 if distance < 5 else min(int(math.log2(distance)), 6) + 2
    f = np.zeros(9 + 3 + 2, np.float32)
    f[bucket] = 1
    f[9] = marks[i][3] == marks[j][3]
    known = marks[i][1] >= 0 and marks[j][1] >= 0
    f[10], f[11] = known and marks[i][1] == marks[j][1], known and marks[i][1] != marks[j][1]
    if marks[j][2] >= 0:
        f[12 + marks[j][2]] = 1
    net = head.pairs
    weight = torch.cat(
        [part.weight for part in (net.word, net.antecedent, net.product, net.features)], 1
    )
    pair = torch.cat([x[i], x[j], x[i] * x[j], torch.from_numpy(f)])
    fine = net.score((weight @ pair + net.word.bias).relu())[0]
    return (head.rough.weight @ x[i] + head.rough.bias) @ x[j] + mentions[i] + mentions[j] + fine


def test_scores_and_loss_equal_the_slow_version(monkeypatch):
    head = build(antecedents=5)
    output = head(batch(head))
    document = next(output.documents())
    found = head.find_antecedents(document)
    marks = document.marks.tolist()
    for i in range(6):
        pairs_of = [*zip(found.words[i].tolist(), found.scores[i], found.real[i], strict=True)]
        assert {j for j, _, real in pairs_of if real} == {*range(i)}
        for j, score, real in pairs_of:
            if real:
                wanted = slow_score(head, document.states, marks, document.mentions, i, j)
                assert torch.allclose(score, wanted, atol=1e-5)
    entity = [0, -1, 1, -1, 0, -1]
    marginal = pairs = 0.0
    for i in range(6):
        scores = {j: slow_score(head, document.states, marks, document.mentions, i, j).item()
                  for j in range(i)}  # fmt: skip
        gold = [j for j in range(i) if entity[i] >= 0 and entity[j] == entity[i]]
        top = math.log(1 + sum(math.exp(s) for s in scores.values()))
        marginal += top - (math.log(sum(math.exp(scores[j]) for j in gold)) if gold else 0.0)
        losses = [math.log(1 + math.exp(-s if j in gold else s)) for j, s in scores.items()]
        pairs += sum(losses) / 5
    same = torch.tensor([[entity[i] >= 0 and entity[i] == entity[j] and j < i
                          for j in found.words[i].tolist()] for i in range(6)])  # fmt: skip
    total = module.antecedent_loss(found, same)
    assert abs(total.item() - marginal - 0.5 * pairs) < 1e-4
    monkeypatch.setattr(module, "MAX_PAIRS", 10)  # two words at once, layers computed again
    monkeypatch.setattr(module, "MAX_ROUGH_SCORES", 12)
    chunked = head.find_antecedents(document)
    assert torch.allclose(chunked.scores.masked_fill(~chunked.real, 0),
                          found.scores.masked_fill(~found.real, 0), atol=1e-5)  # fmt: skip


def test_the_best_bilinear_scores_are_kept():
    head = build(antecedents=2)
    document = next(head(batch(head)).documents())
    x = document.states
    rough = head.rough(x) @ x.T + document.mentions
    for i, row in enumerate(head.find_candidates(document).tolist()):
        best = sorted(range(i), key=lambda j: -rough[i, j].item())[:2]
        assert [j for j in row if j < i] == best


def test_every_parameter_learns_and_padding_changes_nothing():
    head = build().train()
    x = batch(head)
    target = torch.full((2, 6, 4), -1)
    target[0, :3] = torch.tensor([[0, 0, 0, 2], [2, 1, 2, 3], [4, 0, 4, 6]])
    target[1, :2] = torch.tensor([[0, 0, 0, 1], [2, 0, 1, 3]])
    loss, count = head(x).loss(target)
    loss.backward()
    assert count == 10
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())
    noisy = x.data.clone()
    noisy[1, 4:] = 99.0
    head.eval()
    other = Padded(noisy, x.lengths, marks=x.marks)
    clean = Padded(x.data, x.lengths, marks=x.marks)
    assert torch.allclose(head(other).loss(target)[0], head(clean).loss(target)[0])
    alone = Padded(x.data[1:, :4], torch.tensor([4]), marks=x.marks[1:, :4])
    for ours, theirs in zip(head(clean).decode()[1], head(alone).decode()[0], strict=True):
        assert np.allclose(ours, theirs)


def test_spans_hold_their_head_and_stay_in_sentence_and_window():
    head = build()
    document = next(head(batch(head)).documents())
    starts, ends = head.best_spans(document, torch.arange(6))
    for word, (start, end) in enumerate(zip(starts, ends, strict=True)):
        assert word - 2 <= start <= word < end <= word + 3
        assert (start < 4) == (word < 4) == (end - 1 < 4)  # sentences begin at 0 and 4


def test_links_make_entities_and_spans_are_unique():
    entity, probs = link_words(
        [-1, -1, 0, -1, 2], [1, 1, 0.9, 1, 0.8], [0.7, 0.2, 0, 0.6, 0], False
    )
    assert entity == {0: 0, 2: 0, 4: 0}
    assert probs == {0: 0.7, 2: 0.9, 4: 0.8}
    assert set(link_words([-1, -1], [1, 1], [0.4, 0.6], True)[0]) == {1}
    lines = [(0, 0, 0, 1), (2, 0, 2, 4), (3, 1, 2, 4), (5, 1, 5, 6)]
    kept = drop_repeats(lines, [0.9, 0.5, 0.8, 0.7], False)
    assert [line for line, _ in kept] == [(3, 1, 2, 4), (5, 1, 5, 6)]
    assert len(drop_repeats(lines, [0.9, 0.5, 0.8, 0.7], True)) == 3


def test_a_link_needs_a_score_above_the_margin():
    head = build(antecedents=5)
    document = next(head(batch(head)).documents())
    found = head.find_antecedents(document)
    best, place = found.scores.masked_fill(~found.real, -math.inf).max(1)
    for margin in (-100.0, best[1:].median().item() - 1e-4, 100.0):
        head.link_margin = margin
        table, _ = head.resolve(document)
        linked = [i for i in range(1, 6) if best[i] > margin]
        assert {*table[:, 0].tolist()} >= {i for i in linked if len(table)}
        entity = dict(table[:, :2].tolist())
        assert all(entity[i] == entity[found.words[i, place[i]].item()] for i in linked if entity)
        assert bool(len(table)) == bool(linked)


def test_distances_and_marks():
    some = torch.tensor([1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 63, 64, 999])
    assert bucket_distances(some).tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8]
    head = build()
    marks = head.mark_words(WORDS, LABEL)
    assert marks[:, 0].tolist() == [0, 0, 0, 0, 1, 1]
    assert marks[:, 1].tolist() == [0, 0, 0, 0, 1, 1]
    assert marks[0, 3] == marks[4, 3]
    assert set(marks[:, 2]) == {1}
    assert head.mark_words(WORDS, None)[:, 0].tolist() == [0, 0, 0, 0, 1, 1]  # after the full stop


def test_windows_keep_every_word_once_within_the_limit():
    sizes = [1, 3, 2, 1, 1, 4, 1, 2, 2, 1, 0, 1, 5, 1, 1, 0, 0]
    windows = split_word_windows(sizes, 8, 2)
    assert [w for _, _, first, last in windows for w in range(first, last)] == list(range(15))
    for start, stop, first, last in windows:
        assert start <= first < last <= stop
        assert sum(sizes[start:stop]) <= 8

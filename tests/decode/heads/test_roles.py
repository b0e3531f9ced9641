"""Heads of semantic roles: tags and spans against enumeration, marks, padding, constraints."""

import itertools

import numpy as np
import pytest
import torch

from weft.batch import Padded
from weft.decode.heads.roles import RoleCRFHead, RoleSpanHead, index_predicates, read_target
from weft.decode.heads.semantics.role_spans import (
    EXTRA,
    FOUND,
    GIVEN,
    GIVEN_AND_FOUND,
    RoleSpan,
    best_disjoint,
)
from weft.explain.targets.role import role_logits
from weft.text.annotation.frames import Frames, Predicate

ROLES = ("ARG0", "ARG1", "V")
SENSES = ("bark.01", "run.01", "run.02", "run_up.03")
FORMS = ("barked\tbark", "ran\trun\trun_up", "runs\trun")
OUTPUTS = [(ROLES, ""), (SENSES, ""), (FORMS, "")]
H = 5
HEADS = (RoleCRFHead, RoleSpanHead)


def build(kind, **options):
    torch.manual_seed(3)
    head = kind(H, OUTPUTS, hidden=4, predicate=3, sense=3, dropout=0.0, **options)
    for parameter in head.parameters():  # scores that differ
        torch.nn.init.normal_(parameter, std=0.7)
    return head.eval()


def batch(lengths=(4, 2), marks=None, seed=1):
    torch.manual_seed(seed)
    data = torch.randn(len(lengths), max(lengths), H)
    rows = Padded(data, torch.tensor(lengths), marks=marks)
    return rows.with_data(data)


def marks(*rows):
    return torch.tensor(rows)


@pytest.mark.parametrize("kind", HEADS)
def test_every_parameter_learns_and_padding_changes_nothing(kind):
    head = build(kind).train()
    given = marks([[0, 0], [1, 3], [0, 0], [0, 0]], [[1, 1], [0, 0], [-1, -1], [-1, -1]])
    x = batch(marks=given)
    target = torch.tensor(
        [[[1, 1, -1, -1], [1, 0, 0, 1], [1, 2, 1, 2], [1, 1, 2, 4]],
         [[0, 0, -1, -1], [0, 2, 0, 1], [0, 1, 1, 2], [-1, -1, -1, -1]]]
    )  # fmt: skip
    total, words = head(x).loss(target)
    assert words == 6
    total.backward()
    missing = [n for n, p in head.named_parameters() if p.grad is None or not p.grad.any()]
    assert missing == []
    dirty = x.data.clone()
    dirty[1, 2:] = 1e4
    again, _ = head(Padded(dirty, x.lengths, marks=given).with_data(dirty)).loss(target)
    torch.testing.assert_close(again, total)
    alone = batch(lengths=(4, 2), marks=given)
    single = Padded(alone.data[1:, :2], torch.tensor([2]), marks=given[1:, :2])
    rest, _ = head(single).loss(target[1:])
    first = Padded(alone.data[:1], torch.tensor([4]), marks=given[:1])
    torch.testing.assert_close(total, rest + head(first).loss(target[:1])[0], atol=1e-4, rtol=1e-5)


def test_crf_loss_is_that_of_the_tags_of_each_predicate():
    head, x = build(RoleCRFHead), batch((4,))
    target = torch.tensor([[[1, -1, -1, -1], [1, 0, 0, 1], [1, 2, 1, 2], [1, 1, 2, 4]]])
    gold = read_target(target, x)
    emissions = head.emissions(x, gold.predicates)
    tags = torch.tensor([[1, 5, 3, 4]])  # B-ARG0 B-V B-ARG1 I-ARG1
    expected = head.chain.loss(emissions, tags)[0]
    torch.testing.assert_close(head.role_loss(x, gold), expected)


@pytest.mark.parametrize("kind", HEADS)
def test_roles_do_not_overlap_and_the_verb_covers_its_predicate(kind):
    for seed in range(6):
        head, x = build(kind), batch((4, 3), seed=seed)
        every = index_predicates(np.array([0, 0, 1]), np.array([0, 3, 1]), x)
        for word, size, roles in zip((0, 3, 1), (4, 4, 3), head.best_roles(x, every), strict=True):
            covered = [k for one in roles for k in range(one.start, one.end)]
            assert len(covered) == len(set(covered))
            assert all(0 <= one.start < one.end <= size for one in roles)
            assert all(0 <= one.prob <= 1 for one in roles)
            verbs = [one for one in roles if one.role == 2]
            assert [one.start <= word < one.end for one in verbs] == [True]


def test_best_disjoint_spans_are_those_of_all_subsets():
    draw = np.random.default_rng(5)
    for _ in range(40):
        spans = []
        for role in range(7):
            start = int(draw.integers(0, 8))
            end = start + 1 + int(draw.integers(0, 4))
            spans.append((RoleSpan(role, start, end, 0.5), float(draw.normal())))
        best = max(
            (
                sum(gain for _, gain in some)
                for n in range(len(spans) + 1)
                for some in itertools.combinations(spans, n)
                if all(
                    a.end <= b.start or b.end <= a.start
                    for (a, _), (b, _) in itertools.combinations(some, 2)
                )
            ),
        )
        gains = dict(spans)
        found = best_disjoint(spans)
        assert sum(gains[one] for one in found) == pytest.approx(best)
        assert [one.start for one in found] == sorted(one.start for one in found)


def test_role_probabilities_of_a_crf_are_those_of_all_sequences():
    head, x = build(RoleCRFHead), batch((4,))
    output = head(x)
    predicates = index_predicates(np.array([0]), np.array([1]), x)
    emissions = head.emissions(x, predicates)
    scores = {}
    for tags in itertools.product(range(7), repeat=4):
        try:
            value = head.chain.score(emissions, torch.tensor([tags]))
        except Exception:
            continue
        scores[tags] = value.item()
    total = np.logaddexp.reduce(list(scores.values()))
    for start, end in ((0, 1), (1, 3), (2, 4), (0, 4)):
        probs = role_logits(output, 1, start, end)[0].softmax(0).tolist()
        for role in range(3):
            begin, inside = 2 * role + 1, 2 * role + 2
            own = [
                value
                for tags, value in scores.items()
                if tags[start:end] == (begin, *[inside] * (end - start - 1))
                and (end == 4 or tags[end] != inside)
            ]
            expected = np.exp(np.logaddexp.reduce(own) - total) if own else 0.0
            assert probs[role] == pytest.approx(expected, abs=1e-6), (start, end, role)
        assert sum(probs) == pytest.approx(1)


def test_role_probabilities_of_spans_are_of_the_span_and_its_label():
    head, x = build(RoleSpanHead), batch((4,))
    predicates = index_predicates(np.array([0]), np.array([1]), x)
    logits, _, first, last = head.score_spans(x, predicates)
    labels = head.labels.pairs(first[:, 2], last[:, 3])[0].softmax(0)
    probs = role_logits(head(x), 1, 2, 4)[0].softmax(0)
    torch.testing.assert_close(probs[:3], logits[0, 2, 3].sigmoid() * labels)


def test_senses_are_chosen_among_those_of_the_word():
    head = build(RoleCRFHead)
    words = ("The", "dog", "barked", "ran", "runs", "jumped")
    found = head.mark_words(words, None)
    assert found[:, 0].tolist() == [-1] * 6
    groups = [head.inventory.groups[group] for group in found[:, 1]]
    assert groups == [(), (), ("bark",), ("run", "run_up"), ("run",), ()]
    states = torch.randn(6, H)
    senses, probs = head.senses.best(states, torch.from_numpy(found[:, 1]))
    assert senses[[0, 1, 5]].tolist() == [-1, -1, -1]
    assert senses[2] == 0
    assert senses[3] in (1, 2, 3)
    assert senses[4] in (1, 2)
    assert probs[2] == 1.0


@pytest.mark.parametrize("kind", HEADS)
def test_given_predicates_are_labelled_beside_those_found(kind):
    head = build(kind)
    label = Frames((Predicate(2, "bark.01", ()),))
    told = torch.from_numpy(head.mark_words(("a", "dog", "barked", "."), label))[None]
    assert told[0, :, 0].tolist() == [0, 0, 1, 0]
    x = batch((4,), marks=told)
    output = head(x)
    found = (output.predicates[0] > 0).tolist()
    table, probs = output.decode()[0]
    lines = table[table[:, 2] < 0]
    status = {int(word): int(kind) for word, _, _, kind in lines}
    assert status == {
        word: (GIVEN_AND_FOUND if found[word] else GIVEN) if word == 2 else EXTRA
        for word in range(4)
        if found[word] or word == 2
    }
    assert probs.shape == (len(table),)
    free, _ = head(batch((4,))).decode()[0]
    assert set(free[free[:, 2] < 0][:, 3].tolist()) <= {FOUND}
    # Chunks of predicates are labelled as all of them together.
    import weft.decode.heads.semantics.role_spans as module

    before, module.MAX_DECODED_STEPS = module.MAX_DECODED_STEPS, 1
    try:
        again, same = output.decode()[0]
    finally:
        module.MAX_DECODED_STEPS = before
    assert (again == table).all()
    assert np.allclose(same, probs, atol=1e-6)


def test_targets_beyond_the_row_are_ignored():
    x = batch((3,))
    target = torch.tensor([[[1, 0, -1, -1], [1, 1, 2, 5], [7, 0, -1, -1], [7, 0, 0, 1]]])
    gold = read_target(target, x)
    assert gold.roles == [(0, 1, 2, 3)]
    assert gold.predicates.words.tolist() == [1]

"""The head that fills in hidden words: against sums by hand, in pieces, and transformers."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.fixtures.mlm_parts import MASKING, PARTS, V
from tests.fixtures.shapes import checked
from weft.batch.documents import Documents
from weft.batch.mlm_collator import MLMLabels
from weft.batch.mlm_collator import MLMLoader as Batches
from weft.decode.heads import mlm
from weft.errors import UserError
from weft.model import build_model
from weft.tasks.mlm import MaskedLM


def model(follows=True, **embedder):
    torch.manual_seed(1)
    pool = {"kind": "cls" if follows else "mean"}
    parts = {**PARTS, "embedder": {**PARTS["embedder"], **embedder}, "pool": pool}
    out = build_model(parts, vocabulary_size=V, outputs=(V, follows)).eval()
    with torch.no_grad():
        for parameter in out.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return out


def batch(follows=True, rows=7, **options):
    draw = np.random.default_rng(2)
    documents = Documents(words=options.get("whole", False))
    for _ in range(9):
        sentences = [draw.integers(7, V, draw.integers(1, 12)).astype(np.int32) for _ in range(4)]
        documents.append(sentences, begins=[np.ones(len(s), bool) for s in sentences])
    masking = replace(MASKING, next_sentence=follows, **options)
    found, _ = next(iter(Batches(documents.close(), masking, rows=rows, seed=1, epochs=1)))
    assert not found.source.full
    return found


def by_hand(net, given):
    """Both mean losses, one place after the other, from all scores of all places."""
    reading, target = net.run(given.source), MLMLabels.of(given.target)
    head = net.head
    states = F.gelu(head.dense(reading.states.data))
    states = F.layer_norm(states, states.shape[2:], head.norm.weight, head.norm.bias, head.eps)
    logp = (states @ net.embedders[0].table.weight.T + head.bias).log_softmax(2)
    lost = [
        -logp[row, step, word]
        for row in range(len(given))
        for step, word in zip(target.positions[row].tolist(), target.ids[row].tolist(), strict=True)
        if step >= 0
    ]
    if head.next is None:
        return sum(lost) / len(lost), 0.0
    told = head.next(reading.vector).log_softmax(1)
    follows = [-told[row, target.is_random_next[row]] for row in range(len(given))]
    return sum(lost) / len(lost), sum(follows) / len(follows)


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize("width", [0, 5])
def test_the_loss_is_the_mean_of_hidden_words_and_the_mean_of_what_follows(follows, width):
    net, given = model(follows, width=width), batch(follows)
    loss = MaskedLM().loss(net(given.source), given)
    assert loss.count == given.count == len(given)
    wanted = sum(by_hand(net, given))
    torch.testing.assert_close(loss.total / loss.count, wanted, rtol=1e-5, atol=1e-5)
    weights = list(net.parameters())
    ours = torch.autograd.grad(loss.total / loss.count, weights)
    assert all(gradient.any() for gradient in ours)
    for a, b in zip(ours, torch.autograd.grad(wanted, weights), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)


def test_a_batch_in_pieces_costs_the_same():
    net, given = model(), batch()
    whole = MaskedLM().loss(net(given.source), given)
    pieces = [MaskedLM().loss(net(piece.source), piece) for piece in given.split(3)]
    assert len(pieces) == 3
    assert sum(piece.count for piece in pieces) == whole.count
    total = sum(piece.total for piece in pieces)
    torch.testing.assert_close(total, whole.total, rtol=1e-5, atol=1e-5)


def test_metric_sums_equal_the_loss(monkeypatch):
    monkeypatch.setattr(mlm, "MAX_LOGITS", 5 * V)
    net, given = model(), batch()
    rows = net(given.source).score_rows(given.target)
    nats, hidden, _, next_nats, asked, _ = rows.sum(0).tolist()
    wanted = [float(part) for part in by_hand(net, given)]
    assert [nats / hidden, next_nats / asked] == pytest.approx(wanted, rel=1e-5)
    assert hidden == int((MLMLabels.of(given.target).ids >= 0).sum())
    assert asked == len(given)
    with torch.no_grad():  # a bias that settles everything
        net.head.bias[:] = 0
        net.head.bias[11] = 1e4
        net.head.next.bias[1] = 1e4
    rows, target = net(given.source).score_rows(given.target), MLMLabels.of(given.target)
    assert rows[:, 2].tolist() == (target.ids == 11).sum(1).tolist()
    assert rows[:, 5].tolist() == target.is_random_next.tolist()


def test_padding_and_its_content_change_nothing():
    net, given = model(), batch()
    garbage = given.source.data.masked_fill(~given.source.mask, 17)
    other = replace(given, source=replace(given.source, data=garbage))
    ours, theirs = (MaskedLM().loss(net(one.source), one).total for one in (given, other))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_the_table_is_the_embedders_and_saved_once():
    net = model()
    names = {name for name, _ in net.named_parameters() if name.startswith("head")}
    expected = {"dense.weight", "dense.bias", "norm.weight", "norm.bias", "bias"}
    assert names == {f"head.{name}" for name in expected | {"next.weight", "next.bias"}}
    assert net.head.table is net.embedders[0].table
    assert not any("table" in name for name in net.head.state_dict())
    bare = {name for name, _ in model(follows=False).named_parameters() if "head" in name}
    assert bare == {f"head.{name}" for name in expected}


def test_embedder_without_word_table_raises_user_error():
    parts = {**PARTS, "embedder": {"kind": "ngrams", "width": 7}}
    with pytest.raises(UserError, match="head 'masked' scores words with the embedder's table"):
        build_model(parts, vocabulary_size=V, outputs=(V, True))


def test_shape_comments_are_true():
    net, given = model(), batch()

    def both():
        MaskedLM().loss(net(given.source), given)
        net(given.source).score_rows(given.target)

    assert checked("weft.decode.heads.mlm", both) >= 5


NAMES = {
    "embedders.0.table": "bert.embeddings.word_embeddings",
    "embedders.0.positions": "bert.embeddings.position_embeddings",
    "embedders.0.segments": "bert.embeddings.token_type_embeddings",
    "embedders.0.norm": "bert.embeddings.LayerNorm",
    "embedders.0.blocks.": "bert.encoder.layer.",
    "attention_norm": "attention.output.LayerNorm",
    "attention.output.weight": "attention.output.dense.weight",
    "attention.output.bias": "attention.output.dense.bias",
    ".attention.query": ".attention.self.query",
    ".attention.key": ".attention.self.key",
    ".attention.value": ".attention.self.value",
    "feed_in": "intermediate.dense",
    "feed_out": "output.dense",
    "feed_norm": "output.LayerNorm",
    "pool.dense": "bert.pooler.dense",
    "head.dense": "cls.predictions.transform.dense",
    "head.norm": "cls.predictions.transform.LayerNorm",
    "head.bias": "cls.predictions.bias",
    "head.next": "cls.seq_relationship",
}


def test_losses_are_those_of_transformers():
    transformers = pytest.importorskip("transformers")
    net, given = model(), batch()
    config = transformers.BertConfig(
        vocab_size=V, hidden_size=12, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=48, max_position_embeddings=29, pad_token_id=0,
    )  # fmt: skip
    other = transformers.BertForPreTraining(config).eval()
    weights = {}
    for name, tensor in net.state_dict().items():
        for ours, theirs in NAMES.items():
            name = name.replace(ours, theirs)
        weights[name] = tensor
    weights["cls.predictions.decoder.weight"] = net.head.table.weight
    weights["cls.predictions.decoder.bias"] = net.head.bias
    missing, unexpected = other.load_state_dict(weights, strict=False)
    assert not unexpected
    assert not [name for name in missing if "position_ids" not in name]
    source, target = given.source, MLMLabels.of(given.target)
    labels = torch.full_like(source.data, -100)
    for row in range(len(given)):
        asked = target.positions[row] >= 0
        labels[row, target.positions[row][asked]] = target.ids[row][asked]
    with torch.no_grad():
        told = other(
            input_ids=source.data, attention_mask=source.mask.long(),
            token_type_ids=source.segments, labels=labels,
            next_sentence_label=target.is_random_next,
        )  # fmt: skip
        loss = MaskedLM().loss(net(source), given)
        both = [float(part) for part in by_hand(net, given)]
    torch.testing.assert_close(loss.total / loss.count, told.loss, rtol=1e-5, atol=1e-5)
    flat = told.prediction_logits.flatten(0, 1)
    assert both[0] == pytest.approx(float(F.cross_entropy(flat, labels.flatten())), abs=1e-5)
    follows = F.cross_entropy(told.seq_relationship_logits, target.is_random_next)
    assert both[1] == pytest.approx(float(follows), abs=1e-5)

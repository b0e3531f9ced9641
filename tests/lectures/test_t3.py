"""T3: ∂s_t/∂s_{t-k} = Π diag(1 - s²) W, and ∂loss_t/∂s_{t-k} of a language model."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from weft.batch import LabelledBatch, Padded, TokenStore, labelled_batch
from weft.batch.mlm_collator import MLMLabels
from weft.decode.heads.lm import MASK_ID
from weft.model import build_model
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.tasks.language import LanguageModelling
from weft.tasks.mlm import MaskedLM
from weft.train.gradients.labelled import examine
from weft.train.gradients.predictions import examine_predictions

B, T, V, E, H = 3, 13, 11, 7, 5
CPU = select_runtime("cpu")
WEIGHT_NAMES = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
LM_SPACE = (V, 0, 0)  # vocabulary size, the id before a text, the id that ends it


def language_model(kind="rnn-lm", seed=1, **options):
    torch.manual_seed(seed)
    decoder = {"kind": kind, **options}
    if kind != "gpt":
        decoder = {"width": E, "hidden": H, **decoder}
    return build_model(
        {"task": {"kind": "language", "window": T}, "decoder": decoder},
        vocabulary_size=V,
        outputs=LM_SPACE,
    ).eval()


def running_text(both=False):
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, V, (B, T + 1)))
    source = Padded(ids[:, 1:] if both else ids[:, :-1], torch.full((B,), T))
    return LabelledBatch(source, np.arange(B), ids[:, 1:].contiguous(), B * T)


def median_relative(rows):
    """Rows (B, k) of norms by distance -> the median over rows, relative to distance 0."""
    rows = np.array(rows)
    return np.median(rows / rows[:, :1], axis=0)


def strengths(health, name):
    return np.array([value for _, value in health.distances[name]])


def test_elman_gradient_is_the_product_of_the_slides_jacobians():
    torch.manual_seed(0)
    parts = {
        "embedder": {"kind": "lookup", "width": E, "scale": 1.0},
        "encoder": {"kind": "rnn", "cell": "rnn", "hidden": H, "bidirectional": False},
        "pool": {"kind": "last"},
        "head": {"kind": "linear"},
    }
    net = build_model(parts, vocabulary_size=V, outputs=2).eval()
    store = TokenStore()
    for row in range(B):
        store.append(1 + (np.arange(T) * 3 + row) % (V - 1), row % 2, line=row + 1)
    batch = labelled_batch(store.close(), np.arange(B))
    W = net.encoder.net.weight_hh_l0.detach().double()
    rows = []
    with torch.no_grad():
        states = net.encoder(net.embed(batch.source)).data.double()  # (B, T, H)
        for s, target in zip(states, batch.target.tolist(), strict=True):
            p = net.head(s[-1:].float()).double().softmax(1)[0]
            dL = net.head.score.weight.double().T @ (p - F.one_hot(torch.tensor(target), 2))
            jacobian, norms = torch.eye(H, dtype=torch.float64), []
            for k in range(T):
                norms.append(float((dL @ jacobian).norm()))  # ∂L/∂s_T · ∂s_T/∂s_{T-k}
                jacobian = jacobian @ torch.diag(1 - s[T - 1 - k] ** 2) @ W
            rows.append(norms)
    health = examine(net, Classify(), batch, CPU)
    assert strengths(health, "layer 1") == pytest.approx(median_relative(rows), abs=1e-5)


def elman_step(x, s, net, layer):
    W, U, b, d = (getattr(net, f"{name}_l{layer}") for name in WEIGHT_NAMES)
    return torch.tanh(W @ x + b + U @ s + d)


def lstm_step(x, state, net, layer):
    W, U, b, d = (getattr(net, f"{name}_l{layer}") for name in WEIGHT_NAMES)
    h, c = state
    i, f, g, o = (W @ x + b + U @ h + d).chunk(4)
    c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(c), c


@pytest.mark.parametrize("layers", [1, 2])
def test_an_elman_lm_has_the_gradient_of_its_last_loss_at_every_earlier_state(layers):
    model, batch = language_model(cell="rnn", layers=layers), running_text()
    decoder = model.head.decoder
    rows = [[] for _ in range(layers)]
    for ids, target in zip(batch.source.data, batch.target, strict=True):
        s, taken = [torch.zeros(H)] * layers, [[] for _ in range(layers)]
        for word in ids:
            x = decoder.words.table.weight[word]
            for layer in range(layers):
                s[layer] = x = elman_step(x, s[layer], decoder.net, layer)
                taken[layer].append(x)
        loss = -torch.log_softmax(decoder.words.weight @ s[-1] + decoder.words.bias, 0)[target[-1]]
        for layer in range(layers):
            grads = torch.autograd.grad(loss, taken[layer], retain_graph=True)
            rows[layer].append([float(g.norm()) for g in grads[::-1]])
    health = examine_predictions(model, LanguageModelling(), batch, CPU)
    for layer in range(layers):
        found = strengths(health, f"layer {layer + 1}")
        assert found == pytest.approx(median_relative(rows[layer]), abs=1e-5)
        assert [k for k, _ in health.distances[f"layer {layer + 1}"]] == list(range(T))


def test_an_lstm_lm_keeps_its_memory_in_the_cells():
    model, batch = language_model(cell="lstm"), running_text()
    decoder, hidden, cells = model.head.decoder, [], []
    for ids, target in zip(batch.source.data, batch.target, strict=True):
        state, taken = (torch.zeros(H), torch.zeros(H)), []
        for word in ids:
            state = lstm_step(decoder.words.table.weight[word], state, decoder.net, 0)
            taken.append(state)
        logits = decoder.words.weight @ state[0] + decoder.words.bias
        loss = -torch.log_softmax(logits, 0)[target[-1]]
        for out, part in ((hidden, 0), (cells, 1)):
            grads = torch.autograd.grad(loss, [s[part] for s in taken], retain_graph=True)
            out.append([float(g.norm()) for g in grads[::-1]])
    health = examine_predictions(model, LanguageModelling(), batch, CPU)
    assert strengths(health, "layer 1") == pytest.approx(median_relative(hidden), abs=1e-5)
    assert strengths(health, "layer 1 cell") == pytest.approx(median_relative(cells), abs=1e-5)


@pytest.mark.parametrize("by", ["mask", "skip"])
def test_a_masked_birnn_is_read_from_the_predicted_word_outwards(by):
    model = language_model("bidirectional-lm", by=by, cell="rnn")
    batch, at = running_text(both=True), T // 2
    decoder = model.head.decoder
    forward = decoder.nets[0].net
    rows = {" forward": [], " backward": []}
    for ids, target in zip(batch.source.data, batch.target, strict=True):
        ids = ids.clone()
        if by == "mask":
            ids[at] = MASK_ID
        x = decoder.words.table.weight[ids]
        ahead, back = [], []
        s = z = torch.zeros(H)
        for t in range(T):
            s = elman_step(x[t], s, forward, 0)
            ahead.append(s)
        side = "_reverse" if by == "mask" else ""
        net = forward if by == "mask" else decoder.nets[1].net
        W, U, b, d = (getattr(net, f"{name}_l0{side}") for name in WEIGHT_NAMES)
        for t in reversed(range(T)):
            z = torch.tanh(W @ x[t] + b + U @ z + d)
            back.append(z)  # of t = T-1 first
        gap = 0 if by == "mask" else 1
        state = torch.cat([ahead[at - gap], back[T - 1 - at - gap]])
        loss = -torch.log_softmax(decoder.words.weight @ state + decoder.words.bias, 0)[target[at]]
        for name, seen in (
            (" forward", ahead[: at + 1 - gap]),
            (" backward", back[: T - at - gap]),
        ):
            grads = torch.autograd.grad(loss, seen, retain_graph=True)
            rows[name].append([float(g.norm()) for g in grads[::-1]])
    torch.manual_seed(3)
    health = examine_predictions(model, LanguageModelling(), batch, CPU)
    for name, values in rows.items():
        found = strengths(health, f"layer 1{name}")
        assert found == pytest.approx(median_relative(values), abs=1e-5)


def test_gpt_and_nnlm_have_the_gradient_of_their_inputs():
    batch = running_text()
    for kind, options in (
        ("gpt", {"hidden": 6, "heads": 2, "layers": 2, "max_positions": T}),
        ("nnlm", {"context": 4}),
    ):
        model = language_model(kind, **options)
        decoder, rows = model.head.decoder, []
        for i in range(B):
            kept = []
            handle = decoder.words.table.register_forward_hook(
                lambda module, inputs, out, kept=kept: kept.append(out)
            )
            one = Padded(batch.source.data[i : i + 1], torch.tensor([T]))
            loss = F.cross_entropy(decoder(one)[:, -1], batch.target[i : i + 1, -1])
            handle.remove()
            (gradient,) = torch.autograd.grad(loss, kept)
            rows.append(gradient[0].norm(dim=1).flip(0).tolist())
        health = examine_predictions(model, LanguageModelling(), batch, CPU)
        found, wanted = strengths(health, "input"), median_relative(rows)
        assert found == pytest.approx(wanted[: len(found)], abs=1e-5)
        if kind == "nnlm":
            assert (found[:4] > 0).all()
            assert (found[4:] == 0).all()
            assert (health.level, "last 4 words alone" in health.verdict) == ("warning", True)
        else:
            assert (found > 0).all()
            assert set(health.distances) == {"input", "layer 1", "layer 2"}
            assert "Attention connects every step" in health.verdict


def test_bert_is_read_from_a_masked_token_to_both_sides():
    torch.manual_seed(0)
    parts = {
        "task": {"kind": "masked", "next_sentence": False},
        "embedder": {"kind": "bert", "hidden": 6, "heads": 2, "layers": 2, "max_positions": T,
                     "dropout": 0.0, "attention_dropout": 0.0},
        "encoder": {"kind": "none"},
        "pool": {"kind": "mean"},
        "head": {"kind": "masked"},
    }  # fmt: skip
    model = build_model(parts, vocabulary_size=V, outputs=(V, False)).eval()
    ids = torch.from_numpy(np.random.default_rng(0).integers(1, V, (B, T)))
    lengths, at = torch.tensor([T, T - 2, T]), [4, 6, 7]
    target = torch.full((B, 3 + 2 * 2), -1)
    target[:, 0], target[:, 1], target[:, 2] = 0, B, B
    for i, position in enumerate(at):
        target[i, 3], target[i, 5] = position, 1 + i
    assert MLMLabels.of(target).positions[:, 0].tolist() == at
    batch = LabelledBatch(Padded(ids, lengths), np.arange(B), target, B)
    rows = []
    for i, position in enumerate(at):
        kept = []
        handle = (
            model.embedders[0]
            .blocks[0]
            .register_forward_hook(lambda m, x, out, k=kept: k.append(out[0]))
        )
        one = Padded(ids[i : i + 1, : lengths[i]], lengths[i : i + 1])
        states = model.run(one).states.data[0]
        handle.remove()
        loss = -model.head.logps(states[position : position + 1])[0, 1 + i]
        (gradient,) = torch.autograd.grad(loss, kept)
        norms = gradient[0].norm(dim=1).tolist()
        rows += [norms[: position + 1][::-1], norms[position:]]
    longest = max(map(len, rows))
    relative = np.full((len(rows), longest), np.nan)
    for i, row in enumerate(rows):
        relative[i, : len(row)] = np.array(row) / row[0]
    health = examine_predictions(model, MaskedLM(next_sentence=False), batch, CPU)
    found = strengths(health, "layer 1")
    assert found == pytest.approx(np.nanmedian(relative, 0)[: len(found)], abs=1e-5)
    assert len(found) >= 5

"""Promises that every decoder keeps, with and without a memory; a new one is picked up by name."""

import copy

import pytest
import torch

from tests.fixtures.attention import MASKS, SCORES, build_spec
from tests.fixtures.shapes import checked
from weft import registry
from weft.batch import Padded
from weft.decode.losses import sequence_loss, shift_right
from weft.decode.search.state import expand_beams, reorder
from weft.encode.cells import FORMULA_CELLS

V, M = 13, 6
LENGTHS, SOURCES = [5, 0, 1, 3], [3, 2, 0, 7]
SMALL = {
    "rnn": {"width": 5, "hidden": 3},
    "cnn": {"width": 5, "hidden": 7, "layers": 2, "max_positions": 11},
    "transformer": {"hidden": 4, "heads": 2, "layers": 2, "feed_forward": 5},
    "gpt": {"hidden": 4, "heads": 2, "layers": 2, "feed_forward": 5, "max_positions": 11},
    "nnlm": {"width": 3, "context": 3, "hidden": 5},
    "rnn-lm": {"width": 5, "hidden": 3},
    "bidirectional-lm": {"width": 5, "hidden": 3},
    "elmo": {"width": 5, "hidden": 7, "filters": [[1, 3], [2, 5]], "character_width": 3},
}
ATTENDING = ("rnn", "cnn", "transformer", "gpt")
VARIANTS = [
    {"kind": "rnn", "source": "start", "cell": "rnn", "layers": 2, "dropout": 0.3},
    {"kind": "rnn", "source": "start", "summary": "mean", "tied": True},
    {"kind": "rnn", "source": "every", "cell": "gru", "layers": 2, "summary": "max"},
    {"kind": "rnn", "source": "every", "tied": True},
    *({"kind": kind, "[attention]": {"score": score}} for kind in ATTENDING for score in SCORES),
    {"kind": "rnn", "[attention]": {"score": "dot"}, "hidden": 6, "cell": "gru"},
    {"kind": "rnn", "[attention]": {"score": "scaled"}, "input_feeding": True, "layers": 2},
    {"kind": "rnn", "[attention]": {"score": "bilinear"}, "input_feeding": True, "dropout": 0.3},
    *(
        {"kind": kind, "[attention]": {"score": score, **mask}}
        for kind in ("transformer", "gpt")
        for score in ("additive", "scaled")
        for mask in MASKS[2:]
    ),
    {"kind": "rnn", "input_feeding": True, "coverage": True, "tied": True},
    {"kind": "rnn", "coverage": True, "cell": "rnn", "layers": 2},
    {"kind": "rnn", "attention": "bahdanau", "cell": "gru", "summary": "backward"},
    {"kind": "rnn", "attention": "bahdanau", "layers": 2, "dropout": 0.3, "readout": "tanh"},
    {"kind": "rnn", "attention": "bahdanau", "cell": "rnn", "readout": "state", "tied": True},
    {"kind": "rnn", "attention": "bahdanau", "coverage": True, "layers": 2, "summary": "mean"},
    {
        "kind": "rnn",
        "attention": "bahdanau",
        "[attention]": {"score": "dot"},
        "hidden": 6,
        "cell": "gru",
    },
    *({"kind": "rnn", "cell": cell, "layers": 2} for cell in FORMULA_CELLS),
    *(
        {"kind": "rnn", "cell": cell, "attention": "bahdanau", "layers": 2}
        for cell in ("tied-lstm", "gru-reset-before")
    ),
    {"kind": "cnn", "kernel": 1, "tied": True, "dropout": 0.0},
    {"kind": "cnn", "kernel": 4, "width": 6},
    {"kind": "transformer", "norm": "post", "tied": False, "activation": "gelu"},
    {"kind": "transformer", "positions": "learned", "max_positions": 11, "hidden": 6, "heads": 3},
    {"kind": "transformer", "max_positions": 2},
    {"kind": "gpt", "tied": False, "activation": "relu"},
    {"kind": "nnlm", "direct": True, "context": 1},
    {"kind": "nnlm", "tied": True, "context": 4},
    {"kind": "rnn-lm", "cell": "rnn", "layers": 2, "tied": True},
    {"kind": "rnn-lm", "cell": "gru", "dropout": 0.3, "layers": 2},
    {
        "kind": "rnn-lm",
        "layers": 2,
        "dropout": 0.2,
        "variational": True,
        "word_dropout": 0.1,
        "weight_drop": 0.3,
    },
    *({"kind": "rnn-lm", "cell": cell, "layers": 2, "dropout": 0.3} for cell in FORMULA_CELLS),
    {"kind": "rnn-lm", "cell": "tied-lstm", "weight_drop": 0.3, "variational": True},
    {"kind": "rnn-lm", "layers": 2, "layer_norm": True, "dropout": 0.3},
    {"kind": "rnn-lm", "cell": "prototype-lstm", "layers": 2, "layer_norm": True},
    {"kind": "rnn-lm", "cell": "gru", "layer_norm": True, "variational": True, "tied": True},
    {"kind": "bidirectional-lm", "by": "mask", "tied": True},
    {"kind": "bidirectional-lm", "layers": 2, "cell": "gru"},
    {"kind": "bidirectional-lm", "cell": "tied-lstm"},
    {"kind": "elmo", "layer_norm": True},
    {"kind": "elmo", "layers": 1, "clip": 0.0, "highway_layers": 0, "max_bytes": 2},
]
CASES = [{"kind": name, **SMALL[name]} for name in sorted(registry.parts("decoder"))]
CASES += [{**SMALL[spec["kind"]], **spec} for spec in VARIANTS]


def build(spec):
    torch.manual_seed(1)
    return build_spec("decoder", spec, vocabulary_size=V, memory_size=M, directions=2).eval()


@pytest.fixture(params=CASES, ids=str)
def decoder(request):
    return build(request.param)


def targets(lengths=LENGTHS, extra=0, garbage=0):
    torch.manual_seed(0)
    data = torch.randint(1, V, (len(LENGTHS), max(LENGTHS)))[: len(lengths), : max(lengths)]
    x = Padded(torch.nn.functional.pad(data, (0, extra)), torch.tensor(lengths))
    return Padded(x.data.masked_fill(~x.mask, garbage), x.lengths)


def memory(extra=0, garbage=0.0):
    torch.manual_seed(3)
    data = torch.randn(len(SOURCES), max(SOURCES), M)
    x = Padded(torch.nn.functional.pad(data, (0, 0, 0, extra)), torch.tensor(SOURCES))
    return Padded(x.data.masked_fill(~x.mask[..., None], garbage), x.lengths)


def run(decoder, ids, source=None):
    return (
        decoder(ids, source if source is not None else memory())
        if decoder.reads_source
        else decoder(ids)
    )


def begin(decoder, source=None, **options):
    if decoder.reads_source:
        return decoder.start(memory() if source is None else source, **options)
    return decoder.start(len(LENGTHS), "cpu", **options)


def stepped(decoder, ids, state):
    scores = []
    for column in ids.data.unbind(1):
        one, state = decoder.step(column, state)
        scores.append(one)
    return torch.stack(scores, 1), state


def close(a, b):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_scores_have_the_promised_shape_and_repeat(decoder):
    scores = run(decoder, targets())
    assert scores.shape == (4, 5, V)
    assert scores.isfinite().all()
    assert torch.equal(scores, run(decoder, targets()))


def test_stepping_is_the_same_as_all_at_once(decoder):
    if not decoder.causal:
        with pytest.raises(NotImplementedError):
            decoder.step(torch.zeros(2, dtype=torch.long), None)
        return
    ids = targets([5, 5, 5, 5])
    scores, _ = stepped(decoder, ids, begin(decoder))
    close(scores, run(decoder, ids))


def test_a_state_can_be_reordered(decoder):
    if not decoder.causal:
        return
    ids, order = targets([5, 5, 5, 5]), torch.tensor([3, 0, 0])
    _, state = stepped(decoder, Padded(ids.data[:, :2], torch.full((4,), 2)), begin(decoder))
    state = reorder(state, order)
    rest = Padded(ids.data[order, 2:], torch.full((3,), 3))
    close(stepped(decoder, rest, state)[0], run(decoder, ids)[order, 2:])


def test_beams_share_encoder_states(decoder):
    if not (decoder.causal and decoder.reads_source):
        return
    twice = torch.arange(4).repeat_interleave(2)
    torch.manual_seed(7)
    ids = Padded(torch.randint(1, V, (8, 3)), torch.full((8,), 3))
    source = Padded(memory().data[twice], memory().lengths[twice])
    state = expand_beams(begin(decoder, weights=True).per_prompt(), 2)
    close(stepped(decoder, ids, state)[0], run(decoder, ids, source))


def test_the_future_is_not_seen(decoder):
    ids = targets([5, 5, 5, 5])
    other = Padded(ids.data.clone(), ids.lengths)
    other.data[:, 3] = (other.data[:, 3] + 1) % V
    before, after = run(decoder, ids), run(decoder, other)
    assert not torch.allclose(before[:, 3:], after[:, 3:])
    if decoder.causal:
        close(before[:, :3], after[:, :3])


def test_padding_does_not_change_answers(decoder):
    short = run(decoder, targets(garbage=0), memory(garbage=0.0))
    long = run(decoder, targets(extra=4, garbage=7), memory(extra=3, garbage=float("nan")))
    for a, b, n in zip(short, long, LENGTHS, strict=True):
        close(a[:n], b[:n])


def test_rows_do_not_see_each_other(decoder):
    ids, source = targets(), memory()
    together = run(decoder, ids, source)
    for i, (n, s) in enumerate(zip(LENGTHS, SOURCES, strict=True)):
        row = Padded(ids.data[i : i + 1, :n], ids.lengths[i : i + 1])
        one = Padded(source.data[i : i + 1, :s], source.lengths[i : i + 1])
        close(run(decoder, row, one)[0], together[i, :n])


def test_nothing_to_write(decoder):
    none = Padded(torch.zeros(4, 0, dtype=torch.long), torch.zeros(4, dtype=torch.long))
    assert run(decoder, none).shape == (4, 0, V)


def test_every_parameter_learns(decoder):
    torch.manual_seed(5)
    ids = Padded(torch.randint(1, V, (4, 5)), torch.tensor([5, 5, 5, 5]))
    scores = run(decoder.train(), ids)
    (scores * torch.randn_like(scores)).sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        # A key's bias shifts all scores of a query alike.
        if not name.endswith(("key.bias",)):
            assert parameter.grad.any(), name


def test_weights_alone_carry_the_answer(decoder):
    before, saved = run(decoder, targets()), copy.deepcopy(decoder.state_dict())
    with torch.no_grad():
        for parameter in decoder.parameters():
            parameter.mul_(0.5).add_(0.1)
    assert not torch.equal(run(decoder, targets()), before)
    decoder.load_state_dict(saved)
    assert torch.equal(run(decoder, targets()), before)


def test_attention_is_a_distribution_over_the_source(decoder):
    if not decoder.reads_source:
        return
    read = decoder.read(targets(), memory(garbage=99.0))
    if not getattr(decoder, "attends", True):
        assert read.weights is None
        return
    assert read.weights.shape == (4, 5, 7)
    assert not read.weights.masked_select(~memory().mask[:, None]).any()
    real = torch.tensor(SOURCES) > 0
    close(read.weights.sum(2), real[:, None].float().expand(4, 5))
    state = begin(decoder, weights=True)
    looked = []
    for column in targets([5, 5, 5, 5]).data.unbind(1):
        _, state = decoder.step(column, state)
        looked.append(state.weights)
    whole = decoder.read(targets([5, 5, 5, 5]), memory())
    close(torch.stack(looked, 1), whole.weights)


def test_half_precision_runs(decoder):
    with torch.autocast("cpu", torch.bfloat16):
        scores = run(decoder.train(), targets())
        scores.float().square().mean().backward()
        decoder.eval()
        if decoder.causal:
            ids = targets([5, 5, 5, 5])
            some, _ = stepped(decoder, ids, begin(decoder))
            torch.testing.assert_close(some, run(decoder, ids), rtol=0.1, atol=0.1)
    assert all(p.grad is None or p.grad.isfinite().all() for p in decoder.parameters())


def test_double_precision_runs_and_agrees(decoder):
    ids = targets()
    single = run(decoder, ids)
    source = memory()
    twice = run(decoder.double(), ids, Padded(source.data.double(), source.lengths))
    assert twice.dtype == torch.double
    torch.testing.assert_close(single.double(), twice, rtol=1e-4, atol=1e-4)


def test_shape_comments_are_true(decoder):
    assert checked("weft.decode", lambda: run(decoder, targets())) >= 2


@pytest.mark.parametrize("name", sorted(registry.parts("decoder")))
def test_the_defaults_work(name):
    decoder = build({"kind": name})
    assert run(decoder, targets()).shape == (4, 5, V)


@pytest.mark.parametrize("name", sorted(registry.parts("decoder")))
def test_decoder_memorises_four_sentences(name):
    sizes = {"hidden": 32, "feed_forward": 32} if name in ("transformer", "gpt") else {"hidden": 32}
    decoder = build({"kind": name, **SMALL[name], **sizes}).train()
    wanted, source = targets([5, 2, 4, 3]), memory()
    read = shift_right(wanted, bos=2) if decoder.causal else wanted
    optimiser = torch.optim.Adam(decoder.parameters(), lr=0.01)
    for _ in range(120):
        loss, count = sequence_loss(run(decoder, read, source), wanted)
        optimiser.zero_grad()
        (loss / count).backward()
        optimiser.step()
    right = run(decoder.eval(), read, source).argmax(2) == wanted.data
    if decoder.causal and not decoder.reads_source:
        # Two of the four begin alike, and without a source nothing tells them apart so far.
        right, wanted = right[:, 2:], Padded(wanted.data[:, 2:], (wanted.lengths - 2).clamp(min=0))
    assert right[wanted.mask].float().mean() > 0.9

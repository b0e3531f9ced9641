"""A1: the four attention functions of deck 000 in every use, by one setting.

φ(q, h) = u·tanh(W q + W' h + b), q·h, q·h/√d, h W q; α = softmax(φ), c = Σ α_i h_i.
"""

import math

import numpy as np
import pytest
import torch

from tests.fixtures.attention import SCORES, build_spec
from weft import registry
from weft.attend import head_scores
from weft.attend.multihead import MultiHeadAttention
from weft.attend.settings import Attention
from weft.batch import Padded
from weft.config import recipe
from weft.errors import UserError
from weft.model import fill
from weft.run.train import resolve_config

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
T, S, E = 3, 5, 6
NONE = Attention("scaled")


def phi(kind, weights, q, h):
    """The slide; `weights` are u, W, W', b of the additive and W of the bilinear function."""
    if kind == "additive":
        u, W, V, b = weights
        return u @ np.tanh(W @ q + V @ h + b)
    if kind == "bilinear":
        return h @ weights @ q
    return q @ h / (math.sqrt(len(q)) if kind == "scaled" else 1)


def softmax(values):
    powers = np.exp(values - np.max(values))
    return powers / powers.sum()


def of_part(kind, score):
    """The weights of a score with one head."""
    if kind == "additive":
        query = score.query
        parts = (score.weigh.weight[0], query.weight, score.memory.weight, query.bias)
        return [part.detach().numpy() for part in parts]
    return score.weight.detach().numpy() if kind == "bilinear" else None


def of_head(kind, score, n):
    """The weights of head n."""
    if kind == "additive":
        parts = (score.weigh[n, :, 0], score.query[n], score.key[n], score.bias[n, 0])
        return [part.detach().numpy() for part in parts]
    return score.weight[n].detach().numpy() if kind == "bilinear" else None


def all_scores(kind, score, queries, steps):
    """φ of every pair, (T, S)."""
    weights = of_part(kind, score)
    q, h = queries.detach().numpy(), steps.detach().numpy()
    return np.array([[phi(kind, weights, a, b) for b in h] for a in q])


def randomise(part):
    """No weight is zero, not even a bias."""
    torch.manual_seed(5)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return part.eval()


def text(steps, width=E, seed=0):
    torch.manual_seed(seed)
    return Padded(torch.randn(1, steps, width), torch.tensor([steps]))


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", SCORES)
def test_a_score_is_the_function_on_the_slide(kind):
    score = randomise(registry.build("score", {"kind": kind}, query_size=E, memory_size=E))
    q, h = text(T).data, text(S, seed=1).data
    close(score(q, h)[0], all_scores(kind, score, q[0], h[0]))


@pytest.mark.parametrize("kind", SCORES)
def test_a_pool_averages_by_the_softmax_of_the_function(kind):
    pool = randomise(
        build_spec("pool", {"kind": "attention", "[attention]": {"score": kind}}, input_size=E)
    )
    x = text(S)
    vector, weights = pool(x)
    alpha = softmax(all_scores(kind, pool.score, pool.query[None], x.data[0])[0])
    close(weights[0], alpha)
    close(vector[0], alpha @ x.data[0].numpy())


@pytest.mark.parametrize("kind", SCORES)
def test_the_last_state_attends_by_the_function(kind):
    spec = {"kind": "last-attention", "hidden": 7, "[attention]": {"score": kind}}
    pool = randomise(build_spec("pool", spec, input_size=E))
    x = text(S)
    vector, weights = pool(x)
    q = torch.tanh(x.data[0] @ pool.query.weight.T + pool.query.bias)
    alpha = softmax(all_scores(kind, pool.score, q, q[-1:])[:, 0])
    close(weights[0], alpha)
    close(vector[0], alpha @ x.data[0].numpy())


@pytest.mark.parametrize("kind", SCORES)
def test_a_recurrent_decoder_attends_by_the_function(kind):
    spec = {"kind": "rnn", "width": 3, "hidden": E, "[attention]": {"score": kind}}
    decoder = randomise(build_spec("decoder", spec, vocabulary_size=11, memory_size=E))
    source, ids = text(S), Padded(torch.tensor([[4, 7, 2]]), torch.tensor([3]))
    read = decoder.read(ids, source)
    scores = all_scores(kind, decoder.score, read.hidden[0], source.data[0])
    alpha = np.array([softmax(row) for row in scores])
    close(read.weights[0], alpha)
    context = torch.from_numpy(alpha @ source.data[0].numpy()).float()
    joined = torch.cat([context, read.hidden[0]], 1)
    features = torch.tanh(joined @ decoder.mix.weight.T + decoder.mix.bias)
    torch.testing.assert_close(read.features[0], features, **CLOSE)


@pytest.mark.parametrize("kind", SCORES)
def test_a_block_of_the_convolutional_decoder_attends_by_the_function(kind):
    spec = {"kind": "cnn", "width": E, "hidden": 7, "[attention]": {"score": kind}}
    decoder = randomise(build_spec("decoder", spec, vocabulary_size=11, memory_size=E))
    source, query = text(S), text(T, seed=1).data
    state, block = decoder.start(source), decoder.blocks[1]
    found, weights = block._attend(query, state.keys[1], state.values, state.mask)
    rows = all_scores(kind, block.score, query[0], source.data[0])
    alpha = np.array([softmax(row) for row in rows])
    close(weights[0], alpha)
    close(found[0], alpha @ source.data[0].numpy() * math.sqrt(S))


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("pair_kind", ["esim", "decomposable", "bidaf"])
def test_two_texts_are_aligned_by_the_function(kind, pair_kind):
    spec = {"kind": pair_kind, "hidden": E, "[attention]": {"score": kind}}
    pair = randomise(build_spec("pair", spec, input_size=E))
    first, second = text(T), text(S, seed=1)
    to_second, to_first = pair.attention_weights(first, second)
    a, b = first.data[0], second.data[0]
    if pair_kind == "decomposable":  # F of the words behind a null word
        a, b = (pair.attend(torch.cat([pair.null[None], x])) for x in (a, b))
    if pair_kind == "bidaf":  # states of a BiLSTM; the passage asks the question
        u, h = (pair.context(x).data[0] for x in (first, second))
        s = all_scores(kind, pair.score, h, u)
        close(to_first[0], np.array([softmax(row) for row in s]))
        close(to_second[0], np.array([softmax(s.max(1))] * T))
        return
    e = all_scores(kind, pair.score, a, b)
    close(to_second[0], np.array([softmax(row) for row in e]))
    close(to_first[0], np.array([softmax(row) for row in e.T]))
    if pair_kind == "esim":  # and the alignment is what the composition reads
        other = torch.from_numpy(np.array([softmax(row) for row in e]) @ b.numpy()).float()
        m = torch.cat([a, other, a - other, a * other], 1)
        local = torch.relu(m @ pair.project.weight.T + pair.project.bias)
        states = pair.compose(Padded(local[None], torch.tensor([T]))).data
        torch.testing.assert_close(pair(first, second)[0].data, states, **CLOSE)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("memory_size", [0, 5])
def test_every_head_attends_by_its_own_function(kind, memory_size):
    heads, K = 2, E // 2
    torch.manual_seed(1)
    net = randomise(MultiHeadAttention(E, heads, 0.0, memory_size, Attention(kind)))
    x = text(T).data
    source = text(S, memory_size, 1).data if memory_size else x
    found, weights = net(x, source if memory_size else None, return_weights=True)
    q, k, v = (
        layer(data)[0].detach().numpy().reshape(-1, heads, K)
        for layer, data in ((net.query, x), (net.key, source), (net.value, source))
    )
    contexts = []
    for n in range(heads):
        own = of_head(kind, net.score, n)
        rows = [[phi(kind, own, a, b) for b in k[:, n]] for a in q[:, n]]
        alpha = np.array([softmax(row) for row in rows])
        close(weights[0, n], alpha)
        contexts.append(alpha @ v[:, n])
    joined = torch.from_numpy(np.concatenate(contexts, 1)).float()
    torch.testing.assert_close(found[0], net.output(joined), **CLOSE)
    fused, nothing = net(x, source if memory_size else None)
    assert nothing is None
    torch.testing.assert_close(fused, found, **CLOSE)


# ---- gradients


def attention_use(name, kind):
    """A part in double precision, and a function of its inputs to differentiate."""
    given = {"[attention]": {"score": kind}}
    small = {"width": 3, "hidden": 4}
    heads = {"hidden": 4, "heads": 2, "layers": 1, "feed_forward": 3}
    ids = Padded(torch.tensor([[4, 7, 2], [3, 0, 0]]), torch.tensor([3, 1]))
    lengths = torch.tensor([3, 1])
    if name in ("attention", "last-attention"):
        part = build_spec("pool", {"kind": name, **given}, input_size=4)
        return part, lambda x, _: part(Padded(x, lengths))[0]
    if name == "encoder":
        part = build_spec("encoder", {"kind": "transformer", **heads, **given}, input_size=4)
        return part, lambda x, _: part(Padded(x, lengths)).data[:, :1]
    if name in ("esim", "decomposable", "bidaf"):
        part = build_spec("pair", {"kind": name, "hidden": 3, **given}, input_size=4)
        if name == "bidaf":
            return part, lambda x, y: part(Padded(x, lengths), Padded(y, lengths)).data
        return part, lambda x, y: [out.data for out in part(Padded(x, lengths), Padded(y, lengths))]
    sizes = {"rnn": small, "cnn": {**small, "layers": 2}, "transformer": heads, "gpt": heads}[name]
    spec = {"kind": name, **sizes, **given}
    part = build_spec("decoder", spec, vocabulary_size=11, memory_size=4)
    if name == "gpt":
        return part, lambda x, _: part(ids) + 0 * x.sum()
    return part, lambda x, _: part(ids, Padded(x, lengths))


USES = (
    *("attention", "last-attention", "encoder", "esim", "decomposable", "bidaf"),
    *("rnn", "cnn", "transformer", "gpt"),
)


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize("name", USES)
def test_gradients_of_every_use_are_those_of_differences(name, kind):
    part, function = attention_use(name, kind)
    part = randomise(part).double()
    torch.manual_seed(3)
    x, y = (torch.randn(2, 3, 4, dtype=torch.double, requires_grad=True) for _ in range(2))
    weights = [p for n, p in part.named_parameters() if "score." in n or "query" in n]
    assert torch.autograd.gradcheck(
        lambda x, y, *_: function(x, y), (x, y, *weights), fast_mode=True
    )


def test_an_additive_score_in_chunks_is_the_same(monkeypatch):
    torch.manual_seed(0)
    score = head_scores.HeadAdditive(2, 3)
    q, k = torch.randn(2, 2, 7, 3, requires_grad=True), torch.randn(2, 2, 5, 3)
    whole = score.compare(q, k)
    (expected,) = torch.autograd.grad(whole.square().sum(), q)
    monkeypatch.setattr(head_scores, "MAX_PAIR_ELEMENTS", 2 * 2 * 3 * 5 * 2)
    calls = []
    plain = score._compare_chunk
    monkeypatch.setattr(score, "_compare_chunk", lambda *x: calls.append(1) or plain(*x))
    chunked = score.compare(q, k)
    assert len(calls) == 4
    torch.testing.assert_close(chunked, whole)
    (found,) = torch.autograd.grad(chunked.square().sum(), q)
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        torch.testing.assert_close(score.compare(q, k), whole)


@pytest.mark.parametrize("kind", SCORES)
def test_one_product_for_queries_keys_and_values_has_the_score_in_it(kind):
    torch.manual_seed(1)
    net, x = randomise(MultiHeadAttention(E, 2, attention=Attention(kind))), text(S).data
    expected = net(x)[0]
    net.fuse_qkv()
    assert net.fused_qkv[0].shape == (3 * E, E)
    torch.testing.assert_close(net(x)[0], expected, **CLOSE)


# ---- the setting


@pytest.mark.parametrize("kind", SCORES)
@pytest.mark.parametrize(
    "name",
    [
        *("bilstm-attention", "transformer", "tagger-transformer", "esim", "decomposable", "bidaf"),
        *("seq2seq-attention", "seq2seq-cnn", "seq2seq-transformer", "seq2seq-copy", "gpt"),
    ],
)
def test_one_setting_reaches_every_recipe_that_attends(name, kind):
    if (name, kind) in [("seq2seq-copy", k) for k in SCORES[1:]]:
        with pytest.raises(UserError, match="'coverage' is a term of the additive score"):
            built(recipe(name).with_values({"attention.score": kind}, "test"))
        return
    model = built(recipe(name).with_values({"attention.score": kind}, "test"))
    assert model.parts["attention"]["score"] == kind
    classes = {
        *(type(m).__name__.removeprefix("Head").lower() for m in model.modules()),
    }
    assert kind in classes
    assert not classes & ({*SCORES, "trilinear"} - {kind})


def built(config):
    from weft.model import build_model
    from weft.tune.space import DECODER_OUTPUTS, WORD_OUTPUTS, find_task

    full = resolve_config(config)
    by_word = find_task(full["task"]["kind"]).is_structured
    outputs = DECODER_OUTPUTS if "decoder" in full else WORD_OUTPUTS if by_word else 2
    return build_model(full, vocabulary_size=17, outputs=outputs)


DEFAULTS = {
    "bilstm-attention": {"score": "scaled"},
    "transformer": {"score": "scaled", "mask": "full"},
    "gpt": {"score": "scaled", "mask": "causal"},
    "seq2seq-transformer": {"score": "scaled"},  # full in the encoder, causal in the decoder
    "seq2seq-attention": {"score": "additive"},
    "seq2seq-cnn": {"score": "dot"},
    "esim": {"score": "dot"},
    "decomposable": {"score": "dot"},
    "bidaf": {"score": "trilinear"},
    "seq2seq": None,
    "cnn": None,
}


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_filled_section_holds_what_all_parts_share(name):
    full = fill(recipe(name).sections)
    assert full.get("attention") == DEFAULTS[name]
    assert fill({**recipe(name).sections, **full}) == full


def test_a_model_with_two_defaults_leaves_the_score_open():
    sections = {**recipe("transformer").sections, "pool": {"kind": "attention"}}
    assert fill(sections)["attention"] == {"mask": "full"}
    model = built(recipe("transformer").with_values({"pool": {"kind": "attention"}}, "test"))
    assert type(model.pool.score).__name__ == "Additive"
    assert type(model.encoder.blocks[0].attention.score).__name__ == "HeadScaled"


@pytest.mark.parametrize("name", ["cnn", "bilstm", "seq2seq", "lstm-lm", "towers"])
def test_a_recipe_without_attention_refuses_the_setting(name):
    config = recipe(name).with_values({"attention.score": "dot"}, "test")
    with pytest.raises(UserError, match=r"attention.score = 'dot', but this model has no attent"):
        resolve_config(config)


def test_settings_that_do_not_fit_are_refused():
    def refused(name, message, **values):
        with pytest.raises(UserError, match=message):
            fill(
                recipe(name)
                .with_values({f"attention.{k}": v for k, v in values.items()}, "")
                .sections
            )

    refused("transformer", "Unknown score 'addtive'.* Did you mean 'additive'", score="addtive")
    refused("transformer", r"multi-head attention \(encoder 'transformer'\)", score="trilinear")
    refused("bilstm-attention", "Unknown option 'scores' in \\[attention\\]", scores="dot")
    with pytest.raises(UserError, match="Unknown option 'score' in pool 'attention'"):
        fill(recipe("bilstm-attention").with_values({"pool.score": "dot"}, "test").sections)
    with pytest.raises(UserError, match=r"\[classic\] stands alone; remove \[attention\]"):
        recipe("tfidf").with_values({"attention.score": "dot"}, "test")


def test_a_pre_trained_network_keeps_its_score():
    bert = {"kind": "bert", "hidden": 4, "heads": 2, "layers": 1, "feed_forward": 3}
    sections = {
        "embedder": bert, "encoder": {"kind": "none"}, "pool": {"kind": "cls"},
        "head": {"kind": "linear"},
    }  # fmt: skip
    with pytest.raises(
        UserError, match="the embedder 'bert' is pre-trained, with scaled attention"
    ):
        fill({**sections, "attention": {"score": "dot"}})
    assert "attention" not in fill({**sections, "attention": {"score": "scaled"}})
    pooled = {**sections, "pool": {"kind": "attention"}, "attention": {"score": "dot"}}
    assert fill(pooled)["attention"] == {"score": "dot"}


@pytest.mark.parametrize(
    ("name", "changes"), [("transformer", {}), ("esim", {"pool": {"kind": "attention"}})]
)
def test_the_score_can_be_tuned(name, changes):
    from weft.tune.space import base_point, make_dimensions

    base = recipe(name).with_values({"data.train": "train.tsv", **changes}, "test")
    dimensions = make_dimensions({"attention.score": ["additive", "dot"]}, base)
    assert dimensions[0].values == ("additive", "dot")
    assert base_point(base, dimensions) is None  # scaled; dot in one part and additive in another
    now = base.with_values({"attention.score": "dot"}, "test")
    assert base_point(now, dimensions) is not None
    with pytest.raises(UserError, match="has no attention"):
        make_dimensions({"attention.score": ["dot"]}, recipe("cnn"))

"""Recursive networks against their papers' equations, evaluated node by node."""

import pytest
import torch

from weft.batch import Padded
from weft.encode.tree import RNTN, TreeLSTM, TreeRNN
from weft.encode.tree_levels import plan_levels
from weft.errors import UserError

E, H = 5, 3
BINARY = [
    [2, 2, 4, 4, -1],  # ((0 1) 3)
    [6, 2, 5, 5, -1, 6, 4],  # steps in no order at all; 2 has an only child
    [-1],
    [],
    [1, 3, 3, -1, -1, 4],  # two roots
]
BUSHY = [[6, 6, 3, 6, 6, 6, -1], [1, 2, 3, -1], [-1, 0, 0, 2, 2, 2], [], [-1]]


def batch(trees, width=E, extra=0, garbage=7.0):
    torch.manual_seed(0)
    lengths = torch.tensor([len(tree) for tree in trees])
    steps = int(lengths.max()) + extra
    data = torch.randn(len(trees), int(lengths.max()), width)
    data = torch.nn.functional.pad(data, (0, 0, 0, extra))
    parents = torch.full((len(trees), steps), 11)  # nonsense in the padding
    for row, tree in enumerate(trees):
        parents[row, : len(tree)] = torch.tensor(tree, dtype=torch.long)
    x = Padded(data, lengths, parents=parents)
    return Padded(data.masked_fill(~x.mask[..., None], garbage), lengths, parents=parents)


def below(tree, node):
    return [step for step, parent in enumerate(tree) if parent == node]


def socher(encoder, tree, x, node):
    """The state of one node by Socher et al. (2013), section 4."""
    children = below(tree, node)
    if not children:
        word = x[node] if encoder.project is None else encoder.project(x[node])
        return word.tanh()
    states = [socher(encoder, tree, x, child) for child in children]
    while len(states) < 2:
        states.append(torch.zeros_like(states[0]))
    c = torch.cat(states)
    out = encoder.weight @ c + encoder.bias
    if encoder.slices is not None:
        out = out + torch.stack([c @ V @ c for V in encoder.slices])
    return out.tanh()


def tai_ordered(e, tree, x, node):
    """Hidden state and cell of one node by Tai et al. (2015), equations 9 to 14."""
    children = [tai_ordered(e, tree, x, child) for child in below(tree, node)]
    size, A = e.output_size, e.arity
    read = e.all_words or not children
    W = dict(zip("iouf", e.word.split(size), strict=False))
    U = list(e.weight.split(size))
    U = {"i": U[0], "o": U[1], "f": U[2 : 2 + A], "u": U[2 + A]}
    b = dict(zip("iouf", e.bias.split(size), strict=True))

    def gate(name, weight):
        total = b[name] + (W[name] @ x[node] if read and name in W else 0)
        for place, (h, _) in enumerate(children):
            total = total + weight[:, place * size : (place + 1) * size] @ h
        return total

    c = gate("i", U["i"]).sigmoid() * gate("u", U["u"]).tanh()
    for place, (_, cell) in enumerate(children):
        c = c + gate("f", U["f"][place]).sigmoid() * cell
    return gate("o", U["o"]).sigmoid() * c.tanh(), c


def tai_summed(e, tree, x, node):
    """Hidden state and cell of one node by Tai et al. (2015), equations 2 to 8."""
    children = [tai_summed(e, tree, x, child) for child in below(tree, node)]
    size = e.output_size
    read = e.all_words or not children
    W = dict(zip("iouf", e.word.split(size), strict=False))
    U = dict(zip("iouf", e.weight.split(size), strict=True))
    b = dict(zip("iouf", e.bias.split(size), strict=True))
    total = sum((h for h, _ in children), torch.zeros(size, dtype=x.dtype))

    def gate(name, h):
        return b[name] + U[name] @ h + (W[name] @ x[node] if read and name in W else 0)

    c = gate("i", total).sigmoid() * gate("u", total).tanh()
    for h, cell in children:
        c = c + gate("f", h).sigmoid() * cell
    return gate("o", total).sigmoid() * c.tanh(), c


CASES = {
    "rnn": (TreeRNN, {}, BINARY, socher),
    "rnn projected": (TreeRNN, {"hidden": H}, BINARY, socher),
    "rntn": (RNTN, {}, BINARY, socher),
    "rntn projected": (RNTN, {"hidden": H}, BINARY, socher),
    "binary": (TreeLSTM, {"hidden": H}, BINARY, tai_ordered),
    "ordered": (
        TreeLSTM, {"hidden": H, "arity": 5, "words": "all", "forget_bias": 0.7}, BUSHY, tai_ordered
    ),
    "sum": (TreeLSTM, {"hidden": H, "children": "sum", "words": "all"}, BUSHY, tai_summed),
    "sum leaves": (TreeLSTM, {"hidden": H, "children": "sum"}, BUSHY, tai_summed),
}  # fmt: skip


@pytest.fixture(params=CASES, ids=str)
def case(request):
    kind, options, trees, reference = CASES[request.param]
    torch.manual_seed(1)
    encoder = kind(E, **options)
    with torch.no_grad():  # no bias at its start of zero
        encoder.bias += torch.randn_like(encoder.bias) / 2
    return encoder, trees, reference


def slowly(encoder, trees, x, reference):
    rows = []
    for tree, data in zip(trees, x.data, strict=True):
        states = [reference(encoder, tree, data, node) for node in range(len(tree))]
        rows.append([s[0] if isinstance(s, tuple) else s for s in states])
    return rows


def test_states_are_the_papers(case):
    encoder, trees, reference = case
    x = batch(trees, extra=2)
    out = encoder(x)
    assert out.data.shape == (len(trees), x.data.shape[1], encoder.output_size)
    assert out.lengths is x.lengths
    assert not out.data[~out.mask].any()
    for fast, slow in zip(out.rows(), slowly(encoder, trees, x, reference), strict=True):
        for a, b in zip(fast, slow, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_are_autograds_of_the_papers_equations(case):
    encoder, trees, reference = case
    encoder, x = encoder.double(), batch(trees)
    data = x.data.double()
    torch.manual_seed(2)
    weights = torch.randn(*x.data.shape[:2], encoder.output_size, dtype=torch.double)
    found = []
    for fast in (True, False):
        leaf = data.clone().requires_grad_()
        made = Padded(leaf, x.lengths, parents=x.parents)
        if fast:
            total = (encoder(made).data * weights).sum()
        else:
            rows = slowly(encoder, trees, made, reference)
            total = sum(
                (state * weight).sum()
                for states, row in zip(rows, weights, strict=True)
                for state, weight in zip(states, row[: len(states)], strict=True)
            )
        found.append(torch.autograd.grad(total, [leaf, *encoder.parameters()]))
    for name, a, b in zip(["data", *dict(encoder.named_parameters())], *found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9, msg=name)
        assert a.any(), name


def test_numeric_gradients(case):
    encoder, trees, _ = case
    encoder, x = encoder.double(), batch(trees)
    data = x.data.double().requires_grad_()

    def run(data, *_):
        return encoder(Padded(data, x.lengths, parents=x.parents)).data

    small = [p for p in encoder.parameters() if p.numel() <= 60]
    assert torch.autograd.gradcheck(run, (data, *small))


def test_a_batch_is_its_trees(case):
    encoder, trees, _ = case
    x = batch(trees)
    together = encoder(x).rows()
    for i, tree in enumerate(trees):
        n = len(tree)
        alone = Padded(
            x.data[i : i + 1, :n], x.lengths[i : i + 1], parents=x.parents[i : i + 1, :n]
        )
        torch.testing.assert_close(encoder(alone).data[0], together[i], rtol=1e-5, atol=1e-6)


def test_padding_has_no_effect(case):
    encoder, trees, _ = case
    a, b = encoder(batch(trees, garbage=0.0)), encoder(batch(trees, extra=5, garbage=99.0))
    for one, other in zip(a.rows(), b.rows(), strict=True):
        assert torch.equal(one, other)


def test_only_children_make_an_lstm():
    """Tai et al., section 3: on a chain the child-sum Tree-LSTM is the LSTM."""
    torch.manual_seed(3)
    e = TreeLSTM(E, H, children="sum", words="all")
    lstm = torch.nn.LSTM(E, H, batch_first=True)
    i, o, u, f = range(4)
    order = [i, f, u, o]  # PyTorch's
    with torch.no_grad():
        for name, own in (("weight_ih", e.word), ("weight_hh", e.weight), ("bias_ih", e.bias)):
            blocks = own.split(H)
            getattr(lstm, f"{name}_l0").copy_(torch.cat([blocks[gate] for gate in order]))
        lstm.bias_hh_l0.zero_()
    chain = [[1, 2, 3, 4, 5, 6, -1]] * 2
    x = batch(chain)
    torch.testing.assert_close(e(x).data, lstm(x.data)[0], rtol=1e-5, atol=1e-6)
    one = TreeLSTM(E, H, arity=1, words="all")  # and so is the N-ary one with one child
    with torch.no_grad():
        one.word.copy_(e.word)
        one.bias.copy_(e.bias)
        one.weight.copy_(torch.cat([e.weight.split(H)[gate] for gate in (i, o, f, u)]))
    torch.testing.assert_close(one(x).data, e(x).data, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [TreeRNN, RNTN, TreeLSTM])
def test_two_thousand_leaves_branching_left(kind):
    leaves = 2000
    parents = [2, 2]
    for top in range(2, 2 * leaves - 2, 2):
        parents += [top + 2, top + 2]
    parents = [*parents, -1]
    assert len(parents) == 2 * leaves - 1
    out = kind(E)(batch([parents]))
    assert len(plan_levels(out, "x", 2).starts) == leaves + 1
    out.data.sum().backward()
    assert torch.isfinite(out.data).all()


def test_the_children_of_a_node_stand_in_the_order_of_their_steps():
    x = batch([[2, 2, -1]])
    encoder = TreeRNN(E)
    turned = Padded(x.data[:, [1, 0, 2]], x.lengths, parents=x.parents)
    wanted = (encoder.weight @ torch.cat([x.data[0, 0], x.data[0, 1]]).tanh()).tanh()
    torch.testing.assert_close(encoder(x).data[0, 2], wanted)
    assert not torch.allclose(encoder(turned).data[0, 2], wanted)


def test_dropout_of_candidates():
    torch.manual_seed(5)
    e = TreeLSTM(E, 101, dropout=0.4)
    x = batch(BINARY * 3)
    assert torch.equal(e.eval()(x).data, e(x).data)
    plain = e(x).data[x.mask]
    e.train()
    torch.manual_seed(6)
    dropped = e(x).data[x.mask]
    leaves = ~torch.isin(torch.arange(5), torch.tensor([2, 4]))
    gone = (e(x).data[0, :5][leaves] == 0).float().mean()  # a leaf has nothing but its candidate
    assert 0.3 < gone < 0.5
    assert not torch.allclose(dropped, plain)
    e = TreeLSTM(E, H, children="sum", dropout=0.4).double().train()
    data = x.data.double().requires_grad_()

    def run(data, *_):
        torch.manual_seed(7)  # the same elements each time
        return e(Padded(data, x.lengths, parents=x.parents)).data

    assert torch.autograd.gradcheck(run, (data, e.weight))
    assert torch.isfinite(run(data)).all()


def test_ordered_dropout_has_the_right_gradient():
    e = TreeLSTM(E, H, dropout=0.3).double().train()
    x = batch(BINARY)
    data = x.data.double().requires_grad_()

    def run(data, *_):
        torch.manual_seed(7)
        return e(Padded(data, x.lengths, parents=x.parents)).data

    assert torch.autograd.gradcheck(run, (data, e.weight, e.bias))


def test_starts_as_in_the_papers():
    encoder = RNTN(17)
    mean = torch.eye(17).repeat(1, 2) / 2
    assert 0 < (encoder.weight - mean).abs().max() <= 1 / (4 * 17**0.5)
    assert 0 < encoder.slices.abs().max() <= 1 / (4 * 17)
    lstm = TreeLSTM(E, H)
    assert lstm.bias.tolist() == [0.0] * (3 * H) + [1.0] * H


def test_half_precision_around_it_changes_nothing(case):
    encoder, trees, _ = case
    x = batch(trees)
    wanted = encoder(x).data
    half = Padded(x.data.bfloat16(), x.lengths, parents=x.parents)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(encoder(x).data, wanted)
        assert encoder(half).data.dtype == torch.float32


@pytest.mark.parametrize(
    ("trees", "message"),
    [
        ([[-1], [2, 2, 1]], r"tree 2 in the batch hang in a circle\. Every node needs a way up"),
        ([[0]], r"tree 1 in the batch hang in a circle"),
        ([[-1], [3, 3, 3, -1]], r"tree 2 in the batch has 3 children, but it reads at most 2\."),
        ([[5, -1]], r"tree 1 in the batch hangs under node 5, but the tree has 2 nodes"),
        ([[-2, -1]], r"under node -2"),
    ],
)  # fmt: skip
def test_trees_that_are_none(trees, message):
    with pytest.raises(UserError, match=f"Encoder 'rntn': .*{message}"):
        RNTN(E)(batch(trees))


def test_texts_without_trees():
    x = batch([[-1]])
    with pytest.raises(UserError, match="Encoder 'tree-lstm' reads trees, but these texts come"):
        TreeLSTM(E)(Padded(x.data, x.lengths))


def test_sizes_that_make_no_sense():
    with pytest.raises(UserError, match="encoder 'rntn': 'hidden' should be at least 1, got -3"):
        RNTN(E, -3)
    with pytest.raises(UserError, match="encoder 'tree-lstm': 'dropout' should be"):
        TreeLSTM(E, dropout=1.0)

"""Prepared blocks find what the blocks themselves find, whatever the lengths of rows."""

import copy
import gc
import threading

import pytest
import torch

from weft.attend import packed as module
from weft.attend.packed import MAX_CHUNK_STEPS, pack_blocks, round_steps
from weft.batch import Padded
from weft.embed.bert import Bert
from weft.embed.gpt import Gpt
from weft.encode.transformer import TransformerEncoder
from weft.runtime import use_threads

V, H, N = 31, 12, 3
SHAPES = {
    "bert": lambda: Bert(V, H, layers=3, heads=N, feed_forward=17, max_positions=41),
    "electra": lambda: Bert(
        V, H, layers=1, heads=N, width=7, position_offset=2, segments=1, max_positions=41
    ),
    "relu": lambda: Bert(V, H, layers=2, heads=1, activation="relu", segments=0, max_positions=41),
    "lora": lambda: Bert(V, H, layers=2, heads=N, lora=2, max_positions=41),
    "gpt": lambda: Gpt(V, H, layers=2, heads=N, max_positions=41),
}
LENGTHS = (5, 2, 11, 0, 5, 41, 1, 11, 3)


def shaken(model):
    torch.manual_seed(9)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    return model.eval()


def rows(lengths=LENGTHS, second=False):
    torch.manual_seed(2)
    ids = torch.randint(0, V, (len(lengths), max(lengths)))
    sizes = torch.tensor(lengths)
    return Padded(ids, sizes, second=sizes // 2 if second else None)


def plain(model, x, face="last"):
    """What it finds where a gradient may be wanted: by the blocks as they are written."""
    with torch.enable_grad():
        return getattr(model, face)(x)


def assert_near(ours, theirs, x, near=1e-5):
    assert ours.shape == theirs.shape
    for a, b in zip(Padded(ours, x.lengths).rows(), Padded(theirs, x.lengths).rows(), strict=True):
        torch.testing.assert_close(a, b.detach(), rtol=near, atol=near)


@pytest.fixture
def calls(monkeypatch):
    """By which threads pieces were read, how many steps they have and with how many they ran."""
    found = []
    real = module._PackedBlock.__call__

    def counted(self, x, groups, causal):
        found.append((threading.current_thread().name, groups[-1].stop, len(x)))
        return real(self, x, groups, causal)

    monkeypatch.setattr(module._PackedBlock, "__call__", counted)
    return found


@pytest.mark.parametrize("name", list(SHAPES))
@pytest.mark.parametrize("second", [False, True])
def test_same_states_as_the_blocks(name, second, calls):
    model, x = shaken(SHAPES[name]()), rows(second=second)
    expected, layers = plain(model, x), plain(model, x, "layers")
    assert not calls
    with torch.inference_mode():
        assert_near(model.last(x), expected, x)
        found = model.layers(x)
    assert {steps for _, steps, _ in calls} == {sum(LENGTHS)}
    assert len(found) == len(layers)
    for ours, theirs in zip(found, layers, strict=True):
        assert_near(ours, theirs, x)


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("cls", [False, True])
def test_the_encoder_reads_so_too(norm, cls, calls):
    encoder = shaken(TransformerEncoder(7, H, layers=2, heads=N, norm=norm, cls=cls))
    torch.manual_seed(3)
    x = Padded(torch.zeros(len(LENGTHS), max(LENGTHS), 1), torch.tensor(LENGTHS))
    x = x.with_data(torch.randn(*x.data.shape[:2], 7))
    expected = plain(encoder, x, "forward")
    with torch.no_grad():
        found = encoder(x)
    assert calls
    torch.testing.assert_close(found.data, expected.data.detach(), rtol=1e-5, atol=1e-5)


def test_padding_is_not_read_and_is_zero():
    model, x = shaken(SHAPES["bert"]()), rows()
    other = Padded(x.data.masked_fill(~x.mask, V - 1), x.lengths)
    with torch.no_grad():
        one, two = model.last(x), model.last(other)
    assert torch.equal(one, two)
    assert not one[~x.mask].any()


@pytest.mark.parametrize("count", [2, 3])
def test_pieces_are_shared_out_among_threads(count, calls, monkeypatch):
    monkeypatch.setattr(module, "MAX_CHUNK_STEPS", 13)
    monkeypatch.setattr(module, "MIN_CHUNK_STEPS", 3)
    model, x = shaken(SHAPES["bert"]()), rows()
    expected = plain(model, x)
    module._thread_pool.cache_clear()
    began = []
    with use_threads(count), torch.inference_mode():
        found = model.last(x)
        assert torch.get_num_threads() == count
        other = threading.Thread(target=lambda: began.append(torch.get_num_threads()))
        other.start()
        other.join()
    assert began == [count]  # the ones that compute alone are no model for others
    assert_near(found, expected, x)
    assert all(name.startswith("prepared") for name, _, _ in calls)
    assert sum(steps for _, steps, _ in calls) == 3 * sum(LENGTHS)
    assert len(calls) > 3 * count


@pytest.mark.parametrize("lengths", [(7,), (1, 1, 1), (300, 2, 900, 41, 41), (2000,), (3,) * 999])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_step_is_in_one_piece(lengths, count):
    width = max(lengths)
    pieces = list(module._split_chunks(torch.tensor(lengths).numpy(), width, count))
    places = torch.cat([piece.positions[: piece.steps] for piece in pieces]).tolist()
    assert sorted(places) == [
        row * width + step for row, length in enumerate(lengths) for step in range(length)
    ]
    for piece in pieces:
        assert piece.steps < MAX_CHUNK_STEPS + max(lengths)
        assert len(piece.positions) == round_steps(piece.steps)
        assert piece.groups[0].start == 0
        ends = [group.stop for group in piece.groups]
        assert [group.start for group in piece.groups[1:]] + [piece.steps] == ends


def test_few_numbers_of_steps_occur(calls):
    """oneDNN keeps half a megabyte of code for each of them, in every layer."""
    sizes = {n: round_steps(n) for n in range(1, MAX_CHUNK_STEPS + 1)}
    assert all(n <= size < n + max(8, n / 8) for n, size in sizes.items())
    assert len(set(sizes.values())) < 45
    model = shaken(SHAPES["bert"]())
    for length in range(33, 41):
        with torch.no_grad():
            model.last(rows((length, length, length)))
    assert {steps for _, steps, _ in calls} == {3 * length for length in range(33, 41)}
    assert {size for _, _, size in calls} == {104, 112, 120}


def test_int8_is_near(calls):
    model = shaken(Bert(V, 48, layers=3, heads=N, max_positions=41))
    x = rows()
    expected = plain(model, x)
    model.weight_dtype = "int8"
    with torch.no_grad():
        found = model.last(x)
    assert calls
    cosine = torch.cosine_similarity(found[x.mask], expected[x.mask], dim=1)
    assert 0.995 < cosine.min() < 1 - 1e-6


def test_changed_weights_are_laid_out_again():
    model, x = shaken(SHAPES["lora"]()), rows()
    with torch.no_grad():
        first = model.last(x)
        assert pack_blocks(model.blocks) is pack_blocks(model.blocks)
        for name, parameter in model.blocks.named_parameters():
            if name.endswith(("up", "feed_in.weight")):
                parameter.mul_(3)
        second = model.last(x)
    assert (first - second).abs().max() > 0.1
    assert_near(second, plain(model, x), x)


def test_packed_weights_are_freed_with_the_blocks():
    gc.collect()  # what earlier tests have left must not go just now
    model = shaken(SHAPES["bert"]())
    with torch.no_grad():
        pack_blocks(model.blocks)
    held = len(module._PACKED)
    assert copy.deepcopy(model) is not model
    del model
    gc.collect()
    assert len(module._PACKED) == held - 1


def test_blocks_that_learn_or_cannot_be_laid_out_read_as_they_are():
    model = shaken(SHAPES["bert"]())
    assert pack_blocks(model.blocks) is None  # gradients may be wanted
    with torch.no_grad():
        assert pack_blocks(model.blocks) is not None
        with torch.autocast("cpu", torch.bfloat16):
            assert pack_blocks(model.blocks) is None
        assert pack_blocks(model.train().blocks) is None
        assert pack_blocks(model.eval().double().blocks) is None


def test_no_rows_and_rows_of_nothing():
    model = shaken(SHAPES["bert"]())
    for shape in ((0, 0), (2, 3)):
        none = Padded(torch.zeros(shape, dtype=torch.long), torch.zeros(shape[0]).long())
        with torch.no_grad():
            found = model.last(none)
        assert found.shape == (*shape, H)
        assert not found.any()


def test_not_a_number_stays_in_its_row():
    encoder = shaken(TransformerEncoder(H, H, layers=2, heads=N))
    data = torch.randn(3, 5, H)
    data[1, 2, 0] = torch.nan
    with torch.no_grad():
        found = encoder(Padded(data, torch.tensor([5, 5, 5]))).data
    assert found.isnan().flatten(1).any(1).tolist() == [False, True, False]

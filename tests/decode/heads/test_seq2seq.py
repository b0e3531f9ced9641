"""A decoder in the place of a head, with words of the source copied: loss, steps and search."""

import pytest
import torch

from weft.batch import Padded
from weft.decode.decoders.convolutional import ConvolutionalDecoder
from weft.decode.decoders.pointer_generator import PointerGenerator
from weft.decode.decoders.recurrent import RecurrentDecoder
from weft.decode.decoders.transformer import Seq2SeqTransformerDecoder
from weft.decode.heads.seq2seq import Seq2SeqHead
from weft.decode.search.settings import SearchSettings
from weft.errors import UserError

V, M, FIRST, LAST = 11, 6, 9, 10
DECODERS = {
    "rnn": lambda: RecurrentDecoder(V, M, width=5, hidden=7, coverage=True),
    "transformer": lambda: Seq2SeqTransformerDecoder(V, M, 4, 2, 2, 5),
}


@pytest.fixture(params=DECODERS)
def head(request):
    torch.manual_seed(3)
    decoder = PointerGenerator(DECODERS[request.param](), M)
    return Seq2SeqHead(decoder, SearchSettings(num_beams=3, max_length=5), FIRST, LAST).eval()


def case():
    torch.manual_seed(5)
    lengths = torch.tensor([7, 3, 5])
    memory = Padded(torch.randn(3, 7, M), lengths)
    source = Padded(torch.randint(2, V + 3, (3, 7)), lengths)
    source.data[:, 1] = V + 2  # a word that is in no vocabulary
    target = torch.tensor([[4, V + 2, 3, LAST], [V + 2, LAST, -1, -1], [2, 3, LAST, -1]])
    return memory, source, target[:, :, None]


def test_stepping_gives_the_probabilities_of_training(head):
    """D6 with copy and coverage: the loss is what the steps of a search would say of the target."""
    memory, source, target = case()
    scores = head(memory, source)
    total, count = scores.pointer_loss(target)
    assert count == 9
    state, ids, said = scores.start().per_prompt(), torch.full((3,), FIRST), torch.zeros(())
    for t in range(4):
        logp, state = head.decoder.step(ids, state)
        assert logp.shape == (3, V + 3)
        torch.testing.assert_close(logp.exp().sum(1), torch.ones(3), rtol=1e-5, atol=1e-5)
        right = target[:, t, 0]
        real = right >= 0
        said = said + logp[real].gather(1, right[real, None]).sum()
        ids = right.clamp(min=0)
    torch.testing.assert_close(-said, total, rtol=1e-5, atol=1e-5)


def test_coverage_adds_to_the_loss(head):
    memory, source, target = case()
    scores = head(memory, source)
    assert scores.pointer_loss(target, 2.0)[0] > scores.pointer_loss(target)[0] + 1e-3


def test_a_search_writes_words_of_the_source(head):
    memory, source, _ = case()
    with torch.no_grad():
        head.decoder.gate.weight.zero_()
        head.decoder.gate.bias.fill_(-50.0)  # only what can be copied is written
        found = [ids[:, 0].tolist() for ids, _ in head(memory, source).decode()]
    for row, ids in zip(source.rows(), found, strict=True):
        assert set(ids) - {LAST} <= set(row.tolist())
    assert any(i >= V for ids in found for i in ids)


def test_a_state_for_every_word_is_needed(head):
    memory, source, _ = case()
    short = Padded(memory.data[:, :4], memory.lengths.clamp(max=4))
    with pytest.raises(UserError, match="Copying needs one encoder state per source word"):
        head(short, source)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    "decoder",
    [
        lambda: RecurrentDecoder(V, M, width=5, hidden=7),
        lambda: RecurrentDecoder(V, M, width=5, hidden=7, source="start"),
        lambda: ConvolutionalDecoder(V, M, width=5, hidden=7, layers=2),
        lambda: Seq2SeqTransformerDecoder(V, M, 4, 2, 2, 5),
    ],
)
def test_a_memory_of_half_precision_is_read_in_that_of_the_weights(decoder, kind):
    """On a GPU recurrent layers give halves, and the search goes on in full precision."""
    torch.manual_seed(3)
    head = Seq2SeqHead(decoder(), SearchSettings(num_beams=3, max_length=5), FIRST, LAST).eval()
    half = case()[0].data.to(kind)
    lengths = torch.tensor([7, 3, 5])
    found = head(Padded(half, lengths)).decode()
    wanted = head(Padded(half.float(), lengths)).decode()
    for (ids, chances), (right, likely) in zip(found, wanted, strict=True):
        assert ids.tolist() == right.tolist()
        torch.testing.assert_close(torch.tensor(chances), torch.tensor(likely))

"""Sampling against the probabilities of the model, truncations against their definitions."""

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from tests.fixtures.search_tables import BOS, EOS, Tables, everything
from weft.decode.search.sampling import (
    GOLDEN_GAMMA,
    mix64,
    random_streams,
    sample_tokens,
    truncate_distribution,
    uniform,
)
from weft.decode.search.search import Constraints, SearchSettings, search, stream
from weft.errors import UserError


def run(tables, settings, rules=None):
    rules = rules or Constraints()
    return search(
        tables.step,
        tables.start(),
        settings,
        batch=tables.rows,
        bos=BOS,
        eos=EOS,
        constraints=rules,
    )


def chi_square(counts: Counter, shares: dict, total: int) -> tuple[float, int]:
    """The statistic over outcomes that should come five times and more, and one for the rest."""
    often = {key for key, share in shares.items() if share * total >= 5}
    pairs = [(counts[key], shares[key] * total) for key in often]
    rest = sum(share for key, share in shares.items() if key not in often) * total
    if rest >= 5:
        pairs.append((sum(n for key, n in counts.items() if key not in often), rest))
    return sum((n - m) ** 2 / m for n, m in pairs), len(pairs) - 1


def fits(counts: Counter, shares: dict) -> bool:
    """Within four standard deviations; also that nothing came that cannot."""
    statistic, freedom = chi_square(counts, shares, sum(counts.values()))
    assert freedom >= 1
    impossible = [key for key in counts if not shares.get(key)]
    return not impossible and statistic < freedom + 4 * math.sqrt(2 * freedom)


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.9])
def test_samples_have_the_expected_frequencies(temperature):
    tables = Tables(rows=2)
    settings = SearchSettings(
        method="sample", num_samples=5003, max_length=4, temperature=temperature, seed=3
    )
    for row, found in enumerate(run(tables, settings)):
        counts = Counter((*one.ids, EOS) if one.ended else (*one.ids,) for one in found)
        shares = {}
        for one in everything(tables, row, 4):
            share = 1.0
            for t, token in enumerate(one.ids):
                scores = tables.scores[row, tables.cell(one.ids[:t])] / temperature
                share *= float(scores.softmax(-1)[token])
            shares[one.ids] = share
        assert sum(shares.values()) == pytest.approx(1, abs=1e-5)
        assert fits(counts, shares)
        if temperature != 1:  # the test can fail: these are not the model's own frequencies
            plain = {one.ids: math.exp(one.total) for one in everything(tables, row, 4)}
            assert not fits(counts, plain)
        for one in found[:7]:  # the numbers are the model's own, whatever the temperature
            words = (*one.ids, EOS) if one.ended else (*one.ids,)
            own = [tables.logps(row, words[:t])[token] for t, token in enumerate(words)]
            assert one.logps == pytest.approx(own, abs=1e-5)


def drawn(logp: torch.Tensor, settings: SearchSettings, count: int = 20011) -> Counter:
    numbers = uniform(random_streams(range(count), 1, logp.device), torch.tensor(5))
    return Counter(sample_tokens(logp.expand(count, -1), numbers, settings).tolist())


def kept(logp: torch.Tensor, settings: SearchSettings) -> set[int]:
    left, place = truncate_distribution(logp[None], settings)
    place = torch.arange(len(logp))[None] if place is None else place
    return {int(i) for i, value in zip(place[0], left[0], strict=True) if value > -math.inf}


def nucleus(shares: dict[int, float], mass: float, key) -> set[int]:
    """The smallest set of first tokens by `key` that holds the mass."""
    found: set[int] = set()
    for token in sorted(shares, key=key):
        if sum(shares[t] for t in found) >= mass:
            break
        found.add(token)
    return found


def expected(logp: torch.Tensor, settings: SearchSettings) -> dict[int, float]:
    """Tokens and shares by the definitions of the truncations, one after the other."""

    def renewed(shares):
        total = sum(shares.values())
        return {t: p / total for t, p in shares.items() if p > 0}

    heat = settings.temperature
    shares = renewed({t: math.exp(x / heat) for t, x in enumerate(logp.tolist())})
    if settings.top_k:
        first = sorted(shares, key=lambda t: -shares[t])[: settings.top_k]
        shares = renewed({t: shares[t] for t in first})
    if settings.top_p < 1:
        first = nucleus(shares, settings.top_p, lambda t: -shares[t])
        shares = renewed({t: shares[t] for t in first})
    if settings.typical_p < 1:
        entropy = -sum(p * math.log(p) for p in shares.values())
        now = dict(shares)
        first = nucleus(shares, settings.typical_p, lambda t: abs(-math.log(now[t]) - entropy))
        shares = renewed({t: shares[t] for t in first})
    return shares


TRUNCATIONS = [
    {},
    {"top_k": 1},
    {"top_k": 5},
    {"top_k": 99},
    {"top_p": 0.7},
    {"top_p": 0.01},
    {"typical_p": 0.6},
    {"typical_p": 0.05},
    {"top_k": 7, "top_p": 0.8},
    {"temperature": 0.5, "top_k": 9, "top_p": 0.9, "typical_p": 0.8},
]


@pytest.mark.parametrize("options", TRUNCATIONS, ids=str)
def test_truncations_keep_what_they_should(options):
    settings = SearchSettings(method="sample", **options)
    for seed in range(5):
        make = torch.Generator().manual_seed(seed)
        logp = (torch.randn(13, generator=make) * 2).log_softmax(-1)
        logp[4] = -math.inf  # some rule does not allow it
        wanted = expected(logp, settings)
        found = kept(logp, settings)
        assert found == set(wanted)
    counts = drawn(logp, settings)
    if len(wanted) > 1:
        assert fits(counts, wanted)
    else:
        assert set(counts) == set(wanted)


@pytest.mark.parametrize("options", [{"top_p": 0.9}, {"typical_p": 0.9}, {"top_p": 0.9999}])
def test_large_vocabularies_are_truncated_alike(options):
    """There only the first tokens are sorted, unless they hold too little."""
    make = torch.Generator().manual_seed(5)
    settings = SearchSettings(method="sample", **options)
    for heat in (4.0, 0.1):
        logp = (torch.randn(5003, generator=make) * heat).double().log_softmax(-1)
        assert kept(logp, settings) == set(expected(logp, settings))


def test_random_numbers_are_those_of_splitmix64():
    seed = torch.tensor(1234567)
    found = [int(mix64(seed + torch.tensor(n) * GOLDEN_GAMMA)) % 2**64 for n in (1, 2, 3)]
    assert found == [6457827717110365317, 3203168211198807973, 9817491932198370423]


def test_random_numbers_are_even_and_apart():
    stream_ = random_streams(range(101), 7, torch.device("cpu"))
    assert len(set(stream_.tolist())) == 707
    numbers = torch.stack([uniform(stream_, torch.tensor(t)) for t in range(53)])  # (53, 707)
    assert 0 <= numbers.min() < numbers.max() < 1
    counts = Counter((numbers * 97).long().flatten().tolist())
    assert fits(counts, dict.fromkeys(range(97), 1 / 97))
    for one, other in itertools.combinations([numbers[0], numbers[1], numbers[:, 0]], 2):
        size = min(len(one), len(other))
        assert abs(float(torch.corrcoef(torch.stack([one[:size], other[:size]]))[0, 1])) < 0.4
    pairs = Counter(((numbers[:-1] * 7).long() * 7 + (numbers[1:] * 7).long()).flatten().tolist())
    assert fits(pairs, dict.fromkeys(range(49), 1 / 49))


def test_seeds_of_any_size():
    wide = random_streams([-1, 2**64 - 1, 2**63, -(2**63), 2**200], 1, torch.device("cpu")).tolist()
    assert wide[0] == wide[1]
    assert wide[2] == wide[3]
    assert len(set(wide)) == 3


def test_the_same_seed_draws_the_same_and_another_does_not():
    tables = Tables(rows=3, vocabulary=7)
    settings = SearchSettings(method="sample", num_samples=3, max_length=9, seed=5)
    first, again = run(tables, settings), run(tables, settings)
    assert first == again
    assert run(tables, replace(settings, seed=99)) != first
    assert len({tuple(one.ids) for one in first[0]}) > 1  # samples of a row differ
    tables.scores[1:] = tables.scores[:1]
    found = run(tables, replace(settings, num_samples=1), Constraints(seeds=[4, 4, 5]))
    assert found[0] == found[1] != found[2]
    more = run(tables, replace(settings, num_samples=5))
    fewer = search(tables.step, tables.start(), settings, batch=3, bos=BOS, eos=EOS)
    assert [row[:3] for row in more] == fewer  # the first samples stay what they are


@pytest.mark.parametrize("method", ["greedy", "sample"])
@pytest.mark.parametrize("check", [0, 1, 3, 100])
@pytest.mark.parametrize("shrink", [True, False])
def test_streaming_gives_the_same_piece_by_piece(method, check, shrink):
    tables = Tables(rows=7, vocabulary=5)
    settings = SearchSettings(
        method=method, num_samples=2, max_length=11, check_every=check, drop_finished=shrink
    )
    rules = Constraints(prefix=[[1, 4], [], [0], [], [], [2], []])
    whole = run(tables, settings, rules)
    bursts = list(
        stream(tables.step, tables.start(), settings, batch=7, bos=BOS, eos=EOS, constraints=rules)
    )
    assert all(bursts)
    for row, hypotheses in enumerate(whole):
        for k, one in enumerate(hypotheses):
            mine = [p for burst in bursts for p in burst if (p.row, p.sample) == (row, k)]
            assert [token for piece in mine for token in piece.ids] == one.ids
            assert [logp for piece in mine for logp in piece.logps] == one.logps
            assert mine[-1].ended == one.ended
            assert [piece.last for piece in mine] == [False] * (len(mine) - 1) + [True]
    if check in (0, 1):
        assert all(len(piece.logps) == 1 for burst in bursts for piece in burst)
        first = stream(tables.step, tables.start(), settings, batch=7, bos=BOS, eos=EOS)
        tables.calls.clear()
        next(first)
        assert len(tables.calls) == 1  # it comes before the next step is taken


def test_a_beam_cannot_be_streamed():
    tables = Tables()
    with pytest.raises(UserError, match=r"Beam search cannot stream.*'greedy' or 'sample'"):
        next(stream(tables.step, tables.start(), SearchSettings(), batch=3, bos=BOS, eos=EOS))

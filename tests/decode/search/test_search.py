"""Beam search against enumeration of every sequence and a slow search; what it must never do."""

import math
from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tests.fixtures.search_tables import BOS, EOS, Slow, Tables, everything, slow_beam
from tests.fixtures.shapes import checked
from weft.decode.search.search import Constraints, SearchSettings, copy_into, search
from weft.errors import UserError

WIDE = SearchSettings(num_beams=131, num_return=131, max_length=4)
NORMS = [
    ("none", 0.0),
    ("wu", 0.6),
    ("wu", 1.0),
    ("length", 1.0),
    ("length", 2.5),
    ("length", -0.7),
]


def run(tables, settings, rules=None, rows=None, **more):
    batch = tables.rows if rows is None else len(rows)
    return search(
        tables.step,
        tables.start(rows),
        settings,
        batch=batch,
        bos=BOS,
        eos=EOS,
        constraints=rules or Constraints(),
        **more,
    )


def same(found, wanted: list[Slow], tables, row, settings):
    """The same sequences in the same order, with the same numbers."""
    assert [ids(one) for one in found] == [one.ids for one in wanted]
    for one, other in zip(found, wanted, strict=True):
        assert one.score == pytest.approx(other.score(tables, row, settings), abs=1e-5)
        assert one.logps == pytest.approx(other.logps, abs=1e-5)
        assert one.ended == (other.ids[-1] == EOS)


def ids(one):
    return (*one.ids, EOS) if one.ended else tuple(one.ids)


@pytest.mark.parametrize(("normalise", "alpha"), NORMS)
@pytest.mark.parametrize("coverage", [0.0, 0.4])
def test_a_wide_beam_is_enumeration(normalise, alpha, coverage):
    tables = Tables()
    settings = replace(
        WIDE, length_normalisation=normalise, length_penalty=alpha, coverage_penalty=coverage
    )
    found = run(tables, settings, tables.looking())
    for row, hypotheses in enumerate(found):
        every = sorted(
            everything(tables, row, settings.max_length),
            key=lambda one: one.score(tables, row, settings),
            reverse=True,
        )
        assert len(every) == 121  # 1 + 3 + 9 that end, and 27 * 4 at the limit
        same(hypotheses, every, tables, row, settings)


@pytest.mark.parametrize(("normalise", "alpha"), NORMS)
@pytest.mark.parametrize("width", [1, 2, 3, 5])
@pytest.mark.parametrize("coverage", [0.0, 0.4])
def test_a_narrow_beam_is_the_slow_one(normalise, alpha, width, coverage):
    """Also that stopping early changes nothing: the slow one never does."""
    tables = Tables(rows=7, vocabulary=5)
    settings = SearchSettings(
        num_beams=width,
        num_return=width,
        max_length=11,
        length_normalisation=normalise,
        length_penalty=alpha,
        coverage_penalty=coverage,
    )
    found = run(tables, settings, tables.looking())
    for row, hypotheses in enumerate(found):
        same(hypotheses, slow_beam(tables, row, settings), tables, row, settings)
    for row, hypotheses in enumerate(
        run(tables, replace(settings, num_return=1), tables.looking())
    ):
        assert hypotheses == [replace(found[row][0], attention=hypotheses[0].attention)]


def test_search_stops_when_no_hypothesis_can_win():
    tables = Tables(rows=7, vocabulary=5)
    steps = {}
    for stop in ("never", "likely", "full"):
        for best in (1, 3):
            tables.calls.clear()
            settings = SearchSettings(
                num_beams=3,
                num_return=best,
                max_length=101,
                length_penalty=0.6,
                early_stopping=stop,
            )
            run(tables, settings)
            steps[stop, best] = len(tables.calls)
    assert steps["full", 1] <= steps["likely", 1] <= steps["never", 3] < 101
    assert steps["never", 1] < steps["never", 3]
    assert steps["full", 1] == steps["full", 3]


def test_other_ways_to_stop_may_miss_the_best():
    tables = Tables(rows=7, vocabulary=5)
    settings = SearchSettings(
        num_beams=2, max_length=11, length_normalisation="length", length_penalty=1.0
    )
    exact = [row[0].score for row in run(tables, settings)]
    for stop in ("full", "likely"):
        quick = [row[0].score for row in run(tables, replace(settings, early_stopping=stop))]
        assert all(a <= b for a, b in zip(quick, exact, strict=True))
        assert quick != pytest.approx(exact)


@pytest.mark.parametrize("groups", [2, 3, 6])
@pytest.mark.parametrize(("normalise", "alpha"), NORMS[:4])
def test_diverse_groups_are_the_slow_ones(groups, normalise, alpha):
    tables = Tables(rows=3, vocabulary=7)
    settings = SearchSettings(
        num_beams=6,
        num_return=6,
        max_length=5,
        num_beam_groups=groups,
        diversity_penalty=0.7,
        length_normalisation=normalise,
        length_penalty=alpha,
    )
    for row, hypotheses in enumerate(run(tables, settings)):
        same(hypotheses, slow_beam(tables, row, settings), tables, row, settings)


def test_beams_that_are_not_in_use_cost_later_groups_nothing():
    tables = Tables(rows=3, vocabulary=4)  # the first step cannot fill a group
    settings = SearchSettings(
        num_beams=10, num_return=10, max_length=4, num_beam_groups=2, diversity_penalty=0.7
    )
    for row, hypotheses in enumerate(run(tables, settings)):
        same(hypotheses, slow_beam(tables, row, settings), tables, row, settings)


def test_one_group_is_plain_beam_search_and_groups_without_diversity_repeat_each_other():
    tables = Tables(rows=3, vocabulary=7)
    plain = run(tables, SearchSettings(num_beams=3, num_return=3, max_length=5))
    assert (
        run(
            tables,
            SearchSettings(
                num_beams=3, num_return=3, max_length=5, num_beam_groups=1, diversity_penalty=2.0
            ),
        )
        == plain
    )
    twice = run(
        tables,
        SearchSettings(
            num_beams=6, num_return=6, max_length=5, num_beam_groups=2, diversity_penalty=0.0
        ),
    )
    assert twice == [[one for one in row for _ in range(2)] for row in plain]
    apart = run(
        tables,
        SearchSettings(
            num_beams=6, num_return=6, max_length=5, num_beam_groups=2, diversity_penalty=5.0
        ),
    )
    assert all(len({ids(one) for one in row}) > 3 for row in apart)


def test_greedy_is_a_beam_of_one():
    tables = Tables(rows=7, vocabulary=5)
    settings = SearchSettings(length_normalisation="none", max_length=13)
    ways = (replace(settings, method="greedy"), replace(settings, method="beam", num_beams=1))
    found, wanted = (
        search(tables.step, tables.start(), way, batch=7, bos=BOS, eos=EOS) for way in ways
    )
    assert found == wanted
    for row, (one,) in enumerate(found):
        for t, token in enumerate(ids(one)):
            logps = tables.logps(row, ids(one)[:t])
            assert token == logps.index(max(logps))


@pytest.mark.parametrize("stop", ["never", "full"])
@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_rows_do_not_see_each_other(method, stop):
    """Alone, in any company, with batches that shrink or not, however often one looks."""
    tables = Tables(rows=7, vocabulary=5)
    settings = SearchSettings(
        method=method,
        num_beams=3,
        num_return=3,
        num_samples=2,
        max_length=13,
        early_stopping=stop,
    )
    rules = replace(tables.looking(), seeds=[11, 5, 17, 3, 29, 2, 7])
    whole = run(tables, settings, rules)
    assert len({len(one.ids) for row in whole for one in row}) > 3
    for shrink, check in ((True, 1), (True, 3), (False, 1), (False, 50)):
        tables.calls.clear()
        again = run(tables, replace(settings, drop_finished=shrink, check_every=check), rules)
        assert [[plain(one) for one in row] for row in again] == [
            [plain(one) for one in row] for row in whole
        ]
        assert (len(set(tables.calls)) > 1) == shrink
    for rows in ([4], [6, 0], [1, 1, 3]):
        part = Constraints(
            seeds=[rules.seeds[row] for row in rows],
            attention=tables.read,
            source=tables.source[rows],
        )
        for row, found in zip(rows, run(tables, settings, part, rows), strict=True):
            assert [plain(one) for one in found] == [plain(one) for one in whole[row]]


def plain(one):
    return replace(one, attention=one.attention.tolist())


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_attention_is_that_of_the_sequence(method):
    tables = Tables(rows=3, vocabulary=5)
    settings = SearchSettings(method=method, num_beams=4, num_return=4, num_samples=4, max_length=9)
    rules = replace(tables.looking(), prefix=[[1, 4], [], [0]])
    for row, hypotheses in enumerate(run(tables, settings, rules)):
        for one in hypotheses:
            steps = [tables.cell(tuple(ids(one)[:t])) for t in range(len(ids(one)))]
            assert one.attention.shape == (len(one.logps), 5)
            torch.testing.assert_close(torch.from_numpy(one.attention), tables.weights[row, steps])


def test_samples_and_greedy_are_scored_like_beams():
    tables = Tables(rows=3, vocabulary=5)
    settings = SearchSettings(
        method="sample", num_samples=5, max_length=7, length_penalty=0.9, coverage_penalty=0.3
    )
    for row, hypotheses in enumerate(run(tables, settings, tables.looking())):
        for one in hypotheses:
            slow = Slow(ids(one), tuple(one.logps))
            assert one.score == pytest.approx(slow.score(tables, row, settings), abs=1e-5)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_a_forced_prefix(method):
    """Each row has its own; it is a condition: in the ids, not in score, length or limit."""
    tables = Tables(rows=3, vocabulary=5)
    prefix = [[1, 4, 0], [], [2]]
    settings = SearchSettings(
        method=method, num_beams=3, num_return=3, num_samples=3, max_length=5, min_length=2
    )
    rules = Constraints(prefix=prefix, forbidden=[4], seeds=[1, 2, 3])
    found = run(tables, settings, rules)
    for row, hypotheses in enumerate(found):
        given = tuple(prefix[row])
        moved = Tables(rows=3, vocabulary=5)  # the same tables, but reading starts after the prefix
        rest = Constraints(forbidden=[4], seeds=[1, 2, 3])
        start = moved.start()
        cells = torch.tensor([moved.cell(given[:-1])] * 3) if given else start.cell[0]
        first = given[-1] if given else BOS
        wanted = search(
            moved.step,
            replace(start, cell=(cells,)),
            settings,
            batch=3,
            bos=torch.tensor([first] * 3),
            eos=EOS,
            constraints=rest,
        )[row]
        if method != "sample":  # there the numbers of a step are other ones
            assert [one.ids[len(given) :] for one in hypotheses] == [one.ids for one in wanted]
            scores = [one.score for one in wanted]
            assert [one.score for one in hypotheses] == pytest.approx(scores, abs=1e-6)
        for one in hypotheses:
            assert one.forced == len(given)
            assert tuple(one.ids[: len(given)]) == given
            assert 4 not in one.ids[len(given) :]
            assert 2 <= len(one.logps) - len(given) <= 5
            for t, token in enumerate(ids(one)):
                wanted_logp = tables.logps(row, ids(one)[:t])[token]
                assert one.logps[t] == pytest.approx(wanted_logp, abs=1e-5)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_nothing_ends_inside_its_prefix(method):
    tables = Tables(rows=3, vocabulary=5)
    tables.scores[..., EOS] += 5
    prefix = [[1, 4, 0], [], [2]]
    settings = SearchSettings(method=method, num_beams=2, num_samples=3, max_length=2)
    for given, row in zip(prefix, run(tables, settings, Constraints(prefix=prefix)), strict=True):
        assert all(one.ids[: len(given)] == given for one in row)
        assert all(len(one.logps) > len(given) for one in row)


def test_forced_tokens_get_no_diversity_penalty():
    tables = Tables(rows=3, vocabulary=7)
    settings = SearchSettings(
        num_beams=4,
        num_return=4,
        num_beam_groups=2,
        diversity_penalty=3.0,
        max_length=4,
        length_penalty=1.0,
    )
    long = run(tables, settings, Constraints(prefix=[[1, 4]] * 3))
    start = tables.start()
    start = replace(start, cell=(torch.tensor([tables.cell((1,))] * 3),))
    short = search(tables.step, start, settings, batch=3, bos=4, eos=EOS)
    assert [[one.ids[2:] for one in row] for row in long] == [
        [one.ids for one in row] for row in short
    ]


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_lengths_of_each_row(method):
    tables = Tables(rows=3, vocabulary=5)
    settings = SearchSettings(
        method=method, num_beams=3, num_return=3, num_samples=5, max_length=50
    )
    found = run(tables, settings, Constraints(limit=[1, 4, 9], minimum=[0, 4, 7]))
    for row, low, high in zip(found, (1, 4, 7), (1, 4, 9), strict=True):
        sizes = [len(one.logps) for one in row]
        assert all(low <= size <= high for size in sizes)
        assert all(one.ended for one in row if len(one.logps) < high)
    settings = replace(settings, min_length=6, max_length=6)
    assert {len(one.logps) for row in run(tables, settings) for one in row} == {6}


@pytest.mark.parametrize("minimum", [1, 2, 3, 5])
def test_eos_is_allowed_from_min_length_on(minimum):
    tables = Tables(rows=5, vocabulary=5)
    tables.scores[..., EOS] += 2  # short sequences
    settings = SearchSettings(num_beams=3, num_return=3, max_length=7, min_length=minimum)
    found = run(tables, settings)
    for row, hypotheses in enumerate(found):
        wanted = slow_beam(tables, row, settings, lambda ids: ids[-1] != EOS or len(ids) >= minimum)
        same(hypotheses, wanted, tables, row, settings)
    assert min(len(one.logps) for row in found for one in row) == minimum


def grams(sequence, size):
    return [tuple(sequence[i : i + size]) for i in range(len(sequence) - size + 1)]


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_repeat_ngram_size_prevents_repetition(size):
    tables = Tables(rows=5, vocabulary=5)
    tables.scores[..., EOS] -= 2  # long sequences
    for method in ("beam", "greedy", "sample"):
        settings = SearchSettings(
            method=method,
            num_beams=3,
            num_return=3,
            max_length=4,
            num_samples=3,
            no_repeat_ngram_size=size,
        )
        settings = replace(settings, max_length=4 if size == 1 else 17)
        prefix = [[1, 4], [], [0], [1, 1, 4], [4]]
        if size == 1:
            prefix[3] = [1]
        for row in run(tables, settings, Constraints(prefix=prefix)):
            for one in row:
                assert len(set(grams(one.ids, size))) == len(grams(one.ids, size))
    free = run(tables, SearchSettings(method="greedy", max_length=17))
    assert any(len(set(grams(r[0].ids, size))) < len(grams(r[0].ids, size)) for r in free)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_blocked_ngrams_are_the_slow_ones(size):
    """Nothing else is blocked than what would repeat."""
    tables = Tables(rows=5, vocabulary=5)
    tables.scores[..., EOS] -= 1
    settings = SearchSettings(
        num_beams=3,
        num_return=3,
        max_length=6,
        no_repeat_ngram_size=size,
        length_penalty=1.0,
        length_normalisation="length",
    )
    found = run(tables, settings)
    for row, hypotheses in enumerate(found):
        wanted = slow_beam(
            tables,
            row,
            settings,
            lambda ids: len(set(grams(ids, size))) == len(grams(ids, size)),
        )
        same(hypotheses, wanted, tables, row, settings)


def test_only_what_is_allowed():
    tables = Tables(rows=3, vocabulary=7)
    settings = SearchSettings(num_beams=3, num_return=3, max_length=6)
    mask = torch.tensor([True, True, False, True, False, True, False])
    for rules in (Constraints(allowed=mask), Constraints(forbidden=[2, 4, 6])):
        for row, hypotheses in enumerate(run(tables, settings, rules)):
            wanted = slow_beam(tables, row, settings, lambda ids: not {2, 4, 6} & set(ids))
            same(hypotheses, wanted, tables, row, settings)
    each = torch.stack([mask, ~mask, torch.ones(7, dtype=torch.bool)])
    each[:, EOS] = True
    for method in ("beam", "greedy", "sample"):
        other = replace(settings, method=method, num_samples=3)
        for row, hypotheses in enumerate(run(tables, other, Constraints(allowed=each))):
            assert all(each[row, token] for one in hypotheses for token in one.ids)


@pytest.mark.parametrize("method", ["beam", "greedy", "sample"])
def test_allowed_tokens_may_depend_on_the_prefix(method):
    """A token may not follow a smaller one; row 1 must not begin with 6."""
    tables = Tables(rows=3, vocabulary=7)

    def falling(past, row):
        mask = torch.ones(len(past), 7, dtype=torch.bool)
        if past.shape[1]:
            mask = torch.arange(7) <= past[:, -1:]
        else:
            mask[row == 1, 6] = False
        mask[:, EOS] = True
        return mask

    def good(row, ids):
        words = [token for token in ids if token != EOS]
        return words == sorted(words, reverse=True) and not (row == 1 and ids[0] == 6)

    settings = SearchSettings(method=method, num_beams=3, num_return=3, num_samples=3, max_length=6)
    for row, hypotheses in enumerate(run(tables, settings, Constraints(allowed=falling))):
        if method == "beam":
            wanted = slow_beam(tables, row, settings, lambda ids, row=row: good(row, ids))
            same(hypotheses, wanted, tables, row, settings)
        assert all(good(row, ids(one)) for one in hypotheses)


def test_fewer_sequences_than_beams():
    tables = Tables(rows=3, vocabulary=5)
    found = run(
        tables,
        SearchSettings(num_beams=7, num_return=7, max_length=2),
        Constraints(forbidden=[0, 1, 2]),
    )
    assert [sorted(ids(one) for one in row) for row in found] == [[(3,), (4, 3), (4, 4)]] * 3


def test_repetition_makes_tokens_rarer_and_is_another_distribution():
    tables = Tables(rows=3, vocabulary=5)
    settings = SearchSettings(method="greedy", max_length=9, repetition_penalty=1.7, min_length=9)
    for row, (one,) in enumerate(run(tables, settings)):
        for t, token in enumerate(one.ids):
            scores = tables.scores[row, tables.cell(tuple(one.ids[:t]))].tolist()
            wanted = [
                (s / 1.7 if s > 0 else s * 1.7) if i in one.ids[:t] else s
                for i, s in enumerate(scores)
            ]
            if t < 8:
                wanted[EOS] = -math.inf
            assert token == wanted.index(max(wanted))
            own = tables.logps(row, tuple(one.ids[:t]))[token]
            assert one.logps[t] == pytest.approx(own, abs=1e-5)


def test_a_beam_with_repetition_ranks_by_the_other_distribution():
    tables = Tables(rows=1, vocabulary=5)
    settings = replace(
        WIDE,
        num_beams=700,
        num_return=700,
        max_length=4,
        repetition_penalty=1.7,
        length_normalisation="none",
    )
    for one in run(tables, settings)[0]:
        total = 0.0
        for t, token in enumerate(ids(one)):
            scores = tables.scores[0, tables.cell(ids(one)[:t])].clone()
            seen = torch.tensor([i in ids(one)[:t] for i in range(5)])
            lower = torch.where(scores > 0, scores / 1.7, scores * 1.7)
            total += float(torch.where(seen, lower, scores).log_softmax(-1)[token])
        assert one.score == pytest.approx(total, abs=1e-5)


def test_a_faster_step_is_handed_everything():
    """What a graph needs: a function of one nest, over memory that is written in place."""
    tables = Tables(rows=3, vocabulary=5)
    calls = []

    def faster(advance):
        def once(run):
            calls.append(run)
            copy_into(calls[0], advance(run))
            return calls[0]

        return once

    for method in ("beam", "sample"):
        calls.clear()
        settings = SearchSettings(
            method=method,
            num_beams=3,
            num_return=3,
            max_length=9,
            drop_finished=False,
            no_repeat_ngram_size=2,
        )
        wanted = run(tables, settings)
        assert run(tables, settings, wrap_step=faster) == wanted
        assert len(calls) > 2


class Looks(TorchDispatchMode):
    """Counts what makes the host wait for a device: values read, sizes that depend on them."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        waits = ("_local_scalar_dense", "nonzero", "is_nonzero", "equal", "masked_select")
        self.count += operation.overloadpacket.__name__ in waits
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("options", "wanted"), [({"method": "sample", "top_k": 3}, 0), ({}, 1)])
def test_a_step_does_not_wait_for_the_device(options, wanted):
    """A beam looks once a step whether anything ended, on a processor only."""
    tables = Tables(rows=3, vocabulary=5)
    rules = replace(tables.looking(), prefix=[[1, 4], [], [0]], minimum=[2, 3, 1])
    settings = SearchSettings(
        **{"num_beams": 4, "num_beam_groups": 2, **options}, max_length=9, coverage_penalty=0.2
    )
    settings = replace(settings, no_repeat_ngram_size=2, repetition_penalty=1.3, check_every=4)
    seen = []

    def faster(advance):
        def once(run):
            with Looks() as looks:
                run = advance(run)
            seen.append(looks.count)
            return run

        return once

    run(tables, settings, rules, wrap_step=faster)
    assert seen == [wanted] * len(seen)
    assert len(seen) > 3


def test_no_rows_at_all():
    tables = Tables(rows=3)
    for method in ("beam", "greedy", "sample"):
        assert run(tables, SearchSettings(method=method), rows=[]) == []


def test_nothing_possible_is_an_error():
    tables = Tables(rows=3, vocabulary=5)
    for method in ("beam", "greedy", "sample"):
        allowed = torch.ones(3, 5, dtype=torch.bool)
        allowed[1] = False
        with pytest.raises(UserError, match=r"Row 1: no sequence is possible.*loosen"):
            run(tables, SearchSettings(method=method, max_length=5), Constraints(allowed=allowed))


def test_scores_that_are_no_numbers_are_an_error():
    tables = Tables(rows=3, vocabulary=5)
    tables.scores[2] = torch.nan
    for method in ("beam", "greedy", "sample"):
        for check in (1, 5):
            settings = SearchSettings(method=method, max_length=5, check_every=check)
            with pytest.raises(UserError, match=r"Row 2: the model's logits are NaN"):
                run(tables, settings)


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        (Constraints(prefix=[[1]]), "1 values of 'prefix' for 3 rows; give one per row"),
        (Constraints(seeds=[1, 2]), "2 values of 'seeds' for 3 rows"),
        (Constraints(prefix=[[1], [1, EOS], []]), r"Row 1: the prefix \[1, 3\] contains eos \(3\)"),
        (Constraints(limit=[4, 5, 0]), "Row 2: the minimum is 0 and the limit 0"),
        (
            Constraints(minimum=[0, 7, 0], limit=[9, 6, 9]),
            "Row 1: the minimum is 7 and the limit 6",
        ),
    ],
)
def test_rules_that_cannot_be_kept(rules, message):
    with pytest.raises(UserError, match=message):
        run(Tables(), SearchSettings(), rules)


def test_coverage_without_attention_is_an_error():
    with pytest.raises(UserError, match="has no attention to compute coverage from"):
        run(Tables(), SearchSettings(coverage_penalty=0.2))


def test_shape_comments_hold():
    tables = Tables(rows=3, vocabulary=11)
    rules = replace(tables.looking(), prefix=[[1, 4], [], [0]], minimum=[2, 3, 1], limit=[5, 6, 7])
    for settings in (
        SearchSettings(
            num_beams=6,
            num_beam_groups=2,
            coverage_penalty=0.3,
            no_repeat_ngram_size=3,
            repetition_penalty=1.2,
        ),
        SearchSettings(
            method="sample",
            num_samples=2,
            top_k=7,
            top_p=0.9,
            typical_p=0.9,
            no_repeat_ngram_size=2,
        ),
    ):
        assert checked("weft.decode.search", lambda s=settings: run(tables, s, rules)) > 100

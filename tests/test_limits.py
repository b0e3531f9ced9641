"""Named limits, on both sides of their edge: `<` in place of `<=` is a changed behaviour."""

import json
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from weft import jsonio, registry, untrusted
from weft.compare import dataset_stats, leaderboard, trial
from weft.compare.leaderboard import Row, recommend
from weft.doctor import examine
from weft.doctor.checks import consistency, duplicates, labels, near_duplicates, target_stats
from weft.doctor.checks.label_variants import CLEAR_RATIO, _is_typo, find_variants
from weft.errors import MAX_MESSAGE_CHARS, MAX_NAME_CHARS, UserError, near_miss
from weft.explain.explanation import WordWeight
from weft.predict import golden
from weft.protocols import LabelSpace
from weft.report.analysis import confusion, generation_samples
from weft.report.drawings import generation, highlight, terminal
from weft.run import collapse, lm_data
from weft.tasks.task import MAX_REPR_CHARACTERS, Answer
from weft.text.annotation.schemes import Span
from weft.text.example import Example
from weft.text.formats.documents import detect_document_layout
from weft.text.label_names import MAX_SHOWN_NAMES
from weft.text.label_names import _rename_label as rename_label
from weft.text.line_source import LineSource
from weft.tokens import safety
from weft.train import cuda_graphs, progress_checks, threads
from weft.train.gradients import verdict as gradient_verdict
from weft.train.gradients.verdict import Evidence, interpret
from weft.train.settings import Settings
from weft.tune.space import MAX_GRID_POINTS, Choices, Range, grid

# Texts that are cut


def test_long_messages_are_cut_in_the_middle():
    whole = "a" * MAX_MESSAGE_CHARS
    assert str(UserError(whole)) == whole
    half = MAX_MESSAGE_CHARS // 2
    assert str(UserError("a" + "b" * MAX_MESSAGE_CHARS)) == f"a{'b' * (half - 1)} … {'b' * half}"


def test_near_misses_of_long_names():
    name = "x" * (MAX_NAME_CHARS - 1)
    assert near_miss(name + "y", [name + "z"]) == f" Did you mean '{name}z'?"
    assert near_miss(name + "yy", [name + "yz"]) == ""


@pytest.mark.parametrize(
    ("text", "value"), [("9" * 18, 10**18 - 1), ("9" * 19, None), ("", None), ("²", None)]
)
def test_integers_that_fit_64_bits(text, value):
    assert untrusted.parse_integer(text) == value


def test_long_answers_are_cut_in_their_repr():
    fits, longer = "a" * (MAX_REPR_CHARACTERS - 2), "a" * (MAX_REPR_CHARACTERS - 1)  # and quotes
    assert repr(Answer(fits, 0.5)) == f"Answer('{fits}', score=0.5)"
    assert repr(Answer(longer, 0.5)) == f"Answer('{longer[:-1]}…, score=0.5)"
    assert repr(Answer("a", 0.5, coverage=0.999)) == "Answer('a', score=0.5, coverage=1.00)"


def test_long_samples_are_cut():
    fits = "a" * generation_samples.MAX_CHARACTERS
    assert generation_samples.truncate(fits) == fits
    assert generation_samples.truncate(fits + "b") == fits + "…"


@pytest.mark.parametrize("count", [MAX_SHOWN_NAMES, MAX_SHOWN_NAMES + 1])
def test_names_of_labels_are_listed_up_to_a_limit(count):
    names = tuple(f"{i}=name{i}" for i in range(count))
    with pytest.raises(UserError, match="has no name among") as error:
        rename_label("99", dict(name.split("=") for name in names))
    assert (", …. Add" in str(error.value)) == (count > MAX_SHOWN_NAMES)
    assert f"name{MAX_SHOWN_NAMES - 1}" in str(error.value)


def test_wrong_arguments_are_quoted_while_they_are_short():
    for size, shown in (
        (registry.MAX_SHOWN_CHARS - 3, True),
        (registry.MAX_SHOWN_CHARS - 2, False),
    ):
        with pytest.raises(UserError) as error:
            weft.load("x", device=b"y" * (size - 1))  # b, two quotes and the bytes
        assert ("yyy" in str(error.value)) is shown


# Files that are refused


def test_json_may_be_nested_to_a_limit():
    fits = "[" * jsonio.MAX_DEPTH + "]" * jsonio.MAX_DEPTH
    assert jsonio.parse(fits, "here")
    with pytest.raises(UserError, match=f"here:1: .*more than {jsonio.MAX_DEPTH} levels"):
        jsonio.parse(f"[{fits}]", "here")
    assert jsonio.parse(f"[{'[],' * jsonio.MAX_DEPTH}1]", "here")  # many, but side by side


@pytest.mark.parametrize(
    ("change", "limit", "message"),
    [
        (lambda n: {"max_input_chars_per_word": n}, safety.MAX_WORD_CHARACTERS, "at most are read"),
        (
            lambda n: {"end_of_word_suffix": "a" * n},
            safety.MAX_AFFIX_CHARACTERS,
            "at most are read",
        ),
        (
            lambda n: {"vocab": {"a": 0, "b": n}},
            2 * safety.MAX_IDS_PER_ENTRY + safety.SPARE_IDS,
            "in a vocabulary of 2 entries",
        ),
    ],
    ids=["word", "affix", "ids"],
)
def test_tokenizer_files_that_would_take_too_much(change, limit, message):
    safety.check(json.dumps({"model": change(limit)}), "here")
    with pytest.raises(UserError, match=message):
        safety.check(json.dumps({"model": change(limit + 1)}), "here")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a+b+", ""),
        ("a+b+c+", "repetitions behind each other"),
        ("(a+|b)c", ""),
        ("(?:ab?){9}", ""),
        ("(?:ab?){10}", "repeats what itself repeats"),
        ("(?:ab?){2,9}", ""),
        ("(?:ab?){2,10}", "repeats what itself repeats"),
        ("(?>a+b+)c+d+", ""),
    ],
)
def test_expressions_that_could_take_hours(pattern, reason):
    found = safety.find_backtracking(pattern)
    assert reason in found
    assert bool(found) is bool(reason)


def test_replacements_may_make_a_text_longer_to_a_limit():
    def file(times):
        replace = {"type": "Replace", "pattern": {"String": "a"}, "content": "b" * times}
        return json.dumps({"model": {}, "normalizer": replace})

    safety.check(file(safety.MAX_GROWTH), "here")
    with pytest.raises(UserError, match="times as long"):
        safety.check(file(safety.MAX_GROWTH + 1), "here")


@pytest.mark.parametrize(("second", "layout"), [("One.", "sentences"), ("One. Two.", "sentences"),
                                                ("One. Two. Three.", "lines")])  # fmt: skip
def test_paragraphs_have_more_than_three_sentences_in_two_lines(tmp_path, second, layout):
    path = tmp_path / "a.txt"
    path.write_text(f"First one.\n{second}\n", "utf-8")
    assert detect_document_layout(LineSource(str(path)))[0] == layout


# Charts and drawings


def test_colours_begin_at_a_depth():
    edge = 2 ** -(generation.MIN_DEPTH * generation.MAX_SURPRISE_BITS)
    assert generation.colour_depth(edge * 0.999) == pytest.approx(generation.MIN_DEPTH, rel=0.01)
    assert generation.colour_depth(edge * 1.001) == 0.0
    assert generation.colour_depth(2**-5) == pytest.approx(5 / generation.MAX_SURPRISE_BITS)
    assert generation.colour_depth(1e-30) == 1.0
    word = WordWeight(0, 1, highlight.MIN_COLOURED_WEIGHT)
    assert highlight.colour_depth(word, 1.0) == highlight.MIN_COLOURED_WEIGHT
    assert highlight.colour_depth(word, 1.01) == 0.0
    assert highlight.colour_depth(word, 0.0) == 0.0


def test_the_terminal_colours_scores_that_are_not_neutral():
    edge = terminal.NEUTRAL_SCORE
    found = [terminal._score_style(score) for score in (edge, -edge, 0.999 * edge, -0.999 * edge)]
    assert found == ["yellow", "blue", "", ""]


def words(count, strong=()):
    return [WordWeight(i, i + 1, float(i in strong)) for i in range(count)]


def test_long_texts_show_the_surroundings_of_strong_words():
    limit, reach = highlight.MAX_WHOLE_WORDS, highlight.CONTEXT_WORDS
    assert highlight._shown_ranges(words(limit)) == [(0, limit)]
    far = 10 * limit
    middle = far // 2
    ranges = highlight._shown_ranges(words(far, {middle}))
    assert (middle - reach, middle + reach + 1) in ranges
    gap = highlight.MAX_CLOSED_GAP
    for between, closed in ((gap, True), (gap + 1, False)):
        other = middle + 2 * reach + 1 + between
        found = highlight._shown_ranges(words(far, {middle, other}))
        whole = (middle - reach, other + reach + 1)
        assert (whole in found) is closed


def test_small_confusion_matrices_are_whole():
    def cells(count):
        return {(f"l{i}", f"l{(i + 1) % count}"): 1 + i for i in range(count)}

    assert confusion.build_matrix(cells(confusion.MAX_MATRIX_LABELS)).is_whole
    large = confusion.build_matrix(cells(confusion.MAX_MATRIX_LABELS + 1))
    assert not large.is_whole
    assert len(large.labels) == confusion.MAX_CORNER_LABELS


# Advice about training


def evidence(curve=None, **changes):
    layer = {"gradient": 1.0, "weight": 1.0, "ratio": None, "dead": None, "saturated": None}
    layer |= changes.pop("layer", {})
    curve = curve or [(k, 1.0) for k in range(10)]
    values = {
        "layers": {"layer 1": layer}, "distances": {"layer 1": curve}, "flow": {"layer 1": 1.0},
        "loss": 0.7, "norm": 1.0, "clip": 1.0, "encoder": "rnn", "cell": "rnn", "pool": "last",
        "direct": False,
    }  # fmt: skip
    return Evidence(**(values | changes))


def ending(value, steps=10):
    return [*((k, 1.0) for k in range(steps)), (steps, value)]


@pytest.mark.parametrize(
    ("seen", "level", "words"),
    [
        (evidence(ending(0.1)), "good", "can be learned."),
        (evidence(ending(0.0999)), "good", "can be learned, if slowly."),
        (evidence(ending(4e-3)), "good", "can be learned, if slowly."),
        (evidence(ending(3.99e-3)), "warning", "learned slowly, if at all"),
        (evidence(ending(1e-5)), "warning", "learned slowly, if at all"),
        (evidence(ending(0.999e-5)), "bad", "cannot learn longer"),
        (evidence(ending(99.9)), "good", "can be learned."),
        (evidence(ending(100.0)), "warning", "it explodes"),
        (evidence(ending(9999.0)), "warning", "it explodes"),
        (evidence(ending(1e4)), "bad", "it explodes"),
        (evidence([(k, 0.0 if k else 1.0) for k in range(5)]), "good", "too short to tell"),
        (evidence([(k, 0.0 if k else 1.0) for k in range(6)]), "bad", "is gone over 1 steps"),
        (evidence(flow={"layer 1": 1e-3, "layer 2": 1.0}), "good", ""),
        (evidence(flow={"layer 1": 0.999e-3, "layer 2": 1.0}), "warning", "Layer 1 gets"),
        (evidence(layer={"dead": 0.5}), "warning", "50% of the units"),
        (evidence(layer={"dead": 0.499}), "good", ""),
        (evidence(layer={"saturated": 0.5}), "warning", "50% of the values"),
        (evidence(layer={"saturated": 0.499}), "good", ""),
        (evidence(layer={"ratio": 0.1}), "good", ""),
        (evidence(layer={"ratio": 0.101}), "warning", "by up to 10% of the weights"),
        (evidence(norm=100.0), "good", ""),
        (evidence(norm=100.1), "warning", "times longer than train.clip_norm"),
        (evidence(norm=1e6, clip=0.0), "good", ""),
    ],
)
def test_verdicts_on_gradients_change_at_their_limits(seen, level, words):
    verdict, found = interpret(seen)
    assert found == level
    assert words in verdict
    assert gradient_verdict.MIN_STEPS == 5


@pytest.mark.parametrize(
    ("metric", "values", "examples", "advised"),
    [
        ("accuracy", (0.5, 0.52), 10**6, True),
        ("accuracy", (0.5, 0.5 + progress_checks.MIN_ABSOLUTE_GAIN / 2), 10**6, False),
        ("accuracy", (0.5, 0.59), 100, False),  # within 1 / √100
        ("accuracy", (0.5, 0.61), 100, True),
        ("accuracy", (0.5, 1.0), 100, False),  # nothing is left to gain
        ("perplexity", (100.0, 100.0 * (1 - progress_checks.MIN_RELATIVE_GAIN)), 100, False),
        ("perplexity", (100.0, 99.9 * (1 - progress_checks.MIN_RELATIVE_GAIN)), 100, True),
    ],
)
def test_longer_training_is_advised_after_a_clear_gain(metric, values, examples, advised):
    curve = progress_checks.DevCurve(metric, [(0.5, values[0]), (1.0, values[1])])
    assert bool(curve.undertraining_note(2, examples)) is advised


def test_losses_of_a_few_updates_say_nothing():
    def tracked(updates):
        tracker = progress_checks.LossTracker()
        for i in range(updates):
            fraction = i / updates
            tracker.add(SimpleNamespace(fraction=fraction, total=3.0 - fraction, count=1))
        return tracker.first_and_lowest

    assert tracked(progress_checks.MIN_UPDATES - 1) is None
    assert tracked(progress_checks.MIN_UPDATES) is not None


def test_epochs_of_few_updates_are_noted():
    settings = Settings(batch_size=4)
    enough = lm_data.MIN_EPOCH_UPDATES * 4 * 10
    assert lm_data.few_updates_note(enough, 10, settings) == ""
    assert "an epoch has about" in lm_data.few_updates_note(enough - 4 * 10, 10, settings)


def test_a_constant_answer_is_a_baseline_for_enough_texts():
    answers = [("a", "a")] * (collapse.MIN_TEXTS - 1)
    given = ("accuracy", True, 1.0, "test")
    assert collapse.not_above_baseline(answers, *given) == ""
    answers.append(("a", "a"))
    assert "is no better than" in collapse.not_above_baseline(answers, *given)
    assert collapse.not_above_baseline([("b", "a"), *answers], *given) == ""


def test_more_threads_are_used_only_if_clearly_faster():
    ratio = threads.MAX_TIME_RATIO
    assert threads.ThreadTiming({1: 1.0, 2: ratio * 0.999}).fastest() == 2
    assert threads.ThreadTiming({1: 1.0, 2: ratio}).fastest() == 1


def test_threads_are_compared_where_that_costs_little():
    choice = threads.ThreadChoice((1, 2), clock=lambda: 0.0)
    enough = threads.MAX_COST_BATCHES / threads.MAX_FRACTION
    assert choice.is_due(enough * 1.0001)
    assert not choice.is_due(enough * 0.9999)
    assert not threads.ThreadChoice((1,), clock=lambda: 0.0).is_due(10 * enough)


@pytest.mark.parametrize(
    ("minutes", "updates", "compiled"),
    [
        (0.0, cuda_graphs.MIN_UPDATES_TO_COMPILE, True),
        (0.0, cuda_graphs.MIN_UPDATES_TO_COMPILE - 1, False),
        (float(cuda_graphs.MIN_MINUTES_TO_COMPILE), cuda_graphs.MIN_UPDATES_TO_COMPILE, True),
        (cuda_graphs.MIN_MINUTES_TO_COMPILE - 0.1, cuda_graphs.MIN_UPDATES_TO_COMPILE, False),
    ],
)
def test_blocks_are_compiled_if_enough_updates_are_ahead(monkeypatch, minutes, updates, compiled):
    monkeypatch.setattr(cuda_graphs, "_has_fixed_shapes", lambda model, batches: True)
    monkeypatch.setattr(cuda_graphs, "updates_ahead", lambda batches, settings: updates)
    runtime = SimpleNamespace(has_cuda_graphs=True)
    settings = Settings(minutes=minutes)
    assert cuda_graphs._should_compile(None, settings, runtime, None) is compiled


@pytest.mark.parametrize("missing", [0, 1])
def test_updates_are_captured_if_enough_are_ahead(monkeypatch, missing):
    ahead = cuda_graphs.MIN_UPDATES_TO_CAPTURE - missing
    monkeypatch.setattr(cuda_graphs, "_has_fixed_shapes", lambda model, batches: True)
    monkeypatch.setattr(cuda_graphs, "updates_ahead", lambda batches, settings: ahead)

    def should_capture(processes):
        runtime = SimpleNamespace(has_cuda_graphs=True, world=SimpleNamespace(size=processes))
        return cuda_graphs._should_capture(None, Settings(), runtime, None)

    assert should_capture(1) is (missing == 0)
    assert not should_capture(2)


# Comparing and tuning


def row(recipe, quality, p50):
    return Row(recipe, "accuracy", quality, 0.05, quality, quality, (quality,), p50_ms=p50,
               higher_is_better=True, size_bytes=1)  # fmt: skip


@pytest.mark.parametrize(("factor", "choice"), [(1.0, "best"), (1.0001, "fast")])
def test_of_models_of_similar_latency_the_best_is_recommended(factor, choice):
    slow = leaderboard.SIMILAR_LATENCY_RATIO * factor
    found = recommend([row("best", 0.80, slow), row("fast", 0.79, 1.0)])
    assert found is not None
    assert found.choice.recipe == choice


@pytest.mark.parametrize(("quality", "choice"), [(0.75, "fast"), (0.7499, "best")])
def test_a_faster_model_is_recommended_within_the_margin(quality, choice):
    found = recommend([row("best", 0.80, 10.0), row("fast", quality, 1.0)])
    assert found is not None
    assert found.margin == pytest.approx(0.05)
    assert found.choice.recipe == choice


@pytest.mark.parametrize(
    ("rows", "numeric"),
    [
        ([0.5] * dataset_stats.MIN_SCALE_VALUES, True),  # typed as floats
        ([f"{i}.5" for i in range(dataset_stats.MIN_SCALE_VALUES)], True),
        ([f"{i}.5" for i in range(dataset_stats.MIN_SCALE_VALUES - 1)], False),
        ([str(i) for i in range(100)], False),  # whole numbers are classes
        ([*(f"{i}.5" for i in range(38)), "n/a", "n/a"], True),  # one in twenty
        ([*(f"{i}.5" for i in range(37)), "n/a", "n/a"], False),
    ],
    ids=["typed", "values", "few values", "whole", "a stray", "more strays"],
)
def test_labels_that_are_numbers(rows, numeric):
    assert dataset_stats.STRAY == 0.05
    examples = [Example("a", label) for label in rows]
    assert dataset_stats.has_numeric_labels(examples) is numeric


def test_runs_are_ranked_if_nearly_complete():
    edge = trial.MIN_COMPLETED
    for completed, rankable in ((edge, True), (edge - 1e-6, False)):
        found = SimpleNamespace(completed=completed)
        assert trial.Result.rankable.fget(found) is rankable


def test_grids_have_a_limit():
    fits = Range("a", 1, MAX_GRID_POINTS, whole=True)
    assert len(fits.points()) == MAX_GRID_POINTS
    assert Range("a", 0, MAX_GRID_POINTS, whole=True).points() is None
    two = Choices("b", (1, 2))
    assert grid([Range("a", 1, MAX_GRID_POINTS // 2, whole=True), two]) is not None
    assert grid([Range("a", 0, MAX_GRID_POINTS // 2, whole=True), two]) is None


# Checks of data


@pytest.mark.parametrize(
    ("often", "clear"), [(CLEAR_RATIO * 2, True), (CLEAR_RATIO * 2 - 1, False)]
)
def test_a_misspelt_label_is_clear_if_it_is_rare(often, clear):
    (found,) = find_variants({"positive": often, "postive": 2})
    assert (found.label, found.meant, found.clear) == ("postive", "positive", clear)


@pytest.mark.parametrize(
    ("typo", "right", "slips", "count", "often", "is_typo"),
    [
        ("positve", "positive", 1, 5, 6, True),
        ("amoral", "moral", 1, 5, 6, False),  # a prefix makes another word
        ("nmu", "num", 1, 1, 10, True),  # short, but rare
        ("nmu", "num", 1, 1, 9, False),
        ("nm", "num", 1, 3, 30, True),
        ("nm", "num", 1, 4, 40, False),
        ("en", "es", 1, 1, 100, False),
        ("imporant", "importantt", 2, 1, 10, True),
        ("imporant", "importantt", 2, 1, 9, False),
        ("abcdef", "abcdxy", 2, 1, 100, False),  # too short for two slips
        ("level1", "level2", 1, 1, 100, False),
    ],
)
def test_typing_errors_in_labels(typo, right, slips, count, often, is_typo):
    assert _is_typo(typo, right, slips, count, often) is is_typo


@pytest.mark.parametrize(
    ("counts", "kinds"),
    [
        ({"a": labels.MIN_LABEL_EXAMPLES, "b": labels.MIN_LABEL_EXAMPLES}, set()),
        ({"a": labels.MIN_LABEL_EXAMPLES, "b": labels.MIN_LABEL_EXAMPLES - 1}, {"rare label"}),
        ({"a": 9 * 6, "b": 6}, {"uneven labels"}),  # 90 %
        ({"a": 9 * 6 - 1, "b": 6}, set()),
    ],
    ids=["enough", "rare", "uneven", "even"],
)
def test_rare_and_uneven_labels(tmp_path, counts, kinds):
    path = tmp_path / "a.tsv"
    lines = [f"text {i} of {name} here\t{name}" for name, n in counts.items() for i in range(n)]
    path.write_text("text\tlabel\n" + "\n".join(lines) + "\n", "utf-8")
    found = weft.check([str(path)], near=False)
    assert {f.kind for f in found.findings} & {"rare label", "uneven labels"} == kinds


@pytest.mark.parametrize(
    ("length", "edits"),
    [(2, 0), (3, 1), (11, 1), (12, 2), (17, 2), (18, 3)],
)
def test_near_duplicates_may_differ_by_one_word_in_six(length, edits):
    assert near_duplicates._max_edits(length) == edits


@pytest.mark.parametrize(
    ("targets", "free"),
    [
        (["a b", "c d"], True),
        (["a b", "c"], False),  # 1.5 words on average
        (["a b", "a b", "c d", "e f"], True),  # half of them once
        (["a b", "a b", "a b", "e f"], False),
        (["a b c"], False),
    ],
)
def test_labels_that_are_texts(targets, free):
    assert target_stats.are_free_text([Example("x", t) for t in targets]) is free


def check_kinds(texts, **options):
    """Return the level of each kind of finding about labelled texts."""
    rows = [Example(text, f"l{i % 2}", file="f", line=i + 1) for i, text in enumerate(texts)]
    found = examine({"train": lambda: iter(rows)}, near=False, **options)
    return {finding.kind: finding.level for finding in found.findings}


def some(count, size=6):
    return [" ".join(f"w{i}x{k}" for k in range(size)) for i in range(count)]


@pytest.mark.parametrize(("rows", "level"), [(100, "warning"), (102, "note")])
def test_duplicates_are_a_warning_from_one_in_a_hundred_on(rows, level):
    assert duplicates.WARNING_FRACTION == 0.01
    texts = some(rows)
    texts[-2] = texts[0]  # with the same label
    assert check_kinds(texts)["duplicate"] == level


@pytest.mark.parametrize(("median", "noted"), [(5, True), (4, False)])
def test_single_words_are_noted_among_longer_texts(median, noted):
    assert ("short" in check_kinds([*some(20, median), "alone"])) is noted


@pytest.mark.parametrize(("words", "noted"), [(100, False), (101, True)])
def test_texts_ten_times_as_long_as_nearly_all_others_are_outliers(words, noted):
    assert ("outlier" in check_kinds([*some(40, 10), *some(1, words)])) is noted


@pytest.mark.parametrize(("foreign", "noted"), [(1, True), (2, False)])
def test_another_script_is_noted_below_one_text_in_ten(foreign, noted):
    texts = [*some(20 - foreign), *(f"слово {i} ещё одно слово" for i in range(foreign))]
    assert check_kinds(texts).get("script") == "note"
    rows = [Example(text, "a", file="f", line=i) for i, text in enumerate(texts)]
    titles = [f.title for f in examine({"train": lambda: iter(rows)}, near=False).findings]
    assert any("mostly Cyrillic letters" in title for title in titles) is noted
    assert any("scripts are mixed" in title for title in titles) is not noted


def test_tags_are_compared_up_to_a_number_of_words(monkeypatch):
    monkeypatch.setattr(consistency, "MAX_WORDS", 3)
    seen = consistency.TagVariation()
    seen.add_sentence(0, ("a", "b"), ("X", "Y"))
    seen.add_sentence(1, ("a", "b"), ("X", "Y"))  # would be four
    seen.add_spans(2, "a b", [Span("P", 0, 1)])
    assert len(seen._tag) == 3
    seen.add_spans(3, "a b", [Span("P", 0, 1)])
    assert len(seen._tag) == 3


@pytest.mark.parametrize(
    ("label", "meant", "often", "count", "slip"),
    [
        ("nsuz", "nsubz", 100, 1, True),
        ("nsuz", "nsubz", 99, 1, False),
        ("nsuz", "nsubz", 300, 3, True),
        ("nsuz", "nsubz", 400, 4, False),
        ("nsz", "nsuz", 900, 1, False),  # too short
    ],
)
def test_rare_tags_next_to_frequent_ones_are_slips(label, meant, often, count, slip):
    noted = {name: SimpleNamespace(count=n) for name, n in ((meant, often), (label, count))}
    survey = SimpleNamespace(splits=[SimpleNamespace(layers={"tag": noted}, labels={})])
    found = labels.find_slips(survey, "tag")
    assert [(variant.label, variant.meant) for variant in found] == [(label, meant)] * slip


# Replayed answers


@pytest.mark.parametrize(
    ("now", "value", "before", "agree"),
    [
        ("a", "a", [0.9, 0.1], True),
        ("b", "a", [0.5, 0.5 + 1.9 * golden.TOLERANCE], True),
        ("b", "a", [0.5, 0.5 + 2.1 * golden.TOLERANCE], False),
        (1.0, 1.0 + golden.TOLERANCE * 0.99, [], True),
        (1.0, 1.0 + golden.TOLERANCE * 1.01, [], False),
        (["a"], ["a", "b"], [0.9, 0.5 + 0.99 * golden.TOLERANCE], True),
        (["a"], ["a", "b"], [0.9, 0.5 + 1.01 * golden.TOLERANCE], False),
    ],
)
def test_replayed_answers_may_differ_in_a_near_tie(now, value, before, agree):
    space = LabelSpace()
    space.threshold, space.deviation = 0.5, 1.0
    assert golden.answers_agree(now, value, np.array(before), space) is agree

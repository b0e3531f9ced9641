"""The settings of texts for texts, what they are measured by, and what is written."""

import numpy as np
import pytest

from weft import registry
from weft.errors import UserError
from weft.run.target_tokenizer import learn_space
from weft.tasks.annotation import Decoded
from weft.tasks.text_metrics import MAIN_METRICS, GoldTexts, TextMetrics
from weft.text.example import Example, GoldAnswers, SkipCounter

WORD = {"kind": "word", "lowercase": False}
RECORDS = [
    Example("name[Blue Spice], food[pie]", "Blue Spice has pie.", file="a.csv", line=2),
    Example('{"name": "Bar", "near": "Blue Spice"}', "Near Blue Spice is Bar.", file="a.csv"),
]


def task(**options):
    return registry.build("task", {"kind": "seq2seq", **options}, tokenizer=WORD)


def space_of(made, *examples):
    return learn_space(made, lambda: iter(examples))


def learned(made, examples):
    ready = [made.prepare(example, SkipCounter()) for example in examples]
    return ready, learn_space(made, lambda: iter(ready))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pointer": True}, r"one vocabulary: set task\.shared = true"),
        (
            {"pointer": True, "shared": True, "label_smoothing": 0.1},
            r"does not go with task\.pointer",
        ),
        (
            {"pointer": True, "shared": True, "scheduled_sampling": 0.1},
            r"Set task\.scheduled_sampling = 0",
        ),
        ({"coverage": 1.0}, r"set task\.pointer = true"),
        ({"coverage": -1.0}, r"task\.coverage should be 0 or more"),
        ({"delexicalise": ["name"]}, r"set task\.record = true"),
        ({"metrics": []}, r"task\.metrics is empty"),
        ({"metrics": ["blue"]}, r"measure 'blue'.* Did you mean 'bleu'"),
        ({"metrics": ["slots"]}, r"'slots' reads records: set task\.record = true"),
        ({"record": True, "metrics": ["slots", "restaurants"]}, "two rules"),
    ],
)
def test_incompatible_settings_raise_user_error(options, message):
    with pytest.raises(UserError, match=message):
        task(**options)


def test_copied_words_have_ids_and_are_written_back():
    made = task(pointer=True, shared=True)
    space = space_of(made, Example("the dog met", "the dog"))
    example = Example("the Zork met Bo", "Bo the Kex Zork")
    size, _, last = space.size
    known = {word: i for i, word in enumerate(space.tokenizer.vocabulary)}
    ids = made.target(example, space)[:, 0].tolist()
    assert ids == [size + 1, known["the"], 1, size, last]  # Kex is nowhere in the source
    found = Decoded(np.array(ids)[:, None], np.ones((5, 1)), words=("Zork", "Bo"))
    assert made.answers([found], space)[0].value == "Bo the <unk> Zork"


def test_answers_in_a_passage_are_texts():
    asked = Example("Where?", GoldAnswers(("Oslo", "in Oslo"), (3, 0)), other="in Oslo")
    assert task().prepare(asked, SkipCounter()).label == ("Oslo", "in Oslo")
    assert (
        task().prepare(Example("Why?", GoldAnswers(), other="in Oslo"), SkipCounter()).label is None
    )


@pytest.mark.parametrize("kind", ["word", "bpe"])
@pytest.mark.parametrize("shared", [False, True])
def test_records_are_linear_and_values_come_back(kind, shared):
    made = registry.build(
        "task",
        {"kind": "seq2seq", "record": True, "delexicalise": ["name", "near"], "shared": shared},
        tokenizer=WORD if kind == "word" else {"kind": "bpe", "vocab_size": 90},
    )
    ready, space = learned(made, RECORDS * 9)
    assert ready[0].text == "⟨name⟩ ⟨food⟩ pie"
    assert ready[1].text == "⟨name⟩ ⟨near⟩"
    assert space.slots == ("name", "food", "near")
    for example in ready[:2]:
        target = made.target(example, space)
        found = Decoded(target, np.ones(target.shape), fields=example.fields)
        said = made.predict_targets([found], space)[0]
        assert said.replace(" .", ".") == example.label
    again = made.load_space(space.to_json())
    assert (again.slots, again.hidden, again.size) == (space.slots, space.hidden, space.size)


def test_unseen_slots_raise_user_error():
    made = task(record=True)
    _, space = learned(made, RECORDS)
    with pytest.raises(UserError, match=r"text 3: unknown slot 'foo'\. .*Known: food, name, near"):
        made.model_input("name[A], foo[b]", space, "text 3")
    strange = made.prepare(Example("foo[b]", "b", file="b.csv", line=5), SkipCounter())
    with pytest.raises(UserError, match=r"b\.csv:5: unknown slot 'foo'"):
        made.target(strange, space)
    with pytest.raises(UserError, match=r"task\.delexicalise: unknown slot 'nmae'.*'name'"):
        learned(task(record=True, delexicalise=["nmae"]), RECORDS)


def test_equal_sources_are_measured_together():
    rows = [Example("a", "x"), Example("b", "y"), Example("a", ("z", "w")), Example("a", "x")]
    assert list(task().group_references(rows)) == rows
    found = list(task(grouped=True).group_references(rows))
    assert [(e.text, e.label) for e in found] == [("a", ("x", "z", "w", "x")), ("b", "y")]


def test_every_reference_is_a_lesson_or_only_the_first():
    example = Example("a", ("x", "y"))
    assert [e.label for e in task().training_instances(example)] == ["x", "y"]
    assert [e.label for e in task(references="first").training_instances(example)] == ["x"]
    assert task().find_reference(example) == ("x", "y")
    assert "y" in space_of(task(), example).tokenizer.vocabulary
    assert "y" not in space_of(task(references="first"), example).tokenizer.vocabulary


@pytest.mark.parametrize("name", sorted(MAIN_METRICS))
def test_every_measure_has_the_figure_it_is_judged_by(name):
    record = name in ("slots", "restaurants")
    made = task(metrics=[name], record=record)
    space = None if record else space_of(made, Example("a", "b"))
    measure = made.build_metric(space)
    measure.add(["the Bar has pie"], [GoldTexts(("the Bar has pie",), {"name": "Bar"})])
    assert made.metric in measure.compute(resamples=0)
    assert measure.compute(resamples=0)[made.metric].n == 1


def test_figures_are_those_of_the_measures():
    measure = TextMetrics(None, ["bleu", "bleu-lower", "bleu-tokenised", "exact"])
    measure.add(["A dog barks loudly."], [("a dog barks loudly.", "x")])
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    assert found["bleu_lower"] == pytest.approx(100)
    assert found["bleu_tokenised"] == pytest.approx(100)
    assert found["bleu"] < 80
    assert found["exact_match"] == 0
    first, second, third = measure.signatures
    assert first.startswith("BLEU|nrefs:2|case:mixed")
    assert "case:lc" in second
    assert "tok:none" in third


def test_slot_errors_know_the_names_of_all_records():
    measure = TextMetrics(None, ["slots"])
    rights = [
        GoldTexts(("x",), {"name": "Bar"}),
        GoldTexts(("x",), {"name": "Inn", "area": "riverside"}),
    ]
    measure.add(["Inn is fine", "Inn by the riverside"], rights)
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    assert found["slot_error"] == pytest.approx(1 / 3)
    assert found["wrong"] == pytest.approx(1 / 3)  # a name of another record
    other = TextMetrics(None, ["slots"])
    other.add(["Bar"], rights[:1])
    measure.merge(other)
    assert measure.n == 3

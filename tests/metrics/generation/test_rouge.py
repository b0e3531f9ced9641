"""ROUGE against figures of rouge-score and a plain table; stems against nltk's."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.metrics.generation.rouge import KINDS, Rouge, longest_common_subsequence
from weft.metrics.generation.stem import stem

SAID = [
    "The quick brown fox\njumps over the lazy dogs.",
    "Prices were falling rapidly,\nthe markets closed\nand traders were surprised",
    "empty",
]
GOLD = [
    "A quick brown dog jumped\nover the fox, the lazy fox.",
    ["the market closed as prices fell\ntraders were all surprised", "traders surprised"],
    "...",
]


@pytest.mark.parametrize(
    ("stemmed", "wanted"),
    [  # precision, recall and F1 by rouge-score 0.1.2
        (
            False,
            {
                "rouge1": (0.441077441077441, 0.4121212121212121, 0.4238095238095238),
                "rouge2": (0.15833333333333333, 0.13703703703703704, 0.1461988304093567),
                "rougeL": (0.3367003367003367, 0.3181818181818182, 0.3253968253968254),
                "rougeLsum": (0.441077441077441, 0.4121212121212121, 0.4238095238095238),
            },
        ),
        (
            True,
            {
                "rouge1": (0.5454545454545454, 0.506060606060606, 0.5222222222222223),
                "rouge2": (0.26666666666666666, 0.24444444444444446, 0.25341130604288503),
                "rougeL": (0.404040404040404, 0.38181818181818183, 0.3904761904761904),
                "rougeLsum": (0.5084175084175083, 0.47575757575757577, 0.4888888888888889),
            },
        ),
    ],
)
def test_figures_are_those_of_rouge_score(stemmed, wanted) -> None:
    measure = Rouge(stem=stemmed)
    measure.add(SAID, GOLD)
    found = {name: figure.value for name, figure in measure.compute(resamples=0).items()}
    for kind in KINDS:
        got = found[f"{kind}_precision"], found[f"{kind}_recall"], found[kind]
        assert got == pytest.approx(wanted[kind], abs=1e-12)
    assert set(found) == {kind + end for kind in KINDS for end in ("", "_precision", "_recall")}


def by_table(first, second) -> list[int]:
    """The subsequence that the original script reads off the full table."""
    table = [[0] * (len(second) + 1) for _ in range(len(first) + 1)]
    for i, a in enumerate(first, 1):
        for j, b in enumerate(second, 1):
            table[i][j] = (
                table[i - 1][j - 1] + 1 if a == b else max(table[i - 1][j], table[i][j - 1])
            )
    i, j, found = len(first), len(second), []
    while i and j:
        if first[i - 1] == second[j - 1]:
            i, j = i - 1, j - 1
            found.insert(0, i)
        elif table[i][j - 1] > table[i - 1][j]:
            j -= 1
        else:
            i -= 1
    assert len(found) == table[-1][-1]
    return found


@given(st.lists(st.sampled_from("abcd"), max_size=13), st.lists(st.sampled_from("abcde")))
def test_common_subsequence_is_that_of_the_table(first, second) -> None:
    assert longest_common_subsequence(first, second) == by_table(first, second)


def test_more_words_than_a_machine_word_has_bits() -> None:
    first, second = [str(i % 71) for i in range(200)], [str(i % 67) for i in range(150)]
    assert longest_common_subsequence(first, second) == by_table(first, second)


def test_the_best_reference_counts_for_each_kind() -> None:
    measure = Rouge()
    measure.add(["a b c d"], [["d c b a", "a b x y z w"]])
    found = measure.compute(resamples=0)
    assert found["rouge1"].value == 1  # by the first reference
    assert found["rouge2"].value == pytest.approx(2 * 1 / (3 + 5))  # by the second


def test_the_best_reference_is_that_of_the_best_f1() -> None:
    measure = Rouge()
    measure.add(["a b c"], [["a b c d e f g h i j k", "a b x"]])  # precision 1 and 2/3
    assert measure.compute(resamples=0)["rouge1"].value == pytest.approx(2 / 3)


def test_a_word_is_met_once_though_two_lines_have_it() -> None:
    measure = Rouge()
    measure.add(["a"], ["a\na"])
    found = measure.compute(resamples=0)
    assert found["rougeLsum"].value == pytest.approx(2 / 3)
    assert found["rougeLsum_recall"].value == pytest.approx(1 / 2)


def test_short_words_keep_their_endings() -> None:
    measure = Rouge(stem=True)
    measure.add(["was walked"], ["wa walk"])
    assert measure.compute(resamples=0)["rouge1"].value == pytest.approx(1 / 2)


def test_words_of_other_alphabets_and_as_given() -> None:
    for rule, value in (("rouge", 0.0), ("unicode", 1.0), ("none", 1 / 2)):
        measure = Rouge(words=rule)
        measure.add(["Ж_ф ыш"], ["ж_ф ыш"])
        assert measure.compute(resamples=0)["rouge1"].value == pytest.approx(value)


def test_pieces_merge_and_the_interval_holds_the_value() -> None:
    whole, parts = Rouge(), Rouge()
    whole.add(SAID, GOLD)
    for said, gold in zip(SAID, GOLD, strict=True):
        part = Rouge()
        part.add([said], [gold])
        parts.merge(part)
    assert parts.compute(resamples=29) == whole.compute(resamples=29)
    figure = whole.compute()["rouge1"]
    assert 0 <= figure.low <= figure.value <= figure.high <= 1
    assert figure.n == 3


STEMS = """caress:caresses poni:ponies tie:ties die:dies cat:cats feed:feed agre:agreed
plaster:plastered motor:motoring sing:sing conflat:conflated troubl:troubled size:sized hop:hopping
tan:tanned fall:falling hiss:hissing fizz:fizzed fail:failing file:filing happi:happy sky:sky
say:say cri:cry relat:relational condit:conditional ration:rational valenc:valenci digit:digitizer
conform:conformabli radic:radicalli differ:differentli vile:vileli analog:analogousli
vietnam:vietnamization predic:predication oper:operator feudal:feudalism decis:decisiveness
hope:hopefulness callous:callousness formal:formaliti sensit:sensitiviti sensibl:sensibiliti
triplic:triplicate form:formative formal:formalize electr:electriciti electr:electrical hope:hopeful
good:goodness reviv:revival allow:allowance infer:inference airlin:airliner gyroscop:gyroscopic
adjust:adjustable defens:defensible irrit:irritant replac:replacement adjust:adjustment
depend:dependent adopt:adoption homolog:homologou commun:communism activ:activate angular:angulariti
homolog:homologous effect:effective bowdler:bowdlerize probat:probate rate:rate ceas:cease
control:controll roll:roll lie:lying news:news inning:innings succeed:succeed gener:generically
theolog:theology archaeolog:archaeology hope:hopefully tie:tied enjoy:enjoyed by:by o:oed
univers:university ion:ion toy:toy tradit:traditionally"""


def test_stems_are_those_of_nltk() -> None:  # 3.10.4
    pairs = [pair.split(":") for pair in STEMS.split()]
    assert {word: stem(word) for _, word in pairs} == {word: wanted for wanted, word in pairs}

"""Word vectors measured with lists: against scipy, gensim and a slow loop; what was not covered."""

import numpy as np
import pytest

from weft.embed.subwords import Subwords
from weft.errors import UserError
from weft.vectors import neighbours
from weft.vectors.benchmarks import Pairs, Questions, dictionary, read
from weft.vectors.evaluate import evaluate
from weft.vectors.store import Vectors

rng = np.random.default_rng(7)
WORDS = [f"w{i}" for i in range(47)]
VECTORS = Vectors(WORDS, rng.normal(size=(47, 5)).astype(np.float32))


def pairs(count: int, levels: int = 4) -> Pairs:
    """Scores that take few values, so that there are ties; no pair comes twice."""
    every = [(a, b) for a in range(len(WORDS)) for b in range(a)]
    picked = [every[i] for i in rng.permutation(len(every))[:count]]
    gold = rng.integers(0, levels, count).tolist()
    rows = [(WORDS[a], WORDS[b], float(s)) for (a, b), s in zip(picked, gold, strict=True)]
    return Pairs("made", tuple(rows))


def test_spearman_with_ties_is_scipy_s():
    stats = pytest.importorskip("scipy.stats")
    listed = pairs(83)
    cosines = []
    for a, b, _ in listed.rows:
        x, y = VECTORS[a].astype(float), VECTORS[b].astype(float)
        cosines.append(x @ y / np.sqrt((x @ x) * (y @ y)))
    gold = [score for _, _, score in listed.rows]
    found = evaluate(VECTORS, listed, resamples=200)
    assert found.spearman.value == pytest.approx(stats.spearmanr(cosines, gold)[0], abs=1e-9)
    assert found.pearson.value == pytest.approx(stats.pearsonr(cosines, gold)[0], abs=1e-7)
    assert found.spearman.low < found.spearman.value < found.spearman.high
    assert (found.pairs, found.found, found.coverage) == (83, 83, 1.0)


def test_a_word_is_equally_like_itself_whichever_it_is():
    rows = [(word, word, float(i % 5)) for i, word in enumerate(WORDS)]
    found = evaluate(VECTORS, Pairs("made", tuple(rows)), resamples=0)
    assert found.spearman.value == 0  # all alike: rounding dust has no order


def test_pairs_without_vectors_are_left_out_and_counted():
    listed = Pairs("made", (*pairs(11).rows, ("w1", "nowhere", 9.0), ("gone", "w2", 0.0)))
    found = evaluate(VECTORS, listed, resamples=0)
    assert found.spearman == evaluate(VECTORS, Pairs("", listed.rows[:11]), resamples=0).spearman
    assert (found.pairs, found.found, found.spearman.n) == (13, 11, 11)
    assert found.coverage == pytest.approx(11 / 13)
    assert found.to_json()["coverage"] == found.coverage


def test_a_list_without_any_known_word():
    found = evaluate(VECTORS, Pairs("made", (("a", "b", 1.0),)))
    assert (found.found, found.coverage, found.spearman.n) == (0, 0.0, 0)


def test_sub_words_give_vectors_to_unknown_words():
    table = rng.normal(size=(47 + 13, 5)).astype(np.float32)
    vectors = Vectors(WORDS, None, subwords=Subwords(table, 47))
    rows = (("w1", "w2", 1.0), ("w1", "new", 2.0), ("new", "newer", 3.0))
    found = evaluate(vectors, Pairs("made", rows), resamples=0)
    assert (found.found, found.composed) == (3, 2)
    upper = Pairs("made", tuple((a.upper(), b.upper(), score) for a, b, score in rows))
    assert evaluate(vectors, upper, resamples=0).spearman == found.spearman
    # A known word outside the restriction is not composed instead.
    found = evaluate(vectors, Pairs("made", rows), resamples=0, max_words=2)
    assert (found.found, found.composed) == (2, 2)


def test_case_is_folded_on_request():
    vectors = Vectors(["may", "May", "June"], np.eye(3, dtype=np.float32))
    rows = Pairs("made", (("May", "june", 1.0), ("MAY", "June", 2.0)))
    assert evaluate(vectors, rows, resamples=0).found == 2
    assert evaluate(vectors, rows, resamples=0, fold=False).found == 0
    # The first spelling in the file has the vector, also where another one is written.
    matrix = np.array([[1, 0], [0, 1], [2, 0.5], [0.5, 2]], dtype=np.float32)
    vectors = Vectors(["may", "May", "x", "y"], matrix)
    rows = Pairs("made", (("May", "x", 2.0), ("May", "y", 1.0)))
    assert evaluate(vectors, rows, resamples=0).spearman.value == pytest.approx(1)
    assert evaluate(vectors, rows, resamples=0, fold=False).spearman.value == pytest.approx(-1)


def slow(matrix: np.ndarray, a: int, b: int, c: int, method: str) -> int:
    """One analogy, a word at a time."""
    rows = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    best, answer = -np.inf, -1
    for i, row in enumerate(rows):
        if i in (a, b, c):
            continue
        if method == "add":
            score = row @ rows[b] - row @ rows[a] + row @ rows[c]
        else:
            to_a, to_b, to_c = ((row @ rows[j] + 1) / 2 for j in (a, b, c))
            score = to_b * to_c / (to_a + 0.001)
        if score > best:
            best, answer = score, i
    return answer


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogies_are_as_a_slow_loop_finds_them(method, monkeypatch):
    monkeypatch.setattr(
        neighbours, "BLOCK_SCORES", 29 * 11
    )  # several blocks, the last one not full
    asked = rng.integers(0, 47, (29, 3))
    matrix = VECTORS.matrix.astype(float)
    expected = [slow(matrix, *row, method) for row in asked.tolist()]
    # Every other question has the wrong answer.
    gold = [i if n % 2 else (i + 1) % 47 for n, i in enumerate(expected)]
    named = [tuple(WORDS[i] for i in (*q, g)) for q, g in zip(asked.tolist(), gold, strict=True)]
    listed = Questions("made", (("capitals", tuple(named[:13])), ("gram1", tuple(named[13:]))))
    found = evaluate(VECTORS, listed, method=method)
    assert found.total.accuracy.value == pytest.approx(14 / 29)
    assert [s.accuracy.value for s in found.sections] == pytest.approx([6 / 13, 8 / 16])
    assert [(k.name, k.found) for k in found.kinds] == [("semantic", 13), ("syntactic", 16)]
    assert found.total.accuracy.low < 14 / 29 < found.total.accuracy.high


def test_the_two_methods_differ():
    asked = rng.integers(0, 47, (97, 3))
    matrix = VECTORS.matrix.astype(float)
    answers = [[slow(matrix, *row, m) for row in asked.tolist()] for m in ("add", "multiply")]
    assert answers[0] != answers[1]


def test_unknown_analogies_are_counted_and_a_section_may_be_empty():
    listed = Questions("made", (("a", (("w1", "w2", "w3", "gone"),)), ("b", ((*WORDS[:4],),))))
    found = evaluate(VECTORS, listed)
    assert (found.total.questions, found.total.found, found.total.coverage) == (2, 1, 0.5)
    assert [s.coverage for s in found.sections] == [0.0, 1.0]
    assert found.kinds == ()
    assert found.to_json()["sections"]["a"]["accuracy"]["n"] == 0


def test_a_restricted_vocabulary_answers_with_its_words():
    matrix = np.array([[1, 0], [0, 1], [1, 1], [2, 1], [-1, 2.05]], dtype=np.float32)
    vectors = Vectors(list("abcde"), matrix)  # b - a + c points nearly at e
    listed = Questions("made", (("", (("a", "b", "c", "e"), ("a", "b", "c", "d"))),))
    assert evaluate(vectors, listed).total.accuracy.value == 0.5
    found = evaluate(vectors, listed, max_words=4)
    assert (found.total.found, found.total.accuracy.value) == (1, 1.0)


def test_other_spellings_of_the_question_are_no_answers():
    matrix = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 1], [0, 0.9, 0]], dtype=np.float32)
    vectors = Vectors(["a", "b", "c", "d", "B"], matrix)
    listed = Questions("made", (("", (("A", "B", "C", "D"),)),))
    assert evaluate(vectors, listed).total.accuracy.value == 1
    matrix[3] = -1
    assert evaluate(vectors, listed).total.accuracy.value == 1  # the only word that is left


def test_analogy_over_the_whole_vocabulary_has_no_answer():
    vectors = Vectors(["a", "b", "c"], np.eye(3, dtype=np.float32))
    listed = Questions("made", (("", (("a", "b", "c", "a"),)),))
    found = evaluate(vectors, listed)
    assert (found.total.found, found.total.accuracy.value) == (1, 0.0)


def test_an_unknown_method_is_refused():
    listed = Questions("made", (("", ((*WORDS[:4],),)),))
    with pytest.raises(UserError, match=r"Unknown analogy method 'multiple'.* Known: add"):
        evaluate(VECTORS, listed, method="multiple")  # type: ignore[arg-type]


@pytest.mark.parametrize("fold", [True, False])
def test_the_figures_are_gensim_s(fold, tmp_path):
    models = pytest.importorskip("gensim.models")
    words = [*WORDS[:40], *(word.upper() for word in WORDS[:7])]
    vectors = Vectors(words, VECTORS.matrix)
    peer = models.KeyedVectors(5)
    peer.add_vectors(words, VECTORS.matrix)
    file = tmp_path / "pairs.tsv"
    file.write_text("".join(f"{a}\t{b.upper()}\t{s}\n" for a, b, s in pairs(83).rows))
    found = evaluate(vectors, read(file), fold=fold, resamples=0)
    theirs = peer.evaluate_word_pairs(file, case_insensitive=fold)
    assert found.pearson.value == pytest.approx(theirs[0][0], abs=1e-5)
    assert found.spearman.value == pytest.approx(theirs[1][0], abs=1e-5)
    assert 100 * (1 - found.coverage) == pytest.approx(theirs[2])

    rows = rng.integers(0, 47, (211, 4)).tolist()
    rows = [[*row[:3], slow(VECTORS.matrix, *row[:3], "add")] if n % 3 else row
            for n, row in enumerate(rows)]  # fmt: skip
    lines = ["\t".join(words[i] for i in row) for row in rows if len(set(row)) == 4]
    file.write_text("\n".join([": one", *lines[:70], ": two", *lines[70:]]).replace("\t", " "))
    found = evaluate(vectors, read(file), fold=fold)
    score, sections = peer.evaluate_word_analogies(file, case_insensitive=fold)
    assert found.total.accuracy.value == pytest.approx(score)
    right = [len(s["correct"]) for s in sections[:2]]
    assert [round(s.accuracy.value * s.found) for s in found.sections] == right
    assert 0 < sum(right) < found.total.found


def test_multiplied_answers_are_gensim_s(monkeypatch):
    """Its evaluation only ever adds, so the words are asked one by one."""
    models = pytest.importorskip("gensim.models")
    monkeypatch.setattr(neighbours, "EPSILON", 1e-6)  # not the paper's
    peer = models.KeyedVectors(5)
    peer.add_vectors(WORDS, VECTORS.matrix)
    asked = [row for row in rng.integers(0, 47, (89, 3)).tolist() if len({*row}) == 3]
    named = [[WORDS[i] for i in row] for row in asked]
    theirs = [peer.most_similar_cosmul([b, c], [a], topn=1)[0][0] for a, b, c in named]
    rows = tuple((a, b, c, d) for (a, b, c), d in zip(named, theirs, strict=True))
    assert (
        evaluate(VECTORS, Questions("", (("", rows),)), method="multiply").total.accuracy.value == 1
    )


def test_question_file_formats_are_detected(tmp_path):
    file = tmp_path / "some.list.txt"
    file.write_text("# WS\nword 1,word 2,mean\ntiger, cat ,7.35\nbook,paper,7\n")
    assert read(file) == Pairs("some", (("tiger", "cat", 7.35), ("book", "paper", 7.0)))
    file.write_text("new york\tcity\t5\n\ntiger\tcat\t1e1\r\n")
    assert read(file).rows == (("new york", "city", 5.0), ("tiger", "cat", 10.0))
    file.write_text(": one\na b c d\n\n: two\n: three\ne f g h\n: one\ni j k l\n")
    assert read(file).sections == (
        ("one", (("a", "b", "c", "d"), ("i", "j", "k", "l"))),
        ("three", (("e", "f", "g", "h"),)),
    )
    file.write_text("a b c d\n")
    assert read(file).sections == (("", (("a", "b", "c", "d"),)),)
    file.write_text("a b\na\tc\n")
    assert dictionary(file) == (("a", "b"), ("a", "c"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty: no word pairs and no analogies"),
        ("a b 1\na b\n", ":2: two words and a score expected, found 2 columns: 'a b'"),
        ("a b 1\na c x1\n", ":2: the score 'x1' is not a number"),
        ("a b 1\na b score\n", ":2: the score 'score' is not a number"),
        ("a\tb\t7,5\n", ":1: the score '7,5' is not a number"),
        ("a b score\n", "holds the names of columns, but no word pairs"),
        (": x\na b c\n", ":2: an analogy is four words, found 3: 'a b c'"),
        (": x\n", "holds headings, but no analogies"),
        (b"a b 1\nb\xe9 c 2\n", ":2: byte 0xe9 is not UTF-8. Convert the file"),
    ],
)
def test_bad_lists(content, message, tmp_path):
    file = tmp_path / "list.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(UserError) as error:
        read(file)
    assert f"{file}{message}" in str(error.value).replace(f"{file} ", f"{file}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a b\nfoo bar baz\n", ":2: a word and its translation expected, found 3 columns"),
        ("\n# nothing\n", " is empty: no word pairs"),
    ],
)
def test_bad_dictionaries(content, message, tmp_path):
    file = tmp_path / "list.txt"
    file.write_text(content)
    with pytest.raises(UserError, match=message):
        dictionary(file)

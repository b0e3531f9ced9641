"""compare, tune, check and word vectors on data in memory."""

import pandas
import pytest

import weft
from weft.errors import UserError
from weft.text.synthetic.corpora import generate_reviews
from weft.vectors.corpus import corpus

EXAMPLES = generate_reviews()["train"][:60]
ROWS = [(e.text, e.label) for e in EXAMPLES]
FRAME = pandas.DataFrame(ROWS, columns=["text", "label"])


@pytest.fixture
def file(tmp_path):
    weft.write(EXAMPLES, tmp_path / "a.jsonl")
    return str(tmp_path / "a.jsonl")


def test_compare_ranks_as_on_the_file(file, tmp_path):
    options = {"recipes": ["tfidf"], "seeds": 1, "quiet": True}
    expected = weft.compare(file, tmp_path / "file", **options)
    found = weft.compare(FRAME, tmp_path / "memory", **options)
    assert [row.values for row in found] == [row.values for row in expected]
    stored = tmp_path / "memory" / "data" / "train.memory.jsonl"
    assert str(stored) in (tmp_path / "memory" / "report.html").read_text("utf-8")
    result = next((tmp_path / "memory" / "trials").rglob("result.json"))
    before = result.stat().st_mtime_ns
    weft.compare(ROWS, tmp_path / "memory", **options)  # the same rows: nothing is repeated
    assert result.stat().st_mtime_ns == before
    changed = [*ROWS[:-1], ("another text", ROWS[-1][1])]
    with pytest.raises(UserError, match="holds other rows, of an earlier comparison"):
        weft.compare(changed, tmp_path / "memory", **options)
    assert "another text" not in stored.read_text("utf-8")


def test_compare_takes_train_dev_and_test(tmp_path):
    rows = weft.compare(
        [FRAME[:40], FRAME[40:]], tmp_path, dev=ROWS[:30], recipes=["tfidf"], seeds=1, quiet=True
    )
    assert rows[0].error is None
    assert sorted(p.name for p in (tmp_path / "data").iterdir()) == [
        "dev.memory.jsonl", "test.memory.jsonl", "train.memory.jsonl"
    ]  # fmt: skip


def test_compare_of_tagged_words_locates_bad_rows(tmp_path):
    rows = [([f"Bo{i}", "lives", "here"], ["B-PER", "O", "O"]) for i in range(20)]
    board = weft.compare(rows, tmp_path / "a", recipes=["crf"], seeds=1, quiet=True)
    assert board[0].error is None
    with pytest.raises(UserError, match=r"^train\[20\]: 1 tags in 'tags' for 2 tokens"):
        weft.compare([*rows, (["a", "b"], ["O"])], tmp_path / "b", recipes=["crf"], quiet=True)


def test_tune_goes_on_with_the_same_rows_only(file, tmp_path):
    options = {"search": {"classic.C": [0.1, 1.0]}, "seeds": 0}
    expected = weft.tune("tfidf", tmp_path / "file", train=file, trials=2, **options)
    out = tmp_path / "memory"
    found = weft.tune("tfidf", out, train=FRAME, trials=1, **options)
    found = weft.tune("tfidf", out, train=ROWS, trials=2, **options)
    assert [row.value for row in found.rows] == [row.value for row in expected.rows]
    stored = out / "data" / "train.memory.jsonl"
    contents = stored.read_bytes()
    with pytest.raises(UserError, match="holds a search with other data"):
        weft.tune("tfidf", out, train=ROWS[1:], trials=3, **options)
    assert stored.read_bytes() == contents
    weft.tune("tfidf", out, train=ROWS[1:], trials=1, overwrite=True, **options)
    assert len(stored.read_bytes().splitlines()) == len(ROWS) - 1


def test_tune_in_several_processes(tmp_path):
    search = {"classic.C": [0.1, 1.0]}
    found = weft.tune("tfidf", tmp_path, train=FRAME, search=search, trials=2, seeds=1, workers=2)
    assert found.best.value > 0


def test_check_finds_what_it_finds_in_the_file(tmp_path):
    rows = [*ROWS, ROWS[0], ("", "positive"), ("a text", "Positive")]
    frame = pandas.DataFrame(rows, columns=["text", "label"])
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    expected = weft.check(str(tmp_path / "a.jsonl"), quiet=True)
    found = weft.check(frame, quiet=True)
    assert [(f.kind, f.count, f.title) for f in found.findings] == [
        (f.kind, f.count, f.title) for f in expected.findings
    ]
    places = [place.where for finding in found.findings for place in finding.places]
    assert f"data[{len(ROWS) + 1}]" in places
    two = weft.check([frame, frame[:5]], quiet=True)
    assert any("train" in finding.title and "test" in finding.title for finding in two.findings)


def test_check_counts_unusable_rows():
    frame = FRAME.copy()
    frame.loc[3, "text"] = float("nan")
    findings = weft.check(frame, quiet=True).findings
    assert "data[3]" in [place.where for finding in findings for place in finding.places]


def test_check_of_tagged_words(tmp_path):
    rows = [{"tokens": ["Bo", "ran"], "tags": ["B-PER", "O"]}] * 3
    (tmp_path / "a.conll").write_text("Bo B-PER\nran O\n\n" * 3)
    expected = weft.check(str(tmp_path / "a.conll"), quiet=True).findings
    found = weft.check(rows, quiet=True).findings
    assert [(f.kind, f.count) for f in found] == [(f.kind, f.count) for f in expected]


def test_word_vectors_count_the_same_words(tmp_path):
    texts = [text for text, _ in ROWS]
    (tmp_path / "a.txt").write_text("".join(text + "\n" for text in texts), "utf-8")
    expected = corpus([tmp_path / "a.txt"], min_count=2)
    for data in ([texts], FRAME, {"text": texts}, FRAME["text"]):
        found = corpus(data, min_count=2)
        assert (found.words, found.ids.tolist()) == (expected.words, expected.ids.tolist())
        assert found.ends.tolist() == expected.ends.tolist()
    with pytest.raises(UserError, match=r"^texts\[1\]: 'text' has no value"):
        corpus({"text": ["a word", None]})

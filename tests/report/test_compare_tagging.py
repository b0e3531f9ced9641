"""The bake-off on files with an answer at every word: CoNLL-U, columns, folds, resuming."""

import json

import numpy as np
import pytest

from tests.fixtures.tagged_files import columns, conllu
from weft.compare.significance import count_per_text
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.report.compare import compare
from weft.text.read import read

RECIPES = ["tagger-bilstm", "tagger-bilstm-crf"]
TINY = {
    "encoder.hidden": 7, "train.epochs": 1, "train.batch_size": 8, "train.ema_decay": 0,
    "train.learning_rate": 0.02, "tokenizer.min_count": 1, "embedder.0.width": 5,
}  # fmt: skip


def run(files, out, **options):
    options = {"recipes": RECIPES, "seeds": 1, "quiet": True, "changes": TINY, **options}
    return compare([str(file) for file in files], out, **options)


@pytest.fixture(scope="module")
def tagged(tmp_path_factory):
    """Two recipes, two seeds, on a file of CoNLL-U that a test part is cut from."""
    folder = tmp_path_factory.mktemp("tagged")
    files = [conllu(folder / "all.conllu", 57)]
    return files, folder / "out", run(files, folder / "out", seeds=2)


def test_tagging_recipes_are_rows_with_their_metrics(tagged):
    _, out, rows = tagged
    assert {row.recipe for row in rows} == set(RECIPES)
    for row in rows:
        assert row.error is None
        assert row.metric == "upos"
        assert len(row.values) == 2
        assert row.p50_ms > 0
    assert rows[0].p is None
    assert 0 < rows[1].p <= 1
    measure = evaluate(load(out / "model"), read(out / "test.conllu"))
    found = measure.compute()["upos"].value
    assert any(found == pytest.approx(value) for row in rows for value in row.values)


def test_the_page_draws_errors_over_gold_and_stays_one_file(tagged):
    page = (tagged[1] / "report.html").read_text()
    assert "http" not in page
    assert page.count(".drawing text {") == 1  # the style of drawings, once
    assert "<b>upos</b>: the fraction of words with the correct tag" in page
    n = len(list(read(tagged[1] / "test.conllu")))
    assert f"<b>{n}</b> test sentences of <b>{6 * n}</b> words" in page
    assert f"weft evaluate {tagged[1] / 'model'} {tagged[1] / 'test.conllu'}" in page
    assert "sentences/s" in page
    assert 'id="confusion"' in page
    assert "NOUN" in page
    if 'id="errors"' in page:
        assert "Hardest sentences" in page
        assert 'class="word off"' in page
        assert "of 6 words wrong" in page


def test_finished_trials_are_not_repeated(tagged, capsys):
    files, out, rows = tagged
    assert run(files, out, seeds=2) == rows
    before = {path: path.stat().st_mtime_ns for path in out.glob("trials/*/result.json")}
    run(files, out, seeds=2, quiet=False)
    said = capsys.readouterr().err
    assert said.count("cached") == 4
    assert before == {path: path.stat().st_mtime_ns for path in out.glob("trials/*/result.json")}
    with pytest.raises(UserError, match="holds a trial with different settings or data"):
        run(files, out, seeds=2, changes={**TINY, "encoder.hidden": 5})


def test_spans_in_folds_have_a_pooled_f1(tmp_path):
    rows = run(
        [columns(tmp_path / "names.iob2", 31)], tmp_path / "out", recipes=RECIPES[1:], folds=2
    )
    assert {row.metric for row in rows} == {"f1"}
    assert all(len(row.values) == 2 for row in rows)
    for row in rows:
        right = said = true = 0
        for fold in (1, 2):
            path = tmp_path / "out" / "trials" / f"{row.recipe}-1-fold{fold}" / "predictions.jsonl"
            for line in path.read_text().splitlines():
                answer = json.loads(line)
                ours = {tuple(span) for span in answer["structure"].get("spans", [])}
                theirs = {tuple(span) for span in answer["gold"]["spans"]}
                right += len(ours & theirs)
                said += len(ours)
                true += len(theirs)
        assert true == 62
        assert row.pooled == pytest.approx(2 * right / (said + true))
    page = (tmp_path / "out" / "report.html").read_text()
    assert "span F1" in page
    assert "span types" in page
    assert "pooled" in page


def test_per_sentence_counts_sum_to_the_metrics(tagged):
    from types import SimpleNamespace

    _, out, rows = tagged
    for row in rows:
        for seed, value in zip((1, 2), row.values, strict=True):
            path = out / "trials" / f"{row.recipe}-{seed}" / "predictions.jsonl"
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            trial = SimpleNamespace(fold=None, read_predictions=lambda lines=lines: iter(lines))
            top, bottom = count_per_text([trial], row.metric).sum(0)
            assert top / bottom == pytest.approx(value)
            assert bottom == 6 * len(lines)


def test_test_split_is_written_verbatim_with_all_duplicates(tagged):
    (file,), out, _ = tagged
    test = out / "test.conllu"
    whole, part = file.read_text().split("\n\n"), test.read_text().split("\n\n")
    assert set(part) <= set(whole)
    held = {e.text for e in read(test)}
    assert 4 <= len(held) < len({e.text for e in read(file)}) / 2
    assert len(list(read(test))) == sum(e.text in held for e in read(file))


def test_default_task_is_reported_with_its_alternatives(tmp_path, capsys, monkeypatch):
    from weft import config

    known = config.recipes

    def more(task="classify"):
        return ["parser"] if task == "parse" else known(task)

    monkeypatch.setattr(config, "recipes", more)
    monkeypatch.setattr("weft.report.compare.prepare_data", stop)
    with pytest.raises(KeyboardInterrupt):
        run([conllu(tmp_path / "a.conllu", 5)], tmp_path / "out", recipes=None, quiet=False)
    said = capsys.readouterr().err
    assert (
        "Comparing on the task 'tag'; this file also fits --task parse or --task sentences." in said
    )


def stop(*given):
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"task": "pasre"}, "Unknown task 'pasre'"),
        ({"task": "classify", "recipes": None}, "the task 'classify' needs a label for each text"),
        ({"recipes": ["tagger-bilstm", "bag"]}, "'tagger-bilstm' is for tag and 'bag' is for"),
        ({"recipes": ["bag"]}, "It fits --task tag"),
        ({"changes": {"task.columns": ["upso"]}}, "a.conllu:1. Did you mean 'upos'?"),
    ],
)
def test_invalid_options_fail_before_training(tmp_path, options, message):
    with pytest.raises(UserError) as caught:
        run([conllu(tmp_path / "a.conllu", 9)], tmp_path / "out", **options)
    assert message in str(caught.value)
    assert not list(tmp_path.glob("out/trials/*"))


def test_a_recipe_for_tags_is_refused_for_texts(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "good film\tyes\nbad film\tno\n" * 9)
    with pytest.raises(UserError, match=r"'tag' needs a tag for each word.*fits --task classify"):
        run([path], tmp_path / "out")


def test_malformed_file_is_reported_with_its_line(tmp_path):
    path = conllu(tmp_path / "a.conllu", 9)
    lines = path.read_text().split("\n")
    lines[3] = lines[3].rsplit("\t", 1)[0]
    path.write_text("\n".join(lines))
    with pytest.raises(UserError, match=r"a.conllu:4: .*columns"):
        run([path], tmp_path / "out")


def test_paired_bootstrap_resamples_sentences():
    from weft.compare.significance import paired_ratios

    rng = np.random.default_rng(3)
    true = rng.integers(0, 4, 211)
    a = np.stack([2.0 * rng.binomial(true, 0.8), 2.0 * true], 1)
    same = a[rng.permutation(len(a))]
    worse = np.stack([2.0 * rng.binomial(true, 0.4), 2.0 * true], 1)
    assert paired_ratios(worse, a) < 0.001
    assert paired_ratios(a, a) == 1.0
    assert paired_ratios(same, a) == 1.0  # the same sums
    # As `paired` where every sentence counts the same.
    from weft.metrics.bootstrap import paired_bootstrap

    x, y = rng.random(53) < 0.7, rng.random(53) < 0.5
    ones = np.full(53, 3.0)
    p = paired_ratios(np.stack([3.0 * x, ones], 1), np.stack([3.0 * y, ones], 1))
    assert p == pytest.approx(paired_bootstrap(x, y), abs=0.01)

"""The bake-off of models that write, and of language models, from files to page and commands."""

import json
from pathlib import Path

import pytest

from tests.fixtures.command import command, fails, ok
from tests.fixtures.seq2seq_runs import SMALL, pairs, trained
from weft.compare.detect_task import choose_task, detect_tasks
from weft.compare.plan import Plan
from weft.compare.prepare import choose_recipes, find_tasks, is_comparable
from weft.compare.trial import SplitSpec
from weft.config import recipe, recipes
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.report.compare import compare, default_output
from weft.run.data import Data
from weft.text.formats.parallel import read_parallel
from weft.text.read import read
from weft.text.synthetic.reviews import generate_reviews

QUICK = {**SMALL, "train.epochs": 2}


def test_generation_recipes_are_compared_end_to_end(tmp_path):
    train = pairs(tmp_path, count=70)
    out = tmp_path / "out"
    rows = compare(
        [str(train)], out, recipes=["seq2seq", "seq2seq-attention"], seeds=1, changes=QUICK,
        device="cpu", quiet=True,
    )  # fmt: skip
    assert [r.error for r in rows] == [None, None]
    assert rows[0].metric == "bleu"
    assert set(rows[0].others) == {"chrf", "exact_match"}
    assert rows[0].token_ms > 0
    assert rows[0].p is None
    assert 0 < rows[1].p <= 1
    saved = json.loads((out / "leaderboard.json").read_text())
    assert saved[0]["others"]["chrf"] == rows[0].others["chrf"]
    # The test part is two files, on which the chosen model measures the same again.
    examples = list(read_parallel(out / "test.src", out / "test.tgt"))
    assert 5 <= len(examples) <= 20
    figures = evaluate(load(out / "model"), examples).compute(resamples=0)
    names = {r.recipe: r.values[0] for r in rows}
    assert figures["bleu"].value in [pytest.approx(value) for value in names.values()]
    page = (out / "report.html").read_text()
    for part in ("Outputs side by side", "Length of targets", "Learning curves", "BLEU"):
        assert part in page
    assert "weft evaluate" in page


def test_one_metric_ranks_all_recipes(tmp_path):
    data = Data(train=str(pairs(tmp_path, count=7)))

    def decided(names: list[str], given: dict[str, object]) -> list[list[str]]:
        bases = {name: recipe(name) for name in names}
        plan = Plan(bases, given, SplitSpec(data.train), 1, tmp_path, data)
        measures = [plan.trials[name][0].config["task"].get("metrics") for name in names]
        return [one and list(one) for one in measures]

    both = ["seq2seq-attention", "seq2seq-copy"]
    assert decided(both, {}) == [["bleu", "chrf", "exact"], ["bleu", "rouge", "exact"]]
    assert decided(both[::-1], {})[1] == ["rouge", "bleu", "chrf", "exact"]
    assert decided(["seq2seq", "seq2seq-attention"], {}) == [None, None]
    assert decided(both, {"task.metrics": ["chrf"]}) == [["chrf"], ["chrf"]]


def test_parallel_files_are_a_generation_task(tmp_path):
    train = pairs(tmp_path, count=7)
    data = Data(train=f"{train},{train.with_suffix('.tgt')}")
    assert find_tasks(data) == ("seq2seq",)
    assert default_output(f"x/{data.train}") == Path("runs") / f"{train.stem}-compared"
    with pytest.raises(UserError, match=r"train\.src,.*: the task 'tag' needs a tag for each word"):
        compare([data.train], tmp_path / "out", task="tag", recipes=["tagger-cnn"])


def test_guessed_header_is_reported(tmp_path):
    rows = "".join(f"a{i} b\tb a{i}\n" for i in range(20))
    (tmp_path / "a.tsv").write_text(f"english\tloomish\n{rows}")
    (tmp_path / "b.tsv").write_text(f"source\ttarget\n{rows}")
    first, second = (
        choose_recipes(Data(train=str(tmp_path / name)), {}, (), "")[1]
        for name in ("a.tsv", "b.tsv")
    )
    assert "a.tsv:1: the first line is read as a header." in first
    assert "header" not in second


def test_mixing_pseudo_perplexities_and_perplexities_is_noted(tmp_path):
    (tmp_path / "a.txt").write_text("the cat sat on a mat today\n" * 20)
    data = Data(train=str(tmp_path / "a.txt"))
    told = choose_recipes(data, {"task.kind": "language"}, ("ngram", "masked-bilstm"), "")[1]
    assert told.startswith("masked-bilstm: bidirectional, so its metric is a pseudo")
    assert choose_recipes(data, {"task.kind": "language"}, ("masked-bilstm",), "")[1] == ""
    assert choose_recipes(data, {"task.kind": "language"}, (), "")[1] == ""


def test_language_models_are_ranked_by_lowest_perplexity(tmp_path):
    texts = [e.text for part in generate_reviews(0, 120).values() for e in part]
    path = tmp_path / "a.txt"
    path.write_text("\n".join(texts) + "\n")
    out = tmp_path / "out"
    rows = compare(
        [str(path)], out, recipes=["ngram", "kneser-ney"], seeds=1, quiet=True, device="cpu"
    )  # fmt: skip
    assert [r.error for r in rows] == [None, None]
    assert rows[0].metric == "perplexity"
    assert rows[0].quality <= rows[1].quality
    assert not rows[0].higher_is_better
    assert 0 < rows[1].p <= 1
    assert "Texts side by side" in (out / "report.html").read_text()
    assert (out / "test.txt").is_file() or (out / "test.jsonl").is_file()
    with pytest.raises(UserError, match="cannot be split into folds"):
        compare([str(path)], tmp_path / "f", recipes=["ngram"], folds=2, quiet=True)


def test_incomparable_recipes_are_compared_only_when_named():
    texts, words = recipes("language"), recipes("tag")
    assert "masked-bilstm" in texts
    assert not is_comparable("masked-bilstm")
    assert {"kneser-ney", "lstm-lm", "gpt"} <= set(filter(is_comparable, texts))
    assert all(map(is_comparable, words))  # some have several embedders


def test_tasks_of_text_files_are_detected(tmp_path):
    table = [f"a text number {i}\tits answer is {i * i}" for i in range(23)]
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "\n".join(table) + "\n")
    assert detect_tasks(read(path)) == ("seq2seq", "classify", "regress")
    (tmp_path / "b.txt").write_text("one line\nand another\n")
    assert detect_tasks(read(tmp_path / "b.txt")) == ("language",)
    assert choose_task("seq2seq", (), ("classify", "regress"), "f") == "seq2seq"
    assert choose_task("language", (), ("classify", "regress"), "f") == "language"
    with pytest.raises(UserError, match="the task 'seq2seq' needs a target text for each text"):
        choose_task("seq2seq", (), ("language",), "f")
    with pytest.raises(UserError, match="the task 'classify' needs a label for each text"):
        choose_task("classify", (), ("language",), "f")


def test_evaluate_and_predict_run_on_a_generation_model(tmp_path):
    trained("seq2seq-attention", tmp_path, **{"train.epochs": 1, "generate.min_length": 3})
    model, test = str(tmp_path / "run"), str(tmp_path / "train.src")
    shown = ok("evaluate", model, test)
    assert "BLEU|nrefs:1|case:mixed" in shown.out
    assert "worst  chrF" in shown.out
    assert "right  " in shown.out
    page = tmp_path / "e.html"
    ok("evaluate", model, test, "--report", str(page), "--json")
    assert "Worst outputs" in page.read_text()
    (tmp_path / "t.txt").write_text("a b\n")
    said = json.loads(ok("predict", model, str(tmp_path / "t.txt"), "--json").out)
    assert said["value"] == " ".join(text for text, _ in said["tokens"])
    assert all(0 < chance <= 1 for _, chance in said["tokens"])
    why = ok("explain", model, "a b c", "-o", str(tmp_path / "w.html"))
    for part in ("token", "attends to", "beams, step by step", "occlusion"):
        assert part in why.out
    html = (tmp_path / "w.html").read_text()
    for part in ("Beam search</h2>", "Attention</h2>", "Source words"):
        assert part in html
    assert "t.src: no such file" in fails("evaluate", model, str(tmp_path / "t.src"))


def test_parallel_files_are_checked(tmp_path):
    path = pairs(tmp_path, count=30)
    page = tmp_path / "c.html"
    shown = command("check", str(path), "--target", "tgt", "--html", str(page), "--no-near")
    assert "words of the target: data" in shown.out
    assert "words per target" in page.read_text()
    told = fails("check", str(path), "--target", "tgt", "--fix", "x")
    assert "--fix cannot write parallel files" in told

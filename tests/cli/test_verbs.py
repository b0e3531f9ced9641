"""The verbs on small files: what they print, what they leave behind, how they end."""

import json
import shutil
import subprocess
import sys
import time

import pytest

from tests.fixtures import small
from tests.fixtures.command import SMALL, command, fails, ok
from weft import config, registry


def python(code, *arguments):
    """Run code in a fresh Python; its standard output."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_train_leaves_a_run_behind(shared):
    names = {path.name for path in (shared / "bag").iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "log.txt", "checkpoints", "model"} | {
        "predictions.jsonl",
        "health.json",
    }
    model = {path.name for path in (shared / "bag" / "model").iterdir()}
    assert model == {"README.md", "golden.jsonl", "labels.json", "model.json", "record.json"} | {
        "tokenizer.json",
        "weights.safetensors",
    }


def test_train_prints_progress_unless_quiet(shared, tmp_path):
    arguments = ("train", "--recipe", "bag", "--train", shared / "train.tsv", *SMALL)
    told = ok(*arguments, "-o", tmp_path / "a").err
    assert "epoch 1.0" in told
    assert "dev accuracy" in told
    assert f"model saved in {tmp_path / 'a' / 'model'}" in told.replace("\n", "")
    assert ok(*arguments, "-o", tmp_path / "b", "--quiet").err == ""
    assert "epoch 1.0" in (tmp_path / "b" / "log.txt").read_text("utf-8")


def test_a_configuration_file_and_its_flags(shared, tmp_path):
    sections = {**config.recipe("bag").sections, "data": {"train": "nowhere.tsv"}}
    (tmp_path / "a.toml").write_text(config.dumps(sections), "utf-8")
    flags = ("--train", shared / "train.tsv", "--seed", 7, "--label", 0, "--text", "1")
    ok("train", tmp_path / "a.toml", "-o", tmp_path / "run", *flags, *SMALL)
    saved = config.load(tmp_path / "run" / "config.toml")
    assert saved["train"]["seed"] == 7
    assert saved["train"]["epochs"] == 2
    assert (saved["data"]["label"], saved["data"]["text"]) == (0, 1)
    assert saved["data"]["train"] == str(shared / "train.tsv")


def test_the_saved_configuration_trains_the_same_model(shared, tmp_path):
    ok("train", shared / "bag" / "config.toml", "-o", tmp_path / "again")
    for name in ("weights.safetensors", "tokenizer.json", "golden.jsonl"):
        first = (shared / "bag" / "model" / name).read_bytes()
        assert (tmp_path / "again" / "model" / name).read_bytes() == first


def test_resume_needs_nothing_but_the_folder(shared, tmp_path):
    folder = shutil.copytree(shared / "bag", tmp_path / "run")
    shutil.rmtree(folder / "model")
    told = ok("train", "-o", folder, "--resume").err
    assert "resumed after update 18" in told
    first = (shared / "bag" / "model" / "weights.safetensors").read_bytes()
    assert (folder / "model" / "weights.safetensors").read_bytes() == first


def test_resume_can_train_longer(shared, tmp_path):
    folder = shutil.copytree(shared / "bag", tmp_path / "run")
    told = ok("train", "-o", folder, "--resume", "--set", "train.epochs=3").err
    assert "epoch 3.0" in told
    assert "epoch 2.0" not in told
    lines = [json.loads(line) for line in open(folder / "metrics.jsonl", encoding="utf-8")]
    assert [r["epoch"] for r in lines if r["event"] == "evaluation"] == [1, 2, 3]


def test_overwrite_replaces_a_run_and_leaves_the_rest(shared, tmp_path):
    folder = shutil.copytree(shared / "bag", tmp_path / "run")
    (folder / "notes.txt").write_text("mine", "utf-8")
    arguments = ("train", "--recipe", "tfidf", "--train", shared / "train.tsv", "-o", folder)
    ok(*arguments, "--overwrite")
    assert (folder / "notes.txt").read_text("utf-8") == "mine"
    assert not (folder / "checkpoints").exists()
    assert (folder / "model" / "vocabulary.json").is_file()


def test_evaluate_prints_one_object(shared):
    found = json.loads(ok("evaluate", shared / "tfidf", shared / "train.tsv", "--json").out)
    assert list(found) == ["accuracy", "macro_f1", "matthews"]
    for figure in found.values():
        assert set(figure) == {"value", "low", "high", "n"}
        assert 0 <= figure["low"] <= figure["value"] <= figure["high"] <= 1
        assert figure["n"] == 46
    assert found["accuracy"]["value"] > 0.9


def test_evaluate_in_words_and_every_prediction(shared, tmp_path):
    place = tmp_path / "p.jsonl"
    model = shared / "tfidf" / "model"
    done = ok("evaluate", model, shared / "train.tsv", "--predictions", place)
    assert done.lines[0].startswith("accuracy     ")
    assert done.lines[0].endswith("n=46")
    rows = [json.loads(line) for line in place.read_text("utf-8").splitlines()]
    assert [row["text"] for row in rows] == [e.text for e in small.examples()]
    right = sum(row["value"] == row["label"] for row in rows)
    assert f"accuracy     {right / 46:.4f}" in done.out


def test_evaluate_reads_standard_input_and_other_columns(shared, tmp_path):
    rows = [{"label": e.label, "text": e.text} for e in small.examples()]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    expected = ok("evaluate", shared / "tfidf", shared / "train.tsv", "--json").out
    assert ok("evaluate", shared / "tfidf", "-", "--json", stdin=lines).out == expected
    other = tmp_path / "other.jsonl"
    other.write_text(lines.replace('"text"', '"said"').replace('"label"', '"mood"'), "utf-8")
    columns = ("--text", "said", "--label", "mood")
    assert ok("evaluate", shared / "tfidf", other, "--json", *columns).out == expected


def test_predict_answers_every_line_in_order(shared):
    texts = ["the film was good", "", "bad", "the dinner was bad", "good good"]
    stdin = "\n".join(texts) + "\n"
    for model in ("bag", "tfidf"):
        rows = [json.loads(r) for r in ok("predict", shared / model, "--json", stdin=stdin).lines]
        assert [set(row) for row in rows] == [{"value", "score", "coverage"}] * 5
        assert [row["value"] for row in rows if row["coverage"]] == [
            "positive",
            "negative",
            "negative",
            "positive",
        ]
        assert [row["coverage"] for row in rows] == [1, 0, 1, 1, 1]
        assert all(0.5 <= row["score"] <= 1 for row in rows)


def test_predict_reports_unread_text(shared):
    done = ok("predict", shared / "tfidf", "-", stdin="the good film\n\n")
    value, score = done.lines[0].split("\t")
    assert (value, len(done.lines)) == ("positive", 2)
    assert 0.5 < float(score) <= 1
    assert "1 text was read only in part" in done.err


def test_predict_takes_a_table_with_or_without_labels(shared, tmp_path):
    table = tmp_path / "t.csv"
    table.write_text("id,said\n1,a good film\n2,the plot was bad\n", "utf-8")
    plain = ok("predict", shared / "tfidf", "-", stdin="a good film\nthe plot was bad\n").out
    assert ok("predict", shared / "tfidf", table, "--text", "said").out == plain
    assert len(ok("predict", shared / "tfidf", shared / "train.tsv").lines) == 46


def test_weights_belong_to_the_tokens_of_the_text(shared):
    texts = ["The film, was GOOD!", "naïve 😀 plot"]
    stdin = "\n".join(texts)
    done = ok("predict", shared / "attention", "-", "--json", "--weights", stdin=stdin)
    cut = []
    for text, line in zip(texts, done.lines, strict=True):
        parts = json.loads(line)["parts"]
        cut.append([text[start:end] for start, end, _ in parts])
        assert sum(weight for _, _, weight in parts) == pytest.approx(1, abs=1e-5)
    assert cut[0] == ["The", "film", ",", "was", "GOOD", "!"]
    assert cut[1][0] == "naïve"
    assert "".join(cut[1]) == "naïve😀plot"


def test_models_without_attention_give_no_weights(shared):
    for name in ("bag", "tfidf"):
        done = ok("predict", shared / name, "-", "--json", "--weights", stdin="a good film")
        assert "parts" not in json.loads(done.out)


def test_list_shows_what_there_is():
    listed = ok("list").lines
    tasks = [line for line in listed if line.split(":")[0] in registry.parts("task")]
    assert [line.split(":")[0] for line in tasks] == [
        "classify", "tag", "regress-words", "intent-slots", "sentences", "parse", "constituency",
        "srl", "coref", "openie", "nodes", "language", "seq2seq", "pair-classify", "span", "masked",
    ]  # fmt: skip
    listed = [line for line in listed if line not in tasks]
    assert [line.split()[0] for line in listed if line[0] != " "] == config.recipes(None)
    measured = [name for name in config.recipes(None) if config.recipe(name)["recipe"]["scores"]]
    assert sum(line.lstrip().startswith("reaches ") for line in listed) == len(measured)
    assert ok("list", "recipes", "--names").lines == config.recipes(None)
    shown = ok("list", "encoders").lines
    assert [line.split()[0] for line in shown if line[0] != " "] == sorted(
        registry.parts("encoder")
    )
    assert "    cell = 'lstm'" in shown
    assert not any("input_size" in line for line in shown)
    for kind in registry.FOLDERS:
        assert ok("list", f"{kind}s", "--names").lines == sorted(registry.parts(kind))


def test_config_explain_shows_the_origin_of_each_value(tmp_path):
    done = ok("config", "explain", "--recipe", "lstm", "--set", "encoder.hidden=11")
    rows = {line.split()[0]: line for line in done.lines}
    assert rows["encoder.hidden"].split("=")[1].split() == ["11", "#", "--set"]
    assert rows["encoder.cell"].endswith("# recipe lstm")
    assert rows["encoder.forget_bias"].endswith("# default")
    assert rows["train.seed"].split("=")[1].split() == ["1", "#", "default"]
    path = tmp_path / "a.toml"
    path.write_text(config.dumps(config.recipe("tfidf").sections), "utf-8")
    rows = {line.split()[0]: line for line in ok("config", "explain", path).lines}
    assert rows["classic.kind"].endswith(f"# {path}")
    assert rows["classic.C"].endswith("# default")


def test_config_explain_prints_a_valid_configuration():
    done = ok("config", "explain", "--recipe", "transformer")
    tables: dict[str, list[str]] = {}
    for line in done.lines:
        key, _, rest = line.partition("=")
        section, _, name = key.strip().partition(".")
        tables.setdefault(section, [f"[{section}]"]).append(f"{name} = {rest}")
    text = "\n".join(line for table in tables.values() for line in table)
    sections = config.tomllib.loads(text)
    from weft.run.train import resolve_config

    assert resolve_config(config.from_sections(sections, "explain")) == sections


def test_explain_numbers_a_list_of_embedders(tmp_path):
    sections = dict(config.recipe("bag").sections)
    sections["embedder"] = [{"kind": "lookup", "width": 7}, {"kind": "character-cnn"}]
    (tmp_path / "a.toml").write_text(config.dumps(sections), "utf-8")
    done = ok("config", "explain", tmp_path / "a.toml", "--set", "embedder.1.width=5")
    rows = {line.split()[0]: line for line in done.lines}
    assert rows["embedder.0.width"].split("=")[1].split()[0] == "7"
    assert rows["embedder.1.width"].endswith("# --set")


def test_tokens_train_encode_decode(shared, tmp_path):
    place = tmp_path / "t.json"
    ok("tokens", "train", shared / "train.tsv", "-o", place, "--kind", "bpe", "--vocab-size", 101)
    row = json.loads(ok("tokens", "encode", place, "--json", stdin="the plot was good\n").out)
    assert ok("tokens", "decode", place, stdin=f"{row['ids']}\n").out == "the plot was good\n"


def test_a_trained_tokenizer_serves_in_a_run(shared, tmp_path):
    place, run = tmp_path / "t.json", tmp_path / "run"
    ok("tokens", "train", shared / "train.tsv", "-o", place, "--kind", "bpe", "--vocab-size", 101)
    arguments = ("train", "--recipe", "bag", "--train", shared / "train.tsv", "-o", run, *SMALL)
    ok(*arguments, "--set", f"tokenizer.path={place}")
    given, saved = (
        json.loads(place.read_text()),
        json.loads((run / "model/tokenizer.json").read_text()),
    )
    assert given["model"]["vocab"] == saved["model"]["vocab"]
    assert len(ok("predict", run, "-", stdin="good film\n").lines) == 1


def test_compare_prints_the_table(shared, tmp_path):
    arguments = ("compare", shared / "train.tsv", "-o", tmp_path / "out", "--recipes", "tfidf,bag")
    done = ok(*arguments, "--seeds", 1, *SMALL, "--quiet")
    assert "tfidf" in done.out
    assert f"report: {tmp_path / 'out' / 'report.html'}" in done.out.replace("\n", "")
    rows = json.loads((tmp_path / "out" / "leaderboard.json").read_text("utf-8"))
    assert {row["recipe"] for row in rows} == {"tfidf", "bag", "majority"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "No such command 'trian'"),
        (["train", "--recipe", "bag"], "Missing option '-o'"),
        (["train", "--recip", "bag"], "No such option: --recip"),
        (["train", "-o", "x", "--seed", "many"], "Invalid value for '--seed'"),
        (["predict"], "Missing argument 'model'"),
        (["config", "explian"], "No such command 'explian'"),
    ],
)
def test_usage_mistakes_fail_with_a_hint(arguments, message):
    done = command(*arguments)
    assert done.status == 2
    assert message.lower() in done.err.lower()
    assert "--help" in done.err


def test_help_names_every_verb():
    done = ok("--help")
    for verb in ("demo", "train", "evaluate", "predict", "compare", "list", "config", "tokens"):
        assert f"\n  {verb} " in done.out


def test_python_m_weft_works_and_is_quick():
    def once():
        started = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "weft", "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0
        assert "train" in done.stdout
        return time.perf_counter() - started

    # The bar is 0.6 s on a free machine; here others may be at work, so the best of three counts.
    assert min(once() for _ in range(3)) < 1.5


def test_light_verbs_never_import_torch(shared):
    code = (
        "import sys\n"
        "from weft.cli.main import main\n"
        "def run(*arguments):\n"
        "    sys.argv = ['weft', *arguments]\n"
        "    try:\n"
        "        main()\n"
        "    except SystemExit as end:\n"
        "        assert not end.code, arguments\n"
        "    assert 'torch' not in sys.modules, arguments\n"
        "run('--help')\n"
        "run('list')\n"
        "run('list', 'encoders')\n"
        "run('config', 'explain', '--recipe', 'tfidf')\n"
        "run('predict', MODEL, TEXTS)\n"
        "run('evaluate', MODEL, TEXTS, '--json')\n"
    )
    places = f"MODEL, TEXTS = {str(shared / 'tfidf')!r}, {str(shared / 'train.tsv')!r}\n"
    assert '"accuracy"' in python(places + code)


def test_importing_weft_imports_nothing_heavy():
    heavy = "{'torch', 'numpy', 'sklearn', 'typer', 'rich'} & set(sys.modules)"
    assert python(f"import sys, weft; print(sorted({heavy}))") == "[]\n"


def test_predict_skips_bad_rows_and_reports_them(shared, tmp_path):
    path = tmp_path / "texts.txt"
    path.write_bytes(b"the film was good\nthe \xff was bad\nbad\n")
    done = ok("predict", shared / "tfidf", path, "--on-bad-row", "skip")
    assert len(done.lines) == 2
    assert f"note: without an answer: 1 undecodable bytes: {path}:2" in done.err
    assert "--on-bad-row should be error or skip" in fails(
        "predict", shared / "tfidf", path, "--on-bad-row", "ignore"
    )


WITHOUT_CHECKPOINT = [
    name for name in config.recipes(None) if not config.recipe(name)["recipe"].get("pretrained")
]


@pytest.mark.parametrize("name", WITHOUT_CHECKPOINT)
def test_every_recipe_is_explained(name):
    assert "task.kind" in ok("config", "explain", "--recipe", name).out

"""A page is one file that answers as Python does and asks for nothing."""

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

import weft
from tests.fixtures import command, node, tagged_files
from tests.fixtures.exported import untrained
from weft.errors import UserError
from weft.export.page import assemble, runtime
from weft.export.page.bundle import bundle
from weft.export.page.export import export_page
from weft.export.page.support import check_config, check_export
from weft.predict.generate import generate

HERE = Path(__file__).parent
TEXTS = (
    "", " ", "a", "fine", "A fine film, finer than the fine print.", "😀 naïve café — don’t! 3.14",
    "ΟΔΟΣ İstanbul ẞ ﬁ ½ ²", "fine " * 60, "漢字かな ไทย",
    "x@y.org http://a.b 555-123-4567 10% 3rd 3:15pm",
)  # fmt: skip
SEARCHES = (
    {"method": "greedy", "max_length": 25},
    {"method": "greedy", "max_length": 9, "repetition_penalty": 1.4, "no_repeat_ngram_size": 2},
    {"method": "sample", "seed": 5, "temperature": 0.8, "max_length": 9},
    {"method": "sample", "top_k": 3, "top_p": 0.9, "max_length": 9},
    {"method": "sample", "typical_p": 0.6, "max_length": 9, "min_length": 4},
)
STRANGE = '</script><img src=x onerror="alert(1)">'


def train(recipe, folder, train_file, **changes):
    config = weft.recipe(recipe).with_values(
        {"data.train": str(train_file), **{k.replace("__", "."): v for k, v in changes.items()}},
        "test",
    )
    weft.train(config, folder, quiet=True)
    return folder


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Runs of classic models of every kind that a page runs, by name."""
    folder = tmp_path_factory.mktemp("models")
    rows = [
        f"{word} {noun} number {i}\t{label}"
        for i in range(9)
        for word, label in (("fine", "good"), ("dull", STRANGE))
        for noun in ("film", "print café")
    ]
    texts = folder / "texts.tsv"
    texts.write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    numbers = folder / "numbers.tsv"
    numbers.write_text(
        "text\tlabel\n" + "".join(f"{'fine ' * (i % 5)}film {i}\t{i % 5}.5\n" for i in range(30)),
        "utf-8",
    )
    pairs = folder / "pairs.tsv"
    pairs.write_text(
        "text\ttext_pair\tlabel\n"
        + "".join(f"a fine film {i}\ta {w} print\t{w}\n" for i in range(9) for w in ("old", "new")),
        "utf-8",
    )
    words = tagged_files.conllu(folder / "words.conllu")
    lines = folder / "lines.txt"
    lines.write_text("the fine film ends\nthe film was dull\nfine print ends\n" * 9, "utf-8")
    return {
        "tfidf": train("tfidf", folder / "tfidf", texts),
        "regression": train("tfidf", folder / "regression", numbers, task__kind="regress"),
        "pairs": train(
            "tfidf-pair", folder / "pairs", pairs, data__text="text", data__text_pair="text_pair"
        ),
        "fasttext": train(
            "fasttext", folder / "fasttext", texts, classic__min_n=2, classic__max_n=3,
            classic__epochs=3, classic__buckets=1009,
        ),
        "crf": train(
            "crf", folder / "crf", words, classic__iterations=5, classic__patterns=True,
            task__columns=["upos", "feats"],
        ),
        "kneser-ney": train("kneser-ney", folder / "kneser-ney", lines, classic__order=3),
    }  # fmt: skip


def answer_case(name, folder, page):
    """The page of a model, and what Python answers."""
    export_page(folder, page)
    model = weft.load(folder)
    inputs = [*zip(TEXTS, TEXTS[::-1], strict=True)] if model.pairs else list(TEXTS)
    if model.config["task"]["kind"] == "embed":
        answers = [
            {"value": None, "score": 0, "coverage": None, "scores": row.tolist()}
            for row in model.embed(inputs)
        ]
    else:
        answers = [
            {"value": one.value, "score": one.score, "coverage": one.coverage, "scores": one.scores}
            for one in model(inputs)
        ]
    generated = []
    if model.config["task"]["kind"] in ("language", "seq2seq"):
        for settings in SEARCHES:
            ((one,),) = generate(model, "the fine", **settings)
            generated.append({"prompt": "the fine", "settings": settings, "text": one.text})
    rows = [[one] if isinstance(one, str) else list(one) for one in inputs]
    return {
        "name": name, "page": str(page), "inputs": rows, "answers": answers, "generated": generated,
    }  # fmt: skip


@node.needs_node
def test_answers_are_those_of_python(models, tmp_path):
    cases = [answer_case(name, one, tmp_path / f"{name}.html") for name, one in models.items()]
    node.run_tests(HERE / "answers.test.mjs", {"cases": cases}, tmp_path)


@pytest.fixture(scope="module")
def networks(tmp_path_factory):
    """Small networks of every kind of answer that a page gives."""
    folder = tmp_path_factory.mktemp("networks")
    words = tagged_files.conllu(folder / "words.conllu", sentences=20)
    lines, pairs = folder / "lines.txt", folder / "pairs.tsv"
    lines.write_text("the fine film ends\nthe film was dull\nfine print ends\n" * 9, "utf-8")
    pairs.write_text("the fine film\tfilm ends fine\na dull print\tprint was dull\n" * 9, "utf-8")
    short = {
        "train__epochs": 1, "train__warmup": 0.0, "encoder__hidden": 11, "encoder__layers": 1,
        "embedder": [{"kind": "lookup", "width": 7}, {"kind": "character-cnn", "width": 5}],
    }  # fmt: skip
    return {
        "BERT": untrained(folder / "bert"),
        "words of a BERT": untrained(folder / "words", task="tag"),
        "tagger": train("tagger-bilstm-crf", folder / "tagger", words, **short),
        "parser": train("parser", folder / "parser", words, **short),
        "vectors": untrained(folder / "vectors", task="embed"),
        "lstm-lm": train(
            "lstm-lm", folder / "lstm", lines, train__epochs=2, decoder__hidden=9, decoder__width=9
        ),
        "gpt": train(
            "gpt", folder / "gpt", lines, train__epochs=2, decoder__hidden=8, decoder__heads=2,
            decoder__layers=2, decoder__max_positions=16, task__window=16, tokenizer__kind="word",
        ),
        "seq2seq-attention": train(
            "seq2seq-attention", folder / "seq2seq", pairs, train__epochs=3, encoder__hidden=8,
            decoder__hidden=8, generate__max_length=9, generate__min_length=3,
        ),
        "seq2seq-transformer": train(
            "seq2seq-transformer", folder / "transformer", pairs, train__epochs=2,
            generate__method="beam", generate__num_beams=4, generate__max_length=9,
            generate__repetition_penalty=1.2, generate__min_length=3, encoder__layers=1,
            decoder__layers=1,
        ),
    }  # fmt: skip


@node.needs_node
@pytest.mark.skipif(not runtime.cache_folder().is_dir(), reason="onnxruntime-web is not fetched")
def test_networks_answer_as_in_python(networks, tmp_path):
    cases = [answer_case(name, one, tmp_path / f"{name}.html") for name, one in networks.items()]
    script = tmp_path / "runtime.mjs"
    script.write_text(runtime.read_runtime()[0], "utf-8")
    found = {"runtime": script.as_uri(), "cases": cases}
    node.run_tests(HERE / "answers.test.mjs", found, tmp_path)


def test_network_without_its_runtime_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(UserError, match=r"Fetch it once: python -m weft\.export\.page\.runtime"):
        runtime.read_runtime()


def test_runtime_of_another_version_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "other.tgz").write_bytes(b"another package")
    with pytest.raises(UserError, match="its hash differs"):
        runtime.fetch_runtime(tmp_path / "other.tgz")
    assert not runtime.cache_folder().exists()


def test_model_that_a_page_cannot_run_is_named(tmp_path):
    with pytest.raises(UserError, match="a page has no task 'sentences'; it has classify, "):
        check_config({"task": {"kind": "sentences"}}, tmp_path)
    unknown = {"task": {"kind": "classify"}, "classic": {"kind": "mine"}}
    with pytest.raises(UserError, match="cannot run the classic model 'mine'"):
        check_config(unknown, tmp_path)
    info = {"reads": {"input_kind": "trees"}, "gives": {"kind": "logits"}}
    with pytest.raises(UserError, match="this model reads trees, and a page does not"):
        check_export(info, tmp_path)


class Page(HTMLParser):
    """The attributes of every element, and the scripts that run."""

    def __init__(self, text):
        super().__init__()
        self.elements = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))


def test_page_loads_nothing_and_runs_only_its_own_script(models, tmp_path):
    made = export_page(models["tfidf"], tmp_path / "model.html")
    text = made.path.read_text("utf-8")
    page = Page(text)
    assert not [one for one in page.elements if {"src", "href", "onclick", "style"} & set(one[1])]
    (policy,) = [
        attrs["content"]
        for _, attrs in page.elements
        if attrs.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "http" not in policy
    scripts = re.findall(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    assert [assemble.hash_source(script) in policy for script in scripts] == [True]


def test_label_of_a_stranger_is_not_markup(models, tmp_path):
    made = export_page(models["tfidf"], tmp_path / "model.html")
    text = made.path.read_text("utf-8")
    assert "&lt;/script&gt;&lt;img" in text  # in the first line, as text
    assert "<img" not in text


def test_page_is_small_and_the_same_each_time(models, tmp_path):
    first = export_page(models["tfidf"], tmp_path / "one.html")
    second = export_page(models["tfidf"], tmp_path / "two.html")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.size < 300_000 + first.model_size


def test_command_writes_a_page_and_keeps_an_existing_file(models, tmp_path):
    page = tmp_path / "model.html"
    assert f"{page}: " in command.ok("export", models["tfidf"], "--to", "page", "-o", page).err
    with pytest.raises(UserError, match=r"exists\. Pass --overwrite"):
        export_page(models["tfidf"], page)
    with pytest.raises(UserError, match="is a folder; a page is one file"):
        export_page(models["tfidf"], tmp_path)


def test_bundle_keeps_the_names_of_modules_apart(tmp_path):
    (tmp_path / "one.js").write_text("const size = 1;\nexport const one = () => size;\n")
    (tmp_path / "two.js").write_text(
        'import { one } from "./one.js";\nconst size = 2;\nexport const two = () => size + one();\n'
    )
    entry = tmp_path / "entry.js"
    entry.write_text('import { two } from "./two.js";\nglobalThis.sum = two();\n')
    script = bundle(entry)
    assert script.index("one = ()") < script.index("two = ()")
    assert "import" not in script
    assert "export" not in script


def test_colours_are_those_of_reports():
    from weft.report import html

    templates = Path(html.__file__).parent / "templates"
    palette = (templates / "palette.html").read_text("utf-8")
    style = (node.MODULES.parent / "page.css").read_text("utf-8")
    colours = re.findall(r"--\w+: #\w+;", palette)
    assert len(colours) == 36
    assert [one for one in re.findall(r"--\w+: #\w+;", style) if "against" not in one] == colours


def test_recorded_texts_can_be_left_out(models, tmp_path):
    kept = export_page(models["tfidf"], tmp_path / "kept.html").path.read_text("utf-8")
    bare = export_page(models["tfidf"], tmp_path / "bare.html", golden=False).path
    assert 'data-file="golden.jsonl"' in kept
    assert "golden.jsonl" not in re.findall(r'data-file="([^"]+)"', bare.read_text("utf-8"))


def test_record_of_the_training_stays_at_home(models, tmp_path):
    text = export_page(models["tfidf"], tmp_path / "model.html").path.read_text("utf-8")
    assert "record.json" not in re.findall(r'data-file="([^"]+)"', text)

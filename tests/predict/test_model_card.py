"""Model cards: the format of the Hub, what they say, and hostile names in them."""

import json
import re

import pytest
import yaml

import weft
from tests.fixtures import small
from weft.predict.model_card import (
    Comparison,
    escape_markdown,
    fence,
    quote_yaml,
    render_card,
    write_card,
)

huggingface_hub = pytest.importorskip("huggingface_hub")
HOSTILE = "a\n---\nevil: true\n\"'|*_`[x](http://y)<script>\\ # $\u2028\x85\x00é😀"
FIGURE = {"value": 0.5, "low": 0.25, "high": 0.75, "n": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("card")
    file = small.file(folder)
    changes = {"data.train": str(file), "data.test": str(file)}
    return weft.train("tfidf", folder / "run", changes=changes, quiet=True), folder


def parse(text):
    """The card as the library of the Hub reads it."""
    return huggingface_hub.ModelCard(text)


def test_the_front_matter_is_that_of_the_hub(run):
    result, folder = run
    card = parse((folder / "run" / "model" / "README.md").read_text("utf-8"))
    data = card.data
    assert (data.library_name, data.pipeline_tag) == ("weft", "text-classification")
    assert data.tags == ["weft", "classify"]
    found = {(e.dataset_split, e.metric_type): e.metric_value for e in data.eval_results}
    for split, figures in result.figures.items():
        for name, figure in figures.items():
            assert found[split, name] == figure.value
    named = {e.dataset_split: e.dataset_name for e in data.eval_results}
    file = small.file(folder).name
    assert named == {"dev": f"held out from {file}", "test": file}


def test_it_says_what_a_reader_needs(run):
    result, folder = run
    text = (folder / "run" / "model" / "README.md").read_text("utf-8")
    test = result.figures["test"]["accuracy"]
    assert (
        f"| test | accuracy | {test.value:.4f} | {test.low:.4f} to {test.high:.4f} | {test.n} |"
    ) in text
    record = result.record["data"]
    assert f"{record['rows']} rows" in text
    for label, count in record["labels"].items():
        assert f"| {label} | {count} |" in text
    assert sum(record["labels"].values()) == record["rows"]
    assert "Reads at most 100,000 characters" in text
    assert f"{result.predictor.parameters:,} parameters" in text
    assert f"scikit-learn {result.record['versions']['scikit-learn']}" in text.replace("\\", "")
    assert "seed = 1" in text
    assert "Latency" not in text  # it was not measured
    assert str(folder) not in text  # nobody's folders


def test_the_settings_of_the_card_train_the_same_model(run):
    _, folder = run
    text = (folder / "run" / "model" / "README.md").read_text("utf-8")
    settings = re.search(r"```toml\n(.*?)```", text, re.DOTALL)[1]
    (folder / "config.toml").write_text(settings, "utf-8")
    changes = {"data.train": str(small.file(folder)), "data.test": str(small.file(folder))}
    weft.train(folder / "config.toml", folder / "again", changes=changes, quiet=True)
    first, second = (folder / name / "model" for name in ("run", "again"))
    for name in ("weights.safetensors", "README.md"):
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_hostile_names_stay_in_their_place():
    config = {"task": {"kind": HOSTILE}, "classic": {"kind": "tfidf"}, "data": {"train": HOSTILE}}
    record = {
        "figures": {"test": {HOSTILE: FIGURE}},
        "data": {"rows": 3, "labels": {HOSTILE: 3}, "test": HOSTILE},
        "notes": [HOSTILE],
        "versions": {"weft": HOSTILE},
        "command": f"weft {HOSTILE}\n```\n# out",
        "completed": 1.0,
    }
    text = render_card(config, record, 7)
    card = parse(text)
    assert card.data.to_dict().keys() == {"library_name", "tags", "model-index"}
    assert card.data.tags == ["weft", HOSTILE]
    assert card.data.eval_results[0].metric_type == HOSTILE
    body = re.sub(r"(?ms)^(`{3,}).*?^\1$", "", card.content.split("\n---\n", 1)[1])
    assert "<script>" not in body
    assert "](http" not in body.replace("\\]", "")
    for line in body.splitlines():
        if line.startswith("| "):
            assert len(re.findall(r"(?<!\\)\|", line)) in (4, 6), line
    assert not any(line.startswith("evil") for line in text.splitlines())


@pytest.mark.parametrize("text", [HOSTILE, "", "yes", "1", "- a", "{x: y}", "\ufeff", "\U0001f600"])
def test_quoted_yaml_is_read_back(text):
    assert yaml.safe_load(quote_yaml(text)) == text
    assert "\n" not in quote_yaml(text)


def test_half_a_surrogate_pair_is_replaced():
    assert yaml.safe_load(quote_yaml("a\ud800b")) == "a\ufffdb"


def test_markdown_is_escaped():
    assert escape_markdown("a|b\n*c* <i>") == r"a\|b \*c\* &lt;i&gt;"
    assert fence("x\n````\ny").startswith("`````\n")
    assert fence("x", "sh") == "```sh\nx\n```"


def test_classes_with_few_rows_are_named():
    config = {"task": {"kind": "classify"}, "classic": {"kind": "tfidf"}}
    text = render_card(config, {"data": {"rows": 30, "labels": {"a": 25, "b": 5}}}, 7)
    assert "fewer than 10 training rows: b (5)." in text
    assert "Nothing was measured" in text


def test_a_comparison_adds_its_row_and_its_latency(run):
    _, folder = run
    model = folder / "run" / "model"
    before = (model / "README.md").read_text("utf-8")
    row = Comparison(
        2, 5, "accuracy", 0.91, 0.012, 3, ["weft", "compare", "/home/me/a b.tsv"], 0.52, 0.9,
        4321.0, "cpu",
    )  # fmt: skip
    write_card(model, row)
    text = (model / "README.md").read_text("utf-8")
    assert "Place 2 of 5 recipes by accuracy: 0.9100 ± 0.0120 over 3 runs." in text
    assert "Latency on cpu: 0.52 ms per text (median), 0.90 ms (95th percentile), 4,321" in text
    assert "/home/me" not in text
    write_card(model)
    assert (model / "README.md").read_text("utf-8") == before


def test_every_saved_model_has_a_card(run, tmp_path):
    result, _ = run
    result.predictor.save(tmp_path / "alone")
    card = parse((tmp_path / "alone" / "README.md").read_text("utf-8"))
    assert card.data.library_name == "weft"
    assert card.data.eval_results is None
    assert json.loads((tmp_path / "alone" / "model.json").read_text())["golden"] == 0

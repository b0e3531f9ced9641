"""The runtime of exports: no torch, the same answers, and errors for whatever is wrong with one."""

import json
import math
import shutil
import subprocess
import sys

import numpy as np
import onnx
import pytest

import weft
from tests.fixtures.command import command
from tests.fixtures.exported import TEXTS, check_answers, exported, untrained
from weft.errors import UserError
from weft.export.runtime.check import check_graph
from weft.export.runtime.metadata import GIVES, RANGES
from weft.export.runtime.operators import OPERATORS
from weft.export.write import export_onnx
from weft.registry import fits

WITHOUT_TORCH = """
import json, sys
sys.modules["torch"] = None
import weft
for folder in sys.argv[1:]:
    model = weft.load(folder)
    texts = ["the bank of the river", "", "money"]
    print(json.dumps([answer.value for answer in model(texts)]))
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return untrained(tmp_path_factory.mktemp("model") / "model", encoder="rnn")


@pytest.fixture(scope="module")
def export(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("export") / "export"
    export_onnx(model, folder)
    return folder


@pytest.fixture
def copy(export, tmp_path):
    return shutil.copytree(export, tmp_path / "copy")


def test_answers_vectors_and_states_are_those_of_the_model(model, tmp_path):
    before, now = exported(model, tmp_path / "export")
    check_answers(before, now)
    np.testing.assert_allclose(now.embed(TEXTS), before.embed(TEXTS), atol=1e-5)
    for a, b in zip(now.states(TEXTS[0]), before.states(TEXTS[0]), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
    assert now.parameters == before.parameters


def test_a_tagger_follows_its_rules(tmp_path):
    model = untrained(tmp_path / "model", task="tag", encoder="rnn")
    check_answers(*exported(model, tmp_path / "export"))


@pytest.mark.parametrize("embedder", ["bert", "gpt"])
def test_mixed_layers_and_subword_pooling(embedder, tmp_path):
    model = untrained(
        tmp_path / "model", task="tag", embedder=embedder, mix=True, subword_pooling="mean"
    )
    check_answers(*exported(model, tmp_path / "export"))


def test_predicts_where_torch_cannot_be_imported(model, export, tmp_path):
    tagger = untrained(tmp_path / "tagger", task="tag")
    export_onnx(tagger, tmp_path / "export")
    run = [sys.executable, "-c", WITHOUT_TORCH, str(export), str(tmp_path / "export")]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    texts = ["the bank of the river", "", "money"]
    for line, folder in zip(done.stdout.splitlines(), (model, tagger), strict=True):
        expected = [one.value for one in weft.load(folder)(texts)]
        assert json.loads(line) == json.loads(json.dumps(expected))


def test_command_line_takes_an_export_like_a_model(model, tmp_path):
    done = command("export", model, "--to", "onnx", "-o", tmp_path / "export", "--int8")
    assert done.status == 0, done.err
    assert "answers equal" in done.err
    report = json.loads((tmp_path / "export" / "parity.json").read_text())
    assert report["texts"] == report["equal"] == 2
    answer = command("predict", tmp_path / "export", "money", "--json")
    assert json.loads(answer.out)["value"] in ("no", "yes")
    (tmp_path / "a.tsv").write_text("yes\tmoney\nno\tthe river\n", "utf-8")
    scores = command("evaluate", tmp_path / "export", tmp_path / "a.tsv", "--json")
    assert json.loads(scores.out)["accuracy"]["n"] == 2


def test_int8_is_smaller(tmp_path):
    model = untrained(tmp_path / "model", encoder={"kind": "rnn", "hidden": 300})
    for name, int8 in (("whole", False), ("small", True)):
        export_onnx(model, tmp_path / name, int8=int8)
    sizes = [(tmp_path / name / "model.onnx").stat().st_size for name in ("whole", "small")]
    assert sizes[0] / sizes[1] > 3.5
    whole, small = (weft.load(tmp_path / name) for name in ("whole", "small"))
    np.testing.assert_allclose(whole.embed(TEXTS), small.embed(TEXTS), atol=0.05)


def test_nothing_is_left_behind_if_answers_disagree(model, tmp_path, monkeypatch):
    from weft.decode.heads.classify import LinearHead
    from weft.export.onnx.graph import EMITTERS

    def wrong(graph, part, vector):
        return {"logits": (-graph.run(part.score, vector), ("B", 2))}

    monkeypatch.setitem(EMITTERS, LinearHead, wrong)
    with pytest.raises(UserError, match=r"disagrees with it on .* of 2 texts.*Nothing was written"):
        export_onnx(model, tmp_path / "export")
    assert list(tmp_path.iterdir()) == []


def edit_json(path, **changes):
    saved = json.loads(path.read_text("utf-8"))
    path.write_text(json.dumps({**saved, **changes}), "utf-8")


def test_another_format_is_refused(copy):
    edit_json(copy / "export.json", format=3)
    with pytest.raises(UserError, match=r"export format 3, this Weft reads 2. Upgrade Weft"):
        weft.load(copy)


@pytest.mark.parametrize("name", ["tokenizer.json", "labels.json", "golden.jsonl", "model.onnx"])
def test_a_missing_file_is_named(copy, name):
    (copy / name).unlink()
    with pytest.raises(UserError, match=f"{name}.*(missing|[Nn]o such)"):
        weft.load(copy)


def test_a_damaged_description_is_refused(copy):
    for changes in ({"reads": {"input_kind": 7}}, {"graphs": []}, {"source": None}):
        saved = (copy / "export.json").read_text()
        edit_json(copy / "export.json", **changes)
        with pytest.raises(UserError, match=r"export\.json.*damaged"):
            weft.load(copy)
        (copy / "export.json").write_text(saved)


@pytest.mark.parametrize("name", sorted(GIVES))
@pytest.mark.parametrize("value", [None, [None], {"a": 1}, "9", 0, -1, 2**40, 1.5])
def test_wrong_types_of_what_a_graph_gives_are_refused_or_read(copy, name, value):
    saved = json.loads((copy / "export.json").read_text("utf-8"))
    edit_json(copy / "export.json", gives={**saved["gives"], name: value})
    if fits(value, GIVES[name]):
        low, high = RANGES.get(name, (-math.inf, math.inf))
        if name not in RANGES or low <= value <= high:
            return
    with pytest.raises(UserError, match=rf"export\.json: damaged .*gives\.{name} should be"):
        weft.load(copy)


def test_what_no_graph_gives_is_refused(copy):
    edit_json(copy / "export.json", gives={"kind": "logits", "stripe": 1})
    with pytest.raises(UserError, match=r"export\.json: damaged .*stripe"):
        weft.load(copy)


def test_a_damaged_graph_is_refused(copy):
    data = (copy / "model.onnx").read_bytes()
    for broken in (data[:-100], data[:200] + b"\xff" * 40 + data[240:], b""):
        (copy / "model.onnx").write_bytes(broken)
        with pytest.raises(UserError, match=r"model\.onnx.*damaged|model\.onnx: .* bytes"):
            weft.load(copy)


def test_files_that_are_links_to_elsewhere_are_only_read_as_what_they_should_be(copy, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("password")
    for name in ("model.onnx", "tokenizer.json", "labels.json", "export.json"):
        kept = (copy / name).read_bytes()
        (copy / name).unlink()
        (copy / name).symlink_to(secret)
        with pytest.raises(UserError, match=name) as error:
            weft.load(copy)
        assert "password" not in str(error.value)
        (copy / name).unlink()
        (copy / name).write_bytes(kept)


def test_changed_weights_give_other_answers(copy):
    model = onnx.load(copy / "model.onnx")
    largest = max(model.graph.initializer, key=lambda one: len(one.raw_data))
    weights = onnx.numpy_helper.to_array(largest)
    largest.raw_data = np.roll(weights, 1, axis=-1).tobytes()
    onnx.save(model, copy / "model.onnx")
    with pytest.raises(UserError, match="the answers differ from those recorded"):
        weft.load(copy)


def test_an_export_older_than_its_model_is_refused(model, tmp_path):
    own = shutil.copytree(model, tmp_path / "model")
    export_onnx(own, tmp_path / "export")
    weft.load(tmp_path / "export")
    (own / "golden.jsonl").write_text("")
    with pytest.raises(UserError, match=r"older than its model.*Export it again"):
        weft.load(tmp_path / "export")
    weft.load(tmp_path / "export", replay=False)


def hostile(change):
    """A graph as Weft writes it, changed."""
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    weight = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    vectors = [onnx.helper.make_tensor_value_info(name, 1, [3]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", vectors[:1], vectors[1:], [weight])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)])
    model.ir_version = 10
    change(model)
    return model.SerializeToString()


def store_outside(model):
    weight = model.graph.initializer[0]
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"


def add_large(model):
    shape = onnx.numpy_helper.from_array(np.array([10**9, 4]), "s")
    model.graph.initializer.append(shape)
    model.graph.node.append(onnx.helper.make_node("Expand", ["w", "s"], ["z"]))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (store_outside, "weights in another file"),
        (add_large, "makes a tensor of"),
        (lambda m: setattr(m.graph.node[0], "domain", "com.microsoft"), "another domain"),
        (lambda m: setattr(m.graph.node[0], "op_type", "Loop"), "operator 'Loop'"),
        (lambda m: setattr(m.opset_import[0], "version", 12), "operators of version 12"),
        (lambda m: m.opset_import.add(domain="evil", version=21), "the domain 'evil'"),
        (lambda m: m.graph.initializer[0].dims.append(10**6), "a weight of the shape"),
        (lambda m: m.functions.add(name="f"), "functions"),
        (lambda m: setattr(m, "ir_version", 99), "IR version 99"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_graphs_of_strangers_are_checked(tmp_path, change, reason):
    check_graph(tmp_path, hostile(lambda model: None))
    with pytest.raises(UserError, match=reason):
        check_graph(tmp_path, hostile(change))


def test_accepted_operators_are_standard():
    assert all(onnx.defs.has(name, max_inclusive_version=21) for name in OPERATORS)


def test_an_export_cannot_be_quantised_later_or_saved(export, tmp_path):
    with pytest.raises(UserError, match="export the model again with --int8"):
        weft.load(export, weights="int8")
    with pytest.raises(UserError, match="Copy its folder"):
        weft.load(export).save(tmp_path / "again")

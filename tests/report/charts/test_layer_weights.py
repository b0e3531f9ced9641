"""The layers that a model takes its vectors from: out of a model, out of a folder, on a page."""

import pytest
import torch
from safetensors.torch import save_file

from weft.errors import UserError
from weft.model import build_model
from weft.report import html
from weft.report.charts import layer_weights

SMALL = {"kind": "elmo", "width": 3, "hidden": 5, "filters": [[1, 2]], "character_width": 2}


def model():
    parts = {
        "embedder": [{"kind": "lookup", "width": 3}, SMALL], "encoder": {"kind": "none"},
        "pool": {"kind": "mean"}, "head": {"kind": "linear"},
    }  # fmt: skip
    made = build_model(parts, vocabulary_size=7, outputs=2)
    with torch.no_grad():
        made.embedders[1].mix.scores.copy_(torch.tensor([1.0, 3.0, 2.0]))
        made.embedders[1].mix.gamma.fill_(0.75)
    return made


def test_a_model_and_its_folder_say_the_same(tmp_path):
    made = model()
    (found,) = layer_weights.read_model(made)
    assert (found.name, found.gamma) == ("elmo", 0.75)
    assert found.weights == pytest.approx((0.0900, 0.6652, 0.2447), abs=1e-4)
    assert [name for name, _, _ in found.rows] == ["words", "layer 1", "layer 2"]
    assert [most for _, _, most in found.rows] == [False, True, False]
    assert made.embedders[1].mix.summary == "words 9%, layer 1 67%, layer 2 24%; times 0.75"
    save_file(made.state_dict(), tmp_path / "weights.safetensors")
    (saved,) = layer_weights.read_folders([("one", tmp_path), ("gone", tmp_path / "nowhere")])
    assert saved.name == "one"
    assert saved.weights == pytest.approx(found.weights)
    assert saved.gamma == 0.75


def test_a_network_of_blocks_is_shown_too():
    embedder = {"kind": "bert", "hidden": 6, "layers": 2, "heads": 3, "mix": True}
    parts = {"embedder": embedder, "encoder": {"kind": "none"}, "pool": {"kind": "cls"},
             "head": {"kind": "linear"}}  # fmt: skip
    (found,) = layer_weights.read_model(build_model(parts, vocabulary_size=7, outputs=2))
    assert (found.name, found.gamma) == ("bert", 1.0)
    assert found.weights == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert "bert, γ = 1.00" in html.render("layer_weights.html", mixes=[found])


def test_one_without_a_mix_has_nothing_to_show(tmp_path):
    made = model()
    made.embedders[1].mix = None
    assert layer_weights.read_model(made) == []
    assert layer_weights.read_model(None) == []
    save_file(made.state_dict(), tmp_path / "weights.safetensors")
    assert layer_weights.read_folders([("one", tmp_path)]) == []


def test_a_damaged_folder_is_named(tmp_path):
    (tmp_path / "weights.safetensors").write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"weights\.safetensors: damaged: .* Retrain it"):
        layer_weights.read_folders([("one", tmp_path)])


def test_the_section_of_a_page():
    page = html.render("layer_weights.html", mixes=layer_weights.read_model(model()))
    assert "elmo, γ = 0.75" in page
    assert page.count("<i") == 3
    assert '<i class="most" style="width:66.5%"></i><b>66.5 %</b>' in page

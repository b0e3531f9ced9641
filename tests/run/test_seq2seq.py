"""Texts answered with texts, from parallel files to BLEU."""

import copy

import pytest
import torch

import weft
from tests.fixtures.seq2seq_runs import SMALL, trained
from weft.batch import Padded
from weft.config import load as load_config
from weft.config import recipe
from weft.errors import UserError
from weft.predict import load
from weft.predict.evaluate import evaluate
from weft.text.formats.parallel import read_parallel


def test_attention_learns_to_turn_words_round(tmp_path):
    out = trained("seq2seq-attention", tmp_path)
    assert out.figures["dev"]["exact_match"].value > 0.9
    predictor = load(tmp_path / "run/model", device="cpu")
    said = predictor(["a b c", "e", ""])
    assert [one.value for one in said[:2]] == ["C B A", "E"]
    assert 0.5 < said[0].score <= 1
    assert len(said[0].scores) == 4  # three words and the end
    found = evaluate(predictor, read_parallel(tmp_path / "train.src", tmp_path / "train.tgt"))
    assert found.compute(resamples=0)["bleu"].n == 150


@pytest.mark.parametrize("name", ["seq2seq", "seq2seq-every-step", "seq2seq-transformer"])
def test_others_learn_something(tmp_path, name):
    out = trained(name, tmp_path, **{"train.epochs": 8})
    assert out.figures["dev"]["chrf"].value > 5
    (answer,) = out.predictor(["a b"])
    assert isinstance(answer.value, str)


def test_one_vocabulary_for_both_sides(tmp_path):
    out = trained("seq2seq-attention", tmp_path, **{"task.shared": True, "train.epochs": 1})
    vocabulary = out.predictor.engine.indexer.tokenizer.vocabulary
    assert {"a", "A"} <= set(vocabulary)
    assert out.predictor.space.tokenizer.vocabulary == vocabulary


@pytest.mark.parametrize(
    ("name", "factor"), [("seq2seq-attention", 1.0), ("seq2seq-transformer", 4.0)]
)
def test_one_table_for_both_sides(tmp_path, name, factor):
    changes = {"task.shared": True, "train.epochs": 1, "embedder.width": 16}
    changes |= {"embedder.shared": True, "embedder.scale_by_sqrt_dim": False}
    if name == "seq2seq-attention":
        changes["decoder.width"] = 16
    out = trained(name, tmp_path, **changes)
    texts = ["a b c", "e", "d a"]
    again = load(tmp_path / "run/model", device="cpu")
    assert [one.value for one in again(texts)] == [one.value for one in out.predictor(texts)]
    model = copy.deepcopy(again.engine.model)
    assert not [name for name in model.state_dict() if name.startswith("embedders")]
    ids = Padded(torch.tensor([[5, 7]]), torch.tensor([2]))
    with torch.no_grad():
        model.head.decoder.words.table.weight.fill_(3.0)
    assert model.embed(ids).data.eq(3 * factor).all()
    assert again.engine.model.embed(ids).data.ne(3 * factor).any()


def test_only_what_writes_has_a_table_to_share(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_text("text\tlabel\n" + "good\tyes\nbad\tno\n" * 5, "utf-8")
    changes = {"data.train": str(path), "embedder.shared": True}
    with pytest.raises(UserError, match=r"of task 'seq2seq'\), or remove embedder\.shared"):
        weft.train(recipe("bag").with_values(changes, "test"), tmp_path / "run", quiet=True)


def test_tables_have_the_target_in_their_label(tmp_path):
    path = tmp_path / "a.tsv"
    rows = [f"{word} {n}\t{word.upper()}" for word in "abcdefgh" for n in range(3)]
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    values = {**SMALL, "data.train": str(path), "data.target": None, "train.epochs": 1}
    values = {key: value for key, value in values.items() if value is not None}
    config = recipe("seq2seq-attention").with_values(values, "test")
    out = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert "H" in out.predictor.space.tokenizer.vocabulary


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"task.kind": "classify", "task.label_smoothing": None},
            "set task.kind to 'seq2seq', not",
        ),
        (
            {
                "decoder": {"kind": "gpt"},
                "decoder.width": None,
                "decoder.hidden": None,
                "decoder.dropout": None,
            },
            "decoder 'gpt' reads no source",
        ),
        ({"task.label_smoothing": 1.0}, "task.label_smoothing should be from 0 to below 1"),
        ({"generate.num_beams": 0}, "generate.num_beams"),
        ({"embedder.shared": True}, r"embedder\.shared .* set task\.shared = true"),
        ({"data.target": "de"}, r"train\.de"),
    ],
)
def test_incompatible_settings_raise_user_error(tmp_path, changes, message):
    with pytest.raises(UserError, match=message):
        trained("seq2seq-attention", tmp_path, **changes)


def test_target_longer_than_the_decoder_raises_user_error(tmp_path):
    changes = {"decoder.positions": "learned", "decoder.max_positions": 3}
    with pytest.raises(UserError, match=r"train\.src:\d+: the target has \d tokens, .* at most 3"):
        trained("seq2seq-transformer", tmp_path, **changes)


def test_file_without_targets_raises_user_error(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("one\ntwo\n", "utf-8")
    config = recipe("seq2seq").with_values({"data.train": str(path)}, "test")
    with pytest.raises(UserError, match=r"a\.txt: no text has a target\. Pass --target .*'de' for"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    (tmp_path / "a.lo.gz").write_bytes(b"")  # what stands beside it is named
    with pytest.raises(UserError, match=r"line by line \('lo', for one\), or --label"):
        weft.train(config, tmp_path / "run", quiet=True, device="cpu")


def test_a_text_without_words_has_an_answer_without_words(tmp_path):
    out = trained("seq2seq-attention", tmp_path, **{"train.epochs": 1})
    before, blank, after = out.predictor(["a b", " ", "c"])
    assert (blank.value, blank.coverage) == ("", 0.0)
    assert [before.value, after.value] == [one.value for one in out.predictor(["a b", "c"])]


def test_unk_is_never_generated(tmp_path):
    rows = ["a", "b", "c", "d"] * 20
    (tmp_path / "t.src").write_text("".join(f"{one} x\n" for one in rows), "utf-8")
    # Every target is a word that comes once: in training all of them are unknown.
    odd = "".join(f"w{i} w{i}a\n" for i in range(len(rows)))
    (tmp_path / "t.tgt").write_text(odd + "", "utf-8")
    values = {
        **SMALL, "data.train": str(tmp_path / "t.src"), "train.epochs": 3,
        "target": {"kind": "word", "min_count": 2},
    }  # fmt: skip
    (tmp_path / "t.src").write_text((tmp_path / "t.src").read_text() + "a x\n" * 4)
    (tmp_path / "t.tgt").write_text(odd + "so so\n" * 4)
    config = recipe("seq2seq-attention").with_values(values, "test")
    out = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    said = [one.value for one in out.predictor(["b x", "c x", "d x"])]
    assert not any("<unk>" in text for text in said)
    written = weft.generate(out.predictor, ["b x", "c x", "d x"])
    assert [one.text for (one,) in written] == said  # both verbs search alike


def test_a_run_goes_on_though_there_are_new_options(tmp_path):
    trained("seq2seq-attention", tmp_path, **{"train.epochs": 1})
    path = tmp_path / "run/config.toml"
    kept = path.read_text("utf-8")
    assert "word_dropout = 0.0" in kept
    path.write_text(kept.replace("word_dropout = 0.0\n", ""), "utf-8")  # as if it were older
    out = weft.train(load_config(path), tmp_path / "run", resume=True, quiet=True, device="cpu")
    assert out.figures["dev"]

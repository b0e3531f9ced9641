"""Fine-tuning: words over pieces, trees, an auxiliary language model; compared and tuned."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from tests.fixtures import small
from tests.fixtures.command import fails, ok, says
from tests.fixtures.parsed_files import bracketed
from tests.fixtures.tagged_files import conllu
from weft import config as configuration
from weft.batch import BatchLoader, LabelledBatch, Padded, TokenStore
from weft.decode.heads.auxiliary_lm import WithAuxiliaryLM
from weft.report.compare import compare
from weft.run.pretrained import load_pretrained
from weft.run.train import resolve_config
from weft.run.train import train as run
from weft.runtime import select_runtime
from weft.tasks.classify import Classify
from weft.tasks.regress import Regress
from weft.text.read import read
from weft.tokens.vocabulary import SPECIALS
from weft.train.loop import fit
from weft.train.settings import Settings
from weft.train.state import TrainState

made = pytest.importorskip("tests.fixtures.checkpoints", exc_type=ImportError)
FEW = {"train.epochs": 1, "train.batch_size": 7, "train.threads": 1}


@pytest.fixture(scope="module")
def bert(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bert")
    made.checkpoint(folder, "bert")
    return str(folder)


@pytest.fixture(scope="module")
def gpt(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gpt")
    made.checkpoint(folder, "gpt2", "LMHeadModel")
    return str(folder)


def fine(recipe, checkpoint, file="", **changes):
    """A recipe that starts from a checkpoint, with a training of seconds."""
    base = configuration.with_pretrained(configuration.recipe(recipe), checkpoint)
    given = {"data.train": str(file)} if file else {}
    return base.with_values({**FEW, **given, **changes}, "test")


def test_named_initial_weights_leave_the_pretrained_ones(bert, tmp_path):
    def weights(init):
        values = {"embedder.frozen": True, "train.init": init, "train.learning_rate": 1e-9}
        config = fine("bert", bert, small.file(tmp_path), **values)
        run = weft.train(config, tmp_path / init, quiet=True, device="cpu")
        return run.predictor.engine.model.state_dict()

    before, after = weights("default"), weights("normal")
    kept = {name for name in before if torch.equal(before[name], after[name])}
    assert {name for name in before if name.startswith("embedders.")} <= kept
    changed = after.keys() - kept
    assert "head.score.weight" in changed, changed
    assert float(after["head.score.weight"].std()) == pytest.approx(1, abs=0.4)


@pytest.mark.parametrize("head", ["tags", "crf"])
def test_a_tagger_over_pieces_of_words(bert, tmp_path, head):
    file = conllu(tmp_path / "a.conllu", 40)
    config = fine("tagger-bert", bert, file, **{
        "head.kind": head, "train.epochs": 12, "train.learning_rate": 0.01,
        "train.head_learning_rate": 0.02, "head.dropout": 0.0, "embedder.dropout": 0.0,
    })  # fmt: skip
    found = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    assert found.figures["dev"]["upos"].value > 0.9
    again = weft.load(tmp_path / "run")
    (first, *_) = read(file)
    (answer,) = again([first])
    assert answer.value == found.predictor([first])[0].value
    assert len(answer.structure.words) == 6
    # 23 positions: what is longer is read as several rows, and every word has its tag.
    long = " ".join(["The dog sees the bee ."] * 7)
    (answer,) = again([long])
    assert len(answer.structure.words) == 42
    assert answer.coverage == 1.0


def test_a_parser_over_pieces_of_words(bert, tmp_path):
    file = conllu(tmp_path / "a.conllu", 23)
    changes = {"head.arc": 11, "head.label": 7}
    config = fine("parser-bert", bert, file, **changes)
    found = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    again = weft.load(tmp_path / "run")
    (answer,) = again(["The dog sees the bee ."])
    assert answer.value == found.predictor(["The dog sees the bee ."])[0].value
    told = r"text 1: a sentence of \d+ pieces of words; the model reads at most 21 as a whole"
    with pytest.raises(weft.UserError, match=told):
        again([" ".join(["hears"] * 9)])


def test_constituents_over_pieces_of_words(bert, tmp_path):
    config = fine("constituency-bert", bert, bracketed(tmp_path / "a.mrg", 23))
    config = config.with_values({"head.hidden": 7}, "test")
    found = weft.train(config, tmp_path / "run", quiet=True, device="cpu")
    (answer,) = weft.load(tmp_path / "run")(["The dog sees the bee ."])
    assert answer.value == found.predictor(["The dog sees the bee ."])[0].value
    assert answer.value.startswith("(")


def batch(lengths, words=11):
    """Rows of random ids with garbage behind, and labels of three classes."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(words, (len(lengths), max(lengths)), generator=generator)
    source = Padded(ids, torch.tensor(lengths))
    return LabelledBatch(
        source, np.arange(len(lengths)), torch.arange(len(lengths)) % 3, len(lengths)
    )


def sections(**task):
    return {
        "task": {"kind": "classify"} | task,
        "embedder": {"kind": "gpt", "hidden": 6, "layers": 2, "heads": 3, "max_positions": 13},
        "encoder": {"kind": "none"},
        "pool": {"kind": "last"},
        "head": {"kind": "linear"},
    }


def test_loss_adds_the_weighted_auxiliary_lm_loss():
    torch.manual_seed(5)
    parts = sections(auxiliary=0.7)
    parts["embedder"] |= {"dropout": 0.0, "attention_dropout": 0.0}
    model = weft.build_model(parts, vocabulary_size=11, outputs=3).train()
    rows = batch([5, 1, 7])
    with_words = Classify(auxiliary=0.7).loss(model(rows.source), rows)
    embedder = model.embedders[0]
    states = embedder.last(rows.source)
    wanted = []
    for i, length in enumerate(rows.source.lengths.tolist()):
        scores = states[i, : length - 1] @ embedder.table.weight.T
        right = rows.source.data[i, 1:length]
        wanted.append(F.cross_entropy(scores, right) if length > 1 else scores.sum() * 0)
    answered = model(rows.source)
    assert isinstance(answered, WithAuxiliaryLM)
    torch.testing.assert_close(answered.nats(), torch.stack(wanted), rtol=0, atol=1e-5)
    plain = Classify().loss(answered.scores, rows)
    torch.testing.assert_close(with_words.total, plain.total + 0.7 * sum(wanted))
    assert with_words.count == plain.count == 3
    with_words.total.backward()
    found = embedder.table.weight.grad.clone()
    model.zero_grad()
    (Classify().loss(model(rows.source).scores, rows).total + 0.7 * sum(wanted)).backward()
    torch.testing.assert_close(found, embedder.table.weight.grad, rtol=0, atol=1e-5)
    assert torch.is_tensor(model.eval()(rows.source))  # who answers does not foretell


def test_numbers_have_an_auxiliary_loss_too():
    model = weft.build_model(sections(kind="regress", auxiliary=0.7), vocabulary_size=11, outputs=1)
    rows = batch([5, 7])
    found = model.train()(rows.source)
    wanted = Regress().loss(found.scores, rows).total + 0.7 * found.nats().sum()
    torch.testing.assert_close(Regress(auxiliary=0.7).loss(found, rows).total, wanted)


def test_zero_auxiliary_weight_changes_nothing():
    rows = batch([5, 7])
    losses = []
    for given in ({}, {"auxiliary": 0.0}):
        torch.manual_seed(5)
        model = weft.build_model(sections(**given), vocabulary_size=11, outputs=3).train()
        losses.append(Classify(**given).loss(model(rows.source), rows).total)
    assert losses[0] == losses[1]
    with pytest.raises(weft.UserError, match=r"task.auxiliary is a weight, 0 or more; got -1"):
        Classify(auxiliary=-1)


def test_foretelling_is_as_in_transformers(gpt):
    network = made.transformers.GPT2LMHeadModel.from_pretrained(gpt).eval()
    base = fine("gpt-classify", gpt, **{"embedder.dropout": 0, "embedder.attention_dropout": 0})
    full = resolve_config(base)
    size = len(made.vocabulary("gpt2"))
    assert full["embedder"]["sep"] == size - 1  # <|endoftext|>
    model = weft.build_model(full, vocabulary_size=size, outputs=3).train()
    assert load_pretrained(model, "classify")
    rows = batch([13, 7], size)
    nats = model(rows.source).nats()
    for i, length in enumerate([13, 7]):
        ids = rows.source.data[i : i + 1, :length]
        wanted = network(ids, labels=ids).loss
        torch.testing.assert_close(nats[i], wanted, rtol=0, atol=1e-4)


def test_a_gpt_learns_to_answer_and_keeps_foretelling(gpt, tmp_path):
    changes = {"train.epochs": 3, "train.learning_rate": 0.003}
    found = run(fine("gpt-classify", gpt, **changes), tmp_path, splits=small.splits(), quiet=True)
    text = "the film was good"
    again = weft.load(tmp_path)
    assert again([text])[0].scores == pytest.approx(found.predictor([text])[0].scores, abs=1e-6)
    ids = again.engine.indexer
    (row,) = ids.rows([text])
    assert row.ids[-1] == len(made.vocabulary("gpt2")) - 1
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    losses = [event["loss"] for event in map(json.loads, lines) if event["event"] == "evaluation"]
    assert losses[-1] < losses[0]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"embedder": {"kind": "lookup", "width": 6}},
            "'lookup' is not a language model",
        ),
        ({"embedder": {"kind": "bert", "hidden": 6, "heads": 3}}, "'bert' is not a language model"),
        ({"embedder.mix": True}, "the embedder 'gpt' with mix = true does not train one"),
        ({"embedder.frozen": True}, "'gpt' with frozen = true does not train one"),
        (
            {"pair": {"kind": "towers"}, "task.kind": "pair-classify"},
            "encodes each text separately",
        ),
    ],
)
def test_auxiliary_lm_needs_a_trainable_language_model(changes, message):
    parts = weft.Config(sections(auxiliary=0.5)).with_values(changes, "test").sections
    with pytest.raises(weft.UserError, match=message):
        weft.build_model(parts, vocabulary_size=len(SPECIALS) + 5, outputs=3)


def test_recipes_with_a_checkpoint_are_compared_beside_the_others(bert, tmp_path, capsys):
    data = small.file(tmp_path)
    out = tmp_path / "out"
    ok(
        "compare", data, "-o", out, "--pretrained", bert, "--recipes", "tfidf,bert",
        "--seeds", "1", "--set", "train.epochs=1", "--set", "train.learning_rate=0.001",
    )  # fmt: skip
    rows = {row["recipe"]: row for row in json.loads((out / "leaderboard.json").read_text())}
    assert rows.pop("majority")["status"] == "baseline"
    assert set(rows) == {"tfidf", "bert"}
    for row in rows.values():
        assert row["error"] is None
        assert row["p50_ms"] > 0
        assert row["size_bytes"] > 0
    assert f"--pretrained {bert}" in (out / "report.html").read_text()
    names = configuration.recipes("classify", "bert")
    assert "bert" in names
    assert not {"elmo", "gpt-classify"} & set(names)
    assert "elmo" in configuration.recipes("classify", "elmo")
    # Another checkpoint in the same folder is another comparison.
    made.checkpoint(tmp_path / "theirs", "bert", hidden_size=6)
    more = {"recipes": ["bert"], "seeds": 1, "changes": FEW, "quiet": True}
    compare([str(data)], tmp_path / "two", pretrained=str(tmp_path / "theirs"), **more)
    made.checkpoint(tmp_path / "theirs", "bert", hidden_size=6, layer_norm_eps=1e-3)
    with pytest.raises(weft.UserError, match="holds a trial with different settings or data"):
        compare([str(data)], tmp_path / "two", pretrained=str(tmp_path / "theirs"), **more)


def test_unused_checkpoint_raises_user_error(bert, tmp_path):
    data = small.file(tmp_path)
    told = fails("compare", data, "-o", tmp_path / "o", "--pretrained", bert, "--recipes", "bag")
    says(told, "no recipe starts from a checkpoint of kind 'bert': bag")
    told = fails("compare", data, "-o", tmp_path / "o", "--pretrained", tmp_path / "no")
    says(told, "no such folder")
    assert not (tmp_path / "o").exists()


def test_a_checkpoint_is_tuned(bert, tmp_path):
    pytest.importorskip("optuna")
    given = ("tune", "--recipe", "bert", "--train", small.file(tmp_path), "--pretrained", bert)
    few = (
        "--set",
        "train.epochs=1",
        "--set",
        "data.dev_fraction=0.3",
        "--seeds",
        "1",
        "--trials",
        "1",
    )
    search = ("--search", "train.learning_rate=1e-3,1e-2", "--set", "train.learning_rate=1e-3")
    done = ok(*given, "-o", tmp_path / "out", *few, *search)
    says(done.out, "The only trial")
    saved = json.loads((tmp_path / "out" / "tune.json").read_text())
    assert saved["base"]["embedder"]["model"] == bert
    assert "checkpoint" in saved["contents"]


def test_the_grid_of_the_lecture_and_what_is_usual_fit_a_checkpoint(bert):
    from weft.tune.presets import preset
    from weft.tune.space import grid, make_dimensions

    base = fine("bert", bert)
    points = grid(make_dimensions(preset("bert", base), base))
    assert len(points) == 2 * 4 * 3
    small_space = preset("small", base)
    assert "train.learning_rate" in small_space
    assert "embedder.hidden" not in small_space  # the checkpoint says it


def test_update_by_update_it_is_the_loop_of_transformers(tmp_path):
    """The same weights, batches, schedule and decay: the same losses, and the same weights then."""
    more = {"num_labels": 3, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    network, _ = made.checkpoint(tmp_path, "bert", "ForSequenceClassification", **more)
    changes = {"embedder.dropout": 0.0, "embedder.attention_dropout": 0.0, "head.dropout": 0.0}
    full = resolve_config(
        fine("bert", str(tmp_path), **{**changes, "train.batch_size": 5, "train.epochs": 3})
    )
    settings = Settings(**{**full["train"], "learning_rate": 1e-3})
    size = len(made.vocabulary("bert"))
    model = weft.build_model(full, vocabulary_size=size, outputs=3)
    assert len(load_pretrained(model, "classify")) == 2
    model.head.score.load_state_dict(network.classifier.state_dict())
    store = TokenStore()
    generator = np.random.default_rng(7)
    for i in range(17):
        store.append(generator.integers(1, size, 3 + i % 7).astype(np.int32), i % 3)
    given = {"rows": 5, "budget": 999, "seed": 1, "epochs": 3}
    batches = BatchLoader(store.close(), **given)
    ours = [
        progress.loss
        for progress in fit(
            TrainState.fresh(model, settings),
            Classify(),
            batches,
            settings,
            select_runtime("cpu", "fp32"),
        )
    ]
    decayed = [p for p in network.parameters() if p.dim() > 1]
    rest = [p for p in network.parameters() if p.dim() <= 1]
    groups = [{"params": decayed}, {"params": rest, "weight_decay": 0.0}]
    optimiser = torch.optim.AdamW(groups, lr=1e-3, weight_decay=settings.weight_decay)
    warm = settings.warmup * len(ours)
    schedule = made.transformers.get_linear_schedule_with_warmup(optimiser, warm, len(ours))
    theirs = []
    network.train()
    for one, _ in BatchLoader(store, **given):
        ids, mask = one.source.data, one.source.mask.long()
        loss = network(input_ids=ids, attention_mask=mask, labels=one.target.long()).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), settings.clip_norm)
        optimiser.step()
        schedule.step()
        optimiser.zero_grad()
        theirs.append(loss.item())
    assert len(ours) == 12
    assert ours == pytest.approx(theirs, abs=1e-5)
    assert abs(ours[0] - ours[-1]) > 0.01
    found, wanted = model.embedders[0].table.weight, network.bert.embeddings.word_embeddings.weight
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)

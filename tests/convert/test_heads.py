"""Heads of checkpoints: each gives the logits that `transformers` gives, or is refused by name."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

import weft
from tests.fixtures.checkpoints import (
    CLASSES,
    ENCODERS,
    LABELS,
    TAGS,
    TEXTS,
    TITLES,
    checkpoint,
    name_of,
    task_of,
    tokenizer,
    transformers,
    vocabulary,
)
from tests.fixtures.command import fails, ok, says, train
from tests.fixtures.small import file as small
from weft.batch import Padded
from weft.run.convert import convert, export

LOGITS = {"rtol": 0, "atol": 1e-4}
HEADED = [one for one in CLASSES if one[1] not in ("Model", "ForTokenClassification")]
GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "convert.md"


def rows(family, lengths, seconds):
    """Random ids with garbage behind them."""
    torch.manual_seed(5)
    ids = torch.randint(5, len(vocabulary(family)) - 1, (len(lengths), max(lengths)))
    return Padded(ids, torch.tensor(lengths), second=seconds)


def theirs(network, x, family):
    """The logits of each row by itself, without padding."""
    for i, length in enumerate(x.lengths.tolist()):
        more = {}
        if x.second is not None and family in ("bert", "electra"):
            more = {"token_type_ids": x.segments[i : i + 1, :length]}
        yield length, network(input_ids=x.data[i : i + 1, :length], **more)


@pytest.mark.parametrize(("family", "suffix", "more"), HEADED, ids=name_of)
def test_logits_of_every_class(tmp_path, family, suffix, more):
    network, _ = checkpoint(tmp_path / "theirs", family, suffix, **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours", task=task_of(suffix))
    model = weft.load(tmp_path / "ours").engine.model
    two = model.traits.input_kind == "pairs" or suffix == "ForPreTraining"
    x = rows(family, [7, 13, 5], torch.tensor([3, 5, 2]) if two else None)
    with torch.no_grad():
        found = model.head.decoder(x) if suffix == "LMHeadModel" else model(x)
        for i, (length, wanted) in enumerate(theirs(network, x, family)):
            if suffix in ("ForMaskedLM", "ForPreTraining"):
                place = torch.arange(length)
                words = found.words(torch.full_like(place, i), place)
                their = wanted[0][0].log_softmax(-1)
                if suffix == "ForPreTraining":
                    next_ = wanted.seq_relationship_logits[0]
                    torch.testing.assert_close(found.next_sentence_logits()[i], next_, **LOGITS)
            elif suffix == "ForQuestionAnswering":
                here = torch.isfinite(found.starts[i, 1 : length + 1])
                assert here.any()
                their = torch.stack(wanted.to_tuple())[:, 0, here]
                words = torch.stack([found.starts[i], found.ends[i]])[:, 1 : length + 1][:, here]
            elif suffix == "LMHeadModel":
                words, their = found[i, :length], wanted.logits[0]
            else:
                words, their = found[i], wanted.logits[0]
            assert words.shape == their.shape
            torch.testing.assert_close(words, their, **LOGITS)


def test_the_guide_lists_what_comes_in_and_goes_out():
    text = GUIDE.read_text("utf-8")
    table = re.search(r"\| class .*?\n\n", text, re.S)[0]
    lines = [line.split("|")[1:-1] for line in table.strip().splitlines()]
    families = [name.strip() for name in lines[0][1:-1]]
    shown = {
        (family.lower().replace("-", ""), line[0].strip().strip("`…"))
        for line in lines[2:]
        for family, cell in zip(families, line[1:-1], strict=True)
        if cell.strip() == "in, out"
    }
    assert shown == {(family, suffix) for family, suffix, _ in CLASSES}


# ---- GPT-2 that answers


def test_gpt2_answers_at_the_last_token(tmp_path):
    more = {**LABELS, "pad_token_id": len(vocabulary("gpt2")) - 1}
    network, made = checkpoint(tmp_path / "theirs", "gpt2", "ForSequenceClassification", **more)
    assert convert(str(tmp_path / "theirs"), tmp_path / "ours") == []
    predictor = weft.load(tmp_path / "ours")
    assert predictor.labels == ("cold", "warm", "hot")
    assert predictor.config["pool"]["kind"] == "last"
    made.pad_token = made.eos_token
    given = made(TEXTS, return_tensors="pt", padding=True)
    with torch.no_grad():
        wanted = network(**given).logits.softmax(1).numpy()
    found = np.array([answer.scores for answer in predictor(TEXTS)])
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
    export(tmp_path / "ours", tmp_path / "again")
    loaded = transformers.GPT2ForSequenceClassification.from_pretrained(tmp_path / "again")
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "again")
    with torch.no_grad():
        found = loaded.eval()(**again(TEXTS, return_tensors="pt", padding=True)).logits.softmax(1)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=0, atol=1e-5)


@pytest.mark.parametrize("padded", [False, True])
def test_a_mark_at_the_end_answers_unless_it_is_padding(tmp_path, padded):
    end = len(vocabulary("gpt2")) - 1
    more = {"pad_token_id": end} if padded else {}
    network, made = checkpoint(
        tmp_path / "theirs", "gpt2", "ForSequenceClassification", **LABELS, **more
    )
    from tokenizers.processors import TemplateProcessing

    mark = made.eos_token
    made.backend_tokenizer.post_processor = TemplateProcessing(
        single=f"$A {mark}", pair=f"$A {mark} $B {mark}", special_tokens=[(mark, end)]
    )
    made.save_pretrained(tmp_path / "theirs")
    given = made(TEXTS[0], return_tensors="pt")
    assert given["input_ids"][0, -1] == end
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    assert predictor.config["embedder"]["sep"] == (-1 if padded else end)
    with torch.no_grad():
        wanted = network(**given).logits[0].softmax(0).numpy()
    np.testing.assert_allclose(predictor(TEXTS[:1])[0].scores, wanted, rtol=0, atol=1e-5)


def test_two_texts_of_a_gpt2_have_a_mark_between_them(tmp_path):
    checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel")
    lines = [f"the bank {i}\ta river {i % 3}\t{'yes' if i % 2 else 'no'}\n" for i in range(31)]
    (tmp_path / "two.tsv").write_text("sentence1\tsentence2\tlabel\n" + "".join(lines), "utf-8")
    more = ("--pretrained", tmp_path / "theirs", "--set", "pool.kind=last")
    ok(*train(tmp_path / "two.tsv", tmp_path / "run", *more, recipe="bert-pair"))
    assert export(tmp_path / "run", tmp_path / "out").name == "GPT2ForSequenceClassification"
    network = transformers.GPT2ForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    convert(str(tmp_path / "out"), tmp_path / "back", task="pair-classify")
    two = ("she banked", "on it!")
    with torch.no_grad():
        wanted = network(**made(*two, return_tensors="pt")).logits[0].softmax(0).numpy()
    for name in ("run", "back"):
        (answer,) = weft.load(tmp_path / name)([two])
        np.testing.assert_allclose(answer.scores, wanted, rtol=0, atol=1e-5)
    checkpoint(tmp_path / "bare", "gpt2", "ForSequenceClassification", **LABELS)
    told = fails("convert", tmp_path / "bare", "-o", tmp_path / "no", "--task", "pair-classify")
    says(told, "no head for the task 'pair-classify'", "puts no separator between two texts")


def test_a_fine_tuned_gpt_is_a_checkpoint(tmp_path):
    """Its scores have a bias, those of transformers have none: the last norm takes it over."""
    checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel")
    more = ("--pretrained", tmp_path / "theirs", "--set", "train.learning_rate=0.05")
    ok(*train(small(tmp_path), tmp_path / "run", *more, recipe="gpt-classify"))
    predictor = weft.load(tmp_path / "run")
    assert predictor.engine.model.head.score.bias.abs().max() > 1e-3
    done = ok("export", tmp_path / "run", "--to", "huggingface", "-o", tmp_path / "out")
    says(done.err, "GPT2ForSequenceClassification saved in")
    network, told = transformers.GPT2ForSequenceClassification.from_pretrained(
        tmp_path / "out", output_loading_info=True
    )
    assert not told["missing_keys"]
    assert not told["unexpected_keys"]
    made = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert network.config.id2label == {0: "negative", 1: "positive"}
    assert made(TEXTS[0])["input_ids"][-1] == len(vocabulary("gpt2")) - 1  # where all was read
    convert(str(tmp_path / "out"), tmp_path / "back")
    for text, one, other in zip(
        TEXTS, predictor(TEXTS), weft.load(tmp_path / "back")(TEXTS), strict=True
    ):
        with torch.no_grad():
            chances = network.eval()(**made(text, return_tensors="pt")).logits[0].softmax(0)
        np.testing.assert_allclose(one.scores, chances.numpy(), rtol=0, atol=1e-5)
        np.testing.assert_allclose(one.scores, other.scores, rtol=0, atol=1e-5)


def test_other_tasks_start_from_a_gpt2_that_answers(tmp_path):
    network, _ = checkpoint(tmp_path / "theirs", "gpt2", "ForSequenceClassification", **LABELS)
    rows = "".join(f"{i / 7}\tthe bank was {'good' if i % 2 else 'bad'} {i}\n" for i in range(23))
    (tmp_path / "train.tsv").write_text(rows, "utf-8")
    more = ("--pretrained", tmp_path / "theirs", "--set", "train.learning_rate=0")
    more += ("--task", "regress", "--set", "task.auxiliary=0")
    ok(*train(tmp_path / "train.tsv", tmp_path / "run", *more, recipe="gpt-classify"))
    found = weft.load(tmp_path / "run").engine.model.embedders[0].positions.weight
    assert torch.equal(found, network.transformer.wpe.weight)
    (tmp_path / "text.txt").write_text("the bank of the river was steep\n" * 90, "utf-8")
    sets = ("--set", "task.window=11", "--set", "train.cuda_graphs=false", *more[:4])
    ok(*train(tmp_path / "text.txt", tmp_path / "words", *sets, recipe="gpt"))
    found = weft.load(tmp_path / "words").engine.model.head.decoder.positions.table
    assert torch.equal(found, network.transformer.wpe.weight)


# ---- two texts


@pytest.mark.parametrize("family", ENCODERS)
def test_a_classifier_of_pairs(tmp_path, family):
    network, made = checkpoint(tmp_path / "theirs", family, "ForSequenceClassification", **LABELS)
    convert(str(tmp_path / "theirs"), tmp_path / "ours", task="pair-classify")
    predictor = weft.load(tmp_path / "ours")
    two = ("she banked", "on it!")
    with torch.no_grad():
        wanted = network(**made(*two, return_tensors="pt")).logits[0].softmax(0).numpy()
    (answer,) = predictor([two])
    np.testing.assert_allclose(answer.scores, wanted, rtol=0, atol=1e-5)
    assert export(tmp_path / "ours", tmp_path / "again").name.endswith("ForSequenceClassification")


def test_a_score_of_pairs_and_whether_the_second_follows(tmp_path):
    network, made = checkpoint(tmp_path / "one", "bert", "ForSequenceClassification", num_labels=1)
    ok("convert", tmp_path / "one", "-o", tmp_path / "score", "--task", "pair-score")
    given = made(*TEXTS[1:3], return_tensors="pt")
    with torch.no_grad():
        wanted = float(network(**given).logits)
    (answer,) = weft.load(tmp_path / "score")([tuple(TEXTS[1:3])])
    assert answer.value == pytest.approx(wanted, abs=1e-5)
    told = fails("convert", tmp_path / "one", "-o", tmp_path / "no", "--task", "pair-classify")
    says(told, "no head for the task 'pair-classify'", "Its task is 'pair-score'.")
    network, _ = checkpoint(tmp_path / "next", "bert", "ForNextSentencePrediction")
    convert(str(tmp_path / "next"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    assert predictor.labels == ("next", "random")
    with torch.no_grad():
        wanted = network(**given).logits[0].softmax(0).numpy()
    (answer,) = predictor([tuple(TEXTS[1:3])])
    np.testing.assert_allclose(answer.scores, wanted, rtol=0, atol=1e-5)


# ---- what has no task here


@pytest.mark.parametrize(
    ("family", "suffix", "asked"),
    [
        ("electra", "ForPreTraining", "which words were replaced"),
        ("electra", "ForMultipleChoice", "which of several texts fits"),
        ("bert", "ForMultipleChoice", "which of several texts fits"),
        ("gpt2", "DoubleHeadsModel", "which of several texts goes on"),
    ],
)
def test_a_head_without_a_task_is_named_and_left_out(tmp_path, family, suffix, asked):
    checkpoint(tmp_path / "theirs", family, suffix)
    done = ok("convert", tmp_path / "theirs", "-o", tmp_path / "ours")
    name = TITLES[family] + suffix
    kept = f"note: only the encoder is kept: no task here uses the head of {name} ({asked})"
    says(done.err, kept, "left out")
    told = fails("convert", tmp_path / "theirs", "-o", tmp_path / "no", "--task", "masked")
    says(told, f"the class {name} has no head for the task 'masked'")
    assert not (tmp_path / "no").exists()


def test_the_discriminator_of_electra_is_read_as_its_encoder(tmp_path):
    network, made = checkpoint(tmp_path / "theirs", "electra", "ForPreTraining")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    states, _ = weft.load(tmp_path / "ours").states(TEXTS[0])
    with torch.no_grad():
        wanted = network.electra(**made(TEXTS[0], return_tensors="pt")).last_hidden_state[0]
    np.testing.assert_allclose(states, wanted.numpy(), rtol=0, atol=1e-5)


def test_a_gpt2_whose_head_is_not_read_says_what_to_do(tmp_path):
    checkpoint(tmp_path / "theirs", "gpt2", "ForQuestionAnswering")
    told = fails("convert", tmp_path / "theirs", "-o", tmp_path / "no")
    says(told, "config.json: the head of GPT2ForQuestionAnswering is not supported")
    says(told, "GPT2ForSequenceClassification", "GPT2Model.from_pretrained(FOLDER)")
    loaded = transformers.GPT2Model.from_pretrained(tmp_path / "theirs")
    loaded.save_pretrained(tmp_path / "other")
    tokenizer(tmp_path, "gpt2").save_pretrained(tmp_path / "other")
    ok("convert", tmp_path / "other", "-o", tmp_path / "ours")


def test_a_tagger_that_reads_other_pieces_is_not_written(tmp_path):
    checkpoint(tmp_path / "theirs", "bert", "ForTokenClassification", **TAGS)
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    path = tmp_path / "ours" / "model.json"
    text = path.read_text("utf-8").replace(
        '"subword_pooling": "first"', '"subword_pooling": "mean"'
    )
    path.write_text(text.replace('"golden": 3', '"golden": 0'), "utf-8")
    (tmp_path / "ours" / "golden.jsonl").write_text("", "utf-8")
    told = fails("export", tmp_path / "ours", "--to", "huggingface", "-o", tmp_path / "out")
    says(told, "the first subword of a word, this one the mean", "embedder.subword_pooling=first")

"""P4: the bi-RNN trained by skipping the word or by masking it, used again for other tasks."""

import pytest
import torch

import weft
from weft import config
from weft.batch import Padded
from weft.decode.decoders.language_models import mask_tokens
from weft.decode.heads.lm import MASK_ID
from weft.errors import UserError
from weft.explain.run import run_explain
from weft.model import build_model
from weft.report.pages.explain import render
from weft.run import Splits, train
from weft.text.example import Example

V, T, E, H = 11, 7, 5, 3
WEIGHTS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
SENTENCES = ["he read the book", "she read the letter", "he wrote the letter", "we sold a house"]
SMALL = {"decoder.width": 13, "decoder.hidden": 17, "decoder.dropout": 0.0, "task.window": 8,
         "tokenizer.min_count": 1, "train.batch_size": 8, "train.learning_rate": 0.02,
         "train.threads": 1, "train.patience": 0}  # fmt: skip


def language_model(by, cell="rnn"):
    torch.manual_seed(2)
    parts = {"task": {"kind": "language", "window": T},
             "decoder": {"kind": "bidirectional-lm", "by": by, "width": E, "hidden": H,
                         "cell": cell}}  # fmt: skip
    return build_model(parts, vocabulary_size=V, outputs=(V, 0, 0)).eval()


def sentence(*ids):
    return Padded(torch.tensor([ids]), torch.tensor([len(ids)]))


def elman(vectors, net, side=""):
    W, U, b, d = (getattr(net, f"{name}_l0{side}") for name in WEIGHTS)
    s, out = torch.zeros(H), []
    for x in vectors:
        s = torch.tanh(W @ x + b + U @ s + d)
        out.append(s)
    return out


def states(decoder, ids):
    """The forward state after each word, and the backward state before it."""
    vectors = decoder.words.table.weight[torch.tensor(ids)]
    skip = len(decoder.nets) == 2
    ahead = elman(vectors, decoder.nets[0].net)
    back = elman(vectors.flip(0), decoder.nets[-1].net, "" if skip else "_reverse")[::-1]
    return ahead, back


def test_skipping_predicts_each_word_from_the_state_before_and_the_state_after_it():
    decoder, ids = language_model("skip").head.decoder, [3, 8, 2, 9, 4]
    ahead, back = states(decoder, ids)
    zero, logits = torch.zeros(H), decoder(sentence(*ids))[0]
    for i in range(len(ids)):
        before = ahead[i - 1] if i else zero
        after = back[i + 1] if i + 1 < len(ids) else zero
        wanted = decoder.words.weight @ torch.cat([before, after]) + decoder.words.bias
        torch.testing.assert_close(logits[i], wanted, rtol=0, atol=1e-5)


def test_skipping_never_sees_the_word_and_masking_would_without_the_mask():
    for by, sees in (("skip", False), ("mask", True)):
        decoder = language_model(by).head.decoder
        one, other = decoder(sentence(3, 8, 2, 9, 4)), decoder(sentence(3, 8, 7, 9, 4))
        assert torch.equal(one[0, 2], other[0, 2]) is not sees, by
        assert not torch.equal(one[0, 1], other[0, 1])  # its neighbours do see it


def test_masking_predicts_the_word_from_both_states_at_the_mask():
    model, ids = language_model("mask"), [3, 8, 2, 9, 4]
    decoder = model.head.decoder
    hidden = [*ids[:2], MASK_ID, *ids[3:]]
    ahead, back = states(decoder, hidden)
    wanted = decoder.words.weight @ torch.cat([ahead[2], back[2]]) + decoder.words.bias
    output = model.run(sentence(*hidden)).scores
    found = output.words(torch.tensor([0]), torch.tensor([2]))[0]
    torch.testing.assert_close(found, wanted.log_softmax(0), rtol=0, atol=1e-5)


def test_only_masked_words_are_counted_in_the_loss():
    model = language_model("mask")
    ids = sentence(3, 8, 2, 9, 4, 1, 5)
    torch.manual_seed(4)
    total, count, _ = model.head(ids).loss(ids.data)
    torch.manual_seed(4)
    masked, chosen = mask_tokens(ids, MASK_ID, range(1, V))
    logps = model.head.decoder(masked).log_softmax(2)
    nats = -logps.gather(2, ids.data[..., None])[..., 0][chosen]
    assert count == T
    assert total.item() == pytest.approx(nats.mean().item() * T, abs=1e-5)


def text_splits():
    rows = [Example(text, file="text.txt", line=i + 1) for i, text in enumerate(SENTENCES * 10)]
    return Splits(lambda: iter(rows), lambda: iter(rows[:4]), None)


@pytest.fixture(scope="module", params=["mask", "skip"])
def pretrained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    changes = {**SMALL, "decoder.by": request.param, "train.epochs": 40}
    given = config.recipe("masked-bilstm").with_values(changes, "test")
    train(given, folder, splits=text_splits(), quiet=True)
    return request.param, folder


def test_it_fills_blanks(pretrained):
    predictor = weft.load(pretrained[1])
    texts = ["we [MASK] a house", "she read the letter", "we sold <mask> house", "we sold a [MASK]"]
    answers = predictor(texts)
    assert [answers[i].value for i in (0, 2, 3)] == ["we sold a house"] * 3
    assert answers[0].blanks[0][0][0] == "sold"
    assert len(answers[0].blanks[0]) == 5
    alone = predictor(texts[1:2])[0]
    assert answers[1].value == pytest.approx(alone.value, rel=1e-5)  # a perplexity, as ever
    assert predictor(["we [MASK] a [MASK]"])[0].value == "we sold a house"


def test_a_blank_is_explained_by_the_words_around_it(pretrained):
    by, folder = pretrained
    predictor = weft.load(folder)
    text = "we [MASK] a house"
    run = run_explain(predictor, [Example(text)])
    assert set(run.explanations) == {"integrated-gradients", "gradient-input", "occlusion"}
    assert set(run.faithfulness) == set(run.explanations)
    (one,) = run.explanations["occlusion"]
    assert one.target == one.at.predicted == "sold"
    assert (one.at.name, one.at.start) == ("blank 1", 3)
    assert dict(one.at.probs)["sold"] == pytest.approx(one.answer.blanks[0][0][1], rel=1e-5)
    weights = {text[w.start : w.end]: w.weight for w in one.words}
    assert weights.pop("[MASK]", 0) == 0
    assert set(weights) == {"we", "a", "house"}
    # Occlusion is the loss of log-probability as the word is hidden.
    tokenizer = predictor.engine.indexer.tokenizer
    (ids,) = (part.tolist() for part in tokenizer.encode_ids(["we sold a house"]))
    blank = predictor.engine.model.head.blank
    unread = MASK_ID if by == "mask" else predictor.space.unknown
    end = predictor.engine.model.head.eos
    rows = [[ids[0], blank, *ids[2:], end], [ids[0], blank, ids[2], unread, end]]
    with torch.no_grad():
        output = predictor.engine.model.run(Padded.from_rows(rows)).scores
        logps = output.words(torch.tensor([0, 1]), torch.tensor([1, 1]))[:, ids[1]]
    assert weights["house"] == pytest.approx((logps[0] - logps[1]).item(), abs=1e-5)
    assert "Most probable: “sold”" in render(run, predictor, command=["weft", "explain"])
    with pytest.raises(UserError, match="choose one of the 1 blanks by its number"):
        run_explain(predictor, [Example(text)], word="2")


def test_texts_with_and_without_blanks_are_explained_together(pretrained):
    predictor = weft.load(pretrained[1])
    texts = [Example("we [MASK] a house"), Example("she read the letter")]
    for examples in (texts, texts[::-1]):
        run = run_explain(predictor, examples)
        assert sorted(one.at.column for one in run.first) == ["token", "word"]
        assert "2 texts" in render(run, predictor, command=["weft", "explain"])


def test_a_blank_in_a_long_text_is_read_in_its_window(pretrained):
    text = "she read the letter " * 5 + "we [MASK] a house" + " she read the letter" * 5
    predictor = weft.load(pretrained[1])
    (answer,) = predictor([text])
    (window,) = predictor(["the letter we [MASK] a house she"])  # 7 words, and the end of a text
    assert answer.blanks == window.blanks
    assert answer.coverage == pytest.approx(7 / 44)


def test_the_embedder_has_the_pretrained_states(pretrained, tmp_path):
    by, folder = pretrained
    labelled = [Example(text, str(i % 2)) for i, text in enumerate(SENTENCES * 3)]
    splits = Splits(lambda: iter(labelled), lambda: iter(labelled[:4]), None)
    recipe = config.with_pretrained(config.recipe("masked-bilstm-classify"), str(folder))
    changes = {"embedder.frozen": True, "train.epochs": 2, "train.threads": 1}
    frozen = recipe.with_values(changes, "test")
    train(frozen, tmp_path, splits=splits, quiet=True)
    predictor, lm = weft.load(tmp_path), weft.load(folder)
    embedder, decoder = predictor.engine.model.embedders[0], lm.engine.model.head.decoder
    assert (predictor.config["embedder"]["kind"], predictor.config["embedder"]["by"]) == (
        "birnn",
        by,
    )
    ids = lm.engine.indexer.tokenizer.encode_ids(["he read the letter"])[0].tolist()
    found = embedder(sentence(*ids)).data[0]
    source = sentence(*ids)
    x = source.with_data(decoder.words.embed(source.data))
    if by == "mask":
        wanted = decoder.nets[0](x).data[0]
    else:
        back = decoder.nets[1](x.with_data(x.data.flip(1))).data.flip(1)
        wanted = torch.cat([decoder.nets[0](x).data, back], 2)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-5)
    torch.testing.assert_close(embedder.layer(source, 1).data[0], wanted, rtol=0, atol=1e-5)
    assert torch.equal(embedder.layer(source, 0).data, x.data)
    assert not any(p.requires_grad for p in embedder.parameters())


def test_pretrain_fine_tune_predict_save_and_load(pretrained, tmp_path):
    _, folder = pretrained
    rows = [Example(t, "act" if "read" in t or "wrote" in t else "deal") for t in SENTENCES * 6]
    splits = Splits(lambda: iter(rows), lambda: iter(rows[:8]), None)
    recipe = config.with_pretrained(config.recipe("masked-bilstm-classify"), str(folder))
    changes = {"train.epochs": 20, "train.threads": 1, "train.batch_size": 4,
               "train.learning_rate": 0.01, "train.patience": 0}  # fmt: skip
    train(recipe.with_values(changes, "test"), tmp_path / "a", splits=splits, quiet=True)
    tuned = weft.load(tmp_path / "a")
    assert [a.value for a in tuned(SENTENCES)] == ["act", "act", "act", "deal"]
    started = weft.load(folder).engine.model.head.decoder.words.table.weight
    table = tuned.engine.model.embedders[0].table.weight
    assert not torch.equal(table, started[: len(table)])  # it was tuned
    tuned.save(tmp_path / "b")
    again = weft.load(tmp_path / "b")
    assert [a.score for a in again(SENTENCES)] == [a.score for a in tuned(SENTENCES)]
    # A fine-tuned one is a start, too.
    more = config.with_pretrained(config.recipe("masked-bilstm-classify"), str(tmp_path / "a"))
    train(more.with_values({"train.epochs": 1}, "t"), tmp_path / "c", splits=splits, quiet=True)


def conllu(path):
    tags = {"he": "PRON", "she": "PRON", "we": "PRON", "the": "DET", "a": "DET"}
    lines = []
    for text in SENTENCES * 5:
        for i, word in enumerate(text.split(), 1):
            arc = f"{i - 1}\t{'dep' if i > 1 else 'root'}"
            lines.append(f"{i}\t{word}\t_\t{tags.get(word, 'X')}\t_\t_\t{arc}\t_\t_")
        lines.append("")
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_a_tagger_and_a_pair_model_start_from_it(pretrained, tmp_path):
    _, folder = pretrained
    recipe = config.with_pretrained(config.recipe("tagger-masked-bilstm"), str(folder))
    changes = {"train.epochs": 15, "train.threads": 1, "train.batch_size": 4,
               "train.learning_rate": 0.01, "train.patience": 0}  # fmt: skip
    path = conllu(tmp_path / "train.conllu")
    files = {"data.train": path, "data.dev": path}
    result = train(recipe.with_values(changes | files, "t"), tmp_path / "t", quiet=True)
    assert result.figures["dev"]["upos"].value > 0.9
    pairs = [Example(a, str(int(a == b)), other=b) for a in SENTENCES for b in SENTENCES] * 2
    splits = Splits(lambda: iter(pairs), lambda: iter(pairs[:4]), None)
    towers = config.with_pretrained(config.recipe("towers"), str(folder))
    train(towers.with_values({"train.epochs": 1}, "t"), tmp_path / "p", splits=splits, quiet=True)
    assert weft.load(tmp_path / "p")([("he read the book", "he read the book")])


def test_a_language_model_without_context_on_both_sides_is_refused(tmp_path):
    given = config.recipe("nnlm").with_values(
        {"decoder.width": 5, "decoder.hidden": 5, "task.window": 8, "train.epochs": 1}, "test"
    )
    train(given, tmp_path / "lm", splits=text_splits(), quiet=True)
    recipe = config.with_pretrained(config.recipe("masked-bilstm-classify"), str(tmp_path / "lm"))
    with pytest.raises(UserError, match="or of --recipe bert-pretrain, gpt, elmo-pretrain or mask"):
        train(recipe, tmp_path / "x", splits=text_splits(), quiet=True)

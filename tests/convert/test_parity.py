"""Every family against `transformers`: states of all layers, logits, tokenizers, answers."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import weft
from tests.fixtures.checkpoints import (
    ENCODERS,
    SIZES,
    TEXTS,
    checkpoint,
    tokenizer,
    transformers,
    vocabulary,
    write_vocabulary,
)
from weft.batch import Padded
from weft.convert import tokenizer as tokens
from weft.convert.checkpoint import Checkpoint, pretraining_head
from weft.run.convert import convert
from weft.run.pretrained import load_pretrained, open_checkpoint, resolve

CLOSE = {"rtol": 0, "atol": 1e-5}
LOGITS = {"rtol": 0, "atol": 1e-4}


def embedder(folder, family):
    """The embedder of a checkpoint with its weights, as a run makes it."""
    config = weft.Config(
        {
            "embedder": {"kind": "pretrained", "model": str(folder)},
            "encoder": {"kind": "none"},
            "pool": {"kind": "mean"},
            "head": {"kind": "linear"},
        }
    )
    parts = resolve(config).sections
    model = weft.build_model(parts, vocabulary_size=len(vocabulary(family)), outputs=2)
    load_pretrained(model, "classify")
    return model.embedders[0].eval()


def rows(family, lengths, seconds=None):
    """Random ids with garbage behind them."""
    torch.manual_seed(5)
    ids = torch.randint(5, len(vocabulary(family)), (len(lengths), max(lengths)))
    second = None if seconds is None else torch.tensor(seconds)
    return Padded(ids, torch.tensor(lengths), second=second)


def theirs(network, x, family, **more):
    return network(
        input_ids=x.data, attention_mask=x.mask.long(), output_hidden_states=True, **more
    ).hidden_states


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2"])
def test_states_of_all_layers_with_garbage_in_the_padding(tmp_path, family):
    network, _ = checkpoint(tmp_path, family)
    sizes = SIZES[family]
    # A position table of RoBERTa has two rows that are never used.
    limit = sizes.get("n_positions", sizes.get("max_position_embeddings", 0))
    limit -= 2 if family == "roberta" else 0
    x = rows(family, [7, limit, 1, 3])
    own = embedder(tmp_path, family)
    assert own.max_positions == limit
    with torch.no_grad():
        found, wanted = own.layers(x), theirs(network, x, family)
        assert len(found) == len(wanted)
        for mine, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(mine[x.mask], other[x.mask], **CLOSE)
        torch.testing.assert_close(own.last(x)[x.mask], wanted[-1][x.mask], **CLOSE)
    with pytest.raises(weft.UserError, match=rf"{limit + 1} tokens, .* at most {limit}"):
        own.last(rows(family, [limit + 1]))


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_pairs_have_segments(tmp_path, family):
    network, _ = checkpoint(tmp_path, family)
    x = rows(family, [7, 11], [3, 5])
    segments = x.segments
    assert segments[0].tolist()[:7] == [0, 0, 0, 1, 1, 1, 1]
    with torch.no_grad():
        found = embedder(tmp_path, family).last(x)
        wanted = theirs(network, x, family, token_type_ids=segments)[-1]
    torch.testing.assert_close(found[x.mask], wanted[x.mask], **CLOSE)


@pytest.mark.parametrize("family", ENCODERS)
def test_a_pair_of_texts_is_framed_as_there(tmp_path, family):
    from weft.predict.neural import make_indexer

    _, made = checkpoint(tmp_path, family)
    convert(str(tmp_path), tmp_path / "model")
    engine = weft.load(tmp_path / "model").engine
    index = make_indexer(engine.model, engine.indexer.tokenizer, 0, "head")
    (row,) = index.rows(["she banked"], others=["on it"])
    assert row.ids.tolist() == made("she banked", "on it")["input_ids"]
    (row,) = index.rows(["she banked"])
    assert row.ids.tolist() == made("she banked")["input_ids"]


@pytest.mark.parametrize("family", ENCODERS)
def test_states_and_offsets_of_a_text(tmp_path, family):
    network, made = checkpoint(tmp_path / "theirs", family)
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    for text in TEXTS:
        states, spans = predictor.states(text)
        given = made(text, return_tensors="pt", return_offsets_mapping=True)
        wanted = given.pop("offset_mapping")[0].numpy()
        with torch.no_grad():
            last = network(**given).last_hidden_state[0].numpy()
        np.testing.assert_allclose(states, last, **CLOSE)
        np.testing.assert_array_equal(spans, wanted)


def test_words_of_gpt2(tmp_path):
    network, made = checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    decoder = predictor.engine.model.head.decoder
    x = rows("gpt2", [13, 13])
    with torch.no_grad():
        torch.testing.assert_close(decoder(x), network(x.data).logits, **LOGITS)
    end = len(vocabulary("gpt2")) - 1
    assert predictor.space.size == (end + 1, end, end)
    assert predictor.space.unknown == -1
    ids = [end, *made(TEXTS[1])["input_ids"], end]
    with torch.no_grad():
        logps = network(torch.tensor([ids])).logits[0].log_softmax(-1)
    wanted = -np.mean([float(logps[i, ids[i + 1]]) for i in range(len(ids) - 1)])
    (answer,) = predictor([TEXTS[1]])
    assert answer.value == pytest.approx(np.exp(wanted), rel=1e-4)


def test_a_language_model_with_a_matrix_of_its_own_for_scores(tmp_path):
    more = {"tie_word_embeddings": False}
    network, _ = checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel", **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    x = rows("gpt2", [7])
    decoder = weft.load(tmp_path / "ours").engine.model.head.decoder
    with torch.no_grad():
        torch.testing.assert_close(decoder(x), network(x.data).logits, **LOGITS)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_heads_of_masked_words_and_next_sentences(tmp_path, family):
    """Their tensors through the equations of the papers are the logits of `transformers`."""
    suffix = "ForPreTraining" if family == "bert" else "ForMaskedLM"
    network, _ = checkpoint(tmp_path, family, suffix)
    found = Checkpoint(tmp_path)
    weights = found.weights(pretraining_head(found)).ours
    x = rows(family, [7, 5])
    own = embedder(tmp_path, family)
    with torch.no_grad():
        given = network(input_ids=x.data, attention_mask=x.mask.long())
        states = own.last(x)
        hidden = F.gelu(F.linear(states, weights["head.dense.weight"], weights["head.dense.bias"]))
        norm = [weights[f"head.norm.{p}"] for p in ("weight", "bias")]
        hidden = F.layer_norm(hidden, hidden.shape[-1:], *norm, eps=1e-12)
        words = F.linear(hidden, own.table.weight, weights["head.bias"])
        wanted = given.prediction_logits if family == "bert" else given.logits
        torch.testing.assert_close(words[x.mask], wanted[x.mask], **LOGITS)
        if family == "bert":
            dense = F.linear(states[:, 0], weights["pool.dense.weight"], weights["pool.dense.bias"])
            after = [weights[f"head.next.{p}"] for p in ("weight", "bias")]
            next_ = F.linear(dense.tanh(), *after)
            torch.testing.assert_close(next_, given.seq_relationship_logits, **LOGITS)


@pytest.mark.parametrize("family", ENCODERS)
def test_a_trained_classifier_answers_at_once(tmp_path, family):
    names = {0: "cold", 1: "warm", 2: "hot"}
    more = {"id2label": names, "label2id": {n: i for i, n in names.items()}}
    network, made = checkpoint(tmp_path / "theirs", family, "ForSequenceClassification", **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    assert predictor.labels == ("cold", "warm", "hot")
    for text, answer in zip(TEXTS, predictor(TEXTS), strict=True):
        with torch.no_grad():
            chances = network(**made(text, return_tensors="pt")).logits[0].softmax(0)
        np.testing.assert_allclose(answer.scores, chances.numpy(), **CLOSE)
        assert answer.value == names[int(chances.argmax())]


def test_one_label_is_a_number_and_several_are_a_set(tmp_path):
    network, made = checkpoint(tmp_path / "one", "bert", "ForSequenceClassification", num_labels=1)
    convert(str(tmp_path / "one"), tmp_path / "number")
    with torch.no_grad():
        wanted = float(network(**made(TEXTS[0], return_tensors="pt")).logits)
    (answer,) = weft.load(tmp_path / "number")(TEXTS[:1])
    assert answer.value == pytest.approx(wanted, abs=1e-5)
    more = {"num_labels": 5, "problem_type": "multi_label_classification"}
    network, made = checkpoint(tmp_path / "more", "bert", "ForSequenceClassification", **more)
    convert(str(tmp_path / "more"), tmp_path / "set")
    with torch.no_grad():
        chances = network(**made(TEXTS[0], return_tensors="pt")).logits[0].sigmoid()
    (answer,) = weft.load(tmp_path / "set")(TEXTS[:1])
    np.testing.assert_allclose(answer.scores, chances.numpy(), **CLOSE)


@pytest.mark.parametrize("family", [*ENCODERS, "gpt2"])
def test_a_trained_tagger_answers_at_the_first_piece_of_a_word(tmp_path, family):
    tags = ["O", "B-PER", "I-PER"]
    more = {"id2label": dict(enumerate(tags)), "label2id": {t: i for i, t in enumerate(tags)}}
    network, made = checkpoint(tmp_path / "theirs", family, "ForTokenClassification", **more)
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    assert predictor.config["task"]["scheme"] == "IOB2"
    words = ("She", "banked", "on", "it")
    (answer,) = predictor([weft.Example(" ".join(words), words=words, places=_places(words))])
    if family in ("roberta", "gpt2"):
        made = type(made)(vocab=made.get_vocab(), merges=_merges(), add_prefix_space=True)
    given = made(list(words), is_split_into_words=True, return_tensors="pt")
    first = [given.word_ids().index(i) for i in range(len(words))]
    with torch.no_grad():
        chances = network(**given).logits[0].softmax(-1)[first]
    np.testing.assert_allclose(answer.scores, chances.max(-1).values.numpy(), **CLOSE)


def _merges():
    from tests.fixtures.checkpoints import MERGES

    return [tuple(merge.split()) for merge in MERGES]


def _places(words):
    places, start = [], 0
    for word in words:
        places.append((start, start + len(word)))
        start += len(word) + 1
    return tuple(places)


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2"])
def test_vocabulary_files_cut_as_transformers_does(tmp_path, family):
    write_vocabulary(tmp_path, family)
    own, made = tokens.read(tmp_path, family), tokenizer(tmp_path, family)
    texts = [*TEXTS, "Ärger über  Café\n№ 5 ", "北京 was it", "I'm she'll 10,000.5", "", "a" * 120]
    for ids, text in zip(own.encode_ids(texts), texts, strict=True):
        wanted = made(text, add_special_tokens=False)["input_ids"]
        assert ids.tolist() == wanted, text
    assert own.vocabulary == tuple(vocabulary(family))


def test_the_case_of_a_vocabulary_is_that_of_its_settings(tmp_path):
    write_vocabulary(tmp_path, "bert")
    (tmp_path / "tokenizer_config.json").write_text('{"do_lower_case": false}', "utf-8")
    made = transformers.BertTokenizer(vocab=vocabulary("bert"), do_lower_case=False)
    own = tokens.read(tmp_path, "bert")
    for text in ("The bank", "the Café"):
        assert (
            own.encode_ids([text])[0].tolist() == made(text, add_special_tokens=False)["input_ids"]
        )


def test_a_pretrained_embedder_reads_gpt2_from_both_sides(tmp_path):
    """The same network from the hub's layout and from our language model."""
    checkpoint(tmp_path / "theirs", "gpt2", "LMHeadModel")
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    first, second = (embedder(tmp_path / name, "gpt2") for name in ("theirs", "ours"))
    assert first.state_dict().keys() == second.state_dict().keys()
    for name, tensor in first.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])
    assert open_checkpoint(str(tmp_path / "ours")).decoder["kind"] == "gpt"


def test_answer_spans(tmp_path):
    network, made = checkpoint(
        tmp_path / "theirs", "bert", "ForQuestionAnswering", max_position_embeddings=47
    )
    convert(str(tmp_path / "theirs"), tmp_path / "ours")
    predictor = weft.load(tmp_path / "ours")
    question, passage = "is it money?", "The bank of the river was steep."
    given = made(question, passage, return_tensors="pt", return_offsets_mapping=True)
    places = given.pop("offset_mapping")[0].tolist()
    second = given["token_type_ids"][0].bool().tolist()
    inside = [i for i, own in enumerate(second) if own and places[i][1]]
    with torch.no_grad():
        found = network(**given)
    starts, ends = found.start_logits[0].tolist(), found.end_logits[0].tolist()
    spans = [(starts[i] + ends[j], i, j) for i in inside for j in inside if j >= i]
    _, first, last = max(spans)
    (answer,) = predictor([(question, passage)])
    assert answer.value == passage[places[first][0] : places[last][1]]


def test_hidden_words_are_filled_in_as_there(tmp_path):
    """`--task masked` keeps the head; without it the note names what was left out."""
    network, made = checkpoint(tmp_path / "theirs", "bert", "ForPreTraining")
    assert "cls.predictions.bias" in convert(str(tmp_path / "theirs"), tmp_path / "plain")[0]
    assert convert(str(tmp_path / "theirs"), tmp_path / "ours", task="masked") == []
    predictor = weft.load(tmp_path / "ours")
    x = rows("bert", [7, 5])
    model = predictor.engine.model
    with torch.no_grad():
        given = network(input_ids=x.data, attention_mask=x.mask.long())
        scored = model(x)
        places = x.mask.nonzero()
        words = scored.words(places[:, 0], places[:, 1])
        wanted = given.prediction_logits[x.mask].log_softmax(-1)
        torch.testing.assert_close(words, wanted, **LOGITS)
        torch.testing.assert_close(
            scored.next_sentence_logits(), given.seq_relationship_logits, **LOGITS
        )
    (answer,) = predictor(["the bank of [MASK] river"])
    ids = made("the bank of [MASK] river", return_tensors="pt")
    with torch.no_grad():
        best = int(network(**ids).prediction_logits[0, 4].argmax())
    assert list(vocabulary("bert"))[best].removeprefix("##") in answer.value
    checkpoint(tmp_path / "bare", "bert")
    with pytest.raises(weft.UserError, match=r"BertModel has no head for the task 'masked'"):
        convert(str(tmp_path / "bare"), tmp_path / "no", task="masked")

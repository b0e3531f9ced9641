"""The same files in gensim and fastText, both ways; runs where those are installed."""

import random

import numpy as np
import pytest

from weft.vectors.store import Vectors

UNHEARD = ["xyz", "zzzaé日", "日本語", "q", "naïve" * 5]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijé日ßñ", k=chance.randint(1, 9))) for _ in range(300)]
    lines = [" ".join(chance.choices(words, k=20)) for _ in range(300)]
    place = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    place.write_text("\n".join(lines) + "\n", "utf-8")
    return place


@pytest.mark.parametrize(
    "settings",
    [
        {"model": "skipgram", "bucket": 5003},
        {"model": "cbow", "minn": 2, "maxn": 4, "bucket": 997},
        {"model": "skipgram", "minn": 0, "maxn": 0},
    ],
    ids=["skipgram", "cbow", "words"],
)
def test_fasttexts_model_both_ways(corpus, tmp_path, settings):
    fasttext = pytest.importorskip("fasttext")
    # Below 10 threads fastText 0.9 leaves most of its input matrix unset.
    model = fasttext.train_unsupervised(
        str(corpus), dim=7, epoch=1, minCount=1, thread=12, verbose=0, **settings
    )
    model.save_model(str(tmp_path / "theirs.bin"))
    ours = Vectors.load(tmp_path / "theirs.bin")
    assert list(ours.words) == model.get_words()
    theirs = np.stack([model.get_word_vector(word) for word in ours.words])
    np.testing.assert_allclose(ours.matrix, theirs, atol=1e-6)
    np.testing.assert_allclose(np.stack([ours[w] for w in ours.words]), theirs, atol=1e-6)
    for via in ("ours.bin", "v.npz", "v.safetensors"):
        ours.save(tmp_path / via)
        Vectors.load(tmp_path / via).save(tmp_path / "again.bin")
        assert (tmp_path / "again.bin").read_bytes() == (tmp_path / "theirs.bin").read_bytes()
    back = fasttext.load_model(str(tmp_path / "ours.bin"))
    for word in UNHEARD if ours.subwords else []:
        np.testing.assert_allclose(ours[word], model.get_word_vector(word), atol=1e-6)
        np.testing.assert_array_equal(back.get_word_vector(word), model.get_word_vector(word))
    line = f"{ours.words[1]} {ours.words[5]} xyz"
    if ours.subwords:
        expected = model.get_sentence_vector(line)
        np.testing.assert_allclose(ours.sentence(line.split()), expected, atol=1e-6)


def test_fasttexts_quantised_model_is_refused(corpus, tmp_path):
    fasttext = pytest.importorskip("fasttext")
    labelled = tmp_path / "labelled.txt"
    lines = corpus.read_text("utf-8").splitlines()
    labelled.write_text("".join(f"__label__{'ab'[i % 2]} {t}\n" for i, t in enumerate(lines)))
    model = fasttext.train_supervised(
        str(labelled), dim=5, epoch=1, minn=2, maxn=3, bucket=1009, verbose=0, thread=12
    )
    model.save_model(str(tmp_path / "classifier.bin"))
    ours = Vectors.load(tmp_path / "classifier.bin")
    theirs = np.stack([model.get_word_vector(word) for word in ours.words])
    np.testing.assert_allclose(ours.matrix, theirs, atol=1e-6)
    model.quantize(input=str(labelled), retrain=False)
    model.save_model(str(tmp_path / "q.ftz"))
    with pytest.raises(ValueError, match=r"quantised fastText model \(\.ftz\)"):
        Vectors.load(tmp_path / "q.ftz")


def test_gensims_word2vec_files_both_ways(corpus, tmp_path):
    models = pytest.importorskip("gensim.models")
    trained = models.Word2Vec(corpus_file=str(corpus), vector_size=11, min_count=1, epochs=1)
    for name in ("g.txt", "g.bin", "g.txt.gz", "g.bin.gz"):
        trained.wv.save_word2vec_format(str(tmp_path / name), binary=".bin" in name)
        ours = Vectors.load(tmp_path / name)
        assert list(ours.words) == trained.wv.index_to_key
        np.testing.assert_array_equal(ours.matrix, trained.wv.vectors)
    for name in ("o.txt", "o.bin", "o.glove.txt"):
        ours.save(tmp_path / name)
        theirs = models.KeyedVectors.load_word2vec_format(
            str(tmp_path / name), binary=name == "o.bin", no_header="glove" in name
        )
        assert theirs.index_to_key == list(ours.words)
        np.testing.assert_array_equal(theirs.vectors, ours.matrix)


def test_gensims_fasttext_both_ways(corpus, tmp_path):
    theirs = pytest.importorskip("gensim.models.fasttext")
    trained = theirs.FastText(
        corpus_file=str(corpus), vector_size=7, min_count=1, epochs=1, bucket=2003
    )
    theirs.save_facebook_model(trained, str(tmp_path / "g.bin"))
    ours = Vectors.load(tmp_path / "g.bin")
    for word in [*ours.words, *UNHEARD]:
        np.testing.assert_allclose(ours[word], trained.wv[word], atol=1e-5)
    ours.save(tmp_path / "o.bin")
    assert (tmp_path / "o.bin").read_bytes() == (tmp_path / "g.bin").read_bytes()
    again = theirs.load_facebook_model(str(tmp_path / "o.bin"))
    for word in [*ours.words, *UNHEARD]:
        np.testing.assert_allclose(again.wv[word], trained.wv[word], atol=1e-5)


def test_gensims_answers(corpus):
    models = pytest.importorskip("gensim.models")
    theirs = models.Word2Vec(corpus_file=str(corpus), vector_size=11, min_count=1, epochs=1).wv
    ours = Vectors(theirs.index_to_key, theirs.vectors)
    a, b, c = ours.words[3], ours.words[5], ours.words[8]
    pairs = [
        (ours.neighbours(a, 10), theirs.most_similar(a, topn=10)),
        (ours.neighbours([a, b], 10), theirs.most_similar([a, b], topn=10)),
        (ours.analogy(a, b, c, 10), theirs.most_similar([b, c], [a], topn=10)),
    ]
    for found, expected in pairs:
        assert [word for word, _ in found] == [word for word, _ in expected]
        np.testing.assert_allclose([s for _, s in found], [s for _, s in expected], atol=1e-5)
    # gensim's ε is a thousandth of the paper's, so only the order is comparable.
    found, expected = ours.analogy(a, b, c, 9, "multiply"), theirs.most_similar_cosmul([b, c], [a])
    assert [word for word, _ in found] == [word for word, _ in expected[:9]]
    assert ours.odd([a, b, c]) == theirs.doesnt_match([a, b, c])

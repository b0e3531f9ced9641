"""The tables of coreference, speech, captions and annotation, from lines of their scripts."""

from tests.fixtures.bench_tables import HEAD, row

METRICS = ("muc_f1", "b_cubed_f1", "ceaf_e_f1", "lea_f1", "mention_f1")


def trial(seed, conll, variant="recipe", part="test", **more):
    values = {f"{part}_{name}": 41.0 + i for i, name in enumerate(METRICS)}
    return {
        "question": "coreference trial", "data": "litbank", "recipe": "coref-bilstm",
        "variant": variant, "seed": seed, "dev_conll": 57.0, f"{part}_conll": conll, **values,
        "seconds": 130.0, **more,
    }  # fmt: skip


def test_coreference(written):
    tried = {**trial(1, 0.0, "tried"), "dev_conll": 59.0}
    tried = {key: value for key, value in tried.items() if not key.startswith("test")}
    page = written(one=[HEAD, trial(1, 49.0), trial(2, 53.0), tried])
    assert row(page, "LitBank, ten folds", "coref-bilstm") == [
        "LitBank, ten folds", "coref-bilstm", "51.00 ± 2.83", "≥ 50 ✓", "41.00", "42.00", "43.00",
        "44.00", "45.00", "57.00 ± 0.00", "2", "130",
    ]  # fmt: skip
    assert row(page, "LitBank, ten folds", "coref-bilstm, tried")[2:] == ["59.00", "1", "130"]


def test_speech(written):
    common = {"recipe": "ctc-speech", "seed": 1, "cer": 0.1, "dev_accuracy": 0.99, "seconds": 7.0}
    lines = [
        {"question": "speech, speakers", "speaker": "ann", "wer": 0.21, "accuracy": 0.79, "n": 500},
        {"question": "speech, strings", "wer": 0.05, "accuracy": 0.9, "n": 1201},
        {"question": "speech, takes", "wer": 0.01, "accuracy": 0.99, "n": 300},
    ]
    page = written(one=[HEAD, *({**common, **line} for line in lines)])
    assert row(page, "speaker left out", "ann")[3:6] == ["79.0", "21.0", "≥ 80 ✗"]
    assert row(page, "3 to 5 digits")[4:6] == ["5.0", "< 6 ✓"]
    assert row(page, "takes 0–4")[3:6] == ["99.0", "1.0", "≥ 97 ✓"]


def test_captions(written):
    line = {
        "question": "captions", "recipe": "caption", "seed": 1, "changes": "{}", "part": "test",
        "exact": 0.957, "n": 500, "exact_new": 0.93, "n_new": 217, "attention": 0.78,
        "words": 3201, "attention_size": 0.5, "attention_colour": 0.9, "attention_shape": 0.94,
        "chance": 0.11, "seconds": 107.0,
    }  # fmt: skip
    page = written(one=[HEAD, line])
    assert row(page, "caption")[2:8] == [
        "95.7", "≥ 95 ✓", "93.0", "78.0", "≥ 80 ✗", "50.0 / 90.0 / 94.0",
    ]  # fmt: skip


def test_annotation(written):
    score = {"question": "annotation accuracy", "system": "parser", "sentences": 2077}
    speed = {"question": "words annotated per second", "system": "all layers", "threads": 2}
    layer = {"question": "words per second of a layer", "model": "chains", "threads": 2}
    about = {"sentences": 10_000, "repeat": 0}
    lines = [
        {**score, "upos": 95.0, "xpos": 94.0, "uas": 88.0, "las": 85.0},
        {**speed, **about, "per_second": 1501, "cpu": 803},
        {**speed, **about, "per_second": 1301, "cpu": 703},
        {**layer, **about, "per_second": 5101},
    ]
    page = written(one=[HEAD, *lines])
    assert row(page, "parser") == ["parser", "95.00", "94.00", "88.00", "85.00", "2,077"]
    assert row(page, "all layers", "2") == [
        "all layers", "2", "1,401 [1,301, 1,501]", "753 [703, 803]", "10,000", "2",
    ]  # fmt: skip
    assert row(page, "chains")[2:4] == ["5,101 [5,101, 5,101]", "–"]

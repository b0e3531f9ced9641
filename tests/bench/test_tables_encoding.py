"""The tables of encoders' speed, made from lines as bench/encoding.py writes them."""

from tests.fixtures.bench_tables import row, spread


def reader(name: str, rate: float, least: float) -> dict:
    near = {"least": least, "mean": 0.99999}
    return {
        "question": f"encoding: {name}", "sentences_per_second": spread(rate), "cosine": near
    }  # fmt: skip


def times(what: str, ratio: float) -> dict:
    return {"question": what, "ratio": spread(ratio, 0.01)}


def test_reading(written):
    lines = [
        reader("weft", 331.0, 0.99998),
        reader("weft int8", 701.0, 0.991),
        reader("sentence-transformers", 211.0, 1.0),
        reader("ctranslate2", 311.0, 1.0),
        times("encoding: weft, times sentence-transformers", 1.57),
        times("encoding: weft int8, times sentence-transformers", 3.3),
        times("encoding: weft, times ctranslate2", 0.91),
    ]
    page = written(one=lines)
    assert row(page, "Weft")[1:5] == ["331.0 [330.5, 331.5]", "0.99998", "0.99999", "≥ 0.9999 ✓"]
    assert row(page, "Weft, int8")[4] == "≥ 0.995 ✗"
    peer = row(page, "sentence-transformers")
    assert peer[4:] == [
        "–", "1.57× [1.56, 1.58]", "≥ 1.3 ✓", "3.30× [3.29, 3.31]", "–", "5",
    ]  # fmt: skip
    assert row(page, "CTranslate2")[6] == "≥ 0.95 ✗"


def test_learning(written):
    def loop(name: str, rate: float) -> dict:
        question = f"fine-tuning: {name}"
        return {"question": question, "sentences_per_second": spread(rate), "loss": 0.43}

    ratio = times("fine-tuning: weft, times transformers", 1.19)
    page = written(one=[loop("weft", 23.0), loop("transformers", 19.0), ratio])
    assert row(page, "Weft")[1:4] == ["23.0 [22.5, 23.5]", "0.430", "–"]
    assert row(page, "transformers, plain loop")[3:5] == ["1.19× [1.18, 1.20]", "≥ 1.2 ✗"]

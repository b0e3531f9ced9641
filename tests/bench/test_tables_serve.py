"""The tables of `weft serve`."""

from tests.fixtures.bench_tables import row, spread


def test_ratios_have_the_bar_of_their_peer(written):
    lines = [
        {"question": "serve ratio", "model": "tfidf", "system": "weft tfidf",
         "to": "fastapi-sklearn", "times": spread(2.5)},
        {"question": "serve ratio", "model": "tfidf", "system": "weft tfidf",
         "to": "litserve-sklearn", "times": spread(2.5)},
        {"question": "serve ratio", "model": "minilm, int8", "system": "weft int8",
         "to": "fastapi-transformers", "times": spread(5.1)},
    ]  # fmt: skip
    page = written(one=lines)
    assert row(page, "tfidf", "fastapi-sklearn")[2:4] == ["2.50× [2.00, 3.00]", "≥ 2 ✓"]
    assert row(page, "tfidf", "litserve-sklearn")[3] == "≥ 3 ✗"
    assert row(page, "minilm, int8")[3] == "≥ 5 ✓"


def test_overload_shows_what_is_missed(written):
    line = {
        "question": "serve overload", "model": "minilm", "offered_per_second": 1500.0,
        "seconds": 30.0, "statuses": {"200": 4000, "503": 9000}, "goodput": 0.89, "p99_ms": 2001,
        "deadline_ms": 2000, "recovery_seconds": 0.4, "rss_grown_mb": 20.0, "peak_grown_mb": 61.2,
    }  # fmt: skip
    cells = row(written(one=[line]), "minilm")
    assert cells[2] == "4,000 × 200, 9,000 × 503 ✓"
    assert cells[4:6] == ["≥ 0.9 ✗", "2,001 of 2,000 ✗"]
    assert cells[-3:] == ["+20", "+61", "< 50 ✗"]
    line["statuses"]["0"] = 1
    assert row(written(one=[line]), "minilm")[2].endswith("✗")


def test_endurance_is_judged_by_the_most_memory(written):
    line = {
        "question": "serve endurance", "model": "tfidf", "requests": 1_000_000,
        "statuses": {"200": 1_000_000}, "per_second": 4000.0, "rss_mb": 130.0,
        "rss_grown_mb": [3.0, 51.0, 9.0],
    }  # fmt: skip
    cells = row(written(one=[line]), "tfidf")
    assert cells[1:3] == ["1,000,000", "1,000,000 × 200 ✓"]
    assert cells[-1] == "< 50 ✗"

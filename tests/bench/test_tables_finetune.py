"""The tables of fine-tuned networks, made from lines as the script writes them."""

import pytest

from tests.fixtures.bench_tables import BENCH, HEAD, row


def trial(data="trec", system="weft", start="pretrained", examples=0, seed=1, value=90.0, **more):
    figure = "matthews" if data == "cola" else "accuracy"
    found = {f"dev_{figure}": 50.0, f"test_{figure}": value, "n": 107, "seconds": 12.0}
    given = {"variant": "recipe", "collapsed": "", **more}
    named = {"data": data, "system": system, "start": start, "examples": examples, "seed": seed}
    return {"question": "fine-tuning trial", **named, **found, **given}


def test_weft_beside_transformers(written):
    lines = [trial(seed=s, value=v) for s, v in ((1, 96.5), (2, 97.5))]
    lines += [trial(system="transformers", seed=s, value=v) for s, v in ((1, 96.0), (2, 97.6))]
    lines += [trial(start="scratch", value=80.0), {**trial(data="cola", value=40.0)}]
    lines += [{"question": "fine-tuning trial", "data": "rte", "error": "no"}]
    page = written(fine=[HEAD, *lines])
    found = row(page, "TREC-6", "accuracy")
    assert found[2:4] == ["97.00 ± 0.71", "96.80 ± 1.13"]
    assert found[4].startswith("+0.20 [-4.")
    assert found[4].endswith("within noise")
    assert found[5:] == ["80.00", "≥ 96 ✓", "2", "12 ± 0 / 12 ± 0"]
    assert row(page, "CoLA", "matthews")[2:7] == ["40.00", "–", "–", "–", "–"]


def test_curves_and_restarts(written):
    lines = []
    for examples, ours, theirs in ((1000, 90.0, 84.0), (100, 70.0, 66.0)):
        for seed in (1, 2):
            lines.append(trial(examples=examples, seed=seed, value=ours + seed))
            lines.append(trial(examples=examples, start="scratch", seed=seed, value=theirs + seed))
    lines += [
        trial("rte", seed=s, value=50.0 if s in (3, 7) else 60.0 + s / 10,
              collapsed="x" if s in (3, 7) else "")
        for s in range(1, 11)
    ]  # fmt: skip
    page = written(fine=[HEAD, *lines])
    assert row(page, "TREC-6", "1,000")[3:5] == ["91.50 ± 0.71", "85.50 ± 0.71"]
    assert row(page, "TREC-6", "1,000")[6] == "≥ 5 ✓"
    assert row(page, "TREC-6", "100")[5].startswith("+4.00 [")
    assert row(page, "TREC-6", "100")[6] == "–"
    found = row(page, "RTE", "weft, pretrained")
    assert found[3:] == ["60.56 ± 0.32", "50.0 – 61.0", "2 of 10 (seeds 3, 7)"]


def test_the_interval_is_that_of_scipy(monkeypatch):
    stats = pytest.importorskip("scipy.stats")
    monkeypatch.syspath_prepend(str(BENCH))
    import tables_finetune

    ours, theirs = [3.0, 5.0, 4.5, 7.0], [1.0, 2.0, 4.0]
    low, high = stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert tables_finetune.welch(ours, theirs) == pytest.approx((high - low) / 2)

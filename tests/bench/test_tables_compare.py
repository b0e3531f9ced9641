"""The tables of comparing and checking, made from lines as the scripts write them."""

from tests.fixtures.bench_tables import row


def joined(data: str, metric: str, scale: float, gain: list[float] | None) -> dict:
    return {
        "question": "ensembles", "data": data, "recipe": "cnn", "metric": metric, "n": 3,
        "texts": 1300, "single": 0.7 * scale, "sd": 0.01 * scale,
        "singles": [0.69 * scale, 0.7 * scale, 0.71 * scale], "ensemble": 0.75 * scale,
        "gain": gain, "parameters": 7, "load_seconds": 0.5, "test_seconds": 1.1,
        "aopc_gain": {"occlusion": 0.1234},
    }  # fmt: skip


def test_balanced_classes_have_their_gain_over_none(written):
    line = {
        "question": "imbalance", "data": "trec50", "recipe": "cnn", "n": 5, "train": 4907,
        "classes": 50, "largest": 870, "smallest": 4, "sd": 0.012, "accuracy": 0.8012,
        "seconds": 3.0, "dev_macro_f1": 0.6,
    }  # fmt: skip
    page = written(
        imbalance=[
            {**line, "balance": "none", "macro_f1": 0.5, "chosen": False},
            {**line, "balance": "weights", "macro_f1": 0.55, "chosen": True,
             "gain": [0.05, 0.01, 0.09]},
            {"question": "imbalance run", "data": "trec50", "error": "RuntimeError()"},
        ]
    )  # fmt: skip
    assert "| none | 50.0 ± 1.2 | – | 80.1 | 5 |" in page
    assert "50 (870:4) | cnn | weights, chosen on dev | 55.0 ± 1.2 | +5.00 [+1.00, +9.00]" in page


def test_one_model_of_intents_and_slots_has_its_bar(written):
    def metric(joint, separate, gain):
        return {"joint": joint, "separate": separate, "joint_sd": 0.1, "separate_sd": 0.1,
                "gain": gain}  # fmt: skip

    line = {
        "question": "joint", "n": 3, "sentences": 400,
        "test_seconds": {"joint": 0.5, "intent": 0.4, "slots": 0.45},
        "intent_accuracy": metric(95.0, 95.2, [-0.2, -0.9, 0.5]),
        "exact_match": metric(92.0, 91.0, [1.0, 0.2, 1.8]), "parameters": {},
    }  # fmt: skip
    page = written(
        joint=[
            {**line, "data": "good", "slot_f1": metric(96.1, 96.0, [0.1, -0.5, 0.7])},
            {**line, "data": "bad", "slot_f1": metric(95.0, 96.0, [-1.0, -1.5, -0.5])},
        ]
    )
    good, bad = (next(x for x in page.splitlines() if f"| {n} |" in x) for n in ("good", "bad"))
    assert "95.0 / 95.2, -0.20 [-0.90, +0.50]" in good
    assert "0.50 / 0.85" in good
    assert good.count("✓") == 1
    assert bad.count("✓") == 0


def test_a_label_tree_stands_beside_flat_labels(written):
    line = {
        "question": "hierarchy", "data": "trec", "recipe": "cnn", "n": 5, "texts": 500,
        "dev_level_1": 86.1, "dev_level_2": 78.6, "test_level_1": 90.0, "test_level_2": 81.8,
    }  # fmt: skip
    page = written(
        hierarchy=[
            {**line, "weight": "flat"},
            {**line, "weight": 0.3, "gain_level_1": [0.7, -0.2, 1.6], "gain_level_2": [0.0, -1, 1]},
            {"question": "hierarchy, weight 0", "data": "trec", "recipe": "cnn",
             "equals_flat": True},
        ]
    )  # fmt: skip
    assert "| 0, or flat labels | 86.1 / 78.6 | 90.0 | – | 81.8 | – | 5 |" in page
    assert "| 0.3 | 86.1 / 78.6 | 90.0 | +0.70 [-0.20, +1.60] | 81.8 | +0.00" in page
    assert "the same ✓" in page


def test_ensembles_are_in_percent_or_bleu_with_their_gain(written):
    page = written(
        ensembles=[
            joined("trec", "accuracy", 1, [0.05, 0.01, 0.09]),
            joined("multi30k", "bleu", 100, [1.5, -0.25, 3.0]),
            joined("ewt", "upos", 1, None),
            {"question": "ensembles", "data": "sst2", "error": "RuntimeError()"},
            {"question": "ensembles run", "data": "trec", "recipe": "cnn", "seed": 1, "test": 0.7},
        ]
    )
    assert row(page, "trec")[3:] == [
        "70.00 ± 1.00", "75.00", "+5.00 [+1.00, +9.00], apart", "occlusion +0.123", "1,300", "3",
    ]  # fmt: skip
    assert row(page, "multi30k")[3:6] == [
        "70.00 ± 1.00", "75.00", "+1.50 [-0.25, +3.00], within noise",
    ]  # fmt: skip
    assert row(page, "ewt")[5] == "–"
    assert row(page, "sst2")[5] == "failed: RuntimeError()"

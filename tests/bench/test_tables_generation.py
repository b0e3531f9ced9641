"""The tables of generation, made from lines as the scripts write them."""

from tests.fixtures.bench_tables import (
    BENCH,
    HEAD,
    row,
    rows,
    spread,
)

DEVICE = {"question": "device", "name": "processor", "torch": "1.3", "threads": 3}


def language(recipe: str, test: float, other: float, seed: int = 1, **more) -> dict:
    return {
        "question": "language trial", "recipe": recipe, "variant": "recipe", "seed": seed,
        "test_perplexity": test, "test_token_perplexity": test / 2, "test_unknown": 0.02,
        "test_bits_per_character": 1.3, "test_wikitext_perplexity": other, "seconds": 7.0, **more,
    }  # fmt: skip


def trial(data: str, recipe: str, variant: str = "recipe", seed: int = 1, **figures) -> dict:
    both = {f"{part}_{name}": v for name, v in figures.items() for part in ("dev", "test")}
    return {
        "question": "generation trial", "data": data, "recipe": recipe, "variant": variant,
        "seed": seed, **both, "parameters": 3_500_000, "seconds": 11.0,
        "sentences_per_second": 13.0,
    }  # fmt: skip


def test_without_results_there_are_no_sections(written):
    assert written().startswith("# Classifiers and the training loop")
    assert "##" not in written()


def test_lines_of_failures_alone_leave_their_section_out(written):
    failed = [
        {
            "question": "generation trial",
            "data": "e2e",
            "recipe": "seq2seq",
            "error": "RuntimeError",
        },
        {"question": "gpt decoding, bfloat16, batch 1, weft, graphs", "error": "RuntimeError"},
        {"question": "gpt training, weft", "error": "RuntimeError"},
        {"question": "lstm 2 × 650, weft, fp32", "error": "RuntimeError"},
        {"question": "language trial", "recipe": "gpt", "variant": "recipe", "error": "Killed"},
    ]
    assert "##" not in written(a=[HEAD, *failed])


def test_the_files_that_are_kept_can_be_shown(written, monkeypatch):
    import summary

    monkeypatch.setattr(summary, "RESULTS", BENCH / "results")
    page = written()
    for title in ("N-gram models", "Translation speed on a CPU", "LSTM language-model training"):
        assert title in page
    assert row(page, "longer than two words: seen twice")[6] == "< 0.0001 ✓"


def test_the_ladder_goes_from_simple_to_deep_and_each_rung_is_judged(written):
    lines = [
        language("gpt", 90.0, 300.0), language("gpt", 94.0, 300.0, seed=2),
        language("kneser-ney", 100.0, 250.0), language("ngram", 120.0, 270.0),
        language("nnlm", 110.0, 240.0), language("masked-bilstm", 30.0, 50.0),
    ]  # fmt: skip
    found = rows(written(language=lines))[2:]
    assert [cells[0].split("`")[1] for cells in found] == [
        "ngram", "kneser-ney", "nnlm", "gpt", "masked-bilstm",
    ]  # fmt: skip
    assert [cells[2] for cells in found] == ["–", "✓", "✗", "✓", "–"]
    assert [cells[6] for cells in found] == ["–", "✓", "✓", "✗", "–"]
    assert found[3][1] == "92.00 ± 2.83"


def test_a_rung_is_below_every_variant_of_the_one_before(written):
    better = language("lstm-lm", 70.0, 90.0, variant="wider")
    lines = [language("lstm-lm", 80.0, 99.0), better, language("gpt", 75.0, 89.0)]
    found = row(written(language=lines), "Transformer (`gpt`)")
    assert (found[2], found[6]) == ("✗", "✓")


def test_bars_are_those_of_the_data_and_the_recipe(written):
    lines = [
        trial("multi30k-de-lower", "seq2seq-attention", bleu_tokenised=34.5, chrf=50.0),
        trial("multi30k-de-lower", "seq2seq-transformer", bleu_tokenised=38.9, chrf=50.0),
        trial("multi30k-fr-lower", "seq2seq-transformer", bleu_tokenised=58.0, chrf=50.0),
        trial("multi30k-de", "seq2seq-transformer", bleu=30.0, bleu_lower=31.0, chrf=50.0),
        trial("e2e", "seq2seq-records", bleu_lower=64.9, nist=8.0, rouge_l=60.0, cider=2.0,
              slot_error=3.0, faultless=80.0),
    ]  # fmt: skip
    page = written(generation=lines)
    german, french, cased, records = page.split("### ")[1:5]
    assert row(german, "seq2seq-attention")[3] == "≥ 34 ✓"
    assert row(german, "seq2seq-transformer")[3] == "≥ 39 ✗"
    assert row(french, "seq2seq-transformer")[3] == "≥ 58 ✓"
    assert row(cased, "seq2seq-transformer")[4] == "–"
    assert row(records, "seq2seq-records")[7] == "≥ 65 ✗"
    assert "Idea 1" not in page


def test_seeds_are_averaged_and_a_repeat_counts_once(written):
    lines = [trial("scitldr", "seq2seq-copy", seed=s, rouge1=r) for s, r in ((1, 9.0), (1, 20.0))]
    lines.append(trial("scitldr", "seq2seq-copy", seed=2, rouge1=22.0))
    found = row(written(generation=lines), "seq2seq-copy")
    assert (found[1], found[2], found[-2]) == ("21.00 ± 1.41", "–", "2")


def test_the_ideas_are_put_in_order_with_the_score_that_dev_chose(written):
    name, figures = "multi30k-de-lower", {"chrf": 1.0}
    lines = [
        trial(name, "seq2seq", bleu_tokenised=20.0, **figures),
        trial(name, "seq2seq-every-step", bleu_tokenised=19.0, **figures),
        {**trial(name, "seq2seq-attention", "dot", bleu_tokenised=30.0), "dev_bleu_tokenised": 9.0},
        trial(name, "seq2seq-attention", "scaled", bleu_tokenised=29.0),
    ]
    page = written(generation=lines)
    ideas = page.split("### Idea 1")[1].split("###")[0]
    assert rows(ideas)[2][1:] == ["20.00", "19.00", "29.00 (scaled)", "✗ ✓"]
    scores = page.split("### Four scores")[1]
    assert [cells[0] for cells in rows(scores)[2:]] == ["dot", "scaled"]
    assert row(scores, "dot")[1:] == ["30.00", "9.00", "13", "11", "1"]


def test_copying_is_held_against_what_does_not_copy(written):
    rouge = {"rouge2": 5.0, "rougeL": 8.0}
    lines = [
        trial("scitldr", "seq2seq-copy", rouge1=25.0, rouge2=5.0, rougeL=7.0),
        trial("scitldr", "seq2seq-copy", "wider", rouge1=27.0, **rouge),
        trial("scitldr", "seq2seq-copy", "without copying", rouge1=22.0, **rouge),
        trial("scitldr", "seq2seq-attention", seed=2, rouge1=20.0, **rouge),  # of another seed
    ]
    (found,) = rows(written(generation=lines).split("### Does copying")[1])[2:]
    assert found[1:] == [
        "seq2seq-copy, without copying", "ROUGE-1 +3.00 ✓; ROUGE-2 +0.00 ✗; ROUGE-L -1.00 ✗", "1",
    ]  # fmt: skip


def test_a_data_set_that_is_new_is_shown_with_what_it_has(written):
    page = written(generation=[trial("tales", "seq2seq", bleu=3.0)])
    assert row(page, "recipe")[1:4] == ["bleu", "bar", "dev bleu"]
    assert row(page, "seq2seq")[1:3] == ["3.00", "–"]


def test_writing_on_a_processor_is_compared_by_batch(written):
    shape = {"batch": 1, "threads": 2, "beam": 5}
    lines = []
    for name, ratio, equal in (("transformers", 2.4, 5), ("ctranslate2", 0.95, 4)):
        speed = {"sentences_per_second": spread(3.0), "ms_per_step": 11.04}
        agreed = {"score_distance": 1e-6, "score_distance_of_others": 2e-6}
        lines += [
            {"question": f"batch 1: same as {name}", "equal": equal, "of": 5, **agreed},
            {"question": f"batch 1: {name}", **shape, **speed},
            {"question": f"batch 1: weft, times {name}", **shape, "ratio": spread(ratio)},
        ]
    page = written(decoding=lines)
    assert row(page, "1", "transformers")[2:] == [
        "3.00 [2.50, 3.50]", "11.0", "2.40× [1.90, 2.90]", "≥ 2.5 ✗", "5 of 5 ✓", "2e-06", "5",
    ]  # fmt: skip
    assert row(page, "1", "CTranslate2")[5:7] == ["≥ 0.9 ✓", "4 of 5 ✗"]


def gpt(way: str, rate: float, equal: int = 1, **more) -> dict:
    return {
        "question": f"gpt decoding, bfloat16, batch 1, {way}", "tokens_per_second": spread(rate),
        "first_s": 3.0, "equal_to_eager": equal, "of": 1, "tokens_before_they_differ": 23.0, **more,
    }  # fmt: skip


def test_writing_on_a_gpu_holds_the_fastest_way_against_what_is_compiled(written):
    what = "gpt decoding, bfloat16, batch 1, weft, graphs"
    lines = [
        gpt("weft, step by step", 100.0),
        gpt("weft, graphs", 700.0),
        gpt("weft, graphs, step compiled", 600.0, equal=0),
        {"question": f"{what}, step compiled", "trouble": "could not be captured"},
        gpt("transformers, compiled", 110.0, equal=0),
        {"question": f"{what} over transformers, compiled", "ratio": spread(6.0)},
    ]
    found = {cells[2]: cells[4:7] for cells in rows(written(gpu=lines)) if cells[0] == "1"}
    assert found == {
        "Weft, step by step": ["–", "–", "1 of 1"],
        "Weft, graphs": ["6.0× [5.5, 6.5], compiled", "≥ 5 ✓", "1 of 1 ✓"],
        "Weft, graphs, step compiled (gave up)": ["–", "–", "0 of 1 ✗, alike for 23 tokens"],
        "transformers, compiled": ["–", "–", "0 of 1, alike for 23 tokens"],
    }  # fmt: skip


def test_translations_on_a_gpu_tell_how_far_others_are(written):
    what = "marian decoding, float32, batch 64"
    line = {
        "sentences_per_second": spread(300.0), "first_s": 1.0, "equal": 3, "of": 7,
        "score_distance": 0.0, "score_distance_of_others": 1e-3,
    }  # fmt: skip
    ratio = {"question": f"{what}, weft, graphs over transformers", "ratio": spread(5.9)}
    page = written(gpu=[{"question": f"{what}, weft, graphs", **line}, ratio])
    assert row(page, "64", "float32", "Weft, graphs")[3:7] == [
        "300.0 [299.5, 300.5]", "5.9× [5.4, 6.4]", "≥ 6 ✗", "3 of 7 ✗, others 1e-03 apart",
    ]  # fmt: skip


def test_learning_on_a_gpu_is_judged_by_speed_share_and_losses(written):
    measured = {"tokens_per_second": spread(500e3), "mfu": 0.56, "memory_gb": 7.0}
    lines = [
        {"question": "gpt training, weft", **measured},
        {"question": "gpt training, transformers", **measured, "mfu": 0.36},
        {"question": "gpt training, weft over transformers", "ratio": spread(1.3)},
        {
            "question": "gpt training, largest distance of 50 losses from weft's",
            "distance": {"transformers": 0.02},
        },
        {"question": "fused loss", "dtype": "float32", "relative_error": ["1e-7"], "good": True},
        {"question": "fused loss", "dtype": "bfloat16", "relative_error": ["9e-2"], "good": False},
        {
            "question": "fused loss, speed", "rows": 35, "words": 1001,
            "seconds": {"chunks": spread(0.02, 0.0), "plain": spread(0.05, 0.0)},
        },
    ]  # fmt: skip
    page = written(gpu=lines)
    assert row(page, "Weft, blocks compiled")[3:8] == ["≥ 1.35 ✗", "56.0", "≥ 55 ✓", "–", "–"]
    assert row(page, "transformers, compiled")[3:8] == ["–", "36.0", "–", "0.0200", "< 0.01 ✗"]
    assert row(page, "35 × 1,001")[3:5] == ["2.5×", "1e-07 / 9e-02 ✗"]


def test_an_lstm_is_judged_on_each_device(written):
    def lines(rate: float, ratio: float) -> list[dict]:
        what = "lstm 2 × 650"
        speed = {"tokens_per_second": spread(rate)}
        return [
            {"question": f"{what}, torch.nn.LSTM, fp32", **speed},
            {"question": f"{what}, weft, fp32", **speed},
            {"question": f"{what}, weft, bf16", **speed},
            {"question": f"{what}, weft fp32 over torch fp32", "ratio": spread(ratio)},
            {"question": f"{what}, weft bf16 over torch fp32", "ratio": spread(3.0)},
            {"question": "lstm took", "seconds": 5.0},
        ]

    card = {**DEVICE, "name": "Card"}
    page = written(cpu=[DEVICE, *lines(700.0, 0.9)], gpu=[card, *lines(9000.0, 2.0)])
    assert row(page, "3 threads", "2 × 650", "fp32")[3:] == [
        "700", "700", "0.90× [0.40, 1.40]", "≥ 1 ✗", "≥ 2 ✗", "5",
    ]  # fmt: skip
    assert row(page, "Card", "2 × 650", "fp32")[6:8] == ["≥ 1 ✓", "≥ 2 ✓"]
    assert row(page, "Card", "2 × 650", "bf16 against fp32")[6:8] == ["–", "–"]


def test_the_curve_of_characters_is_thinned_and_keeps_its_best(written):
    nats = [3 - i / 30 for i in range(41)]
    nats[38] = 1.45  # between two that are shown
    points = [[10 * i, n, 4.0 * i] for i, n in enumerate(nats)]
    lines = [
        {"question": "character GPT, validation", "step": s, "nats": n, "seconds": t}
        for s, n, t in points
    ]
    whole = {"best": points[38], "seconds": 170.0, "parameters": 10_700_000, "reached": points[38]}
    page = written(chars=[*lines, {"question": "character GPT", **whole}])
    shown = [cells[0] for cells in rows(page.split("validation, nats")[1])[1:]]
    assert shown == ["0", "40", "90", "130", "180", "220", "270", "310", "360", "380", "400"]
    assert row(page, "10.7 M")[1:] == ["1.4500", "✓", "380", "170", "152", "≤ 180 ✓"]
    late = {**whole, "reached": [490, 1.46, 181.0]}
    page = written(chars=[*lines, {"question": "character GPT", **late}])
    assert row(page, "10.7 M")[5:] == ["181", "≤ 180 ✗"]
    never = {**whole, "reached": None, "best": points[1]}
    page = written(chars=[*lines, {"question": "character GPT", **never}])
    assert row(page, "10.7 M")[2] == "✗"
    assert row(page, "10.7 M")[5:] == ["never", "≤ 180 ✗"]


def test_pictures_are_judged_in_percent(written):
    line = {
        "question": "vectors in", "recipe": "seq2seq-vectors", "seed": 3, "exact_match": 0.949,
        "low": 0.93, "high": 0.97, "n": 500, "parameters": 445_134, "seconds": 421.7,
    }  # fmt: skip
    assert row(written(vectors=[line]), "seq2seq-vectors")[1:5] == [
        "3", "94.9 [93.0, 97.0]", "≥ 95 ✗", "500",
    ]  # fmt: skip


def attention(use: str, score: str, value: float, mask: str = "", seed: int = 1) -> dict:
    return {
        "question": "attention score trial", "use": use, "score": score, "mask": mask,
        "seed": seed, "metric": "accuracy", "value": value, "n": 13, "train": 17, "epochs": 3,
        "best": 2, "seconds_per_epoch": value / 10,
    }  # fmt: skip


def test_attention_scores_are_columns_of_quality_and_of_seconds(written):
    lines = [
        attention("pool", "dot", 70.0), attention("pool", "dot", 72.0, seed=2),
        attention("bidaf", "trilinear", 23.0), attention("pool", "scaled", 50.0, "local 2"),
        {"question": "attention score trial", "use": "pool", "score": "additive", "mask": "",
         "seed": 1, "error": "Killed"},
        {"question": "attention score, speed", "use": "pool", "score": "scaled", "mask": "",
         "n": 19, "examples_per_second": 811.0, "examples_per_second_ratio": 1.0},
        attention("pool", "dot", 99.0),  # the same run on another machine
    ]  # fmt: skip
    found = rows(written(scores=lines))
    header = ["use", "additive", "dot", "scaled", "bilinear", "trilinear"]
    assert [*header, "metric", "examples"] in found
    assert ["pool", "–", "71.0 ± 1.4", "–", "–", "–", "accuracy", "13"] in found
    assert ["bidaf", "–", "–", "–", "–", "23.0", "accuracy", "13"] in found
    assert ["pool", "–", "7.1 ± 0.1", "–", "–", "–", "17"] in found
    assert ["local 2", "50.0", "13"] in found
    assert ["pool", "–", "–", "1.00", "–", "19"] in found


def test_orders_of_attention_are_compared_seed_by_seed(written):
    line = {
        "question": "attention order, bahdanau - luong", "test_bleu": [-0.5, 0.27, 0.1],
        "mean": -0.04, "sd": 0.4, "won": 2, "n": 3,
    }  # fmt: skip
    assert row(written(order=[line]), "-0.50, +0.27, +0.10")[1:] == ["-0.04 ± 0.40", "2 of 3"]

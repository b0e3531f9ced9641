"""Which figures does `weft list` show? One JSON line each, from trials with default settings.

    python bench/recipes.py

It reads the trials in bench/results and writes bench/results/recipes.jsonl. Every figure in the
`scores` of a recipe must be a line of that file: tests/bench/test_recipes.py compares them.
"""

import json
import statistics
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
RECIPE = {"variant": "recipe"}
MINILM = "MiniLM"
AUTO = {"variant": "rate 2e-4"}  # train.learning_rate = "auto" for the width of MiniLM

# recipe, data set, metric, file of trials, what marks its trials there, name of the figure there,
# the network it starts from. Trials on phrases, on other text than the data set's own, with a time
# limit or with any changed setting are no trials of the recipe as it is.
FIGURES: list[tuple[str, str, str, str, dict[str, Any], str, str]] = [
    *(("tfidf", data, "accuracy", "quality_tfidf", RECIPE, "test_accuracy", "")
      for data in ("reviews", "trec", "banking77", "imdb")),
    *(("fasttext", data, "accuracy", "quality_fasttext", RECIPE, "test_accuracy", "")
      for data in ("reviews", "trec", "banking77", "imdb")),
    *((name, "trec", "accuracy", "quality_cpu", RECIPE, "test_accuracy", "")
      for name in ("cnn", "bilstm-attention", "transformer")),
    *((name, "sst5", "accuracy", "trees_quality", RECIPE, "test_root", "")
      for name in ("tree-rnn", "rntn", "tree-lstm")),
    ("bert-frozen", "banking77", "accuracy", "finetune", {"variant": "frozen"}, "test_accuracy",
     MINILM),
    ("bert-frozen", "trec", "accuracy", "finetune", {"variant": "frozen"}, "test_accuracy", MINILM),
    *(("bert", data, "accuracy", "bert_rates", AUTO, "test_accuracy", MINILM)
      for data in ("trec", "banking77")),
    ("bert-pair", "sick", "accuracy", "bert_rates", AUTO, "test_accuracy", MINILM),
    ("bert-span", "squad", "F1", "finetune", RECIPE, "test_f1", MINILM),
    ("bert-towers", "stsb", "Spearman correlation", "finetune", {"variant": "towers"},
     "test_spearman", MINILM),
    ("tagger-bert", "ewt", "UPOS accuracy", "finetune", RECIPE, "test_upos", MINILM),
    ("kneser-ney", "wiki", "perplexity", "language_ngrams", RECIPE, "test_perplexity", ""),
    ("ngram", "wiki", "perplexity", "language_ngrams", RECIPE, "test_perplexity", ""),
    ("parser", "ewt", "LAS", "parsing", RECIPE, "test_las", ""),
    ("parser-tagger", "ewt", "LAS", "parsing", RECIPE, "test_las", ""),
    ("constituency", "ewt", "F1", "parsing", RECIPE, "test_f1", ""),
    ("seq2seq-records", "e2e", "BLEU", "generation", RECIPE, "test_bleu_lower", ""),
    ("tagger-bilstm", "ewt", "UPOS accuracy", "tagging_upos", RECIPE, "test_upos", ""),
    ("tagger-bilstm", "sequoia", "UPOS accuracy", "tagging_upos", RECIPE, "test_upos", ""),
    ("tagger-bilstm", "imst", "UPOS accuracy", "tagging_upos", RECIPE, "test_upos", ""),
    *((name, data, "F1", "tagging_ner", RECIPE, "test_f1", "")
      for name in ("tagger-bilstm", "tagger-bilstm-crf") for data in ("ddt", "wikigold", "wnut17")),
    ("tagger-bilstm-crf", "conll2000", "F1", "tagging_chunks_file", RECIPE, "test_f1", ""),
    *((name, "ewt", "UPOS accuracy", "tagging_recipes", RECIPE, "test_upos", "")
      for name in ("tagger-cnn", "tagger-transformer", "tagger-window")),
]  # fmt: skip
SHARES = ("quality", "tagging")  # files in which 1 is everything, not 100


def figures() -> list[dict[str, Any]]:
    """The mean of each figure over its trials, in the units of docs/benchmarks.md."""
    return [_figure(*one) for one in FIGURES]


def _figure(
    recipe: str, data: str, metric: str, file: str, marks: dict[str, Any], name: str, start: str
) -> dict[str, Any]:
    lines = [json.loads(line) for line in (RESULTS / f"{file}.jsonl").open(encoding="utf-8")]
    values = [
        line[name] * (100 if file.startswith(SHARES) else 1)
        for line in lines
        if "trial" in line.get("question", "")
        and line.get("recipe", recipe) == recipe
        and line.get("data", data) == data
        and line.get("system", "weft") == "weft"
        and not line.get("changes")
        and not line.get("examples")
        and all(line.get(key) == value for key, value in marks.items())
    ]
    if not values:
        raise SystemExit(f"{file}: no trial of {recipe} on {data} with default settings")
    out = {"question": "recipe", "recipe": recipe, "data": data, "metric": metric}
    out |= {"value": round(statistics.mean(values), 1), "n": len(values), "settings": "default"}
    return {**out, **({"start": start} if start else {}), "source": f"{file}.jsonl"}


if __name__ == "__main__":
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in figures())
    (RESULTS / "recipes.jsonl").write_text(text, encoding="utf-8")
    print(text, end="")

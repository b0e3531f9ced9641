"""Does a page answer as Python does, without a request or an error?

    python bench/page.py --data $WEFT_DATA

Trains small models of five tasks and more, writes each as a page, opens it in Chromium from the
disk and compares 200 answers: values equal, scores and probabilities within 1e-4, vectors, and
texts that a model writes with five searches. Printed are the
size of the page and of the model inside, the seconds until the page is ready and those of an
answer, the requests that the page made and the errors it logged. With --pictures, screenshots in
light and dark at 1440 and 390 pixels. It needs Chromium and onnxruntime-web (see
weft/export/page/runtime.py).
"""

import gzip
import json
import os
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from chromium import Chromium
from record import Record, options

import weft
from weft.config import with_pretrained
from weft.export.page.export import export_page
from weft.text.synthetic.treebank import generate_treebank, write_treebank

TEXTS, TOLERANCE = 200, 1e-4
SMALL = {"train.epochs": 2, "train.seed": 1}
EXTRA = ("", " ", "a", "😀", "naïve café — don’t! 3.14")  # at the end of every list of texts
# Models that have seen little would write nothing.
WRITES = {"generate.min_length": 8, "generate.max_length": 25, "train.epochs": 8}
# Recipe, training file, column settings, and where the texts come from.
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "classify, BiLSTM": ("bilstm", "classification/trec", {"encoder.hidden": 48}),
    "classify, TF-IDF": ("tfidf", "classification/trec", {}),
    "classify, fastText": ("fasttext", "classification/trec", {"classic.buckets": 100_000}),
    "tag, BiLSTM-CRF": ("tagger-bilstm-crf", "sequence_labelling/wnut17", {"encoder.hidden": 48}),
    "tag, CRF": ("crf", "sequence_labelling/wnut17", {"classic.iterations": 20}),
    "parse": ("parser", "parsing/ud_english_ewt", {"encoder.hidden": 48}),
    "text pairs, ESIM": (
        "esim",
        "pairs/sick",
        {"data.text": "text", "data.text_pair": "text_pair"},
    ),
    "answer spans, BiDAF": ("bidaf", "qa/squad_dev_resplit", {}),
    "language, Kneser-Ney": ("kneser-ney", "lm/tinyshakespeare", {"classic.order": 3}),
    "language, LSTM": (
        "lstm-lm",
        "lm/tinyshakespeare",
        {"decoder.hidden": 96, "decoder.width": 96, "train.epochs": 1},
    ),
    "language, GPT": (
        "gpt",
        "lm/tinyshakespeare",
        {"decoder.hidden": 96, "decoder.layers": 3, "train.epochs": 1},
    ),
    "translation, attention": (
        "seq2seq-attention",
        "seq2seq/multi30k",
        {"encoder.hidden": 48, "decoder.hidden": 48, **WRITES},
    ),
    "translation, Transformer": (
        "seq2seq-transformer",
        "seq2seq/multi30k",
        {"encoder.layers": 1, "decoder.layers": 1, **WRITES},
    ),
    "constituents": ("constituency", "synthetic/treebank", {"encoder.hidden": 48}),
    "classify, MiniLM": ("bert", "classification/trec", {"train.epochs": 1}),
    "sentence vectors, MiniLM": ("", "classification/trec", {}),
}
# Answers many texts, and writes one where the model can; then everything is on the page.
FILLED = """(async () => {
  const get = (id) => document.getElementById(id);
  document.querySelector(".many").open = true;
  const chips = [...document.querySelectorAll(".chip")];
  const rows = chips.map((one) => one.title.replace(" · ", "\\t"));
  get("many").value = rows.join("\\n");
  get("run-many").click();
  if (!get("generation").hidden) get("continue").click();
  while (!/answered/.test(get("many-status").textContent) || !get("stop").hidden) {
    await new Promise((done) => setTimeout(done, 50));
  }
})()"""
LONG = 60  # rows that MiniLM is trained on: it takes longer than the rest together
# Searches that the page and Python begin at 20 of the texts.
SEARCHES: tuple[dict[str, Any], ...] = (
    {"method": "greedy", "max_length": 30},
    {"method": "sample", "max_length": 30, "seed": 3},
    {"method": "sample", "max_length": 30, "seed": 4, "temperature": 0.7, "top_k": 20},
    {"method": "sample", "max_length": 30, "seed": 5, "top_p": 0.9},
    {"method": "greedy", "max_length": 30, "repetition_penalty": 1.3, "no_repeat_ngram_size": 2},
)
PROMPTS = 20
FILES = re.compile(r'data-file="([^"]+)">([^<]*)<')


def read_lines(path: Path) -> list[str]:
    opened = gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open()
    with opened as file:
        return file.read().split("\n")


def prepare(data: Path, folder: Path, source: str) -> tuple[Path, list[Any]]:
    """A small training file, and 200 texts or pairs that are not in it."""
    kind, name = source.split("/")
    here = data / kind / name
    if kind == "sequence_labelling":
        blocks = "\n".join(read_lines(here / "train.conll")).split("\n\n")
        train = folder / "train.conll"
        train.write_text("\n\n".join(blocks[:400]) + "\n\n", "utf-8")
        test = "\n".join(read_lines(here / "test.conll")).split("\n\n")[:TEXTS]
        words = [[row.split()[0] for row in block.split("\n") if row.strip()] for block in test]
        return train, [" ".join(own) for own in words]
    if kind == "parsing":
        blocks = "\n".join(read_lines(here / "en_ewt-ud-dev.conllu.gz")).split("\n\n")
        train = folder / "train.conllu"
        train.write_text("\n\n".join(blocks[:250]) + "\n\n", "utf-8")
        rows = read_lines(here / "en_ewt-ud-test.conllu.gz")
        return train, [r[9:] for r in rows if r.startswith("# text = ")][:TEXTS]
    if kind == "synthetic":
        write_treebank(folder)
        test = generate_treebank()["test"]
        return folder / "train.ptb", [" ".join(one.forms) for one in test][:TEXTS]
    if kind == "seq2seq":
        sides = [read_lines(here / f"train.{side}.gz")[:600] for side in ("de", "en")]
        train = folder / "train.tsv"
        rows = [f"{a}\t{b}" for a, b in zip(*sides, strict=True)]
        train.write_text("\n".join(["text\tlabel", *rows]) + "\n", "utf-8")
        return train, read_lines(here / "test_2016_flickr.de.gz")[:TEXTS]
    if kind == "pairs":
        cells = [row.split("\t") for row in read_lines(here / "train.tsv")[1:] if row]
        train = folder / "train.tsv"
        table = ["text\ttext_pair\tlabel", *("\t".join((r[1], r[2], r[4])) for r in cells[:500])]
        train.write_text("\n".join(table) + "\n", "utf-8")
        return train, [(r[1], r[2]) for r in cells[500 : 500 + TEXTS]]
    if kind == "qa":
        whole = json.loads("\n".join(read_lines(here / "train.json.gz")))
        train = folder / "train.json"
        train.write_text(json.dumps({**whole, "data": whole["data"][:2]}), "utf-8")
        test = json.loads("\n".join(read_lines(here / "test.json.gz")))
        pairs = [
            (question["question"], paragraph["context"])
            for article in test["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
        return train, random.Random(3).sample(pairs, TEXTS)
    if kind == "lm":
        rows = [row for row in read_lines(here / "input.txt.gz") if row]
        train = folder / "train.txt"
        train.write_text("\n".join(rows[:3000]) + "\n", "utf-8")
        return train, rows[-TEXTS:]
    rows = read_lines(here / "train.tsv")
    train = folder / "train.tsv"
    table = [f"{cells[2]}\t{cells[0]}" for cells in (r.split("\t") for r in rows) if len(cells) > 2]
    train.write_text("\n".join(["text\tlabel", *table[1:900]]) + "\n", "utf-8")
    test = read_lines(here / "test.tsv")[1 : TEXTS + 1]
    return train, [row.split("\t")[-1] for row in test]


def agree(ours: Any, theirs: Any) -> bool:
    """Return True if two values are equal, numbers within the tolerance."""
    if isinstance(theirs, float):
        return abs(ours - theirs) <= TOLERANCE * max(1, abs(theirs))
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(agree, ours, theirs))
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(agree(ours[k], theirs[k]) for k in theirs)
    return bool(ours == theirs)


def compare(browser: Chromium, page: Path, folder: Path, inputs: list[Any]) -> dict[str, Any]:
    """Open a page and compare its answers to those of the model."""
    model = weft.load(folder)
    browser.requests.clear()
    browser.errors.clear()
    ready = browser.open(page)
    rows = json.dumps([[one] if isinstance(one, str) else list(one) for one in inputs])
    pick = (
        "({ value, score, coverage, probs }) => [value, score, coverage, Array.from(probs ?? [])]"
    )
    begin = time.perf_counter()
    ours = browser.run(f"weft.answers({rows}).then((all) => all.map({pick}))")
    seconds = time.perf_counter() - begin
    if model.config["task"]["kind"] == "embed":
        ours = [row[3] for row in ours]
        theirs = model.embed(inputs).tolist()
    else:
        theirs = [[a.value, a.score, a.coverage, list(a.scores)] for a in model(inputs)]
    theirs = json.loads(json.dumps(theirs))
    differ = [i for i, pair in enumerate(zip(ours, theirs, strict=True)) if not agree(*pair)]
    written = {}
    if model.config["task"]["kind"] in ("language", "seq2seq"):
        written = compare_texts(browser, model, [one for one in inputs if one.strip()][:PROMPTS])
    return {
        **written,
        "texts": len(inputs),
        "answers_that_differ": len(differ),
        "first": inputs[differ[0]] if differ else None,
        "ready_seconds": round(ready, 2),
        "milliseconds_per_text": round(1000 * seconds / len(inputs), 2),
        "requests": len(browser.requests),
        "console_errors": len(browser.errors),
    }


def compare_texts(browser: Chromium, model: weft.Predictor, prompts: list[str]) -> dict[str, Any]:
    """Write texts in the page and in Python, and count those that differ."""
    differ, count = 0, 0
    for settings in SEARCHES:
        calls = f"{json.dumps(prompts)}.map((one) => weft.generate(one, {json.dumps(settings)}))"
        for prompt, ours in zip(prompts, browser.run(f"Promise.all({calls})"), strict=True):
            ((theirs,),) = weft.generate(model, prompt, **settings)  # alone: it has the seed itself
            count += 1
            differ += ours.strip() != theirs.text.strip()
    return {"written": count, "written_that_differ": differ}


def packed_bytes(page: Path) -> int:
    """The characters that the files of the model take in a page."""
    files = FILES.findall(page.read_text("utf-8"))
    return sum(len(data) for name, data in files if name not in ("ort.wasm", "about.json"))


def take_pictures(browser: Chromium, page: Path, name: str, folder: Path) -> None:
    browser.open(page)
    browser.run(FILLED)
    for width in (1440, 390):
        for dark in (False, True):
            mode = "dark" if dark else "light"
            browser.screenshot(folder / f"{name}-{width}-{mode}.png", width, dark)


def make_model(recipe: str, train: Path, changes: dict[str, Any], run: Path) -> None:
    """Train a small model, or take the installed MiniLM as it is."""
    if not recipe:
        weft.load("minilm").save(run, golden=["a fine film", "how far is the moon ?"])
        return
    config = weft.recipe(recipe)
    small = {} if "classic" in config else SMALL
    if recipe == "bert":
        config = with_pretrained(config, "minilm")
        rows = train.read_text("utf-8").split("\n")
        train.write_text("\n".join(rows[: LONG + 1]) + "\n", "utf-8")
    config = config.with_values({"data.train": str(train), **small, **changes}, "bench")
    weft.train(config, run, quiet=True)


def main() -> None:
    parser = options(__doc__, repeats=1)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""), required=False)
    parser.add_argument("--only", default="", help="models whose name contains this")
    parser.add_argument("--pictures", type=Path, help="folder for screenshots")
    arguments = parser.parse_args()
    record = Record(arguments.record)
    failed = 0
    with tempfile.TemporaryDirectory() as temporary, Chromium() as browser:
        for name, (recipe, source, changes) in MODELS.items():
            if arguments.only not in name:
                continue
            folder = Path(temporary) / (recipe or "vectors")
            folder.mkdir()
            train, inputs = prepare(Path(arguments.data), folder, source)
            make_model(recipe, train, changes, folder / "run")
            if isinstance(inputs[0], str):
                inputs = [*inputs[: TEXTS - len(EXTRA)], *EXTRA]
            made = export_page(folder / "run", folder / "model.html")
            found = compare(browser, made.path, folder / "run", inputs)
            failed += bool(
                found["answers_that_differ"]
                or found.get("written_that_differ")
                or found["requests"]
                or found["console_errors"]
            )
            record.line(
                name, recipe=recipe, data=source, **found, page_bytes=made.size,
                model_bytes=made.model_size, packed_bytes=packed_bytes(made.path),
            )  # fmt: skip
            if arguments.pictures:
                arguments.pictures.mkdir(parents=True, exist_ok=True)
                take_pictures(browser, made.path, recipe or "vectors", arguments.pictures)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()

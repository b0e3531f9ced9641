"""Are states tracked, tasks fulfilled and responses ranked? One JSON line a part and seed.

    python bench/dialogue.py --data DATA --parts task,ranking --repeats 3 --record dialogue

DATA has camrest676/ and dailydialog/. CamRest676 is split 3:1:1 in order; test is read once, at the
end. `task`: a tracker (dialogue-state, with an ontology of cuisines, synonyms, and word vectors of
DATA/../lm/wiki_en), whose turns count if all slots are right, from states that it predicted itself;
and responses (seq2seq-attention) from these states and the database. BLEU is that of delexicalised
responses, lower-cased, tokenised by sacrebleu's 13a; match and success are those of Wen et al.
(2017), with their code's rules; "true states" gives the responses of the annotated states, and
"corpus" the metrics of the people who answered. `ranking`: MiniLM as it is; the cosine of the last
`--turns` turns with a response, its own and nine of other dialogues of DailyDialog's test part.
"""

import gzip
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from record import Record, options

import weft
from weft.inference.track_states import carry_states
from weft.metrics.generation.dialogue import ResponseRecall, StateAccuracy
from weft.metrics.generation.task_success import TaskSuccess
from weft.metrics.generation.text_overlap import Bleu
from weft.predict.predictor import Predictor
from weft.text.formats.dialogue.entities import EntityDatabase, read_entities
from weft.text.formats.dialogue.turns import Dialogue, read_dialogues
from weft.text.formats.dialogue.views import dialogue_examples, parse_state, read_dialogue_examples

SLOTS = ("food", "pricerange", "area")
SYNONYMS = {
    "centre": ["center", "central", "downtown"],
    "north": ["northern"],
    "south": ["southern"],
    "east": ["eastern"],
    "west": ["western"],
    "cheap": ["inexpensive", "low cost", "budget", "affordable"],
    "moderate": ["moderately priced", "mid priced", "reasonably priced", "medium priced"],
    "expensive": ["high end", "upscale", "pricey", "high priced"],
}
# The ontology of the domain: the cuisines that users may ask for.
CUISINES = (
    "afghan african afternoon_tea asian_oriental australasian australian austrian barbeque basque "
    "belgian bistro brazilian british canapes cantonese caribbean catalan chinese christmas "
    "corsica creative crossover cuban danish eastern_european english eritrean european french "
    "fusion gastropub german greek halal hungarian indian indonesian international irish italian "
    "jamaican japanese korean kosher latin_american lebanese light_bites malaysian mediterranean "
    "mexican middle_eastern modern_american modern_eclectic modern_european modern_global "
    "molecular_gastronomy moroccan new_zealand north_african north_american north_indian "
    "northern_european panasian persian polish polynesian portuguese romanian russian scandinavian "
    "scottish seafood singaporean spanish sri_lankan steakhouse swedish swiss thai the_americas "
    "traditional turkish tuscan unusual vegetarian venetian vietnamese welsh world"
)
WRITTEN = ("entity_match", "task_success", "bleu")
SYSTEMS = {  # -> where a seed's line has their metrics
    "seq2seq-attention, predicted states": "",
    "seq2seq-attention, true states": "true states",
    "people (the corpus itself)": "corpus",
}
PUBLISHED = {  # of the test part, each with the authors' own delexicalisation
    "NDM (Wen et al. 2017)": (86.34, 75.16, 21.84),
    "NDM, attention and weighted decoding (Wen et al. 2017)": (90.88, 83.82, 23.04),
    "attentive NDM, best of a search (table of the authors' software)": (None, 80.1, 24.03),
}
HISTORY = 1  # turns that a response reads
RESPONSES: dict[str, Any] = {
    "data.dialogue": "response", "data.history": HISTORY, "task.metrics": ["bleu-lower"],
    "tokenizer.kind": "word", "tokenizer.lowercase": True, "tokenizer.min_count": 2,
    "train.epochs": 15, "train.batch_size": 16, "train.learning_rate": 0.003,
}  # fmt: skip


def split_camrest(source: Path, folder: Path) -> dict[str, str]:
    """Write the dialogues 3:1:1, in order, and return the files as settings."""
    with gzip.open(source, "rt", encoding="utf-8") as file:
        rows = json.loads("".join(line for line in file if not line.startswith("#")))
    ends = (0, len(rows) * 3 // 5, len(rows) * 4 // 5, len(rows))
    files = {}
    for part, first, last in zip(("train", "dev", "test"), ends, ends[1:], strict=False):
        path = folder / f"{part}.json"
        path.write_text(json.dumps(rows[first:last]), "utf-8")
        files[f"data.{part}"] = str(path)
    return files


def fit(recipe: str, values: dict[str, Any], folder: Path) -> Predictor:
    """Return the model of a run, which is trained unless it is there."""
    if (folder / "model").is_dir():
        return weft.load(folder)
    config = weft.recipe(recipe).with_values({**values, "train.threads": 1}, "bench")
    return weft.train(config, folder, quiet=True, device="cpu").predictor


def predict_states(tracker: Predictor, file: str) -> tuple[list[Dialogue], dict[str, Any]]:
    """Return the dialogues with predicted states, and the accuracy of these."""
    examples = list(carry_states(tracker, read_dialogue_examples(file, "update")))
    answers = [str(answer.value) for answer in tracker([one.text for one in examples])]
    metric = StateAccuracy()
    metric.add(answers, [str(one.label) for one in examples])
    found = iter(answers)
    dialogues = [
        replace(one, turns=tuple(
            turn if turn.state is None
            else replace(turn, state=tuple(parse_state(next(found)).items()))
            for turn in one.turns
        ))
        for one in read_dialogues(file)
    ]  # fmt: skip
    return dialogues, rounded(metric)


def score_responses(
    responses: Sequence[Sequence[str]],
    dialogues: Sequence[Dialogue],
    references: Sequence[Sequence[str]],
    database: EntityDatabase,
) -> dict[str, Any]:
    bleu, success = Bleu(lowercase=True), TaskSuccess(database, SLOTS)
    bleu.add([r for some in responses for r in some], [r for some in references for r in some])
    success.add(responses, dialogues)
    return rounded(bleu) | rounded(success)


def respond(
    model: Predictor, dialogues: Sequence[Dialogue], database: EntityDatabase
) -> list[list[str]]:
    """Return the delexicalised responses to each dialogue, whose other turns stay as they are."""
    texts = [
        [e.text for e in dialogue_examples(one, "response", HISTORY, database=database)]
        for one in dialogues
    ]
    answers = iter([str(answer.value) for answer in model([t for some in texts for t in some])])
    return [[next(answers) for _ in some] for some in texts]


def rounded(metric: Any) -> dict[str, Any]:
    return {
        name: {"value": round(one.value, 4), "low": round(one.low, 4), "high": round(one.high, 4),
               "n": one.n}
        for name, one in metric.compute().items()
    }  # fmt: skip


def train_vectors(data: Path, runs: Path) -> Path:
    """Return the file of word vectors that the tracker starts from, trained unless it is there."""
    path, text = runs / "wiki.vec", data.parent / "lm" / "wiki_en" / "train.txt.xz"
    if not path.exists():
        command = [sys.executable, "-m", "weft", "vectors", "train", str(text), "-o", str(path)]
        options = "--dim 128 --epochs 2 --min-count 5 --sample 1e-4 --threads 1"
        subprocess.run([*command, *options.split()], check=True, stdout=subprocess.DEVNULL)
    return path


def fulfil(data: Path, runs: Path, seed: int, part: str) -> dict[str, Any]:
    """Train a tracker and responses on CamRest676 and return the metrics of a part."""
    source, began = data / "camrest676", time.perf_counter()
    files = split_camrest(source / "dialogues.json.gz", runs)
    file = files[f"data.{part}"]
    del files["data.test"]
    synonyms = runs / "synonyms.json"
    synonyms.write_text(json.dumps(SYNONYMS), "utf-8")
    own = {**files, "data.database": str(source / "restaurants.json.gz"), "train.seed": seed}
    ontology = runs / "ontology.json"
    cuisines = [name.replace("_", " ") for name in CUISINES.split()]
    ontology.write_text(json.dumps({"food": cuisines}), "utf-8")
    states = {**own, "data.ontology": str(ontology), "data.synonyms": str(synonyms),
              "embedder.vectors": str(train_vectors(data, runs))}  # fmt: skip
    tracker = fit("dialogue-state", states, runs / f"states-{seed}")
    model = fit("seq2seq-attention", {**own, **RESPONSES}, runs / f"responses-{seed}")
    dialogues, accuracy = predict_states(tracker, file)
    true = list(read_dialogues(file))
    database = read_entities(source / "restaurants.json.gz")
    said = [
        [str(e.label) for e in dialogue_examples(one, "response", database=database)]
        for one in true
    ]
    return {
        "part": part, "seed": seed, **accuracy,
        **score_responses(respond(model, dialogues, database), dialogues, said, database),
        "true states": score_responses(respond(model, true, database), true, said, database),
        "corpus": score_responses(said, true, said, database),
        "parameters": {"states": tracker.parameters, "responses": model.parameters},
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def average(rows: Sequence[dict[str, Any]], name: str, system: str = "") -> dict[str, Any]:
    """Return a metric over seeds, in percent: mean, standard deviation, turns or dialogues."""
    found = [(row[system] if system else row)[name] for row in rows]
    percent = [one["value"] * (1 if name == "bleu" else 100) for one in found]
    spread = statistics.stdev(percent) if len(percent) > 1 else 0.0
    return {
        "mean": round(statistics.mean(percent), 2), "sd": round(spread, 2), "n": found[0]["n"],
    }  # fmt: skip


def summarise(record: Record, rows: Sequence[dict[str, Any]]) -> None:
    """Record the means of all seeds beside published figures."""
    about = {"part": rows[0]["part"], "seeds": len(rows)}
    tracked = {name: average(rows, name) for name in ("joint_goal_accuracy", "slot_f1")}
    record.line("dialogue, states", recipe="dialogue-state", **about, **tracked)
    for system, key in SYSTEMS.items():
        written = {name: average(rows, name, key) for name in WRITTEN}
        if key == "corpus":
            written["bleu"] = {"mean": None}  # its texts are the references
        record.line("dialogue, responses", system=system, **about, **written)
    for system, values in PUBLISHED.items():
        written = {name: {"mean": one} for name, one in zip(WRITTEN, values, strict=True)}
        record.line("dialogue, responses", system=system, part="test", seeds=1, **written)


def rank(file: Path, model: str, turns: int, dialogues: int) -> dict[str, Any]:
    """Recall@1 of 10 on the responses of the first `dialogues` dialogues."""
    contexts, responses, groups = [], [], []
    for number, dialogue in enumerate(read_dialogues(file)):
        if number == dialogues:
            break
        texts = [turn.text for turn in dialogue.turns]
        for i in range(1, len(texts)):
            contexts.append(" ".join(texts[max(0, i - turns) : i]))
            responses.append(texts[i])
            groups.append(number)
    began = time.perf_counter()
    encoder = weft.load(model)
    sides = [encoder.embed(some) for some in (contexts, responses)]
    x, y = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in sides)
    metric = ResponseRecall()
    metric.add(x @ y.T, groups)
    found = metric.compute()["recall_at_1"]
    return {
        "model": model, "turns": turns, "dialogues": max(groups) + 1,
        "recall_at_1": round(found.value, 4), "low": round(found.low, 4),
        "high": round(found.high, 4), "n": found.n,
        "seconds": round(time.perf_counter() - began, 1),
    }  # fmt: skip


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--data", required=True)
    parser.add_argument("--parts", default="task,ranking")
    parser.add_argument("--part", default="test", choices=("dev", "test"), help="of CamRest676")
    parser.add_argument("--runs", default="", help="keeps runs; those in it are not repeated")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--dialogues", type=int, default=200)
    parser.add_argument("--file", default="en_test.txt.gz", help="of dailydialog/")
    given = parser.parse_args()
    record, data = Record(given.record), Path(given.data)
    for part in given.parts.split(","):
        if part == "ranking":
            found = rank(data / "dailydialog" / given.file, "minilm", given.turns, given.dialogues)
            record.line("dialogue, ranking", file=given.file, **found)
            continue
        with tempfile.TemporaryDirectory() as temporary:
            runs = Path(given.runs or temporary)
            runs.mkdir(parents=True, exist_ok=True)
            rows = []
            for seed in range(1, given.repeats + 1):
                rows.append(fulfil(data, runs, seed, given.part))
                record.line("dialogue, task", **rows[-1])
            summarise(record, rows)


if __name__ == "__main__":
    main()

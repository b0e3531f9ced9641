"""How good is coreference? One JSON line a training, then one a mean over seeds or folds.

    python bench/coreference.py --data DATA --sets ontogum,litbank --recipes coref-bilstm
    python bench/coreference.py --data DATA --recipes coref-bert --pretrained MINILM \
        --device cuda --workers 8

OntoGUM: trained on train, chosen on dev, scored on test and on test2, whose genres training never
saw. LitBank has singletons and no split: 10 folds of the documents by index mod 10; the next fold
is dev. `conll` is the mean F1 of MUC, B³ and CEAF-e. Models of OntoGUM also answer GAP's test part
(`--gap`): a name is coreferent if a mention that ends with it, or lies in it, is in the chain of
the pronoun; F1 over all names. A document with an unbalanced bracket keeps its other mentions.
Data named `litbank+vectors` also read the vectors of `--vectors FILE`, frozen, beside the learned
rows. `--margins 0,1,2` scores dev with other values of head.link_margin, too, after training.
"""

import csv
import gzip
import io
from pathlib import Path
from typing import Any

import trials
from record import Record
from tagging import given as add_vectors
from trials import Job, Parts

import weft
from weft.config import with_pretrained
from weft.text.example import Example
from weft.text.formats.semantics.coreference import read_documents

NAMES = ("data", "recipe", "variant", "seed")
METRICS = ("conll", "muc_f1", "b_cubed_f1", "ceaf_e_f1", "lea_f1", "mention_f1")
DETAILS = [f"{m}_{side}" for m in ("b_cubed", "ceaf_e") for side in ("precision", "recall")]
FOLDS = 10


def read_part(path: Path, limit: int) -> list[Example]:
    return [one.to_example() for one in read_documents(path) if one.words][: limit or None]


def load(root: str, name: str, fold: int, limit: int) -> Parts:
    """The parts of a data set; of LitBank, those of a fold."""
    name = name.partition("+")[0]
    folder = Path(root) / "coreference" / name
    if name != "litbank":
        return {
            part: read_part(folder / f"{part}.conll.gz", limit)
            for part in ("train", "dev", "test", "test2")
        }
    documents = read_part(folder / "litbank.conll.gz", limit)
    parts: Parts = {"train": [], "dev": [], "test": []}
    for number, document in enumerate(documents):
        own = {fold: "test", (fold + 1) % FOLDS: "dev"}.get(number % FOLDS, "train")
        parts[own].append(document)
    return parts


def trial(job: Job) -> Job:
    """Train once and measure."""
    return trials.attempt(job, NAMES, trained)


def trained(job: Job, folder: Path) -> Job:
    parts = load(job["root"], job["data"], job["seed"] - 1, job["limit"])
    config = trials.configured(job)
    if config["recipe"].get("pretrained"):
        config = with_pretrained(config, job["pretrained"])
    if job["data"].endswith("+vectors"):
        path = folder / "tokenizer.json"
        more = add_vectors(config.sections, job["vectors"], parts, path)
        config = config.with_values(more, "bench")
    out = weft.train(
        config, folder / "run", splits=trials.splits(parts), quiet=True, device=job["device"]
    )
    found = {
        f"{part}_{name}": round(100 * figures[name].value, 2)
        for part, figures in out.figures.items()
        for name in (*METRICS, *DETAILS)
    }
    if job["margins"]:
        found |= try_margins(out.predictor, parts["dev"], job["margins"])
    if "test2" in parts:
        found |= score_part(out.predictor, parts["test2"], "test_unseen_genres")
    if job["gap"]:
        found |= probe_gap(out.predictor, Path(job["root"]), job["limit"])
    found |= trials.epochs(folder / "run")
    return {**found, "seconds": round(out.record["seconds"], 1)}


def try_margins(predictor: Any, examples: list[Example], margins: str) -> Job:
    """`conll` of some documents with other margins of a link."""
    head, found = predictor.engine.model.head, {}
    own = head.link_margin
    for margin in margins.split(","):
        head.link_margin = float(margin)
        name = f"dev_margin_{margin}"
        found[name] = score_part(predictor, examples, name)[f"{name}_conll"]
    head.link_margin = own
    return found


def score_part(predictor: Any, examples: list[Example], name: str) -> Job:
    """The scores of some documents."""
    task, space = predictor.task, predictor.space
    metric = task.build_metric(space)
    ours = task.predict_targets(predictor.engine.predict(examples).scores, space)
    metric.add(ours, [task.find_reference(one) for one in examples])
    values = metric.compute()
    return {f"{name}_{key}": round(100 * values[key].value, 2) for key in METRICS}


def probe_gap(predictor: Any, root: Path, limit: int) -> Job:
    """F1 of GAP's test part: whether each of two names is coreferent with a pronoun."""
    raw = gzip.open(root / "coreference/gap/gap-test.tsv.gz").read().decode()
    reader = csv.DictReader(io.StringIO(raw), delimiter="\t", quoting=csv.QUOTE_NONE)
    rows = list(reader)[: limit or None]
    right = wrong = missed = 0
    for row, answer in zip(rows, predictor([row["Text"] for row in rows]), strict=True):
        at = int(row["Pronoun-offset"])
        spans = [[(m["start"], m["end"]) for m in one["mentions"]] for one in answer.value]
        chain = [s for own in spans if (at, at + len(row["Pronoun"])) in own for s in own]
        for side in "AB":
            start = int(row[f"{side}-offset"])
            end = start + len(row[side])
            linked = any(e == end or (start <= s and e <= end) for s, e in chain)
            gold = row[f"{side}-coref"].upper() == "TRUE"
            right += linked and gold
            wrong += linked and not gold
            missed += gold and not linked
    f1 = 200 * right / max(2 * right + wrong + missed, 1)
    return {"test_gap_f1": round(f1, 2), "gap_n": len(rows)}


def main() -> None:
    parser = trials.options(__doc__, "coref-bilstm")
    parser.add_argument("--sets", default="ontogum,litbank")
    parser.add_argument("--pretrained", default="", help="folder of a checkpoint, for coref-bert")
    parser.add_argument("--folds", type=int, default=FOLDS, help="of LitBank, the first ones")
    parser.add_argument("--gap", action="store_true", help="let models of OntoGUM answer GAP")
    parser.add_argument("--margins", default="", help="of links, tried on dev")
    parser.add_argument("--limit", type=int, default=0, help="documents of each part")
    asked = trials.asked(parser)
    record = Record(asked.record)
    jobs = []
    for plan in trials.plans(asked, asked.sets.split(",")):
        folds = plan["data"].startswith("litbank")
        own = {
            "pretrained": asked.pretrained,
            "limit": asked.limit,
            "margins": asked.margins,
            "gap": asked.gap and plan["data"].startswith("ontogum"),
        }
        plan = {**plan, "seeds": plan.get("folds", asked.folds)} if folds else plan
        jobs += [{**own, **job} for job in trials.seeded(asked, [plan])]
    rows = trials.ran(record, "coreference", trial, jobs, asked.workers)
    for row in trials.means(rows, ("data", "recipe", "variant")):
        record.line("coreference", **row)


if __name__ == "__main__":
    main()

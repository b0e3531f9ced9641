"""Does the data doctor find what was planted, and how long does it take? One JSON line a figure.

    python bench/doctor.py --data DATA --seeds 10

DATA is a folder laid out as <task>/<data set>/… (see docs/benchmarks.md). Leaks are planted in
copies of TREC, banking77 and MR: 50 texts of train as they are, and 50 with one word changed for
another word of the corpus, another case and more spaces. `--scale 100000,1000000` times generated
files of these sizes, `--signatures` compares rensa with datasketch on the questions of TREC.
"""

import os
import random
import resource
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from record import Record, options

from weft.doctor import examine
from weft.doctor.checks.duplicates import DuplicateIndex
from weft.doctor.checks.label_variants import find_variants
from weft.doctor.survey import survey_sources
from weft.doctor.words import normalise, split_words
from weft.text.example import Example
from weft.text.read import Columns, read

PLANTED = 50
Data = dict[str, list[Example]]


def trec(root: Path) -> Data:
    columns = Columns(text=2, label=0)
    folder = root / "classification/trec"
    return {part: list(read(folder / f"{part}.tsv", columns=columns)) for part in ("train", "test")}


def banking77(root: Path) -> Data:
    folder = root / "classification/banking77"
    return {part: list(read(folder / f"{part}.csv")) for part in ("train", "test")}


def mr(root: Path) -> Data:
    rows = list(read(root / "classification/mr/all.tsv", columns=Columns(text=1, label=0)))
    random.Random(0).shuffle(rows)
    cut = len(rows) // 10
    return {"train": rows[cut:], "test": rows[:cut]}


SETS: dict[str, Callable[[Path], Data]] = {"trec": trec, "banking77": banking77, "mr": mr}


def leaking(data: Data) -> dict[tuple[int, int], float]:
    """{(row of test, row of train): score} that the doctor reports; 1.0 is an exact copy."""
    found = survey_sources({name: rows.__iter__ for name, rows in data.items()})
    shift = found.splits[1].start
    return {
        (int(row) - shift, int(there)): float(score)
        for leak in DuplicateIndex(found).leaks()
        for (row, there), score in zip(leak.rows, leak.scores, strict=True)
    }


def changed(text: str, pool: list[str], rng: random.Random, how: str) -> str:
    """A near copy: one word replaced, or another case, or more spaces, or all of it."""
    cut = text.split()
    if how in ("word", "all"):
        place = rng.randrange(len(cut))
        old = cut[place]
        while cut[place] == old:
            cut[place] = rng.choice(pool)
    out = " ".join(cut)
    if how in ("case", "all"):
        out = rng.choice([str.upper, str.lower, str.title, str.swapcase])(out)
    if how in ("spaces", "all"):
        out = "".join(c + " " * rng.randrange(3) if c == " " else c for c in f" {out} ")
    return out


def planted(data: Data, seed: int, mixed: bool, kinds: bool) -> tuple[Data, list[int]]:
    """The data with 100 copies from train added to test, and their rows there.

    The new word is drawn from the running words, or with `kinds` from the different ones, which
    makes it a rare one.
    """
    rng = random.Random(seed)
    running = [word for e in data["train"] for word in e.text.split()]
    pool = sorted(set(running)) if kinds else running
    chosen = rng.sample(data["train"], 2 * PLANTED)
    ways = ("word", "case", "spaces") if mixed else ("all",)
    near = [
        replace(e, text=changed(e.text, pool, rng, ways[i % len(ways)]))
        for i, e in enumerate(chosen[PLANTED:])
    ]
    test = [*data["test"], *chosen[:PLANTED], *near]
    rows = list(range(len(data["test"]), len(test)))
    return {"train": data["train"], "test": test}, rows


def leaks(record: Record, name: str, data: Data, seeds: int) -> None:
    untouched = leaking(data)
    exact = {pair for pair, score in untouched.items() if score == 1}
    near = sorted((score, pair) for pair, score in untouched.items() if score < 1)
    record.line(
        "leaks reported, untouched",
        data=name,
        exact=len(exact),
        near=len(near),
        test=len(data["test"]),
    )
    for score, (row, there) in near[::-1][: 20 if name == "trec" else 5]:
        pair = [data["test"][row].text, data["train"][there].text]
        record.line(
            "near copies in the untouched files", data=name, score=round(score, 2), pair=pair
        )
    if name == "trec":
        for row, there in sorted(exact):
            pair = [data["test"][row].text, data["train"][there].text]
            record.line("copies in the untouched files", data=name, pair=pair)
    for mixed in (True, False):
        for kinds in (False, True):
            found = []
            for seed in range(seeds):
                test, rows = planted(data, seed, mixed, kinds)
                hit = {row for row, _ in leaking(test)}
                found.append(len(hit & set(rows)))
            record.line(
                "planted copies found of 100",
                data=name,
                near="a third each: word, case, spaces" if mixed else "word, case and spaces",
                word="any different word" if kinds else "any running word",
                found=found,
                least=min(found),
                mean=round(sum(found) / len(found), 1),
            )


def typo(label: str, rng: random.Random, kind: str) -> str:
    """A label with a slip."""
    inner = [i for i in range(len(label) - 1) if label[i : i + 2].isalpha()]
    at = rng.choice(inner)
    if kind == "swap":
        swaps = [i for i in inner if label[i].lower() != label[i + 1].lower()]
        at = rng.choice(swaps)
        return label[:at] + label[at + 1] + label[at] + label[at + 2 :]
    return {
        "drop": label[:at] + label[at + 1 :],
        "double": label[: at + 1] + label[at] + label[at + 1 :],
        "other": label[:at] + ("x" if label[at].islower() else "X") + label[at + 1 :],
        "case": label.swapcase(),
        "space": f" {label}",
        "separator": label.replace("_", " ") if "_" in label else label.replace(":", " :"),
        "plural": f"{label}s",
    }[kind]


def typos(record: Record, name: str, labels: list[str], seeds: int) -> None:
    counts = Counter(labels)
    record.line(
        "label typos reported, untouched",
        data=name,
        labels=len(counts),
        found=len(find_variants(counts)),
    )
    if not any(map(str.isalpha, "".join(counts))):
        return  # numbers: no slip can be told from another number
    kinds = ("swap", "drop", "double", "other", "case", "space", "plural")
    found, right, extra, missed = [], 0, [], []
    for seed in range(seeds):
        rng = random.Random(seed)
        spoilt = list(labels)
        slips: dict[str, str] = {}
        for kind in rng.sample(kinds, 5):
            row = rng.randrange(len(labels))
            slip = typo(labels[row], rng, kind)
            slips[slip] = labels[row]
            spoilt[row] = slip
        told = {twin.label: twin.meant for twin in find_variants(Counter(spoilt))}
        found.append(sum(slip in told for slip in slips))
        right += sum(told.get(slip) == meant for slip, meant in slips.items())
        missed += [f"{slip} for {meant}" for slip, meant in slips.items() if slip not in told]
        extra.append(len(set(told) - set(slips)))
    record.line(
        "planted label typos found of 5",
        data=name,
        found=found,
        meant=f"{right} of {5 * seeds}",  # XUM is as near to HUM as to NUM
        false=extra,
        missed=missed,
    )


def generated(rows: int, seed: int = 0) -> Iterator[Example]:
    """Texts of 4 to 20 words by Zipf's law, one in a hundred a near copy of an earlier one."""
    rng = np.random.default_rng(seed)
    before = ""
    for row in range(rows):
        if row % 100 == 99:
            cut = before.split()
            cut[int(rng.integers(len(cut)))] = "changed"
            text = " ".join(cut)
        else:
            picked = rng.zipf(1.3, int(rng.integers(4, 21))) % 200_000
            text = " ".join(f"w{number}" for number in picked.tolist())
        before = text if row % 100 < 50 else before
        yield Example(text, f"class {row % 7}", file="generated", line=row + 1)


def scale(record: Record, sizes: list[int]) -> None:
    taken = {}
    for size in sizes:
        began = time.process_time()
        for _ in generated(size):
            pass
        making = time.process_time() - began
        began, clock = time.process_time(), time.perf_counter()
        found = examine({"train": lambda n=size: generated(n), "test": lambda: generated(1000, 1)})
        taken[size] = time.process_time() - began - making  # others may use the processor too
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        near = next(f.count for f in found.findings if f.kind == "near duplicate")
        record.line(
            "doctor time",
            rows=size,
            processor_seconds=round(taken[size], 1),
            with_making=round(time.perf_counter() - clock, 1),
            peak_gb=round(peak, 2),
            near=near,
        )
    if len(sizes) > 1:
        ratio = taken[sizes[-1]] / taken[sizes[0]]
        record.line("doctor time ratio", rows=[sizes[0], sizes[-1]], ratio=round(ratio, 1))


def signatures(record: Record, data: Data) -> None:
    """The same pairs, one word changed, through the index of each library."""
    import datasketch
    import rensa

    rng = random.Random(0)
    pool = [word for e in data["train"] for word in e.text.split()]
    texts = [normalise(e.text) for e in data["train"]]
    sets = [sorted(set(split_words(text))) for text in texts]
    copies = [
        sorted(set(split_words(normalise(changed(t, pool, rng, "word"))))) for t in texts[:500]
    ]
    for name in ("rensa", "datasketch"):
        began = time.perf_counter()
        if name == "rensa":
            index = rensa.RMinHashLSH(0.5, 96, 32)
            index.insert_many(rensa.RMinHash.from_token_sets(sets, 96, 7))
            queries = rensa.RMinHash.from_token_sets(copies, 96, 7)
        else:
            index = datasketch.MinHashLSH(num_perm=96, params=(32, 3))
            for key, words_ in enumerate(sets):
                one = datasketch.MinHash(96, seed=7)
                one.update_batch([word.encode() for word in words_])
                index.insert(key, one)
            queries = datasketch.MinHash.bulk(
                [[w.encode() for w in c] for c in copies], num_perm=96, seed=7
            )
        answers = [index.query(query) for query in queries]
        seconds = time.perf_counter() - began
        hits = sum(place in answer for place, answer in enumerate(answers))
        record.line(
            "MinHash and index of questions",
            library=name,
            texts=len(sets),
            seconds=round(seconds, 2),
            recall=round(hits / len(answers), 3),
            candidates=round(sum(map(len, answers)) / len(answers), 1),
        )


def main() -> None:
    parser = options(__doc__, 1)
    parser.add_argument("--data", default=os.environ.get("WEFT_DATA", ""))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--sets", default="trec,banking77,mr")
    parser.add_argument("--scale", default="", help="numbers of rows, as 100000,1000000")
    parser.add_argument("--signatures", action="store_true")
    asked = parser.parse_args()
    record = Record(asked.record)
    if asked.data:
        root = Path(asked.data)
        if asked.signatures:
            signatures(record, trec(root))
        for name in asked.sets.split(",") if asked.sets else ():
            data = SETS[name](root)
            leaks(record, name, data, asked.seeds)
            typos(record, name, [str(e.label) for e in data["train"]], asked.seeds)
            if name == "trec":
                fine = read(
                    root / "classification/trec/train.tsv", columns=Columns(text=2, label=1)
                )
                typos(record, "trec, 50 labels", [str(e.label) for e in fine], asked.seeds)
    if asked.scale:
        scale(record, [int(size) for size in asked.scale.split(",")])


if __name__ == "__main__":
    main()

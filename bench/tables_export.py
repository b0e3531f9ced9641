"""How the figures of exports and pages become tables."""

import statistics

from tables import Figures, Row, Section, Table, mark, ranged, verdict
from tables_vectors import Grid, Sheet

SPEED = {"bilstm": 1.0, "mini": 0.9}  # texts a second, times those of torch
FIRST = {"bilstm": 0.6, "mini": 1.2}  # seconds to the first answer of a process
WRITTEN = 2.0  # seconds of an export
PAGE = {True: 0.3, False: 6.0}  # MB of a page beside its model; True: without WebAssembly
CLASSIC = ("tfidf", "fasttext", "crf", "kneser-ney")


def speed(line: Figures) -> Row:
    ratio, cpu, peer = (line.get(key) for key in ("ratio", "cpu_ratio", "cpu_ratio_to_peer"))
    bar = SPEED.get(line["model"]) if line["weights"] == "float32" else None
    return (
        line["model"], line["weights"], str(line.get("threads", "–")), f"{line['texts']:,}",
        ranged(ratio, 2, "×"), verdict(ratio["median"], bar),
        ranged(cpu, 2, "×") if cpu else "–", ranged(peer, 2, "×") if peer else "–",
        str(ratio["n"]),
    )  # fmt: skip


def first_answer(line: Figures) -> Row:
    seconds, cpu = line["seconds"], line.get("cpu_seconds")
    bar = FIRST.get(line["model"])
    return (
        line["model"], line["weights"], f"{seconds['low']:.2f}",
        verdict(seconds["low"], bar, above=False), f"{cpu['low']:.2f}" if cpu else "–",
        "yes" if line["torch"] else "no", str(seconds["n"]),
    )  # fmt: skip


def agreement(line: Figures) -> Row:
    least = 1.0 if line["weights"] == "float32" else 0.995
    return (
        line["model"], line["weights"], f"{line['equal']:,} of {line['n']:,}",
        mark(line["equal"] >= least * line["n"]), f"{line['max_difference']:.1e}",
    )  # fmt: skip


def size(line: Figures) -> Row:
    return (
        line["model"], line["weights"], f"{line['parameters']:,}", f"{line['bytes'] / 1e6:.2f}",
        f"{line['seconds']:.1f}",
    )  # fmt: skip


def recipes(lines: list[Figures]) -> list[Sheet]:
    """One row for each task, then every recipe that differs or is refused."""
    tasks: dict[str, list[Figures]] = {}
    odd: list[Row] = []
    for line in lines:
        tasks.setdefault(line["task"], []).append(line)
        if "refused" in line:
            odd.append((line["recipe"], line["task"], f"refused: {line['refused']}"))
        elif line["equal"] + line["ties"] < line["n"] or line["max_difference"] > 1e-4:
            wrong = line["n"] - line["equal"] - line["ties"]
            found = f"{wrong} of {line['n']} differ, scores by {line['max_difference']:.1e}"
            odd.append((line["recipe"], line["task"], found))
    rows: list[Row] = []
    for task, own in sorted(tasks.items()):
        kept = [one for one in own if "refused" not in one]
        if not kept:
            continue
        inputs, equal, ties = (sum(one[key] for one in kept) for key in ("n", "equal", "ties"))
        slowest = max(one["seconds"] for one in kept)
        rows.append((
            task, str(len(own)), f"{inputs:,}", f"{equal:,}", str(ties),
            mark(equal + ties == inputs), f"{max(one['max_difference'] for one in kept):.1e}",
            f"{statistics.median(one['seconds'] for one in kept):.2f}",
            f"{slowest:.2f}", verdict(slowest, WRITTEN, above=False),
        ))  # fmt: skip
    columns = ("task", "recipes", "inputs", "equal", "ties", "all", "largest gap", "seconds",
               "slowest", "bar")  # fmt: skip
    sheets = [Sheet("", columns, rows)]
    if odd:
        sheets.append(Sheet("Exceptions", ("recipe", "task", "what"), odd))
    return sheets


def pages(lines: list[Figures]) -> list[Sheet]:
    """A row for each page."""
    rows: list[Row] = []
    for line in lines:
        classic = line["recipe"] in CLASSIC
        # The model stands in the page as base64 of gzip; the rest is what a bar is about.
        packed = line.get("packed_bytes")
        beside = None if packed is None else (line["page_bytes"] - packed) / 1e6
        rows.append((
            line["question"], line["recipe"] or "–",
            f"{line['texts'] - line['answers_that_differ']} of {line['texts']}",
            f"{line['written'] - line['written_that_differ']} of {line['written']}"
            if "written" in line else "–",
            str(line["requests"]), str(line["console_errors"]),
            mark(not any((line["answers_that_differ"], line["requests"], line["console_errors"],
                          line.get("written_that_differ")))),
            f"{line['page_bytes'] / 1e6:.2f}",
            "–" if beside is None else f"{beside:.2f}",
            "–" if beside is None else verdict(beside, PAGE[classic], above=False),
            f"{line['ready_seconds']:.1f}", f"{line['milliseconds_per_text']:.1f}",
        ))  # fmt: skip
    columns = ("model", "recipe", "equal answers", "equal texts", "requests", "errors", "all",
               "page, MB", "without the model", "bar", "ready, s", "ms a text")  # fmt: skip
    return [Sheet("", columns, rows)]


SECTIONS = (
    Section(
        "Exports",
        "An export beside the model that it was made from, as torch runs it. Ratios are texts per "
        "second, median [lowest, highest]; those in seconds of CPU hardly depend on what else the "
        "machine does. The peer is MiniLM of transformers, traced to ONNX and run in the same "
        "onnxruntime, in batches of 32 texts of similar length. `mini` is a classifier on "
        "all-MiniLM-L6-v2.",
        (
            Table(
                "export speed",
                ("model", "weights", "threads", "texts", "to torch", "bar", "to torch, CPU",
                 "to the peer, CPU", "n"),
                speed,
            ),
            Table(
                "export first answer",
                ("model", "weights", "first answer, s", "bar", "CPU, s", "imports torch", "n"),
                first_answer,
                "The first answer of a fresh process, imports included: the fastest.",
            ),
            Table(
                "export agreement", ("model", "weights", "equal", "bar", "largest gap"), agreement,
                "Texts of any kind in batches of 1, 2, 33 and all at once.",
            ),
            Table(
                "export size", ("model", "weights", "parameters", "MB", "seconds"), size,
                "Seconds to write an export and to compare its answers with those of the model.",
            ),
        ),
    ),
    Section(
        "Every recipe",
        "A tiny model of each recipe, exported: 200 inputs (40 recordings or pictures), among them "
        "empty ones, single words, emoji and very long ones, in batches of 1, 2 and 33. Ties are "
        "structures of the same probability. Seconds are those of writing, without a comparison.",
        (Grid(("export of a recipe",), recipes),),
    ),
    Section(
        "Pages",
        "Small models as web pages, opened from the disk in headless Chromium and compared with "
        "Python: answers and their scores to 1e-4, and texts that are written with five searches.",
        (
            Grid(
                ("classify, *", "tag, *", "language, *", "parse", "text pairs, *",
                 "answer spans, *", "translation, *", "constituents", "sentence vectors, *"),
                pages,
            ),
        ),
    ),
)  # fmt: skip

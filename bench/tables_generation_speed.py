"""How the speed of writing, and of learning to write, becomes tables: processors and a GPU."""

import re
from collections.abc import Iterable, Iterator

from tables import Figures, Row, Section, Table, mark, ranged, verdict
from tables_vectors import Grid, Sheet

# Times as fast as a peer, by the rows of a batch.
ON_PROCESSOR = {(1, "transformers"): 2.5, (32, "transformers"): 1.5,
                **{(rows, "ctranslate2"): 0.9 for rows in (1, 32)}}  # fmt: skip
ON_GPU = {("gpt", 1): 5.0, ("gpt", 32): 3.0, ("marian", 1): 20.0, ("marian", 64): 6.0}
PEERS = {"gpt": "transformers, compiled", "marian": "transformers"}  # whom the bars name
TRAINED, USED = 1.35, 55.0  # times transformers, and the percent of the device's peak aimed at
ALIKE = 0.01  # nats between the losses of the same update
STEPWISE, TWICE = 1.0, 2.0  # times a bare loop over torch.nn.LSTM: the bar, and the aim
NATS, SECONDS = 1.47, 180.0  # a character, and the time to reach it
SHOWN = 10  # evaluations of a curve
SYSTEMS = {
    "weft": "Weft", "weft int8": "Weft, int8", "transformers": "transformers",
    "ctranslate2": "CTranslate2", "ctranslate2 int8": "CTranslate2, int8",
}  # fmt: skip
LEARNERS = {
    "weft": "Weft, blocks compiled", "weft, eager": "Weft, not compiled",
    "weft, cuDNN attention": "Weft, blocks compiled, attention by cuDNN",
    "weft, loop of its own": "Weft, blocks compiled, in a bare loop",
    "weft, loop of its own, torch's attention": "the same, attention as torch chooses",
    "weft, whole": "Weft, compiled as a whole", "transformers": "transformers, compiled",
}  # fmt: skip

BATCH = re.compile(r"batch (\d+): (same as |weft, times |)(.+)")
WRITING = re.compile(r"(gpt|marian) decoding, (\w+), batch (\d+), (.+)")
LSTM = re.compile(r"lstm 2 × (\d+), (.+)")
OVER = re.compile(r"(.+) over (.+)")


def on_processor(lines: list[Figures]) -> list[Sheet]:
    """A row a system and size of batch: its own speed, and how Weft compares."""
    found: dict[tuple[int, str], Figures] = {}
    for line in lines:
        match = BATCH.fullmatch(line["question"])
        if match:
            rows, _, system = match.groups()
            found.setdefault((int(rows), system), {}).update(line)
    rows = [
        _writer(size, system, line)
        for (size, system), line in sorted(found.items(), key=_by_batch)
        if "sentences_per_second" in line
    ]
    columns = (
        "batch", "system", "sentences a second", "ms a step", "Weft in fp32 is faster", "bar",
        "the same sentences as Weft", "scores apart", "n",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def _by_batch(item: tuple[tuple[int, str], Figures]) -> tuple[int, int]:
    (size, system), _ = item
    return size, list(SYSTEMS).index(system)


def _writer(size: int, system: str, line: Figures) -> Row:
    ratio, rate = line.get("ratio"), line["sentences_per_second"]
    same, apart = "–", "–"
    if "equal" in line:
        all_alike = mark(line["equal"] == line["of"])
        # Weights of 8 bits are other weights: nobody promised the same sentences.
        same = f"{line['equal']} of {line['of']}" + ("" if "int8" in system else f" {all_alike}")
        apart = f"{max(line['score_distance'], line['score_distance_of_others']):.0e}"
    return (
        str(size), SYSTEMS[system], ranged(rate), f"{line['ms_per_step']:.1f}",
        ranged(ratio, 2, "×") if ratio else "–",
        verdict(ratio["median"], ON_PROCESSOR.get((size, system))) if ratio else "–",
        same, apart, str(rate["n"]),
    )  # fmt: skip


def on_gpu(lines: list[Figures]) -> list[Sheet]:
    """A table a model: every way of taking a step, and the fastest of ours beside the peer."""
    sheets = []
    for model, title, unit in (
        ("gpt", "GPT-2 small, greedy", "tokens"),
        ("marian", "Marian, beam of five", "sentences"),
    ):
        found, ratios = _ways(lines, model)
        rows = [
            _way(key, line, ratios.get(key, {}), unit)
            for key, line in found.items()
            if f"{unit}_per_second" in line
        ]
        columns = (
            "batch", "numbers", "way", f"{unit} a second", "times as fast as transformers", "bar",
            "equal to step by step", "first call, s", "n",
        )  # fmt: skip
        if rows:
            sheets.append(Sheet(title, columns, rows))
    return sheets


Way = tuple[str, str, int, str]  # model, numbers, rows of a batch, way


def _ways(
    lines: Iterable[Figures], model: str
) -> tuple[dict[Way, Figures], dict[Way, dict[str, Figures]]]:
    """What is known of each way, and its ratios to the peers."""
    found: dict[Way, Figures] = {}
    ratios: dict[Way, dict[str, Figures]] = {}
    for line in lines:
        match = WRITING.fullmatch(line["question"])
        if not match or match[1] != model or "error" in line:
            continue
        key = (model, match[2], int(match[3]), match[4])
        over = OVER.fullmatch(match[4])
        if over and "ratio" in line:
            ratios.setdefault((*key[:3], over[1]), {})[over[2]] = line["ratio"]
        else:
            found.setdefault(key, {}).update(line)
    return found, ratios


def _way(key: Way, line: Figures, ratios: dict[str, Figures], unit: str) -> Row:
    model, kind, rows, way = key
    rate = line[f"{unit}_per_second"]
    times = "; ".join(
        f"{ranged(ratio, 1, '×')}{name.removeprefix('transformers')}"
        for name, ratio in ratios.items()
    )
    bar = ON_GPU.get((model, rows)) if PEERS[model] in ratios else None
    kept = verdict(ratios[PEERS[model]]["median"], bar) if bar else "–"
    # What could not be compiled or captured went on without.
    fell = " (gave up)" if line.get("trouble") else ""
    return (
        str(rows), kind, f"{way.replace('weft', 'Weft')}{fell}",
        ranged(rate, 0 if unit == "tokens" else 1), times or "–", kept, _equal(way, line),
        f"{line['first_s']:.1f}", str(rate["n"]),
    )  # fmt: skip


def _equal(way: str, line: Figures) -> str:
    """Rows that are as the plain steps wrote them; where they differ, from where or how far."""
    count = line.get("equal_to_eager", line.get("equal"))
    told = f"{count} of {line['of']}"
    if way.startswith("weft") and way != "weft, step by step":
        told += f" {mark(count == line['of'])}"
    if count == line["of"]:
        return told
    if "tokens_before_they_differ" in line:
        return f"{told}, alike for {line['tokens_before_they_differ']:.0f} tokens"
    return f"{told}, others {line['score_distance_of_others']:.0e} apart"


def learning(lines: list[Figures]) -> list[Sheet]:
    """Updates of GPT-2 small, each way."""
    found: dict[str, Figures] = {}
    ratios: dict[str, Figures] = {}
    apart: Figures = {}
    for line in lines:
        what = line["question"].removeprefix("gpt training, ")
        if "distance" in line:
            apart.update(line["distance"])
        elif "ratio" in line:
            ratios[what.removesuffix(" over transformers")] = line["ratio"]
        elif "tokens_per_second" in line:
            found[what] = line
    rows = [_learner(name, line, ratios.get(name), apart) for name, line in found.items()]
    columns = (
        "way", "tokens a second", "times as fast as transformers", "bar", "MFU %", "aim",
        "losses apart", "bar", "memory GB", "n",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def _learner(name: str, line: Figures, ratio: Figures | None, apart: Figures) -> Row:
    ours, used = name.startswith("weft"), 100 * line["mfu"]
    far = apart.get(name)
    return (
        LEARNERS.get(name, name), ranged(line["tokens_per_second"], 0),
        ranged(ratio, 2, "×") if ratio else "–",
        verdict(ratio["median"], TRAINED) if ratio else "–",
        f"{used:.1f}", verdict(used, USED) if ours else "–",
        "–" if far is None else f"{far:.4f}",
        "–" if far is None else verdict(far, ALIKE, above=False),
        f"{line['memory_gb']:.1f}", str(line["tokens_per_second"]["n"]),
    )  # fmt: skip


def losses(lines: list[Figures]) -> list[Sheet]:
    """The loss over a large vocabulary in chunks: how much faster, and how exact."""
    errors = {"float32": 0.0, "bfloat16": 0.0}
    good, timed = True, []
    for line in lines:
        if "relative_error" in line:
            worst = max(map(float, line["relative_error"]))
            errors[line["dtype"]] = max(errors[line["dtype"]], worst)
            good &= line["good"]
        elif "seconds" in line:
            timed.append(line)
    rows: list[Row] = []
    for line in timed:
        ways = [{k: v if k == "n" else 1e3 * v for k, v in line["seconds"][w].items()}
                for w in ("chunks", "plain")]  # fmt: skip
        exact = " / ".join(f"{error:.0e}" for error in errors.values())
        rows.append((
            f"{line['rows']:,} × {line['words']:,}", *(ranged(way, 1) for way in ways),
            f"{ways[1]['median'] / ways[0]['median']:.1f}×",
            f"{exact} {mark(good)}" if any(errors.values()) else "–", str(ways[0]["n"]),
        ))  # fmt: skip
    columns = (
        "places × words", "in chunks, ms", "plain, ms", "times as fast",
        "relative error fp32 / bf16, ≤ 1e-5 / 2e-2", "n",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def few(lines: list[Figures]) -> list[Sheet]:
    """Products of few rows by our kernels beside PyTorch's, and the largest of many numbers."""
    rows: list[Row] = []
    for line in lines:
        if "microseconds" in line:
            taken = line["microseconds"]
            usual, ours = taken["usual"], taken["kernel as chosen"]
            rows.append((_products(line["question"]), f"{usual:.1f}", f"{ours:.1f}",
                         f"{usual / ours:.1f}×", f"{line['apart']:.0e}"))  # fmt: skip
        elif "topk_us" in line:
            usual, ours = line["topk_us"], line["kernel_us"]
            rows.append((line["question"], f"{usual:.1f}", f"{ours:.1f}", f"{usual / ours:.1f}×",
                         f"the same {mark(line['same'])}"))  # fmt: skip
    columns = ("what", "PyTorch, µs", "Weft, µs", "times as fast", "apart")
    return [Sheet("", columns, rows)] if rows else []


def _products(question: str) -> str:
    return re.sub(r"few, (\d+) rows?, (\d+) to (\d+)", r"norm and product, \1 × \2 to \3", question)


def recurrent(lines: list[Figures]) -> list[Sheet]:
    """Weft beside the bare loop, on every device that was measured."""
    found: dict[tuple[str, str], Figures] = {}
    for line in lines:
        match = LSTM.fullmatch(line["question"])
        if match and "error" not in line:
            found.setdefault((line.get("device", "–"), match[1]), {})[match[2]] = line
    rows = [row for (where, size), known in found.items() for row in _loops(where, size, known)]
    columns = (
        "device", "layers × width", "numbers", "tokens a second", "`torch.nn.LSTM`",
        "times as fast", "bar", "aim", "n",
    )  # fmt: skip
    return [Sheet("", columns, rows)] if rows else []


def _loops(device: str, size: str, known: dict[str, Figures]) -> Iterator[Row]:
    for name, line in known.items():
        match = re.fullmatch(r"weft (\w+) over torch (\w+)", name)
        if match and "ratio" in line:
            mine, theirs = match.groups()
            rates = (known[f"weft, {mine}"], known[f"torch.nn.LSTM, {theirs}"])
            ratio, like = line["ratio"], mine == theirs
            middle = ratio["median"]
            yield (
                device, f"2 × {size}", mine if like else f"{mine} against {theirs}",
                *(f"{rate['tokens_per_second']['median']:,.0f}" for rate in rates),
                ranged(ratio, 2, "×"), verdict(middle, STEPWISE if like else None),
                verdict(middle, TWICE if like else None), str(ratio["n"]),
            )  # fmt: skip


def characters(line: Figures) -> Row:
    reached, (step, nats, _) = line.get("reached"), line["best"]
    return (
        f"{line['parameters'] / 1e6:.1f} M", f"{nats:.4f}", mark(nats <= NATS), f"{step:,}",
        f"{line['seconds']:.0f}", f"{reached[2]:.0f}" if reached else "never",
        f"≤ {SECONDS:g} {mark(bool(reached) and reached[2] <= SECONDS)}",
    )  # fmt: skip


def curve(lines: list[Figures]) -> list[Sheet]:
    """Validation by step, a few evaluations from first to last, the best among them."""
    points = sorted((line["step"], line["nats"], line["seconds"]) for line in lines)
    if not points:
        return []
    last = len(points) - 1
    best = min(range(len(points)), key=lambda i: points[i][1])
    kept = {round(last * i / (SHOWN - 1)) for i in range(SHOWN)} | {best}
    rows = [
        (f"{step:,}", f"{nats:.3f}", f"{seconds:.0f}")
        for step, nats, seconds in (points[i] for i in sorted(kept))
    ]
    return [Sheet("", ("update", "validation, nats a character", "seconds"), rows)]


SECTIONS = (
    Section(
        "Translation speed on a CPU",
        "A Transformer of Marian's shape (6 + 6 layers of 512, 58,101 words) with the "
        "same random weights in every system, five beams, taking turns on two threads; "
        "the number of steps is the same for all. The bars: 2.5 times transformers for "
        "one sentence and 1.5 times for 32, 0.9 times CTranslate2 in fp32 for both, and "
        "the same sentences. int8 is optional on either side and was not promised.",
        (Grid(("batch *: *",), on_processor),),
    ),
    Section(
        "GPT training on a GPU",
        "GPT-2 small (12 layers of 768, 50,257 words), batches of 32 × 1,024 synthetic "
        "tokens, bf16 autocast with fp32 weights, fused AdamW and the same initial "
        "weights on both sides. The bar is 1.35 times compiled transformers, which "
        "reached 416,000 tokens per second when it was set. The aim is 55 % of the "
        "device's peak (MFU; 989 dense bf16 TFLOP/s, 6 operations per weight and token, "
        "attention extra). The loss curve counts as equal if no early loss is 0.01 nats "
        "from that of Weft with compiled blocks.",
        (
            Grid(("gpt training, *",), learning),
            Grid(
                ("fused loss", "fused loss, speed"),
                losses,
                (
                    "The logits over the vocabulary are the largest matrix of an update: chunked "
                    "loss and gradient against the plain ones, forward and backward."
                ),
            ),
        ),
    ),
    Section(
        "Generation speed on a GPU",
        "Same random weights on both sides, in one process: 256 tokens after a prompt of "
        "32 with GPT-2 small, and translations with a Transformer of Marian's shape. "
        "Graphs are CUDA graphs of a step over a fixed KV cache, with plain or compiled "
        "kernels; our fastest way is compared with transformers. The bars: 5 times its "
        "compiled static cache for one text, 3 times for 32 (355 and 16,131 tokens per "
        "second when they were set), 20 times for one translation and 6 times for 64 "
        "(3.2 and 215 sentences per second), and the same texts as step by step. In bf16 "
        "random weights nearly tie, so another order of additions can choose another "
        "word.",
        (
            Grid(("gpt decoding, *", "marian decoding, *"), on_gpu),
            Grid(
                ("few, *", "largest *"),
                few,
                (
                    "Decoding one text is bound by latency, so its linear layers are kernels "
                    "fused with the norm before and the residual after; in a CUDA graph each "
                    "prefetches its weights while the previous one still runs. Calls in a graph, "
                    "twelve matrices in turn, in bf16."
                ),
            ),
        ),
    ),
    Section(
        "LSTM language-model training",
        "Two layers, batches of 20 × 35 tokens, 33,278 words, Adam and clipping: `weft "
        "train`'s loop next to the usual bare loop around `torch.nn.LSTM`, taking turns. "
        "The bar is to be as fast (the loop reached 120,000 and 99,000 tokens per second "
        "on an H200 when it was set), the aim twice as fast.",
        (Grid(("lstm 2 × *",), recurrent),),
    ),
    Section(
        "Character GPT",
        "Tiny Shakespeare, the last tenth for validation, through `weft train` on one "
        "GPU; all seconds count, compilation included. The bar: at most 1.47 nats per "
        "character, which nanoGPT's read-me reports for 10 million parameters, within "
        "three minutes.",
        (
            Table(
                "character GPT",
                (
                    *("parameters", "best nats", f"≤ {NATS:g}", "at update", "seconds in all"),
                    *(f"seconds to {NATS:g}", "bar"),
                ),
                characters,
            ),
            Grid(("character GPT, validation",), curve),
        ),
    ),
)

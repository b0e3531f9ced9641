"""How the figures of several processes, bulk prediction and large files become tables."""

from tables import Figures, Row, Section, Table, mark, ranged, verdict

EQUAL, SPEEDUP, TORCHRUN, SECONDS, BULK = 1e-6, {"BiLSTM": 1.7, "BERT-small": 1.6}, 0.98, 30, 0.95


def equal(line: Figures) -> Row:
    most = line.get("most")
    control = line["way"].startswith("nudged")
    return (
        line["family"],
        f"{line['optimiser']}, {line['dtype']}",
        str(line["processes"]),
        line["way"],
        f"{line['relative']:.1e}",
        "–" if control else verdict(line["relative"], EQUAL, above=False),
        f"{most['weight']} {most['share']:.0%}" if most else "–",
        f"{line['loss']:.1e}" if "loss" in line else "–",
        str(line["updates"]),
    )


def kills(line: Figures) -> Row:
    ended = line["seconds_until_all_ended"]
    return (
        line["way"],
        str(line["kills"]),
        f"the same {mark(line['same_bytes'])}",
        ranged(ended, 1),
        verdict(ended["high"], SECONDS, above=False),
    )


def speedup(line: Figures) -> Row:
    found = line["speedup"]
    return (
        line["model"],
        str(line["batch"]),
        ranged(line["1 process"], 3),
        ranged(line["2 processes"], 3),
        ranged(found),
        verdict(found["median"], SPEEDUP[line["model"]]),
    )


def torchrun(line: Figures) -> Row:
    ratio = line["ratio"]
    return line["device"], line["precision"], ranged(ratio), verdict(ratio["median"], TORCHRUN)


def bulk(line: Figures) -> Row:
    ratio = line["ratio"]
    speed = ranged(line["rows_per_second"], 0)
    return (
        line["recipe"],
        f"{line['rows']:,}",
        speed,
        ranged(ratio),
        verdict(ratio["median"], BULK),
    )


def workers(line: Figures) -> Row:
    return f"{line['rows']:,}", f"{line['seconds']:,.0f}", f"{line['peak_mb']:,}"


def on_ray(line: Figures) -> Row:
    repeated = line.get("finished_and_repeated")
    here = line.get("seconds_here")
    return (
        line["what"],
        line["disturbed"] or "–",
        f"the same {mark(line['same'])}",
        str(line["jobs"]),
        str(line["sent_again"]),
        "–" if repeated is None else f"{repeated} {mark(repeated == 0)}",
        "–" if here is None else f"{here:,.0f}",
        f"{line['seconds']:,.0f}",
    )


def killed(line: Figures) -> Row:
    return f"{line['rows']:,}", str(line["files"]), f"the same {mark(line['same'])}"


def streamed(line: Figures) -> Row:
    return f"{line['rows']:,}", f"{line['peak_mb']:,}", f"{line['seconds']:,}"


def added(line: Figures) -> Row:
    small, large = line["rows"]
    kept = verdict(line["added_mb"], line["bar_mb"], above=False)
    return f"{small:,} to {large:,}", f"{line['added_mb']:,}", kept


def order(line: Figures) -> Row:
    return f"{line['rows']:,}", f"the same {mark(line['same_bytes'])}"


def cplusplus(line: Figures) -> Row:
    ratio = line["ratio"]
    return (
        f"{line['rows']:,}",
        f"{line['megabytes']:,}",
        ranged(line["weft"], 0),
        ranged(line["fasttext"], 0),
        ranged(ratio),
        verdict(ratio["median"], line["bar"], above=False),
    )


SECTIONS = (
    Section(
        "One model, several processes",
        "Weights of 2 and 4 processes beside those of one after at least 200 updates with the same "
        "global batch, on CPUs with gloo and without dropout: the norm of the difference over the "
        "norm. The next columns say which weight has most of it, and how far the losses are apart. "
        "Nudged is one process whose first weights are off by rounding (6e-8): so far does "
        "training itself take weights of this family apart, with Adam by gradients that are 0 but "
        "for rounding, too: it divides them by their size.",
        (
            Table(
                "weights of N processes",
                (
                    *("family", "optimiser", "processes", "way", "difference", "bar"),
                    *("most of it in", "loss", "updates"),
                ),
                equal,
                sort=True,
            ),
        ),
    ),
    Section(
        "Killed and resumed",
        "SIGKILL to a random one of 2 processes at random moments, then `--resume`: the files are "
        "compared with those of a run that was not disturbed.",
        (
            Table(
                "2 processes, a random rank killed and resumed",
                ("way", "kills", "bytes", "seconds until the other ended", "bar"),
                kills,
            ),
        ),
    ),
    Section(
        "Speed of several processes",
        "Seconds of an update of one process over those of two, with one thread each; and of a "
        "plain run over those under torchrun with one process.",
        (
            Table(
                "seconds of an update of 1 process over those of 2, each with one thread",
                ("model", "batch", "1 process, s", "2 processes, s", "speed-up", "bar"),
                speedup,
            ),
            Table(
                "throughput under torchrun with one process over that of a plain run",
                ("device", "precision", "throughput", "bar"),
                torchrun,
            ),
        ),
    ),
    Section(
        "Bulk prediction",
        "`weft predict` in parts beside `Predictor.stream` in CPU seconds; peak memory of two "
        "workers; and a run with a worker killed.",
        (
            Table(
                "CPU seconds of Predictor.stream over those of bulk prediction, reading and "
                "writing",
                ("recipe", "rows", "rows/s", "throughput", "bar"),
                bulk,
            ),
            Table("two workers", ("rows", "seconds", "peak MB"), workers),
            Table("a worker killed: same bytes", ("rows", "parts", "bytes"), killed),
        ),
    ),
    Section(
        "Jobs on a Ray cluster",
        "Two nodes of one core on this machine, which has two cores: the same work here with both "
        "cores, on the cluster, and while a node or a worker is killed by SIGKILL. Results are the "
        "rows of the tables, without times, and the bytes of the bulk prediction. Each job starts "
        "Python and imports torch on its node, which the seconds of small jobs consist of.",
        (
            Table(
                "ray",
                (
                    *("work", "disturbed by", "results", "jobs", "sent again"),
                    *("finished and repeated", "here, s", "on the cluster, s"),
                ),
                on_ray,
            ),
        ),
    ),
    Section(
        "Training on shards",
        "A neural bag reads ten shards compressed by Zstandard for one epoch. A run that is killed "
        "and resumed has the weights of one that is not: the order of the rows is the same.",
        (
            Table("memory of training on shards", ("rows", "peak MB", "seconds"), streamed),
            Table("memory of more rows", ("rows", "added MB", "bar"), added),
            Table("order after a kill", ("rows", "bytes"), order),
        ),
    ),
    Section(
        "fastText on a million rows",
        "`weft train --recipe fasttext` and fastText's C++ program, end to end with one thread.",
        (
            Table(
                "seconds of weft train --recipe fasttext over those of fasttext in C++",
                ("rows", "MB", "Weft, s", "C++, s", "ratio", "bar"),
                cplusplus,
            ),
        ),
    ),
)
